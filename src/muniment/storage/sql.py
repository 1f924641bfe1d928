"""The transaction over SQL, one text for SQLite and PostgreSQL.

An `Executor` runs statements by name; what it buffers it must show to later reads. What is read
under a store's lock is kept here until the transaction ends: nobody else can change it, and the
members of a group read it once and move each ref and stream head once.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

from msgspec import structs

from muniment.model.access import Assignment, Rights, Subject
from muniment.model.documents import Document, DocumentItem
from muniment.model.errors import Unavailable
from muniment.model.events import Event, Fact, Head, chain
from muniment.model.ids import (
    AssignmentId,
    ChangeId,
    PoolId,
    PrincipalId,
    StoreId,
    WorkspaceId,
    to_bytes,
)
from muniment.model.paths import prefix_end
from muniment.model.revisions import Change, Revision
from muniment.model.stores import Owner, Ref, StoreRecord, StoreSummary
from muniment.storage import rows
from muniment.storage.base import Lost
from muniment.storage.cache import NodeCache
from muniment.storage.executor import Executor
from muniment.storage.rows import STORE_WIDTH, Row
from muniment.storage.sealing import Sealed, Sealer
from muniment.storage.sql_identities import SqlIdentities
from muniment.storage.sql_inspection import SqlInspection
from muniment.storage.sql_jobs import SqlJobs

GIVEN_MAX = 64
"""The most assignments of a store that a group of writers reads at once."""

_PATH_END = b"\xff"
"""Above every path: UTF-8 never holds this byte."""

_STORE_ERASURES = (
    "erase_documents",
    "erase_changes",
    "erase_revisions",
    "erase_erasures",
    "erase_refs",
    "erase_assignments",
    "erase_default_stores",
    "erase_receipts",
    "erase_payloads",
    "erase_events",
    "erase_stream",
)
_POOL_ERASURES = ("erase_blob_keys", "erase_blobs", "erase_nodes")


class SqlTransaction(SqlIdentities, SqlJobs, SqlInspection):
    """`storage.base.Transaction` over an executor; its other nouns stand in the `sql_` files."""

    def __init__(self, executor: Executor, nodes: NodeCache, sealer: Sealer | None) -> None:
        super().__init__(executor)
        self._nodes = nodes
        self._sealer = sealer
        self._opening = "open_plain_document" if sealer is None else "open_sealed_document"
        self._refs: dict[tuple[str, str], tuple[Ref, Ref]] = {}
        self._heads: dict[str, tuple[Head, Head]] = {}
        self._locked: set[str] = set()
        self._views: dict[tuple[str, ...], tuple[StoreRecord, Rights]] = {}
        self._opened: dict[tuple[str, str], StoreRecord] = {}
        self._given: dict[tuple[str, str], dict[bytes, Rights] | None] = {}
        self._documents: dict[str, Document | None] = {}

    def finish(self) -> None:
        """Writes the moved refs and stream heads; call before the commit.

        Their rows have been locked since they were read, so nothing needs to be compared.
        """
        for (workspace, store), (old, new) in self._refs.items():
            if new is not old:
                self._executor.run("move_ref", rows.moved_ref(workspace, store, old, new))
        for key, (old_head, head) in self._heads.items():
            workspace_id, stream = bytes.fromhex(key[:32]), bytes.fromhex(key[32:])
            if head.seq == old_head.seq:
                continue
            if old_head.seq == 0:
                self._executor.insert("streams", (workspace_id, stream, head.seq, head.hash))
            else:
                values = {"workspace": workspace_id, "stream": stream, "expected": old_head.seq}
                values |= {"seq": head.seq, "hash": head.hash}
                self._executor.run("move_head", values)
        self._refs.clear()
        self._heads.clear()

    # Objects

    def put_blob(self, workspace: WorkspaceId, pool: PoolId, blob: bytes, content: bytes) -> None:
        if hashlib.sha256(content).digest() != blob:
            raise ValueError("a blob's id must be the SHA-256 of its content")
        pool_id = to_bytes(pool)
        if self._sealer is None:
            self._insert("blobs", workspace, pool_id, blob, 0, content)
            return
        sealed = self._sealer.seal(content, to_bytes(workspace) + pool_id + blob)
        self._insert("blobs", workspace, pool_id, blob, 1, sealed.body)
        self._insert("blob_keys", workspace, pool_id, blob, sealed.wrapping, sealed.data_key)

    async def get_blob(self, workspace: WorkspaceId, pool: PoolId, blob: bytes) -> bytes | None:
        row = await self._row("get_blob", workspace, pool=to_bytes(pool), blob=blob)
        return None if row is None else self._open(workspace, pool, blob, row)

    def _open(self, workspace: WorkspaceId, pool: PoolId, blob: bytes, row: Row) -> bytes | None:
        """The content of a (body, sealed, wrapping, data_key) row; None without its key."""
        body, sealed, wrapping, data_key = row
        if sealed and self._sealer is None:
            raise Unavailable("this body is sealed: set MUNIMENT_MASTER_KEY again")
        if body is None or (sealed and data_key is None):
            return None
        if sealed and self._sealer is not None:
            context = to_bytes(workspace) + to_bytes(pool) + blob
            body = self._sealer.open(Sealed(body, wrapping, data_key), context)
        if hashlib.sha256(body).digest() != blob:
            raise ValueError(f"blob {blob.hex()} is damaged: its bytes have another hash")
        return bytes(body)

    def put_node(self, workspace: WorkspaceId, pool: PoolId, node: bytes, body: bytes) -> None:
        self._insert("nodes", workspace, to_bytes(pool), node, body)
        self._nodes.put(pool, node, body)

    async def get_node(self, workspace: WorkspaceId, pool: PoolId, node: bytes) -> bytes:
        body = self._nodes.get(pool, node)
        if body is None:
            row = await self._row("get_node", workspace, pool=to_bytes(pool), node=node)
            if row is None:
                raise ValueError(f"tree node {node.hex()} is missing")
            body = bytes(row[0])
            if hashlib.sha256(body).digest() != node:
                raise ValueError(f"tree node {node.hex()} is damaged")
            self._nodes.put(pool, node, body)
        return body

    # Assignments

    def put_assignment(self, workspace: WorkspaceId, assignment: Assignment) -> None:
        self._forget_views()
        self._insert("assignments", workspace, *rows.assignment_values(assignment))

    async def get_assignment(
        self, workspace: WorkspaceId, assignment: AssignmentId
    ) -> Assignment | None:
        row = await self._row("get_assignment", workspace, assignment=to_bytes(assignment))
        return None if row is None else rows.assignment(row)

    async def list_assignments(
        self,
        workspace: WorkspaceId,
        after: AssignmentId | None,
        limit: int,
        *,
        store: StoreId | None = None,
        subject: Subject | None = None,
    ) -> list[Assignment]:
        values: dict[str, Any] = {"after": rows.after(after), "limit": limit}
        name = "list_assignments"
        if store is not None:
            values["store"] = to_bytes(store)
            name = "list_assignments_of_store"
        if subject is not None:
            values["subject"] = rows.subject_bytes(subject.id)
            name = "list_assignments_of_subject" if store is None else "list_assignments_of_both"
        found = await self._rows(name, workspace, **values)
        return [rows.assignment(row) for row in found]

    def delete_assignment(self, workspace: WorkspaceId, assignment: AssignmentId) -> None:
        self._forget_views()
        self._run("delete_assignment", workspace, assignment=to_bytes(assignment))

    # Stores

    def put_store(self, workspace: WorkspaceId, store: StoreRecord) -> None:
        self._forget_views()
        self._insert("stores", workspace, *rows.store_values(store))

    async def lock_store(self, workspace: WorkspaceId, store: StoreId) -> None:
        if store not in self._locked:
            self._locked.add(store)
            if not self._executor.locks:
                return
            values = {"workspace": to_bytes(workspace), "store": to_bytes(store)}
            self._executor.run("lock_store", values)

    async def get_store(
        self, workspace: WorkspaceId, store: StoreId, subjects: Sequence[str]
    ) -> tuple[StoreRecord, Rights] | None:
        key = (workspace, store, *subjects)
        known = self._views.get(key)
        if known is None and store in self._locked and self._executor.locks:
            known = await self._locked_view(workspace, store, tuple(subjects))
        if known is not None:
            return known
        row = await self._row(
            "get_store", workspace, store=to_bytes(store), **rows.subjects(tuple(subjects))
        )
        if row is None:
            return None
        view = rows.store(row), rows.rights(row[STORE_WIDTH], row[STORE_WIDTH + 1])
        if store in self._locked:
            self._views[key] = view
        return view

    async def _locked_view(
        self, workspace: WorkspaceId, store: StoreId, subjects: tuple[str, ...]
    ) -> tuple[StoreRecord, Rights] | None:
        """The view of a locked store in few round trips; None where it takes its own statement.

        The first subjects' comes with the canonical ref and the stream's head, which nobody moves
        without the lock; the others' from all that is granted on the store, where that is little.
        """
        place = (workspace, store)
        record = self._opened.get(place)
        if record is None:
            values = {"store": to_bytes(store), **rows.subjects(subjects)}
            row = await self._row("open_locked_store", workspace, **values)
            if row is None:
                return None
            self._opened[place] = record = rows.store(row)
            rights = rows.rights(row[STORE_WIDTH], row[STORE_WIDTH + 1])
            ref = rows.ref(row[STORE_WIDTH + 2 : -2])
            self._refs.setdefault((workspace, store + ref.name), (ref, ref))
            head = Head(*row[-2:])
            self._heads.setdefault(workspace[-32:] + store[-32:], (head, head))
        else:
            if place not in self._given:
                values = {"store": to_bytes(store), "limit": GIVEN_MAX + 1}
                found = await self._rows("list_rights", workspace, **values)
                self._given[place] = (
                    rows.rights_by_subject(found) if len(found) <= GIVEN_MAX else None
                )
            given = self._given[place]
            if given is None:
                return None
            rights = rows.rights_of(given, subjects)
        view = self._views[(*place, *subjects)] = (record, rights)
        return view

    def _forget_views(self) -> None:
        for kept in (self._views, self._opened, self._given):
            kept.clear()

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
        values: dict[str, Any] = {"after": rows.after(after), "limit": limit}
        values |= {"name": name or "", "any_name": int(name is None)}
        values |= rows.padded("status", statuses)
        statement = "list_stores"
        if readers is not None:
            values |= rows.subjects(tuple(readers))
            statement = "list_stores_of_readers"
        found = await self._rows(statement, workspace, **values)
        return [rows.summary(row) for row in found]

    async def list_stores_of(
        self, workspace: WorkspaceId, owner: Owner, after: StoreId | None, limit: int
    ) -> list[StoreId]:
        values: dict[str, Any] = {"after": rows.after(after), "limit": limit}
        statement = "list_stores_of_workspace"
        if owner.id is not None:
            values |= {"owner_kind": owner.kind, "owner": to_bytes(owner.id)}
            statement = "list_stores_of"
        found = await self._rows(statement, workspace, **values)
        return [StoreId("memstore_" + row[0].hex()) for row in found]

    async def get_default_store(
        self, workspace: WorkspaceId, principal: PrincipalId
    ) -> StoreId | None:
        row = await self._row("get_default_store", workspace, principal=to_bytes(principal))
        return None if row is None else StoreId("memstore_" + row[0].hex())

    def put_default_store(
        self, workspace: WorkspaceId, principal: PrincipalId, store: StoreId | None
    ) -> None:
        if store is None:
            self._run("delete_default_store", workspace, principal=to_bytes(principal))
        else:
            self._insert("default_stores", workspace, to_bytes(principal), to_bytes(store))

    async def get_ref(self, workspace: WorkspaceId, store: StoreId, name: str) -> Ref | None:
        known = self._refs.get((workspace, store + name))
        if known is not None:
            return known[1]
        row = await self._row("get_ref", workspace, store=to_bytes(store), name=name)
        if row is None:
            return None
        ref = rows.ref(row)
        if store in self._locked:
            self._refs[workspace, store + name] = (ref, ref)
        return ref

    async def list_refs(self, workspace: WorkspaceId, store: StoreId) -> list[Ref]:
        self.finish()
        found = await self._rows("list_refs", workspace, store=to_bytes(store))
        return sorted(map(rows.ref, found), key=lambda ref: ref.name)

    def put_ref(self, workspace: WorkspaceId, store: StoreId, ref: Ref) -> None:
        self._insert("refs", workspace, to_bytes(store), *rows.ref_values(ref))

    def move_ref(self, workspace: WorkspaceId, store: StoreId, ref: Ref, expected: Ref) -> None:
        self.writes += 1
        known = self._refs.get((workspace, store + ref.name))
        if known is None:
            values = rows.moved_ref(workspace, store + ref.name, expected, ref)
            self._executor.run("swap_ref", values, one=True)
        elif known[1].revision != expected.revision or known[1].version != expected.version:
            raise Lost(f"ref {ref.name} moved")
        else:
            self._refs[workspace, store + ref.name] = (known[0], ref)

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
        if store in self._locked and not content:
            view = await self.get_store(workspace, store, subjects)
            if view is None:
                return None
            return *view, await self._locked_document(workspace, store, path)
        row = await self._row(
            self._opening if content else "open_document",
            workspace,
            store=to_bytes(store),
            path=path.encode(),
            **rows.subjects(tuple(subjects)),
        )
        if row is None:
            return None
        record = rows.store(row)
        rights = rows.rights(row[STORE_WIDTH], row[STORE_WIDTH + 1])
        found = row[STORE_WIDTH + 2 :]
        if found[0] is None:
            return record, rights, None
        body = self._open(workspace, record.pool, found[1], found[6:10]) if content else None
        return record, rights, rows.document(path, found, body)

    async def _locked_document(
        self, workspace: WorkspaceId, store: StoreId, path: str
    ) -> Document | None:
        """The document of a store locked by this transaction, read once."""
        key = store + path
        if key not in self._documents:
            values = {"store": to_bytes(store), "path": path.encode()}
            row = await self._row("get_document", workspace, **values)
            self._documents[key] = None if row is None else rows.document(path, row)
        return self._documents[key]

    async def list_documents(
        self, workspace: WorkspaceId, store: StoreId, prefix: str, after: str | None, limit: int
    ) -> list[DocumentItem]:
        found = await self._rows(
            "list_documents",
            workspace,
            store=to_bytes(store),
            start=prefix.encode(),
            after=b"" if after is None else after.encode(),
            end=prefix_end(prefix.encode()) or _PATH_END,
            limit=limit,
        )
        return [DocumentItem(row[0].decode(), *row[1:4]) for row in found]

    def put_document(self, workspace: WorkspaceId, store: StoreId, document: Document) -> None:
        self._documents[store + document.path] = structs.replace(document, content=None)
        self._insert("documents", workspace, to_bytes(store), *rows.document_values(document))

    def remove_document(self, workspace: WorkspaceId, store: StoreId, path: str) -> None:
        self._documents[store + path] = None
        self._run("remove_document", workspace, store=to_bytes(store), path=path.encode())

    # Revisions

    def put_revision(self, workspace: WorkspaceId, store: StoreId, revision: Revision) -> None:
        self._insert("revisions", workspace, to_bytes(store), *rows.revision_values(revision))

    async def get_revision(
        self, workspace: WorkspaceId, store: StoreId, revision: str
    ) -> Revision | None:
        row = await self._row(
            "get_revision", workspace, store=to_bytes(store), revision=to_bytes(revision)
        )
        return None if row is None else rows.revision(row)

    def put_change(self, workspace: WorkspaceId, store: StoreId, change: Change) -> None:
        self._insert("changes", workspace, to_bytes(store), *rows.change_values(change))

    async def get_change(
        self, workspace: WorkspaceId, store: StoreId, change: ChangeId
    ) -> Change | None:
        row = await self._row(
            "get_change", workspace, store=to_bytes(store), change=to_bytes(change)
        )
        return None if row is None else rows.change(row)

    async def list_changes(
        self, workspace: WorkspaceId, store: StoreId, path: str, up_to: int, limit: int
    ) -> list[Change]:
        found = await self._rows(
            "list_changes",
            workspace,
            store=to_bytes(store),
            path=path.encode(),
            up_to=up_to,
            limit=limit,
        )
        return [rows.change(row) for row in found]

    async def changed_at(
        self, workspace: WorkspaceId, store: StoreId, paths: Sequence[str], up_to: int
    ) -> dict[str, int]:
        if not paths:
            return {}
        encoded = [path.encode() for path in paths]
        found = await self._rows(
            "changed_at",
            workspace,
            store=to_bytes(store),
            first=min(encoded),
            last=max(encoded),
            up_to=up_to,
        )
        wanted = set(paths)
        return {path: row[1] for row in found if (path := row[0].decode()) in wanted}

    # Events

    async def append(self, workspace: WorkspaceId, stream: str, fact: Fact) -> Event:
        self.writes += 1
        key = workspace[-32:] + stream[-32:]
        known = self._heads.get(key)
        if known is None:
            row = await self._row("lock_head", workspace, stream=to_bytes(stream))
            head = Head() if row is None else Head(*row)
            known = (head, head)
        event = chain(to_bytes(stream), known[1], fact)
        self._heads[key] = (known[0], Head(event.seq, event.hash))
        place = (to_bytes(stream), event.seq)
        self._insert(
            "events",
            workspace,
            *place,
            to_bytes(event.id),
            event.type,
            event.created_at,
            event.commitment,
            event.hash,
        )
        self._insert("event_payloads", workspace, *place, fact.salt, fact.payload)
        return event

    async def get_head(self, workspace: WorkspaceId, stream: str) -> Head:
        known = self._heads.get(workspace[-32:] + stream[-32:])
        if known is not None:
            return known[1]
        row = await self._row("get_head", workspace, stream=to_bytes(stream))
        return Head() if row is None else Head(*row)

    async def list_streams(
        self, workspace: WorkspaceId, after: bytes | None, limit: int
    ) -> list[tuple[bytes, Head]]:
        self.finish()
        found = await self._rows("list_streams", workspace, after=after or b"", limit=limit)
        return [(bytes(row[0]), Head(*row[1:])) for row in found]

    async def list_events(
        self, workspace: WorkspaceId, stream: str, after: int, limit: int
    ) -> list[Event]:
        found = await self._rows(
            "list_events", workspace, stream=to_bytes(stream), after=after, limit=limit
        )
        return [rows.event(row) for row in found]

    # Erasing

    async def erase_store(
        self, workspace: WorkspaceId, store: StoreId, pool: PoolId, limit: int
    ) -> int:
        self.writes += 1
        self.finish()
        self._forget_views()
        self._documents.clear()
        self._nodes.drop(pool)
        erased = 0
        for name in _STORE_ERASURES:
            if erased < limit:
                values = {"store": to_bytes(store), "limit": limit - erased}
                erased += len(await self._rows(name, workspace, **values))
        users = await self._rows(
            "pool_users", workspace, store=to_bytes(store), pool=to_bytes(pool)
        )
        if users[0][0] == 0:
            for name in _POOL_ERASURES:
                if erased < limit:
                    values = {"pool": to_bytes(pool), "limit": limit - erased}
                    erased += len(await self._rows(name, workspace, **values))
        return erased
