"""Trees for the tests of the model: a node store in a dict that counts what is loaded."""

from collections.abc import Coroutine
from hashlib import sha256
from typing import Any, TypeVar

from muniment.model.nodes import read_node
from muniment.model.tree import EMPTY_TREE, Applied, Entry, TreeHash, build

T = TypeVar("T")

MINED = {
    3: [1729, 2924, 8831, 9634, 11929, 12949, 19131, 22459],
    4: [8189, 119258, 128473, 202796, 402933, 513478],
    5: [232112, 1617442, 2436371, 2519278],
    6: [308598, 3366885],
}
"""Numbers n for which the path `/d{n}` has the level: chance seldom makes such paths."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    raise AssertionError("the coroutine waits")


def entry(path: str, content: str) -> Entry:
    """A document's entry."""
    data = content.encode()
    return Entry(path, sha256(data).digest(), len(data))


def gen(count: int) -> dict[str, Entry]:
    """The documents `gen(n)` of docs/tree.md."""
    paths = [f"/notes/{i % 37:02}/topic-{i:05}.md" for i in range(count)]
    return {path: entry(path, f"note {i}\n") for i, path in enumerate(paths)}


def rebuilt(documents: dict[str, Entry]) -> Applied:
    """The tree of the documents, from scratch."""
    return run(build([documents[path] for path in sorted(documents, key=str.encode)]))


class Nodes:
    """Keeps nodes by hash and counts loads; refuses to load the empty tree, which nobody stores."""

    def __init__(self, *trees: Applied) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.loaded: list[bytes] = []
        for tree in trees:
            self.keep(tree)

    def keep(self, tree: Applied) -> TreeHash:
        for digest, data in tree.nodes.items():
            assert sha256(data).digest() == digest
        self.kept.update(tree.nodes)
        return tree.root

    async def load(self, digest: bytes) -> bytes:
        assert digest != EMPTY_TREE
        self.loaded.append(digest)
        return self.kept[digest]

    def reach(self, root: bytes) -> set[bytes]:
        """The hashes of all nodes of a tree that are stored."""
        found: set[bytes] = set()
        waiting = [root] if root != EMPTY_TREE else []
        while waiting:
            digest = waiting.pop()
            found.add(digest)
            level, rows = read_node(self.kept[digest])
            if level:
                waiting += [row[1] for row in rows]
        return found


def paths_of_every_level() -> list[str]:
    """Paths that end nodes far more often than chance would have it: at levels 0 to 6."""
    mined = [f"/d{number}" for numbers in MINED.values() for number in numbers]
    return sorted({f"/d{number}" for number in range(200)}.union(level_one(), mined))


def level_one() -> list[str]:
    """Paths that end a leaf."""
    from_numbers = (f"/d{number}" for number in range(200, 2000))
    return [p for p in from_numbers if sha256(p.encode()).hexdigest().endswith("0")]
