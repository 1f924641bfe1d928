"""Workspaces: the one that every deployment has from its first start (R-04, R-05), and those that
the operator makes, disables and enables again (R-49)."""

from msgspec import Struct, structs

from muniment.model.access import ApiKey, Principal
from muniment.model.errors import NotFound
from muniment.model.ids import (
    DEFAULT_WORKSPACE,
    OPERATOR_PRINCIPAL,
    KeyId,
    PrincipalId,
    WorkspaceId,
    check_id,
)
from muniment.model.stores import NAME_CHARACTERS_MAX, Workspace
from muniment.model.text import check_name
from muniment.service.app import App
from muniment.service.keys import SECRET_BYTES, new_secret, secret_hash
from muniment.storage.base import Transaction

OWNER_NAME = "owner"
OPERATOR_NAME = "operator"


class NewWorkspace(Struct, frozen=True):
    """A workspace just made: its first principal, and that one's key with its only showing."""

    workspace: Workspace
    principal: Principal
    key: ApiKey
    secret: str


async def ensure_default_workspace(app: App, owner_secret: str, *, shared: bool) -> None:
    """Makes workspace `default`, its operator, and the local owner with its key.

    What is there already stays as it is: a revoked owner key stays revoked. A `shared` database,
    one that other machines use too, takes an owner's key only when the workspace is made.
    """
    stamps = app.stamps("workspace.created", "key.created")
    at = stamps[0].at
    owner = Principal(PrincipalId(app.new_id("principal")), "person", OWNER_NAME, None, at)
    key = ApiKey(KeyId(app.new_id("key")), "local owner", "admin", owner.id, at)
    digest = secret_hash(owner_secret)
    workspace = DEFAULT_WORKSPACE

    async def use(tx: Transaction) -> None:
        first = await tx.get_workspace(workspace) is None
        known = await tx.find_key(workspace, digest) is not None
        if first:
            made = Workspace(workspace, "default", "active", False, None, at)
            tx.put_workspace(made)
            operator = Principal(OPERATOR_PRINCIPAL, "service", OPERATOR_NAME, None, at)
            tx.put_principal(workspace, operator)
            await tx.append(workspace, workspace, stamps[0].fact(workspace=workspace))
        if not known and (first or not shared):
            tx.put_principal(workspace, owner)
            tx.put_key(workspace, key, digest)
            fact = stamps[1].fact(api_key=key.id, principal=owner.id, role=key.role)
            await tx.append(workspace, workspace, fact)

    async def known(tx: Transaction) -> bool:
        there = await tx.get_workspace(workspace) is not None
        return there and (shared or await tx.find_key(workspace, digest) is not None)

    if not await app.storage.read(known):
        await app.storage.write(workspace, use)


async def create_workspace(app: App, name: str, *, principal: str = OWNER_NAME) -> NewWorkspace:
    """A workspace with a person of that name and an administrator's key of theirs.

    For the operator, who needs no key. Names need not be unique. Malformed for a bad one.
    """
    check_name(name, "name", characters_max=NAME_CHARACTERS_MAX)
    check_name(principal, "principal", characters_max=NAME_CHARACTERS_MAX)
    created, keyed = app.stamps("workspace.created", "key.created")
    at, identifier = created.at, WorkspaceId(app.new_id("workspace"))
    workspace = Workspace(identifier, name, "active", False, None, at)
    person = Principal(PrincipalId(app.new_id("principal")), "person", principal, None, at)
    key = ApiKey(KeyId(app.new_id("key")), "first administrator", "admin", person.id, at)
    secret = new_secret(identifier, app.random_bytes(SECRET_BYTES))

    async def use(tx: Transaction) -> NewWorkspace:
        tx.put_workspace(workspace)
        tx.put_principal(identifier, person)
        tx.put_key(identifier, key, secret_hash(secret))
        await tx.append(identifier, identifier, created.fact(workspace=identifier))
        fact = keyed.fact(api_key=key.id, principal=person.id, role=key.role)
        await tx.append(identifier, identifier, fact)
        return NewWorkspace(workspace, person, key, secret)

    return await app.storage.write(None, use)


async def list_workspaces(app: App) -> list[Workspace]:
    """Every workspace, in order of id, disabled ones too: for the operator."""

    async def use(tx: Transaction) -> list[Workspace]:
        found = [await tx.get_workspace(one) for one in await tx.list_workspaces()]
        return [one for one in found if one is not None]

    return await app.storage.read(use, scan=True)


async def disable_workspace(app: App, workspace: str) -> Workspace:
    """The workspace, whose keys are refused from now on; its jobs are still done.

    For the operator. NotFound for an unknown one; one that is disabled stays as it is.
    """
    return await _set_status(app, workspace, "disabled")


async def enable_workspace(app: App, workspace: str) -> Workspace:
    """The workspace, whose keys are good again: for the operator. NotFound for an unknown one."""
    return await _set_status(app, workspace, "active")


async def _set_status(app: App, workspace: str, status: str) -> Workspace:
    identifier = WorkspaceId(check_id("workspace", workspace, "workspace"))
    stamp = app.stamp(f"workspace.{'enabled' if status == 'active' else status}")

    async def use(tx: Transaction) -> Workspace:
        found = await tx.get_workspace(identifier)
        if found is None:
            raise NotFound("no such workspace")
        if found.status != status:
            tx.set_workspace_status(identifier, status)
            await tx.append(identifier, identifier, stamp.fact(workspace=identifier))
        return structs.replace(found, status=status)

    return await app.storage.write(identifier, use)
