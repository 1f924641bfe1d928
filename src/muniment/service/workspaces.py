"""What every deployment has from its first start: workspace, owner, operator (R-04, R-05)."""

from muniment.model.access import ApiKey, Principal
from muniment.model.ids import (
    DEFAULT_WORKSPACE,
    OPERATOR_PRINCIPAL,
    KeyId,
    PrincipalId,
)
from muniment.model.stores import Workspace
from muniment.service.app import App
from muniment.service.keys import secret_hash
from muniment.storage.base import Transaction

OWNER_NAME = "owner"
OPERATOR_NAME = "operator"


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
