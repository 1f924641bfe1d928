"""How a transaction's statements are run; the nouns of the port build on it."""

from typing import Any

from muniment.model.ids import WorkspaceId, to_bytes
from muniment.storage.executor import Executor
from muniment.storage.rows import Row


class Running:
    """Statements of one transaction, each about one workspace; `writes` counts those that write."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.writes = 0

    async def _rows(self, name: str, workspace: WorkspaceId, /, **values: Any) -> list[Row]:
        values["workspace"] = to_bytes(workspace)
        return await self._executor.rows(name, values)

    async def _row(self, name: str, workspace: WorkspaceId, /, **values: Any) -> Row | None:
        values["workspace"] = to_bytes(workspace)
        found = await self._executor.rows(name, values)
        return found[0] if found else None

    def _run(self, name: str, workspace: WorkspaceId, /, **values: Any) -> None:
        self.writes += 1
        values["workspace"] = to_bytes(workspace)
        self._executor.run(name, values)

    def _insert(self, table: str, workspace: WorkspaceId, *values: Any) -> None:
        self.writes += 1
        self._executor.insert(table, (to_bytes(workspace), *values))
