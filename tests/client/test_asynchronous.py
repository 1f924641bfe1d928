"""The client for asyncio: the same calls, awaited."""

import asyncio
import inspect
from pathlib import Path

import pytest

import muniment

NOUNS = (
    "stores",
    "documents",
    "keys",
    "principals",
    "delegations",
    "assignments",
    "agents",
    "sessions",
    "scopes",
    "jobs",
)


async def test_a_document_lives_from_put_to_delete(async_client: muniment.AsyncClient) -> None:
    store = (await async_client.stores.create("notes")).id
    made = await async_client.documents.put(store, "/a.md", "one")
    with pytest.raises(muniment.Conflict) as raised:
        await async_client.documents.put(store, "/a.md", "two")
    assert raised.value.current_sha256 == made.sha256
    left = await async_client.documents.edit(store, "/a.md", lambda text: f"{text}, two")
    assert (await async_client.documents.get(store, "/a.md")).content == "one, two"
    await async_client.documents.delete(store, "/a.md", if_match=left.sha256)
    assert [item async for item in async_client.documents.list(store)] == []


async def test_concurrent_writes_are_all_kept(async_client: muniment.AsyncClient) -> None:
    store = (await async_client.stores.create("notes")).id
    puts = [async_client.documents.put(store, f"/{n:02}", "x") for n in range(30)]
    assert all(left.created for left in await asyncio.gather(*puts))
    edits = [
        async_client.documents.edit(store, "/all", lambda text: (text or "") + "x", attempts=50)
        for _ in range(6)
    ]
    await asyncio.gather(*edits)
    assert (await async_client.documents.get(store, "/all")).content == "x" * 6
    paths = [item.path async for item in async_client.documents.list(store, limit=8)]
    assert paths == [f"/{n:02}" for n in range(30)] + ["/all"]


async def test_a_delegate_acts_as_its_principal_r43(async_client: muniment.AsyncClient) -> None:
    robot = await async_client.principals.create("robot")
    me = await async_client.whoami()
    await async_client.delegations.create(robot.id, f"principal:{me.principal.id}")
    async with async_client.acting_as(robot.id) as other:
        assert (await other.whoami()).principal == robot
    assert (await async_client.whoami()).principal == me.principal


async def test_an_embedded_client_opens_at_its_first_request(home: Path) -> None:
    client = muniment.open_async(home / "late.db")
    assert not (home / "late.db").exists()
    found = await asyncio.gather(*[client.whoami() for _ in range(5)])
    assert len({one.principal.id for one in found}) == 1
    await client.aclose()
    await client.aclose()
    with pytest.raises(RuntimeError, match="closed"):
        await client.whoami()


async def test_an_unusable_database_fails_where_it_is_opened(tmp_path: Path, home: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but a text" * 50)
    with pytest.raises(muniment.Unavailable, match="text"):
        async with muniment.open_async(tmp_path / "text"):
            pass


def test_both_clients_have_the_same_methods() -> None:
    blocking = muniment.Client("http://127.0.0.1:1", "k")
    awaited = muniment.AsyncClient("http://127.0.0.1:1", "k")
    for noun in NOUNS:
        left, right = getattr(blocking, noun), getattr(awaited, noun)
        names = {name for name in dir(left) if not name.startswith("_")}
        assert names == {name for name in dir(right) if not name.startswith("_")}
        for name in names - {"sender"}:
            one, other = getattr(left, name), getattr(right, name)
            assert inspect.signature(one) == inspect.signature(other), (noun, name)
            assert one.__doc__ == other.__doc__, (noun, name)
            assert one.__doc__, (noun, name)


async def test_a_write_under_an_idempotency_key_is_made_once_r47(
    async_client: muniment.AsyncClient,
) -> None:
    once = async_client.once("async plans")
    made = [await once.stores.create("made once") for _ in range(2)]
    assert made[0] == made[1]
