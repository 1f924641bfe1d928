"""The nodes of a tree: their bytes, where they end, how they are read and how rows become them.

The format is docs/tree.md's (C-029); `model/tree.py` says what may be done with a tree.

Paths are compared as `str`: code-point order is the order of their UTF-8 bytes, for every text
without lone surrogates, and no path has those (`paths.check_path`). A row is a tuple that begins
with its path, so `bisect_left(rows, (path,))` finds the first row at or after a path.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from hashlib import sha256
from operator import itemgetter
from typing import Any, Final, NewType, TypeAlias

import msgspec

from muniment.model.errors import Malformed

TreeHash = NewType("TreeHash", bytes)
"""The raw 32 bytes of a node's SHA-256; a tree is named by its root's. Hex only at the edge."""

LoadNode: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Answers a node's bytes for its hash. The caller has verified that they hash to it."""

NODE_ROWS_MAX = 1024
"""A node with more rows is refused (R-20): only paths mined for the purpose make one."""

EMPTY_NODE: Final = b"\x92\x00\x90"
EMPTY_TREE: Final = TreeHash(sha256(EMPTY_NODE).digest())
"""The tree without documents. It is never loaded and never among the new nodes."""

Row: TypeAlias = tuple[Any, ...]
"""Of a leaf: path, blob, size and perhaps mode. Else: last path, node hash, documents, bytes."""

Node: TypeAlias = tuple[int, list[Row]]
"""A level and its rows, ascending. Nobody changes the rows of a node that was read."""

write_node = msgspec.msgpack.Encoder().encode
read_node = msgspec.msgpack.Decoder(Node).decode
_third, _fourth = itemgetter(2), itemgetter(3)


@lru_cache(maxsize=16_384)
def level_of(path: str) -> int:
    """The trailing zero digits of the path's hexadecimal SHA-256: the levels at which it ends."""
    digest = sha256(path.encode()).digest()
    if digest[31] & 15:
        return 0
    return 64 - len(digest.hex().rstrip("0"))


def sums(level: int, rows: list[Row]) -> tuple[int, int]:
    """The documents and bytes below a node."""
    if level == 0:
        return len(rows), sum(map(_third, rows))
    return sum(map(_third, rows)), sum(map(_fourth, rows))


class Reader:
    """Loads and decodes nodes, each once; lives as long as one call."""

    __slots__ = ("load", "nodes")

    def __init__(self, load: LoadNode) -> None:
        self.load = load
        self.nodes: dict[bytes, Node] = {EMPTY_TREE: (0, [])}

    async def fetch(self, digest: bytes) -> Node:
        """The node with this hash."""
        node = self.nodes.get(digest)
        if node is None:
            node = self.nodes[digest] = read_node(await self.load(digest))
        return node

    async def locate(self, root: bytes, path: str) -> tuple[Row | None, str | None, str | None]:
        """The row at `path`; or None, the greatest path below it and the least above it."""
        low = None
        digest = root
        while True:
            node = self.nodes.get(digest)
            if node is None:
                node = self.nodes[digest] = read_node(await self.load(digest))
            level, rows = node
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


def forgetful(load: LoadNode) -> Callable[[bytes], Awaitable[Node]]:
    """A node's level and rows by its hash, not kept: a scan holds one node a level."""

    async def node(digest: bytes) -> Node:
        return (0, []) if digest == EMPTY_TREE else read_node(await load(digest))

    return node


async def walk(
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


class Weaver:
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
        data = write_node((level, rows))
        digest = TreeHash(sha256(data).digest())
        if digest not in self.known:
            self.nodes[digest] = data
        if level and len(rows) == 1:
            self.single[digest] = rows[0]
        if level + 1 == len(self.open):
            self.open.append([])
        self.add(level + 1, (rows[-1][0], digest, *sums(level, rows)))

    def pending(self, level: int) -> bool:
        """Whether a row below `level` waits for the next node to join it."""
        return any(self.open[:level])

    async def finish(self, reader: Reader) -> tuple[TreeHash, dict[TreeHash, bytes], int, int]:
        """Ends the last node of each level, up to the level with one node: the root.

        Answers the root's hash, the nodes that were not known, the documents and their bytes.
        """
        if not any(self.open):
            return EMPTY_TREE, {}, 0, 0
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
                return row[1], self.nodes, row[2], row[3]
            self.nodes.pop(row[1], None)
            row = below
