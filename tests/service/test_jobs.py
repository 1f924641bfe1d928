"""Leases of jobs: back-off, parking, lost and returned ones, kinds that nobody here knows."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muniment import worker
from muniment.model import jobs
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.model.jobs import ERASE_STORE
from muniment.service import deletions
from muniment.service.app import App
from muniment.service.jobs import Lease, Outcome, claim_next, run_leased
from muniment.storage.base import Transaction
from muniment.worker import HANDLERS, work, work_once
from wire import Wire, check_chain
from working import SECOND, Clock, Failing, jobs_of, leave_job, leave_unknown_job, replaced, until

WORKSPACE = DEFAULT_WORKSPACE
KINDS = tuple(HANDLERS)


def clocked(wire: Wire) -> tuple[App, Clock]:
    """The application with a clock that the test sets."""
    clock = Clock(wire.app.now())
    return replaced(wire.app, now=clock), clock


async def fails(app: App, lease: Lease) -> bool:
    raise RuntimeError("CANARY")


async def erased(wire: Wire) -> list[str]:
    """The stores whose deletion has finished, by their events; the chain is checked."""
    events = await wire.events(WORKSPACE)
    check_chain(WORKSPACE, events)
    return [
        str(json.loads(event.payload or b"")["store"])
        for event in events
        if event.type == "memory.store_deleted"
    ]


def test_every_kind_has_a_handler() -> None:
    assert HANDLERS.keys() == jobs.KINDS.keys()


async def test_a_failing_job_is_tried_again_after_longer_and_longer_pauses_and_then_parked(
    wire: Wire,
) -> None:
    app, clock = clocked(wire)
    store = await leave_job(wire)
    pauses = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]
    for attempt in range(1, jobs.ATTEMPTS_MAX):
        # The caller of the deletion, who died, began the first attempt.
        lease = await claim_next(app, KINDS)
        assert lease is not None and lease.job.attempts == attempt + 1
        ran = await run_leased(app, lease, fails)
        (job,) = await jobs_of(wire)
        assert (job.failure, job.lease_until) == ("RuntimeError", None)
        if attempt < 11:
            assert (ran.outcome, job.parked_at) == (Outcome.FAILED, None)
            assert job.run_at == clock.at + pauses[attempt] * SECOND
            clock.pass_by(pauses[attempt] - 0.001)
            assert await claim_next(app, KINDS) is None
            clock.pass_by(0.001)
    assert (ran.outcome, job.attempts, job.parked_at) == (Outcome.PARKED, 12, clock.at)
    clock.pass_by(10**6)
    assert await claim_next(app, KINDS) is None
    assert await erased(wire) == []
    assert job.subject == store


async def test_a_job_whose_workers_die_is_parked_as_well(wire: Wire) -> None:
    app, clock = clocked(wire)
    await leave_job(wire)
    for attempt in range(2, jobs.ATTEMPTS_MAX + 1):
        lease = await claim_next(app, KINDS)
        assert lease is not None and lease.job.attempts == attempt
        assert await claim_next(app, KINDS) is None
        clock.pass_by(jobs.LEASE_SECONDS)
    assert await work_once(app)
    (job,) = await jobs_of(wire)
    assert (job.failure, job.parked_at) == ("LostWorkers", clock.at)
    assert (job.attempts, job.lease_until) == (jobs.ATTEMPTS_MAX, None)
    clock.pass_by(10**6)
    assert not await work_once(app)


async def test_a_worker_that_slept_past_its_lease_writes_nothing_any_more(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "STEP_ROWS", 10)
    app, clock = clocked(wire)
    store = await leave_job(wire, 30)
    slept = await claim_next(app, KINDS)
    assert slept is not None
    clock.pass_by(jobs.LEASE_SECONDS - 1)
    assert await claim_next(app, KINDS) is None
    clock.pass_by(1)
    other = await claim_next(app, KINDS)
    assert other is not None and other.job.id == slept.job.id
    before = await wire.state(), await jobs_of(wire)
    assert (await run_leased(app, slept, deletions.erase_store)).outcome is Outcome.LOST
    assert (await run_leased(app, slept, fails)).outcome is Outcome.FAILED
    assert (await wire.state(), await jobs_of(wire)) == before
    assert (await run_leased(app, other, deletions.erase_store)).outcome is Outcome.DONE
    assert await erased(wire) == [store]
    assert await jobs_of(wire) == []
    # Neither what a late worker finished nor what it did not comes back.
    assert (await run_leased(app, slept, deletions.erase_store)).outcome is Outcome.LOST
    assert await erased(wire) == [store]


async def test_a_lease_that_ended_and_that_nobody_took_is_held_on_to(wire: Wire) -> None:
    app, clock = clocked(wire)
    store = await leave_job(wire)
    lease = await claim_next(app, KINDS)
    assert lease is not None
    clock.pass_by(3600)
    assert (await run_leased(app, lease, deletions.erase_store)).outcome is Outcome.DONE
    assert await erased(wire) == [store]


async def test_a_worker_that_is_stopped_gives_its_job_back_uncounted(wire: Wire) -> None:
    app, clock = clocked(wire)
    await leave_job(wire)
    (before,) = await jobs_of(wire)
    begun = asyncio.Event()

    async def waits(app: App, lease: Lease) -> bool:
        begun.set()
        await asyncio.sleep(3600)
        return True

    lease = await claim_next(app, KINDS)
    assert lease is not None
    running = asyncio.create_task(run_leased(app, lease, waits))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    (job,) = await jobs_of(wire)
    assert (job.attempts, job.run_at, job.lease_until) == (before.attempts, clock.at, None)
    assert (await claim_next(app, KINDS)) is not None


class Slow:
    """A storage whose writes answer when they are let."""

    def __init__(self, app: App) -> None:
        self.inner = app.storage
        self.begun, self.let = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def write(self, group: str | None, use: Callable[[Transaction], Awaitable[Any]]) -> Any:
        """Like the storage's own, which goes on where its caller is cancelled."""

        async def slowly() -> Any:
            answer = await self.inner.write(group, use)
            self.begun.set()
            await self.let.wait()
            return answer

        return await asyncio.shield(asyncio.ensure_future(slowly()))


async def test_a_worker_that_is_stopped_while_it_claims_leaves_no_lease_behind(
    wire: Wire,
) -> None:
    await leave_job(wire)
    (before,) = await jobs_of(wire)
    slow = Slow(wire.app)
    working = asyncio.create_task(work(replaced(wire.app, storage=slow)))
    await slow.begun.wait()
    working.cancel()
    slow.let.set()
    with pytest.raises(asyncio.CancelledError):
        await working
    (job,) = await jobs_of(wire)
    assert (job.attempts, job.lease_until, job.fence) == (before.attempts, None, before.fence + 1)


async def test_a_worker_stops_although_the_database_has_gone(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave_job(wire)
    begun = asyncio.Event()

    async def waits(app: App, lease: Lease) -> bool:
        begun.set()
        await asyncio.sleep(3600)
        return True

    monkeypatch.setitem(HANDLERS, ERASE_STORE, waits)
    gone = Failing(wire.storage, 1)
    working = asyncio.create_task(work(replaced(wire.app, storage=gone)))
    await begun.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, 10)


async def test_a_worker_waits_while_the_database_is_away_and_goes_on(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "TROUBLE_SECONDS", 0.01)
    store = await leave_job(wire)
    away = Failing(wire.storage, 0)
    working = asyncio.create_task(work(replaced(wire.app, storage=away)))

    async def troubled() -> bool:
        return "jobs not looked for" in caplog.messages

    async def finished() -> bool:
        return await jobs_of(wire) == []

    await until(troubled)
    away.writes = 1_000
    await until(finished)
    working.cancel()
    assert await erased(wire) == [store]


async def test_a_job_of_an_unknown_kind_is_left_alone_and_keeps_nobody_waiting(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(jobs.CLAIMS_AT_ONCE + 1):
        await leave_unknown_job(wire, monkeypatch)
    before = await jobs_of(wire)
    assert len(before) == jobs.CLAIMS_AT_ONCE + 1
    store = await leave_job(wire)
    assert await work_once(wire.app)
    assert not await work_once(wire.app)
    assert await erased(wire) == [store]
    assert await jobs_of(wire) == before


async def test_what_a_worker_logs_of_a_job_is_one_line_without_content(
    wire: Wire, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="muniment.worker")
    app, clock = clocked(wire)
    store = await leave_job(wire)
    monkeypatch.setitem(HANDLERS, ERASE_STORE, fails)
    assert await work_once(app)
    monkeypatch.setitem(HANDLERS, ERASE_STORE, deletions.erase_store)
    clock.pass_by(2)
    assert await work_once(app)
    told = [record for record in caplog.records if record.name == "muniment.worker"]
    assert [vars(line)["outcome"] for line in told] == ["failed", "done"]
    assert [line.levelname for line in told] == ["WARNING", "INFO"]
    assert [vars(line)["attempt"] for line in told] == [2, 3]
    assert {vars(line)["subject"] for line in told} == {store}
    assert vars(told[0])["reason"] == "RuntimeError"
    assert "CANARY" not in caplog.text
