"""The oracle's tables: dicts with an order, one undo journal, and what must refer to what."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from muniment.model.access import (
    ApiKey,
    Assignment,
    Delegation,
    Principal,
    Subject,
)
from muniment.model.documents import Document
from muniment.model.events import Event, Head
from muniment.model.ids import is_id
from muniment.model.jobs import Job
from muniment.model.owners import OWNER_ID_KINDS, OwnerRow
from muniment.model.receipts import Receipt
from muniment.model.revisions import Change, Revision
from muniment.model.stores import Owner, Ref, StoreRecord, Workspace
from muniment.model.tree import EMPTY_TREE

Part = tuple[str, ...]
"""Which partition of a table: the workspace first, then what its rows are listed by."""

K = TypeVar("K", str, int, bytes, tuple[int, int])
V = TypeVar("V")


class ContractBroken(AssertionError):
    """The caller did what `storage.base` forbids or leaves undefined: a fault in the program."""


def require(condition: bool, message: str) -> None:
    """ContractBroken with the message unless the condition holds."""
    if not condition:
        raise ContractBroken(message)


def require_id(kind: str, identifier: str) -> None:
    """ContractBroken unless `identifier` is a well-formed id of `kind`."""
    require(is_id(kind, identifier), f"{identifier!r} is not an id of a {kind}")


Journal = list[Callable[[], None]]
"""How to take back each change made so far, oldest first."""


class Table(Generic[K, V]):
    """Rows by key in partitions. Text keys order by code point, which is the order of UTF-8."""

    def __init__(self, journal: Journal) -> None:
        self._rows: dict[Part, dict[K, V]] = {}
        self._order: dict[Part, list[K]] = {}
        self._journal = journal

    def get(self, part: Part, key: K) -> V | None:
        """The row, or None."""
        return self._rows.get(part, {}).get(key)

    def has(self, part: Part, key: K) -> bool:
        """Whether there is such a row."""
        return key in self._rows.get(part, {})

    def count(self, part: Part) -> int:
        """How many rows the partition has."""
        return len(self._rows.get(part, {}))

    def put(self, part: Part, key: K, value: V) -> None:
        """Makes or replaces the row."""
        old = self.get(part, key)
        if old is None:
            self._journal.append(lambda: self._take(part, key))
        else:
            self._journal.append(lambda: self._set(part, key, old))
        self._set(part, key, value)

    def add(self, part: Part, key: K, value: V) -> None:
        """Makes the row; ContractBroken where there is one."""
        require(not self.has(part, key), f"{key!r} is taken")
        self.put(part, key, value)

    def discard(self, part: Part, key: K) -> bool:
        """Removes the row; whether there was one."""
        old = self.get(part, key)
        if old is None:
            return False
        self._journal.append(lambda: self._set(part, key, old))
        self._take(part, key)
        return True

    def values(self, part: Part, after: K | None = None) -> Iterator[V]:
        """The rows with keys above `after`, in order; the table must not change meanwhile."""
        for key in self.keys(part, after):
            yield self._rows[part][key]

    def keys(self, part: Part, after: K | None = None, *, start: K | None = None) -> Iterator[K]:
        """The keys above `after` and not below `start`, in order."""
        order = self._order.get(part, [])
        at = 0 if after is None else bisect_right(order, after)
        if start is not None:
            at = max(at, bisect_left(order, start))
        while at < len(order):
            yield order[at]
            at += 1

    def parts(self) -> Iterator[Part]:
        """The partitions that have rows."""
        return iter([*self._rows])

    def newest(self, part: Part, below: K) -> Iterator[V]:
        """The rows with keys below `below`, the last first."""
        order = self._order.get(part, [])
        for at in range(bisect_left(order, below) - 1, -1, -1):
            yield self._rows[part][order[at]]

    def _set(self, part: Part, key: K, value: V) -> None:
        rows = self._rows.setdefault(part, {})
        if key not in rows:
            insort(self._order.setdefault(part, []), key)
        rows[key] = value

    def _take(self, part: Part, key: K) -> None:
        del self._rows[part][key]
        order = self._order[part]
        del order[bisect_left(order, key)]
        if not order:
            del self._rows[part], self._order[part]


class Tables:
    """Everything the oracle remembers. The partitions' shapes stand beside each table."""

    def __init__(self) -> None:
        self.journal: Journal = []
        self.workspaces = self._table(str, Workspace)  # ()
        self.principals = self._table(str, Principal)  # (workspace,)
        self.external_ids = self._table(str, str)  # (workspace,)
        self.keys = self._table(str, ApiKey)  # (workspace,)
        self.secrets = self._table(bytes, str)  # (workspace,)
        self.delegations = self._table(str, Delegation)  # (workspace,)
        self.delegates = self._table(str, str)  # (workspace, principal): delegate to delegation
        self.owners = self._table(str, OwnerRow)  # (workspace, kind)
        self.assignments = self._table(str, Assignment)  # (workspace,)
        self.rights = self._table(str, Assignment)  # (workspace, store, subject id)
        self.stores = self._table(str, StoreRecord)  # (workspace,)
        self.pools = self._table(str, str)  # (workspace, pool): store to its status
        self.defaults = self._table(str, str)  # (workspace,): principal to store
        self.refs = self._table(str, Ref)  # (workspace, store)
        self.documents = self._table(str, Document)  # (workspace, store): by path
        self.document_paths = self._table(str, str)  # (workspace, store): document to path
        self.revisions = self._table(str, Revision)  # (workspace, store)
        self.changes = self._table(str, Change)  # (workspace, store)
        self.numbered = self._table(int, str)  # (workspace, store, revision, path): n to change
        # (workspace, store, path): by (canonical position, n)
        self.landed: Table[tuple[int, int], Change] = Table(self.journal)
        self.blobs = self._table(bytes, bytes)  # (workspace, pool)
        self.nodes = self._table(bytes, bytes)  # (workspace, pool)
        self.heads = self._table(str, Head)  # (workspace,): by stream
        self.events = self._table(int, Event)  # (workspace, stream)
        self.event_ids = self._table(str, str)  # (workspace,): event to stream
        self.receipts = self._table(bytes, Receipt)  # (workspace, subject)
        self.jobs = self._table(str, Job)  # (workspace,)

    def _table(self, key: type[K], value: type[V]) -> Table[K, V]:
        return Table(self.journal)

    def keep(self) -> None:
        """Makes what was written since the last end permanent."""
        self.journal.clear()

    def undo(self) -> None:
        """Takes back what was written since the last end."""
        while self.journal:
            self.journal.pop()()

    def pool_of(self, workspace: str, store: str) -> str:
        """The store's pool; ContractBroken for an absent store."""
        record = self.stores.get((workspace,), store)
        if record is None:
            raise ContractBroken(f"{store} is absent")
        return record.pool

    def pool_is_used(self, workspace: str, pool: str, *, other_than: str | None = None) -> bool:
        """Whether a store that is not deleted, and is not `other_than`, keeps its bytes there."""
        part = (workspace, pool)
        return any(
            store != other_than and self.pools.get(part, store) not in ("deleting", "deleted")
            for store in self.pools.keys(part)
        )

    def owner_exists(self, workspace: str, owner: Owner | Subject) -> bool:
        """Whether a store's owner or an assignment's subject is there."""
        if owner.kind == "workspace":
            return owner.id == (None if isinstance(owner, Owner) else workspace)
        if owner.id is None:
            return False
        if owner.kind == "principal":
            return self.principals.has((workspace,), owner.id)
        return owner.kind in OWNER_ID_KINDS and self.owners.has((workspace, owner.kind), owner.id)

    def is_owned_by(self, workspace: str, store: str, principal: str) -> bool:
        """Whether there is such a store and that principal owns it."""
        record = self.stores.get((workspace,), store)
        return record is not None and record.owner == Owner("principal", principal)

    def stream_exists(self, workspace: str, stream: str) -> bool:
        """Whether the stream is named by the workspace, or by a store or Session of it."""
        return (
            (stream == workspace and self.workspaces.has((), workspace))
            or self.stores.has((workspace,), stream)
            or self.owners.has((workspace, "session"), stream)
        )

    def ref_fits(self, workspace: str, store: str, ref: Ref) -> bool:
        """Whether the ref names a revision of the store and says what its tree holds."""
        revision = self.revisions.get((workspace, store), ref.revision)
        return revision is not None and (
            (revision.tree, revision.documents, revision.total_bytes)
            == (ref.tree, ref.documents, ref.total_bytes)
        )

    def document_fits(self, workspace: str, store: str, document: Document) -> bool:
        """Whether the document's blob, its size and its last change are there and agree."""
        content = self.blobs.get((workspace, self.pool_of(workspace, store)), document.blob)
        change = self.changes.get((workspace, store), document.change)
        return (
            content is not None
            and len(content) == document.size
            and change is not None
            and (change.document, change.blob) == (document.id, document.blob)
        )

    def revision_fits(self, workspace: str, store: str, revision: Revision) -> bool:
        """Whether the revision's tree and parent are there; the empty tree is kept nowhere."""
        node = (workspace, self.pool_of(workspace, store))
        parents = (workspace, store)
        return (revision.tree == EMPTY_TREE or self.nodes.has(node, revision.tree)) and (
            revision.parent is None or self.revisions.has(parents, revision.parent)
        )

    def change_fits(self, workspace: str, store: str, change: Change) -> bool:
        """Whether the change's revision and blob are there."""
        if change.blob is not None:
            content = self.blobs.get((workspace, self.pool_of(workspace, store)), change.blob)
            if content is None or len(content) != change.size:
                return False
        return self.revisions.has((workspace, store), change.revision)

    def rows_of_store(self, workspace: str, store: str, pool: str) -> Iterator["Row"]:
        """What erasing the store removes, row by row, each with its index entries."""
        part = (workspace, store)
        for document in self.documents.values(part):
            yield (
                (self.documents, part, document.path),
                (self.document_paths, part, document.id),
            )
        for change in self.changes.values(part):
            row: Row = (
                (self.changes, part, change.id),
                (self.numbered, (*part, change.revision, change.path), change.n),
            )
            if change.seq is not None:
                row += ((self.landed, (*part, change.path), (change.seq, change.n)),)
            yield row
        for table in (self.revisions, self.refs):
            for key in table.keys(part):
                yield ((table, part, key),)
        for assignment in self.assignments.values((workspace,)):
            if assignment.store == store:
                yield (
                    (self.assignments, (workspace,), assignment.id),
                    (self.rights, (*part, assignment.subject.id), assignment.id),
                )
        for principal in self.defaults.keys((workspace,)):
            if self.defaults.get((workspace,), principal) == store:
                yield ((self.defaults, (workspace,), principal),)
        for receipt in self.receipts.keys(part):
            yield ((self.receipts, part, receipt),)
        yield from self._rows_of_pool(workspace, store, pool)
        for event in self.events.values(part):
            yield ((self.events, part, event.seq), (self.event_ids, (workspace,), event.id))
        if self.heads.has((workspace,), store):
            yield ((self.heads, (workspace,), store),)

    def _rows_of_pool(self, workspace: str, store: str, pool: str) -> Iterator["Row"]:
        if not self.pool_is_used(workspace, pool, other_than=store):
            for objects in (self.blobs, self.nodes):
                for digest in objects.keys((workspace, pool)):
                    yield ((objects, (workspace, pool), digest),)


Row = tuple[tuple[Table[Any, Any], Part, Any], ...]
"""A row and its index entries: table, partition and key of each."""
