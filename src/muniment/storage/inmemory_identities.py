"""Workspaces, principals, keys, delegations and bare owners in the oracle."""

import msgspec

from muniment.model.access import ApiKey, Delegation, Principal
from muniment.model.ids import DelegationId, KeyId, PrincipalId, WorkspaceId
from muniment.model.owners import OWNER_ID_KINDS, SCOPE_KINDS, OwnerRow
from muniment.model.stores import WORKSPACE_STATUSES, Workspace
from muniment.storage.inmemory_running import Running, page
from muniment.storage.inmemory_tables import ContractBroken, require, require_id


class InMemoryIdentities(Running):
    """The port's Workspaces and Identities."""

    def put_workspace(self, workspace: Workspace) -> None:
        t = self._writing(workspace.id)
        require_id("workspace", workspace.id)
        if not t.workspaces.has((), workspace.id):
            t.workspaces.add((), workspace.id, workspace)

    async def get_workspace(self, workspace: WorkspaceId) -> Workspace | None:
        return self._reading().workspaces.get((), workspace)

    def set_workspace_status(self, workspace: WorkspaceId, status: str) -> None:
        t = self._writing(workspace)
        require(status in WORKSPACE_STATUSES, f"{workspace}: status {status}")
        row = t.workspaces.get((), workspace)
        if row is None:
            raise ContractBroken(f"{workspace} is absent")
        t.workspaces.put((), workspace, msgspec.structs.replace(row, status=status))

    async def list_workspaces(self) -> list[WorkspaceId]:
        return [row.id for row in self._reading().workspaces.values(())]

    def put_principal(self, workspace: WorkspaceId, principal: Principal) -> None:
        t = self._writing(workspace)
        require_id("principal", principal.id)
        if t.principals.has((workspace,), principal.id):
            return
        t.principals.add((workspace,), principal.id, principal)
        if principal.external_id is not None:
            t.external_ids.add((workspace,), principal.external_id, principal.id)

    async def get_principal(
        self, workspace: WorkspaceId, principal: PrincipalId
    ) -> Principal | None:
        return self._reading().principals.get((workspace,), principal)

    async def find_principal(self, workspace: WorkspaceId, external_id: str) -> Principal | None:
        t = self._reading()
        found = t.external_ids.get((workspace,), external_id)
        return None if found is None else t.principals.get((workspace,), found)

    async def list_principals(
        self, workspace: WorkspaceId, after: PrincipalId | None, limit: int
    ) -> list[Principal]:
        return page(self._reading().principals.values((workspace,), after), limit)

    def put_key(self, workspace: WorkspaceId, key: ApiKey, secret_hash: bytes) -> None:
        t = self._writing(workspace)
        require_id("key", key.id)
        require(len(secret_hash) == 32, "a secret's hash has 32 bytes")
        self._expect_principal(workspace, key.principal)
        t.keys.add((workspace,), key.id, key)
        t.secrets.add((workspace,), bytes(secret_hash), key.id)

    async def get_key(self, workspace: WorkspaceId, key: KeyId) -> ApiKey | None:
        return self._reading().keys.get((workspace,), key)

    async def find_key(
        self, workspace: WorkspaceId, secret_hash: bytes
    ) -> tuple[Workspace, ApiKey] | None:
        t = self._reading()
        found = t.secrets.get((workspace,), secret_hash)
        key = None if found is None else t.keys.get((workspace,), found)
        owner = t.workspaces.get((), workspace)
        return None if key is None or owner is None else (owner, key)

    async def list_keys(
        self, workspace: WorkspaceId, after: KeyId | None, limit: int
    ) -> list[ApiKey]:
        return page(self._reading().keys.values((workspace,), after), limit)

    def revoke_key(self, workspace: WorkspaceId, key: KeyId, at: int) -> None:
        t = self._writing(workspace)
        row = t.keys.get((workspace,), key)
        if row is None:
            raise ContractBroken(f"{key} is absent")
        if row.revoked_at is None:
            t.keys.put((workspace,), key, msgspec.structs.replace(row, revoked_at=at))

    def put_delegation(self, workspace: WorkspaceId, delegation: Delegation) -> None:
        t = self._writing(workspace)
        require_id("delegation", delegation.id)
        self._expect_principal(workspace, delegation.principal)
        self._expect_principal(workspace, delegation.delegate)
        t.delegations.add((workspace,), delegation.id, delegation)
        t.delegates.add((workspace, delegation.principal), delegation.delegate, delegation.id)

    async def get_delegation(
        self, workspace: WorkspaceId, delegation: DelegationId
    ) -> Delegation | None:
        return self._reading().delegations.get((workspace,), delegation)

    async def find_delegation(
        self, workspace: WorkspaceId, principal: PrincipalId, delegate: PrincipalId
    ) -> Delegation | None:
        t = self._reading()
        found = t.delegates.get((workspace, principal), delegate)
        return None if found is None else t.delegations.get((workspace,), found)

    async def list_delegations(
        self, workspace: WorkspaceId, after: DelegationId | None, limit: int
    ) -> list[Delegation]:
        return page(self._reading().delegations.values((workspace,), after), limit)

    def delete_delegation(self, workspace: WorkspaceId, delegation: DelegationId) -> None:
        t = self._writing(workspace)
        row = t.delegations.get((workspace,), delegation)
        if row is not None:
            t.delegations.discard((workspace,), delegation)
            t.delegates.discard((workspace, row.principal), row.delegate)

    def put_owner(self, workspace: WorkspaceId, owner: OwnerRow) -> None:
        t = self._writing(workspace)
        require(owner.kind in OWNER_ID_KINDS, f"{owner.kind} has no rows")
        require_id(OWNER_ID_KINDS[owner.kind], owner.id)
        scopes = SCOPE_KINDS if owner.kind == "surface_scope" else (None,)
        require(owner.scope_kind in scopes, f"{owner.id}: scope kind {owner.scope_kind}")
        self._expect_principal(workspace, owner.principal)
        t.owners.add((workspace, owner.kind), owner.id, owner)

    async def get_owner(self, workspace: WorkspaceId, kind: str, owner: str) -> OwnerRow | None:
        require(kind in OWNER_ID_KINDS, f"{kind} has no rows")
        return self._reading().owners.get((workspace, kind), owner)

    async def list_owners(
        self, workspace: WorkspaceId, kind: str, after: str | None, limit: int
    ) -> list[OwnerRow]:
        require(kind in OWNER_ID_KINDS, f"{kind} has no rows")
        return page(self._reading().owners.values((workspace, kind), after), limit)
