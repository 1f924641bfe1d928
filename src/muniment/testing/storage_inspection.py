# ruff: noqa: D102 (a test's name is its sentence)
"""Contract cases of what `doctor` reads, one per sentence of the port."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from muniment.model.ids import RevisionId, to_bytes
from muniment.model.revisions import Change, Revision
from muniment.storage.base import Storage, Transaction
from muniment.testing.builders import Builder, make_home, put_content

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


async def pages(ask: Callable[[K | None], Awaitable[list[T]]], key: Callable[[T], K]) -> list[T]:
    """Every row that a list method gives, page after page."""
    found: list[T] = []
    while page := await ask(key(found[-1]) if found else None):
        found += page
    return found
