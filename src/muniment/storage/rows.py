"""Rows to records and back, in the column order of `schema.sql` and `queries.sql`."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from muniment.model.access import ApiKey, Assignment, Delegation, Principal, Rights, Subject
from muniment.model.documents import Document
from muniment.model.events import Event
from muniment.model.ids import (
    PREFIXES,
    AssignmentId,
    ChangeId,
    DelegationId,
    DocumentId,
    EventId,
    JobId,
    KeyId,
    PoolId,
    PrincipalId,
    RevisionId,
    StoreId,
    WorkspaceId,
    to_bytes,
)
from muniment.model.jobs import KINDS, Job
from muniment.model.owners import OWNER_ID_KINDS, OwnerRow
from muniment.model.receipts import Receipt
from muniment.model.revisions import Change, Revision
from muniment.model.stores import STATUSES, Owner, Ref, StoreRecord, StoreSummary, Workspace
from muniment.storage.base import KINDS_ASKED_MAX, SUBJECTS_MAX

Row = tuple[Any, ...]

STATUSES_MAX = len(STATUSES)
STORE_WIDTH = 17
"""How many columns the statements' {store} word stands for."""

KEYS_MAX = 16
"""How many keys one statement looks for."""

_SLOTS = {
    name: tuple(f"{name}_{n + 1}" for n in range(count))
    for name, count in (
        ("subject", SUBJECTS_MAX),
        ("status", STATUSES_MAX),
        ("kind", KINDS_ASKED_MAX),
        ("secret", KEYS_MAX),
    )
}
_SUBJECT_TAGS = {"prin": b"p", "wsp": b"w", "agent": b"a", "sess": b"s", "scope": b"c"}

_ID_KINDS = {"principal": "prin", "workspace": "wsp"} | {
    "agent_definition": "agent",
    "session": "sess",
    "surface_scope": "scope",
}


def optional(identifier: str | None) -> bytes | None:
    """The id's bytes, or None."""
    return None if identifier is None else to_bytes(identifier)


def workspace_id(raw: bytes) -> WorkspaceId:
    """A workspace's id from its bytes."""
    return WorkspaceId("wsp_" + raw.hex())


def workspace(row: Row) -> Workspace:
    """From workspace_id, name, status, zero_data_retention, retention_seconds, created_at."""
    return Workspace(workspace_id(row[0]), row[1], row[2], bool(row[3]), *row[4:6])


def principal(row: Row) -> Principal:
    """From principal_id, kind, name, external_id, created_at."""
    return Principal(PrincipalId("prin_" + row[0].hex()), *row[1:])


def api_key(row: Row) -> ApiKey:
    """From key_id, name, role, principal_id, created_at, expires_at, revoked_at."""
    return ApiKey(
        KeyId("apikey_" + row[0].hex()),
        row[1],
        row[2],
        PrincipalId("prin_" + row[3].hex()),
        *row[4:7],
    )


def delegation(row: Row) -> Delegation:
    """From delegation_id, principal_id, delegate_id, created_at."""
    return Delegation(
        DelegationId("dlg_" + row[0].hex()),
        PrincipalId("prin_" + row[1].hex()),
        PrincipalId("prin_" + row[2].hex()),
        row[3],
    )


def owner_row(row: Row) -> OwnerRow:
    """From kind, owner_id, name, principal_id, scope_kind, created_at."""
    kind, raw, name, principal_id, scope_kind, created_at = row
    return OwnerRow(
        kind,
        f"{_ID_KINDS[kind]}_{raw.hex()}",
        name,
        PrincipalId("prin_" + principal_id.hex()),
        scope_kind,
        created_at,
    )


def assignment(row: Row) -> Assignment:
    """From assignment_id, store_id, subject_kind, subject_id, can_read, can_write, origin, time."""
    return Assignment(
        AssignmentId("perm_" + row[0].hex()),
        StoreId("memstore_" + row[1].hex()),
        Subject(row[2], f"{_ID_KINDS[row[2]]}_{row[3][1:].hex()}"),
        bool(row[4]),
        bool(row[5]),
        row[6],
        row[7],
    )


def store(row: Row) -> StoreRecord:
    """From the {store} columns, at the head of the row."""
    kind, owner = row[3], row[4]
    return StoreRecord(
        id=StoreId("memstore_" + row[0].hex()),
        name=row[1],
        description=row[2],
        owner=Owner(kind, None if owner is None else f"{_ID_KINDS[kind]}_{owner.hex()}"),
        status=row[5],
        version=row[6],
        generation=row[7],
        promotion_policy=row[8],
        require_distinct_reviewer=bool(row[9]),
        pool=PoolId("pool_" + row[10].hex()),
        created_by=PrincipalId("prin_" + row[11].hex()),
        created_at=row[12],
        updated_at=row[13],
        archived_at=row[14],
        deleted_at=row[15],
        last_event_hash=row[16],
    )


def store_values(record: StoreRecord) -> Row:
    """The store's columns after workspace_id."""
    return (
        to_bytes(record.id),
        record.name,
        record.description,
        record.owner.kind,
        optional(record.owner.id),
        record.status,
        record.version,
        record.generation,
        record.promotion_policy,
        int(record.require_distinct_reviewer),
        to_bytes(record.pool),
        to_bytes(record.created_by),
        record.created_at,
        record.updated_at,
        record.archived_at,
        record.deleted_at,
        record.last_event_hash,
    )


def document(path: str, row: Row, content: bytes | None = None) -> Document:
    """From document_id, blob_id, size, change_id, created_at, updated_at, at the row's head."""
    return Document(
        DocumentId("mem_" + row[0].hex()),
        path,
        row[1],
        row[2],
        ChangeId("memver_" + row[3].hex()),
        row[4],
        row[5],
        content,
    )


def rights(can_read: int, can_write: int) -> Rights:
    """From the two columns of the statements' {rights} word."""
    return Rights(bool(can_read), bool(can_write))


def rights_by_subject(found: Sequence[Row]) -> dict[bytes, Rights]:
    """From rows of subject_id, can_read, can_write; a subject may have several."""
    given: dict[bytes, Rights] = {}
    for subject, can_read, can_write in found:
        before = given.get(subject, Rights())
        given[subject] = Rights(before.read or bool(can_read), before.write or bool(can_write))
    return given


def rights_of(given: Mapping[bytes, Rights], subjects: Sequence[str]) -> Rights:
    """What the subjects' rights add up to."""
    found = [given[key] for key in map(subject_bytes, subjects) if key in given]
    return Rights(any(one.read for one in found), any(one.write for one in found))


def ref(row: Row) -> Ref:
    """From name, revision_id, tree_hash, documents, total_bytes, version, updated_at."""
    return Ref(row[0], RevisionId("memrev_" + row[1].hex()), *row[2:7])


def revision(row: Row) -> Revision:
    """From revision_id, parent_id, tree_hash, documents, total_bytes, kind, actor, created_at."""
    parent = None if row[1] is None else RevisionId("memrev_" + row[1].hex())
    return Revision(RevisionId("memrev_" + row[0].hex()), parent, *row[2:8])


def change(row: Row) -> Change:
    """From the columns of list_changes."""
    return Change(
        ChangeId("memver_" + row[0].hex()),
        RevisionId("memrev_" + row[1].hex()),
        row[2].decode(),
        row[3],
        DocumentId("mem_" + row[4].hex()),
        row[5],
        None if row[6] is None else row[6].decode(),
        *row[7:12],
    )


def event(row: Row) -> Event:
    """From event_id, seq, type, created_at, commitment, hash, payload, salt."""
    return Event(EventId("evt_" + row[0].hex()), *row[1:8])


def job(row: Row) -> Job:
    """From job_id, kind, subject_id and the rest in the order of the schema.

    The subject of a kind that only a newer program knows has no prefix.
    """
    kind, subject = row[1], row[2].hex()
    if kind in KINDS:
        subject = f"{PREFIXES[KINDS[kind]]}_{subject}"
    return Job(JobId("job_" + row[0].hex()), kind, subject, *row[3:10])


def job_values(job: Job) -> Row:
    """The job's columns after workspace_id."""
    return (
        to_bytes(job.id),
        job.kind,
        to_bytes(job.subject),
        job.created_at,
        job.run_at,
        job.attempts,
        job.fence,
        job.lease_until,
        job.failure,
        job.parked_at,
    )


def receipt(subject: str, row: Row) -> Receipt:
    """From receipt_id, fingerprint, result, created_at."""
    ids = msgspec.json.decode(row[2], type=dict[str, str])
    return Receipt(bytes(row[0]), subject, bytes(row[1]), ids, row[3])


def receipt_values(receipt: Receipt) -> Row:
    """The receipt's columns after workspace_id."""
    ids = msgspec.json.encode(receipt.ids, order="sorted")
    subject = to_bytes(receipt.subject)
    return subject, receipt.id, receipt.fingerprint, ids, receipt.created_at


def workspace_values(workspace: Workspace) -> Row:
    """The workspace's columns after workspace_id."""
    return (
        workspace.name,
        workspace.status,
        int(workspace.zero_data_retention),
        workspace.retention_seconds,
        workspace.created_at,
    )


def principal_values(principal: Principal) -> Row:
    """The principal's columns after workspace_id."""
    return (
        to_bytes(principal.id),
        principal.kind,
        principal.name,
        principal.external_id,
        principal.created_at,
    )


def delegation_values(delegation: Delegation) -> Row:
    """The delegation's columns after workspace_id."""
    return (
        to_bytes(delegation.id),
        to_bytes(delegation.principal),
        to_bytes(delegation.delegate),
        delegation.created_at,
    )


def owner_values(owner: OwnerRow) -> Row:
    """The owner's columns after workspace_id."""
    return (
        owner.kind,
        to_bytes(owner.id),
        owner.name,
        to_bytes(owner.principal),
        owner.scope_kind,
        owner.created_at,
    )


def assignment_values(assignment: Assignment) -> Row:
    """The assignment's columns after workspace_id."""
    return (
        to_bytes(assignment.store),
        subject_bytes(assignment.subject.id),
        to_bytes(assignment.id),
        assignment.subject.kind,
        int(assignment.read),
        int(assignment.write),
        assignment.origin,
        assignment.created_at,
    )


def ref_values(ref: Ref) -> Row:
    """The ref's columns after store_id."""
    return (
        ref.name,
        to_bytes(ref.revision),
        ref.tree,
        ref.documents,
        ref.total_bytes,
        ref.version,
        ref.updated_at,
    )


def document_values(document: Document) -> Row:
    """The document's columns after store_id."""
    return (
        document.path.encode(),
        to_bytes(document.id),
        document.blob,
        document.size,
        to_bytes(document.change),
        document.created_at,
        document.updated_at,
    )


def revision_values(revision: Revision) -> Row:
    """The revision's columns after store_id."""
    return (
        to_bytes(revision.id),
        optional(revision.parent),
        revision.tree,
        revision.documents,
        revision.total_bytes,
        revision.kind,
        revision.actor,
        revision.created_at,
    )


def change_values(change: Change) -> Row:
    """The change's columns after store_id."""
    return (
        to_bytes(change.id),
        to_bytes(change.revision),
        change.path.encode(),
        change.n,
        to_bytes(change.document),
        change.operation,
        None if change.moved_from is None else change.moved_from.encode(),
        change.blob,
        change.size,
        change.seq,
        change.actor,
        change.created_at,
    )


def after(identifier: str | None) -> bytes:
    """The id's bytes; below every id for None."""
    return b"" if identifier is None else to_bytes(identifier)


def padded(name: str, values: Sequence[Any]) -> dict[str, Any]:
    """Values for a statement's slots of that name; a slot to spare repeats the first."""
    slots = _SLOTS[name]
    spare = len(slots) - len(values)
    if not values or spare < 0:
        raise ValueError(f"one to {len(slots)} values of {name} can be asked for")
    return dict(zip(slots, [*values, *[values[0]] * spare], strict=True))


def subject_bytes(identifier: str) -> bytes:
    """A subject's bytes: a tag of its kind and its id's, since kinds may share an id's bytes."""
    return _SUBJECT_TAGS[identifier.partition("_")[0]] + to_bytes(identifier)


@lru_cache(1024)
def subjects(ids: tuple[str, ...]) -> dict[str, Any]:
    """The values of a statement's subject slots; not to be changed."""
    return padded("subject", [subject_bytes(subject) for subject in ids])


def kinds(names: Sequence[str]) -> dict[str, Any]:
    """The values of a statement's slots for kinds of jobs."""
    return padded("kind", names)


def moved_ref(workspace: str, store_and_name: str, old: Ref, new: Ref) -> dict[str, Any]:
    """The values of move_ref and swap_ref."""
    store_id = store_and_name[: len(store_and_name) - len(new.name)]
    return {
        "workspace": to_bytes(workspace),
        "store": to_bytes(store_id),
        "name": new.name,
        "revision": to_bytes(new.revision),
        "tree": new.tree,
        "documents": new.documents,
        "total_bytes": new.total_bytes,
        "version": new.version,
        "updated_at": new.updated_at,
        "expected_revision": to_bytes(old.revision),
        "expected_version": old.version,
    }


def summary(row: Row) -> StoreSummary:
    """From the columns of list_stores."""
    canonical = row[STORE_WIDTH + 1 :]
    return StoreSummary(
        store(row),
        None if canonical[0] is None else ref(canonical),
        row[STORE_WIDTH] is not None,
    )


assert set(OWNER_ID_KINDS) <= set(_ID_KINDS)
