# ruff: noqa: D102 (a test's name is its sentence)
"""Contract cases of events and erasing, one per sentence of the port."""

from hashlib import sha256

import msgspec
import pytest

from muniment.model.access import Subject
from muniment.model.events import GENESIS, Event, Head, chain
from muniment.model.ids import to_bytes
from muniment.model.revisions import CANONICAL
from muniment.storage.base import Storage, Transaction
from muniment.testing.builders import (
    NOBODY,
    Builder,
    Home,
    add_store,
    make_home,
    put_content,
    replacing,
)


class EventCases:
    """Streams."""

    async def test_events_are_numbered_from_one_and_chained(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, stream = home.workspace, home.store.id
        facts = [build.fact(n=n, path="/é") for n in range(5)]

        async def rest(tx: Transaction) -> list[Event]:
            made = await tx.list_events(ws, stream, 0, 9)
            for fact in facts[1:]:
                made.append(await tx.append(ws, stream, fact))
                assert await tx.get_head(ws, stream) == Head(made[-1].seq, made[-1].hash)
            assert await tx.list_events(ws, stream, 0, 9) == made
            return made

        assert await storage.read(lambda tx: tx.get_head(ws, stream)) == Head(0, GENESIS)
        first = await storage.write(stream, lambda tx: tx.append(ws, stream, facts[0]))
        made = await storage.write(stream, rest)
        assert made[0] == first
        head, expected = Head(), []
        for fact in facts:
            expected.append(chain(to_bytes(stream), head, fact))
            head = Head(expected[-1].seq, expected[-1].hash)
        assert made == expected

        async def look(tx: Transaction) -> None:
            assert await tx.get_head(ws, stream) == head
            assert await tx.list_events(ws, stream, 0, 201) == expected
            assert await tx.list_events(ws, stream, 2, 2) == expected[2:4]
            assert await tx.list_events(ws, stream, 5, 2) == []

        await storage.read(look)

    async def test_streams_of_a_store_a_session_and_the_workspace_are_apart(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        session = build.owner("session", home.principal)
        streams = (home.store.id, session.id, home.workspace)

        async def use(tx: Transaction) -> None:
            tx.put_owner(home.workspace, session)
            for n, stream in enumerate(streams):
                for _ in range(n + 1):
                    await tx.append(home.workspace, stream, build.fact())

        async def numbers(stream: str) -> list[int]:
            found = await storage.read(lambda tx: tx.list_events(home.workspace, stream, 0, 9))
            return [event.seq for event in found]

        await storage.write(None, use)
        for n, stream in enumerate(streams):
            assert await numbers(stream) == list(range(1, n + 2))


class ErasingCases:
    """A store's deletion, step by step."""

    @pytest.mark.parametrize("limit", [1, 7, 1_000])
    async def test_erasing_leaves_nothing_but_the_store_row(
        self, storage: Storage, limit: int
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        kept = msgspec.structs.replace(
            home, store=build.store(home.principal), ref=build.first()[1]
        )
        first = await self.fill(storage, build, home)

        async def add(tx: Transaction) -> None:
            add_store(tx, home.workspace, kept.store, build)

        await storage.write(None, add)
        second = await self.fill(storage, build, kept)
        await erase(storage, home, limit)
        await self.check_erased(storage, home, first, pool_kept=False)
        ws = home.workspace
        opened = await storage.read(
            lambda tx: tx.open_document(home.workspace, kept.store.id, NOBODY, "/a", content=True)
        )
        assert opened is not None and opened[2] is not None and opened[2].content == b"one"
        events = await storage.read(lambda tx: tx.list_events(ws, kept.store.id, 0, 9))
        assert events == second

    async def test_a_pools_bytes_stay_while_another_store_uses_it(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, pool = home.workspace, home.store.pool
        events = await self.fill(storage, build, home)
        fork = build.store(home.principal, pool=pool)

        async def add(tx: Transaction) -> None:
            add_store(tx, ws, fork, build)

        await storage.write(None, add)
        await erase(storage, home, 5)
        await self.check_erased(storage, home, events, pool_kept=True)
        gone = msgspec.structs.replace(home.store, status="deleted", deleted_at=build.now())
        await storage.write(gone.id, replacing(ws, gone))
        await erase(storage, msgspec.structs.replace(home, store=fork), 5)
        await self.check_erased(storage, home, events, pool_kept=False)

    async def fill(self, storage: Storage, build: Builder, home: Home) -> list[Event]:
        """Documents, history, an assignment, a default and events; the events."""
        ws, store = home.workspace, home.store.id
        await put_content(
            storage, build, home, [("/a", b"one"), ("/b", b"two"), ("/b", None), ("/c", b"3")]
        )
        row = build.assignment(store, Subject("principal", home.principal))

        async def use(tx: Transaction) -> list[Event]:
            tx.put_assignment(ws, row)
            tx.put_default_store(ws, home.principal, store)
            return [await tx.append(ws, store, build.fact()) for _ in range(3)]

        return await storage.write(None, use)

    async def check_erased(
        self, storage: Storage, home: Home, events: list[Event], *, pool_kept: bool
    ) -> None:
        """Nothing of the store is found any more; its blobs only where another store uses them."""
        ws, store, pool = home.workspace, home.store.id, home.store.pool

        async def look(tx: Transaction) -> None:
            opened = await tx.get_store(ws, store, [home.principal])
            assert opened is not None and not opened[1].any
            assert await tx.list_documents(ws, store, "/", None, 9) == []
            assert await tx.get_ref(ws, store, CANONICAL) is None
            assert await tx.get_revision(ws, store, home.ref.revision) is None
            for path in ("/a", "/b", "/c"):
                assert await tx.list_changes(ws, store, path, 99, 9) == []
            assert await tx.list_assignments(ws, None, 9, store=store) == []
            assert await tx.get_default_store(ws, home.principal) != store
            assert events and await tx.list_events(ws, store, 0, 9) == []
            assert await tx.get_head(ws, store) == Head()
            for content in (b"one", b"two", b"3"):
                expected = content if pool_kept else None
                assert await tx.get_blob(ws, pool, sha256(content).digest()) == expected

        await storage.read(look)


async def erase(storage: Storage, home: Home, limit: int) -> None:
    """Erases the home's store in steps of about `limit` rows until nothing is left."""
    for _ in range(200):
        left = await storage.write(
            home.store.id,
            lambda tx: tx.erase_store(home.workspace, home.store.id, home.store.pool, limit),
        )
        if left == 0:
            return
    raise AssertionError("erasing does not end")
