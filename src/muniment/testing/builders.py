"""Small builders of records: counting ids, a ticking clock, whole steps of a store's history."""

from collections.abc import Callable, Sequence
from hashlib import sha256

from msgspec import Struct

from muniment.model.access import ApiKey, Assignment, Delegation, Principal, Subject
from muniment.model.documents import Document
from muniment.model.events import Fact, encode_payload
from muniment.model.ids import (
    PREFIXES,
    AssignmentId,
    ChangeId,
    DelegationId,
    DocumentId,
    EventId,
    JobId,
    KeyId,
    PoolId,
    PrincipalId,
    RevisionId,
    StoreId,
    WorkspaceId,
)
from muniment.model.jobs import ERASE_STORE, Job, new_job
from muniment.model.owners import OWNER_ID_KINDS, OwnerRow
from muniment.model.revisions import CANONICAL, Change, Revision
from muniment.model.stores import Owner, Ref, StoreRecord, Workspace
from muniment.model.tree import EMPTY_TREE
from muniment.storage.base import Storage, Transaction, Use

ACTOR = b"\x93\xa5actor\xc0\xc0"
"""Some packed author; storages keep it as it is."""

NOBODY = (PrincipalId("prin_" + "0" * 32),)
"""The subjects of an asker who holds nothing."""


class Step(Struct, frozen=True):
    """One revision that puts or removes one document: everything a storage is asked to write."""

    revision: Revision
    change: Change
    before: Ref
    ref: Ref
    node: bytes
    content: bytes | None
    document: Document | None


class Home(Struct, frozen=True):
    """A workspace with a principal and one store of its own; `ref` is canonical, still empty."""

    workspace: WorkspaceId
    principal: PrincipalId
    store: StoreRecord
    ref: Ref


class Builder:
    """Makes records. Ids count up from `first`, whatever their kind; each look at the clock ticks.

    Two builders with the same `first` make the same records.
    """

    def __init__(self, first: int = 1 << 80) -> None:
        self._count = first
        self._now = 1_790_000_000_000_000

    def new_id(self, kind: str) -> str:
        """The next id of the kind, above every one before."""
        self._count += 1
        return f"{PREFIXES[kind]}_{self._count:032x}"

    def now(self) -> int:
        """The next microsecond."""
        self._now += 1
        return self._now

    def workspace(self, name: str = "acme") -> Workspace:
        """An active workspace."""
        return Workspace(
            WorkspaceId(self.new_id("workspace")), name, "active", False, None, self.now()
        )

    def principal(self, external_id: str | None = None) -> Principal:
        """A person."""
        return Principal(
            PrincipalId(self.new_id("principal")), "person", "Ada", external_id, self.now()
        )

    def key(self, principal: PrincipalId) -> tuple[ApiKey, bytes]:
        """A key and the hash of its secret."""
        key = KeyId(self.new_id("key"))
        row = ApiKey(key, "laptop", "member", principal, self.now(), expires_at=self.now())
        return row, sha256(key.encode()).digest()

    def delegation(self, principal: PrincipalId, delegate: PrincipalId) -> Delegation:
        """Leave for `delegate` to act as `principal`."""
        return Delegation(DelegationId(self.new_id("delegation")), principal, delegate, self.now())

    def owner(self, kind: str, principal: PrincipalId) -> OwnerRow:
        """An agent, a Session or a surface scope."""
        scope = "private" if kind == "surface_scope" else None
        owner = self.new_id(OWNER_ID_KINDS[kind])
        return OwnerRow(kind, owner, f"the {kind}", principal, scope, self.now())

    def store(
        self, principal: PrincipalId, *, owner: Owner | None = None, pool: PoolId | None = None
    ) -> StoreRecord:
        """A store made by the principal, and owned by it where no owner is given."""
        now = self.now()
        return StoreRecord(
            id=StoreId(self.new_id("store")),
            name="notes",
            description=None,
            owner=owner or Owner("principal", principal),
            status="active",
            version=1,
            generation=1,
            promotion_policy="direct",
            require_distinct_reviewer=False,
            pool=pool or PoolId(self.new_id("pool")),
            created_by=principal,
            created_at=now,
            updated_at=now,
        )

    def assignment(
        self, store: StoreId, subject: Subject, *, read: bool = True, write: bool = False
    ) -> Assignment:
        """A granted assignment."""
        return Assignment(
            AssignmentId(self.new_id("assignment")),
            store,
            subject,
            read,
            write,
            "granted",
            self.now(),
        )

    def first(self, name: str = CANONICAL) -> tuple[Revision, Ref]:
        """The empty initial revision of a store and a ref on it."""
        now = self.now()
        revision = RevisionId(self.new_id("revision"))
        return (
            Revision(revision, None, EMPTY_TREE, 0, 0, "initial", ACTOR, now),
            Ref(name, revision, EMPTY_TREE, 0, 0, 1, now),
        )

    def step(self, ref: Ref, path: str, content: bytes | None, current: Document | None) -> Step:
        """The revision after `ref` in which `path` holds `content`, or nothing where it is None.

        `current` is the document that is there now.
        """
        now = self.now()
        revision_id = RevisionId(self.new_id("revision"))
        change_id = ChangeId(self.new_id("change"))
        document_id = current.id if current else DocumentId(self.new_id("document"))
        node = b"tree of " + revision_id.encode()
        old_size = current.size if current else 0
        count = ref.documents + (content is not None) - (current is not None)
        total = ref.total_bytes - old_size + len(content or b"")
        blob = None if content is None else sha256(content).digest()
        tree = sha256(node).digest()
        return Step(
            revision=Revision(revision_id, ref.revision, tree, count, total, "change", ACTOR, now),
            change=Change(
                id=change_id,
                revision=revision_id,
                path=path,
                n=0,
                document=document_id,
                operation="remove" if content is None else "put",
                moved_from=None,
                blob=blob,
                size=None if content is None else len(content),
                seq=ref.version + 1 if ref.name == CANONICAL else None,
                actor=ACTOR,
                created_at=now,
            ),
            before=ref,
            ref=Ref(ref.name, revision_id, tree, count, total, ref.version + 1, now),
            node=node,
            content=content,
            document=None
            if blob is None or content is None
            else Document(
                document_id,
                path,
                blob,
                len(content),
                change_id,
                current.created_at if current else now,
                now,
            ),
        )

    def fact(self, type: str = "revision.created", **payload: object) -> Fact:
        """An event that has no place yet."""
        event = EventId(self.new_id("event"))
        salt = sha256(event.encode()).digest()[:16]
        return Fact(event, type, encode_payload(payload), salt, self.now())

    def job(self, subject: str) -> Job:
        """The job that erases a store."""
        return new_job(JobId(self.new_id("job")), ERASE_STORE, subject, self.now())


def doing(*writes: Callable[[Transaction], None]) -> Use[None]:
    """The use that makes these writes one after the other."""

    async def use(tx: Transaction) -> None:
        for write in writes:
            write(tx)

    return use


def enqueueing(workspace: WorkspaceId, job: Job) -> Use[None]:
    """The use that records the job."""
    return doing(lambda tx: tx.enqueue(workspace, job))


def replacing(workspace: WorkspaceId, store: StoreRecord) -> Use[None]:
    """The use that locks the store and replaces its row."""

    async def use(tx: Transaction) -> None:
        await tx.lock_store(workspace, store.id)
        tx.put_store(workspace, store)

    return use


def write_step(tx: Transaction, workspace: WorkspaceId, store: StoreRecord, step: Step) -> None:
    """Everything the step writes; the document row too where it is on canonical."""
    tx.put_node(workspace, store.pool, step.revision.tree, step.node)
    if step.content is not None and step.change.blob is not None:
        tx.put_blob(workspace, store.pool, step.change.blob, step.content)
    tx.put_revision(workspace, store.id, step.revision)
    tx.put_change(workspace, store.id, step.change)
    if step.ref.name == CANONICAL:
        if step.document is not None:
            tx.put_document(workspace, store.id, step.document)
        else:
            tx.remove_document(workspace, store.id, step.change.path)
    tx.move_ref(workspace, store.id, step.ref, step.before)


def add_store(tx: Transaction, workspace: WorkspaceId, store: StoreRecord, build: Builder) -> Ref:
    """Writes a store with its initial revision; its canonical ref."""
    revision, ref = build.first()
    tx.put_store(workspace, store)
    tx.put_revision(workspace, store.id, revision)
    tx.put_ref(workspace, store.id, ref)
    return ref


async def make_home(storage: Storage, build: Builder) -> Home:
    """A workspace, its first principal and that principal's empty store, written to `storage`."""
    workspace, principal = build.workspace(), build.principal()
    store = build.store(principal.id)
    revision, ref = build.first()
    await storage.write(
        None,
        doing(
            lambda tx: tx.put_workspace(workspace),
            lambda tx: tx.put_principal(workspace.id, principal),
            lambda tx: tx.put_store(workspace.id, store),
            lambda tx: tx.put_revision(workspace.id, store.id, revision),
            lambda tx: tx.put_ref(workspace.id, store.id, ref),
        ),
    )
    return Home(workspace.id, principal.id, store, ref)


async def put_content(
    storage: Storage, build: Builder, home: Home, documents: Sequence[tuple[str, bytes | None]]
) -> list[Step]:
    """Puts (or, for None, removes) each document of the home's store in a write of its own."""
    return [
        await change_document(storage, build, home, path, content) for path, content in documents
    ]


async def change_document(
    storage: Storage, build: Builder, home: Home, path: str, content: bytes | None
) -> Step:
    """One put or removal on canonical, decided under the store's lock as a use case does."""

    async def use(tx: Transaction) -> Step:
        await tx.lock_store(home.workspace, home.store.id)
        opened = await tx.open_document(home.workspace, home.store.id, NOBODY, path)
        ref = await tx.get_ref(home.workspace, home.store.id, CANONICAL)
        assert opened is not None and ref is not None
        step = build.step(ref, path, content, opened[2])
        write_step(tx, home.workspace, home.store, step)
        return step

    return await storage.write(home.store.id, use)
