"""What the native API reads and writes: one struct a shape (native.md 2.3, 2.4, wire.md).

Times are RFC 3339 in UTC with microseconds, hashes lower-case hexadecimal.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from muniment.api.http import INTEGER_MAX, Query
from muniment.api.native import fields
from muniment.model.access import Assignment, Subject
from muniment.model.documents import Document, DocumentItem
from muniment.model.errors import Malformed
from muniment.model.events import Event
from muniment.model.jobs import Job
from muniment.model.stores import Owner, StoreSummary
from muniment.service.paging import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX, Slice
from muniment.service.stores import GRANTS_MAX

T = TypeVar("T")
U = TypeVar("U")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Version = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
Permission = Annotated[Literal["read", "write"], fields.TEXT]
Permissions = Annotated[list[Permission], Meta(extra_json_schema={"minItems": 1})]

PAGING = (
    Query(
        "limit",
        f"How many items at most; {PAGE_ITEMS_DEFAULT} by default.",
        {"type": "integer", "minimum": 1, "maximum": PAGE_ITEMS_MAX},
    ),
    Query("page", "The `next_page` of the page before.", fields.CURSOR),
)


class Body(Struct, forbid_unknown_fields=True):
    """Base of request bodies: a field we do not know is refused by name."""


class SubjectShape(Body, kw_only=True, omit_defaults=True):
    """Somebody, as a tagged union: `kind`, and a field of that name with the id.

    The own workspace may go without its id. A key stands for its principal.
    """

    SCHEMA: ClassVar[fields.Schema] = fields.tagged_union(
        tuple(fields.SUBJECT_ID_KINDS), alone=("workspace",)
    )

    kind: fields.SubjectKindText
    principal: fields.PrincipalIdText | UnsetType = UNSET
    agent_definition: fields.AgentIdText | UnsetType = UNSET
    session: fields.SessionIdText | UnsetType = UNSET
    surface_scope: fields.ScopeIdText | UnsetType = UNSET
    workspace: fields.WorkspaceIdText | UnsetType = UNSET
    api_key: fields.KeyIdText | UnsetType = UNSET


class GrantShape(Body):
    """Permissions for a subject."""

    subject: Annotated[SubjectShape, fields.GRANTED]
    permissions: Permissions


class StoreCreate(Body, kw_only=True):
    """What a store is made from."""

    name: fields.NameText
    description: fields.DescriptionText | None = None
    owner: Annotated[SubjectShape | None, fields.OWNERS] = None
    promotion_policy: fields.PolicyText | None = None
    require_distinct_reviewer: bool = False
    default: bool = False
    grants: Annotated[list[GrantShape], Meta(extra_json_schema={"maxItems": GRANTS_MAX})] = []


class StoreUpdate(Body, kw_only=True):
    """The fields of a store to change, and the version they were read at."""

    expected_version: Version
    name: fields.NameText | UnsetType = UNSET
    description: fields.DescriptionText | None | UnsetType = UNSET
    promotion_policy: fields.PolicyText | UnsetType = UNSET
    require_distinct_reviewer: bool | UnsetType = UNSET
    default: bool | UnsetType = UNSET


class StoreArchive(Body):
    """The version the store was read at."""

    expected_version: Version


class StoreShape(Struct, omit_defaults=False):
    """A MemoryStore."""

    id: fields.StoreIdText
    name: str | None
    description: str | None
    owner: Annotated[SubjectShape, fields.OWNERS]
    status: fields.StatusText
    version: fields.Number
    generation: fields.Number
    promotion_policy: fields.PolicyText
    require_distinct_reviewer: bool
    default: bool
    canonical_revision: fields.RevisionIdText | None
    document_count: fields.Number
    total_bytes: fields.Number
    created_at: fields.TimeText
    updated_at: fields.TimeText
    archived_at: fields.TimeText | None
    deleted_at: fields.TimeText | None


class StorePage(Struct):
    """A page of stores."""

    items: list[StoreShape]
    next_page: fields.CursorText | None


class DeletionPending(Struct):
    """The store is gone; what it held is erased as soon as a reader of the files lets go."""

    physical: Annotated[Literal["pending"], fields.TEXT] = "pending"


class DocumentPut(Body):
    """A document's new content."""

    content: fields.ContentText


class DocumentShape(Struct):
    """A document with its content."""

    path: fields.PathText
    content: str
    sha256: fields.HashText
    size_bytes: fields.Number
    created_at: fields.TimeText
    updated_at: fields.TimeText


class DocumentMeta(Struct):
    """A document without its content, as a write answers."""

    path: fields.PathText
    sha256: fields.HashText
    size_bytes: fields.Number
    created_at: fields.TimeText
    updated_at: fields.TimeText


class DocumentItemShape(Struct):
    """A document in a list."""

    path: fields.PathText
    sha256: fields.HashText
    size_bytes: fields.Number
    updated_at: fields.TimeText


class DocumentPage(Struct):
    """A page of documents; `tree_digest` is the hash of the tree they all come from."""

    items: list[DocumentItemShape]
    tree_digest: fields.HashText
    next_page: fields.CursorText | None


class MountShape(Struct):
    """What a mount would get, by what it asks for."""

    read_only: fields.ReadOnlyText
    read_write: fields.ReadWriteText


class AccessShape(Struct):
    """What a subject may do, and why."""

    read: bool
    write: bool
    mount: MountShape
    assignments: list[fields.AssignmentIdText]
    reasons: list[str]


class ResourceShape(Body):
    """What an assignment is about: a store."""

    kind: Annotated[Literal["memory_store"], fields.TEXT]
    memory_store: fields.StoreIdText


class AssignmentCreate(Body):
    """A grant on a store, named as `memory_store` or as `resource`."""

    SCHEMA: ClassVar[fields.Schema] = {
        "oneOf": [
            {"required": [name], "properties": {name: {"type": kind}}}
            for name, kind in (("memory_store", "string"), ("resource", "object"))
        ]
    }

    subject: Annotated[SubjectShape, fields.GRANTED]
    permissions: Permissions
    memory_store: fields.StoreIdText | None = None
    resource: ResourceShape | None = None


class AssignmentShape(Struct):
    """A permission assignment."""

    id: fields.AssignmentIdText
    subject: Annotated[SubjectShape, fields.HOLDERS]
    resource: ResourceShape
    permissions: Permissions
    origin: fields.OriginText
    created_at: fields.TimeText


class AssignmentPage(Struct):
    """A page of assignments."""

    items: list[AssignmentShape]
    next_page: fields.CursorText | None


class JobShape(Struct):
    """A job that is not finished; `failure` names what its last attempt failed of.

    `run_at` is when it is due, `lease_until` is there while a worker has it, `parked_at` once it
    was given up.
    """

    id: fields.JobIdText
    kind: str
    subject: str
    attempts: fields.Number
    run_at: fields.TimeText
    lease_until: fields.TimeText | None
    failure: str | None
    parked_at: fields.TimeText | None
    created_at: fields.TimeText


class JobPage(Struct):
    """A page of jobs."""

    items: list[JobShape]
    next_page: fields.CursorText | None


class EventShape(Struct):
    """An event in its stream; `data` and `salt` are null once erased.

    `commitment` is the SHA-256 of the salt and the payload's bytes, `hash` covers the rest.
    """

    id: fields.EventIdText
    seq: fields.Number
    type: str
    created_at: fields.TimeText
    data: fields.JsonObject | None
    salt: fields.SaltText | None
    commitment: fields.HashText
    hash: fields.HashText


class HeadShape(Struct):
    """Where a stream ends: its last event's number and hash."""

    seq: fields.Number
    hash: fields.HashText


class EventPage(Struct):
    """Events after a number, and where the stream ends."""

    items: list[EventShape]
    head: HeadShape
    next_page: fields.CursorText | None


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


def tagged(kind: str, identifier: str | None) -> SubjectShape:
    """The tagged union `{kind, <kind>: id}`."""
    ids = {} if identifier is None else {kind: identifier}
    return SubjectShape(kind=kind, **ids)


def owner_of(owner: Owner) -> SubjectShape:
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
    held: dict[Permission, bool] = {"read": assignment.read, "write": assignment.write}
    return AssignmentShape(
        assignment.id,
        tagged(assignment.subject.kind, assignment.subject.id),
        ResourceShape("memory_store", assignment.store),
        [name for name, has in held.items() if has],
        assignment.origin,
        time_text(assignment.created_at),
    )


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
