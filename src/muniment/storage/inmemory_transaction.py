"""The oracle's transaction: the port's methods over the tables.

Writes go to the tables at once and the storage takes them back where the use fails. References
are checked when a use ends, so the order of its statements is free.
"""

import hashlib
from collections.abc import Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from muniment.model.access import (
    SUBJECT_KINDS,
    Assignment,
    Rights,
    Subject,
)
from muniment.model.documents import Document, DocumentItem
from muniment.model.events import TYPES, Event, Fact, Head, chain
from muniment.model.ids import (
    AssignmentId,
    ChangeId,
    PoolId,
    PrincipalId,
    StoreId,
    WorkspaceId,
    to_bytes,
)
from muniment.model.revisions import CANONICAL, Change, Revision
from muniment.model.stores import (
    OWNER_KINDS,
    POLICIES,
    Owner,
    Ref,
    StoreRecord,
    StoreSummary,
)
from muniment.storage.base import LIST_MAX
from muniment.storage.inmemory_identities import InMemoryIdentities
from muniment.storage.inmemory_inspection import InMemoryInspection
from muniment.storage.inmemory_jobs import InMemoryJobs
from muniment.storage.inmemory_running import page
from muniment.storage.inmemory_tables import ContractBroken, Tables, require, require_id

T = TypeVar("T")

STATUSES = ("active", "archived", "deleting", "deleted")


class InMemoryTransaction(InMemoryIdentities, InMemoryJobs, InMemoryInspection):
    """One use's transaction, with the port's nouns that no other `inmemory_` file has."""

    # Objects

    def put_blob(self, workspace: WorkspaceId, pool: PoolId, blob: bytes, content: bytes) -> None:
        t = self._writing(workspace)
        require(hashlib.sha256(content).digest() == blob, "a blob's name is not its hash")
        self._expect(lambda: t.pool_is_used(workspace, pool), f"no store keeps bytes in {pool}")
        t.blobs.put((workspace, pool), bytes(blob), bytes(content))

    async def get_blob(self, workspace: WorkspaceId, pool: PoolId, blob: bytes) -> bytes | None:
        return blob_content(self._reading(), workspace, pool, blob)

    def put_node(self, workspace: WorkspaceId, pool: PoolId, node: bytes, body: bytes) -> None:
        t = self._writing(workspace)
        require(hashlib.sha256(body).digest() == node, "a node's name is not its hash")
        self._expect(lambda: t.pool_is_used(workspace, pool), f"no store keeps bytes in {pool}")
        t.nodes.put((workspace, pool), bytes(node), bytes(body))

    async def get_node(self, workspace: WorkspaceId, pool: PoolId, node: bytes) -> bytes:
        body = self._reading().nodes.get((workspace, pool), node)
        if body is None:
            raise ContractBroken(f"no tree of {pool} has a node {node.hex()}")
        require(hashlib.sha256(body).digest() == node, "a node was changed")
        return body

    # Assignments

    def put_assignment(self, workspace: WorkspaceId, assignment: Assignment) -> None:
        t = self._writing(workspace)
        require_id("assignment", assignment.id)
        subject = assignment.subject
        require(subject.kind in SUBJECT_KINDS, f"nobody is a {subject.kind}")
        self._expect(
            lambda: t.owner_exists(workspace, subject), f"{assignment.id}: {subject} is absent"
        )
        self._expect_store(workspace, assignment.store)
        t.assignments.add((workspace,), assignment.id, assignment)
        t.rights.add((workspace, assignment.store, subject.id), assignment.id, assignment)

    async def get_assignment(
        self, workspace: WorkspaceId, assignment: AssignmentId
    ) -> Assignment | None:
        return self._reading().assignments.get((workspace,), assignment)

    async def list_assignments(
        self,
        workspace: WorkspaceId,
        after: AssignmentId | None,
        limit: int,
        *,
        store: StoreId | None = None,
        subject: Subject | None = None,
    ) -> list[Assignment]:
        return page(
            (
                row
                for row in self._reading().assignments.values((workspace,), after)
                if store in (None, row.store) and subject in (None, row.subject)
            ),
            limit,
        )

    def delete_assignment(self, workspace: WorkspaceId, assignment: AssignmentId) -> None:
        t = self._writing(workspace)
        row = t.assignments.get((workspace,), assignment)
        if row is not None:
            t.assignments.discard((workspace,), assignment)
            t.rights.discard((workspace, row.store, row.subject.id), assignment)

    # Stores

    def put_store(self, workspace: WorkspaceId, store: StoreRecord) -> None:
        t = self._writing(workspace)
        old = t.stores.get((workspace,), store.id)
        if old is None:
            require_id("store", store.id)
            require_id("pool", store.pool)
            require(store.owner.kind in OWNER_KINDS, f"a {store.owner.kind} owns no stores")
            self._expect_principal(workspace, store.created_by)
            self._expect(
                lambda: t.owner_exists(workspace, store.owner), f"{store.id}: owner is absent"
            )
        else:
            require(store.id in self._locked, f"{store.id} is replaced without its lock")
            for field in ("owner", "pool", "created_by", "created_at"):
                same = getattr(old, field) == getattr(store, field)
                require(same, f"{store.id}: {field} is not mutable")
        require(store.status in STATUSES, f"{store.id}: status {store.status}")
        require(store.promotion_policy in POLICIES, f"{store.id}: {store.promotion_policy}")
        t.stores.put((workspace,), store.id, store)
        t.pools.put((workspace, store.pool), store.id, store.status)

    async def lock_store(self, workspace: WorkspaceId, store: StoreId) -> None:
        self._writing(workspace)
        require(not self._appended, "stream heads are held last: lock the store before")
        self._locked.add(store)

    async def get_store(
        self, workspace: WorkspaceId, store: StoreId, subjects: Sequence[str]
    ) -> tuple[StoreRecord, Rights] | None:
        record = self._reading().stores.get((workspace,), store)
        return None if record is None else (record, self._rights(workspace, store, subjects))

    async def list_stores(
        self,
        workspace: WorkspaceId,
        after: StoreId | None,
        limit: int,
        *,
        readers: Sequence[str] | None,
        statuses: Sequence[str],
        name: str | None = None,
    ) -> list[StoreSummary]:
        t = self._reading()
        require(set(statuses) <= set(STATUSES), f"no such statuses: {statuses}")
        defaults = set(t.defaults.values((workspace,)))
        return page(
            (
                StoreSummary(row, t.refs.get((workspace, row.id), CANONICAL), row.id in defaults)
                for row in t.stores.values((workspace,), after)
                if row.status in statuses
                and name in (None, row.name)
                and (
                    readers is None
                    or any(t.rights.count((workspace, row.id, reader)) for reader in readers)
                )
            ),
            limit,
        )

    async def get_default_store(
        self, workspace: WorkspaceId, principal: PrincipalId
    ) -> StoreId | None:
        found = self._reading().defaults.get((workspace,), principal)
        return None if found is None else StoreId(found)

    def put_default_store(
        self, workspace: WorkspaceId, principal: PrincipalId, store: StoreId | None
    ) -> None:
        t = self._writing(workspace)
        self._expect_principal(workspace, principal)
        if store is None:
            t.defaults.discard((workspace,), principal)
        else:
            self._expect(
                lambda: t.is_owned_by(workspace, store, principal),
                f"{store} is absent or not {principal}'s",
            )
            t.defaults.put((workspace,), principal, store)

    async def list_stores_of(
        self, workspace: WorkspaceId, owner: Owner, after: StoreId | None, limit: int
    ) -> list[StoreId]:
        rows = self._reading().stores.values((workspace,), after)
        return page((row.id for row in rows if row.owner == owner), limit)

    async def get_ref(self, workspace: WorkspaceId, store: StoreId, name: str) -> Ref | None:
        return self._reading().refs.get((workspace, store), name)

    def put_ref(self, workspace: WorkspaceId, store: StoreId, ref: Ref) -> None:
        t = self._writing(workspace)
        self._expect_ref(workspace, store, ref)
        t.refs.add((workspace, store), ref.name, ref)

    def move_ref(self, workspace: WorkspaceId, store: StoreId, ref: Ref, expected: Ref) -> None:
        t = self._writing(workspace)
        require(ref.name == expected.name, "a ref keeps its name")
        require(ref.version != expected.version, "a ref that moves has another version")
        if t.refs.get((workspace, store), ref.name) != expected:
            self._lost = True
            return
        self._expect_ref(workspace, store, ref)
        t.refs.put((workspace, store), ref.name, ref)

    # Documents

    async def open_document(
        self,
        workspace: WorkspaceId,
        store: StoreId,
        subjects: Sequence[str],
        path: str,
        *,
        content: bool = False,
    ) -> tuple[StoreRecord, Rights, Document | None] | None:
        t = self._reading()
        record = t.stores.get((workspace,), store)
        if record is None:
            return None
        document = t.documents.get((workspace, store), path)
        if document is not None and content:
            body = blob_content(t, workspace, record.pool, document.blob)
            document = msgspec.structs.replace(document, content=body)
        return record, self._rights(workspace, store, subjects), document

    async def list_documents(
        self, workspace: WorkspaceId, store: StoreId, prefix: str, after: str | None, limit: int
    ) -> list[DocumentItem]:
        t = self._reading()
        part = (workspace, store)
        require(1 <= limit <= LIST_MAX, f"a list of {limit}")
        items: list[DocumentItem] = []
        for path in t.documents.keys(part, after, start=prefix):
            row = t.documents.get(part, path)
            if row is None or not path.startswith(prefix) or len(items) == limit:
                break
            items.append(DocumentItem(path, row.blob, row.size, row.updated_at))
        return items

    def put_document(self, workspace: WorkspaceId, store: StoreId, document: Document) -> None:
        t = self._writing(workspace)
        part = (workspace, store)
        require_id("document", document.id)
        row = msgspec.structs.replace(document, content=None)
        self._expect(
            lambda: (
                t.documents.get(part, row.path) != row or t.document_fits(workspace, store, row)
            ),
            f"{row.path}: its blob or change is absent or another one",
        )
        self._expect(
            lambda: t.documents.count(part) == t.document_paths.count(part),
            f"{row.id} is at two paths",
        )
        old = t.documents.get(part, row.path)
        if old is not None and t.document_paths.get(part, old.id) == row.path:
            t.document_paths.discard(part, old.id)
        t.documents.put(part, row.path, row)
        t.document_paths.put(part, row.id, row.path)

    def remove_document(self, workspace: WorkspaceId, store: StoreId, path: str) -> None:
        t = self._writing(workspace)
        part = (workspace, store)
        old = t.documents.get(part, path)
        if old is None:
            raise ContractBroken(f"there is no document at {path}")
        t.documents.discard(part, path)
        if t.document_paths.get(part, old.id) == path:
            t.document_paths.discard(part, old.id)

    # Revisions

    def put_revision(self, workspace: WorkspaceId, store: StoreId, revision: Revision) -> None:
        t = self._writing(workspace)
        require_id("revision", revision.id)
        self._expect_store(workspace, store)
        self._expect(
            lambda: t.revision_fits(workspace, store, revision),
            f"{revision.id}: its tree or parent is absent",
        )
        t.revisions.add((workspace, store), revision.id, revision)

    async def get_revision(
        self, workspace: WorkspaceId, store: StoreId, revision: str
    ) -> Revision | None:
        return self._reading().revisions.get((workspace, store), revision)

    def put_change(self, workspace: WorkspaceId, store: StoreId, change: Change) -> None:
        t = self._writing(workspace)
        part = (workspace, store)
        require_id("change", change.id)
        require_id("document", change.document)
        require((change.blob is None) == (change.size is None), f"{change.id}: blob without size")
        self._expect(
            lambda: t.change_fits(workspace, store, change),
            f"{change.id}: its revision or blob is absent or another one",
        )
        t.changes.add(part, change.id, change)
        t.numbered.add((*part, change.revision, change.path), change.n, change.id)
        if change.seq is not None:
            t.landed.add((*part, change.path), (change.seq, change.n), change)

    async def get_change(
        self, workspace: WorkspaceId, store: StoreId, change: ChangeId
    ) -> Change | None:
        return self._reading().changes.get((workspace, store), change)

    async def list_changes(
        self, workspace: WorkspaceId, store: StoreId, path: str, up_to: int, limit: int
    ) -> list[Change]:
        return page(self._reading().landed.newest((workspace, store, path), (up_to + 1, 0)), limit)

    async def changed_at(
        self, workspace: WorkspaceId, store: StoreId, paths: Sequence[str], up_to: int
    ) -> dict[str, int]:
        t = self._reading()
        times: dict[str, int] = {}
        for path in paths:
            for change in islice(t.landed.newest((workspace, store, path), (up_to + 1, 0)), 1):
                times[path] = change.created_at
        return times

    # Events

    async def append(self, workspace: WorkspaceId, stream: str, fact: Fact) -> Event:
        t = self._writing(workspace)
        require_id("event", fact.id)
        require(fact.type in TYPES, f"no such event: {fact.type}")
        require(len(fact.salt) == 16, "a salt has 16 bytes")
        self._expect(lambda: t.stream_exists(workspace, stream), f"{stream} is absent")
        event = chain(to_bytes(stream), await self.get_head(workspace, stream), fact)
        t.event_ids.add((workspace,), event.id, stream)
        t.events.add((workspace, stream), event.seq, event)
        t.heads.put((workspace,), stream, Head(event.seq, event.hash))
        self._appended = True
        return event

    async def get_head(self, workspace: WorkspaceId, stream: str) -> Head:
        return self._reading().heads.get((workspace,), stream) or Head()

    async def list_events(
        self, workspace: WorkspaceId, stream: str, after: int, limit: int
    ) -> list[Event]:
        return page(self._reading().events.values((workspace, stream), after), limit)

    # Erasing

    async def erase_store(
        self, workspace: WorkspaceId, store: StoreId, pool: PoolId, limit: int
    ) -> int:
        t = self._writing(workspace)
        require(t.pool_of(workspace, store) == pool, f"{store} keeps its bytes in another pool")
        require(limit >= 1, f"{limit} rows")
        rows = list(islice(t.rows_of_store(workspace, store, pool), limit))
        for row in rows:
            for table, part, key in row:
                table.discard(part, key)
        return len(rows)


def blob_content(t: Tables, workspace: str, pool: str, blob: bytes) -> bytes | None:
    """The blob's bytes, checked, or None."""
    content = t.blobs.get((workspace, pool), blob)
    require(content is None or hashlib.sha256(content).digest() == blob, "a blob was changed")
    return content
