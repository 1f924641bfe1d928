"""Two servers over one database, and callers who go away (R-25, R-30, R-80, C-170, K1)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from muniment.model.ids import DEFAULT_WORKSPACE
from wire import Wire, check_chain, document_url, tree_hash, wired


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def nodes(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Wire]]:
    """Two applications that share a database and nothing else."""
    url = f"sqlite:///{tmp_path / 'test.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_dsn")
    async with wired(tmp_path / "home", url) as one, wired(tmp_path / "home", url) as two:
        yield [one, two]


def put(node: Wire, store: str, path: str, content: str = "x") -> "asyncio.Task[httpx.Response]":
    return asyncio.ensure_future(
        node.owner.put(document_url(store), params={"path": path}, json={"content": content})
    )


async def test_r_25_writes_of_two_nodes_all_land_in_one_chain(nodes: list[Wire]) -> None:
    store = await nodes[0].store()
    answers = await asyncio.gather(
        *(put(node, store, f"/{n}/{i}.md") for n in range(40) for i, node in enumerate(nodes)),
        *(node.owner.post("/v1/sessions", json={"name": "s"}) for _ in range(20) for node in nodes),
    )
    assert {answer.status_code for answer in answers} == {201}
    wanted = {f"/{n}/{i}.md": b"x" for n in range(40) for i in range(2)}
    for node in nodes:
        items, digest = await node.documents(store, limit=200)
        assert len(items) == 80
        assert digest == tree_hash(wanted)
        for stream in (store, DEFAULT_WORKSPACE):
            check_chain(stream, await node.events(stream))


async def test_c_205_of_two_nodes_writers_of_one_path_one_wins_each_time(
    nodes: list[Wire],
) -> None:
    store = await nodes[0].store()
    await nodes[0].put(store, "/count.md", "0")
    url, at = document_url(store), {"path": "/count.md"}

    async def add_one(node: Wire) -> None:
        while True:
            now = (await node.owner.get(url, params=at)).json()
            answer = await node.owner.put(
                url,
                params=at,
                json={"content": str(int(now["content"]) + 1)},
                headers={"If-Match": now["sha256"]},
            )
            assert answer.status_code in (200, 409), answer.text
            if answer.status_code == 200:
                return

    await asyncio.gather(*(add_one(node) for _ in range(6) for node in nodes))
    for node in nodes:
        assert (await node.owner.get(url, params=at)).json()["content"] == "12"
    assert len(await nodes[1].events(store)) == 2 + 12


async def test_c_170_a_deletion_on_one_node_stops_the_writers_of_the_other(
    nodes: list[Wire],
) -> None:
    one, two = nodes
    store = await one.store()
    await one.fill(store, {f"/{n}.md": "x" for n in range(50)})

    async def delete() -> httpx.Response:
        await asyncio.sleep(0.01)
        return await one.owner.delete(f"/v1/memory-stores/{store}")

    gone, *puts = await asyncio.gather(
        delete(), *(put(nodes[n % 2], store, f"/new-{n}.md") for n in range(80))
    )
    assert gone.status_code == 204
    assert {answer.status_code for answer in puts} <= {201, 404}
    assert (await put(two, store, "/late.md")).status_code == 404
    for node in nodes:
        left = await node.storage.read(
            lambda tx: tx.list_documents(DEFAULT_WORKSPACE, store, "/", None, 10), scan=True
        )
        assert left == []
        assert await node.events(store) == []


async def test_k15_a_cursor_of_one_node_goes_on_at_the_other(nodes: list[Wire]) -> None:
    one, two = nodes
    store = await one.store()
    await one.fill(store, {f"/{n:02}.md": f"{n}" for n in range(30)})
    url = f"/v1/memory-stores/{store}/documents"
    first = (await one.owner.get(url, params={"limit": 20})).json()
    await two.put(store, "/25-new.md", "x")
    query = {"limit": 20, "page": first["next_page"]}
    second = (await two.owner.get(url, params=query)).json()
    paths = [item["path"] for item in first["items"] + second["items"]]
    assert paths == [f"/{n:02}.md" for n in range(30)]
    assert first["tree_digest"] == second["tree_digest"]


async def test_r_80_a_caller_who_goes_away_leaves_a_whole_write_or_none(wire: Wire) -> None:
    store = await wire.store()

    async def impatient(n: int) -> str | None:
        try:
            answer = await asyncio.wait_for(put(wire, store, f"/{n}.md"), 0.0002 * (n + 1))
        except TimeoutError:
            return None
        return f"/{n}.md" if answer.status_code == 201 else None

    acknowledged = {path for path in await asyncio.gather(*map(impatient, range(60))) if path}
    await wire.put(store, "/last.md", "x")
    items, digest = await wire.documents(store, limit=200)
    found = {item["path"] for item in items}
    assert acknowledged <= found
    assert digest == tree_hash(dict.fromkeys(found, b"x"))
    events = await wire.events(store)
    assert len(events) == 1 + len(found)
    check_chain(store, events)


async def test_r_25_two_storages_in_one_process_see_each_other_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with wired(tmp_path / "home", url) as one, wired(tmp_path / "home", url) as two:
        store = await one.store()
        sha = await two.put(store, "/a.md", "from two")
        found = await one.owner.get(f"/v1/memory-stores/{store}/document", params={"path": "/a.md"})
        assert found.json()["sha256"] == sha
        assert (await one.owner.delete(f"/v1/memory-stores/{store}")).status_code == 204
        answer = await two.owner.get(f"/v1/memory-stores/{store}/documents")
        assert answer.status_code == 404
        first = await one.store()
        page = await one.owner.get("/v1/memory-stores", params={"limit": 1})
        assert page.json()["items"][0]["id"] == first
