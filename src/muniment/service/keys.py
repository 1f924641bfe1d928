"""API keys and authentication (R-05, R-40, R-43, wire.md Administration)."""

import base64
import hashlib
import re

from msgspec import Struct

from muniment.model.access import Actor, ApiKey, Principal, check_admin
from muniment.model.errors import Denied, DisabledTenancy, InvalidKey, Malformed, NotFound
from muniment.model.ids import (
    DEFAULT_WORKSPACE,
    OPERATOR_KEY,
    OPERATOR_PRINCIPAL,
    KeyId,
    PrincipalId,
    WorkspaceId,
    is_id,
)
from muniment.model.stores import NAME_CHARACTERS_MAX, Workspace
from muniment.model.text import check_name
from muniment.service.app import App
from muniment.service.idempotency import Once, keep, replay
from muniment.service.paging import Page, Slice, page_of
from muniment.service.revisions import actor_fields
from muniment.storage.base import Transaction

ROLES = ("admin", "member")
SECRET_BYTES = 32
SECRET_CHARACTERS_MAX = 512
_SECRET = re.compile(r"mun_([0-9a-f]{32})_[A-Za-z0-9_-]{43}", re.ASCII)


class NewKey(Struct, frozen=True):
    """A key just made, with the one showing of its secret; None where the request is repeated."""

    key: ApiKey
    secret: str | None


class Identity(Struct, frozen=True):
    """Who a request comes from, for `whoami`."""

    actor: Actor
    workspace_name: str
    key_name: str
    role: str
    principal: Principal


def new_secret(workspace: WorkspaceId, raw: bytes) -> str:
    """A key's secret: it names its workspace, so that looking it up names it too."""
    text = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
    return f"mun_{workspace[-32:]}_{text}"


def secret_hash(secret: str) -> bytes:
    """What is kept of a secret. It has 256 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).digest()


async def authenticate(app: App, secret: str, acted_as: str | None = None) -> Actor:
    """The actor behind a key's secret, acting as another principal where it may (R-43).

    InvalidKey for an unknown, expired or revoked key; DisabledTenancy for a disabled workspace;
    Denied without a delegation; Malformed for an id that is none.
    """
    actor = await _bearer(app, secret)
    return actor if acted_as is None else await _acting(app, actor, acted_as)


async def _bearer(app: App, secret: str) -> Actor:
    digest = secret_hash(secret)
    if digest == app.policy.operator_key_hash:
        default = await app.storage.read(lambda tx: tx.get_workspace(DEFAULT_WORKSPACE))
        _check_tenancy(default)
        return Actor(DEFAULT_WORKSPACE, OPERATOR_PRINCIPAL, OPERATOR_KEY, admin=True)
    match = _SECRET.fullmatch(secret)
    if match is None:
        raise InvalidKey("no such API key")
    workspace = WorkspaceId("wsp_" + match[1])
    found = await app.storage.read(lambda tx: tx.find_key(workspace, digest), single=True)
    if found is None:
        raise InvalidKey("no such API key")
    record, key = found
    if key.revoked_at is not None:
        raise InvalidKey("this API key has been revoked")
    if key.expires_at is not None and key.expires_at <= app.now():
        raise InvalidKey("this API key has expired")
    _check_tenancy(record)
    return Actor(workspace, key.principal, key.id, admin=key.role == "admin")


def _check_tenancy(workspace: Workspace | None) -> None:
    if workspace is None:
        raise InvalidKey("no such API key")
    if workspace.status != "active":
        raise DisabledTenancy(
            "the operator has disabled this workspace; where its database is,"
            f" `muniment workspace enable {workspace.id}` enables it again"
        )


async def _acting(app: App, actor: Actor, acted_as: str) -> Actor:
    """The actor as the other principal: its rights and no role, for a delegation gives neither."""
    if not is_id("principal", acted_as):
        raise Malformed("Muniment-Acted-As must be a principal's id", field="Muniment-Acted-As")
    principal = PrincipalId(acted_as)
    if principal == actor.principal:
        return actor

    async def use(tx: Transaction) -> bool:
        found = await tx.find_delegation(actor.workspace, principal, actor.principal)
        return found is not None

    if not await app.storage.read(use):
        raise Denied("acting as this principal needs a delegation", principal=acted_as)
    return Actor(actor.workspace, principal, actor.key, delegate=actor.principal)


async def whoami(app: App, actor: Actor) -> Identity:
    """The workspace, key and principal of this very request."""

    async def use(tx: Transaction) -> Identity:
        workspace = await tx.get_workspace(actor.workspace)
        principal = await tx.get_principal(actor.workspace, actor.principal)
        key = await tx.get_key(actor.workspace, actor.key)
        if workspace is None or principal is None:
            raise NotFound("the key's principal is gone")
        name = "MUNIMENT_ADMIN_KEY" if key is None else key.name
        role = "admin" if actor.admin else "member"
        return Identity(actor, workspace.name, name, role, principal)

    return await app.storage.read(use)


async def create_key(
    app: App,
    actor: Actor,
    name: str,
    role: str,
    *,
    principal: str | None = None,
    expires_at: int | None = None,
    once: Once | None = None,
) -> NewKey:
    """A key of `principal`, or of a new service principal of the key's name (R-40).

    Administrators only (Denied); Malformed for a bad name, role or past expiry, NotFound for an
    unknown principal. The secret is shown this once.
    """
    check_admin(actor)
    check_name(name, "name", characters_max=NAME_CHARACTERS_MAX)
    if role not in ROLES:
        raise Malformed(f"role must be one of {', '.join(ROLES)}", field="role")
    key_event, principal_event = app.stamps("key.created", "principal.created")
    if expires_at is not None and expires_at <= key_event.at:
        raise Malformed("expires_at must lie in the future", field="expires_at")
    owner = PrincipalId(principal or app.new_id("principal"))
    key = ApiKey(KeyId(app.new_id("key")), name, role, owner, key_event.at, expires_at=expires_at)
    secret = new_secret(actor.workspace, app.random_bytes(SECRET_BYTES))

    async def use(tx: Transaction) -> NewKey:
        if principal is not None and await tx.get_principal(actor.workspace, owner) is None:
            raise NotFound("no such principal", field="principal")
        known = await replay(tx, actor, actor.workspace, once)
        if known is not None:
            found = await tx.get_key(actor.workspace, KeyId(known["key"]))
            if found is None:
                raise NotFound("no such API key")
            return NewKey(found, None)
        keep(tx, actor, actor.workspace, once, key.created_at, key=key.id)
        by = actor_fields(actor)
        if principal is None:
            made = Principal(owner, "service", name, None, key.created_at)
            tx.put_principal(actor.workspace, made)
            fact = principal_event.fact(principal=owner, kind="service", actor=by)
            await tx.append(actor.workspace, actor.workspace, fact)
        tx.put_key(actor.workspace, key, secret_hash(secret))
        fact = key_event.fact(api_key=key.id, principal=owner, role=role, actor=by)
        await tx.append(actor.workspace, actor.workspace, fact)
        return NewKey(key, secret)

    return await app.storage.write(actor.workspace, use)


async def list_keys(app: App, actor: Actor, page: Page) -> Slice[ApiKey]:
    """The workspace's keys, revoked ones too, without secrets. Administrators only."""
    check_admin(actor)
    return await page_of(
        app,
        actor,
        ("keys",),
        page,
        lambda tx, after, limit: tx.list_keys(actor.workspace, after, limit),
    )


async def revoke_key(app: App, actor: Actor, key: str, *, once: Once | None = None) -> None:
    """Ends a key at once and for good. Administrators only; NotFound for an unknown one."""
    check_admin(actor)
    stamp = app.stamp("key.revoked")

    async def use(tx: Transaction) -> None:
        found = await tx.get_key(actor.workspace, KeyId(key))
        if found is None:
            raise NotFound("no such API key")
        if await replay(tx, actor, actor.workspace, once) is not None:
            return
        keep(tx, actor, actor.workspace, once, stamp.at, key=found.id)
        if found.revoked_at is None:
            tx.revoke_key(actor.workspace, found.id, stamp.at)
            fact = stamp.fact(api_key=key, principal=found.principal, actor=actor_fields(actor))
            await tx.append(actor.workspace, actor.workspace, fact)

    await app.storage.write(actor.workspace, use)
