"""Events: append-only, hash-chained facts with erasable payloads (R-30, R-31, C-161).

An event's hash covers the previous hash, the canonical header and a salted commitment to its
payload; payload and salt lie in a side row that erasure may drop without breaking the chain.
Payload fields hold ids, paths, tree hashes, counts and enum words: there is no field for content.
"""

import hashlib

import msgspec
from msgspec import Struct, structs

from muniment.model.ids import EventId, to_bytes

GENESIS = b"\x00" * 32
"""The previous hash of a stream's first event."""

TYPES: dict[str, str] = {
    "memory.store_created": "A store was made. `name` is not part of it.",
    "memory.store_updated": "A store's own fields were changed; `fields` names them.",
    "memory.store_archived": "A store was archived: reads go on, writes are refused.",
    "memory.store_deleting": "A store was fenced for deletion: nothing more is written to it.",
    "memory.store_deleted": "A store's erasure has finished; `last_event_hash` ended its stream.",
    "revision.created": "A ref of the store moved to a new revision.",
    "principal.created": "A principal was made.",
    "key.created": "An API key was made.",
    "key.revoked": "An API key was revoked.",
    "delegation.created": "A principal may act as another.",
    "delegation.deleted": "A delegation ended.",
    "assignment.created": "A permission assignment was made, minted or granted.",
    "assignment.deleted": "A permission assignment ended.",
    "owner.created": "An agent, a Session or a surface scope was registered.",
    "job.retried": "An administrator had an unfinished job tried again, parked or not.",
    "workspace.created": "The workspace began.",
    "workspace.disabled": "The operator disabled the workspace: its keys are refused.",
    "workspace.enabled": "The operator enabled the workspace again.",
}
"""Every event type and what it says, shown in docs/events.md."""


class Fact(Struct, frozen=True):
    """An event before it has a place in its stream; `salt` is 16 random bytes made with it."""

    id: EventId
    type: str
    payload: bytes
    salt: bytes
    created_at: int


class Event(Struct, frozen=True):
    """An event in its stream. `payload` is canonical JSON, None once erased."""

    id: EventId
    seq: int
    type: str
    created_at: int
    commitment: bytes
    hash: bytes
    payload: bytes | None = None
    salt: bytes | None = None


class Head(Struct, frozen=True):
    """Where a stream ends: the number and the hash of its last event."""

    seq: int = 0
    hash: bytes = GENESIS


_ENCODER = msgspec.json.Encoder(order="sorted")


def encode_payload(payload: dict[str, object]) -> bytes:
    """The payload's canonical bytes: compact JSON with sorted keys."""
    return _ENCODER.encode(payload)


def chain(stream: bytes, head: Head, fact: Fact) -> Event:
    """The event that `fact` becomes after `head` in the stream with these 16 id bytes."""
    event = Event(
        id=fact.id,
        seq=head.seq + 1,
        type=fact.type,
        created_at=fact.created_at,
        commitment=commit(fact.salt, fact.payload),
        hash=b"",
        payload=fact.payload,
        salt=fact.salt,
    )
    return structs.replace(event, hash=link(stream, head.hash, event))


def commit(salt: bytes, payload: bytes) -> bytes:
    """What an event's hash covers of its payload."""
    return hashlib.sha256(salt + payload).digest()


def link(stream: bytes, previous: bytes, event: Event) -> bytes:
    """The hash that the event has after the one with the hash `previous`."""
    header = ("event", previous, stream, event.seq, to_bytes(event.id), event.type)
    record = (*header, event.created_at, event.commitment)
    return hashlib.sha256(msgspec.msgpack.encode(record)).digest()


def check_payload(event: Event) -> str | None:
    """What is wrong with the payload that the event is read with; None where nothing is.

    Payload and salt that are both gone have been erased, which is no damage.
    """
    if event.payload is None and event.salt is None:
        return None
    if event.payload is None or event.salt is None:
        return "only one of its payload and its salt is there"
    whole = isinstance(event.salt, bytes) and isinstance(event.payload, bytes)
    if not whole or commit(event.salt, event.payload) != event.commitment:
        return "its payload and salt do not fit its commitment"
    return None


def check_event(stream: bytes, head: Head, event: Event) -> str | None:
    """What is wrong with the event that is read after `head`; None where nothing is.

    Number, payload and hash are held against the stream (its 16 id bytes) and what came before.
    """
    if event.seq != head.seq + 1:
        return f"it follows number {head.seq}: what was between them is missing"
    damage = check_payload(event)
    if damage is None and link(stream, head.hash, event) != event.hash:
        damage = "its hash does not follow from the one before and from what it says"
    return damage


def check_head(last: Head, said: Head) -> str | None:
    """What is wrong with where a stream is said to end, for one that ends at `last`."""
    if said.seq > last.seq:
        return f"it ends at number {last.seq}, its head is number {said.seq}: its end is missing"
    if said.seq < last.seq:
        return f"it ends at number {last.seq}, its head is number {said.seq}"
    return None if said == last else f"its head has another hash than number {last.seq}"
