"""What `doctor` reads, in the oracle, which has no damaged rows."""

from collections.abc import Sequence, Set
from typing import Any

from msgspec import structs

from muniment.model.events import Head
from muniment.model.ids import PoolId, RevisionId, StoreId, WorkspaceId, to_bytes
from muniment.model.revisions import Change, Revision
from muniment.model.stores import Ref
from muniment.storage.base import Found, Key, Stray
from muniment.storage.inmemory_running import Running, page
from muniment.storage.inmemory_tables import Table, Tables


class InMemoryInspection(Running):
    """The port's Inspection."""

    async def list_refs(self, workspace: WorkspaceId, store: StoreId) -> list[Ref]:
        return list(self._reading().refs.values((workspace, store)))

    async def list_revisions(
        self, workspace: WorkspaceId, store: StoreId, after: RevisionId | None, limit: int
    ) -> list[Revision]:
        return page(self._reading().revisions.values((workspace, store), after), limit)

    async def list_revision_changes(
        self,
        workspace: WorkspaceId,
        store: StoreId,
        revision: RevisionId,
        after: tuple[str, int] | None,
        limit: int,
    ) -> list[Change]:
        changes = self._reading().changes.values((workspace, store))
        of_revision = [change for change in changes if change.revision == revision]
        of_revision.sort(key=lambda change: (change.path, change.n))
        above = (c for c in of_revision if after is None or (c.path, c.n) > after)
        return page(above, limit)

    async def list_blobs(
        self, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        return page(self._reading().blobs.keys((workspace, pool), after), limit)

    async def list_nodes(
        self, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        return page(self._reading().nodes.keys((workspace, pool), after), limit)

    async def list_streams(
        self, workspace: WorkspaceId, after: bytes | None, limit: int
    ) -> list[tuple[bytes, Head]]:
        t = self._reading()
        heads = t.heads
        named = [(stream, heads.get((workspace,), stream)) for stream in heads.keys((workspace,))]
        rows = sorted((to_bytes(stream), head) for stream, head in named if head is not None)
        return page((row for row in rows if after is None or row[0] > after), limit)

    async def inspect(
        self,
        kind: str,
        workspace: WorkspaceId,
        part: Sequence[str],
        after: Key | None,
        limit: int,
    ) -> list[Found]:
        rows = sorted(_rows(self._reading(), kind, workspace, tuple(part)), key=lambda row: row[0])
        return page((Found(*row) for row in rows if after is None or row[0] > after), limit)

    async def count_rows(self, kind: str, workspace: WorkspaceId, part: Sequence[str]) -> int:
        return len(_rows(self._reading(), kind, workspace, tuple(part)))

    async def find_strays(self, workspace: WorkspaceId) -> list[Stray]:
        t = self._reading()
        living = [one for one in t.stores.values((workspace,)) if one.status != "deleted"]
        stores = {one.id for one in living}
        pools = {one.pool for one in living}
        of_stores = (
            ("documents", t.documents),
            ("changes", t.changes),
            ("revisions", t.revisions),
            ("refs", t.refs),
        )
        found = [stray for name, table in of_stores for stray in _strays(name, table, stores)]
        for name, table in (("blobs", t.blobs), ("nodes", t.nodes)):
            found += _strays(name, table, pools)
        found += _strays("receipts", t.receipts, stores | {workspace})
        found += _strays("events", t.events, {*t.heads.keys((workspace,))})
        own = [one for one in found if one[0] == workspace]
        for assignment in t.assignments.values((workspace,)):
            if assignment.store not in stores:
                own.append((workspace, Stray("assignments", to_bytes(assignment.store), 1)))
        for store in t.defaults.values((workspace,)):
            if store not in stores:
                own.append((workspace, Stray("default_stores", to_bytes(store), 1)))
        return [stray for _, stray in own]

    async def find_homeless(self) -> list[Stray]:
        t = self._reading()
        named = (
            ("principals", t.principals),
            ("api_keys", t.keys),
            ("stores", t.stores),
            ("documents", t.documents),
            ("events", t.events),
        )
        return [
            Stray(name, to_bytes(part[0]), table.count(part))
            for name, table in named
            for part in table.parts()
            if not t.workspaces.has((), part[0])
        ]


def _strays(name: str, table: Table[Any, Any], living: Set[str]) -> list[tuple[str, Stray]]:
    """The workspace and the rows of each partition that is no living one's."""
    return [
        (part[0], Stray(name, to_bytes(part[1]), table.count(part)))
        for part in table.parts()
        if part[1] not in living
    ]


def _rows(
    t: Tables, kind: str, workspace: WorkspaceId, part: tuple[str, ...]
) -> list[tuple[Key, Any]]:
    """Every row of the kind with its key."""
    if kind in _BY_ID:
        table: Table[str, Any] = getattr(t, _BY_ID[kind])
        return [((to_bytes(row.id),), row) for row in table.values((workspace, *part))]
    if kind == "workspaces":
        return [((to_bytes(row.id),), row) for row in t.workspaces.values(())]
    if kind in ("blobs", "nodes", "receipts"):
        kept: Table[bytes, Any] = getattr(t, kind)
        records = (
            kept.keys((workspace, *part)) if kind == "blobs" else kept.values((workspace, *part))
        )
        return [((k,), r) for k, r in zip(kept.keys((workspace, *part)), records, strict=True)]
    return _other_rows(t, kind, workspace, part)


_BY_ID = {
    "principals": "principals",
    "api_keys": "keys",
    "delegations": "delegations",
    "owners": "owners",
    "assignments": "assignments",
    "stores": "stores",
    "revisions": "revisions",
    "changes_by_id": "changes",
    "jobs": "jobs",
}
"""By kind, the table of records that are listed by their id."""


def _other_rows(
    t: Tables, kind: str, workspace: WorkspaceId, part: tuple[str, ...]
) -> list[tuple[Key, Any]]:
    of = (workspace, *part)
    if kind == "refs":
        return [((ref.name.encode(),), ref) for ref in t.refs.values(of)]
    if kind == "documents":
        return [((row.path.encode(),), row) for row in t.documents.values(of)]
    if kind == "changes":
        changes = t.changes.values((workspace, part[0]))
        return [((c.path.encode(), c.n), c) for c in changes if c.revision == part[1]]
    if kind == "landed":
        changes = t.changes.values(of)
        return [((c.path.encode(), c.seq, c.n), c) for c in changes if c.seq is not None]
    if kind == "default_stores":
        pairs = zip(t.defaults.keys(of), t.defaults.values(of), strict=True)
        return [((to_bytes(principal),), (principal, store)) for principal, store in pairs]
    if kind == "events":
        return [
            ((e.seq,), structs.replace(e, payload=None, salt=None)) for e in t.events.values(of)
        ]
    if kind == "event_payloads":
        events = [e for e in t.events.values(of) if e.payload is not None]
        return [((e.seq,), (e.salt, e.payload)) for e in events]
    if kind == "streams":
        heads = zip(t.heads.keys(of), t.heads.values(of), strict=True)
        return [((to_bytes(stream),), (to_bytes(stream), head)) for stream, head in heads]
    assert kind == "blob_keys", kind
    return []
