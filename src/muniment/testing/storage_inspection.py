# ruff: noqa: D102 (a test's name is its sentence)
"""Contract cases of what `doctor` reads, one per sentence of the port."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from msgspec import structs

from muniment.model.ids import RevisionId, to_bytes
from muniment.model.revisions import Change, Revision
from muniment.storage.base import Found, Key, Storage, Transaction
from muniment.testing.builders import Builder, make_home, put_content, replacing

T = TypeVar("T")
K = TypeVar("K")


class InspectionCases:
    """Every row of a kind, page by page, in order."""

    async def test_every_revision_and_its_changes_are_listed_in_order(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        contents = [("/b", b"1"), ("/a", b"2"), ("/b", b"3"), ("/a", None)]
        steps = await put_content(storage, build, home, contents)

        async def look(tx: Transaction) -> tuple[list[Revision], list[list[Change]]]:
            async def more(after: RevisionId | None) -> list[Revision]:
                return await tx.list_revisions(ws, store, after, 2)

            revisions = await pages(more, lambda revision: revision.id)
            changes = [
                await tx.list_revision_changes(ws, store, one.id, None, 9) for one in revisions
            ]
            first = changes[1][0]
            past = (first.path, first.n)
            assert await tx.list_revision_changes(ws, store, first.revision, past, 9) == []
            return revisions, changes

        revisions, changes = await storage.read(look, scan=True)
        assert [one.id for one in revisions] == [
            home.ref.revision,
            *(step.revision.id for step in steps),
        ]
        assert changes == [[], *([step.change] for step in steps)]

    async def test_every_blob_and_node_of_a_pool_is_listed_in_order(self, storage: Storage) -> None:
        build = Builder()
        home, other = [await make_home(storage, build) for _ in range(2)]
        ws, pool = home.workspace, home.store.pool
        contents = [(f"/{n}", str(n % 7).encode()) for n in range(20)]
        steps = await put_content(storage, build, home, contents)
        await put_content(storage, build, other, [("/x", b"elsewhere")])

        async def look(tx: Transaction) -> tuple[list[bytes], list[bytes]]:
            async def blobs(after: bytes | None) -> list[bytes]:
                return await tx.list_blobs(ws, pool, after, 3)

            async def nodes(after: bytes | None) -> list[bytes]:
                return await tx.list_nodes(ws, pool, after, 3)

            return await pages(blobs, bytes), await pages(nodes, bytes)

        blobs, nodes = await storage.read(look, scan=True)
        assert blobs == sorted({step.change.blob for step in steps if step.change.blob})
        assert nodes == sorted(set(nodes)) and {step.revision.tree for step in steps} <= {*nodes}

    async def test_refs_and_streams_are_listed_as_they_stand_in_the_transaction(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        (step,) = await put_content(storage, build, home, [("/a", b"1")])

        async def use(tx: Transaction) -> None:
            await tx.lock_store(ws, store)
            assert [ref.revision for ref in await tx.list_refs(ws, store)] == [step.revision.id]
            made = [await tx.append(ws, stream, build.fact()) for stream in (store, ws)]
            heads = {to_bytes(stream): head for stream, head in zip((store, ws), made, strict=True)}
            listed = await tx.list_streams(ws, None, 9)
            assert [(stream, head.seq, head.hash) for stream, head in listed] == [
                (stream, heads[stream].seq, heads[stream].hash) for stream in sorted(heads)
            ]
            assert await tx.list_streams(ws, listed[0][0], 9) == listed[1:]

        await storage.write(None, use)

    async def test_every_kind_of_row_is_inspected_in_the_order_of_its_key(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store, pool = home.workspace, home.store.id, home.store.pool
        contents = [("/b", b"1"), ("/a", b"2"), ("/b", b"3"), ("/c", b"4"), ("/c", None)]
        steps = await put_content(storage, build, home, contents)
        agent, job = build.owner("agent_definition", home.principal), build.job(store)
        facts = [build.fact(n=n) for n in range(3)]

        async def use(tx: Transaction) -> None:
            tx.put_owner(ws, agent)
            tx.enqueue(ws, job)
            for fact in facts:
                await tx.append(ws, store, fact)

        await storage.write(None, use)
        landed = sorted((step.change for step in steps), key=lambda one: (one.path, one.seq))
        documents = [steps[at].document for at in (1, 2)]
        expected: dict[str, tuple[tuple[str, ...], list[object]]] = {
            "principals": ((), [home.principal]),
            "owners": ((agent.kind,), [agent]),
            "stores": ((), [home.store]),
            "refs": ((store,), [steps[-1].ref]),
            "revisions": ((store,), [home.ref.revision, *(s.revision for s in steps)]),
            "changes": ((store, steps[3].revision.id), [steps[3].change]),
            "changes_by_id": ((store,), [step.change for step in steps]),
            "landed": ((store,), [*landed]),
            "documents": ((store,), [*documents]),
            "blobs": ((pool,), [*sorted({s.change.blob for s in steps if s.change.blob})]),
            "event_payloads": ((store,), [(fact.salt, fact.payload) for fact in facts]),
            "jobs": ((), [job]),
            "default_stores": ((), []),
        }

        async def look(tx: Transaction) -> None:
            for kind, (part, records) in expected.items():

                async def more(
                    after: Key | None, kind: str = kind, part: tuple[str, ...] = part
                ) -> list[Found]:
                    return await tx.inspect(kind, ws, part, after, 2)

                found = await pages(more, lambda one: one.key)
                assert all(one.damage is None for one in found)
                assert [one.key for one in found] == sorted(one.key for one in found)
                seen = [_known(one.record, records) for one in found]
                assert seen == records, kind
                assert await tx.count_rows(kind, ws, part) == len(records), kind
            assert await tx.find_homeless() == []

        await storage.read(look, scan=True)

    async def test_rows_of_a_tombstone_are_strays(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store
        await put_content(storage, build, home, [("/a", b"1"), ("/b", b"2")])
        assert await storage.read(lambda tx: tx.find_strays(ws), scan=True) == []
        buried = structs.replace(store, status="deleted")
        await storage.write(store.id, replacing(ws, buried))
        strays = await storage.read(lambda tx: tx.find_strays(ws), scan=True)
        found = {stray.table: (stray.owner, stray.rows) for stray in strays}
        assert found["documents"] == found["changes"] == (to_bytes(store.id), 2)
        assert found["refs"] == (to_bytes(store.id), 1)
        assert found["blobs"] == found["nodes"] == (to_bytes(store.pool), 2)

    async def test_the_schema_is_this_programs_once_migrated(self, storage: Storage) -> None:
        assert await storage.check_schema() == await storage.migrate(now=1)
        assert await storage.holds_master_key()
        assert await storage.check_integrity() == []


def _known(record: Any, records: list[object]) -> object:
    """The record, or its id where only that is known."""
    return record.id if record not in records and record.id in records else record


async def pages(ask: Callable[[K | None], Awaitable[list[T]]], key: Callable[[T], K]) -> list[T]:
    """Every row that a list method gives, page after page."""
    found: list[T] = []
    while page := await ask(key(found[-1]) if found else None):
        found += page
    return found
