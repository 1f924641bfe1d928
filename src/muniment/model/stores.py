"""MemoryStores: one boundary of ownership, history and visibility (C-021, C-040, R-13)."""

from msgspec import Struct

from muniment.model.ids import PoolId, PrincipalId, RevisionId, StoreId, WorkspaceId

OWNER_KINDS = ("workspace", "principal", "agent_definition", "session", "surface_scope")
SHARED_OWNERS = frozenset({"workspace", "agent_definition", "surface_scope"})
STATUSES = ("active", "archived", "deleting", "deleted")
WORKSPACE_STATUSES = ("active", "disabled")
POLICIES = ("direct", "proposal")
NAME_CHARACTERS_MAX = 255
DESCRIPTION_CHARACTERS_MAX = 1024
DOCUMENTS_MAX = 1_000_000


class Owner(Struct, frozen=True):
    """Who owns a store; `id` is None for the workspace itself."""

    kind: str
    id: str | None = None


class StoreRecord(Struct, frozen=True):
    """A store's own row. `status` is active, archived, deleting or deleted.

    `version` counts edits of the resource (C-206); content does not move it.
    """

    id: StoreId
    name: str
    description: str | None
    owner: Owner
    status: str
    version: int
    generation: int
    promotion_policy: str
    require_distinct_reviewer: bool
    pool: PoolId
    created_by: PrincipalId
    created_at: int
    updated_at: int
    archived_at: int | None = None
    deleted_at: int | None = None
    last_event_hash: bytes | None = None


class Ref(Struct, frozen=True):
    """A mutable name of one revision, with what that revision's tree holds (C-030, C-031)."""

    name: str
    revision: RevisionId
    tree: bytes
    documents: int
    total_bytes: int
    version: int
    updated_at: int


class StoreSummary(Struct, frozen=True):
    """A store as answers show it: its row, its canonical ref and whether it is a default."""

    store: StoreRecord
    canonical: Ref | None
    default: bool


class Workspace(Struct, frozen=True):
    """The tenancy boundary. `status` is active or disabled."""

    id: WorkspaceId
    name: str
    status: str
    zero_data_retention: bool
    retention_seconds: int | None
    created_at: int


def default_policy(owner_kind: str) -> str:
    """The promotion policy a store starts with (R-13)."""
    return "proposal" if owner_kind in SHARED_OWNERS else "direct"
