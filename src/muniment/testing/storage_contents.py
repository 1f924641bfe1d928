# ruff: noqa: D102 (a test's name is its sentence)
"""Contract cases of what stores hold, one per sentence of the port."""

from hashlib import sha256

import msgspec
import pytest

from muniment.model.access import Rights, Subject
from muniment.model.documents import Document, DocumentItem
from muniment.model.ids import PoolId, StoreId
from muniment.model.revisions import CANONICAL
from muniment.model.stores import Owner, StoreRecord, StoreSummary
from muniment.storage.base import Storage, Transaction, Use
from muniment.testing.builders import (
    NOBODY,
    Builder,
    add_store,
    change_document,
    doing,
    make_home,
    put_content,
    replacing,
    write_step,
)

ORDERED = [
    "/A",
    "/B/a",
    "/a",
    "/a b",
    "/a!",
    "/a-b",
    "/a.md",
    "/a/b",
    "/a0",
    "/ab",
    "/z",
    "/é",
    "/ﬀ",
    "/\U0001f9fe",
]
"""Paths in the order of their UTF-8 bytes, which no collation and no UTF-16 order gives."""


def digest(content: bytes) -> bytes:
    """The SHA-256."""
    return sha256(content).digest()


class ObjectCases:
    """Blobs and nodes."""

    @pytest.mark.parametrize("size", [0, 1, 1_000, 300_000])
    async def test_bytes_are_kept_by_their_hash(self, storage: Storage, size: int) -> None:
        home = await make_home(storage, Builder())
        ws, pool = home.workspace, home.store.pool
        content = bytes(range(256)) * (size // 256) + b"\0" * (size % 256)

        async def fill(tx: Transaction) -> None:
            tx.put_blob(ws, pool, digest(content), content)
            tx.put_node(ws, pool, digest(b"n" + content), b"n" + content)
            assert await tx.get_blob(ws, pool, digest(content)) == content
            assert await tx.get_node(ws, pool, digest(b"n" + content)) == b"n" + content

        async def look(tx: Transaction) -> None:
            assert await tx.get_blob(ws, pool, digest(content)) == content
            assert await tx.get_node(ws, pool, digest(b"n" + content)) == b"n" + content

        await storage.write(home.store.id, fill)
        await storage.read(look)

    async def test_putting_the_same_bytes_twice_is_fine(self, storage: Storage) -> None:
        home = await make_home(storage, Builder())
        ws, pool = home.workspace, home.store.pool

        async def fill(tx: Transaction) -> None:
            for _ in range(2):
                tx.put_blob(ws, pool, digest(b"x"), b"x")
                tx.put_node(ws, pool, digest(b"x"), b"x")

        await storage.write(home.store.id, fill)
        await storage.write(home.store.id, fill)
        assert await storage.read(lambda tx: tx.get_blob(ws, pool, digest(b"x"))) == b"x"
        assert await storage.read(lambda tx: tx.get_node(ws, pool, digest(b"x"))) == b"x"

    async def test_an_absent_blob_is_none_also_where_another_pool_has_it(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, pool = home.workspace, home.store.pool
        await storage.write(None, doing(lambda tx: tx.put_blob(ws, pool, digest(b"x"), b"x")))
        other = PoolId(build.new_id("pool"))
        assert await storage.read(lambda tx: tx.get_blob(ws, pool, digest(b"y"))) is None
        assert await storage.read(lambda tx: tx.get_blob(ws, other, digest(b"x"))) is None


class StoreCases:
    """Stores and their refs."""

    async def test_a_store_is_kept_as_it_was_put(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        agent = build.owner("agent_definition", home.principal)
        row = msgspec.structs.replace(
            build.store(home.principal, owner=Owner("agent_definition", agent.id)),
            name="Größe \U0001f9fe",
            description="what we know",
            promotion_policy="proposal",
            require_distinct_reviewer=True,
            generation=3,
        )
        ws = home.workspace
        await storage.write(
            None, doing(lambda tx: tx.put_owner(ws, agent), lambda tx: tx.put_store(ws, row))
        )
        found = await storage.read(lambda tx: tx.get_store(ws, row.id, NOBODY))
        assert found is not None and found[0] == row
        absent = StoreId(build.new_id("store"))
        assert await storage.read(lambda tx: tx.get_store(ws, absent, NOBODY)) is None
        opened = await storage.read(lambda tx: tx.open_document(ws, absent, NOBODY, "/a"))
        assert opened is None

    async def test_putting_a_locked_store_replaces_its_mutable_fields(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        row = msgspec.structs.replace(
            home.store,
            name="renamed",
            description="",
            status="deleted",
            version=2,
            generation=2,
            promotion_policy="proposal",
            require_distinct_reviewer=True,
            updated_at=build.now(),
            archived_at=build.now(),
            deleted_at=build.now(),
            last_event_hash=digest(b"last"),
        )

        async def replace(tx: Transaction) -> None:
            await replacing(home.workspace, row)(tx)
            inside = await tx.get_store(home.workspace, row.id, NOBODY)
            assert inside is not None and inside[0] == row

        await storage.write(row.id, replace)

        async def look(tx: Transaction) -> None:
            """A deleted store is still answered: the guard decides."""
            found = await tx.get_store(home.workspace, row.id, NOBODY)
            assert found is not None and found[0] == row
            opened = await tx.open_document(home.workspace, row.id, NOBODY, "/a")
            assert opened is not None and opened[0] == row

        await storage.read(look)

    async def test_an_absent_store_may_be_locked(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        row = build.store(home.principal)

        async def use(tx: Transaction) -> None:
            await tx.lock_store(home.workspace, row.id)
            assert await tx.get_store(home.workspace, row.id, NOBODY) is None
            add_store(tx, home.workspace, row, build)

        await storage.write(row.id, use)
        found = await storage.read(lambda tx: tx.get_store(home.workspace, row.id, NOBODY))
        assert found is not None

    async def test_what_is_read_of_a_locked_store_follows_the_writes_of_its_transaction(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        row = build.assignment(store, Subject("principal", home.principal), write=True)
        step = build.step(home.ref, "/a", b"text", None)
        again = build.step(step.ref, "/a", b"again", None)
        edited = msgspec.structs.replace(home.store, name="other", version=2)
        full = Rights(read=True, write=True)

        async def check(tx: Transaction, row: StoreRecord, rights: Rights, held: object) -> None:
            me = [home.principal]
            assert await tx.get_store(ws, store, me) == (row, rights)
            assert await tx.open_document(ws, store, me, "/a") == (row, rights, held)
            opened = await tx.open_document(ws, store, me, "/a", content=True)
            assert opened is not None and opened[:2] == (row, rights)
            assert (opened[2] is None) == (held is None)

        async def use(tx: Transaction) -> None:
            await tx.lock_store(ws, store)
            await check(tx, home.store, Rights(), None)
            tx.put_assignment(ws, row)
            await check(tx, home.store, full, None)
            tx.put_store(ws, edited)
            await check(tx, edited, full, None)
            write_step(tx, ws, home.store, step)
            await check(tx, edited, full, step.document)
            tx.remove_document(ws, store, "/a")
            await check(tx, edited, full, None)
            tx.delete_assignment(ws, row.id)
            await check(tx, edited, Rights(), None)
            write_step(tx, ws, home.store, again)
            await check(tx, edited, Rights(), again.document)
            assert await tx.get_ref(ws, store, CANONICAL) == again.ref
            await tx.append(ws, store, build.fact())

        async def erase(tx: Transaction) -> None:
            await tx.lock_store(ws, store)
            await check(tx, edited, Rights(), again.document)
            assert await tx.get_ref(ws, store, CANONICAL) == again.ref
            while await tx.erase_store(ws, store, home.store.pool, 100):
                pass
            await check(tx, edited, Rights(), None)
            assert await tx.get_ref(ws, store, CANONICAL) is None
            assert (await tx.get_head(ws, store)).seq == 0

        await storage.write(store, use)
        await storage.write(store, erase)

    async def test_stores_are_listed_in_order_with_status_name_and_canonical(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        statuses = ("active", "archived", "deleting", "deleted", "active")
        names = ("notes", "Notes", "notes ", "notes", "other")
        rows = [
            msgspec.structs.replace(build.store(home.principal), status=status, name=name)
            for status, name in zip(statuses, names, strict=True)
        ]
        bare = build.store(home.principal, owner=Owner("workspace"))

        async def fill(tx: Transaction) -> list[StoreSummary]:
            tx.put_store(ws, bare)
            tx.put_default_store(ws, home.principal, home.store.id)
            return [
                StoreSummary(home.store, home.ref, default=True),
                *(StoreSummary(row, add_store(tx, ws, row, build), default=False) for row in rows),
                StoreSummary(bare, None, default=False),
            ]

        shown = await storage.write(None, fill)
        every = ["active", "archived", "deleting", "deleted"]

        async def look(tx: Transaction) -> None:
            assert await tx.list_stores(ws, None, 201, readers=None, statuses=every) == shown
            first = await tx.list_stores(ws, None, 2, readers=None, statuses=every)
            assert first == shown[:2]
            after = first[-1].store.id
            assert await tx.list_stores(ws, after, 3, readers=None, statuses=every) == shown[2:5]
            live = ["active", "archived"]
            found = await tx.list_stores(ws, None, 9, readers=None, statuses=live)
            assert found == [each for each in shown if each.store.status in live]
            found = await tx.list_stores(ws, None, 9, readers=None, statuses=live, name="notes")
            assert found == [shown[0], shown[1], shown[6]]
            none = await tx.list_stores(ws, None, 9, readers=None, statuses=live, name="")
            assert none == []

        await storage.read(look)

    async def test_a_default_store_is_set_replaced_and_cleared(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, me, second = home.workspace, home.principal, build.store(home.principal)
        await storage.write(None, doing(lambda tx: tx.put_store(ws, second)))
        assert await storage.read(lambda tx: tx.get_default_store(ws, me)) is None

        def setting(store: StoreId | None) -> Use[StoreId | None]:
            async def use(tx: Transaction) -> StoreId | None:
                tx.put_default_store(ws, me, store)
                return await tx.get_default_store(ws, me)

            return use

        for store in (home.store.id, second.id, second.id, None, None, home.store.id):
            assert await storage.write(ws, setting(store)) == store
            assert await storage.read(lambda tx: tx.get_default_store(ws, me)) == store

    async def test_an_owners_stores_are_listed_whatever_their_status(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        mine = [build.store(home.principal) for _ in range(3)]
        mine[1] = msgspec.structs.replace(mine[1], status="deleted")
        shared = build.store(home.principal, owner=Owner("workspace"))

        async def fill(tx: Transaction) -> None:
            for row in (*mine, shared):
                tx.put_store(ws, row)

        async def look(tx: Transaction) -> None:
            me = Owner("principal", home.principal)
            every = [home.store.id, *(row.id for row in mine)]
            assert await tx.list_stores_of(ws, me, None, 9) == every
            assert await tx.list_stores_of(ws, me, every[0], 2) == every[1:3]
            assert await tx.list_stores_of(ws, Owner("workspace"), None, 9) == [shared.id]
            absent = Owner("session", build.new_id("session"))
            assert await tx.list_stores_of(ws, absent, None, 9) == []

        await storage.write(None, fill)
        await storage.read(look)

    async def test_a_ref_moves_from_what_was_read(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store
        step = build.step(home.ref, "/a", b"one", None)
        _, working = build.first("session/1")
        working = msgspec.structs.replace(working, revision=home.ref.revision)

        async def use(tx: Transaction) -> None:
            await tx.lock_store(ws, store.id)
            write_step(tx, ws, store, step)
            tx.put_ref(ws, store.id, working)
            assert await tx.get_ref(ws, store.id, CANONICAL) == step.ref

        await storage.write(store.id, use)

        async def look(tx: Transaction) -> None:
            assert await tx.get_ref(ws, store.id, CANONICAL) == step.ref
            assert await tx.get_ref(ws, store.id, "session/1") == working
            assert await tx.get_ref(ws, store.id, "Canonical") is None
            assert await tx.get_revision(ws, store.id, step.revision.id) == step.revision

        await storage.read(look)


class DocumentCases:
    """The projection of canonical."""

    async def test_a_document_is_opened_with_its_content_where_asked(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        (step,) = await put_content(storage, build, home, [("/é/\U0001f9fe.md", b"\xff\0bytes")])
        path, row = step.change.path, step.document
        assert row is not None
        full = msgspec.structs.replace(row, content=b"\xff\0bytes")

        async def look(tx: Transaction) -> None:
            ws, store = home.workspace, home.store.id
            plain = await tx.open_document(ws, store, NOBODY, path)
            assert plain is not None and plain[0] == home.store and plain[2] == row
            opened = await tx.open_document(ws, store, NOBODY, path, content=True)
            assert opened is not None and opened[2] == full
            for other in ("/é", "/É/\U0001f9fe.md", path + "x"):
                free = await tx.open_document(ws, store, NOBODY, other, content=True)
                assert free is not None and free[2] is None

        await storage.read(look)

    async def test_a_put_makes_or_replaces_and_a_remove_frees_the_path(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        seen: list[Document | None] = []
        for content in (b"one", b"two", b"", None, b"three"):
            step = await change_document(storage, build, home, "/a", content)
            opened = await storage.read(
                lambda tx: tx.open_document(home.workspace, home.store.id, NOBODY, "/a")
            )
            assert opened is not None and opened[2] == step.document
            seen.append(opened[2])
        assert seen[0] is not None and seen[1] is not None and seen[4] is not None
        assert seen[0].id == seen[1].id != seen[4].id

    async def test_a_moved_document_keeps_its_id(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        (step,) = await put_content(storage, build, home, [("/old", b"text")])
        assert step.document is not None
        moved = build.step(step.ref, "/new", b"text", step.document)
        moved = msgspec.structs.replace(
            moved,
            change=msgspec.structs.replace(moved.change, operation="move", moved_from="/old"),
        )

        async def use(tx: Transaction) -> None:
            await tx.lock_store(home.workspace, home.store.id)
            tx.remove_document(home.workspace, home.store.id, "/old")
            write_step(tx, home.workspace, home.store, moved)

        await storage.write(home.store.id, use)

        async def look(tx: Transaction) -> None:
            ws, store = home.workspace, home.store.id
            opened = await tx.open_document(ws, store, NOBODY, "/new")
            assert opened is not None and opened[2] == moved.document
            old = await tx.open_document(ws, store, NOBODY, "/old")
            assert old is not None and old[2] is None
            assert await tx.list_changes(ws, store, "/new", 99, 9) == [moved.change]

        await storage.read(look)

    async def test_documents_are_listed_by_bytes_below_a_prefix(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        mixed = ORDERED[::2] + ORDERED[1::2][::-1]
        steps = await put_content(storage, build, home, [(path, path.encode()) for path in mixed])
        rows = {step.change.path: step.document for step in steps}
        items = []
        for path in ORDERED:
            row = rows[path]
            assert row is not None
            items.append(DocumentItem(path, row.blob, row.size, row.updated_at))

        async def look(tx: Transaction) -> None:
            ws, store = home.workspace, home.store.id
            for prefix in ("/", "", "/a", "/a/", "/a b", "/é", "/\U0001f9fe", "/zz", "/B/", "/ﬀ"):
                below = [item for item in items if item.path.startswith(prefix)]
                assert await tx.list_documents(ws, store, prefix, None, 201) == below
                assert await tx.list_documents(ws, store, prefix, None, 1) == below[:1]
                for after in ("/", "/a", "/a.md", "/z", "/\U0001f9fe", "/a.mc"):
                    rest = [item for item in below if item.path.encode() > after.encode()]
                    assert await tx.list_documents(ws, store, prefix, after, 3) == rest[:3]

        await storage.read(look)


class RevisionCases:
    """Revisions and changes."""

    async def test_revisions_are_kept_by_store(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        steps = await put_content(storage, build, home, [("/a", b"1"), ("/a", None)])
        other = build.store(home.principal)

        async def look(tx: Transaction) -> None:
            for step in steps:
                kept = await tx.get_revision(home.workspace, home.store.id, step.revision.id)
                assert kept == step.revision
                assert await tx.get_revision(home.workspace, other.id, kept.id) is None
                change = await tx.get_change(home.workspace, home.store.id, step.change.id)
                assert change == step.change
                assert await tx.get_change(home.workspace, other.id, step.change.id) is None
            absent = build.new_id("revision")
            assert await tx.get_revision(home.workspace, home.store.id, absent) is None

        await storage.read(look)

    async def test_changes_of_a_path_are_listed_newest_first_up_to_a_position(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        texts = [b"1", b"2", None, b"3"]
        steps = await put_content(
            storage, build, home, [(path, text) for text in texts for path in ("/a", "/a/b")]
        )
        newest = [step.change for step in reversed(steps) if step.change.path == "/a"]
        touched = msgspec.structs.replace(
            newest[0], id=build.new_id("change"), n=1, operation="touch", created_at=build.now()
        )
        working = msgspec.structs.replace(
            newest[0], id=build.new_id("change"), n=2, seq=None, created_at=build.now()
        )
        ws, store = home.workspace, home.store.id

        async def add(tx: Transaction) -> None:
            tx.put_change(ws, store, touched)
            tx.put_change(ws, store, working)

        await storage.write(store, add)
        expected = [touched, *newest]
        top = newest[0].seq
        assert top is not None

        async def look(tx: Transaction) -> None:
            assert await tx.list_changes(ws, store, "/a", top, 201) == expected
            assert await tx.list_changes(ws, store, "/a", top + 99, 2) == expected[:2]
            assert await tx.list_changes(ws, store, "/a", top - 1, 9) == newest[1:]
            assert await tx.list_changes(ws, store, "/a", 1, 9) == []
            assert await tx.list_changes(ws, store, "/b", top, 9) == []

        await storage.read(look)

    async def test_changed_at_is_the_time_of_the_last_change_up_to_a_position(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        steps = await put_content(
            storage,
            build,
            home,
            [("/a", b"1"), ("/b", b"1"), ("/a", b"2"), ("/b", None), ("/é", b"3"), ("/a0", b"4")],
        )
        times = [step.revision.created_at for step in steps]

        async def look(tx: Transaction) -> None:
            ws, store = home.workspace, home.store.id
            asked = ["/é", "/a", "/b", "/none"]
            assert await tx.changed_at(ws, store, asked, 99) == {
                "/é": times[4],
                "/a": times[2],
                "/b": times[3],
            }
            assert await tx.changed_at(ws, store, asked, 3) == {"/a": times[0], "/b": times[1]}
            assert await tx.changed_at(ws, store, asked, 1) == {}
            assert await tx.changed_at(ws, store, [], 99) == {}

        await storage.read(look)
