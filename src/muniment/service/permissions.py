"""PermissionAssignments: who may grant, and to whom (C-024, R-40, wire.md Administration)."""

from collections.abc import Mapping

from msgspec import Struct

from muniment.model.access import (
    SUBJECT_KINDS,
    Action,
    Actor,
    Assignment,
    Subject,
    check_admin,
    speaks_for,
)
from muniment.model.errors import Malformed, NotFound
from muniment.model.ids import AssignmentId, KeyId, PrincipalId, StoreId, check_id
from muniment.model.owners import OWNER_ID_KINDS
from muniment.service import guard
from muniment.service.app import App
from muniment.service.idempotency import Once, keep, replay
from muniment.service.paging import Page, Slice, page_of
from muniment.service.revisions import actor_fields
from muniment.storage.base import Transaction


class Grant(Struct, frozen=True):
    """Rights for a subject. A subject of kind `api_key` stands for that key's principal."""

    subject: Subject
    read: bool
    write: bool


def check_grant(grant: Grant) -> None:
    """Malformed unless the grant names a known kind of subject and at least one right."""
    kinds = (*SUBJECT_KINDS, "api_key")
    if grant.subject.kind not in kinds:
        raise Malformed(f"subject.kind must be one of {', '.join(kinds)}", field="subject.kind")
    if not (grant.read or grant.write):
        raise Malformed("permissions must hold read, write or both", field="permissions")


async def resolve_subject(tx: Transaction, actor: Actor, subject: Subject) -> Subject:
    """The subject an assignment is made for. NotFound where there is none of that id."""
    if subject.kind == "api_key":
        key = await tx.get_key(
            actor.workspace, KeyId(check_id("key", subject.id, "subject.api_key"))
        )
        if key is None:
            raise NotFound("no such API key", field="subject")
        return Subject("principal", key.principal)
    await subject_exists(tx, actor, subject, field="subject")
    return subject


async def subject_exists(tx: Transaction, actor: Actor, subject: Subject, *, field: str) -> None:
    """NotFound, naming the field, unless the subject is one of this workspace."""
    kind, identifier = subject.kind, subject.id
    if kind == "workspace":
        there = identifier == actor.workspace
    elif kind == "principal":
        check_id("principal", identifier, f"{field}.principal")
        principal = PrincipalId(identifier)
        there = await tx.get_principal(actor.workspace, principal) is not None
    else:
        check_id(OWNER_ID_KINDS[kind], identifier, f"{field}.{kind}")
        there = await tx.get_owner(actor.workspace, kind, identifier) is not None
    if not there:
        raise NotFound(f"no such {kind.replace('_', ' ')}", field=field)


async def create_assignment(
    app: App, actor: Actor, store: StoreId, grant: Grant, *, once: Once | None = None
) -> Assignment:
    """Grants a subject rights on a store: administrators and the owning principal (R-40)."""
    check_grant(grant)
    stamp = app.stamp("assignment.created")
    identifier = AssignmentId(app.new_id("assignment"))

    async def use(tx: Transaction) -> Assignment:
        await guard.open_store(tx, actor, store, Action.GRANT)
        subject = await resolve_subject(tx, actor, grant.subject)
        known = await replay(tx, actor, store, once)
        if known is not None:
            found = await tx.get_assignment(actor.workspace, AssignmentId(known["assignment"]))
            if found is None:
                raise NotFound("no such permission assignment")
            return found
        keep(tx, actor, store, once, stamp.at, assignment=identifier)
        made = Assignment(identifier, store, subject, grant.read, grant.write, "granted", stamp.at)
        tx.put_assignment(actor.workspace, made)
        fact = stamp.fact(**assignment_fields(made), actor=actor_fields(actor))
        await tx.append(actor.workspace, actor.workspace, fact)
        return made

    return await app.storage.write(None, use)


async def list_assignments(
    app: App,
    actor: Actor,
    page: Page,
    *,
    store: StoreId | None = None,
    subject: Subject | None = None,
) -> Slice[Assignment]:
    """Assignments by store, by subject or both, in order of id.

    Administrators see all; others those of a store they administer, or their own.
    """
    own = subject is not None and speaks_for(actor, subject)

    async def admit(tx: Transaction) -> None:
        if store is not None and not own:
            await guard.open_store(tx, actor, store, Action.OVERSEE)
        elif not own:
            check_admin(actor)

    async def fetch(tx: Transaction, after: AssignmentId | None, limit: int) -> list[Assignment]:
        about = None if subject is None else await resolve_subject(tx, actor, subject)
        return await tx.list_assignments(actor.workspace, after, limit, store=store, subject=about)

    pins = ("assignments", store, None if subject is None else subject.id)
    return await page_of(app, actor, pins, page, fetch, admit=admit)


async def delete_assignment(
    app: App, actor: Actor, assignment: AssignmentId, *, once: Once | None = None
) -> None:
    """Ends an assignment at once. NotFound where it, or its store, is not visible."""
    stamp = app.stamp("assignment.deleted")

    async def use(tx: Transaction) -> None:
        absent = NotFound("no such permission assignment")
        found = await tx.get_assignment(actor.workspace, assignment)
        known = await replay(tx, actor, actor.workspace, once)
        place = _place(found, known)
        if place is None:
            raise absent
        try:
            await guard.open_store(tx, actor, place, Action.GRANT)
        except NotFound:
            raise absent from None
        # Under the store's lock: what another transaction ended meanwhile is seen here.
        found = await tx.get_assignment(actor.workspace, assignment)
        if await replay(tx, actor, actor.workspace, once) is not None:
            return
        if found is None:
            raise absent
        keep(tx, actor, actor.workspace, once, stamp.at, store=found.store)
        tx.delete_assignment(actor.workspace, assignment)
        fact = stamp.fact(**assignment_fields(found), actor=actor_fields(actor))
        await tx.append(actor.workspace, actor.workspace, fact)

    await app.storage.write(None, use)


def _place(found: Assignment | None, known: Mapping[str, str] | None) -> StoreId | None:
    """The store of an assignment, also of one that an earlier request has ended."""
    if found is not None:
        return found.store
    return None if known is None else StoreId(known["store"])


def assignment_fields(assignment: Assignment) -> dict[str, object]:
    """The assignment as events say it."""
    subject = assignment.subject
    return {
        "assignment": assignment.id,
        "store": assignment.store,
        "subject": {"kind": subject.kind, subject.kind: subject.id},
        "read": assignment.read,
        "write": assignment.write,
        "origin": assignment.origin,
    }
