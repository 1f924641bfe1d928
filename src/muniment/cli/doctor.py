"""`muniment doctor` and `muniment audit verify`: is what is kept what it must be?"""

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

import muniment
from muniment.cli.command import Invocation, command, find_store, usage_error
from muniment.cli.output import note, show_json, show_table
from muniment.cli.stores import PAGE_ITEMS
from muniment.model.audit import Verified
from muniment.model.events import Head
from muniment.model.ids import is_id

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Verify the event streams.")

_HEAD = re.compile(
    r"(?:(?P<stream>[a-z]+_[0-9a-f]{32})=)?(?P<seq>[1-9][0-9]{0,15}):(?P<hash>[0-9a-f]{64})"
)

Noted = dict[str, dict[int, bytes]]


def doctor(
    invocation: Invocation,
    *,
    store: Annotated[
        str | None, typer.Option("--store", metavar="ID", help="Only this store, by its id.")
    ] = None,
) -> None:
    """Check everything in a database against its hashes, trees and events; changes nothing."""
    from muniment import main

    settings = invocation.database()
    _check_id(store)
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
        note(f"damaged: {_count(len(report.findings), 'finding')}; see docs/operating.md")
        raise typer.Exit(1)
    asides = f", {_count(len(report.warnings), 'warning')}" if report.warnings else ""
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
    if invocation.db is not None and invocation.key is None:
        verified, unseen = _in_database(invocation, store, head or [])
    else:
        with invocation.client() as client:
            verified, unseen = _over_api(client, store, head or [])
    _show(invocation, verified, unseen)


def _in_database(
    invocation: Invocation, store: str | None, heads: list[str]
) -> tuple[list[Verified], list[str]]:
    from muniment import main

    settings = invocation.database()
    _check_id(store)
    noted = _read_heads(heads, store)
    report = asyncio.run(main.diagnose(settings, store, noted=noted, streams_only=True))
    named = {one.stream for one in report.streams}
    others = [
        Verified(one.place or one.kind, 0, 0, Head(), f"{one.kind}: {one.message}")
        for one in report.findings
        if one.kind not in ("events", "event_payloads") and one.place not in named
    ]
    return [*report.streams, *others, *_missing(noted, report.streams)], []


def _missing(noted: Noted, seen: Iterable[Verified]) -> list[Verified]:
    """The streams of which a head was noted and that are not there, or not shown."""
    found = {one.stream for one in seen}
    return [
        Verified(stream, 0, 0, Head(), "a head of it was noted, but it is not to be seen")
        for stream in noted
        if stream not in found
    ]


def _over_api(
    client: "muniment.Client", store: str | None, heads: list[str]
) -> tuple[list[Verified], list[str]]:
    from muniment.client.audit import verify_shown, verify_stream
    from muniment.client.records import Event, Page

    me = client.whoami()
    workspace = me.workspace.id
    wanted = None if store is None else find_store(client, store)
    noted = _read_heads(heads, wanted or workspace)
    verified: list[Verified] = []
    unseen: list[str] = []
    if wanted is None and me.api_key.role == "admin":
        verified.append(verify_stream(workspace, client.events_page, noted.get(workspace, None)))
    elif wanted is None:
        verified.append(verify_shown(workspace, client.events_page))
        unseen.append("the workspace's events that do not concern you, so its chain is not checked")
    ids = (
        [wanted]
        if wanted
        else [one.id for one in client.stores.list(include_archived=True, limit=PAGE_ITEMS)]
    )
    for identifier in ids:

        def fetch(*, limit: int, page: str | None = None, of: str = identifier) -> Page[Event]:
            return client.stores.events_page(of, limit=limit, page=page)

        try:
            verified.append(verify_stream(identifier, fetch, noted.get(identifier, None)))
        except (muniment.Denied, muniment.NotFound) as error:
            if wanted is not None:
                raise
            unseen.append(f"{identifier}: {error.message}")
    if wanted is None and me.api_key.role != "admin":
        unseen.append("stores on which you hold no assignment")
    return [*verified, *_missing(noted, verified)], unseen


def _show(invocation: Invocation, verified: list[Verified], unseen: list[str]) -> None:
    damaged = [one for one in verified if one.damage is not None]
    if invocation.json:
        show_json({"streams": [*map(_as_json, verified)], "not_seen": unseen})
    else:
        rows = ((one.stream, one.events, one.erased, *_outcome(one)) for one in verified)
        columns = ["STREAM", "EVENTS>", "ERASED>", "OUTCOME", "HEAD"]
        show_table(columns, rows, empty="there is no stream")
        for what in unseen:
            note(f"not seen: {what}")
    if damaged:
        note(f"damaged: {len(damaged)} of {_count(len(verified), 'stream')}")
        raise typer.Exit(1)
    events = sum(one.events for one in verified)
    note(f"verified: {_count(events, 'event')} in {_count(len(verified), 'stream')}")


def _outcome(one: Verified) -> tuple[str, str]:
    head = f"{one.head.seq}:{one.head.hash.hex()}"
    if one.damage is None:
        return "verified", head
    return f"{'' if one.number is None else f'event {one.number}: '}{one.damage}", "-"


def _as_json(one: Verified) -> dict[str, object]:
    head = {"seq": one.head.seq, "hash": one.head.hash.hex()}
    return {
        "stream": one.stream,
        "events": one.events,
        "erased": one.erased,
        "head": head if one.damage is None else None,
        "damage": one.damage,
        "seq": one.number,
    }


def _read_heads(heads: list[str], default: str | None) -> Noted:
    """Noted heads by stream."""
    noted: Noted = {}
    for text in heads:
        match = _HEAD.fullmatch(text)
        if match is None:
            raise usage_error(f"--head {text!r} is not SEQ:HASH or STREAM=SEQ:HASH")
        stream = match["stream"] or default
        if stream is None:
            raise usage_error("say whose head it is: --head STREAM=SEQ:HASH, or --store")
        noted.setdefault(stream, {})[int(match["seq"])] = bytes.fromhex(match["hash"])
    return noted


def _check_id(store: str | None) -> None:
    if store is not None and not is_id("store", store):
        raise usage_error("--store takes a store's id here: names are read with a key only")


def _count(number: int, noun: str) -> str:
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
