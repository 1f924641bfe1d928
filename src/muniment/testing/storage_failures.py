# ruff: noqa: D102 (a test's name is its sentence)
"""What fails leaves nothing behind, hurts nobody else, and what a reader sees stands still."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from muniment.model.errors import Conflict
from muniment.model.ids import StoreId, WorkspaceId
from muniment.model.jobs import Job
from muniment.model.revisions import CANONICAL
from muniment.storage.base import Storage, Transaction, Use
from muniment.testing.builders import NOBODY, Builder, Home, enqueueing, make_home


class Refused(Exception):
    """What the uses of these cases raise."""


def recording(home: Home, job: Job, build: Builder, *, fail: str = "") -> Use[int]:
    """A use that enqueues the job and appends an event; it may fail before or after that."""

    async def use(tx: Transaction) -> int:
        if fail == "before":
            raise Refused(job.id)
        tx.enqueue(home.workspace, job)
        event = await tx.append(home.workspace, home.store.id, build.fact())
        if fail == "after":
            raise Refused(job.id)
        return event.seq

    return use


async def seen(storage: Storage, home: Home) -> tuple[list[Job], int]:
    """The jobs that are there and the number of the last event."""

    async def use(tx: Transaction) -> tuple[list[Job], int]:
        jobs = await tx.list_jobs(home.workspace, None, 201)
        return jobs, (await tx.get_head(home.workspace, home.store.id)).seq

    return await storage.read(use)


async def wait_until(question: Callable[[], Awaitable[bool]], what: str) -> None:
    """Asks again until the answer is yes; fails after five seconds."""
    for _ in range(500):
        if await question():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


class FailureCases:
    """Uses that fail, callers that go away, writes that lose."""

    async def test_a_use_that_raises_leaves_nothing_and_its_caller_gets_what_it_raised(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        for group in (None, home.store.id):
            for fail in ("before", "after"):
                job = build.job(home.store.id)
                with pytest.raises(Refused, match=job.id):
                    await storage.write(group, recording(home, job, build, fail=fail))
                assert await seen(storage, home) == ([], 0)
        job = build.job(home.store.id)
        assert await storage.write(home.store.id, recording(home, job, build)) == 1
        assert await seen(storage, home) == ([job], 1)

    async def test_a_use_that_raises_does_not_hurt_the_others_of_its_group(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        plans = [
            (build.job(home.store.id), ("", "before", "", "after", "")[n % 5]) for n in range(25)
        ]
        answers = await asyncio.gather(
            *(
                storage.write(home.store.id, recording(home, job, build, fail=fail))
                for job, fail in plans
            ),
            return_exceptions=True,
        )
        numbers = []
        for (job, fail), answer in zip(plans, answers, strict=True):
            if fail:
                assert isinstance(answer, Refused) and answer.args == (job.id,)
            else:
                assert isinstance(answer, int)
                numbers.append(answer)
        landed = [job for job, fail in plans if not fail]
        assert sorted(numbers) == list(range(1, len(landed) + 1))
        assert await seen(storage, home) == (landed, len(landed))

    async def test_a_failed_use_is_not_seen_by_the_uses_after_it(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id

        def counting(fail: bool) -> Use[int]:
            async def use(tx: Transaction) -> int:
                await tx.lock_store(ws, store)
                found = await tx.get_store(ws, store, NOBODY)
                assert found is not None
                version = found[0].version + 1
                tx.put_store(ws, msgspec.structs.replace(found[0], version=version))
                if fail:
                    raise Refused("after the write")
                return version

            return use

        answers = await asyncio.gather(
            *(storage.write(store, counting(n % 3 == 1)) for n in range(18)),
            return_exceptions=True,
        )
        versions = [answer for answer in answers if isinstance(answer, int)]
        assert sorted(versions) == list(range(2, 14))
        assert sum(isinstance(answer, Refused) for answer in answers) == 6

    async def test_a_read_that_raises_gives_its_caller_what_it_raised(
        self, storage: Storage
    ) -> None:
        home = await make_home(storage, Builder())

        async def refuse(tx: Transaction) -> None:
            await tx.get_store(home.workspace, home.store.id, NOBODY)
            raise Conflict("no", path="/a")

        for scan in (False, True):
            with pytest.raises(Conflict) as caught:
                await storage.read(refuse, scan=scan)
            assert caught.value.detail == {"path": "/a"}
        assert await seen(storage, home) == ([], 0)

    @pytest.mark.parametrize("grouped", [True, False], ids=["in a group", "alone"])
    @pytest.mark.parametrize("turns", [1, 2, 3, 5, 8])
    async def test_a_cancelled_callers_write_lands_whole(
        self, storage: Storage, grouped: bool, turns: int
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        job = build.job(home.store.id)
        group = home.store.id if grouped else None
        caller = asyncio.create_task(storage.write(group, recording(home, job, build)))
        for _ in range(turns):
            await asyncio.sleep(0)
        caller.cancel()
        await asyncio.wait([caller])

        async def landed() -> bool:
            jobs, events = await seen(storage, home)
            assert (len(jobs), events) in ((0, 0), (1, 1)), "half a write"
            return events == 1

        await wait_until(landed, "the cancelled caller's write never landed")

    async def test_a_cancelled_caller_does_not_hurt_the_others_of_its_group(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        jobs = [build.job(home.store.id) for _ in range(12)]
        callers = [
            asyncio.create_task(storage.write(home.store.id, recording(home, job, build)))
            for job in jobs
        ]
        await asyncio.sleep(0)
        for n in (0, 5, 11):
            callers[n].cancel()
        await asyncio.wait(callers)
        for n, caller in enumerate(callers):
            assert caller.cancelled() or caller.exception() is None
            assert n in (0, 5, 11) or not caller.cancelled()

        async def landed() -> bool:
            return await seen(storage, home) == (jobs, len(jobs))

        await wait_until(landed, "some of the group's writes never landed")
        later = build.job(home.store.id)
        assert await storage.write(home.store.id, recording(home, later, build)) == 13

    @pytest.mark.parametrize("grouped", [True, False], ids=["in a group", "alone"])
    async def test_a_write_that_lost_is_taken_back_and_run_again(
        self, storage: Storage, grouped: bool
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        jobs = [build.job(store) for _ in range(8)]
        runs: list[Job] = []

        async def lose_once(tx: Transaction) -> int:
            job = jobs[len(runs)]
            runs.append(job)
            ref = await tx.get_ref(ws, store, CANONICAL)
            assert ref is not None
            stale = msgspec.structs.replace(ref, version=ref.version + 50)
            expected = stale if job is jobs[0] else ref
            tx.enqueue(ws, job)
            tx.move_ref(ws, store, msgspec.structs.replace(ref, version=99), expected)
            return len(runs)

        others = [build.job(store) for _ in range(4)]
        group = store if grouped else None
        answer, *_ = await asyncio.gather(
            storage.write(group, lose_once),
            *(storage.write(group, enqueueing(ws, job)) for job in others),
        )
        assert answer == len(runs) >= 2
        ref = await storage.read(lambda tx: tx.get_ref(ws, store, CANONICAL))
        assert ref is not None and ref.version == 99
        found, _ = await seen(storage, home)
        assert found == sorted([runs[-1], *others], key=lambda job: job.created_at)

    @pytest.mark.parametrize("scan", [False, True], ids=["short", "scan"])
    async def test_a_read_sees_one_snapshot(self, storage: Storage, scan: bool) -> None:
        build = Builder()
        home = await make_home(storage, build)
        jobs = [build.job(home.store.id) for _ in range(30)]
        reads: list[int] = []

        async def look(tx: Transaction) -> None:
            first = (await tx.get_head(home.workspace, home.store.id)).seq
            for _ in range(5):
                found = await tx.list_jobs(home.workspace, None, 201)
                head = await tx.get_head(home.workspace, home.store.id)
                events = await tx.list_events(home.workspace, home.store.id, 0, 201)
                assert len(found) == head.seq == len(events) == first
            reads.append(first)

        async def write_all() -> None:
            for job in jobs:
                await storage.write(home.store.id, recording(home, job, build))

        async def read_all() -> None:
            while not reads or reads[-1] < len(jobs):
                await storage.read(look, scan=scan)
                await asyncio.sleep(0)

        await asyncio.gather(write_all(), read_all(), read_all())
        assert reads[-1] == len(jobs)

    async def test_a_cancelled_reader_does_not_hurt_the_others(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        job = build.job(home.store.id)
        await storage.write(home.store.id, recording(home, job, build))
        readers = [asyncio.create_task(seen(storage, home)) for _ in range(30)]
        for turn in range(10):
            await asyncio.sleep(0)
            readers[turn].cancel()
        answers = await asyncio.gather(*readers, return_exceptions=True)
        for answer in answers:
            assert isinstance(answer, asyncio.CancelledError) or answer == ([job], 1)
        assert answers[10:] == [([job], 1)] * 20
        assert await seen(storage, home) == ([job], 1)

    async def test_a_write_reads_what_it_wrote_before(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        friend, (key, secret) = build.principal("ext"), build.key(home.principal)
        leave = build.delegation(home.principal, friend.id)
        agent = build.owner("agent_definition", friend.id)
        other, store = build.workspace("other"), build.store(friend.id)
        revision, ref = build.first()

        async def use(tx: Transaction) -> None:
            tx.put_workspace(other)
            tx.put_principal(ws, friend)
            tx.put_key(ws, key, secret)
            tx.put_delegation(ws, leave)
            tx.put_owner(ws, agent)
            tx.put_store(ws, store)
            tx.put_revision(ws, store.id, revision)
            tx.put_ref(ws, store.id, ref)
            assert await tx.get_workspace(other.id) == other
            assert other.id in await tx.list_workspaces()
            assert await tx.find_principal(ws, "ext") == friend
            assert await tx.list_principals(ws, home.principal, 5) == [friend]
            tx.revoke_key(ws, key.id, 5)
            revoked = msgspec.structs.replace(key, revoked_at=5)
            assert await tx.get_key(ws, key.id) == revoked
            found = await tx.find_key(ws, secret)
            assert found is not None and found[1] == revoked
            assert await tx.find_delegation(ws, home.principal, friend.id) == leave
            assert await tx.list_owners(ws, "agent_definition", None, 5) == [agent]
            assert await tx.get_ref(ws, store.id, CANONICAL) == ref
            assert await tx.get_revision(ws, store.id, revision.id) == revision
            listed = await tx.list_stores(ws, None, 5, readers=None, statuses=["active"])
            assert [each.store.id for each in listed] == [home.store.id, store.id]
            raise Refused("take it all back")

        with pytest.raises(Refused, match="take it all back"):
            await storage.write(None, use)
        await self.check_nothing(storage, ws, store.id)
        assert await storage.read(lambda tx: tx.find_principal(ws, "ext")) is None
        assert await storage.read(lambda tx: tx.get_workspace(other.id)) is None
        assert await storage.read(lambda tx: tx.find_key(ws, secret)) is None

    async def check_nothing(self, storage: Storage, ws: WorkspaceId, store: StoreId) -> None:
        """The store and all that came with it is absent."""

        async def look(tx: Transaction) -> None:
            assert await tx.get_store(ws, store, NOBODY) is None
            assert await tx.get_ref(ws, store, CANONICAL) is None
            assert await tx.list_keys(ws, None, 5) == []
            assert await tx.list_delegations(ws, None, 5) == []
            assert await tx.list_owners(ws, "agent_definition", None, 5) == []

        await storage.read(look)
