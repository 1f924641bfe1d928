"""What commands print: tables for people, aligned text for pipes, JSON for programs.

Standard output has the answer alone; what is said about it goes to standard error.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from io import TextIOWrapper
from itertools import chain, islice
from shutil import get_terminal_size
from typing import Literal, TextIO

MEASURED_ROWS = 200
HASH_CHARACTERS = 12


def note(text: str) -> None:
    """Says something to people, on standard error; where nobody can be told, nothing fails."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        discard(sys.stderr)


def prepare_streams() -> None:
    """Makes the standard streams usable: those that are closed lead nowhere, and text that the
    terminal cannot show is escaped. What goes to a pipe or a file is UTF-8, as documents are."""
    if sys.stdin is None:
        sys.stdin = _nowhere("r")
    if sys.stdout is None:
        sys.stdout = _nowhere("w")
    if sys.stderr is None:
        sys.stderr = _nowhere("w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            encoding = None if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def _nowhere(mode: Literal["r", "w"]) -> TextIO:
    # The lowest number that is free, so that no file of ours becomes a standard stream.
    return os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8")


def write_bytes(content: bytes) -> None:
    """Writes bytes to standard output as they are."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def discard(stream: TextIO) -> None:
    """Leads a stream that failed nowhere, so that what it still holds fails no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show_json(value: object) -> None:
    """Prints one value as a line of JSON, in the server's own shapes."""
    from muniment.client.records import to_json

    print(to_json(value).decode())


def show_json_items(items: Iterable[object]) -> None:
    """Prints a JSON array, an item a line, as the items come."""
    from muniment.client.records import to_json

    before = "["
    for item in items:
        print(f"{before}{to_json(item).decode()}", end="")
        before = ",\n"
    print("[]" if before == "[" else "]")


def show_record(fields: Mapping[str, object]) -> None:
    """Prints names and values, one a line; lists one value a line."""
    width = max(len(name) for name in fields)
    for name, value in fields.items():
        lines = [cell(one) for one in value] if isinstance(value, list | tuple) else [cell(value)]
        for line in lines or [cell(None)]:
            print(f"{name:<{width}}  {line}")
            name = ""


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Prints rows below their columns' names; `empty` is said where there is no row.

    Columns whose name ends in `>` are aligned to the right. Long tables are printed as they come.
    """
    texts = ([cell(value) for value in row] for row in rows)
    first = list(islice(texts, MEASURED_ROWS))
    if not first:
        note(empty)
        return
    rest = next(texts, None)
    # An id that is folded into a narrow terminal could not be copied, so wide tables stay plain.
    if rest is None and sys.stdout.isatty() and _width(columns, first) <= get_terminal_size()[0]:
        _show_rich(columns, first)
    else:
        _show_plain(columns, first, texts if rest is None else chain([rest], texts))


def cell(value: object) -> str:
    """A value as people read it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        local = value.astimezone() if sys.stdout.isatty() else value
        return local.strftime("%Y-%m-%d %H:%M:%S") if sys.stdout.isatty() else _rfc3339(value)
    if isinstance(value, int):
        return f"{value:,}" if sys.stdout.isatty() else str(value)
    return str(value)


def short_hash(sha256: str) -> str:
    """A hash as wide as a terminal bears; whole in a pipe."""
    return sha256[:HASH_CHARACTERS] if sys.stdout.isatty() else sha256


def _rfc3339(value: datetime) -> str:
    return value.isoformat(timespec="seconds").replace("+00:00", "Z")


def _show_rich(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(
            column.rstrip(">"), justify="right" if column.endswith(">") else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(value) for value in row))
    Console().print(table)


def _show_plain(
    columns: Sequence[str], rows: Sequence[Sequence[str]], more: Iterator[Sequence[str]]
) -> None:
    names = [column.rstrip(">") for column in columns]
    widths = _widths(columns, rows)
    for row in chain([names], rows, more):
        cells = [
            value.rjust(width) if column.endswith(">") else value.ljust(width)
            for column, value, width in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, values)) for values in zip(columns, *rows, strict=True)]


def _width(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    return sum(_widths(columns, rows)) + 2 * len(columns)
