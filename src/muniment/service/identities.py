"""Principals, delegations, and the bare rows of other owners (R-40, R-43, wire.md)."""

from typing import TypeVar

from muniment.model.access import (
    Actor,
    Delegation,
    Principal,
    Subject,
    check_admin,
    check_delegator,
)
from muniment.model.errors import Conflict, Denied, Malformed, NotFound
from muniment.model.ids import DelegationId, PrincipalId, check_id
from muniment.model.owners import OWNER_ID_KINDS, SCOPE_KINDS, OwnerRow
from muniment.model.stores import NAME_CHARACTERS_MAX
from muniment.model.text import check_name
from muniment.service.app import App
from muniment.service.idempotency import Once, keep, replay
from muniment.service.paging import Page, Slice, page_of
from muniment.service.permissions import resolve_subject
from muniment.service.revisions import actor_fields
from muniment.storage.base import Transaction

T = TypeVar("T")

PRINCIPAL_KINDS = ("person", "service")
EXTERNAL_ID_CHARACTERS_MAX = 255


async def create_principal(
    app: App,
    actor: Actor,
    name: str,
    kind: str,
    *,
    external_id: str | None = None,
    once: Once | None = None,
) -> Principal:
    """A person or a service. Administrators only; Conflict where the external id is taken."""
    check_admin(actor)
    check_name(name, "name", characters_max=NAME_CHARACTERS_MAX)
    if kind not in PRINCIPAL_KINDS:
        raise Malformed(f"kind must be one of {', '.join(PRINCIPAL_KINDS)}", field="kind")
    if external_id is not None:
        check_name(external_id, "external_id", characters_max=EXTERNAL_ID_CHARACTERS_MAX)
    stamp = app.stamp("principal.created")
    made = Principal(PrincipalId(app.new_id("principal")), kind, name, external_id, stamp.at)

    async def use(tx: Transaction) -> Principal:
        # Read before the receipt: whoever made what is in the way may have been this very request.
        other = external_id and await tx.find_principal(actor.workspace, external_id)
        known = await replay(tx, actor, actor.workspace, once)
        if known is not None:
            found = await tx.get_principal(actor.workspace, PrincipalId(known["principal"]))
            return _there(found, "principal")
        if other:
            raise Conflict("external_id is taken", field="external_id", principal=other.id)
        keep(tx, actor, actor.workspace, once, stamp.at, principal=made.id)
        tx.put_principal(actor.workspace, made)
        fact = stamp.fact(principal=made.id, kind=kind, actor=actor_fields(actor))
        await tx.append(actor.workspace, actor.workspace, fact)
        return made

    return await app.storage.write(actor.workspace, use)


async def list_principals(app: App, actor: Actor, page: Page) -> Slice[Principal]:
    """The workspace's principals in order of id. Administrators only."""
    check_admin(actor)
    return await page_of(
        app,
        actor,
        ("principals",),
        page,
        lambda tx, after, limit: tx.list_principals(actor.workspace, after, limit),
    )


async def create_delegation(
    app: App, actor: Actor, principal: str, delegate: Subject, *, once: Once | None = None
) -> Delegation:
    """Lets `delegate` (a principal, or a key standing for its own) act as `principal`.

    Administrators and the principal itself; Conflict where it may already.
    """
    check_id("principal", principal, "principal")
    if delegate.kind not in ("principal", "api_key"):
        raise Malformed("delegate.kind must be principal or api_key", field="delegate.kind")
    check_delegator(actor, principal)
    stamp = app.stamp("delegation.created")
    identifier = DelegationId(app.new_id("delegation"))
    whom = PrincipalId(principal)

    async def use(tx: Transaction) -> Delegation:
        if await tx.get_principal(actor.workspace, whom) is None:
            raise NotFound("no such principal", field="principal")
        found = await resolve_subject(tx, actor, delegate)
        made = Delegation(identifier, whom, PrincipalId(found.id), stamp.at)
        # Read before the receipt: whoever made what is in the way may have been this very request.
        other = await tx.find_delegation(actor.workspace, whom, made.delegate)
        known = await replay(tx, actor, actor.workspace, once)
        if known is not None:
            before = DelegationId(known["delegation"])
            return _there(await tx.get_delegation(actor.workspace, before), "delegation")
        if other is not None:
            raise Conflict("this delegation exists", field="delegate")
        keep(tx, actor, actor.workspace, once, stamp.at, delegation=made.id)
        tx.put_delegation(actor.workspace, made)
        fact = stamp.fact(
            delegation=made.id,
            principal=whom,
            delegate=made.delegate,
            actor=actor_fields(actor),
        )
        await tx.append(actor.workspace, actor.workspace, fact)
        return made

    return await app.storage.write(actor.workspace, use)


async def list_delegations(app: App, actor: Actor, page: Page) -> Slice[Delegation]:
    """The workspace's delegations in order of id. Administrators only."""
    check_admin(actor)
    return await page_of(
        app,
        actor,
        ("delegations",),
        page,
        lambda tx, after, limit: tx.list_delegations(actor.workspace, after, limit),
    )


async def delete_delegation(
    app: App, actor: Actor, delegation: DelegationId, *, once: Once | None = None
) -> None:
    """Ends a delegation at once: administrators and its principal; NotFound for others."""
    stamp = app.stamp("delegation.deleted")

    async def use(tx: Transaction) -> None:
        found = await tx.get_delegation(actor.workspace, delegation)
        known = await replay(tx, actor, actor.workspace, once)
        absent = NotFound("no such delegation")
        if known is None and found is not None:
            known = {"principal": found.principal}
        elif known is None:
            raise absent
        else:
            found = None
        try:
            check_delegator(actor, known["principal"])
        except Denied:
            raise absent from None
        if found is None:
            return
        keep(tx, actor, actor.workspace, once, stamp.at, principal=found.principal)
        tx.delete_delegation(actor.workspace, delegation)
        fact = stamp.fact(
            delegation=delegation,
            principal=found.principal,
            delegate=found.delegate,
            actor=actor_fields(actor),
        )
        await tx.append(actor.workspace, actor.workspace, fact)

    await app.storage.write(actor.workspace, use)


async def create_owner(
    app: App,
    actor: Actor,
    kind: str,
    name: str,
    *,
    scope_kind: str | None = None,
    once: Once | None = None,
) -> OwnerRow:
    """Registers an agent, a Session or a surface scope, so that it can own stores.

    A Session may be made by anybody, for its own principal; the others by administrators.
    """
    if kind != "session":
        check_admin(actor)
    check_name(name, "name", characters_max=NAME_CHARACTERS_MAX)
    if kind == "surface_scope" and scope_kind not in SCOPE_KINDS:
        raise Malformed(f"kind must be one of {', '.join(SCOPE_KINDS)}", field="kind")
    stamp = app.stamp("owner.created")
    identifier = app.new_id(OWNER_ID_KINDS[kind])
    made = OwnerRow(kind, identifier, name, actor.principal, scope_kind, stamp.at)

    async def use(tx: Transaction) -> OwnerRow:
        known = await replay(tx, actor, actor.workspace, once)
        if known is not None:
            return _there(await tx.get_owner(actor.workspace, kind, known["owner"]), kind)
        keep(tx, actor, actor.workspace, once, stamp.at, owner=made.id)
        tx.put_owner(actor.workspace, made)
        fact = stamp.fact(kind=kind, owner=made.id, actor=actor_fields(actor))
        await tx.append(actor.workspace, actor.workspace, fact)
        return made

    return await app.storage.write(actor.workspace, use)


async def list_owners(app: App, actor: Actor, kind: str, page: Page) -> Slice[OwnerRow]:
    """The registered owners of a kind, in order of id. Administrators only."""
    check_admin(actor)
    return await page_of(
        app,
        actor,
        ("owners", kind),
        page,
        lambda tx, after, limit: tx.list_owners(actor.workspace, kind, after, limit),
    )


def _there(found: T | None, kind: str) -> T:
    """What an earlier request made; NotFound where it is gone (R-47)."""
    if found is None:
        raise NotFound(f"no such {kind.replace('_', ' ')}")
    return found
