"""Documents: content at a path on canonical, and the document surface's preconditions (R-19)."""

from enum import Enum

from msgspec import Struct

from muniment.model.errors import Conflict, NotFound
from muniment.model.ids import ChangeId, DocumentId


class Document(Struct, frozen=True):
    """A document's row. `content` is None unless it was asked for."""

    id: DocumentId
    path: str
    blob: bytes
    size: int
    change: ChangeId
    created_at: int
    updated_at: int
    content: bytes | None = None


class DocumentItem(Struct, frozen=True):
    """A document as a list shows it."""

    path: str
    blob: bytes
    size: int
    updated_at: int


class Absent(Enum):
    """Preconditions that are not a hash."""

    NONE = "no precondition"
    MUST_NOT_EXIST = "If-None-Match: *"


Precondition = bytes | Absent
"""The SHA-256 that must be there now, or one of Absent."""


def check_delete(path: str, current: Document | None, precondition: Precondition) -> Document:
    """The document to delete; NotFound on a free path, Conflict for a missing or wrong hash."""
    if current is None:
        raise NotFound(f"no document at {path}", path=path)
    if not isinstance(precondition, bytes):
        raise Conflict(
            f"deleting {path} needs its current hash as If-Match",
            path=path,
            current_sha256=current.blob.hex(),
        )
    return check_match(path, current, precondition)


def check_match(path: str, current: Document | None, expected: bytes) -> Document:
    """The document; Conflict, saying what is there now, unless it has the hash `expected`."""
    if current is None:
        raise Conflict(
            f"If-Match was sent but there is no document at {path}", path=path, current_sha256=None
        )
    if current.blob != expected:
        raise Conflict(
            f"{path} has changed: it is not what If-Match names",
            path=path,
            current_sha256=current.blob.hex(),
        )
    return current
