"""Whether a tree node is what docs/tree.md says, from its bytes and what is below it."""

from typing import NamedTuple

from muniment.model.nodes import NODE_ROWS_MAX, Node, Row, level_of, read_node, sums, write_node

_SHAPES = {3: (str, bytes, int), 4: (str, bytes, int, str)}
_INNER = (str, bytes, int, int)


class Below(NamedTuple):
    """What the row above a node has to say of it, and the first path below it."""

    level: int
    first: str
    last: str
    documents: int
    size: int


def read_sound(body: bytes) -> Node | str:
    """The node of these bytes, or what is wrong with them, as far as they alone can tell."""
    try:
        level, rows = node = read_node(body)
    except Exception:
        return "its bytes are no tree node"
    if write_node(node) != body:
        return "its bytes are not in canonical form"
    if not rows or len(rows) > NODE_ROWS_MAX or level < 0:
        return f"it has level {level} and {len(rows)} rows"
    for row in rows:
        if not _fits(level, row):
            return f"a row of it is not one of level {level}"
    for at, row in enumerate(rows[:-1]):
        if row[0] >= rows[at + 1][0]:
            return f"its rows do not ascend at {row[0]}"
        if level_of(row[0]) > level:
            return f"it goes on behind {row[0]}, which ends a node of level {level}"
    return level, rows


def summary(level: int, rows: list[Row], first: str) -> Below:
    """What the row above says of the node; `first` is the first path below it."""
    return Below(level, first, rows[-1][0], *sums(level, rows))


def check_row(level: int, row: Row, below: Below, before: str) -> str | None:
    """What is wrong with a row of an inner node of that level, given the node that it names.

    `before` is the last path before the row, or nothing.
    """
    if below.level != level - 1:
        return f"the node of {row[0]} has level {below.level} below level {level}"
    if row[0] != below.last or below.first <= before:
        return f"the node of {row[0]} holds other paths than its place"
    if (row[2], row[3]) != (below.documents, below.size):
        return f"the totals of {row[0]} are not those of the node below"
    return None


def _fits(level: int, row: Row) -> bool:
    kinds = _SHAPES.get(len(row)) if level == 0 else _INNER
    if kinds is None or len(row) != len(kinds):
        return False
    if not all(type(value) is kind for value, kind in zip(row, kinds, strict=True)):
        return False
    numbers = row[2:3] if level == 0 else row[2:]
    mode = level > 0 or row[3:] in ((), ("x",), ("l",))
    return len(row[1]) == 32 and min(numbers) >= 0 and mode
