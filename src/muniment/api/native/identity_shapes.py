"""What the native API reads and writes of keys, principals, delegations and other owners."""

from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from muniment.api.native import fields, shapes
from muniment.model.access import ApiKey, Delegation, Principal
from muniment.model.owners import OwnerRow


class KeyCreate(shapes.Body, kw_only=True):
    """What a key is made from. `expires_at` lies in the future."""

    name: fields.NameText
    role: fields.RoleText = "member"
    principal: fields.PrincipalIdText | None = None
    expires_at: fields.TimeText | None = None


class KeyShape(Struct, omit_defaults=True):
    """An API key; `secret` appears once, when it is made."""

    id: fields.KeyIdText
    name: str
    role: fields.RoleText
    principal: fields.PrincipalIdText
    created_at: fields.TimeText
    expires_at: fields.TimeText | None
    revoked_at: fields.TimeText | None
    secret: str | UnsetType = UNSET


class KeyPage(Struct):
    """A page of keys."""

    items: list[KeyShape]
    next_page: fields.CursorText | None


class PrincipalCreate(shapes.Body, kw_only=True):
    """What a principal is made from."""

    name: fields.NameText
    kind: fields.PrincipalKindText = "service"
    external_id: fields.ExternalIdText | None = None


class PrincipalShape(Struct):
    """A person or a service."""

    id: fields.PrincipalIdText
    kind: fields.PrincipalKindText
    name: str
    external_id: str | None
    created_at: fields.TimeText


class PrincipalPage(Struct):
    """A page of principals."""

    items: list[PrincipalShape]
    next_page: fields.CursorText | None


class DelegationCreate(shapes.Body):
    """Who may act as whom."""

    principal: fields.PrincipalIdText
    delegate: Annotated[shapes.SubjectShape, fields.DELEGATES]


class DelegationShape(Struct):
    """A delegation."""

    id: fields.DelegationIdText
    principal: fields.PrincipalIdText
    delegate: Annotated[shapes.SubjectShape, fields.PRINCIPALS]
    created_at: fields.TimeText


class DelegationPage(Struct):
    """A page of delegations."""

    items: list[DelegationShape]
    next_page: fields.CursorText | None


class OwnerCreate(shapes.Body):
    """An agent or a Session, as an owner of stores."""

    name: fields.NameText


class ScopeCreate(shapes.Body):
    """A surface scope: a place that can own stores."""

    name: fields.NameText
    kind: fields.ScopeKindText


class OwnerShape(Struct, omit_defaults=True):
    """An agent, a Session or a surface scope; only the last has a `kind`."""

    id: str
    name: str
    principal: fields.PrincipalIdText
    created_at: fields.TimeText
    kind: fields.ScopeKindText | UnsetType = UNSET


class OwnerPage(Struct):
    """A page of owners of one kind."""

    items: list[OwnerShape]
    next_page: fields.CursorText | None


class WorkspaceName(Struct):
    """A workspace by id and name."""

    id: fields.WorkspaceIdText
    name: str


class KeyName(Struct):
    """A key by id, name and the role that it has in this request."""

    id: fields.KeyIdText
    name: str
    role: fields.RoleText


class WhoAmI(Struct):
    """Who the request comes from."""

    workspace: WorkspaceName
    api_key: KeyName
    principal: PrincipalShape
    session: fields.SessionIdText | None


def key_shape(key: ApiKey, secret: str | UnsetType = UNSET) -> KeyShape:
    """A key, with its secret when it is made."""
    return KeyShape(
        key.id,
        key.name,
        key.role,
        key.principal,
        shapes.time_text(key.created_at),
        shapes.optional_time(key.expires_at),
        shapes.optional_time(key.revoked_at),
        secret,
    )


def principal_shape(principal: Principal) -> PrincipalShape:
    """A principal."""
    return PrincipalShape(
        principal.id,
        principal.kind,
        principal.name,
        principal.external_id,
        shapes.time_text(principal.created_at),
    )


def delegation_shape(delegation: Delegation) -> DelegationShape:
    """A delegation."""
    return DelegationShape(
        delegation.id,
        delegation.principal,
        shapes.tagged("principal", delegation.delegate),
        shapes.time_text(delegation.created_at),
    )


def owner_shape(owner: OwnerRow) -> OwnerShape:
    """An agent, a Session or a surface scope."""
    kind = UNSET if owner.scope_kind is None else owner.scope_kind
    return OwnerShape(
        owner.id, owner.name, owner.principal, shapes.time_text(owner.created_at), kind
    )
