"""Revisions and the changes that made them (R-10, R-11, C-027 … C-029)."""

import msgspec
from msgspec import Struct

from muniment.model.access import Actor
from muniment.model.ids import ChangeId, DocumentId, RevisionId, to_bytes

CANONICAL = "canonical"


class Revision(Struct, frozen=True):
    """An immutable record: a whole tree, its parent, its author, its kind, its time.

    `actor` is the packed author (`pack_actor`), kept apart so that erasure can replace it.
    """

    id: RevisionId
    parent: RevisionId | None
    tree: bytes
    documents: int
    total_bytes: int
    kind: str
    actor: bytes
    created_at: int


class Change(Struct, frozen=True):
    """What one revision did to one path. `n` is 0 for the change that made the revision.

    `seq` is the canonical position the change landed at, None while only a working ref holds it.
    `blob` and `size` are None for a removal.
    """

    id: ChangeId
    revision: RevisionId
    path: str
    n: int
    document: DocumentId
    operation: str
    moved_from: str | None
    blob: bytes | None
    size: int | None
    seq: int | None
    actor: bytes
    created_at: int


def pack_actor(actor: Actor) -> bytes:
    """The author of a record: `["actor", principal, key, session or nil]`, ids as 16 bytes."""
    session = None if actor.session is None else to_bytes(actor.session)
    return msgspec.msgpack.encode(
        ("actor", to_bytes(actor.principal), to_bytes(actor.key), session)
    )
