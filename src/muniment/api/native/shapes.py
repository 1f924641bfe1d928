"""What the native API reads and writes: one struct a shape (native.md 2.3, 2.4, wire.md).

Times are RFC 3339 in UTC with microseconds, hashes lower-case hexadecimal.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from muniment.api.http import INTEGER_MAX, Query
from muniment.model.access import ApiKey, Assignment, Delegation, Principal, Subject
from muniment.model.documents import Document, DocumentItem
from muniment.model.errors import Malformed
from muniment.model.events import Event
from muniment.model.jobs import Job
from muniment.model.owners import OwnerRow
from muniment.model.stores import Owner, StoreSummary
from muniment.service.paging import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Slice

T = TypeVar("T")
U = TypeVar("U")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Version = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
Permission = Literal["read", "write"]

PAGING = (
    Query(
        "limit",
        f"How many items at most; {PAGE_ITEMS_DEFAULT} by default.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ITEMS_MAX},
    ),
    Query("page", "The `next_page` of the page before."),
)


class Body(Struct, forbid_unknown_fields=True):
    """Base of request bodies: a field we do not know is refused by name."""


class SubjectShape(Body, kw_only=True):
    """Somebody, as a tagged union: `kind`, and a field of that name with the id."""

    kind: str
    principal: str | UnsetType = UNSET
    agent_definition: str | UnsetType = UNSET
    session: str | UnsetType = UNSET
    surface_scope: str | UnsetType = UNSET
    workspace: str | UnsetType = UNSET
    api_key: str | UnsetType = UNSET


class GrantShape(Body):
    """Permissions for a subject."""

    subject: SubjectShape
    permissions: list[Permission]


class StoreCreate(Body, kw_only=True):
    """What a store is made from."""

    name: str
    description: str | None = None
    owner: SubjectShape | None = None
    promotion_policy: str | None = None
    require_distinct_reviewer: bool = False
    default: bool = False
    grants: list[GrantShape] = []


class StoreUpdate(Body, kw_only=True):
    """The fields of a store to change, and the version they were read at."""

    expected_version: Version
    name: str | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    promotion_policy: str | UnsetType = UNSET
    require_distinct_reviewer: bool | UnsetType = UNSET
    default: bool | UnsetType = UNSET


class StoreArchive(Body):
    """The version the store was read at."""

    expected_version: Version


class StoreShape(Struct, omit_defaults=False):
    """A MemoryStore."""

    id: str
    name: str | None
    description: str | None
    owner: dict[str, str]
    status: str
    version: int
    generation: int
    promotion_policy: str
    require_distinct_reviewer: bool
    default: bool
    canonical_revision: str | None
    document_count: int
    total_bytes: int
    created_at: str
    updated_at: str
    archived_at: str | None
    deleted_at: str | None


class StorePage(Struct):
    """A page of stores."""

    items: list[StoreShape]
    next_page: str | None


class DocumentPut(Body):
    """A document's new content."""

    content: str


class DocumentShape(Struct):
    """A document with its content."""

    path: str
    content: str
    sha256: str
    size_bytes: int
    created_at: str
    updated_at: str


class DocumentMeta(Struct):
    """A document without its content, as a write answers."""

    path: str
    sha256: str
    size_bytes: int
    created_at: str
    updated_at: str


class DocumentItemShape(Struct):
    """A document in a list."""

    path: str
    sha256: str
    size_bytes: int
    updated_at: str


class DocumentPage(Struct):
    """A page of documents; `tree_digest` is the hash of the tree they all come from."""

    items: list[DocumentItemShape]
    tree_digest: str
    next_page: str | None


class AccessShape(Struct):
    """What a subject may do, and why."""

    read: bool
    write: bool
    mount: dict[str, str]
    assignments: list[str]
    reasons: list[str]


class ResourceShape(Body):
    """What an assignment is about: a store."""

    kind: Literal["memory_store"]
    memory_store: str


class AssignmentCreate(Body):
    """A grant on a store, named as `memory_store` or as `resource`."""

    subject: SubjectShape
    permissions: list[Permission]
    memory_store: str | None = None
    resource: ResourceShape | None = None


class AssignmentShape(Struct):
    """A permission assignment."""

    id: str
    subject: dict[str, str]
    resource: dict[str, str]
    permissions: list[str]
    origin: str
    created_at: str


class AssignmentPage(Struct):
    """A page of assignments."""

    items: list[AssignmentShape]
    next_page: str | None


class KeyCreate(Body, kw_only=True):
    """What a key is made from."""

    name: str
    role: str = "member"
    principal: str | None = None
    expires_at: str | None = None


class KeyShape(Struct, omit_defaults=True):
    """An API key; `secret` appears once, when it is made."""

    id: str
    name: str
    role: str
    principal: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    secret: str | UnsetType = UNSET


class KeyPage(Struct):
    """A page of keys."""

    items: list[KeyShape]
    next_page: str | None


class PrincipalCreate(Body, kw_only=True):
    """What a principal is made from."""

    name: str
    kind: str = "service"
    external_id: str | None = None


class PrincipalShape(Struct):
    """A person or a service."""

    id: str
    kind: str
    name: str
    external_id: str | None
    created_at: str


class PrincipalPage(Struct):
    """A page of principals."""

    items: list[PrincipalShape]
    next_page: str | None


class DelegationCreate(Body):
    """Who may act as whom."""

    principal: str
    delegate: SubjectShape


class DelegationShape(Struct):
    """A delegation."""

    id: str
    principal: str
    delegate: dict[str, str]
    created_at: str


class DelegationPage(Struct):
    """A page of delegations."""

    items: list[DelegationShape]
    next_page: str | None


class OwnerCreate(Body):
    """An agent or a Session, as an owner of stores."""

    name: str


class ScopeCreate(Body):
    """A surface scope: a place that can own stores."""

    name: str
    kind: str


class OwnerShape(Struct, omit_defaults=True):
    """An agent, a Session or a surface scope."""

    id: str
    name: str
    principal: str
    created_at: str
    kind: str | UnsetType = UNSET


class OwnerPage(Struct):
    """A page of owners of one kind."""

    items: list[OwnerShape]
    next_page: str | None


class WhoAmI(Struct):
    """Who the request comes from."""

    workspace: dict[str, str]
    api_key: dict[str, str]
    principal: PrincipalShape
    session: str | None


class JobShape(Struct):
    """A job that is not finished; `failure` names what its last attempt failed of.

    `run_at` is when it is due, `lease_until` is there while a worker has it, `parked_at` once it
    was given up.
    """

    id: str
    kind: str
    subject: str
    attempts: int
    run_at: str
    lease_until: str | None
    failure: str | None
    parked_at: str | None
    created_at: str


class JobPage(Struct):
    """A page of jobs."""

    items: list[JobShape]
    next_page: str | None


class EventShape(Struct):
    """An event in its stream; `data` and `salt` are null once erased.

    `commitment` is the SHA-256 of the salt and the payload's bytes, `hash` covers the rest.
    """

    id: str
    seq: int
    type: str
    created_at: str
    data: msgspec.Raw | None
    salt: str | None
    commitment: str
    hash: str


class EventPage(Struct):
    """Events after a number, and where the stream ends."""

    items: list[EventShape]
    head: dict[str, Any]
    next_page: str | None


def time_text(at: int) -> str:
    """A time in UTC microseconds as RFC 3339."""
    seconds, micros = divmod(at, 1_000_000)
    return f"{_second_text(seconds)}.{micros:06d}Z"


@lru_cache(4096)
def _second_text(seconds: int) -> str:
    return f"{_EPOCH + timedelta(seconds=seconds):%Y-%m-%dT%H:%M:%S}"


def read_time(text: str, name: str) -> int:
    """UTC microseconds from an RFC 3339 time with its offset. Malformed otherwise."""
    try:
        moment = msgspec.convert(text, datetime)
        if moment.tzinfo is None:
            raise ValueError
        at = (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)
        if at < 0:
            raise ValueError
        return at
    except (msgspec.ValidationError, ValueError, OverflowError):
        raise Malformed(f"{name} must be a time such as 2026-11-30T12:00:00Z", field=name) from None


def read_subject(shape: SubjectShape, name: str, workspace: str) -> Subject:
    """The subject of a tagged union. Malformed, naming the field, unless kind and id fit."""
    ids = {
        field: value
        for field, value in msgspec.structs.asdict(shape).items()
        if field != "kind" and value is not UNSET
    }
    if shape.kind not in SubjectShape.__struct_fields__ or shape.kind == "kind":
        kinds = ", ".join(f for f in SubjectShape.__struct_fields__ if f != "kind")
        raise Malformed(f"{name}.kind must be one of {kinds}", field=f"{name}.kind")
    if shape.kind == "workspace" and not ids:
        return Subject("workspace", workspace)
    if set(ids) != {shape.kind}:
        raise Malformed(
            f"{name} must have the one field {shape.kind} beside kind", field=f"{name}.{shape.kind}"
        )
    return Subject(shape.kind, ids[shape.kind])


def tagged(kind: str, identifier: str | None) -> dict[str, str]:
    """The tagged union `{kind, <kind>: id}`."""
    return {"kind": kind} if identifier is None else {"kind": kind, kind: identifier}


def owner_of(owner: Owner) -> dict[str, str]:
    """A store's owner."""
    return tagged(owner.kind, owner.id)


def store_shape(summary: StoreSummary) -> StoreShape:
    """A store; a tombstone has no name and holds nothing."""
    store, ref = summary.store, summary.canonical
    gone = store.status == "deleted"
    return StoreShape(
        id=store.id,
        name=None if gone else store.name,
        description=store.description,
        owner=owner_of(store.owner),
        status=store.status,
        version=store.version,
        generation=store.generation,
        promotion_policy=store.promotion_policy,
        require_distinct_reviewer=store.require_distinct_reviewer,
        default=summary.default,
        canonical_revision=None if ref is None else ref.revision,
        document_count=0 if ref is None else ref.documents,
        total_bytes=0 if ref is None else ref.total_bytes,
        created_at=time_text(store.created_at),
        updated_at=time_text(store.updated_at),
        archived_at=optional_time(store.archived_at),
        deleted_at=optional_time(store.deleted_at),
    )


def document_shape(document: Document) -> DocumentShape:
    """A document with its content."""
    if document.content is None:
        raise ValueError("a live document has lost its body")
    return DocumentShape(
        document.path,
        document.content.decode(),
        document.blob.hex(),
        document.size,
        time_text(document.created_at),
        time_text(document.updated_at),
    )


def document_meta(document: Document) -> DocumentMeta:
    """A document without its content."""
    return DocumentMeta(
        document.path,
        document.blob.hex(),
        document.size,
        time_text(document.created_at),
        time_text(document.updated_at),
    )


def item_shape(item: DocumentItem) -> DocumentItemShape:
    """A document in a list."""
    return DocumentItemShape(item.path, item.blob.hex(), item.size, time_text(item.updated_at))


def assignment_shape(assignment: Assignment) -> AssignmentShape:
    """A permission assignment."""
    held = {"read": assignment.read, "write": assignment.write}
    return AssignmentShape(
        assignment.id,
        tagged(assignment.subject.kind, assignment.subject.id),
        tagged("memory_store", assignment.store),
        [name for name, has in held.items() if has],
        assignment.origin,
        time_text(assignment.created_at),
    )


def key_shape(key: ApiKey, secret: str | UnsetType = UNSET) -> KeyShape:
    """A key, with its secret when it is made."""
    return KeyShape(
        key.id,
        key.name,
        key.role,
        key.principal,
        time_text(key.created_at),
        optional_time(key.expires_at),
        optional_time(key.revoked_at),
        secret,
    )


def principal_shape(principal: Principal) -> PrincipalShape:
    """A principal."""
    return PrincipalShape(
        principal.id,
        principal.kind,
        principal.name,
        principal.external_id,
        time_text(principal.created_at),
    )


def delegation_shape(delegation: Delegation) -> DelegationShape:
    """A delegation."""
    return DelegationShape(
        delegation.id,
        delegation.principal,
        tagged("principal", delegation.delegate),
        time_text(delegation.created_at),
    )


def owner_shape(owner: OwnerRow) -> OwnerShape:
    """An agent, a Session or a surface scope."""
    kind = UNSET if owner.scope_kind is None else owner.scope_kind
    return OwnerShape(owner.id, owner.name, owner.principal, time_text(owner.created_at), kind)


def event_shape(event: Event) -> EventShape:
    """An event."""
    data = None if event.payload is None else msgspec.Raw(event.payload)
    return EventShape(
        event.id,
        event.seq,
        event.type,
        time_text(event.created_at),
        data,
        None if event.salt is None else event.salt.hex(),
        event.commitment.hex(),
        event.hash.hex(),
    )


def job_shape(job: Job) -> JobShape:
    """A job."""
    return JobShape(
        job.id,
        job.kind,
        job.subject,
        job.attempts,
        time_text(job.run_at),
        optional_time(job.lease_until),
        job.failure,
        optional_time(job.parked_at),
        time_text(job.created_at),
    )


def optional_time(at: int | None) -> str | None:
    """A time's text, or None."""
    return None if at is None else time_text(at)


def page_shape(page: Slice[T], render: Callable[[T], U]) -> dict[str, Any]:
    """`{items, next_page}`."""
    return {"items": [render(item) for item in page.items], "next_page": page.next_page}
