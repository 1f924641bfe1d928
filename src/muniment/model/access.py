"""Who acts, what assignments allow, and the one decision on a store.

Follows R-13, R-40 … R-44 and C-022 … C-024.
"""

from enum import Enum

from msgspec import Struct

from muniment.model.errors import Denied, NotFound, ReadOnly
from muniment.model.ids import (
    AssignmentId,
    DelegationId,
    KeyId,
    PrincipalId,
    SessionId,
    StoreId,
    WorkspaceId,
)
from muniment.model.stores import SHARED_OWNERS, Owner, StoreRecord

SUBJECT_KINDS = ("principal", "agent_definition", "session", "surface_scope", "workspace")
ORIGINS = ("minted", "granted")
"""Where an assignment comes from: made with its store for the owner, or by somebody."""


class Actor(Struct, frozen=True):
    """Who acts in one request: a principal, through a key, perhaps on a delegation.

    `admin` is the key's role; it is dropped when the key acts as another principal, and
    `delegate` is then the key's own one (R-43).
    """

    workspace: WorkspaceId
    principal: PrincipalId
    key: KeyId
    admin: bool = False
    session: SessionId | None = None
    delegate: PrincipalId | None = None


class Rights(Struct, frozen=True):
    """What the assignments that match an actor add up to."""

    read: bool = False
    write: bool = False

    @property
    def any(self) -> bool:
        """Whether at least one assignment matches."""
        return self.read or self.write


class Subject(Struct, frozen=True):
    """To whom an assignment speaks: one of SUBJECT_KINDS; `workspace` means everybody in it."""

    kind: str
    id: str


class Assignment(Struct, frozen=True):
    """A PermissionAssignment, the only source of access (C-024); `origin` is one of ORIGINS."""

    id: AssignmentId
    store: StoreId
    subject: Subject
    read: bool
    write: bool
    origin: str
    created_at: int


class Principal(Struct, frozen=True):
    """A person or a service that can hold assignments. Times are UTC microseconds everywhere."""

    id: PrincipalId
    kind: str
    name: str
    external_id: str | None
    created_at: int


class ApiKey(Struct, frozen=True):
    """A key of a principal. The secret is not kept; its SHA-256 is looked up."""

    id: KeyId
    name: str
    role: str
    principal: PrincipalId
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class Delegation(Struct, frozen=True):
    """`delegate` may act as `principal` (R-43)."""

    id: DelegationId
    principal: PrincipalId
    delegate: PrincipalId
    created_at: int


class Action(Enum):
    """What a caller wants of a store. To oversee is to see who else may use it."""

    INSPECT = "inspect"
    READ = "read"
    WRITE = "write"
    ADMINISTER = "administer"
    GRANT = "grant"
    OVERSEE = "oversee"


def check(actor: Actor, store: StoreRecord | None, rights: Rights, action: Action) -> StoreRecord:
    """The store, where the action is allowed.

    NotFound if absent, going away or invisible (C-170, R-44); ReadOnly for a write that the
    promotion policy or the archive forbids to everybody (R-13, R-73); Denied otherwise.
    """
    if store is None or store.status in ("deleting", "deleted"):
        raise NotFound("no such memory store")
    if not (rights.any or actor.admin):
        raise NotFound("no such memory store")
    if action is Action.WRITE:
        if store.status == "archived":
            raise ReadOnly("the store is archived: it can be read but not written")
        if store.promotion_policy == "proposal":
            raise ReadOnly(
                "this store moves only by approved proposals: open one instead of writing directly"
            )
        if not rights.write:
            raise Denied("writing here needs a write assignment on the store", permission="write")
    elif action is Action.READ:
        if not rights.read:
            raise Denied("reading here needs a read assignment on the store", permission="read")
    elif action is not Action.INSPECT and not may_administer(actor, store, rights):
        raise Denied("only an administrator or the owning principal may do this")
    return store


def may_administer(actor: Actor, store: StoreRecord, rights: Rights) -> bool:
    """Administrators may; so may the owning principal while it holds any assignment (R-40)."""
    owns = store.owner.kind == "principal" and store.owner.id == actor.principal
    return actor.admin or (owns and rights.any)


def speaks_for(actor: Actor, subject: Subject) -> bool:
    """Whether the subject is the actor itself, its key, or everybody."""
    return subject.id in (actor.principal, actor.key, actor.workspace)


def check_admin(actor: Actor) -> None:
    """Denied unless the key has the admin role (R-41)."""
    if not actor.admin:
        raise Denied("this needs an administrator key")


def check_delegator(actor: Actor, principal: str) -> None:
    """Denied unless an administrator, or the principal itself and not somebody acting as it."""
    own = principal == actor.principal and actor.delegate is None
    if not (actor.admin or own):
        raise Denied("only an administrator or the principal itself delegates")


def check_maker(actor: Actor, owner: Owner, *, grants: bool) -> None:
    """Denied where the actor may not make a store of this kind of owner, or grant on it (R-06)."""
    if owner.kind in SHARED_OWNERS and not actor.admin:
        raise Denied("only administrators make shared stores")
    if grants and not actor.admin and owner != Owner("principal", actor.principal):
        raise Denied("only an administrator or the owning principal grants access")


def check_owner(
    actor: Actor, owner: Owner, *, delegated: bool, session_of: PrincipalId | None
) -> None:
    """Denied unless the store is the actor's own, or it may act for the owner (R-43).

    `delegated` tells whether the owning principal has delegated to the actor, `session_of` whose
    Session the owning Session is, None where there is none.
    """
    if actor.admin or owner.id == actor.principal:
        return
    if owner.kind == "principal" and not delegated:
        raise Denied("a store for another principal needs a delegation from it")
    if owner.kind == "session" and session_of != actor.principal:
        raise Denied("only the Session's principal makes stores for it")


def mount_access(store: StoreRecord, rights: Rights, requested: str) -> str:
    """What a mount outside any place would get: denied, read_only or read_write (C-139 … C-144)."""
    if not rights.read:
        return "denied"
    capped = store.owner.kind in SHARED_OWNERS or store.status != "active"
    return (
        "read_write" if requested == "read_write" and rights.write and not capped else "read_only"
    )
