"""The tree: an ordered Merkle map from path to (blob, size); the format is design/tree.md's.

Where a node ends depends on the paths alone, so equal documents give equal bytes and one hash,
whatever the order of edits and whichever storage keeps them (C-029). Everything here is a
function of values; the caller hands in how to load a node and stores the new ones.

Paths are compared as `str`: code-point order is the order of their UTF-8 bytes, for every text
without lone surrogates, and no path has those (`paths.check_path`). A row is a tuple that begins
with its path, so `bisect_left(rows, (path,))` finds the first row at or after a path.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Any, Final, Literal, NamedTuple, NewType, TypeAlias

import msgspec

from muniment.model.errors import Conflict, Malformed

TreeHash = NewType("TreeHash", bytes)
"""The raw 32 bytes of a node's SHA-256; a tree is named by its root's. Hex only at the edge."""

LoadNode: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Answers a node's bytes for its hash. The caller has verified that they hash to it."""

NODE_ROWS_MAX = 1024
"""A node with more rows is refused (R-20): only paths mined for the purpose make one."""

EMPTY_NODE: Final = b"\x92\x00\x90"
EMPTY_TREE: Final = TreeHash(sha256(EMPTY_NODE).digest())
"""The tree without documents. It is never loaded and never among the new nodes."""


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
    reader = _Reader(load)
    batch = _Batch(root, reader)
    before = [await batch.decide(change) for change in changes]
    for path, low, high in batch.inserted:
        await batch.check_folders(path, low, high)
    height, _ = await reader.fetch(root)
    weaver = _Weaver(reader.nodes, height)
    await _Rewriting(sorted(batch.edits.items()), reader, weaver).visit(root, rightmost=True)
    return await weaver.finish(reader, tuple(before))


async def build(entries: Iterable[Entry]) -> Applied:
    """The tree of `entries`, which come in ascending order of path; every node is in `nodes`.

    Malformed where a path is not greater than the one before it; Conflict, with `path` and
    `other`, where a document lies below another document (R-18).
    """
    weaver = _Weaver({}, 0)
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
    return await weaver.finish(_Reader(_no_nodes), ())


async def find(root: TreeHash, path: str, load: LoadNode) -> Entry | None:
    """The entry at `path`, or None. Loads one node a level.

    Over the nodes of `prove`, with a `load` that checks each hash, this is the verification of a
    proof, of presence as of absence.
    """
    row, _, _ = await _Reader(load).locate(root, path)
    return None if row is None else Entry(*row)


async def prove(root: TreeHash, path: str, load: LoadNode) -> list[bytes]:
    """The encoded nodes from the root to the leaf that holds `path`, or would hold it."""
    proof: list[bytes] = []

    async def remember(digest: bytes) -> bytes:
        data = await load(digest)
        proof.append(data)
        return data

    await _Reader(remember).locate(root, path)
    return proof or [EMPTY_NODE]


async def scan(
    root: TreeHash, load: LoadNode, *, after: str | None = None, prefix: str = ""
) -> AsyncIterator[Entry]:
    """The entries in ascending order of path, greater than `after`, that begin with `prefix`.

    A node is loaded when the first entry below it is asked for: the first costs one node a level.
    """
    start = prefix if after is None else max(after, prefix)
    async for row in _walk(root, start, _forgetful(load)):
        if not row[0].startswith(prefix):
            return
        if row[0] != after:
            yield Entry(*row)


async def totals(root: TreeHash, load: LoadNode, *, prefix: str = "") -> Totals:
    """The documents whose path begins with `prefix`, counted from at most two nodes a level."""
    documents = size = 0
    waiting: list[bytes] = [root]
    node = _forgetful(load)
    while waiting:
        level, rows = await node(waiting.pop())
        first = bisect_left(rows, (prefix,))
        for at in range(first, len(rows)):
            row = rows[at]
            inside = row[0].startswith(prefix)
            if level == 0 and inside:
                documents += 1
                size += row[2]
            elif inside and (at > first or prefix == ""):
                # The child before it ends at or after `prefix`, so all of this child begins so.
                documents += row[2]
                size += row[3]
            elif level:
                waiting.append(row[1])
            if not inside:
                break
    return Totals(documents, size)


def level_of(path: str) -> int:
    """The trailing zero digits of the path's hexadecimal SHA-256: the levels at which it ends."""
    digest = sha256(path.encode()).digest()
    if digest[31] & 15:
        return 0
    return 64 - len(digest.hex().rstrip("0"))


def read_node(data: bytes) -> tuple[int, list[tuple[Any, ...]]]:
    """A node's level and rows: (path, blob, size[, mode]) in a leaf, else (last path, node hash,
    documents, bytes), ascending.
    """
    return _decode(data)


Row: TypeAlias = tuple[Any, ...]
Node: TypeAlias = tuple[int, list[Row]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, list[tuple[Any, ...]]]).decode


def _row(entry: Entry) -> Row:
    if entry.mode:
        return (entry.path, entry.blob, entry.size, entry.mode)
    return (entry.path, entry.blob, entry.size)


class _Reader:
    """Loads and decodes nodes, each once; lives as long as one call."""

    __slots__ = ("load", "nodes")

    def __init__(self, load: LoadNode) -> None:
        self.load = load
        self.nodes: dict[bytes, Node] = {EMPTY_TREE: (0, [])}

    async def fetch(self, digest: bytes) -> Node:
        node = self.nodes.get(digest)
        if node is None:
            node = self.nodes[digest] = _decode(await self.load(digest))
        return node

    async def locate(self, root: bytes, path: str) -> tuple[Row | None, str | None, str | None]:
        """The row at `path`; or None, the greatest path below it and the least above it."""
        low = None
        digest = root
        while True:
            level, rows = self.nodes.get(digest) or await self.fetch(digest)
            at = bisect_left(rows, (path,))
            if at:
                low = rows[at - 1][0]
            if level == 0:
                break
            digest = rows[at][1] if at < len(rows) else rows[-1][1]
        if at == len(rows):
            return None, low, None
        row = rows[at]
        return (row, None, None) if row[0] == path else (None, low, row[0])


async def _no_nodes(digest: bytes) -> bytes:
    raise AssertionError("a tree built from scratch has nothing to load")


def _forgetful(load: LoadNode) -> Callable[[bytes], Awaitable[Node]]:
    """A node's level and rows by its hash, not kept: a scan holds one node a level."""

    async def node(digest: bytes) -> Node:
        return (0, []) if digest == EMPTY_TREE else _decode(await load(digest))

    return node


async def _walk(
    root: bytes, start: str, node: Callable[[bytes], Awaitable[Node]]
) -> AsyncIterator[Row]:
    """The leaf rows from the first path that is not less than `start`."""
    level, rows = await node(root)
    stack = [(level, rows, bisect_left(rows, (start,)))]
    while stack:
        level, rows, at = stack.pop()
        if level == 0:
            for row in rows[at:]:
                yield row
        elif at < len(rows):
            stack.append((level, rows, at + 1))
            level, below = await node(rows[at][1])
            stack.append((level, below, bisect_left(below, (start,))))


class _Batch:
    """What a batch of changes asks of one tree: the rows to write, by path, if all may happen."""

    __slots__ = ("edits", "inserted", "reader", "root", "touched")

    def __init__(self, root: bytes, reader: _Reader) -> None:
        self.root = root
        self.reader = reader
        self.touched: set[str] = set()
        self.edits: dict[str, Row | None] = {}
        self.inserted: list[tuple[str, str | None, str | None]] = []

    async def decide(self, change: Change) -> Entry | None:
        """Checks one change's expectation and takes it up; the entry that was there before."""
        if isinstance(change, Put):
            current = await self.take(change.path, change.expected, change.expected is None)
            row = _row(Entry(change.path, change.blob, change.size, change.mode))
            if current != row:
                self.edits[change.path] = row
        elif isinstance(change, Remove):
            current = await self.take(change.path, change.expected, False)
            if current is None:
                raise _expectation_conflict(change.path, change.expected, None)
            self.edits[change.path] = None
        else:
            current = await self.take(change.source, change.expected, False)
            if current is None:
                raise _expectation_conflict(change.source, change.expected, None)
            await self.take(change.target, None, True)
            self.edits[change.source] = None
            self.edits[change.target] = (change.target, *current[1:])
        return None if current is None else Entry(*current)

    async def take(
        self, path: str, expected: bytes | Literal[Anything.ANY] | None, free: bool
    ) -> Row | None:
        """The row at `path`, claimed for one change; Conflict where it is not as expected."""
        if path in self.touched:
            raise Malformed(f"two changes touch {path}; a batch may touch a path once", path=path)
        self.touched.add(path)
        row, low, high = await self.reader.locate(self.root, path)
        if row is None:
            if expected is not None and expected is not ANY:
                raise _expectation_conflict(path, expected, None)
            self.inserted.append((path, low, high))
        elif expected is not ANY and (free or row[1] != expected):
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
            elif folder not in self.touched:
                row, _, _ = await self.reader.locate(self.root, folder)
                if row is not None:
                    raise _folder_conflict(path, folder)
            at = path.rfind("/", 0, at)
        prefix = path + "/"
        if high is None or (high > prefix and not high.startswith(prefix)):
            return
        async for row in _walk(self.root, prefix, self.reader.fetch):
            if not row[0].startswith(prefix):
                return
            if self.edits.get(row[0], row) is not None:
                raise _folder_conflict(row[0], path)


def _expectation_conflict(path: str, expected: object, current: bytes | None) -> Conflict:
    if current is None:
        return Conflict(f"there is no document at {path}", path=path, current_sha256=None)
    there = current.hex()
    if expected is None:
        message = f"there is a document at {path} already, with sha256 {there}"
    else:
        message = f"the document at {path} has another content, with sha256 {there}"
    return Conflict(message, path=path, current_sha256=there)


def _folder_conflict(below: str, above: str) -> Conflict:
    return Conflict(
        f"{above} and {below} cannot both be documents: one is a folder of the other",
        path=below,
        other=above,
    )


class _Weaver:
    """Rows go in, in order, level by level; nodes come out wherever the paths say one ends."""

    __slots__ = ("known", "nodes", "open", "single")

    def __init__(self, known: dict[bytes, Node], height: int) -> None:
        self.known = known
        self.nodes: dict[TreeHash, bytes] = {}
        self.open: list[list[Row]] = [[] for _ in range(height + 1)]
        """For each level the rows after the last node that has ended there."""
        self.single: dict[bytes, Row] = {}
        """The inner nodes of one row, which a root must not be."""

    def add(self, level: int, row: Row) -> None:
        """Adds a row of `level`, and ends its node where its path does."""
        self.open[level].append(row)
        if level_of(row[0]) > level:
            self.end(level)

    def end(self, level: int) -> None:
        """Ends the node of the open rows of `level`: it is a row of the next level."""
        rows = self.open[level]
        if len(rows) > NODE_ROWS_MAX:
            raise Malformed(
                f"a tree node has at most {NODE_ROWS_MAX} rows; these paths would make one of"
                f" {len(rows)}",
                path=rows[-1][0],
                limit=NODE_ROWS_MAX,
            )
        self.open[level] = []
        data = _encode((level, rows))
        digest = TreeHash(sha256(data).digest())
        if digest not in self.known:
            self.nodes[digest] = data
        documents = len(rows) if level == 0 else sum([row[2] for row in rows])
        row = (rows[-1][0], digest, documents, sum([row[2 if level == 0 else 3] for row in rows]))
        if level and len(rows) == 1:
            self.single[digest] = rows[0]
        if level + 1 == len(self.open):
            self.open.append([])
        self.add(level + 1, row)

    def pending(self, level: int) -> bool:
        """Whether a row below `level` waits for the next node to join it."""
        return any(self.open[:level])

    async def finish(self, reader: _Reader, before: tuple[Entry | None, ...]) -> Applied:
        """Ends the last node of each level, up to the level with one node: the root."""
        if not any(self.open):
            return Applied(EMPTY_TREE, {}, 0, 0, before)
        level = 0
        while level == 0 or len(self.open[level]) != 1 or any(self.open[level + 1 :]):
            if self.open[level]:
                self.end(level)
            level += 1
        row = self.open[level][0]
        # Rows that end at many levels make nodes of one row above the root; and where all but one
        # subtree was removed, that subtree may begin with such nodes itself.
        while True:
            below = self.single.get(row[1])
            if below is None and row[1] not in self.nodes:
                height, rows = await reader.fetch(row[1])
                below = rows[0] if height and len(rows) == 1 else None
            if below is None:
                break
            self.nodes.pop(row[1], None)
            row = below
        return Applied(row[1], self.nodes, row[2], row[3], before)


class _Rewriting:
    """One pass over a tree that hands the rows with `edits` merged in to a weaver.

    Subtrees without edits are handed on as one row, unless rows wait below them: where a path
    that ended a node was removed, the node joins the next one.
    """

    __slots__ = ("at", "edits", "reader", "weaver")

    def __init__(
        self, edits: list[tuple[str, Row | None]], reader: _Reader, weaver: _Weaver
    ) -> None:
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
