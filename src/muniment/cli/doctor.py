"""`muniment doctor` and `muniment audit verify`: is what is kept what it must be?"""

import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from muniment.cli.command import Invocation, command, usage_error
from muniment.cli.output import note, show_json, show_table
from muniment.model.ids import is_id

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Verify the event streams.")


def doctor(
    invocation: Invocation,
    *,
    store: Annotated[
        str | None, typer.Option("--store", metavar="ID", help="Only this store, by its id.")
    ] = None,
) -> None:
    """Check everything in a database against its hashes, trees and events; changes nothing."""
    import asyncio

    from muniment import main

    settings = invocation.database()
    check_id(store)
    progress = _Progress() if sys.stderr.isatty() else None
    report = asyncio.run(main.diagnose(settings, store, progress=progress))
    if progress is not None:
        progress.end()
    if invocation.json:
        shown = ("schema", "checked", "findings", "warnings")
        show_json({name: getattr(report, name) for name in shown})
    else:
        show_table(["CHECKED", "COUNT>"], report.checked.items(), empty="nothing was checked")
        for label, found in (("finding", report.findings), ("warning", report.warnings)):
            for one in found:
                places = (one.workspace, one.store, one.place)
                where = " ".join(_once(place for place in places if place))
                print(f"{label}: {one.kind}: {where}: {one.message}")
    if report.findings:
        note(f"damaged: {counted(len(report.findings), 'finding')}; see docs/operating.md")
        raise typer.Exit(1)
    asides = f", {counted(len(report.warnings), 'warning')}" if report.warnings else ""
    note(f"whole: no findings{asides}")


@command(group, "verify")
def verify(
    invocation: Invocation,
    *,
    store: Annotated[
        str | None, typer.Option("--store", metavar="STORE", help="Only this store's stream.")
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            "--head",
            metavar="[STREAM=]SEQ:HASH",
            help="A head noted before, which has to lie on the stream: --store's, or the"
            " workspace's. May be repeated.",
        ),
    ] = None,
) -> None:
    """Recompute the chains of events, over the API, or with --db alone in the database itself.

    With --db and no --key every workspace is read, without rights; otherwise what the key may see.
    """
    from muniment.cli.audits import verify as run

    if not run(invocation, store, head or []):
        raise typer.Exit(1)


def check_id(store: str | None) -> None:
    """A usage error where this is no store's id: there is no key with which to read names."""
    if store is not None and not is_id("store", store):
        raise usage_error("--store takes a store's id here: names are read with a key only")


def counted(number: int, noun: str) -> str:
    """The number and the noun, in the plural where it must be."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _once(words: Iterable[str]) -> Iterator[str]:
    return iter(dict.fromkeys(words))


class _Progress:
    """One line on the terminal that says how far a check has come."""

    def __init__(self) -> None:
        self._width = 0

    def __call__(self, about: str, rows: int) -> None:
        self._write(f"checking {about}: {rows:,} rows")

    def end(self) -> None:
        """Takes the line away."""
        self._write("")

    def _write(self, text: str) -> None:
        sys.stderr.write(f"\r{text:<{self._width}}" if text else f"\r{'':<{self._width}}\r")
        sys.stderr.flush()
        self._width = max(self._width, len(text))
