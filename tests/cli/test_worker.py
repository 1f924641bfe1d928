"""`muniment worker` as real processes: killed, asleep, several at once, and stopped."""

import asyncio
import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import apsw
import asyncpg
import httpx
import pytest

from muniment.model.ids import DEFAULT_WORKSPACE, StoreId
from muniment.model.jobs import Job
from muniment.storage.base import Transaction
from muniment.testing.server import Server
from shell import Shell
from wire import Wire, check_chain, wired
from working import Worker, jobs_of, leave_job, until

DOCUMENTS = 800
ROWS = 5


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database that several processes can use."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    return str(request.getfixturevalue("postgres_dsn"))


async def erased(wire: Wire) -> Counter[str]:
    """How often the workspace's events say of each store that it is erased; the chain is whole."""
    events = await wire.events(DEFAULT_WORKSPACE)
    check_chain(DEFAULT_WORKSPACE, events)
    return Counter(
        str(json.loads(event.payload or b"")["store"])
        for event in events
        if event.type == "memory.store_deleted"
    )


async def rows_left(wire: Wire, store: str) -> bool:
    """Whether anything of the store is left that an erasure takes."""
    at = StoreId(store)

    async def use(tx: Transaction) -> bool:
        documents = await tx.list_documents(DEFAULT_WORKSPACE, at, "/", None, 1)
        revisions = await tx.list_revisions(DEFAULT_WORKSPACE, at, None, 1)
        events = await tx.list_events(DEFAULT_WORKSPACE, at, 0, 1)
        found = await tx.get_store(DEFAULT_WORKSPACE, at, (DEFAULT_WORKSPACE,))
        assert found is not None
        blobs = await tx.list_blobs(DEFAULT_WORKSPACE, found[0].pool, None, 1)
        nodes = await tx.list_nodes(DEFAULT_WORKSPACE, found[0].pool, None, 1)
        return bool(documents or revisions or events or blobs or nodes)

    return await wire.storage.read(use, scan=True)


async def half_erased(wire: Wire, store: str) -> None:
    """Waits until an erasure is under way."""

    async def begun() -> bool:
        first = await wire.storage.read(
            lambda tx: tx.list_documents(DEFAULT_WORKSPACE, StoreId(store), "/", None, 1)
        )
        return not first or first[0].path > f"/{DOCUMENTS // 5:05}.md"

    await until(begun)
    assert await rows_left(wire, store)


async def finished(wire: Wire, *workers: Worker, jobs: int = 1) -> None:
    """Waits until there is no job, and these workers have said of so many that they are done.

    One that is stopped in the moment in which it records a job's end says nothing of it.
    """

    async def none_left() -> bool:
        return await jobs_of(wire) == []

    async def told() -> bool:
        runs = [run for worker in workers for run in worker.runs]
        return not workers or [run["outcome"] for run in runs].count("done") == jobs

    await until(none_left)
    await until(told)


async def test_c_172_what_a_killed_worker_left_another_one_finishes_when_the_lease_ends(
    url: str, tmp_path: Path
) -> None:
    async with wired(tmp_path / "home", url) as wire:
        store = await leave_job(wire, DOCUMENTS, seconds_ago=0)
        with (
            Worker(tmp_path / "1", url, lease_seconds=2, step_rows=ROWS) as first,
            Worker(tmp_path / "2", url, lease_seconds=2) as second,
        ):
            await first.ready()
            await second.ready()
            second.process.send_signal(signal.SIGSTOP)
            await make_due(wire, await jobs_of(wire))
            await half_erased(wire, store)
            first.process.kill()
            first.process.wait()
            second.process.send_signal(signal.SIGCONT)
            (left,) = await jobs_of(wire)
            assert left.lease_until is not None and left.lease_until > wire.app.now()
            await finished(wire, second)
            assert wire.app.now() >= left.lease_until
            assert second.stop() == 0
        assert first.runs == []
        (run,) = second.runs
        assert (run["outcome"], run["attempt"], run["subject"]) == ("done", 2, store)
        assert await erased(wire) == {store: 1}
        assert not await rows_left(wire, store)
        shown = await wire.owner.get("/v1/memory-stores?include_deleted=true")
        assert [one["status"] for one in shown.json()["items"]] == ["deleted"]


async def make_due(wire: Wire, jobs: list[Job]) -> None:
    """Ends every lease in one moment."""

    async def use(tx: Transaction) -> None:
        for job in jobs:
            tx.return_job(DEFAULT_WORKSPACE, job)

    now = wire.app.now()
    for n, job in enumerate(jobs):
        jobs[n] = Job(job.id, job.kind, job.subject, job.created_at, now, fence=job.fence)
    await wire.storage.write(None, use)


@pytest.mark.parametrize("count", [2, 3])
async def test_of_several_workers_one_does_each_job_r25(
    url: str, tmp_path: Path, count: int
) -> None:
    async with wired(tmp_path / "home", url) as wire, AsyncExitStack() as stack:
        stores = [await leave_job(wire, 3, seconds_ago=0) for _ in range(40)]
        workers = [
            stack.enter_context(Worker(tmp_path / str(n), url, step_rows=5)) for n in range(count)
        ]
        for worker in workers:
            await worker.ready()
        await make_due(wire, await jobs_of(wire))
        await finished(wire, *workers, jobs=len(stores))
        assert [worker.stop() for worker in workers] == [0] * count
        runs = [run for worker in workers for run in worker.runs]
        # The other processes' reads may hold up the cleaning of the file, which is then done later.
        assert {run["outcome"] for run in runs} <= {"done", "later"}
        done = [run["subject"] for run in runs if run["outcome"] == "done"]
        assert sorted(done) == sorted(stores)
        assert {run["attempt"] for run in runs} == {1}
        # On one file a worker that writes without a pause may keep the others from their turn.
        assert sum(bool(worker.runs) for worker in workers) >= (1 if "sqlite" in url else 2)
        assert await erased(wire) == dict.fromkeys(stores, 1)


async def between_transactions(wire: Wire, worker: Worker) -> None:
    """Puts the worker to sleep while it neither reads nor writes: others would wait for it."""
    while True:
        worker.process.send_signal(signal.SIGSTOP)
        if await nothing_locked(wire):
            return
        worker.process.send_signal(signal.SIGCONT)
        await asyncio.sleep(0.01)


async def nothing_locked(wire: Wire) -> bool:
    file = wire.settings.database_file
    try:
        if file is not None:
            connection = apsw.Connection(str(file))
            connection.execute("BEGIN IMMEDIATE; ROLLBACK")
            # A reader that slept would hold up the cleaning of the file for as long as it does.
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            connection.close()
            return bool(busy == 0)
        other = await asyncpg.connect(wire.settings.database_url)
        try:
            await other.execute("SELECT 1 FROM jobs FOR UPDATE NOWAIT")
        finally:
            await other.close()
    except (apsw.BusyError, asyncpg.LockNotAvailableError):
        return False
    return True


async def test_a_worker_that_slept_past_its_lease_writes_nothing_any_more(
    url: str, tmp_path: Path
) -> None:
    async with wired(tmp_path / "home", url) as wire:
        store = await leave_job(wire, DOCUMENTS)
        with Worker(tmp_path / "1", url, lease_seconds=1, step_rows=ROWS) as slept:
            await half_erased(wire, store)
            await between_transactions(wire, slept)
            assert await rows_left(wire, store)
            with Worker(tmp_path / "2", url, lease_seconds=1) as other:
                await finished(wire, other)
                assert other.stop() == 0
            before = await wire.state()
            slept.process.send_signal(signal.SIGCONT)

            async def noticed() -> bool:
                return len(slept.runs) == 1

            await until(noticed)
            assert await wire.state() == before
            assert [run["outcome"] for run in (*slept.runs, *other.runs)] == ["lost", "done"]
            again = await leave_job(wire)
            await finished(wire)
            assert await erased(wire) == {store: 1, again: 1}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_worker_that_is_stopped_gives_its_job_back(
    url: str, tmp_path: Path, number: signal.Signals
) -> None:
    async with wired(tmp_path / "home", url) as wire:
        store = await leave_job(wire, DOCUMENTS)
        (before,) = await jobs_of(wire)
        with Worker(tmp_path / "1", url, step_rows=ROWS) as worker:
            await half_erased(wire, store)
            assert worker.stop(number) == 0
            assert worker.runs == [] and worker.log.endswith("stopped\n")
        (left,) = await jobs_of(wire)
        assert (left.attempts, left.lease_until) == (before.attempts, None)
        assert await rows_left(wire, store)
        with Worker(tmp_path / "2", url):
            await finished(wire)
        assert await erased(wire) == {store: 1}


async def test_serve_leaves_jobs_to_workers_where_it_is_told_to(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with wired(tmp_path / "home", url) as wire:
        await leave_job(wire)
    settings = {"MUNIMENT_WORKER": "false"}
    with Server(tmp_path / "home", database=url, settings=settings) as server:
        headers = {"Authorization": f"Bearer {server.key}"}
        async with httpx.AsyncClient(base_url=server.url, headers=headers) as client:
            await asyncio.sleep(1.5)
            (job,) = (await client.get("/v1/jobs")).json()["items"]
            assert job["attempts"] == 1
            with Worker(tmp_path / "worker", url) as worker:

                async def done() -> bool:
                    return bool(worker.runs)

                await until(done)
                assert (await client.get("/v1/jobs")).json()["items"] == []
                assert worker.stop() == 0
                assert [run["job"] for run in worker.runs] == [job["id"]]
                # It has no key of its own, and makes none.
                assert not (tmp_path / "worker" / "credentials").exists()


def test_an_idle_worker_says_one_line_and_stops(shell: Shell) -> None:
    shell.answer("store", "create", "notes")
    with Worker(shell.home / "w", f"sqlite:///{shell.home / 'muniment.db'}") as worker:
        asyncio.run(worker.ready())
        assert worker.log.count("\n") == 1 and "muniment.db" in worker.log
        assert worker.stop(signal.SIGINT) == 0
        assert worker.log.splitlines()[1:] == ["stopped"]
    quiet = shell.start("worker", "--quiet", stderr=subprocess.PIPE)
    assert quiet.stderr is not None
    assert quiet.stderr.readline().startswith(b"Muniment ")
    quiet.terminate()
    assert (quiet.wait(30), quiet.stderr.read()) == (0, b"")
    quiet.stderr.close()


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("moment", ["note", "opened_for_operator"])
def test_a_signal_at_the_start_or_with_the_greeting_stops_it(
    shell: Shell, number: str, moment: str
) -> None:
    shell.answer("store", "create", "notes")
    script = (
        "import os, signal\n"
        "from muniment import main\n"
        "from muniment.cli import worker\n"
        f"place = worker if {moment!r} == 'note' else main\n"
        f"inner = place.{moment}\n"
        "def outer(text):\n"
        "    made = inner(text)\n"
        f"    if text != 'stopped': os.kill(os.getpid(), signal.{number})\n"
        "    return made\n"
        f"place.{moment} = outer\n"
        "from muniment.settings import load\n"
        f"worker.work(load({{}}, home={str(shell.home)!r}), quiet=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert done.stderr.endswith(b"stopped\n") == (moment == "note")


def test_a_worker_starts_only_where_there_are_jobs_of_others(shell: Shell) -> None:
    said = shell.refusal("worker")
    assert f"no database at {shell.home / 'muniment.db'}" in said and "muniment serve" in said
    assert not shell.home.exists()
    assert "memory:" in shell.refusal("worker", "--db", "memory:")
    assert "--log-level must" in shell.refusal("worker", "--log-level", "loud")
