"""What `doctor` reads, over SQL."""

from collections.abc import Sequence

from muniment.model.ids import PoolId, RevisionId, StoreId, WorkspaceId, to_bytes
from muniment.model.revisions import Change, Revision
from muniment.storage import rows
from muniment.storage.base import Found, Key, Stray
from muniment.storage.inspection import found, inspection_values, stray
from muniment.storage.sql_running import Running


class SqlInspection(Running):
    """The port's Inspection, but for what the transaction holds back: refs and stream heads."""

    async def inspect(
        self,
        kind: str,
        workspace: WorkspaceId,
        part: Sequence[str],
        after: Key | None,
        limit: int,
    ) -> list[Found]:
        values = inspection_values(kind, part, after)
        read = await self._rows(f"inspect_{kind}", workspace, **values, limit=limit)
        return [found(kind, row) for row in read]

    async def count_rows(self, kind: str, workspace: WorkspaceId, part: Sequence[str]) -> int:
        values = inspection_values(kind, part, None)
        return int((await self._rows(f"count_{kind}", workspace, **values))[0][0])

    async def find_strays(self, workspace: WorkspaceId) -> list[Stray]:
        read = await self._rows("strays", workspace)
        return [stray(row) for row in read]

    async def find_homeless(self) -> list[Stray]:
        read = await self._executor.rows("homeless", {})
        return [stray(row) for row in read]

    async def list_revisions(
        self, workspace: WorkspaceId, store: StoreId, after: RevisionId | None, limit: int
    ) -> list[Revision]:
        found = await self._rows(
            "list_revisions",
            workspace,
            store=to_bytes(store),
            after=rows.after(after),
            limit=limit,
        )
        return [rows.revision(row) for row in found]

    async def list_revision_changes(
        self,
        workspace: WorkspaceId,
        store: StoreId,
        revision: RevisionId,
        after: tuple[str, int] | None,
        limit: int,
    ) -> list[Change]:
        path, n = ("", -1) if after is None else after
        found = await self._rows(
            "list_revision_changes",
            workspace,
            store=to_bytes(store),
            revision=to_bytes(revision),
            path=path.encode(),
            n=n,
            limit=limit,
        )
        return [rows.change(row) for row in found]

    async def list_blobs(
        self, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        return await self._digests("list_blobs", workspace, pool, after, limit)

    async def list_nodes(
        self, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        return await self._digests("list_nodes", workspace, pool, after, limit)

    async def _digests(
        self, name: str, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        found = await self._rows(
            name, workspace, pool=to_bytes(pool), after=after or b"", limit=limit
        )
        return [bytes(row[0]) for row in found]
