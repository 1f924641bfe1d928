"""Databases of earlier programs, upgrades that are killed, and programs that are too old (K20)."""

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import apsw
import asyncpg
import pytest

import muniment
from muniment.model.errors import Unavailable
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.settings import load
from muniment.testing.invariants import check_invariants
from muniment.testing.server import Server
from shell import Shell
from upgrades import (
    NEWEST,
    Written,
    is_killed_migrating,
    schema_of,
    storage_over,
    written,
)
from wire import Wire, check_chain, tree_hash, wired

SECONDS_MAX = 20.0
EARLIER = [pytest.param(each, id=each.name) for each in written()]
NODES = 3


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes addresses of empty databases, of SQLite or of PostgreSQL."""
    if request.param == "postgres":
        made: Callable[[], str] = request.getfixturevalue("fresh_database")
        return made
    numbers = iter(range(1_000))
    return lambda: f"sqlite:///{tmp_path / f'{next(numbers)}.db'}"


async def check_upgraded(wire: Wire, earlier: Written) -> None:
    """Documents, trees and streams are what the earlier program said, and work goes on."""
    await check_invariants(wire.storage, DEFAULT_WORKSPACE, told=True)
    for store, said in earlier.stores.items():
        items, digest = await wire.documents(store)
        contents = {path: content.encode() for path, content in said["documents"].items()}
        assert digest == said["tree"] == tree_hash(contents)
        assert [item["path"] for item in items] == sorted(contents, key=str.encode)
        for path, content in said["documents"].items():
            url = f"/v1/memory-stores/{store}/document"
            found = await wire.owner.get(url, params={"path": path})
            assert found.json()["content"] == content
        events = await wire.events(store)
        assert [[event.type, event.hash.hex()] for event in events] == said["events"]
        check_chain(store, events)
    check_chain(DEFAULT_WORKSPACE, await wire.events(DEFAULT_WORKSPACE))
    first = next(iter(earlier.stores))
    await wire.put(first, "/after.md", "written after the upgrade")
    await check_invariants(wire.storage, DEFAULT_WORKSPACE, told=True)


def test_every_earlier_schema_has_a_database_that_was_written_by_it_k20() -> None:
    kept = {(each.schema, bool(each.master_key)) for each in written()}
    missing = {(n, sealed) for n in range(1, NEWEST) for sealed in (False, True)} - kept
    assert not missing, "run scripts/written.py with the program before the migration"


@pytest.mark.parametrize("earlier", EARLIER)
async def test_what_an_earlier_program_wrote_is_the_same_after_the_upgrade_k20(
    tmp_path: Path, fresh: Callable[[], str], earlier: Written
) -> None:
    address = fresh()
    await earlier.restore(address)
    assert await schema_of(address) == earlier.schema
    settings = earlier.settings(tmp_path / "home", address)
    async with wired(settings.home, address, master_key=earlier.master_key) as wire:
        assert await schema_of(address) == NEWEST
        await check_upgraded(wire, earlier)


@pytest.mark.parametrize("earlier", EARLIER[:1])
def test_a_deletion_that_an_earlier_program_began_is_finished_k20(
    tmp_path: Path, fresh: Callable[[], str], earlier: Written
) -> None:
    address = fresh()
    asyncio.run(earlier.restore(address))
    settings = earlier.settings(tmp_path / "home", address)
    with Server(settings.home, database=address) as server:
        with muniment.Client(server.url, server.key) as client:
            began = time.monotonic()
            while status_of(client, earlier.doomed) != "deleted":
                assert time.monotonic() - began < SECONDS_MAX
                time.sleep(0.05)


def status_of(client: muniment.Client, store: str) -> str:
    """The store's status, a deleted one's too."""
    (found,) = [s for s in client.stores.list(include_deleted=True) if s.id == store]
    return found.status


@pytest.mark.slow
async def test_an_upgrade_that_is_killed_at_any_statement_is_taken_up_k20(
    tmp_path: Path, fresh: Callable[[], str]
) -> None:
    earlier = written()[0]
    found = set()
    for at in range(1, 200):
        address = fresh()
        await earlier.restore(address)
        settings = earlier.settings(tmp_path / "home", address)
        killed = await asyncio.to_thread(is_killed_migrating, settings, at, after=bool(at % 2))
        found.add(await schema_of(address))
        async with wired(settings.home, address) as wire:
            assert await schema_of(address) == NEWEST
            await check_upgraded(wire, earlier)
        if not killed:
            break
    assert at > 10 and found == set(range(earlier.schema, NEWEST + 1))


async def test_a_first_start_that_is_killed_at_some_statement_is_taken_up_k20(
    tmp_path: Path, fresh: Callable[[], str]
) -> None:
    for at in range(1, 400, 7):
        address = fresh()
        settings = written()[0].settings(tmp_path / "home", address)
        killed = await asyncio.to_thread(is_killed_migrating, settings, at, after=bool(at % 2))
        async with wired(settings.home, address) as wire:
            await wire.put(await wire.store(), "/a.md", "x")
            await check_invariants(wire.storage, DEFAULT_WORKSPACE, told=True)
        if not killed:
            break
    assert at > 30 and not killed


@pytest.mark.parametrize("old", [True, False], ids=["an old database", "an empty one"])
def test_servers_that_start_at_once_all_come_up_and_one_migrates_k20(
    tmp_path: Path, fresh: Callable[[], str], old: bool
) -> None:
    address, earlier = fresh(), written()[0]
    if old:
        asyncio.run(earlier.restore(address))
    with ExitStack() as stack:
        servers = []
        for n in range(NODES):
            home = earlier.settings(tmp_path / f"home {n}", address).home
            servers.append(Server(home, database=address))
            stack.callback(servers[-1].kill)
            servers[-1].launch()
        for server in servers:
            server.wait_ready()
        store = None
        for server in servers:
            with muniment.Client(server.url, earlier.secret) as client:
                store = store or client.stores.create("of all").id
                client.documents.put(store, f"/{len(servers)}-{server.pid}.md", "x")
        with muniment.Client(servers[0].url, earlier.secret) as client:
            assert len(list(client.documents.list(store or ""))) == NODES
    asyncio.run(check_one_migrator(address))


async def check_one_migrator(address: str) -> None:
    """Each step stands there once."""
    text = "SELECT version FROM migrations ORDER BY version"
    if address.startswith("sqlite"):
        connection = apsw.Connection(address.removeprefix("sqlite:///"))
        rows = [row[0] for row in connection.execute(text).fetchall()]
        connection.close()
    else:
        other = await asyncpg.connect(address)
        rows = [row[0] for row in await other.fetch(text)]
        await other.close()
    assert rows == list(range(1, NEWEST + 1))


async def come_from_the_future(address: str) -> None:
    """Marks the database as one of a later program."""
    text = "INSERT INTO migrations (version, name, applied_at) VALUES (999, 'later', 1)"
    if address.startswith("sqlite"):
        connection = apsw.Connection(address.removeprefix("sqlite:///"))
        connection.execute(text)
        connection.close()
    else:
        other = await asyncpg.connect(address)
        await other.execute(text)
        await other.close()


async def test_a_running_program_whose_database_was_upgraded_is_not_ready_k20(
    tmp_path: Path, fresh: Callable[[], str]
) -> None:
    address = fresh()
    async with wired(tmp_path / "home", address) as wire:
        await come_from_the_future(address)
        with pytest.raises(Unavailable, match=f"schema 999, this program {NEWEST}"):
            await wire.storage.check_ready()
        with pytest.raises(Unavailable, match=f"schema 999, this program knows {NEWEST}"):
            await wire.storage.migrate(1)
        assert (await wire.client(None).get("/readyz")).status_code == 503


def test_migrate_says_the_schema_and_an_old_program_refuses_a_newer_one_k20(
    tmp_path: Path, fresh: Callable[[], str]
) -> None:
    address, earlier = fresh(), written()[0]
    asyncio.run(earlier.restore(address))
    shell = Shell(earlier.settings(tmp_path / "home", address).home)
    shell.environment["MUNIMENT_MASTER_KEY"] = "7e" * 32
    run = shell.run("migrate", "--db", address)
    said = f"brought the database from schema {earlier.schema} to {NEWEST}\n"
    assert (run.returncode, run.stderr.decode()) == (0, said)
    assert asyncio.run(schema_of(address)) == NEWEST
    told = json.loads(shell.answer("migrate", "--db", address, "--json"))
    assert told["schema"] == NEWEST
    asyncio.run(come_from_the_future(address))
    said = f"the database has schema 999, this program knows {NEWEST}: upgrade it"
    for command in (("migrate",), ("serve", "--port", "0"), ("store", "list")):
        assert shell.refusal(*command, "--db", address) == said


async def test_of_nodes_that_first_start_under_different_master_keys_one_comes_up_r82(
    tmp_path: Path, fresh: Callable[[], str]
) -> None:
    for _ in range(6):
        address = fresh()
        nodes = [
            storage_over(load({}, home=tmp_path, database=address, master_key=f"{n:064x}"))
            for n in range(NODES)
        ]
        for node in nodes:
            await node.start()
        answers = await asyncio.gather(*(node.migrate(1) for node in nodes), return_exceptions=True)
        refused = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(refused) == NODES - 1, answers
        for each in refused:
            assert isinstance(each, Unavailable) and "another master key" in str(each)
        again = await asyncio.gather(*(node.migrate(1) for node in nodes), return_exceptions=True)
        assert [type(each) for each in again] == [type(each) for each in answers]
        for node in nodes:
            await node.stop()
