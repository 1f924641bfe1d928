"""Whether a store's refs, revisions, changes and documents say the same as its trees."""

from collections.abc import AsyncIterator
from typing import Any

from muniment.model import tree
from muniment.model.diff import DiffEntry, diff
from muniment.model.documents import Document
from muniment.model.ids import RevisionId
from muniment.model.nodes import EMPTY_TREE, TreeHash, sums
from muniment.model.revisions import CANONICAL, Change, Revision
from muniment.model.stores import Ref, StoreRecord
from muniment.service.doctor_pools import Pool
from muniment.service.doctor_reading import Ahead, Reading, ahead, reason
from muniment.storage.base import Key


async def check_store(r: Reading, store: StoreRecord, pool: Pool) -> int:
    """Everything about a store that is neither fenced nor deleted, but for its stream.

    How many revisions it has.
    """
    _check_record(r, store)
    history = _History(r, store, pool)
    await history.count()
    canonical: Ref | None = None
    async for _, ref in r.rows("refs", store.id):
        if ref.name == CANONICAL:
            canonical = ref
        await history.check_ref(ref)
    if canonical is None:
        r.find("refs", "the store has no canonical ref", CANONICAL)
        await history.check_the_rest(None)
    else:
        await history.walk(canonical)
        await history.check_the_rest(canonical)
        await _check_paths(r, store, canonical, pool)
    return history.revisions


def _check_record(r: Reading, store: StoreRecord) -> None:
    if store.status not in ("active", "archived"):
        r.find("stores", f"{store.status} is no status", store.id)
    if (store.archived_at is None) == (store.status == "archived"):
        r.find("stores", "its status and the time it was archived at do not agree", store.id)
    if store.last_event_hash is not None:
        r.find("stores", "it has the last event's hash, and it is not deleted", store.id)


class _History:
    """The revisions of a store, each held against its parent."""

    def __init__(self, r: Reading, store: StoreRecord, pool: Pool) -> None:
        self.r = r
        self.store = store
        self.pool = pool
        self.revisions = 0
        self.walked = 0
        self.changes = 0

    async def count(self) -> None:
        """Reads every revision's row once: they are sound, and one of them is the initial one."""
        before = self.r.notes.checked["revisions"]
        initial: list[RevisionId] = []
        async for _, revision in self.r.rows("revisions", self.store.id):
            if (revision.parent is None) != (revision.kind == "initial"):
                self.r.find(
                    "revisions",
                    f"it is of kind {revision.kind}, which its parent does not fit",
                    revision.id,
                )
            if revision.parent is None:
                initial = [*initial[:1], revision.id]
        self.revisions = self.r.notes.checked["revisions"] - before
        if len(initial) != 1:
            many = "more than one initial revision" if initial else "no initial revision"
            self.r.find("revisions", f"the store has {many}", ", ".join(initial) or None)

    async def check_ref(self, ref: Ref) -> None:
        """The ref's revision is there and says the same of its tree."""
        revision = await self.r.revision(self.store.id, ref.revision)
        if revision is None:
            self.r.find("refs", f"its revision {ref.revision} is not there", ref.name)
            return
        for field in ("tree", "documents", "total_bytes"):
            if getattr(ref, field) != getattr(revision, field):
                self.r.find("refs", f"{field} is not that of {revision.id}", ref.name)
        if ref.name == CANONICAL and ref.updated_at != revision.created_at:
            self.r.find("refs", f"it moved at another time than {revision.id} was made", ref.name)

    async def walk(self, ref: Ref) -> None:
        """Checks canonical's revisions from its last to the first, one position down each."""
        position = ref.version
        revision = await self.r.revision(self.store.id, ref.revision)
        while revision is not None and self.walked < self.revisions:
            self.walked += 1
            parent = await self._parent(revision)
            if revision.parent is None or parent is not None:
                await self._check(revision, parent, position)
            position -= 1
            if revision.parent is None:
                if position != 0:
                    message = f"its version is {ref.version}, and it has {self.walked} revisions"
                    self.r.find("refs", message, ref.name)
                return
            revision = parent
        if revision is not None:
            self.r.find("revisions", "it is its own ancestor", revision.id)

    async def check_the_rest(self, ref: Ref | None) -> None:
        """Checks the revisions that canonical does not lead to, and that no change is left over."""
        if self.walked < self.revisions:
            await self._check_others(ref)
        of_store = (self.store.id,)
        rows = await self.r.tx.count_rows("changes_by_id", self.r.workspace, of_store)
        if rows != self.changes:
            await self._find_lost_changes(rows - self.changes)

    async def _find_lost_changes(self, count: int) -> None:
        message = f"{count} of the store's changes are of none of its revisions"
        self.r.find("changes", message, self.store.id)
        async for _, change in self.r.rows("changes_by_id", self.store.id, called="changes"):
            if not await self.r.has("revisions", change.revision, self.store.id):
                message = f"its revision {change.revision} is not there"
                self.r.find("changes", message, f"{change.path} by {change.id}")

    async def _check_others(self, ref: Ref | None) -> None:
        """The set of canonical's revisions is needed only where there are others."""
        canonical: set[str] = set()
        at: RevisionId | None = None if ref is None else ref.revision
        while at is not None and at not in canonical:
            revision = await self.r.revision(self.store.id, at)
            if revision is None:
                break
            canonical.add(at)
            at = revision.parent
        others = 0
        parents: dict[str, str | None] = {}
        async for _, revision in self.r.quietly().rows("revisions", self.store.id):
            if revision.id in canonical:
                continue
            others += 1
            parents[revision.id] = revision.parent
            parent = await self._parent(revision)
            if revision.parent is None or parent is not None:
                await self._check(revision, parent, None)
        self._check_cycles(parents)
        if others:
            self.r.warn("revisions", f"{others} of them are on no way from canonical to the first")

    def _check_cycles(self, parents: dict[str, str | None]) -> None:
        sound: set[str] = set()
        for start in parents:
            way: set[str] = set()
            at: str | None = start
            while at is not None and at in parents and at not in sound and at not in way:
                way.add(at)
                at = parents[at]
            if at is not None and at in way:
                self.r.find("revisions", "it is its own ancestor", at)
            sound |= way

    async def _parent(self, revision: Revision) -> Revision | None:
        if revision.parent is None:
            return None
        parent = await self.r.revision(self.store.id, revision.parent)
        if parent is None:
            self.r.find("revisions", f"its parent {revision.parent} is not there", revision.id)
        return parent

    async def _check(
        self, revision: Revision, parent: Revision | None, position: int | None
    ) -> None:
        """Totals, and the changes between the two trees."""
        base = TreeHash(EMPTY_TREE if parent is None else parent.tree)
        entries: list[DiffEntry] | None = None
        try:
            level, rows = await self.pool.rows(revision.tree)
            if sums(level, rows) != (revision.documents, revision.total_bytes):
                self.r.find("revisions", "its totals are not those of its tree", revision.id)
            if level and len(rows) == 1:
                self.r.find("revisions", "its tree has a root of one row", revision.id)
            entries = await diff(base, TreeHash(revision.tree), self.pool.load)
        except Exception as error:
            self.r.find("revisions", f"its tree cannot be read: {reason(error)}", revision.id)
        await self._check_changes(revision, entries, position)

    async def _check_changes(
        self, revision: Revision, entries: list[DiffEntry] | None, position: int | None
    ) -> None:
        waiting = {entry.path: entry for entry in entries or ()}
        before = self.r.notes.checked["changes"]
        async for _, change in self.r.rows("changes", self.store.id, revision.id):
            place = f"{change.path} in {revision.id}"
            damages = _of_revision(change, revision, position)
            if change.n == 0 and entries is not None:
                entry = waiting.pop(change.path, None)
                damages += await self._compare(change, entry, revision)
            for damage in damages:
                self.r.find("changes", damage, place)
        self.changes += self.r.notes.checked["changes"] - before
        for path, entry in waiting.items():
            await self._check_blob(path, entry, revision)
            message = "the tree differs from its parent's, and there is no change"
            self.r.find("changes", message, f"{path} in {revision.id}")

    async def _compare(
        self, change: Change, entry: DiffEntry | None, revision: Revision
    ) -> list[str]:
        if entry is not None:
            await self._check_blob(change.path, entry, revision)
            if (change.blob, change.size) == (entry.head, entry.head_size):
                return []
            return ["its hash and size are not what the tree has"]
        # A put of what was there already is a change, too, and no difference.
        there = await tree.find(TreeHash(revision.tree), change.path, self.pool.load)
        if there is not None and (change.blob, change.size) == (there.blob, there.size):
            return []
        return ["the trees of the revision and its parent do not differ so"]

    async def _check_blob(self, path: str, entry: DiffEntry, revision: Revision) -> None:
        if entry.head is None:
            return
        damage = await self.pool.check_size(entry.head, entry.head_size)
        if damage is not None:
            self.r.find("blobs", f"{path} in {revision.id}: {damage}", entry.head.hex())


def _of_revision(change: Change, revision: Revision, position: int | None) -> list[str]:
    """What is wrong with a change as one of the revision, which is canonical's at `position`."""
    found = []
    if position is not None and change.seq != position:
        found.append(f"it landed at position {change.seq}, its revision at {position}")
    if (change.blob is None) != (change.operation == "delete"):
        found.append(f"operation {change.operation} does not fit what it left")
    if change.operation not in ("put", "delete", "move"):
        found.append(f"{change.operation} is no operation")
    if (change.moved_from is None) == (change.operation == "move"):
        found.append(f"operation {change.operation} does not fit where it moved from")
    if change.n == 0 and (change.actor, change.created_at) != (revision.actor, revision.created_at):
        found.append("author or time are not those of its revision")
    return found


async def _check_paths(r: Reading, store: StoreRecord, ref: Ref, pool: Pool) -> None:
    """Path by path: what canonical's tree, the newest change and the document's row say."""
    entries = _Entries(r, ref, pool)
    trees = await ahead(entries.read())
    documents = await ahead(r.rows("documents", store.id))
    landed = await ahead(r.quietly().rows("landed", store.id))
    while True:
        nexts = [
            None if trees.next is None else trees.next.path.encode(),
            None if documents.next is None else documents.next[0][0],
            None if landed.next is None else landed.next[0][0],
        ]
        path = min((one for one in nexts if one is not None), default=None)
        if path is None:
            return
        entry = await trees.advance() if nexts[0] == path else None
        document = (await documents.advance() if nexts[1] == path else None) or (None, None)
        first, newest = await _lifetime(r, landed, path)
        _compare_path(r, path.decode(), (entry, entries.whole), document[1], (first, newest))


class _Entries:
    """Canonical's tree, row by row; `whole` until a node of it cannot be read."""

    def __init__(self, r: Reading, ref: Ref, pool: Pool) -> None:
        self._r = r
        self._ref = ref
        self._pool = pool
        self.whole = True

    async def read(self) -> AsyncIterator[tree.Entry]:
        """The entries in order of path."""
        try:
            async for entry in tree.scan(TreeHash(self._ref.tree), self._pool.load):
                self._r.notes.count("tree entries")
                yield entry
        except Exception as error:
            self.whole = False
            self._r.find("refs", f"its tree cannot be read: {reason(error)}", self._ref.name)


async def _lifetime(
    r: Reading, landed: Ahead[tuple[Key, Change]], path: bytes
) -> tuple[Change | None, Change | None]:
    """The change that made the document that is at the path last, and its newest change."""
    first: Change | None = None
    newest: Change | None = None
    while landed.next is not None and landed.next[0][0] == path:
        _, change = landed.next
        there = newest is not None and newest.blob is not None
        if there and newest is not None and newest.document != change.document:
            message = f"it is a change of {change.document}, and {newest.document} is there"
            r.find("changes", message, f"{change.path} in {change.revision}")
        if not there:
            first = change
        newest = change
        await landed.advance()
    return first, newest


def _compare_path(
    r: Reading,
    path: str,
    entry: tuple[tree.Entry | None, bool],
    document: Document | None,
    changes: tuple[Change | None, Change | None],
) -> None:
    held = _contents(document)
    if entry[1] and held != _contents(entry[0]):
        if document is None:
            r.find("documents", "it is in canonical's tree and has no row", path)
        elif entry[0] is None:
            r.find("documents", "it is not in canonical's tree", path)
        else:
            r.find("documents", "its hash or size is not what canonical's tree has", path)
    first, newest = changes
    if newest is not None and _contents(entry[0]) != _contents(newest) and entry[1]:
        r.find("changes", "its newest change is not what canonical's tree has", path)
    if document is None:
        return
    if first is None or newest is None:
        r.find("documents", "no change on canonical made it", path)
        return
    expected = (newest.document, newest.id, first.created_at, newest.created_at)
    names = ("document_id", "change_id", "created_at", "updated_at")
    has = (document.id, document.change, document.created_at, document.updated_at)
    wrong = [n for n, a, b in zip(names, has, expected, strict=True) if a != b]
    if wrong:
        r.find("documents", f"{', '.join(wrong)}: not what the path's changes say", path)


def _contents(row: Any) -> tuple[bytes, int] | None:
    """Blob and size of an entry, a document or a change; None where there is no content."""
    return None if row is None or row.blob is None else (row.blob, row.size)
