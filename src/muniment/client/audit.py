"""Verifying event streams over the API: nothing that the server says of itself is believed."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Protocol

from muniment.client.errors import Internal
from muniment.client.records import Event, Page
from muniment.model import events
from muniment.model.audit import Audit, Verified
from muniment.model.events import Head, check_payload, encode_payload
from muniment.model.ids import EventId, to_bytes

EVENTS_AT_ONCE = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Fetch(Protocol):
    """A page of a stream, as `client.events_page` gives it."""

    def __call__(self, *, limit: int, page: str | None = None) -> Page[Event]:
        """At most `limit` events, the first or those of a cursor."""


def verify_stream(stream: str, fetch: Fetch, noted: Mapping[int, bytes] | None = None) -> Verified:
    """Recomputes every commitment and hash of a stream, up to the head that the server names.

    `noted` are numbers and hashes that have to lie on it. What the server cannot read is damage,
    named by its number, and ends the verification.
    """
    audit = Audit(to_bytes(stream), noted)
    for page in _pages(fetch, audit):
        for event in page.items:
            kept = as_kept(event)
            if kept is None:
                audit.stop("it is not written as an event is", event.seq)
                return audit.verified(stream)
            audit.add(kept)
        if page.next_page is None:
            said = page.head or {"seq": 0, "hash": ""}
            audit.finish(Head(said["seq"], _digest(said["hash"]) or b""))
            if audit.events == 0:
                audit.stop("it has no event, and every stream begins with one", None)
    return audit.verified(stream)


def verify_shown(stream: str, fetch: Fetch) -> Verified:
    """Checks the events of a stream that is shown in part: each payload against its commitment."""
    audit = Audit(to_bytes(stream))
    shown = erased = 0
    for page in _pages(fetch, audit):
        for event in page.items:
            kept = as_kept(event)
            damage = "it is not written as an event is" if kept is None else check_payload(kept)
            if damage is not None:
                audit.stop(damage, event.seq)
            audit.head = Head(event.seq, b"" if kept is None else kept.hash)
            shown += 1
            erased += event.data is None
    damage, number = audit.damage or (None, None)
    return Verified(stream, shown, erased, audit.head, damage, number)


def _pages(fetch: Fetch, audit: Audit) -> Iterator[Page[Event]]:
    """Every page; where the server fails, event by event up to the one that it cannot read."""
    cursor: str | None = None
    seen: set[str] = set()
    limit = EVENTS_AT_ONCE
    while True:
        try:
            page = fetch(limit=limit, page=cursor)
        except Internal as error:
            if "damage" in error.detail:
                audit.stop(str(error.detail["damage"]), error.detail.get("seq"))
                return
            if limit == 1:
                audit.stop(f"the server cannot read it: {error.message}", audit.head.seq + 1)
                return
            limit = 1
            continue
        yield page
        if page.next_page is None:
            return
        cursor = page.next_page
        if cursor in seen:
            audit.stop("the server gives the same page again", audit.head.seq + 1)
            return
        seen.add(cursor)


def _digest(text: str) -> bytes | None:
    """The bytes of a hexadecimal text, None where it is none."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return None


def as_kept(event: Event) -> events.Event | None:
    """The event as the server's database has it; None where it cannot be one."""
    digests = [_digest(text) for text in (event.id[-32:], event.commitment, event.hash)]
    salt = None if event.salt is None else _digest(event.salt)
    if None in digests or (salt is None) != (event.salt is None):
        return None
    return events.Event(
        EventId(event.id),
        event.seq,
        event.type,
        (event.created_at - _EPOCH) // timedelta(microseconds=1),
        digests[1] or b"",
        digests[2] or b"",
        None if event.data is None else encode_payload(event.data),
        salt,
    )
