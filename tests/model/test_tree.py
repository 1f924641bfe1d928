import random
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.trees import MINED, Nodes, entry, gen, paths_of_every_level, rebuilt, run
from muniment.model.errors import Conflict, Malformed
from muniment.model.nodes import NODE_ROWS_MAX, level_of, read_node
from muniment.model.tree import (
    ANY,
    EMPTY_NODE,
    EMPTY_TREE,
    Applied,
    Change,
    Entry,
    Move,
    Put,
    Remove,
    Totals,
    TreeHash,
    apply,
    build,
    find,
    prove,
    scan,
    totals,
)

PATHS = paths_of_every_level()
Model = dict[str, Entry]


def of(**documents: str) -> Model:
    return {path: entry(path, content) for path, content in documents.items()}


def edited(documents: Model) -> Model:
    documents = dict(documents)
    del documents["/notes/00/topic-00000.md"]
    for path, content in (("/notes/05/topic-00005.md", "changed\n"), ("/added.md", "added\n")):
        documents[path] = entry(path, content)
    return documents


VECTORS = [
    ("none", {}, 1, 0, "e53bd4ecd7ae0201c7312ef3a9f78bae2bad2babd9ac86fa98d9578f367e9928"),
    (
        "one",
        of(**{"/a.md": "hello\n"}),
        1,
        0,
        "c1a755a82d0939e89874ab8890f38ae5b157a0fb139f972369235456dc084eaf",
    ),
    (
        "three",
        of(**{"/a.md": "1", "/b/c.md": "2", "/b/d.md": "3"}),
        1,
        0,
        "5a0383f95f04c11386d284eac515a0a0deb1f9bb65387c6df9753b9af4920f09",
    ),
    (
        "unicode",
        of(**{"/é.md": "café", "/日本/語.md": "記憶", "/z.md": ""}),
        1,
        0,
        "8819a99b0bb782bb62194aa5f3887f24bb7f434e67887bd3704c6bb0a2db21d7",
    ),
    ("100", gen(100), 6, 1, "94786fb87e7e44e065c56c53a5060f75ccc0b8fa8d2aa4f474fa4359ccf3fe3f"),
    ("1000", gen(1000), 70, 3, "8bb5941ed91335f0a2ef3860f14c1ef9bb6e1db39960dc870551911605fe33f2"),
    (
        "1000 edited",
        edited(gen(1000)),
        70,
        3,
        "c85555d972a3d4977694bf7942da0ee2ea515c723a4c37ab0cfe2f1fa23416dc",
    ),
    (
        "10000",
        gen(10_000),
        693,
        3,
        "3ceb5cf18932d55397c9e560a3499401f319224fd0e21c6affbadda244ed87ba",
    ),
]


@pytest.mark.parametrize(
    ("documents", "nodes", "level", "wanted"),
    [vector[1:] for vector in VECTORS],
    ids=[vector[0] for vector in VECTORS],
)
def test_the_vectors_of_the_format_hold_c029(
    documents: Model, nodes: int, level: int, wanted: str
) -> None:
    tree = rebuilt(documents)
    assert tree.root.hex() == wanted
    assert (tree.documents, tree.size) == (len(documents), sum(e.size for e in documents.values()))
    kept = {EMPTY_TREE: EMPTY_NODE} | tree.nodes if tree.root == EMPTY_TREE else tree.nodes
    assert len(kept) == nodes
    assert read_node(kept[tree.root])[0] == level
    # One by one, in an order that is not the tree's.
    if len(documents) <= 1000:
        shuffled = list(documents.values())
        random.Random(1).shuffle(shuffled)
        nodes_by_hash, root = Nodes(), EMPTY_TREE
        for item in shuffled:
            change = Put(item.path, item.blob, item.size, None)
            root = nodes_by_hash.keep(run(apply(root, [change], nodes_by_hash.load)))
        assert root == tree.root


def test_an_edit_of_gen_1000_gives_the_vector_c029() -> None:
    tree = rebuilt(gen(1000))
    changed, added = entry("/x", "changed\n"), entry("/x", "added\n")
    changes = [
        Remove("/notes/00/topic-00000.md", ANY),
        Put("/notes/05/topic-00005.md", changed.blob, changed.size, ANY),
        Put("/added.md", added.blob, added.size, None),
    ]
    after = run(apply(tree.root, changes, Nodes(tree).load))
    assert after.root.hex().startswith("c85555d972a3d497")


def test_the_bytes_of_the_one_document_leaf_are_as_written_c029() -> None:
    tree = rebuilt({"/a.md": entry("/a.md", "hello\n")})
    data = tree.nodes[tree.root]
    assert data[:13].hex() == "92009193a52f612e6d64c42058"
    assert data[-3:].hex() == "be0306"


def test_ordering_is_by_utf8_bytes_beyond_the_basic_plane_c029() -> None:
    paths = ["/\ue000", "/\uffff"[:1] + "\U0001f600", "/ａ", "/z"]
    assert sorted(paths) == sorted(paths, key=str.encode)


def test_levels_count_trailing_zero_digits_c029() -> None:
    for level, numbers in MINED.items():
        assert [level_of(f"/d{number}") for number in numbers] == [level] * len(numbers)
    for number in range(500):
        digest = sha256(f"/d{number}".encode()).hexdigest()
        assert level_of(f"/d{number}") == len(digest) - len(digest.rstrip("0"))


class Walk:
    """A tree that is changed batch by batch beside a dict, and compared with a rebuild."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.root: TreeHash = EMPTY_TREE
        self.model: Model = {}

    def step(self, changes: list[Change], wanted: Model) -> None:
        self.nodes.loaded.clear()
        old = self.nodes.reach(self.root)
        after = run(apply(self.root, changes, self.nodes.load))
        assert len(self.nodes.loaded) == len(set(self.nodes.loaded))
        self.nodes.keep(after)
        scratch = rebuilt(wanted)
        size = sum(item.size for item in wanted.values())
        assert after.root == scratch.root
        assert (after.documents, after.size) == (len(wanted), size)
        assert (scratch.documents, scratch.size) == (len(wanted), size)
        assert set(scratch.nodes) == self.nodes.reach(after.root)
        assert set(after.nodes) == self.nodes.reach(after.root) - old
        self.root, self.model = after.root, wanted

    def random_step(self, rnd: random.Random, pool: list[str]) -> None:
        kind = rnd.choice(["mixed", "insert", "remove", "empty", "one"])
        count = 1 if kind == "one" else rnd.randint(0, len(pool))
        paths = sorted(self.model) if kind == "empty" else rnd.sample(pool, count)
        changes: list[Change] = []
        wanted = dict(self.model)
        for path in paths:
            there = self.model.get(path)
            if there and (kind in ("remove", "empty") or (kind != "insert" and rnd.random() < 0.4)):
                target = path + "m"
                if kind == "mixed" and target not in self.model:
                    changes.append(Move(path, target, there.blob))
                    wanted[target] = Entry(target, there.blob, there.size)
                else:
                    changes.append(Remove(path, rnd.choice([ANY, there.blob])))
                del wanted[path]
            elif kind not in ("remove", "empty"):
                item = Entry(path, rnd.randbytes(32), rnd.randint(0, 102_400))
                expected = rnd.choice([ANY, there.blob if there else None])
                changes.append(Put(path, item.blob, item.size, expected))
                wanted[path] = item
        rnd.shuffle(changes)
        self.step(changes, wanted)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.dictionaries(st.sampled_from(PATHS), st.integers(0, 2), max_size=40), max_size=6)
)
def test_applied_batches_equal_a_rebuild_c029(batches: list[dict[str, int]]) -> None:
    walk = Walk()
    for batch in batches:
        changes: list[Change] = []
        wanted = dict(walk.model)
        for path, choice in batch.items():
            if choice == 0 and path in walk.model:
                changes.append(Remove(path, walk.model[path].blob))
                del wanted[path]
            else:
                wanted[path] = entry(path, str(choice))
                changes.append(Put(path, wanted[path].blob, wanted[path].size, ANY))
        walk.step(changes, wanted)


@pytest.mark.parametrize("seed", range(12))
def test_long_random_runs_equal_a_rebuild_c029(seed: int) -> None:
    rnd = random.Random(seed)
    pool = rnd.sample(PATHS, rnd.choice([5, 30, 150]))
    walk = Walk()
    for _ in range(40):
        walk.random_step(rnd, pool)


def test_removing_a_path_that_ends_a_node_joins_it_with_the_next_at_every_level_c029() -> None:
    documents = {path: entry(path, path) for path in PATHS}
    tree = rebuilt(documents)
    nodes = Nodes(tree)
    for path in PATHS:
        rest = {other: item for other, item in documents.items() if other != path}
        after = run(apply(tree.root, [Remove(path, ANY)], nodes.load))
        assert after.root == rebuilt(rest).root, path
        both = Nodes(tree, after)
        put = Put(path, documents[path].blob, documents[path].size, None)
        assert run(apply(after.root, [put], both.load)).root == tree.root


def test_a_tree_that_shrinks_to_one_document_is_a_leaf_c029() -> None:
    documents = {path: entry(path, path) for path in PATHS}
    tree = rebuilt(documents)
    for kept in ["/d308598", "/d0", "/d1729", max(PATHS), min(PATHS)]:
        changes: list[Change] = [Remove(path, ANY) for path in PATHS if path != kept]
        after = run(apply(tree.root, changes, Nodes(tree).load))
        assert after.root == rebuilt({kept: documents[kept]}).root
        assert read_node(Nodes(tree, after).kept[after.root])[0] == 0
    cleared = run(apply(tree.root, [Remove(path, ANY) for path in PATHS], Nodes(tree).load))
    assert cleared == Applied(EMPTY_TREE, {}, 0, 0, cleared.before)


def test_what_was_there_before_is_answered_for_each_change() -> None:
    tree = rebuilt(of(**{"/a": "1", "/b": "2", "/c": "3"}))
    new = entry("/x", "new")
    changes = [
        Move("/c", "/d", ANY),
        Put("/n", new.blob, new.size, None),
        Put("/b", new.blob, 3, ANY),
    ]
    after = run(apply(tree.root, changes, Nodes(tree).load))
    assert after.before == (entry("/c", "3"), None, entry("/b", "2"))
    assert run(find(after.root, "/d", Nodes(tree, after).load)) == Entry("/d", *blob_size("3"))


def blob_size(content: str) -> tuple[bytes, int]:
    item = entry("/x", content)
    return item.blob, item.size


def test_changes_that_change_nothing_leave_the_root_and_make_no_node_r20() -> None:
    tree = rebuilt(gen(100))
    item = gen(100)["/notes/05/topic-00005.md"]
    for changes in ([], [Put(item.path, item.blob, item.size, item.blob)]):
        after = run(apply(tree.root, changes, Nodes(tree).load))
        assert (after.root, after.nodes) == (tree.root, {})
        assert (after.documents, after.size) == (tree.documents, tree.size)


A, B = blob_size("1")[0], b"b" * 32
REFUSED: list[tuple[str, list[Change], str, bytes | None]] = [
    ("put over a document", [Put("/a", B, 1, None)], "/a", A),
    ("put over another content", [Put("/a", B, 1, B)], "/a", A),
    ("put over nothing", [Put("/new", B, 1, A)], "/new", None),
    ("remove another content", [Remove("/a", B)], "/a", A),
    ("remove nothing", [Remove("/new", A)], "/new", None),
    ("remove nothing whatever it is", [Remove("/new", ANY)], "/new", None),
    ("move another content", [Move("/a", "/new", B)], "/a", A),
    ("move nothing", [Move("/new", "/newer", ANY)], "/new", None),
    ("move onto a document", [Move("/a", "/f/b", A)], "/f/b", A),
    ("one of two", [Put("/ok", B, 1, None), Put("/a", B, 1, B)], "/a", A),
]


@pytest.mark.parametrize(
    ("changes", "path", "current"), [case[1:] for case in REFUSED], ids=[c[0] for c in REFUSED]
)
def test_an_expectation_that_fails_names_what_is_there(
    changes: list[Change], path: str, current: bytes | None
) -> None:
    tree = rebuilt(of(**{"/a": "1", "/f/b": "1"}))
    with pytest.raises(Conflict) as refused:
        run(apply(tree.root, changes, Nodes(tree).load))
    assert refused.value.detail["path"] == path
    assert refused.value.detail["current_sha256"] == (current.hex() if current else None)


@pytest.mark.parametrize(
    "changes",
    [
        [Put("/a", B, 1, ANY), Remove("/a", ANY)],
        [Move("/a", "/a", ANY)],
        [Move("/a", "/n", ANY), Put("/a", B, 1, None)],
        [Put("/n", B, 1, None), Move("/a", "/n", ANY)],
    ],
)
def test_two_changes_of_one_path_are_malformed(changes: list[Change]) -> None:
    tree = rebuilt(of(**{"/a": "1"}))
    with pytest.raises(Malformed):
        run(apply(tree.root, changes, Nodes(tree).load))


FOLDERS: list[tuple[list[str], list[Change], tuple[str, str] | None]] = [
    (["/a"], [Put("/a/b", B, 1, None)], ("/a/b", "/a")),
    (["/a"], [Put("/a/b/c/d", B, 1, ANY)], ("/a/b/c/d", "/a")),
    (["/a/b"], [Put("/a", B, 1, None)], ("/a/b", "/a")),
    (["/a/b/c", "/a-x", "/a.md"], [Put("/a", B, 1, None)], ("/a/b/c", "/a")),
    (["/a", "/a-x", "/a.md"], [Put("/a/b", B, 1, None)], ("/a/b", "/a")),
    ([], [Put("/a", B, 1, None), Put("/a/b", B, 1, None)], ("/a/b", "/a")),
    ([], [Put("/a/b", B, 1, None), Put("/a", B, 1, None)], ("/a/b", "/a")),
    (["/x"], [Move("/x", "/x/y", ANY)], None),
    (["/x/y"], [Move("/x/y", "/x", ANY)], None),
    (["/x/y", "/x/z"], [Move("/x/y", "/x", ANY)], ("/x/z", "/x")),
    (["/a"], [Remove("/a", ANY), Put("/a/b", B, 1, None)], None),
    (["/a"], [Put("/a/b", B, 1, None), Remove("/a", ANY)], None),
    (["/a"], [Put("/a", B, 1, ANY), Put("/a/b", B, 1, None)], ("/a/b", "/a")),
    (["/a"], [Put("/a", A, 1, A), Put("/a/b", B, 1, None)], ("/a/b", "/a")),
    (["/a/b"], [Put("/a/b", A, 1, A), Put("/a", B, 1, None)], ("/a/b", "/a")),
    (["/a/b", "/a/c"], [Remove("/a/b", ANY), Put("/a", B, 1, None)], ("/a/c", "/a")),
    (
        ["/a/b", "/a/c"],
        [Remove("/a/b", ANY), Remove("/a/c", ANY), Put("/a", B, 1, None)],
        None,
    ),
    (["/a/b"], [Put("/ab", B, 1, None), Put("/a-", B, 1, None), Put("/a/bc", B, 1, None)], None),
    (["/a"], [Put("/a-/b", B, 1, None), Put("/ab/c", B, 1, None)], None),
    (["/note.md"], [Put("/Note.md", B, 1, None)], None),
]


@pytest.mark.parametrize(("there", "changes", "wanted"), FOLDERS)
@pytest.mark.parametrize("among", [0, 300])
def test_a_file_and_a_folder_of_one_name_conflict_k6(
    there: list[str], changes: list[Change], wanted: tuple[str, str] | None, among: int
) -> None:
    documents = gen(among) | {path: entry(path, "1") for path in there}
    tree = rebuilt(documents)
    nodes = Nodes(tree)
    if wanted is None:
        run(apply(tree.root, changes, nodes.load))
        return
    with pytest.raises(Conflict) as refused:
        run(apply(tree.root, changes, nodes.load))
    assert (refused.value.detail["path"], refused.value.detail["other"]) == wanted
    assert wanted[0] in refused.value.message and wanted[1] in refused.value.message


def below_another(paths: set[str]) -> bool:
    return any(other.startswith(path + "/") for path in paths for other in paths)


NAMES = st.lists(st.sampled_from(["a", "a-", "b", "d0", "d1729"]), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.sets(NAMES.map(lambda names: "/" + "/".join(names)), max_size=12), st.data())
def test_no_result_holds_a_document_below_another_k6(paths: set[str], data: st.DataObject) -> None:
    start: set[str] = set()
    for path in sorted(paths, reverse=data.draw(st.booleans())):
        if not below_another({*start, path}):
            start.add(path)
    tree = rebuilt({path: entry(path, path) for path in start})
    removed = data.draw(st.sets(st.sampled_from(sorted(start)))) if start else set()
    added = data.draw(st.sets(st.sampled_from(sorted(paths)), max_size=3)) if paths else set()
    result = start - removed | added
    changes: list[Change] = [Remove(path, ANY) for path in sorted(removed - added)]
    changes += [Put(path, B, 1, ANY) for path in sorted(added)]
    with_order = data.draw(st.permutations(changes))
    if below_another(result):
        with pytest.raises(Conflict):
            run(apply(tree.root, with_order, Nodes(tree).load))
        in_order = [Entry(path, B, 1) for path in sorted(result)]
        with pytest.raises(Conflict):
            run(build(in_order))
    else:
        assert run(apply(tree.root, with_order, Nodes(tree).load)).documents == len(result)


def test_build_refuses_entries_out_of_order_or_twice() -> None:
    for paths in (["/b", "/a"], ["/a", "/a"]):
        with pytest.raises(Malformed):
            run(build([entry(path, "1") for path in paths]))


def test_a_node_over_1024_rows_is_refused_r20() -> None:
    numbers = (f"/mined/{number}" for number in range(100_000))
    mined = [path for path in numbers if level_of(path) == 0][: NODE_ROWS_MAX + 1]
    mined.sort()
    full = rebuilt({path: entry(path, "1") for path in mined[:-1]})
    assert len(full.nodes) == 1
    with pytest.raises(Malformed) as refused:
        run(apply(full.root, [Put(mined[-1], B, 1, None)], Nodes(full).load))
    assert refused.value.detail["limit"] == NODE_ROWS_MAX
    with pytest.raises(Malformed):
        rebuilt({path: entry(path, "1") for path in mined})


def test_executables_and_links_have_a_fourth_element_c029() -> None:
    documents = {
        "/l": Entry("/l", B, 1, "l"),
        "/p": Entry("/p", B, 1),
        "/x": Entry("/x", B, 1, "x"),
    }
    tree = rebuilt(documents)
    _, rows = read_node(tree.nodes[tree.root])
    assert [len(row) for row in rows] == [4, 3, 4]
    assert run(find(tree.root, "/x", Nodes(tree).load)) == documents["/x"]
    after = run(apply(tree.root, [Move("/l", "/m", ANY)], Nodes(tree).load))
    assert run(find(after.root, "/m", Nodes(after).load)) == Entry("/m", B, 1, "l")


def listed(
    root: TreeHash, nodes: Nodes, *, after: str | None = None, prefix: str = ""
) -> list[str]:
    async def collect() -> list[str]:
        return [e.path async for e in scan(root, nodes.load, after=after, prefix=prefix)]

    return run(collect())


def test_a_scan_is_every_entry_in_order_from_anywhere() -> None:
    documents = gen(1000)
    tree = rebuilt(documents)
    nodes = Nodes(tree)
    paths = sorted(documents)
    assert listed(tree.root, nodes) == paths
    for after in ["/", "/notes/00/topic-00000.md", paths[500], paths[-1], "/zzz"]:
        assert listed(tree.root, nodes, after=after) == [p for p in paths if p > after]
    for prefix in ["", "/notes/1", "/notes/10/", "/notes/10/topic-0001", "/nope", "/zz", "/"]:
        wanted = [p for p in paths if p.startswith(prefix)]
        assert listed(tree.root, nodes, prefix=prefix) == wanted
        for after in ["/notes/10/topic-00100.md", "/a", "/zz"]:
            below = [p for p in wanted if p > after]
            assert listed(tree.root, nodes, prefix=prefix, after=after) == below
    assert listed(EMPTY_TREE, nodes) == []


def test_a_scan_loads_one_node_a_level_for_its_first_entry() -> None:
    tree = rebuilt(gen(1000))
    nodes = Nodes(tree)

    async def first(prefix: str) -> str:
        async for found in scan(tree.root, nodes.load, prefix=prefix):
            return found.path
        raise AssertionError

    assert run(first("/notes/20/")) == "/notes/20/topic-00020.md"
    assert len(nodes.loaded) <= 5


def test_totals_of_a_folder_are_counted_from_few_nodes() -> None:
    documents = gen(10_000)
    tree = rebuilt(documents)
    for prefix in ["", "/", "/notes/07/", "/notes/2", "/notes/36/", "/nope", "/notes/07/topic-00"]:
        below = [item for path, item in documents.items() if path.startswith(prefix)]
        nodes = Nodes(tree)
        found = run(totals(tree.root, nodes.load, prefix=prefix))
        assert found == Totals(len(below), sum(item.size for item in below))
        assert len(nodes.loaded) <= 2 * 4
    assert run(totals(EMPTY_TREE, Nodes().load)) == (0, 0)


def test_a_proof_shows_that_a_path_is_or_is_not_in_a_tree() -> None:
    documents = gen(1000)
    tree = rebuilt(documents)
    nodes = Nodes(tree)
    for path in ["/notes/05/topic-00005.md", "/notes/05/none", "/", "/zzz"]:
        proof = run(prove(tree.root, path, nodes.load))
        assert sha256(proof[0]).digest() == tree.root
        assert read_node(proof[-1])[0] == 0
        by_hash = {sha256(data).digest(): data for data in proof}

        async def load(digest: bytes, by_hash: dict[bytes, bytes] = by_hash) -> bytes:
            return by_hash[digest]

        assert run(find(tree.root, path, load)) == documents.get(path)
    assert run(prove(EMPTY_TREE, "/a", nodes.load)) == [EMPTY_NODE]
    assert run(find(EMPTY_TREE, "/a", nodes.load)) is None


def test_one_change_touches_one_node_a_level_and_a_batch_each_node_once() -> None:
    documents = gen(10_000)
    tree = rebuilt(documents)
    nodes = Nodes(tree)
    run(apply(tree.root, [Put("/notes/05/topic-00005.md", B, 1, ANY)], nodes.load))
    assert len(nodes.loaded) == 4
    nodes.loaded.clear()
    run(apply(tree.root, [Put(path, B, 1, ANY) for path in documents], nodes.load))
    assert sorted(nodes.loaded) == sorted(tree.nodes)
