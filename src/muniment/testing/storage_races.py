# ruff: noqa: D102 (a test's name is its sentence)
"""Races with real concurrency: many writers at once, and exactly what the port promises of them."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Sequence
from hashlib import sha256

import msgspec
import pytest

from muniment.model.errors import Conflict
from muniment.model.events import Head, chain
from muniment.model.ids import EventId, StoreId, to_bytes
from muniment.model.revisions import CANONICAL
from muniment.storage.base import Storage, Transaction, Use
from muniment.testing.builders import (
    NOBODY,
    Builder,
    Home,
    Step,
    add_store,
    doing,
    make_home,
    write_step,
)

WRITERS = 12

GROUPS = pytest.mark.parametrize("grouped", [True, False], ids=["in a group", "each alone"])
"""Whether writers share their store's group, and with it commits, or run alone."""


async def count_winners(writes: Sequence[Awaitable[object]]) -> Counter[str]:
    """How many writes won and how many met a Conflict; anything else is raised."""
    answers: Counter[str] = Counter()
    for answer in await asyncio.gather(*writes, return_exceptions=True):
        if isinstance(answer, BaseException) and not isinstance(answer, Conflict):
            raise answer
        answers["lost" if isinstance(answer, Conflict) else "won"] += 1
    return answers


async def make_busy_home(storage: Storage, build: Builder) -> Home:
    """A home in a storage that has had several callers at once, so that it has opened its ways."""
    home = await make_home(storage, build)
    for _ in range(3):
        await asyncio.gather(
            *(storage.read(lambda tx: linger(tx, home)) for _ in range(WRITERS)),
            *(storage.write(None, lambda tx: linger(tx, home)) for _ in range(WRITERS)),
        )
    return home


async def linger(tx: Transaction, home: Home) -> None:
    """Some more reads, while other transactions go on."""
    for _ in range(3):
        await tx.get_workspace(home.workspace)


async def check_two_handles(first: Storage, second: Storage) -> None:
    """Two storages over one database, as two processes have them: no write is lost, none fails."""
    build = Builder()
    home = await make_busy_home(first, build)
    ws, store = home.workspace, home.store

    def adding(path: str) -> Use[None]:
        async def use(tx: Transaction) -> None:
            await tx.lock_store(ws, store.id)
            ref = await tx.get_ref(ws, store.id, CANONICAL)
            assert ref is not None
            write_step(tx, ws, store, build.step(ref, path, path.encode(), None))
            await tx.append(ws, store.id, build.fact(path=path))

        return use

    paths = [f"/{n:02}" for n in range(WRITERS * 2)]
    await asyncio.gather(
        *((first, second)[n % 2].write(store.id, adding(path)) for n, path in enumerate(paths))
    )

    async def look(tx: Transaction) -> None:
        listed = await tx.list_documents(ws, store.id, "/", None, 99)
        assert [item.path for item in listed] == paths
        ref = await tx.get_ref(ws, store.id, CANONICAL)
        assert ref is not None and ref.version == 1 + len(paths)
        events = await tx.list_events(ws, store.id, 0, 99)
        assert [event.seq for event in events] == list(range(1, len(paths) + 1))

    await first.read(look)
    await second.read(look)
    assert await first.cursor_key() == await second.cursor_key()


class RaceCases:
    """Many writers."""

    @GROUPS
    async def test_one_writer_moves_a_ref_from_an_expected_revision(
        self, storage: Storage, grouped: bool
    ) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, store = home.workspace, home.store
        steps = [build.step(home.ref, f"/{n}", b"%d" % n, None) for n in range(WRITERS)]

        def moving(step: Step) -> Use[None]:
            async def use(tx: Transaction) -> None:
                await tx.lock_store(ws, store.id)
                ref = await tx.get_ref(ws, store.id, CANONICAL)
                await linger(tx, home)
                if ref != step.before:
                    raise Conflict("canonical has moved")
                write_step(tx, ws, store, step)

            return use

        group = store.id if grouped else None
        answers = await count_winners([storage.write(group, moving(step)) for step in steps])
        assert answers == {"won": 1, "lost": WRITERS - 1}

        async def look(tx: Transaction) -> None:
            ref = await tx.get_ref(ws, store.id, CANONICAL)
            (winner,) = [step for step in steps if step.ref == ref]
            listed = await tx.list_documents(ws, store.id, "/", None, 99)
            assert [item.path for item in listed] == [winner.change.path]
            for step in steps:
                kept = await tx.get_revision(ws, store.id, step.revision.id)
                assert kept == (step.revision if step is winner else None)

        await storage.read(look)

    @GROUPS
    async def test_one_writer_creates_a_path(self, storage: Storage, grouped: bool) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, store = home.workspace, home.store

        async def create(tx: Transaction) -> None:
            await tx.lock_store(ws, store.id)
            opened = await tx.open_document(ws, store.id, NOBODY, "/new")
            ref = await tx.get_ref(ws, store.id, CANONICAL)
            assert opened is not None and ref is not None
            await linger(tx, home)
            if opened[2] is not None:
                raise Conflict("/new exists")
            write_step(tx, ws, store, build.step(ref, "/new", b"text", None))

        group = store.id if grouped else None
        answers = await count_winners([storage.write(group, create) for _ in range(WRITERS)])
        assert answers == {"won": 1, "lost": WRITERS - 1}
        ref = await storage.read(lambda tx: tx.get_ref(ws, store.id, CANONICAL))
        assert ref is not None and (ref.version, ref.documents) == (2, 1)

    @GROUPS
    async def test_what_is_read_of_a_locked_store_stands_still(
        self, storage: Storage, grouped: bool
    ) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, store = home.workspace, home.store

        async def look(tx: Transaction) -> list[object]:
            return [
                await tx.get_store(ws, store.id, NOBODY),
                await tx.get_ref(ws, store.id, CANONICAL),
                await tx.open_document(ws, store.id, NOBODY, "/a"),
                await tx.open_document(ws, store.id, NOBODY, "/a", content=True),
                await tx.list_documents(ws, store.id, "/", None, 9),
            ]

        async def edit(tx: Transaction) -> int:
            await tx.lock_store(ws, store.id)
            seen = await look(tx)
            await linger(tx, home)
            assert await look(tx) == seen
            ref = await tx.get_ref(ws, store.id, CANONICAL)
            opened = await tx.open_document(ws, store.id, NOBODY, "/a")
            assert ref is not None and opened is not None
            row = msgspec.structs.replace(opened[0], version=opened[0].version + 1)
            tx.put_store(ws, row)
            content = b"%d" % ref.version
            write_step(tx, ws, store, build.step(ref, "/a", content, opened[2]))
            return row.version

        group = store.id if grouped else None
        versions = await asyncio.gather(*(storage.write(group, edit) for _ in range(WRITERS)))
        assert sorted(versions) == list(range(2, WRITERS + 2))
        opened = await storage.read(
            lambda tx: tx.open_document(ws, store.id, NOBODY, "/a", content=True), single=True
        )
        assert opened is not None and opened[2] is not None
        assert opened[2].content == b"%d" % WRITERS

    @GROUPS
    async def test_reading_a_ref_and_moving_it_without_a_lock_never_fails(
        self, storage: Storage, grouped: bool
    ) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, store = home.workspace, home.store.id
        first = home.ref.version

        async def move(tx: Transaction) -> int:
            ref = await tx.get_ref(ws, store, CANONICAL)
            assert ref is not None
            await linger(tx, home)
            later = msgspec.structs.replace(ref, version=ref.version + 1)
            tx.move_ref(ws, store, later, ref)
            return later.version

        group = store if grouped else None
        versions = await asyncio.gather(*(storage.write(group, move) for _ in range(8)))
        assert sorted(versions) == [first + n for n in range(1, 9)]
        ref = await storage.read(lambda tx: tx.get_ref(ws, store, CANONICAL))
        assert ref is not None and ref.version == first + 8

    @GROUPS
    async def test_events_of_one_stream_are_gapless_and_chained(
        self, storage: Storage, grouped: bool
    ) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, stream = home.workspace, home.store.id
        facts = {fact.id: fact for fact in (build.fact(n=n) for n in range(WRITERS * 2))}
        ids = list(facts)

        def appending(*events: EventId) -> Use[list[int]]:
            async def use(tx: Transaction) -> list[int]:
                await linger(tx, home)
                return [(await tx.append(ws, stream, facts[event])).seq for event in events]

            return use

        group = stream if grouped else None
        numbers = await asyncio.gather(
            *(storage.write(group, appending(*ids[n : n + 2])) for n in range(0, len(ids), 2))
        )
        assert sorted(n for pair in numbers for n in pair) == list(range(1, len(ids) + 1))
        assert all(second == first + 1 for first, second in numbers)
        events = await storage.read(lambda tx: tx.list_events(ws, stream, 0, 201))
        head = Head()
        for event in events:
            assert event == chain(to_bytes(stream), head, facts[event.id])
            head = Head(event.seq, event.hash)
        assert head.seq == len(ids)
        assert await storage.read(lambda tx: tx.get_head(ws, stream)) == head

    @GROUPS
    async def test_an_external_id_is_given_once(self, storage: Storage, grouped: bool) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws = home.workspace

        def registering(external_id: str) -> Use[str]:
            async def use(tx: Transaction) -> str:
                found = await tx.find_principal(ws, external_id)
                await linger(tx, home)
                if found is None:
                    found = build.principal(external_id)
                    tx.put_principal(ws, found)
                return found.id

            return use

        group = ws if grouped else None
        for name in ("ada", "bob", "cleo"):
            ids = await asyncio.gather(
                *(storage.write(group, registering(name)) for _ in range(WRITERS))
            )
            kept = await storage.write(None, registering(name))
            assert set(ids) == {kept}

    @GROUPS
    async def test_a_pair_gets_one_delegation(self, storage: Storage, grouped: bool) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, friend = home.workspace, build.principal()
        await storage.write(ws, doing(lambda tx: tx.put_principal(ws, friend)))

        async def delegate(tx: Transaction) -> str:
            found = await tx.find_delegation(ws, home.principal, friend.id)
            await linger(tx, home)
            if found is None:
                found = build.delegation(home.principal, friend.id)
                tx.put_delegation(ws, found)
            return found.id

        group = ws if grouped else None
        ids = await asyncio.gather(*(storage.write(group, delegate) for _ in range(WRITERS)))
        listed = await storage.read(lambda tx: tx.list_delegations(ws, None, 99))
        assert {each.id for each in listed} == set(ids) and len(listed) == 1

    async def test_a_principals_default_store_is_one_of_those_set_at_once(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, me = home.workspace, home.principal
        rows = [build.store(me) for _ in range(6)]

        def setting(n: int) -> Use[None]:
            async def use(tx: Transaction) -> None:
                await linger(tx, home)
                tx.put_store(ws, rows[n])
                tx.put_default_store(ws, me, rows[n].id)

            return use

        await asyncio.gather(*(storage.write(None, setting(n)) for n in range(len(rows))))
        default = await storage.read(lambda tx: tx.get_default_store(ws, me))
        assert default in [row.id for row in rows]

    async def test_writers_who_put_the_same_bytes_at_once_all_land(self, storage: Storage) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws, pool = home.workspace, home.store.pool
        contents = [b"text %d" % n for n in range(6)]

        def putting(n: int) -> Use[None]:
            async def use(tx: Transaction) -> None:
                await linger(tx, home)
                for content in contents[n % 6 :] + contents[: n % 6]:
                    tx.put_blob(ws, pool, sha256(content).digest(), content)
                    tx.put_node(ws, pool, sha256(content).digest(), content)

            return use

        await asyncio.gather(*(storage.write(None, putting(n)) for n in range(WRITERS)))

        async def look(tx: Transaction) -> None:
            for content in contents:
                assert await tx.get_blob(ws, pool, sha256(content).digest()) == content
                assert await tx.get_node(ws, pool, sha256(content).digest()) == content

        await storage.read(look)

    async def test_writers_of_many_stores_do_not_disturb_each_other(self, storage: Storage) -> None:
        build = Builder()
        home = await make_busy_home(storage, build)
        ws = home.workspace
        homes: list[Home] = []

        async def fill(tx: Transaction) -> None:
            homes.clear()
            for _ in range(4):
                row = build.store(home.principal)
                ref = add_store(tx, ws, row, build)
                homes.append(msgspec.structs.replace(home, store=row, ref=ref))

        def adding(each: Home, path: str) -> Use[None]:
            async def use(tx: Transaction) -> None:
                await tx.lock_store(ws, each.store.id)
                ref = await tx.get_ref(ws, each.store.id, CANONICAL)
                assert ref is not None
                write_step(tx, ws, each.store, build.step(ref, path, path.encode(), None))
                await tx.append(ws, each.store.id, build.fact(path=path))

            return use

        await storage.write(None, fill)
        paths = [f"/{n}" for n in range(8)]
        await asyncio.gather(
            *(storage.write(each.store.id, adding(each, path)) for path in paths for each in homes)
        )
        for each in homes:

            async def look(tx: Transaction, store: StoreId = each.store.id) -> None:
                listed = await tx.list_documents(ws, store, "/", None, 99)
                assert [item.path for item in listed] == paths
                ref = await tx.get_ref(ws, store, CANONICAL)
                assert ref is not None and ref.documents == len(paths)
                events = await tx.list_events(ws, store, 0, 99)
                assert [event.seq for event in events] == list(range(1, len(paths) + 1))

            await storage.read(look)
