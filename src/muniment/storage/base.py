"""The storage port: what every storage promises, method by method (R-80, R-81).

Reads are coroutines. Writes are plain methods: they take effect inside the transaction at once
for its own later reads, may be buffered or pipelined, and what goes wrong with them surfaces when
the transaction ends. Use cases decide first and write afterwards.

A transaction may serve several uses of one group (`Storage.write`), so everything it reads under
the group's lock includes what earlier uses of the group wrote.

Every method is about one workspace, named first; nothing of another one can be seen or touched.
Lists are ordered by the bytes of their key (ids, paths) and never by a collation.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from muniment.model.access import (
    ApiKey,
    Assignment,
    Delegation,
    Principal,
    Rights,
    Subject,
)
from muniment.model.documents import Document, DocumentItem
from muniment.model.events import Event, Fact, Head
from muniment.model.ids import (
    AssignmentId,
    ChangeId,
    DelegationId,
    JobId,
    KeyId,
    PoolId,
    PrincipalId,
    RevisionId,
    StoreId,
    WorkspaceId,
)
from muniment.model.jobs import Job
from muniment.model.owners import OwnerRow
from muniment.model.receipts import Receipt
from muniment.model.revisions import Change, Revision
from muniment.model.stores import Owner, Ref, StoreRecord, StoreSummary, Workspace

T = TypeVar("T")

SUBJECTS_MAX = 6
"""The most subject ids that are asked about at once; there is at least one."""

KINDS_ASKED_MAX = 8
"""The most kinds of jobs that are asked about at once; there is at least one."""

LIST_MAX = 201
"""The most rows a list method is asked for: the largest page and one more."""


Key = tuple[Any, ...]
"""Where a row stands in its kind's order: bytes and numbers."""


class Found(Struct, frozen=True):
    """A row as an inspection finds it: its record, or what is wrong with it."""

    key: Key
    record: Any = None
    damage: str | None = None


class Stray(Struct, frozen=True):
    """Rows of a table that belong to nothing that is there, and the bytes that say to what."""

    table: str
    owner: bytes
    rows: int


class Lost(Exception):
    """A conditional write found another state than the one this transaction read.

    The storage rolls back and runs the use again; it never reaches a caller.
    """


class Objects(Protocol):
    """Immutable bytes by hash, keyed (workspace, pool, hash) (R-12). Putting one twice is fine."""

    def put_blob(self, workspace: WorkspaceId, pool: PoolId, blob: bytes, content: bytes) -> None:
        """Keeps `content`, whose SHA-256 is `blob`; sealed where the storage seals (R-82)."""

    async def get_blob(self, workspace: WorkspaceId, pool: PoolId, blob: bytes) -> bytes | None:
        """The content, its hash checked; None if absent or erased."""

    def put_node(self, workspace: WorkspaceId, pool: PoolId, node: bytes, body: bytes) -> None:
        """Keeps a tree node, whose SHA-256 is `node`."""

    async def get_node(self, workspace: WorkspaceId, pool: PoolId, node: bytes) -> bytes:
        """The node's bytes, its hash checked. A node that a tree names is always there."""


class Workspaces(Protocol):
    """Tenancy."""

    def put_workspace(self, workspace: Workspace) -> None:
        """Makes the workspace; a no-op where its id exists."""

    async def get_workspace(self, workspace: WorkspaceId) -> Workspace | None:
        """The workspace, or None."""

    def set_workspace_status(self, workspace: WorkspaceId, status: str) -> None:
        """Sets the workspace's status, one of WORKSPACE_STATUSES."""

    async def list_workspaces(self) -> list[WorkspaceId]:
        """Every workspace's id, in order: for the operator only."""


class Identities(Protocol):
    """Principals, keys, delegations, and the bare rows of other owners."""

    def put_principal(self, workspace: WorkspaceId, principal: Principal) -> None:
        """Makes the principal; a no-op where its id exists. Its external id must be free."""

    async def get_principal(
        self, workspace: WorkspaceId, principal: PrincipalId
    ) -> Principal | None:
        """The principal, or None."""

    async def find_principal(self, workspace: WorkspaceId, external_id: str) -> Principal | None:
        """The principal with that external id, or None."""

    async def list_principals(
        self, workspace: WorkspaceId, after: PrincipalId | None, limit: int
    ) -> list[Principal]:
        """At most `limit` principals with ids above `after`, in order."""

    def put_key(self, workspace: WorkspaceId, key: ApiKey, secret_hash: bytes) -> None:
        """Makes the key; `secret_hash` is the SHA-256 of its secret and unused so far."""

    async def get_key(self, workspace: WorkspaceId, key: KeyId) -> ApiKey | None:
        """The key, revoked or not, or None."""

    async def find_key(
        self, workspace: WorkspaceId, secret_hash: bytes
    ) -> tuple[Workspace, ApiKey] | None:
        """The key with that secret, revoked or not, and its workspace; None if unknown."""

    async def list_keys(
        self, workspace: WorkspaceId, after: KeyId | None, limit: int
    ) -> list[ApiKey]:
        """At most `limit` keys with ids above `after`, in order, revoked ones too."""

    def revoke_key(self, workspace: WorkspaceId, key: KeyId, at: int) -> None:
        """Marks the key revoked; a no-op where it is."""

    def put_delegation(self, workspace: WorkspaceId, delegation: Delegation) -> None:
        """Makes the delegation; the pair (principal, delegate) is free."""

    async def get_delegation(
        self, workspace: WorkspaceId, delegation: DelegationId
    ) -> Delegation | None:
        """The delegation, or None."""

    async def find_delegation(
        self, workspace: WorkspaceId, principal: PrincipalId, delegate: PrincipalId
    ) -> Delegation | None:
        """The delegation that lets `delegate` act as `principal`, or None."""

    async def list_delegations(
        self, workspace: WorkspaceId, after: DelegationId | None, limit: int
    ) -> list[Delegation]:
        """At most `limit` delegations with ids above `after`, in order."""

    def delete_delegation(self, workspace: WorkspaceId, delegation: DelegationId) -> None:
        """Removes it; a no-op where it is absent."""

    def put_owner(self, workspace: WorkspaceId, owner: OwnerRow) -> None:
        """Registers an agent, a Session or a surface scope; its id is free."""

    async def get_owner(self, workspace: WorkspaceId, kind: str, owner: str) -> OwnerRow | None:
        """The row of that kind (`agent_definition`, `session`, `surface_scope`), or None."""

    async def list_owners(
        self, workspace: WorkspaceId, kind: str, after: str | None, limit: int
    ) -> list[OwnerRow]:
        """At most `limit` rows of the kind with ids above `after`, in order."""


class Assignments(Protocol):
    """PermissionAssignments, the only source of access."""

    def put_assignment(self, workspace: WorkspaceId, assignment: Assignment) -> None:
        """Makes the assignment; its id is free."""

    async def get_assignment(
        self, workspace: WorkspaceId, assignment: AssignmentId
    ) -> Assignment | None:
        """The assignment, or None."""

    async def list_assignments(
        self,
        workspace: WorkspaceId,
        after: AssignmentId | None,
        limit: int,
        *,
        store: StoreId | None = None,
        subject: Subject | None = None,
    ) -> list[Assignment]:
        """At most `limit` assignments with ids above `after`, in order, filtered."""

    def delete_assignment(self, workspace: WorkspaceId, assignment: AssignmentId) -> None:
        """Removes it; a no-op where it is absent."""


class Stores(Protocol):
    """Stores and their refs."""

    def put_store(self, workspace: WorkspaceId, store: StoreRecord) -> None:
        """Makes the store, or replaces its mutable fields where the id exists.

        Replacing needs the store locked in this transaction (`lock_store`); owner, pool, creator
        and time of creation stay as they are.
        """

    async def lock_store(self, workspace: WorkspaceId, store: StoreId) -> None:
        """Holds off other writers of this store until the transaction ends.

        What is read of the store after it stands still but for this transaction's own writes.
        """

    async def get_store(
        self, workspace: WorkspaceId, store: StoreId, subjects: Sequence[str]
    ) -> tuple[StoreRecord, Rights] | None:
        """The store, deleted ones too, and what its assignments give these subject ids together."""

    async def list_stores(
        self,
        workspace: WorkspaceId,
        after: StoreId | None,
        limit: int,
        *,
        readers: Sequence[str] | None,
        statuses: Sequence[str],
        name: str | None = None,
    ) -> list[StoreSummary]:
        """At most `limit` stores with ids above `after`, in order.

        With `readers` (subject ids) only stores on which one of them holds an assignment; None
        means all. With `name` only stores of exactly that name.
        """

    async def get_default_store(
        self, workspace: WorkspaceId, principal: PrincipalId
    ) -> StoreId | None:
        """The principal's one default store, or None."""

    def put_default_store(
        self, workspace: WorkspaceId, principal: PrincipalId, store: StoreId | None
    ) -> None:
        """Sets, replaces or (None) clears the principal's default store, one that it owns."""

    async def list_stores_of(
        self, workspace: WorkspaceId, owner: Owner, after: StoreId | None, limit: int
    ) -> list[StoreId]:
        """At most `limit` ids of the owner's stores above `after`, in order, any status."""

    async def get_ref(self, workspace: WorkspaceId, store: StoreId, name: str) -> Ref | None:
        """The ref, or None."""

    def put_ref(self, workspace: WorkspaceId, store: StoreId, ref: Ref) -> None:
        """Makes a ref; its name is free in the store."""

    def move_ref(self, workspace: WorkspaceId, store: StoreId, ref: Ref, expected: Ref) -> None:
        """Compare-and-swap from `expected`, as this transaction read it, to `ref` (C-032).

        Where the stored ref is another one, the transaction ends with Lost.
        """


class Documents(Protocol):
    """The projection of canonical: a row a document, with its stable id."""

    async def open_document(
        self,
        workspace: WorkspaceId,
        store: StoreId,
        subjects: Sequence[str],
        path: str,
        *,
        content: bool = False,
    ) -> tuple[StoreRecord, Rights, Document | None] | None:
        """Store, rights and document in one statement; the content too where asked for."""

    async def list_documents(
        self, workspace: WorkspaceId, store: StoreId, prefix: str, after: str | None, limit: int
    ) -> list[DocumentItem]:
        """At most `limit` documents whose path starts with `prefix` and sorts after `after`."""

    def put_document(self, workspace: WorkspaceId, store: StoreId, document: Document) -> None:
        """Makes or replaces the row at the document's path."""

    def remove_document(self, workspace: WorkspaceId, store: StoreId, path: str) -> None:
        """Removes the row at the path; it is there."""


class Revisions(Protocol):
    """Revisions and changes: append-only."""

    def put_revision(self, workspace: WorkspaceId, store: StoreId, revision: Revision) -> None:
        """Records a revision; its id is free."""

    async def get_revision(
        self, workspace: WorkspaceId, store: StoreId, revision: str
    ) -> Revision | None:
        """The revision, or None."""

    def put_change(self, workspace: WorkspaceId, store: StoreId, change: Change) -> None:
        """Records a change; its id and its (revision, path, n) are free."""

    async def get_change(
        self, workspace: WorkspaceId, store: StoreId, change: ChangeId
    ) -> Change | None:
        """The change, or None."""

    async def list_changes(
        self, workspace: WorkspaceId, store: StoreId, path: str, up_to: int, limit: int
    ) -> list[Change]:
        """At most `limit` changes of a path on canonical at positions ≤ `up_to`, newest first."""

    async def changed_at(
        self, workspace: WorkspaceId, store: StoreId, paths: Sequence[str], up_to: int
    ) -> dict[str, int]:
        """For each path, when canonical last changed it at a position ≤ `up_to`.

        Of several changes at one position the one with the greatest `n` counts.
        """


class Events(Protocol):
    """Gapless, hash-chained streams (R-30), each named by a store, Session or workspace id."""

    async def append(self, workspace: WorkspaceId, stream: str, fact: Fact) -> Event:
        """The fact as the stream's next event; it holds the stream's head, so call it last."""

    async def get_head(self, workspace: WorkspaceId, stream: str) -> Head:
        """Where the stream ends; Head() for a stream that has no event."""

    async def list_events(
        self, workspace: WorkspaceId, stream: str, after: int, limit: int
    ) -> list[Event]:
        """At most `limit` events numbered above `after`, in order."""


class Receipts(Protocol):
    """What idempotency keys have produced (R-47)."""

    async def get_receipt(
        self, workspace: WorkspaceId, subject: str, receipt: bytes
    ) -> Receipt | None:
        """The receipt of that id about that store, or about the workspace; None if unknown."""

    def put_receipt(self, workspace: WorkspaceId, receipt: Receipt) -> None:
        """Records the receipt. Where another transaction was first, this one ends with Lost."""


class Inspection(Protocol):
    """What `doctor`, and who compares storages, reads and no request does: every row of a kind."""

    async def list_refs(self, workspace: WorkspaceId, store: StoreId) -> list[Ref]:
        """Every ref of the store, in order of name."""

    async def list_revisions(
        self, workspace: WorkspaceId, store: StoreId, after: RevisionId | None, limit: int
    ) -> list[Revision]:
        """At most `limit` revisions with ids above `after`, in order."""

    async def list_revision_changes(
        self,
        workspace: WorkspaceId,
        store: StoreId,
        revision: RevisionId,
        after: tuple[str, int] | None,
        limit: int,
    ) -> list[Change]:
        """At most `limit` changes of the revision above (path, n), in order."""

    async def list_blobs(
        self, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        """At most `limit` hashes of blobs in the pool above `after`, in order."""

    async def list_nodes(
        self, workspace: WorkspaceId, pool: PoolId, after: bytes | None, limit: int
    ) -> list[bytes]:
        """At most `limit` hashes of tree nodes in the pool above `after`, in order."""

    async def list_streams(
        self, workspace: WorkspaceId, after: bytes | None, limit: int
    ) -> list[tuple[bytes, Head]]:
        """At most `limit` streams, by the 16 bytes of their ids, above `after`, in order."""

    async def inspect(
        self,
        kind: str,
        workspace: WorkspaceId,
        part: Sequence[str],
        after: Key | None,
        limit: int,
    ) -> list[Found]:
        """At most `limit` rows of a kind with keys above `after`, in order, damaged ones too.

        `part` names what they are of: `(store,)` for `refs`, `revisions`, `documents` (by path),
        `changes_by_id` and `landed` (the changes on canonical, by path, position and n);
        `(store, revision)` for `changes` (by path and n); `(pool,)` for `blobs` and `blob_keys`
        (the record is the hash) and `nodes` (the body); `(stream,)` for `events` (without payload)
        and `event_payloads` (salt and payload), by number; `(subject,)` for `receipts`; `(kind,)`
        for `owners`; `()` for `principals`, `api_keys`, `delegations`, `assignments`, `stores`,
        `default_stores`, `jobs` and `streams` (the id's bytes and the head), and for `workspaces`,
        which are listed whatever the workspace.
        """

    async def count_rows(self, kind: str, workspace: WorkspaceId, part: Sequence[str]) -> int:
        """How many rows of the kind there are, damaged ones too."""

    async def find_strays(self, workspace: WorkspaceId) -> list[Stray]:
        """Rows whose store, pool or stream is not there, or whose store is a tombstone."""

    async def find_homeless(self) -> list[Stray]:
        """Rows of workspaces that are not there."""


class Erasing(Protocol):
    """The bounded steps of a store's deletion (C-171)."""

    async def erase_store(
        self, workspace: WorkspaceId, store: StoreId, pool: PoolId, limit: int
    ) -> int:
        """Deletes about `limit` rows of the store, its pool and its stream; how many there were.

        0 means that nothing of it is left but the row in `stores`. The pool's bytes stay while
        another store uses the pool.
        """


class Jobs(Protocol):
    """Work to do, recorded in the transaction that causes it.

    Whoever works on a job holds it by the number of its fence. Claiming raises the number, so one
    that lost its lease to another changes nothing any more.
    """

    def enqueue(self, workspace: WorkspaceId, job: Job) -> None:
        """Records the job; its id is free."""

    async def get_job(self, workspace: WorkspaceId, job: JobId) -> Job | None:
        """The job, or None where it is finished or unknown."""

    async def list_jobs(self, workspace: WorkspaceId, after: JobId | None, limit: int) -> list[Job]:
        """At most `limit` unfinished jobs with ids above `after`, in order, parked ones too."""

    async def due_jobs(
        self, now: int, kinds: Sequence[str], limit: int
    ) -> list[tuple[WorkspaceId, Job]]:
        """At most `limit` jobs of these kinds and of all workspaces that are due, earliest first.

        Parked ones are not due. For workers only, which claim each in its own workspace.
        """

    async def claim_job(self, workspace: WorkspaceId, job: Job, until: int) -> Job | None:
        """The job, one attempt and one fence further, leased and not due until `until`.

        None where its fence or its `run_at` is another one, or it is parked or gone: of several
        claims one wins, and none takes a job that its holder has just renewed or given back.
        """

    async def hold_job(self, workspace: WorkspaceId, job: Job, until: int) -> bool:
        """Extends the lease and holds off other claims until the transaction ends.

        False where the fence is another one, or the job is gone.
        """

    def return_job(self, workspace: WorkspaceId, job: Job) -> None:
        """Sets `run_at`, `attempts`, `lease_until`, `failure` and `parked_at`.

        A no-op where the fence is another one, or the job is gone.
        """

    def finish_job(self, workspace: WorkspaceId, job: Job) -> None:
        """Removes the job; a no-op where the fence is another one, or it is gone."""


class Transaction(
    Objects,
    Workspaces,
    Identities,
    Assignments,
    Stores,
    Documents,
    Revisions,
    Events,
    Receipts,
    Inspection,
    Erasing,
    Jobs,
    Protocol,
):
    """One transaction, or one group's share of it."""


Use = Callable[[Transaction], Coroutine[Any, Any, T]]


class Storage(Protocol):
    """What remembers."""

    async def start(self) -> None:
        """Opens the database. Unavailable if it cannot be reached."""

    async def stop(self) -> None:
        """Finishes what was accepted and closes; what is asked afterwards is refused."""

    async def schema_version(self) -> int:
        """The version of the schema that is there; 0 where there is none yet."""

    async def migrate(self, now: int) -> int:
        """Brings the schema to this program's version; that version. Unavailable on a newer one."""

    async def check_schema(self) -> int:
        """This program's schema version. Unavailable on an older or a newer one; writes nothing."""

    async def holds_master_key(self) -> bool:
        """Whether this process has what the database's bodies were sealed with."""

    async def check_ready(self) -> None:
        """Unavailable unless the database answers, its schema is ours and a write works."""

    async def cursor_key(self) -> bytes:
        """32 bytes shared by every node of the deployment, made with the database."""

    async def scrub(self) -> bool:
        """Makes what has been deleted unreadable in the database's own files (R-83).

        False where another process's long read holds that up; then it is to be tried again.
        """

    async def check_integrity(self) -> list[str]:
        """What the database's own check of its files finds, a line each; nothing where all is well.

        A database that has no such check finds nothing.
        """

    async def read(self, use: Use[T], *, scan: bool = False, single: bool = False) -> T:
        """Runs `use` on one snapshot.

        `scan` says that it may read many rows, so that a storage may keep it off the event loop;
        `single` that it calls one reading method, so that no transaction is needed around it.
        """

    async def write(self, group: str | None, use: Use[T]) -> T:
        """Runs `use` in a transaction and returns its answer once it is durable (R-80).

        A group is a store, Session or workspace id; what waits in one group is committed together,
        and a member that fails takes nothing with it. None stands alone, for a use that touches
        several. `use` may run more than once and awaits nothing but the transaction, so ids and
        times are made before it; it reads before it writes, so that writers meet their locks in
        one order. A caller that is cancelled does not take its write back.
        """
