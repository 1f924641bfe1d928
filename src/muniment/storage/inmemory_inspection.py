"""What `doctor` reads, in the oracle."""

from muniment.model.events import Head
from muniment.model.ids import PoolId, RevisionId, StoreId, WorkspaceId, to_bytes
from muniment.model.revisions import Change, Revision
from muniment.model.stores import Ref
from muniment.storage.inmemory_running import Running, page


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
