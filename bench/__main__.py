"""`python -m bench [ROW …]`: runs the rows, prints a table, writes JSON where asked."""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from rich.console import Console

from bench import changes, contended, embedded, processes, wire
from bench.report import Figure, Options, print_table, write_json
from bench.workshop import Workshop

ROWS: Mapping[str, Callable[[Workshop], list[Figure]]] = {
    "get": wire.run_get,
    "put": wire.run_put,
    "contended": contended.run_contended,
    "grouped": contended.run_grouped,
    "change": changes.run_change,
    "start": processes.run_start,
    "memory": processes.run_memory,
    "cli": processes.run_cli,
    "embedded": embedded.run_embedded,
}
STORAGES = ("memory", "sqlite", "postgres")


def read_arguments(arguments: list[str]) -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Benchmarks, each beside its raw counterpart."
    )
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; none: all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--quick", action="store_true", help="small sizes, short rounds")
    parser.add_argument("--tiny", action="store_true", help="only see that every row runs")
    parser.add_argument(
        "--storage", action="append", choices=STORAGES, help="only this one; may be repeated"
    )
    given = parser.parse_args(arguments)
    for name in given.rows:
        if name not in ROWS:
            parser.error(f"no row {name!r}; there are {', '.join(ROWS)}")
    return given


def main(arguments: list[str]) -> int:
    """Runs the chosen rows; 0 also where a target is missed, for a busy machine may miss one."""
    given = read_arguments(arguments)
    make = Options.tiny if given.tiny else Options.quick if given.quick else _full
    options = make(tuple(given.storage or STORAGES))
    messages = Console(stderr=True, highlight=False)
    figures: list[Figure] = []
    skipped: list[str] = []
    for name in given.rows or ROWS:

        def say(message: str, name: str = name) -> None:
            messages.print(f"{name}: {message}", style="dim")

        with Workshop(options, say) as workshop:
            figures += ROWS[name](workshop)
            skipped += workshop.skipped
    width = None if sys.stdout.isatty() else 200
    console = Console(width=width, highlight=False)
    print_table(figures, console)
    for line in skipped:
        console.print(line)
    if given.json is not None:
        write_json(figures, skipped, given.json)
    return 0


def _full(storages: tuple[str, ...]) -> Options:
    return Options(storages=storages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
