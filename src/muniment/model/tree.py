"""The tree: an ordered Merkle map from path to (blob, size); the format is docs/tree.md's.

Where a node ends depends on the paths alone, so equal documents give equal bytes and one hash,
whatever the order of edits and whichever storage keeps them (C-029). Everything here is a
function of values; the caller hands in how to load a node and stores the new ones.

`model/nodes.py` holds the format: what a node's bytes are and where it ends.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Final, Literal, NamedTuple, TypeAlias

from muniment.model.errors import Conflict, Malformed
from muniment.model.nodes import (
    EMPTY_NODE,
    EMPTY_TREE,
    NODE_ROWS_MAX,
    LoadNode,
    Node,
    Reader,
    Row,
    TreeHash,
    Weaver,
    forgetful,
    level_of,
    sums,
    walk,
    write_node,
)

__all__ = [
    "ANY",
    "EMPTY_NODE",
    "EMPTY_TREE",
    "NODE_ROWS_MAX",
    "Anything",
    "Applied",
    "Change",
    "Entry",
    "LoadNode",
    "Mode",
    "Move",
    "Put",
    "Remove",
    "Totals",
    "TreeHash",
    "apply",
    "build",
    "find",
    "prove",
    "scan",
    "totals",
]


class Anything(Enum):
    """The type of `ANY`."""

    ANY = "any"


ANY: Final = Anything.ANY
"""The expectation that whatever is there now, or nothing, is fine."""

Mode: TypeAlias = Literal["", "x", "l"]
"""What a FileTree's entry is: a plain file, as in every store, an executable or a link."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One document of a tree: its path, its content's SHA-256 and its content's length in bytes."""

    path: str
    blob: bytes
    size: int
    mode: Mode = ""


@dataclass(frozen=True, slots=True)
class Put:
    """Write `blob` at `path`. `expected` is the blob there now; None where there must be none."""

    path: str
    blob: bytes
    size: int
    expected: bytes | Literal[Anything.ANY] | None
    mode: Mode = ""


@dataclass(frozen=True, slots=True)
class Remove:
    """Take the document at `path` away. There must be one, and `expected` is its blob."""

    path: str
    expected: bytes | Literal[Anything.ANY]


@dataclass(frozen=True, slots=True)
class Move:
    """Take `source` to `target`. `expected` is the blob at `source`; `target` must be free."""

    source: str
    target: str
    expected: bytes | Literal[Anything.ANY]


Change: TypeAlias = Put | Remove | Move


class Totals(NamedTuple):
    """How many documents there are, and their contents' bytes in all."""

    documents: int
    size: int


@dataclass(frozen=True, slots=True)
class Applied:
    """A tree that was made: its hash, the nodes to store and its totals.

    `nodes` are the encoded nodes that the tree has and the one before it had not, by hash.
    `before` holds, for each change, the entry that was at its path (a Move's: at its source).
    """

    root: TreeHash
    nodes: dict[TreeHash, bytes]
    documents: int
    size: int
    before: tuple[Entry | None, ...] = ()


async def apply(root: TreeHash, changes: Sequence[Change], load: LoadNode) -> Applied:
    """The tree after `changes`, all of them or none; the same tree as a rebuild from scratch.

    No path may be touched twice (Malformed), so each expectation is about the tree at `root` and
    the order of the changes decides only which failure is reported first. Conflict, with `path`
    and `current_sha256` (None where nothing is there), where an expectation fails; Conflict, with
    `path` and `other`, where a document would lie below another document (R-18). Each node is
    loaded at most once. A change that changes nothing is fine: the root stays (R-20).
    """
    reader = Reader(load)
    batch = _Batch(root, reader)
    before = [await batch.decide(change) for change in changes]
    for path, low, high in batch.inserted:
        await batch.check_folders(path, low, high)
    height, rows = await reader.fetch(root)
    if not batch.edits:
        return Applied(root, {}, *sums(height, rows), tuple(before))
    if len(batch.edits) == 1:
        edited = _edit_leaf(root, *next(iter(batch.edits.items())), reader.nodes)
        if edited is not None:
            return Applied(*edited, tuple(before))
    weaver = Weaver(reader.nodes, height)
    await _Rewriting(sorted(batch.edits.items()), reader, weaver).visit(root, rightmost=True)
    return Applied(*await weaver.finish(reader), tuple(before))


async def build(entries: Iterable[Entry]) -> Applied:
    """The tree of `entries`, which come in ascending order of path; every node is in `nodes`.

    Malformed where a path is not greater than the one before it; Conflict, with `path` and
    `other`, where a document lies below another document (R-18).
    """
    weaver = Weaver({}, 0)
    previous = ""
    outer: list[str] = []
    for entry in entries:
        path = entry.path
        if path <= previous:
            raise Malformed(f"entries must ascend by path: {path} came after {previous}", path=path)
        # Every document whose name the path continues: only those can be a folder above it, and
        # the innermost is the only one not yet compared.
        while outer and not path.startswith(outer[-1]):
            outer.pop()
        if outer and path[len(outer[-1])] == "/":
            raise _folder_conflict(path, outer[-1])
        outer.append(path)
        weaver.add(0, _row(entry))
        previous = path
    return Applied(*await weaver.finish(Reader(_no_nodes)))


async def find(root: TreeHash, path: str, load: LoadNode) -> Entry | None:
    """The entry at `path`, or None. Loads one node a level.

    Over the nodes of `prove`, with a `load` that checks each hash, this is the verification of a
    proof, of presence as of absence.
    """
    row, _, _ = await Reader(load).locate(root, path)
    return None if row is None else Entry(*row)


async def prove(root: TreeHash, path: str, load: LoadNode) -> list[bytes]:
    """The encoded nodes from the root to the leaf that holds `path`, or would hold it."""
    proof: list[bytes] = []

    async def remember(digest: bytes) -> bytes:
        data = await load(digest)
        proof.append(data)
        return data

    await Reader(remember).locate(root, path)
    return proof or [EMPTY_NODE]


async def scan(
    root: TreeHash, load: LoadNode, *, after: str | None = None, prefix: str = ""
) -> AsyncIterator[Entry]:
    """The entries in ascending order of path, greater than `after`, that begin with `prefix`.

    A node is loaded when the first entry below it is asked for: the first costs one node a level.
    """
    start = prefix if after is None else max(after, prefix)
    async for row in walk(root, start, forgetful(load)):
        if not row[0].startswith(prefix):
            return
        if row[0] != after:
            yield Entry(*row)


async def totals(root: TreeHash, load: LoadNode, *, prefix: str = "") -> Totals:
    """The documents whose path begins with `prefix`, counted from at most two nodes a level."""
    documents = size = 0
    node = forgetful(load)
    waiting: list[tuple[bytes, bool]] = [(root, prefix == "")]
    while waiting:
        digest, clear = waiting.pop()
        level, rows = await node(digest)
        first = bisect_left(rows, (prefix,))
        for at in range(first, len(rows)):
            row = rows[at]
            inside = row[0].startswith(prefix)
            # Nothing below the child comes before `prefix`: it follows one that ends there.
            clear = clear or at > first
            if level == 0 and inside:
                documents += 1
                size += row[2]
            elif inside and clear:
                documents += row[2]
                size += row[3]
            elif level:
                waiting.append((row[1], clear))
            if not inside:
                break
    return Totals(documents, size)


def _row(entry: Entry | Put) -> Row:
    if entry.mode:
        return (entry.path, entry.blob, entry.size, entry.mode)
    return (entry.path, entry.blob, entry.size)


async def _no_nodes(digest: bytes) -> bytes:
    raise AssertionError("a tree built from scratch has nothing to load")


class _Batch:
    """What a batch of changes asks of one tree: the rows to write, by path, if all may happen."""

    __slots__ = ("edits", "inserted", "reader", "root", "touched")

    def __init__(self, root: bytes, reader: Reader) -> None:
        self.root = root
        self.reader = reader
        self.touched: set[str] = set()
        self.edits: dict[str, Row | None] = {}
        self.inserted: list[tuple[str, str | None, str | None]] = []

    async def decide(self, change: Change) -> Entry | None:
        """Checks one change's expectation and takes it up; the entry that was there before."""
        if isinstance(change, Put):
            current = await self.take(change.path, change.expected)
            row = _row(change)
            if current != row:
                self.edits[change.path] = row
        elif isinstance(change, Remove):
            current = await self.take(change.path, change.expected)
            if current is None:
                raise _expectation_conflict(change.path, change.expected, None)
            self.edits[change.path] = None
        else:
            current = await self.take(change.source, change.expected)
            if current is None:
                raise _expectation_conflict(change.source, change.expected, None)
            await self.take(change.target, None)
            self.edits[change.source] = None
            self.edits[change.target] = (change.target, *current[1:])
        return None if current is None else Entry(*current)

    async def take(self, path: str, expected: bytes | Literal[Anything.ANY] | None) -> Row | None:
        """The row at `path`, claimed for one change; Conflict where it is not as expected."""
        if path in self.touched:
            raise Malformed(f"two changes touch {path}; a batch may touch a path once", path=path)
        self.touched.add(path)
        row, low, high = await self.reader.locate(self.root, path)
        if row is None:
            if expected is not None and expected is not ANY:
                raise _expectation_conflict(path, expected, None)
            self.inserted.append((path, low, high))
        elif expected is not ANY and row[1] != expected:
            raise _expectation_conflict(path, expected, row[1])
        return row

    async def check_folders(self, path: str, low: str | None, high: str | None) -> None:
        """Conflict where `path`, not yet there and between `low` and `high`, has a document above
        or below it once the batch is applied.

        The tree at hand keeps the rule, and the paths below a folder are neighbours in its order:
        where `low` or `high` lies below the folder, the folder is no document.
        """
        at = path.rfind("/")
        while at > 0:
            folder, prefix = path[:at], path[: at + 1]
            if folder in self.edits:
                if self.edits[folder] is not None:
                    raise _folder_conflict(path, folder)
            elif (high is not None and high.startswith(prefix)) or (
                low is not None and low.startswith(prefix)
            ):
                if len(self.edits) == 1:
                    break
            else:
                row, _, _ = await self.reader.locate(self.root, folder)
                if row is not None:
                    raise _folder_conflict(path, folder)
            at = path.rfind("/", 0, at)
        prefix = path + "/"
        if high is None or (high > prefix and not high.startswith(prefix)):
            return
        async for row in walk(self.root, prefix, self.reader.fetch):
            if not row[0].startswith(prefix):
                return
            if self.edits.get(row[0], row) is not None:
                raise _folder_conflict(row[0], path)


def _expectation_conflict(path: str, expected: object, current: bytes | None) -> Conflict:
    if current is None:
        return Conflict(f"there is no document at {path}", path=path, current_sha256=None)
    there = current.hex()
    if expected is None:
        message = f"{path} exists: send its current hash, {there}, to replace it"
    else:
        message = f"the document at {path} has another content, with sha256 {there}"
    return Conflict(message, path=path, current_sha256=there)


def _folder_conflict(below: str, above: str) -> Conflict:
    return Conflict(
        f"{above} and {below} cannot both be documents: one is a folder of the other",
        path=below,
        other=above,
    )


def _edit_leaf(
    root: bytes, path: str, new: Row | None, nodes: dict[bytes, Node]
) -> tuple[TreeHash, dict[TreeHash, bytes], int, int] | None:
    """One edit, quickly, where no node ends elsewhere than before; None where one might.

    That is the usual write: it keeps the last path of its leaf and adds none that ends one, so
    each node from the leaf to the root differs in one row. The answer is Applied's first fields.
    """
    way: list[tuple[int, list[Row], int]] = []
    digest = root
    while True:
        level, rows = nodes[digest]
        at = bisect_left(rows, (path,))
        if at == len(rows):
            return None
        way.append((level, rows, at))
        if level == 0:
            break
        digest = rows[at][1]
    old = rows[at] if rows[at][0] == path else None
    if new is None or old is None:
        if at == len(rows) - 1 and new is None:
            return None
        if old is None and (level_of(path) or len(rows) >= NODE_ROWS_MAX):
            return None
    documents = (new is not None) - (old is not None)
    size = (0 if new is None else new[2]) - (0 if old is None else old[2])
    rows = rows[:at] + ([] if new is None else [new]) + rows[at if old is None else at + 1 :]
    made: dict[TreeHash, bytes] = {}
    while True:
        data = write_node((level, rows))
        digest = TreeHash(sha256(data).digest())
        made[digest] = data
        way.pop()
        if not way:
            break
        level, above, at = way[-1]
        last, _, below, bytes_below = above[at]
        rows = above.copy()
        rows[at] = (last, digest, below + documents, bytes_below + size)
    return digest, made, *sums(level, rows)


class _Rewriting:
    """One pass over a tree that hands the rows with `edits` merged in to a weaver.

    Subtrees without edits are handed on as one row, unless rows wait below them: where a path
    that ended a node was removed, the node joins the next one.
    """

    __slots__ = ("at", "edits", "reader", "weaver")

    def __init__(self, edits: list[tuple[str, Row | None]], reader: Reader, weaver: Weaver) -> None:
        self.edits = edits
        self.reader = reader
        self.weaver = weaver
        self.at = 0

    async def visit(self, digest: bytes, *, rightmost: bool) -> None:
        """Hands on a node's rows. The rightmost node of a level takes all edits that are left."""
        level, rows = self.reader.nodes.get(digest) or await self.reader.fetch(digest)
        if level == 0:
            self.merge(rows, rightmost)
            return
        last = len(rows) - 1
        at = 0
        while at <= last:
            if not self.weaver.pending(level):
                stop = self.untouched(rows, at, rightmost)
                if stop > last:
                    self.hand_on(level, rows[at:], rightmost)
                    return
                self.weaver.open[level] += rows[at:stop]
                at = stop
            await self.visit(rows[at][1], rightmost=rightmost and at == last)
            at += 1

    def untouched(self, rows: list[Row], at: int, rightmost: bool) -> int:
        """The index, from `at`, of the first row that the next edit falls below."""
        if self.at == len(self.edits):
            return len(rows)
        found = bisect_left(rows, (self.edits[self.at][0],), at)
        return min(found, len(rows) - 1) if rightmost else found

    def merge(self, rows: list[Row], rightmost: bool) -> None:
        """Hands on a leaf's rows with the edits that fall among them."""
        edits, weaver = self.edits, self.weaver
        at = 0
        while self.at < len(edits) and (rightmost or edits[self.at][0] <= rows[-1][0]):
            path, row = edits[self.at]
            stop = bisect_left(rows, (path,), at)
            if stop == len(rows):
                self.hand_on(0, rows[at:], rightmost)
            else:
                weaver.open[0] += rows[at:stop]
            at = stop + 1 if stop < len(rows) and rows[stop][0] == path else stop
            if row is not None:
                weaver.add(0, row)
            self.at += 1
        self.hand_on(0, rows[at:], rightmost)

    def hand_on(self, level: int, rows: list[Row], rightmost: bool) -> None:
        """Hands on the last rows of a node as they are: only the very last can end it."""
        if not rows:
            return
        self.weaver.open[level] += rows
        if not rightmost or level_of(rows[-1][0]) > level:
            self.weaver.end(level)
