"""Commands about the database as a whole: its schema, copies of it, putting one in its place.

They open the database of the settings themselves and ask no server.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from muniment.cli.command import Invocation, usage_error
from muniment.cli.output import note, show_json, show_record
from muniment.model.copies import Contents, Tell
from muniment.settings import Settings

QUIET_SECONDS = 1.0
"""Work that is done sooner shows no progress."""

REDRAW_SECONDS = 0.1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def migrate(invocation: Invocation) -> None:
    """Bring the database's schema to this version; `serve` and embedded use do it too."""
    import asyncio

    from muniment import main

    settings = invocation.settings()
    before, after = asyncio.run(main.migrate(settings))
    if invocation.json:
        show_json({"schema": after, "before": before})
    elif before == 0:
        note(f"made a new database at {settings.shown_database}, with schema {after}")
    elif before < after:
        note(f"brought the database from schema {before} to {after}")
    else:
        note(f"the database has schema {after}: there is nothing to do")


def backup(
    invocation: Invocation,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The copy that is made.")],
    force: Annotated[bool, typer.Option("--force", help="Replace FILE, where it exists.")] = False,
) -> None:
    """Copy an SQLite database to a file, while servers and programs go on writing.

    The copy is one consistent state, is checked, and gets its name when it is whole.
    """
    from muniment import main

    settings = invocation.settings()
    with _progress() as tell:
        contents = main.back_up(settings, _path(file), tell, force=force)
    if invocation.json:
        show_json({"file": file, "database": settings.shown_database, **_fields(contents)})
        return
    note(f"copied {settings.shown_database} to {file}")
    _show(contents)
    if contents.sealed:
        note("bodies are sealed: the copy is worth nothing without the MUNIMENT_MASTER_KEY of now")


def restore(
    invocation: Invocation,
    *,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `muniment backup` has made.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the database; it is kept beside.")
    ] = False,
) -> None:
    """Put a copy in the place of an SQLite database that nothing has open."""
    from muniment import main

    settings = invocation.settings()
    with _progress() as tell:
        restored = main.restore(settings, _path(file), tell, force=force)
    contents, kept, owned = restored.contents, restored.kept, restored.owned
    if invocation.json:
        shown = {"file": file, "database": settings.shown_database, "kept": kept and str(kept)}
        show_json({**shown, **_fields(contents), "migrates": restored.migrates, "owned": owned})
        return
    note(f"restored {settings.shown_database} from {file}")
    _show(contents)
    if kept is not None:
        note(f"the database before is kept as {kept}: remove it when you no longer need it")
    if restored.migrates:
        note(f"it has schema {contents.schema}: the next start, or `muniment migrate`, updates it")
    if contents.last_write is not None:
        last = _time(contents.last_write, "seconds")
        note(f"what was erased after {last} is in it: erase it again")
    note(_about_key(settings, owned))


def _path(file: str) -> Path:
    if file == "-":
        raise usage_error("FILE cannot be -: a database is no stream")
    return Path(file)


def _about_key(settings: Settings, owned: bool | None) -> str:
    """Whether commands of this home are the restored owner's, and what to do where they are not."""
    path = settings.credentials
    if owned:
        return f"the key in {path} is one of it: commands on this machine are its owner's"
    advice = (
        "put the credentials file of the backup's home there before you start; otherwise the next"
        " start makes an administrator's key of a new owner, whom no store belongs to"
    )
    if not path.exists():
        return f"there is no key in {path}: {advice}"
    if owned is None:
        return f"whether the key in {path} is one of it shows at the next start; if not, {advice}"
    return f"the key in {path} is none of it: {advice}"


def _fields(contents: Contents) -> dict[str, Any]:
    last = None if contents.last_write is None else _time(contents.last_write)
    return {
        "bytes": contents.bytes,
        "workspaces": contents.workspaces,
        "stores": contents.stores,
        "documents": contents.documents,
        "last_write": last,
        "schema": contents.schema,
        "sealed": contents.sealed,
    }


def _show(contents: Contents) -> None:
    fields = _fields(contents)
    if contents.last_write is not None:
        fields["last_write"] = _EPOCH + timedelta(microseconds=contents.last_write)
    show_record({name.replace("_", " "): value for name, value in fields.items()})


def _time(microseconds: int, unit: str = "microseconds") -> str:
    at = _EPOCH + timedelta(microseconds=microseconds)
    return at.isoformat(timespec=unit).replace("+00:00", "Z")


@contextmanager
def _progress() -> Iterator[Tell]:
    """Shows on a terminal how far work is that takes its time; elsewhere nothing."""
    began = drawn = time.monotonic()
    shown = ""

    def tell(what: str, share: float | None) -> None:
        nonlocal drawn, shown
        at = time.monotonic()
        if at - began < QUIET_SECONDS or at - drawn < REDRAW_SECONDS:
            return
        drawn = at
        line = what if share is None else f"{what} {share:4.0%}"
        print(f"\r{line:<{len(shown)}}", end="", file=sys.stderr, flush=True)
        shown = line

    def nothing(what: str, share: float | None) -> None:
        pass

    try:
        yield tell if sys.stderr.isatty() else nothing
    finally:
        if shown:
            print(f"\r{'':<{len(shown)}}\r", end="", file=sys.stderr, flush=True)
