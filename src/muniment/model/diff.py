"""What differs between two trees, document by document, and the hash that a proposal freezes."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from operator import attrgetter
from typing import TypeAlias

import msgspec

from muniment.model.nodes import LoadNode, Reader, Row, TreeHash
from muniment.model.tree import Mode


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """A path at which two trees differ: blob, size and mode on each side, None where absent."""

    path: str
    base: bytes | None
    head: bytes | None
    base_size: int | None
    head_size: int | None
    base_mode: Mode | None = ""
    head_mode: Mode | None = ""


async def diff(base: TreeHash, head: TreeHash, load: LoadNode) -> list[DiffEntry]:
    """Where the trees differ, in ascending order of path.

    Loads each node at most once, and only nodes that the other tree has not, or that lie where
    the two have their nodes' ends at different paths: O(changes · log n).
    """
    if base == head:
        return []
    reader = Reader(load)
    left: list[_Part] = []
    right: list[_Part] = []
    await _open(base, left, reader)
    await _open(head, right, reader)
    found: list[DiffEntry] = []
    while left and right:
        (left_level, old), (right_level, new) = left[-1], right[-1]
        if left_level == right_level and old == new:
            left.pop()
            right.pop()
        elif left_level or right_level:
            if left_level >= right_level:
                await _open(left.pop()[1][1], left, reader)
            if right_level >= left_level:
                await _open(right.pop()[1][1], right, reader)
        else:
            first = min(old[0], new[0])
            before = left.pop()[1] if old[0] == first else None
            after = right.pop()[1] if new[0] == first else None
            found.append(_difference(first, before, after))
    found += [_difference(row[0], row, None) for row in await _rest(left, reader)]
    found += [_difference(row[0], None, row) for row in await _rest(right, reader)]
    return found


def diff_hash(base_revision: bytes, head_revision: bytes, entries: Iterable[DiffEntry]) -> bytes:
    """The 32 bytes that name a diff: its revisions' 16 id bytes, and each path with both blobs.

    The record is docs/tree.md's; the order of `entries` does not matter.
    """
    ordered = sorted(entries, key=attrgetter("path"))
    rows = [(entry.path, entry.base, entry.head) for entry in ordered]
    return sha256(msgspec.msgpack.encode(("diff", base_revision, head_revision, rows))).digest()


_Part: TypeAlias = tuple[int, Row]
"""A row and the level of the node it was in: at 0 a document, above that a subtree."""


async def _open(digest: bytes, parts: list[_Part], reader: Reader) -> None:
    """Puts the rows of a node on `parts`, whose last is the least."""
    level, rows = await reader.fetch(digest)
    parts += [(level, row) for row in reversed(rows)]


async def _rest(parts: list[_Part], reader: Reader) -> list[Row]:
    """Every document of `parts`, ascending."""
    rows: list[Row] = []
    while parts:
        level, row = parts.pop()
        if level == 0:
            rows.append(row)
        else:
            await _open(row[1], parts, reader)
    return rows


def _difference(path: str, old: Row | None, new: Row | None) -> DiffEntry:
    _, base, base_size, base_mode = _fields(old)
    _, head, head_size, head_mode = _fields(new)
    return DiffEntry(path, base, head, base_size, head_size, base_mode, head_mode)


def _fields(row: Row | None) -> Row:
    """Path, blob, size and mode."""
    if row is None:
        return (None, None, None, None)
    return row if len(row) == 4 else (*row, "")
