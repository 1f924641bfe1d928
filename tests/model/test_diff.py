import random
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.trees import Nodes, entry, gen, paths_of_every_level, rebuilt, run
from muniment.model.diff import DiffEntry, diff, diff_hash
from muniment.model.tree import ANY, EMPTY_TREE, Change, Entry, Put, Remove, apply

PATHS = paths_of_every_level()
Model = dict[str, Entry]
VERSIONS = st.dictionaries(st.sampled_from(PATHS), st.sampled_from("xyz"), max_size=60)


def expected_diff(base: Model, head: Model) -> list[DiffEntry]:
    found = []
    for path in sorted(base.keys() | head.keys(), key=str.encode):
        old, new = base.get(path), head.get(path)
        if old == new:
            continue
        found.append(
            DiffEntry(
                path,
                old and old.blob,
                new and new.blob,
                old and old.size,
                new and new.size,
                old and old.mode,
                new and new.mode,
            )
        )
    return found


def as_changes(entries: list[DiffEntry]) -> list[Change]:
    changes: list[Change] = []
    for item in entries:
        if item.head is None:
            assert item.base is not None
            changes.append(Remove(item.path, item.base))
        else:
            assert item.head_size is not None
            changes.append(Put(item.path, item.head, item.head_size, item.base))
    return changes


@settings(max_examples=150, deadline=None)
@given(VERSIONS, VERSIONS, st.booleans())
def test_a_diff_is_what_differs_and_applied_to_the_base_gives_the_head_c029(
    left: dict[str, str], right: dict[str, str], near: bool
) -> None:
    if near:
        right = left | dict(list(right.items())[:3])
    base = {path: entry(path, content) for path, content in left.items()}
    head = {path: entry(path, content) for path, content in right.items()}
    a, b = rebuilt(base), rebuilt(head)
    nodes = Nodes(a, b)
    found = run(diff(a.root, b.root, nodes.load))
    assert len(nodes.loaded) == len(set(nodes.loaded))
    assert found == expected_diff(base, head)
    assert run(apply(a.root, as_changes(found), nodes.load)).root == b.root


def test_equal_trees_are_compared_without_loading() -> None:
    tree = rebuilt(gen(100))
    nodes = Nodes()
    assert run(diff(tree.root, tree.root, nodes.load)) == []
    assert run(diff(EMPTY_TREE, EMPTY_TREE, nodes.load)) == []


@pytest.mark.parametrize("seed", range(8))
def test_only_nodes_that_differ_or_lie_beside_those_are_loaded(seed: int) -> None:
    rnd = random.Random(seed)
    documents = gen(10_000) | {path: entry(path, "") for path in PATHS}
    tree = rebuilt(documents)
    nodes = Nodes(tree)
    changes: list[Change] = []
    for path in rnd.sample(sorted(documents), rnd.choice([1, 1, 5])):
        kind = rnd.choice(["put", "remove", "insert"])
        if kind == "put":
            changes.append(Put(path, b"b" * 32, 1, ANY))
        elif kind == "remove":
            changes.append(Remove(path, ANY))
        else:
            changes.append(Put(path + "!", b"b" * 32, 1, None))
    after = run(apply(tree.root, changes, nodes.load))
    nodes.keep(after)
    nodes.loaded.clear()
    found = run(diff(tree.root, after.root, nodes.load))
    assert len(found) == len(changes)
    # On each side a node a level and change; where ends moved, the neighbours of those.
    assert len(nodes.loaded) <= len(changes) * 2 * 4 * 3
    nodes.loaded.clear()
    assert len(run(diff(after.root, tree.root, nodes.load))) == len(changes)


def test_an_overwrite_loads_exactly_the_nodes_that_differ() -> None:
    tree = rebuilt(gen(10_000))
    nodes = Nodes(tree)
    change = Put("/notes/05/topic-00005.md", b"b" * 32, 1, ANY)
    after = run(apply(tree.root, [change], nodes.load))
    nodes.keep(after)
    nodes.loaded.clear()
    run(diff(tree.root, after.root, nodes.load))
    old, new = nodes.reach(tree.root), nodes.reach(after.root)
    assert set(nodes.loaded) == old ^ new


def test_removing_a_great_folder_leaves_the_rest_alone() -> None:
    documents = gen(10_000)
    rest = {path: item for path, item in documents.items() if "/notes/10/" not in path}
    a, b = rebuilt(documents), rebuilt(rest)
    nodes = Nodes(a, b)
    found = run(diff(a.root, b.root, nodes.load))
    assert [item.path for item in found] == sorted(documents.keys() - rest.keys())
    old, new = nodes.reach(a.root), nodes.reach(b.root)
    assert len(nodes.loaded) <= len(old ^ new) + 12


def test_a_change_of_mode_alone_is_a_difference() -> None:
    a = rebuilt({"/x": Entry("/x", b"b" * 32, 1)})
    b = rebuilt({"/x": Entry("/x", b"b" * 32, 1, "x")})
    blob = b"b" * 32
    wanted = DiffEntry("/x", blob, blob, 1, 1, "", "x")
    assert run(diff(a.root, b.root, Nodes(a, b).load)) == [wanted]


def test_the_diff_hash_is_over_the_documented_record_c029() -> None:
    base, head, one, two = b"\1" * 16, b"\2" * 16, b"1" * 32, b"2" * 32
    entries = [
        DiffEntry("/a", None, one, None, 1),
        DiffEntry("/b", one, two, 1, 1),
        DiffEntry("/é", two, None, 1, None),
    ]
    record = b"".join(
        [
            b"\x94\xa4diff\xc4\x10" + base + b"\xc4\x10" + head + b"\x93",
            b"\x93\xa2/a\xc0\xc4\x20" + one,
            b"\x93\xa2/b\xc4\x20" + one + b"\xc4\x20" + two,
            b"\x93\xa3/\xc3\xa9\xc4\x20" + two + b"\xc0",
        ]
    )
    assert diff_hash(base, head, entries) == sha256(record).digest()
    assert diff_hash(base, head, reversed(entries)) == sha256(record).digest()
    assert diff_hash(head, base, entries) != diff_hash(base, head, entries)
