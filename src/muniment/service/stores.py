"""MemoryStores: create, get, list, update, archive (C-021 … C-024, C-040 … C-043, R-06, R-13)."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Struct, UnsetType, structs

from muniment.model import tree
from muniment.model.access import (
    Action,
    Actor,
    Assignment,
    Rights,
    Subject,
    check_admin,
    check_maker,
    check_owner,
    mount_access,
    speaks_for,
)
from muniment.model.errors import Conflict, Malformed, ReadOnly
from muniment.model.ids import (
    AssignmentId,
    PoolId,
    PrincipalId,
    RevisionId,
    StoreId,
    check_id,
)
from muniment.model.revisions import CANONICAL, Revision, pack_actor
from muniment.model.stores import (
    DESCRIPTION_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    OWNER_KINDS,
    POLICIES,
    SHARED_OWNERS,
    Owner,
    Ref,
    StoreRecord,
    StoreSummary,
    default_policy,
)
from muniment.model.text import check_name, check_text
from muniment.service import guard
from muniment.service.app import App
from muniment.service.idempotency import Once, keep, replay
from muniment.service.paging import PAGE_ITEMS_MAX, Page, Slice, page_of
from muniment.service.permissions import (
    Grant,
    assignment_fields,
    check_grant,
    resolve_subject,
    subject_exists,
)
from muniment.service.revisions import actor_fields
from muniment.storage.base import Transaction

GRANTS_MAX = 50


class NewStore(Struct, frozen=True):
    """What a store is made from; `owner` None is the caller's principal."""

    name: str
    description: str | None = None
    owner: Owner | None = None
    promotion_policy: str | None = None
    require_distinct_reviewer: bool = False
    default: bool = False
    grants: Sequence[Grant] = ()


class StorePatch(Struct, frozen=True):
    """The fields to change; UNSET leaves one as it is."""

    name: str | UnsetType = UNSET
    description: str | None | UnsetType = UNSET
    promotion_policy: str | UnsetType = UNSET
    require_distinct_reviewer: bool | UnsetType = UNSET
    default: bool | UnsetType = UNSET


class Access(Struct, frozen=True):
    """Why a subject may or may not: rights, what a mount would get, and which assignments spoke."""

    read: bool
    write: bool
    mount: dict[str, str]
    assignments: list[AssignmentId]
    reasons: list[str]


async def create_store(
    app: App, actor: Actor, new: NewStore, *, once: Once | None = None
) -> StoreSummary:
    """A store with its empty initial revision, and its owner's assignment where it has one.

    A workspace's store mints none (C-042). Malformed for a bad field, NotFound for an unknown
    owner or subject, Denied where the caller may not make this store, policy or grant.
    """
    owner = new.owner or Owner("principal", actor.principal)
    _check_new(actor, new, owner)
    minted = [] if owner.id is None else [Grant(Subject(owner.kind, owner.id), True, True)]
    grants = [(grant, "minted") for grant in minted] + [(g, "granted") for g in new.grants]
    created, *stamps = app.stamps("memory.store_created", *["assignment.created"] * len(grants))
    record, revision, ref = _first_state(app, actor, new, owner, created.at)
    ids = [AssignmentId(app.new_id("assignment")) for _ in grants]

    async def use(tx: Transaction) -> StoreSummary:
        await _check_owner(tx, actor, owner)
        known = await replay(tx, actor, actor.workspace, once)
        if known is not None:
            store, _ = await guard.open_store(tx, actor, StoreId(known["store"]), Action.INSPECT)
            return await summarize(tx, actor, store)
        assignments = []
        for (grant, origin), identifier in zip(grants, ids, strict=True):
            subject = await resolve_subject(tx, actor, grant.subject)
            assignments.append(
                Assignment(
                    identifier,
                    record.id,
                    subject,
                    grant.read,
                    grant.write,
                    origin,
                    record.created_at,
                )
            )
        tx.put_store(actor.workspace, record)
        tx.put_revision(actor.workspace, record.id, revision)
        tx.put_ref(actor.workspace, record.id, ref)
        if new.default and owner.id is not None:
            tx.put_default_store(actor.workspace, PrincipalId(owner.id), record.id)
        for assignment in assignments:
            tx.put_assignment(actor.workspace, assignment)
        keep(tx, actor, actor.workspace, once, created.at, store=record.id)
        fact = created.fact(
            store=record.id,
            owner=owner_fields(owner),
            promotion_policy=record.promotion_policy,
            revision=revision.id,
            tree_hash=revision.tree.hex(),
            actor=actor_fields(actor),
        )
        await tx.append(actor.workspace, record.id, fact)
        for assignment, stamp in zip(assignments, stamps, strict=True):
            fact = stamp.fact(**assignment_fields(assignment), actor=actor_fields(actor))
            await tx.append(actor.workspace, actor.workspace, fact)
        return StoreSummary(record, ref, new.default)

    return await app.storage.write(None, use)


async def get_store(app: App, actor: Actor, store: StoreId) -> StoreSummary:
    """The store's metadata: for who holds an assignment on it, and for administrators (R-41)."""

    async def use(tx: Transaction) -> StoreSummary:
        record, _ = await guard.open_store(tx, actor, store, Action.INSPECT)
        return await summarize(tx, actor, record)

    return await app.storage.read(use)


async def list_stores(
    app: App,
    actor: Actor,
    page: Page,
    *,
    name: str | None = None,
    include_archived: bool = False,
    include_deleted: bool = False,
) -> Slice[StoreSummary]:
    """The stores the actor may see, in order of id; tombstones for administrators only."""
    if include_deleted:
        check_admin(actor)
    statuses = ["active"]
    statuses += ["archived"] if include_archived else []
    statuses += ["deleting", "deleted"] if include_deleted else []
    readers = None if actor.admin else guard.subjects_of(actor)

    async def fetch(tx: Transaction, after: StoreId | None, limit: int) -> list[StoreSummary]:
        return await tx.list_stores(
            actor.workspace, after, limit, readers=readers, statuses=statuses, name=name
        )

    pins = ("stores", actor.principal, actor.admin, name, *statuses)
    return await page_of(app, actor, pins, page, fetch)


async def update_store(
    app: App,
    actor: Actor,
    store: StoreId,
    expected_version: int,
    patch: StorePatch,
    *,
    once: Once | None = None,
) -> StoreSummary:
    """Changes the store's own fields, compare-and-swap on its version (C-206).

    Conflict for another version; Denied unless an administrator or the owning principal, and for
    a new promotion policy unless an administrator; ReadOnly on an archived store.
    """
    _check_patch(patch)
    stamp = app.stamp("memory.store_updated")

    async def use(tx: Transaction) -> StoreSummary:
        record, _ = await guard.open_store(tx, actor, store, Action.ADMINISTER)
        if patch.promotion_policy is not UNSET:
            check_admin(actor)
        if await replay(tx, actor, store, once) is not None:
            return await summarize(tx, actor, record)
        if record.status == "archived":
            raise ReadOnly("the store is archived")
        check_version(record, expected_version)
        fields = {
            name: value
            for name, value in msgspec.structs.asdict(patch).items()
            if value is not UNSET and name != "default"
        }
        changed = structs.replace(record, version=record.version + 1, updated_at=stamp.at, **fields)
        names = sorted(fields)
        summary = await summarize(tx, actor, changed)
        if patch.default is not UNSET:
            _set_default(tx, actor, summary, patch.default)
            summary = structs.replace(summary, default=patch.default)
            names.append("default")
        keep(tx, actor, store, once, stamp.at, store=store)
        tx.put_store(actor.workspace, changed)
        fact = stamp.fact(
            store=store, version=changed.version, fields=names, actor=actor_fields(actor)
        )
        await tx.append(actor.workspace, store, fact)
        return summary

    return await app.storage.write(store, use)


async def archive_store(
    app: App, actor: Actor, store: StoreId, expected_version: int, *, once: Once | None = None
) -> StoreSummary:
    """Makes the store read-only for good; one that is archived already stays as it is."""
    stamp = app.stamp("memory.store_archived")

    async def use(tx: Transaction) -> StoreSummary:
        record, _ = await guard.open_store(tx, actor, store, Action.ADMINISTER)
        if await replay(tx, actor, store, once) is not None:
            return await summarize(tx, actor, record)
        check_version(record, expected_version)
        keep(tx, actor, store, once, stamp.at, store=store)
        if record.status == "archived":
            return await summarize(tx, actor, record)
        changed = structs.replace(
            record,
            status="archived",
            version=record.version + 1,
            updated_at=stamp.at,
            archived_at=stamp.at,
        )
        summary = await summarize(tx, actor, changed)
        tx.put_store(actor.workspace, changed)
        fact = stamp.fact(store=store, version=changed.version, actor=actor_fields(actor))
        await tx.append(actor.workspace, store, fact)
        return summary

    return await app.storage.write(store, use)


async def explain_access(
    app: App, actor: Actor, store: StoreId, subject: Subject | None = None
) -> Access:
    """What a subject may do with the store, and why (R-44); the caller's own access by default.

    Denied where a member asks about another subject and does not administer the store.
    """
    asked = subject or Subject("principal", actor.principal)

    async def use(tx: Transaction) -> Access:
        action = Action.INSPECT if speaks_for(actor, asked) else Action.OVERSEE
        record, _ = await guard.open_store(tx, actor, store, action)
        about = await resolve_subject(tx, actor, asked)
        everybody = Subject("workspace", actor.workspace)
        found = await tx.get_store(actor.workspace, store, (about.id, everybody.id))
        matching = []
        for one in dict.fromkeys((about, everybody)):
            matching += await tx.list_assignments(
                actor.workspace, None, PAGE_ITEMS_MAX, store=store, subject=one
            )
        return _explained(record, Rights() if found is None else found[1], matching)

    return await app.storage.read(use)


def check_version(record: StoreRecord, expected: int) -> None:
    """Conflict, with the current one, unless the store has this version."""
    if record.version != expected:
        raise Conflict(
            f"the store has version {record.version}, not {expected}",
            current_version=record.version,
        )


async def summarize(tx: Transaction, actor: Actor, record: StoreRecord) -> StoreSummary:
    """The store as answers show it."""
    ref = await tx.get_ref(actor.workspace, record.id, CANONICAL)
    default = False
    if record.owner.kind == "principal" and record.owner.id is not None:
        found = await tx.get_default_store(actor.workspace, PrincipalId(record.owner.id))
        default = found == record.id
    return StoreSummary(record, ref, default)


def owner_fields(owner: Owner) -> dict[str, object]:
    """The owner as a tagged union: `{kind, <kind>: id}`."""
    return {"kind": owner.kind} if owner.id is None else {"kind": owner.kind, owner.kind: owner.id}


def _check_new(actor: Actor, new: NewStore, owner: Owner) -> None:
    _check_patch(
        StorePatch(
            name=new.name,
            description=new.description,
            promotion_policy=UNSET if new.promotion_policy is None else new.promotion_policy,
        )
    )
    if owner.kind not in OWNER_KINDS:
        raise Malformed(f"owner.kind must be one of {', '.join(OWNER_KINDS)}", field="owner.kind")
    check_maker(actor, owner, grants=bool(new.grants))
    if new.default and owner.kind != "principal":
        raise Malformed("default is for stores owned by a principal", field="default")
    if len(new.grants) > GRANTS_MAX:
        raise Malformed(f"grants holds at most {GRANTS_MAX} items", field="grants")
    for grant in new.grants:
        check_grant(grant)


def _check_patch(patch: StorePatch) -> None:
    if patch.name is not UNSET:
        check_name(patch.name, "name", characters_max=NAME_CHARACTERS_MAX)
    if patch.description is not UNSET and patch.description is not None:
        check_text(patch.description, "description", characters_max=DESCRIPTION_CHARACTERS_MAX)
    if patch.promotion_policy is not UNSET and patch.promotion_policy not in POLICIES:
        raise Malformed(
            f"promotion_policy must be one of {', '.join(POLICIES)}", field="promotion_policy"
        )


async def _check_owner(tx: Transaction, actor: Actor, owner: Owner) -> None:
    """NotFound for an owner that is not there, Denied where the caller may not make it a store.

    Who may not hears the same of an owner that is there and of one that is not.
    """
    if owner.id is None:
        return
    delegated, session_of = False, None
    if owner.kind == "principal":
        principal = PrincipalId(check_id("principal", owner.id, "owner.principal"))
        found = await tx.find_delegation(actor.workspace, principal, actor.principal)
        delegated = found is not None
    elif owner.kind == "session":
        check_id("session", owner.id, "owner.session")
        session = await tx.get_owner(actor.workspace, "session", owner.id)
        session_of = None if session is None else session.principal
    check_owner(actor, owner, delegated=delegated, session_of=session_of)
    await subject_exists(tx, actor, Subject(owner.kind, owner.id), field="owner")


def _first_state(
    app: App, actor: Actor, new: NewStore, owner: Owner, at: int
) -> tuple[StoreRecord, Revision, Ref]:
    """The rows of a store that holds nothing yet."""
    record = StoreRecord(
        id=StoreId(app.new_id("store")),
        name=new.name,
        description=new.description,
        owner=owner,
        status="active",
        version=1,
        generation=1,
        promotion_policy=new.promotion_policy or default_policy(owner.kind),
        require_distinct_reviewer=new.require_distinct_reviewer,
        pool=PoolId(app.new_id("pool")),
        created_by=actor.principal,
        created_at=at,
        updated_at=at,
    )
    revision = Revision(
        RevisionId(app.new_id("revision")),
        None,
        tree.EMPTY_TREE,
        0,
        0,
        "initial",
        pack_actor(actor),
        at,
    )
    return record, revision, Ref(CANONICAL, revision.id, tree.EMPTY_TREE, 0, 0, 1, at)


def _set_default(tx: Transaction, actor: Actor, summary: StoreSummary, default: bool) -> None:
    owner = summary.store.owner
    if owner.kind != "principal" or owner.id is None:
        raise Malformed("default is for stores owned by a principal", field="default")
    if default:
        tx.put_default_store(actor.workspace, PrincipalId(owner.id), summary.store.id)
    elif summary.default:
        tx.put_default_store(actor.workspace, PrincipalId(owner.id), None)


def _explained(record: StoreRecord, rights: Rights, matching: list[Assignment]) -> Access:
    reasons = [] if rights.read else ["permission: no read assignment"]
    if record.status == "archived":
        reasons.append("archived: nothing is written to an archived store")
    elif record.promotion_policy == "proposal":
        reasons.append("promotion_policy: canonical moves only by approved proposals")
    elif not rights.write:
        reasons.append("permission: no write assignment")
    if record.owner.kind in SHARED_OWNERS:
        reasons.append("owner_policy: a shared store never mounts read_write")
    mounts = {
        wanted: mount_access(record, rights, wanted) for wanted in ("read_only", "read_write")
    }
    ids = sorted(one.id for one in matching)
    return Access(rights.read, rights.write, mounts, ids, reasons)
