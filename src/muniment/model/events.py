"""Events: append-only, hash-chained facts with erasable payloads (R-30, R-31, C-161).

An event's hash covers the previous hash, the canonical header and a salted commitment to its
payload; payload and salt lie in a side row that erasure may drop without breaking the chain.
Payload fields hold ids, paths, tree hashes, counts and enum words: there is no field for content.
"""

import hashlib

import msgspec
from msgspec import Struct

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
    commitment = hashlib.sha256(fact.salt + fact.payload).digest()
    seq = head.seq + 1
    header = ("event", head.hash, stream, seq, to_bytes(fact.id), fact.type, fact.created_at)
    digest = hashlib.sha256(msgspec.msgpack.encode((*header, commitment))).digest()
    return Event(
        id=fact.id,
        seq=seq,
        type=fact.type,
        created_at=fact.created_at,
        commitment=commitment,
        hash=digest,
        payload=fact.payload,
        salt=fact.salt,
    )
