"""Deleting a store: fence, erase, tombstone, whatever interrupts it (C-170 … C-172, R-83)."""

import json
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from muniment.model.access import Subject
from muniment.model.documents import Absent
from muniment.model.errors import Failure, NotFound, Unavailable
from muniment.model.ids import DEFAULT_WORKSPACE, StoreId
from muniment.service import deletions, documents, events, permissions, stores
from muniment.service.paging import Page
from muniment.service.permissions import Grant
from muniment.storage.base import Storage, Transaction
from wire import Wire, check_chain, document_url, error_of, finish_jobs, wired
from working import failing

WORKSPACE = DEFAULT_WORKSPACE


@asynccontextmanager
async def reopened(wire: Wire, url: str) -> AsyncIterator[Wire]:
    """The same database as a new process opens it; the oracle lives on in this one."""
    if url == "memory:":
        yield wire
        return
    await wire.storage.stop()
    async with wired(wire.settings.home, url) as again:
        yield again
    await wire.storage.start()


async def tombstones(wire: Wire) -> dict[str, str]:
    """Status by id of the stores that are going or gone."""
    listed = await wire.owner.get("/v1/memory-stores?include_deleted=true&limit=200")
    return {
        one["id"]: one["status"]
        for one in listed.json()["items"]
        if one["status"] in ("deleting", "deleted")
    }


async def test_c_172_a_deletion_interrupted_at_any_step_stays_fenced_and_is_finished(
    wire: Wire, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "STEP_ROWS", 25)
    actor = await wire.actor()
    interrupted: list[str] = []
    finished = None
    for writes in range(1, 60):
        store = await wire.store(name=f"after {writes}")
        await wire.fill(store, {f"/{n}.md": f"{n}" for n in range(12)})
        try:
            await deletions.delete_store(failing(wire.app, writes), actor, StoreId(store))
        except Unavailable:
            interrupted.append(store)
            assert error_of(await wire.owner.get(f"/v1/memory-stores/{store}")) == (
                404,
                "validation.not_found",
            )
            continue
        finished = store
        break
    assert finished is not None
    assert len(interrupted) >= 5
    before = await tombstones(wire)
    assert before.pop(finished) == "deleted"
    assert set(before) == set(interrupted)
    *early, erased, empty, buried_last = interrupted
    assert {before[one] for one in (*early, erased, empty)} == {"deleting"}
    assert before[buried_last] == "deleted"
    for store in early:
        assert await left_of(wire.storage, store)
    async with reopened(wire, database_url) as again:
        assert set(await tombstones(again)) == {finished, *interrupted}
        assert await finish_jobs(again.app) == len(interrupted)
        assert await finish_jobs(again.app) == 0
        assert set((await tombstones(again)).values()) == {"deleted"}
        for store in (*interrupted, finished):
            assert await left_of(again.storage, store) == 0
        chain = await again.events(WORKSPACE)
        check_chain(WORKSPACE, chain)
        buried = [
            json.loads(event.payload or b"")["store"]
            for event in chain
            if event.type == "memory.store_deleted"
        ]
        assert sorted(buried) == sorted([*interrupted, finished])
        store = await again.store(name="life goes on")
        await again.put(store, "/a.md", "x")


async def left_of(storage: Storage, store: str) -> int:
    """How many rows an erasure would still find; nothing is erased."""

    class Enough(Exception):
        pass

    async def use(tx: Transaction) -> None:
        await tx.lock_store(WORKSPACE, StoreId(store))
        found = await tx.get_store(WORKSPACE, StoreId(store), (WORKSPACE,))
        assert found is not None
        raise Enough(await tx.erase_store(WORKSPACE, StoreId(store), found[0].pool, 10_000))

    with pytest.raises(Enough) as counted:
        await storage.write(store, use)
    return int(counted.value.args[0])


async def test_c_170_nothing_reaches_a_fenced_store(wire: Wire) -> None:
    actor, reader = await wire.actor(), await wire.person()
    store = StoreId(await wire.store())
    sha = bytes.fromhex(await wire.put(store, "/a.md", "one"))
    held = await wire.grant(
        store, {"kind": "principal", "principal": reader.principal}, "read", "write"
    )
    with pytest.raises(Unavailable):
        await deletions.delete_store(failing(wire.app, 1), actor, store)
    before = await wire.state()
    app = wire.app
    grant = Grant(Subject("workspace", WORKSPACE), True, True)
    patch = stores.StorePatch(name="alive")
    for who in (actor, await wire.actor(reader.secret)):
        uses: list[Awaitable[object]] = [
            documents.put_document(app, who, store, "/b.md", "x", precondition=Absent.NONE),
            documents.put_document(app, who, store, "/a.md", "x", precondition=sha),
            documents.delete_document(app, who, store, "/a.md", precondition=sha),
            documents.get_document(app, who, store, "/a.md"),
            documents.list_documents(app, who, store, Page()),
            events.list_store_events(app, who, store, Page()),
            stores.get_store(app, who, store),
            stores.update_store(app, who, store, 2, patch),
            stores.archive_store(app, who, store, 2),
            stores.explain_access(app, who, store),
            deletions.delete_store(app, who, store),
            permissions.create_assignment(app, who, store, grant),
            permissions.delete_assignment(app, who, held),
        ]
        for use in uses:
            with pytest.raises(NotFound):
                await use
    assert await wire.state() == before
    assert (await reader.client.get("/v1/memory-stores")).json()["items"] == []
    for value in ("x", "{"):
        answer = await wire.owner.put(
            document_url(store), params={"path": "/c.md"}, json={"content": value}
        )
        assert error_of(answer) == (404, "validation.not_found")
    assert await finish_jobs(app) == 1


async def test_a_tombstone_shows_administrators_that_there_was_a_store_and_no_more(
    wire: Wire,
) -> None:
    ada = await wire.person()
    store = await wire.store(ada.client, name="CANARY", description="CANARY")
    await wire.put(store, "/CANARY.md", "CANARY", ada.client)
    assert (await ada.client.delete(f"/v1/memory-stores/{store}")).status_code == 204
    for client in (ada.client, wire.owner, wire.operator):
        for path in ("", "/documents", "/document?path=/CANARY.md", "/events", "/access"):
            answer = await client.get(f"/v1/memory-stores/{store}{path}")
            assert error_of(answer) == (404, "validation.not_found")
        assert error_of(await client.delete(f"/v1/memory-stores/{store}"))[0] == 404
    assert error_of(await ada.client.get("/v1/memory-stores?include_deleted=true")) == (
        403,
        "policy.denied",
    )
    listed = await wire.operator.get("/v1/memory-stores?include_deleted=true")
    assert "CANARY" not in listed.text
    (tomb,) = listed.json()["items"]
    assert (tomb["id"], tomb["status"], tomb["name"]) == (store, "deleted", None)
    assert tomb["deleted_at"] >= tomb["updated_at"]
    assert (await wire.operator.get("/v1/memory-stores")).json()["items"] == []
    kept = await wire.operator.get("/v1/permission-assignments")
    assert kept.json()["items"] == []


WORDS = ("CANARYNAME", "CANARYTEXT", "canary-path", "CANARYGONE", "CANARYOLD")


def words_in(folder: Path) -> dict[str, list[str]]:
    """Which canary words stand in which file of the database."""
    return {
        file.name: found
        for file in sorted(folder.glob("test.db*"))
        if (found := [word for word in WORDS if word.encode() in file.read_bytes()])
    }


async def canary_store(wire: Wire) -> str:
    """A store with a history of canary words: replaced and removed documents too."""
    store = await wire.store(name="CANARYNAME", description="CANARYTEXT")
    first = await wire.put(store, "/canary-path/a.md", "CANARYOLD " * 2_000)
    await wire.owner.put(
        document_url(store),
        params={"path": "/canary-path/a.md"},
        json={"content": "CANARYTEXT " * 9_000},
        headers={"If-Match": first},
    )
    second = await wire.put(store, "/canary-path/b.md", "CANARYGONE")
    await wire.owner.delete(
        document_url(store), params={"path": "/canary-path/b.md"}, headers={"If-Match": second}
    )
    await wire.fill(store, {f"/canary-path/{n}.md": f"CANARYTEXT {n}" for n in range(300)})
    return store


async def test_c_171_nothing_of_a_deleted_store_is_left_in_the_files(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with wired(tmp_path / "home", url) as wire:
        other = await wire.store(name="stays")
        await wire.put(other, "/stays.md", "stays")
        store = await canary_store(wire)
        assert {word for words in words_in(tmp_path).values() for word in words} == set(WORDS)
        assert (await wire.owner.delete(f"/v1/memory-stores/{store}")).status_code == 204
        assert words_in(tmp_path) == {}
        assert b"stays" in (tmp_path / "test.db").read_bytes()
    assert words_in(tmp_path) == {}


async def test_r_83_a_long_reader_delays_the_erasure_of_the_files_and_not_the_answer(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with wired(tmp_path / "home", url) as wire:
        store = await canary_store(wire)
        reader = apsw.Connection(str(tmp_path / "test.db"))
        reader.execute("BEGIN; SELECT COUNT(*) FROM documents").fetchall()
        began = time.monotonic()
        answer = await wire.owner.delete(f"/v1/memory-stores/{store}")
        assert (answer.status_code, answer.json()) == (202, {"physical": "pending"})
        assert time.monotonic() - began < 10
        assert error_of(await wire.owner.get(f"/v1/memory-stores/{store}"))[0] == 404
        await wire.put(await wire.store(), "/a.md", "writes go on")
        assert words_in(tmp_path) != {}
        reader.execute("COMMIT")
        reader.close()
        assert await finish_jobs(wire.app) == 1
        assert words_in(tmp_path) == {}
        assert await finish_jobs(wire.app) == 0


async def test_failures_are_never_swallowed_by_a_deletion(wire: Wire) -> None:
    actor = await wire.actor()
    store = StoreId(await wire.store())
    with pytest.raises(Failure):
        await deletions.delete_store(failing(wire.app, 0), actor, store)
    assert (await wire.owner.get(f"/v1/memory-stores/{store}")).json()["status"] == "active"
    assert await finish_jobs(wire.app) == 0
