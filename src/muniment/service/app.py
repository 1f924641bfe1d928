"""What every use case is handed: storage, clock, ids, randomness, settings (house section 8)."""

from collections.abc import Callable
from dataclasses import dataclass

from msgspec import Struct

from muniment.model.events import Fact, encode_payload
from muniment.model.ids import ChangeId, DocumentId, EventId, RevisionId
from muniment.model.stores import DOCUMENTS_MAX
from muniment.service.paging import CursorSeal
from muniment.storage.base import Storage

SALT_BYTES = 16


@dataclass(frozen=True, slots=True)
class Policy:
    """The settings that use cases look at."""

    versioned_surface: bool = True
    operator_key_hash: bytes | None = None
    documents_max: int = DOCUMENTS_MAX


@dataclass(frozen=True, slots=True)
class App:
    """The composed application, made by `main`."""

    storage: Storage
    policy: Policy
    cursors: CursorSeal
    now: Callable[[], int]
    new_id: Callable[[str], str]
    random_bytes: Callable[[int], bytes]
    fingerprint_key: bytes

    def stamp(self, type: str) -> "Stamp":
        """Time, id and salt of an event, made before the transaction that may run twice."""
        return self.stamps(type)[0]

    def stamps(self, *types: str) -> list["Stamp"]:
        """Several events of one use case, at one time."""
        at = self.now()
        return [
            Stamp(type, EventId(self.new_id("event")), self.random_bytes(SALT_BYTES), at)
            for type in types
        ]

    def revision_stamp(self, paths: int) -> "RevisionStamp":
        """Everything fresh that a revision of so many changed paths needs."""
        return RevisionStamp(
            event=self.stamp("revision.created"),
            revision=RevisionId(self.new_id("revision")),
            changes=[ChangeId(self.new_id("change")) for _ in range(paths)],
            documents=[DocumentId(self.new_id("document")) for _ in range(paths)],
        )


class Stamp(Struct, frozen=True):
    """The fresh parts of one event, and the time of the use case."""

    type: str
    event: EventId
    salt: bytes
    at: int

    def fact(self, **payload: object) -> Fact:
        """The event with its payload: ids, paths, tree hashes and counts, never content (R-31)."""
        return Fact(self.event, self.type, encode_payload(payload), self.salt, self.at)


class RevisionStamp(Struct, frozen=True):
    """The fresh parts of one revision: ids for it, for its changes and for new documents."""

    event: Stamp
    revision: RevisionId
    changes: list[ChangeId]
    documents: list[DocumentId]

    @property
    def at(self) -> int:
        """The time of the use case."""
        return self.event.at
