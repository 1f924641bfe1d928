"""A small pool, slow statements and a database that stops: nobody waits for ever (K14, R-80)."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import asyncpg
import httpx
import pytest

from muniment.model.ids import to_bytes
from muniment.storage import postgres
from muniment.testing.postgres import PostgresServer
from wire import Wire, document_url, error_of, wired

pytestmark = pytest.mark.postgres

CONNECTIONS = 5
WRITERS = CONNECTIONS - postgres.RESERVED_FOR_READS
PROMPT_SECONDS = 4.0
STOPPED_SECONDS = 5.0
GONE = (503, "memory.backend_unavailable")
LOCK = "SELECT 1 FROM stores WHERE store_id = $1 FOR UPDATE"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of these tests' own, since they stop it where it stands."""
    with PostgresServer(durable=True) as running:
        yield running


@pytest.fixture
def dsn(server: PostgresServer) -> Iterator[str]:
    name = server.fresh_database()
    yield server.dsn(name)
    server.drop_database(name)


@pytest.fixture
async def wire(tmp_path: Path, dsn: str) -> AsyncIterator[Wire]:
    async with wired(tmp_path / "home", dsn, connections_max=CONNECTIONS) as made:
        yield made


@asynccontextmanager
async def locked(dsn: str, stores: Sequence[str]) -> AsyncIterator[None]:
    """Somebody's slow transaction that holds the rows of stores, each in a session of its own."""
    async with AsyncExitStack() as stack:
        for store in stores:
            connection = await asyncpg.connect(dsn)
            stack.push_async_callback(connection.close)
            await stack.enter_async_context(connection.transaction())
            await connection.execute(LOCK, to_bytes(store))
        yield


def put(wire: Wire, store: str, path: str) -> Awaitable[httpx.Response]:
    return wire.owner.put(document_url(store), params={"path": path}, json={"content": "x"})


def get(wire: Wire, store: str, path: str) -> Awaitable[httpx.Response]:
    return wire.owner.get(document_url(store), params={"path": path})


def begin(*requests: Awaitable[httpx.Response]) -> "list[asyncio.Task[httpx.Response]]":
    return [asyncio.ensure_future(request) for request in requests]


async def statuses(tasks: Sequence[Awaitable[httpx.Response]], seconds: float) -> Counter[int]:
    """What they answer, all of them within so many seconds; a 503 says when to come back."""
    async with asyncio.timeout(seconds):
        answers = await asyncio.gather(*tasks)
    for answer in answers:
        if answer.status_code >= 500:
            assert error_of(answer) == GONE, answer.text
            assert int(answer.headers["retry-after"]) >= 1
    return Counter(answer.status_code for answer in answers)


async def make_stores(wire: Wire, count: int) -> list[str]:
    """Stores with a document `/a.md` each."""
    stores = [await wire.store() for _ in range(count)]
    for store in stores:
        await wire.put(store, "/a.md", "x")
    return stores


async def check_recovered(wire: Wire, stores: Sequence[str], expected: dict[str, int]) -> None:
    """Without a restart readers and writers get through, and what was acknowledged is there."""
    tasks = begin(
        *(put(wire, stores[n % len(stores)], f"/after/{n}.md") for n in range(32)),
        *(get(wire, stores[n % len(stores)], "/a.md") for n in range(32)),
    )
    assert await statuses(tasks, PROMPT_SECONDS * 2) == {201: 32, 200: 32}
    for store in stores:
        found = {item["path"] for item in (await wire.documents(store, limit=200))[0]}
        assert {path for path, status in expected.items() if status == 201} <= found


async def test_a_slow_lock_holds_up_its_store_alone_k14(wire: Wire, dsn: str) -> None:
    slow, *others = await make_stores(wire, 5)
    async with locked(dsn, [slow]):
        held = begin(*(put(wire, slow, f"/{n}.md") for n in range(16)))
        await asyncio.sleep(0.1)
        free = begin(
            *(put(wire, others[n % 4], f"/{n}.md") for n in range(24)),
            *(get(wire, store, "/a.md") for store in (slow, *others) for _ in range(4)),
            *(wire.owner.get(f"/v1/memory-stores/{slow}/documents") for _ in range(4)),
        )
        assert await statuses(free, PROMPT_SECONDS) == {201: 24, 200: 24}
        assert not any(task.done() for task in held)
    assert await statuses(held, PROMPT_SECONDS) == {201: 16}


async def test_connections_are_kept_for_readers_while_every_writer_waits_k14(
    wire: Wire, dsn: str
) -> None:
    *slow, free = await make_stores(wire, WRITERS + 2)
    async with locked(dsn, slow):
        held = begin(*(put(wire, slow[n % len(slow)], f"/{n}.md") for n in range(24)))
        held += begin(*(put(wire, free, f"/{n}.md") for n in range(8)))
        await asyncio.sleep(0.2)
        for _ in range(3):
            reads = begin(*(get(wire, store, "/a.md") for store in (*slow, free) * 6))
            reads += begin(*(wire.owner.get("/v1/memory-stores") for _ in range(2)))
            assert await statuses(reads, PROMPT_SECONDS) == {200: len(reads)}
        assert not any(task.done() for task in held)
        assert (await wire.client(None).get("/healthz")).status_code == 200
    assert await statuses(held, PROMPT_SECONDS) == {201: 32}


async def test_who_waits_too_long_for_a_lock_or_a_turn_gets_503_k14(
    tmp_path: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 1.0)
    monkeypatch.setitem(postgres._SESSION, "lock_timeout", "2500")
    async with wired(tmp_path / "home", dsn, connections_max=CONNECTIONS) as wire:
        *slow, free = await make_stores(wire, WRITERS + 1)
        async with locked(dsn, slow):
            held = begin(*(put(wire, slow[n % len(slow)], f"/{n}.md") for n in range(24)))
            await asyncio.sleep(0.2)
            turned_away = begin(*(put(wire, free, f"/{n}.md") for n in range(8)))
            assert await statuses(turned_away, 2.0) == {503: 8}
            assert await statuses(held, PROMPT_SECONDS) == {503: 24}
        await check_recovered(wire, [*slow, free], {})


@pytest.mark.parametrize("way", ["paused", "stopped", "killed"])
async def test_a_database_that_is_gone_for_five_seconds_comes_back_to_everybody_k14(
    wire: Wire, server: PostgresServer, way: str
) -> None:
    stores = await make_stores(wire, 4)
    leave = {"paused": server.pause, "stopped": server.stop, "killed": server.kill}[way]
    come_back = server.resume if way == "paused" else server.start
    paths = [f"/{n}.md" for n in range(32)]
    began = time.monotonic()
    before = begin(*(put(wire, stores[n % 4], path) for n, path in enumerate(paths[:16])))
    await asyncio.sleep(0.01)
    await asyncio.to_thread(leave)
    try:
        tasks = begin(
            *(put(wire, stores[n % 4], path) for n, path in enumerate(paths[16:])),
            *(get(wire, stores[n % 4], "/a.md") for n in range(32)),
        )
        await asyncio.sleep(STOPPED_SECONDS)
        assert (await wire.client(None).get("/healthz")).status_code == 200
    finally:
        await asyncio.to_thread(come_back)
    answered = await statuses([*before, *tasks], postgres.WAIT_SECONDS + PROMPT_SECONDS)
    assert sum(answered.values()) == 64 and set(answered) <= {200, 201, 503}
    if way == "paused":
        assert answered == {201: 32, 200: 32}, "who waits has the answer when the database goes on"
    assert time.monotonic() - began < STOPPED_SECONDS + postgres.WAIT_SECONDS + PROMPT_SECONDS
    told = {
        path: task.result().status_code for path, task in zip(paths, before + tasks, strict=False)
    }
    for n, store in enumerate(stores):
        mine = {path: status for m, (path, status) in enumerate(told.items()) if m % 4 == n}
        await check_recovered(wire, [store], mine)


async def test_a_database_that_hangs_is_given_up_and_found_again_k14(
    tmp_path: Path, dsn: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(postgres, "COMMAND_SECONDS", 2.0)
    async with wired(tmp_path / "home", dsn, connections_max=CONNECTIONS) as wire:
        stores = await make_stores(wire, 4)
        blocker = await asyncpg.connect(dsn)
        await blocker.execute("BEGIN")
        await blocker.execute(LOCK, to_bytes(stores[0]))
        inside = begin(*(put(wire, stores[0], f"/inside-{n}.md") for n in range(4)))
        await asyncio.sleep(0.3)
        server.pause()
        try:
            began = time.monotonic()
            tasks = inside + begin(
                *(put(wire, stores[n % 4], f"/{n}.md") for n in range(32)),
                *(get(wire, stores[n % 4], "/a.md") for n in range(32)),
            )
            # The command is given up, then another connection, which is all that is tried.
            assert await statuses(tasks, 2.0 + 1.0 + PROMPT_SECONDS) == {503: 68}
            print(f"given up after {time.monotonic() - began:.1f} s")
            assert await statuses(begin(get(wire, stores[0], "/a.md")), PROMPT_SECONDS) == {503: 1}
        finally:
            server.resume()
            await blocker.close()
        await check_recovered(wire, stores, {})
