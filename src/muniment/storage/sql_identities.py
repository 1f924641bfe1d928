"""Workspaces, principals, keys, delegations and bare owners over SQL."""

from muniment.model.access import ApiKey, Delegation, Principal
from muniment.model.ids import DelegationId, KeyId, PrincipalId, WorkspaceId, to_bytes
from muniment.model.owners import OwnerRow
from muniment.model.stores import Workspace
from muniment.storage import rows
from muniment.storage.sql_running import Running


class SqlIdentities(Running):
    """The port's Workspaces and Identities."""

    def put_workspace(self, workspace: Workspace) -> None:
        self._insert("workspaces", workspace.id, *rows.workspace_values(workspace))

    async def get_workspace(self, workspace: WorkspaceId) -> Workspace | None:
        row = await self._row("get_workspace", workspace)
        return None if row is None else rows.workspace(row)

    def set_workspace_status(self, workspace: WorkspaceId, status: str) -> None:
        self._run("set_workspace_status", workspace, status=status)

    async def list_workspaces(self) -> list[WorkspaceId]:
        found = await self._executor.rows("list_workspaces", {})
        return [rows.workspace_id(row[0]) for row in found]

    def put_principal(self, workspace: WorkspaceId, principal: Principal) -> None:
        self._insert("principals", workspace, *rows.principal_values(principal))

    async def get_principal(
        self, workspace: WorkspaceId, principal: PrincipalId
    ) -> Principal | None:
        row = await self._row("get_principal", workspace, principal=to_bytes(principal))
        return None if row is None else rows.principal(row)

    async def find_principal(self, workspace: WorkspaceId, external_id: str) -> Principal | None:
        row = await self._row("find_principal", workspace, external_id=external_id)
        return None if row is None else rows.principal(row)

    async def list_principals(
        self, workspace: WorkspaceId, after: PrincipalId | None, limit: int
    ) -> list[Principal]:
        found = await self._rows("list_principals", workspace, after=rows.after(after), limit=limit)
        return [rows.principal(row) for row in found]

    def put_key(self, workspace: WorkspaceId, key: ApiKey, secret_hash: bytes) -> None:
        self._insert(
            "api_keys",
            workspace,
            to_bytes(key.id),
            to_bytes(key.principal),
            key.name,
            key.role,
            secret_hash,
            key.created_at,
            key.expires_at,
            key.revoked_at,
        )

    async def get_key(self, workspace: WorkspaceId, key: KeyId) -> ApiKey | None:
        row = await self._row("get_key", workspace, key=to_bytes(key))
        return None if row is None else rows.api_key(row)

    async def find_key(
        self, workspace: WorkspaceId, secret_hash: bytes
    ) -> tuple[Workspace, ApiKey] | None:
        row = await self._row("find_key", workspace, secret_hash=secret_hash)
        return None if row is None else (rows.workspace(row[7:]), rows.api_key(row[:7]))

    async def list_keys(
        self, workspace: WorkspaceId, after: KeyId | None, limit: int
    ) -> list[ApiKey]:
        found = await self._rows("list_keys", workspace, after=rows.after(after), limit=limit)
        return [rows.api_key(row) for row in found]

    def revoke_key(self, workspace: WorkspaceId, key: KeyId, at: int) -> None:
        self._run("revoke_key", workspace, key=to_bytes(key), at=at)

    def put_delegation(self, workspace: WorkspaceId, delegation: Delegation) -> None:
        self._insert("delegations", workspace, *rows.delegation_values(delegation))

    async def get_delegation(
        self, workspace: WorkspaceId, delegation: DelegationId
    ) -> Delegation | None:
        row = await self._row("get_delegation", workspace, delegation=to_bytes(delegation))
        return None if row is None else rows.delegation(row)

    async def find_delegation(
        self, workspace: WorkspaceId, principal: PrincipalId, delegate: PrincipalId
    ) -> Delegation | None:
        row = await self._row(
            "find_delegation",
            workspace,
            principal=to_bytes(principal),
            delegate=to_bytes(delegate),
        )
        return None if row is None else rows.delegation(row)

    async def list_delegations(
        self, workspace: WorkspaceId, after: DelegationId | None, limit: int
    ) -> list[Delegation]:
        found = await self._rows(
            "list_delegations", workspace, after=rows.after(after), limit=limit
        )
        return [rows.delegation(row) for row in found]

    def delete_delegation(self, workspace: WorkspaceId, delegation: DelegationId) -> None:
        self._run("delete_delegation", workspace, delegation=to_bytes(delegation))

    def put_owner(self, workspace: WorkspaceId, owner: OwnerRow) -> None:
        self._insert("owners", workspace, *rows.owner_values(owner))

    async def get_owner(self, workspace: WorkspaceId, kind: str, owner: str) -> OwnerRow | None:
        row = await self._row("get_owner", workspace, kind=kind, owner=to_bytes(owner))
        return None if row is None else rows.owner_row(row)

    async def list_owners(
        self, workspace: WorkspaceId, kind: str, after: str | None, limit: int
    ) -> list[OwnerRow]:
        found = await self._rows(
            "list_owners", workspace, kind=kind, after=rows.after(after), limit=limit
        )
        return [rows.owner_row(row) for row in found]
