"""What calls return: frozen records. Times are aware datetimes in UTC, hashes lower-case hex.

A field that a newer server adds is ignored, so an older client goes on working.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class Subject(Struct, frozen=True, omit_defaults=True):
    """Somebody or something that owns or may: its kind, and the one id of that kind.

    `str(subject)` is `kind:id`, which every call takes in place of a Subject.
    """

    kind: str
    principal: str | None = None
    agent_definition: str | None = None
    session: str | None = None
    surface_scope: str | None = None
    workspace: str | None = None
    api_key: str | None = None
    memory_store: str | None = None

    @property
    def id(self) -> str | None:
        """The id; None for the caller's own workspace."""
        found: str | None = getattr(self, self.kind, None)
        return found

    def __str__(self) -> str:
        return self.kind if self.id is None else f"{self.kind}:{self.id}"

    @classmethod
    def of(cls, text: "str | Subject") -> "Subject":
        """The subject that `kind:id`, or `workspace`, says. ValueError for an unknown kind."""
        if isinstance(text, Subject):
            return text
        kind, _, identifier = text.partition(":")
        if kind not in cls.__struct_fields__[1:] or (kind != "workspace" and not identifier):
            kinds = ", ".join(cls.__struct_fields__[1:-1])
            raise ValueError(f"{text!r} is not <kind>:<id> with a kind of {kinds}")
        return cls(kind, **({kind: identifier} if identifier else {}))


class Grant(Struct, frozen=True):
    """Permissions, of `read` and `write`, for a subject."""

    subject: Subject
    permissions: Sequence[str]

    @classmethod
    def of(cls, subject: str | Subject, *permissions: str) -> "Grant":
        """A grant for `kind:id`: `Grant.of("principal:prin_…", "read", "write")`."""
        return cls(Subject.of(subject), permissions)


class Page(Struct, Generic[T], frozen=True):
    """One page of a list; `next_page` asks for the one after it, None at the end.

    `tree_digest` is set for documents, `head` (the stream's last number and hash) for events.
    """

    items: tuple[T, ...]
    next_page: str | None
    tree_digest: str | None = None
    head: dict[str, Any] | None = None


class Store(Struct, frozen=True):
    """A MemoryStore. `name` is None once it is deleted; `version` goes into update and archive."""

    id: str
    name: str | None
    description: str | None
    owner: Subject
    status: str
    version: int
    generation: int
    promotion_policy: str
    require_distinct_reviewer: bool
    default: bool
    canonical_revision: str | None
    document_count: int
    total_bytes: int
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    deleted_at: datetime | None


class Document(Struct, frozen=True):
    """A document with its content. `sha256` is what `if_match` takes."""

    path: str
    content: str
    sha256: str
    size_bytes: int
    created_at: datetime
    updated_at: datetime


class DocumentMeta(Struct, frozen=True):
    """A document as a write left it; `created` where its path was free before."""

    path: str
    sha256: str
    size_bytes: int
    created_at: datetime
    updated_at: datetime
    created: bool = False


class DocumentItem(Struct, frozen=True):
    """A document in a list."""

    path: str
    sha256: str
    size_bytes: int
    updated_at: datetime


class Access(Struct, frozen=True):
    """What a subject may do with a store, what a mount would get, and why."""

    read: bool
    write: bool
    mount: dict[str, str]
    assignments: tuple[str, ...]
    reasons: tuple[str, ...]


class Assignment(Struct, frozen=True):
    """A permission assignment; `origin` is `minted` (with the store) or `granted`."""

    id: str
    subject: Subject
    resource: Subject
    permissions: tuple[str, ...]
    origin: str
    created_at: datetime


class Key(Struct, frozen=True, omit_defaults=True):
    """An API key. `secret` is there once, when the key is made; it is kept nowhere."""

    id: str
    name: str
    role: str
    principal: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = None


class Principal(Struct, frozen=True):
    """A `person` or a `service`."""

    id: str
    kind: str
    name: str
    external_id: str | None
    created_at: datetime


class Delegation(Struct, frozen=True):
    """`delegate` may act as `principal`."""

    id: str
    principal: str
    delegate: Subject
    created_at: datetime


class Owner(Struct, frozen=True, omit_defaults=True):
    """An agent, a Session or a surface scope; `kind` is the scope's."""

    id: str
    name: str
    principal: str
    created_at: datetime
    kind: str | None = None


class WorkspaceName(Struct, frozen=True):
    """A workspace by id and name."""

    id: str
    name: str


class KeyName(Struct, frozen=True):
    """A key by id, name and role."""

    id: str
    name: str
    role: str


class WhoAmI(Struct, frozen=True):
    """Who the client's requests come from."""

    workspace: WorkspaceName
    api_key: KeyName
    principal: Principal
    session: str | None


class Job(Struct, frozen=True):
    """Work that is not finished: `subject` is what it is about, such as a store's id.

    It is due at `run_at`, a worker has it until `lease_until`, and it was given up at `parked_at`
    because of `failure`; the last three may be None.
    """

    id: str
    kind: str
    subject: str
    attempts: int
    run_at: datetime
    lease_until: datetime | None
    failure: str | None
    parked_at: datetime | None
    created_at: datetime


class Event(Struct, frozen=True):
    """An event in its stream, numbered from 1 without gaps.

    `data` and `salt` are None once erased; `commitment` and `hash` stay.
    """

    id: str
    seq: int
    type: str
    created_at: datetime
    data: dict[str, Any] | None
    salt: str | None
    commitment: str
    hash: str


def to_json(value: object) -> bytes:
    """A record, or a list of them, as JSON in the server's own shapes."""
    return msgspec.json.encode(value)
