"""Bare rows of the owner kinds that are not principals: agents, Sessions and surface scopes."""

from msgspec import Struct

from muniment.model.ids import PrincipalId

OWNER_ID_KINDS = {"agent_definition": "agent", "session": "session", "surface_scope": "scope"}
"""Owner kind to id kind (`ids.PREFIXES`)."""

SCOPE_KINDS = ("public", "private", "personal")


class OwnerRow(Struct, frozen=True):
    """An agent, a Session or a surface scope, as far as it can own a store.

    `principal` is the principal that made it; `scope_kind` is set for surface scopes only.
    """

    kind: str
    id: str
    name: str
    principal: PrincipalId
    scope_kind: str | None
    created_at: int
