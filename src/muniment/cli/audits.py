"""What `muniment audit verify` does; its command in `cli/doctor.py` loads this when it is asked."""

import asyncio
import re
from collections.abc import Iterable

import muniment
from muniment import main
from muniment.cli.command import Invocation, find_store, usage_error
from muniment.cli.doctor import check_id, counted
from muniment.cli.output import note, show_json, show_table
from muniment.cli.stores import PAGE_ITEMS
from muniment.client.audit import verify_shown, verify_stream
from muniment.client.records import Event, Page
from muniment.model.audit import Verified
from muniment.model.events import Head

_HEAD = re.compile(
    r"(?:(?P<stream>[a-z]+_[0-9a-f]{32})=)?(?P<seq>[1-9][0-9]{0,15}):(?P<hash>[0-9a-f]{64})"
)

Noted = dict[str, dict[int, bytes]]


def verify(invocation: Invocation, store: str | None, heads: list[str]) -> bool:
    """Verifies what the caller named and shows it; whether all of it is as it must be."""
    if invocation.db is not None and invocation.key is None:
        verified, unseen = _in_database(invocation, store, heads)
    else:
        with invocation.client() as client:
            verified, unseen = _over_api(client, store, heads)
    return _show(invocation, verified, unseen)


def _in_database(
    invocation: Invocation, store: str | None, heads: list[str]
) -> tuple[list[Verified], list[str]]:
    settings = invocation.database()
    check_id(store)
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


def _show(invocation: Invocation, verified: list[Verified], unseen: list[str]) -> bool:
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
        note(f"damaged: {len(damaged)} of {counted(len(verified), 'stream')}")
        return False
    events = sum(one.events for one in verified)
    note(f"verified: {counted(events, 'event')} in {counted(len(verified), 'stream')}")
    return True


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
