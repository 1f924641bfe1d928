# ruff: noqa: D102 (a test's name is its sentence)
"""Contract cases of jobs and receipts, one per sentence of the port."""

import asyncio
from functools import partial
from hashlib import sha256

import msgspec
import pytest

from muniment.model.ids import WorkspaceId
from muniment.model.jobs import ERASE_STORE, Job
from muniment.model.receipts import Receipt
from muniment.storage.base import Storage, Transaction
from muniment.testing.builders import Builder, doing, enqueueing, make_home
from muniment.testing.storage_events import erase


def give_back(workspace: WorkspaceId, job: Job, tx: Transaction) -> None:
    """Gives the job back, as a use."""
    tx.return_job(workspace, job)


class JobCases:
    """Jobs and their leases."""

    async def test_jobs_are_listed_in_order_until_finished(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        jobs = [build.job(home.store.id) for _ in range(4)]

        async def fill(tx: Transaction) -> None:
            for job in reversed(jobs):
                tx.enqueue(ws, job)
            assert await tx.get_job(ws, jobs[0].id) == jobs[0]

        await storage.write(None, fill)
        assert await storage.read(lambda tx: tx.list_jobs(ws, None, 9)) == jobs
        assert await storage.read(lambda tx: tx.list_jobs(ws, jobs[0].id, 2)) == jobs[1:3]

        async def finish(tx: Transaction) -> None:
            tx.finish_job(ws, jobs[1])
            tx.finish_job(ws, jobs[1])
            assert await tx.list_jobs(ws, None, 9) == [jobs[0], *jobs[2:]]
            assert await tx.get_job(ws, jobs[1].id) is None

        await storage.write(None, finish)
        assert await storage.read(lambda tx: tx.list_jobs(ws, None, 9)) == [jobs[0], *jobs[2:]]

    async def test_due_jobs_are_those_of_every_workspace_that_are_due_and_not_parked(
        self, storage: Storage
    ) -> None:
        build = Builder()
        homes = [await make_home(storage, build) for _ in range(2)]
        jobs = [
            (home.workspace, msgspec.structs.replace(build.job(home.store.id), **fields))
            for fields in ({"run_at": 70}, {"run_at": 50}, {"run_at": 71}, {"parked_at": 9})
            for home in homes
        ]

        async def fill(tx: Transaction) -> None:
            for workspace, job in jobs:
                tx.enqueue(workspace, job)

        await storage.write(None, fill)
        expected = sorted(
            (item for item in jobs if item[1].run_at <= 70 and item[1].parked_at is None),
            key=lambda item: (item[1].run_at, item[0], item[1].id),
        )
        assert len(expected) == 4
        kinds = (ERASE_STORE,)
        assert await storage.read(lambda tx: tx.due_jobs(70, kinds, 9)) == expected
        assert await storage.read(lambda tx: tx.due_jobs(70, kinds, 3)) == expected[:3]
        assert await storage.read(lambda tx: tx.due_jobs(49, kinds, 3)) == []
        several = ("dream", ERASE_STORE, "curation")
        assert await storage.read(lambda tx: tx.due_jobs(70, several, 9)) == expected
        assert await storage.read(lambda tx: tx.due_jobs(70, ("dream",), 9)) == []

    async def test_a_claim_takes_the_lease_and_the_old_holder_changes_nothing(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, job = home.workspace, build.job(home.store.id)
        await storage.write(None, enqueueing(ws, job))
        first = await storage.write(ws, lambda tx: tx.claim_job(ws, job, 100))
        assert first is not None
        assert (first.fence, first.attempts, first.run_at, first.lease_until) == (1, 1, 100, 100)
        assert await storage.write(ws, lambda tx: tx.claim_job(ws, job, 101)) is None
        second = await storage.write(ws, lambda tx: tx.claim_job(ws, first, 200))
        assert second is not None and (second.fence, second.attempts) == (2, 2)

        async def late(tx: Transaction) -> bool:
            tx.return_job(ws, msgspec.structs.replace(first, failure="late", run_at=1))
            tx.finish_job(ws, first)
            return await tx.hold_job(ws, first, 900)

        assert await storage.write(ws, late) is False
        assert await storage.read(lambda tx: tx.get_job(ws, job.id)) == second

        async def go_on(tx: Transaction) -> bool:
            return await tx.hold_job(ws, second, 300)

        assert await storage.write(ws, go_on) is True
        held = await storage.read(lambda tx: tx.get_job(ws, job.id))
        longer = msgspec.structs.replace(second, run_at=300, lease_until=300)
        assert held == longer
        parked = msgspec.structs.replace(
            second, run_at=7, attempts=5, lease_until=None, failure="Unavailable", parked_at=8
        )
        await storage.write(ws, doing(lambda tx: tx.return_job(ws, parked)))
        assert await storage.read(lambda tx: tx.get_job(ws, job.id)) == parked
        await storage.write(ws, doing(lambda tx: tx.finish_job(ws, parked)))
        assert await storage.read(lambda tx: tx.list_jobs(ws, None, 9)) == []

    async def test_a_claim_takes_no_job_that_was_renewed_given_back_or_parked_meanwhile(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, job = home.workspace, build.job(home.store.id)
        await storage.write(None, enqueueing(ws, job))
        held = await storage.write(ws, lambda tx: tx.claim_job(ws, job, 100))
        assert held is not None
        for meanwhile in (
            msgspec.structs.replace(held, run_at=150, lease_until=150),
            msgspec.structs.replace(held, run_at=107, lease_until=None, failure="Unavailable"),
            msgspec.structs.replace(held, lease_until=None, parked_at=9),
        ):
            await storage.write(ws, doing(partial(give_back, ws, meanwhile)))
            assert await storage.write(ws, lambda tx: tx.claim_job(ws, held, 200)) is None
            assert await storage.read(lambda tx: tx.get_job(ws, job.id)) == meanwhile
        await storage.write(ws, doing(partial(give_back, ws, held)))
        assert await storage.write(ws, lambda tx: tx.claim_job(ws, held, 200)) is not None

    async def test_of_many_claims_of_one_job_one_wins(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, jobs = home.workspace, [build.job(home.store.id) for _ in range(3)]
        for job in jobs:
            await storage.write(None, enqueueing(ws, job))

        async def claim(job: Job, until: int) -> Job | None:
            # Alone and in groups, so that claims meet in one transaction and in several.
            return await storage.write(
                None if until % 2 else ws, lambda tx: tx.claim_job(ws, job, until)
            )

        claims = await asyncio.gather(*(claim(job, n) for n in range(1, 9) for job in jobs))
        won = [claimed for claimed in claims if claimed is not None]
        assert sorted(claimed.id for claimed in won) == [job.id for job in jobs]
        assert {claimed.fence for claimed in won} == {1}

    async def test_a_lease_is_seen_by_nobody_where_its_transaction_fails(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, job = home.workspace, build.job(home.store.id)
        await storage.write(None, enqueueing(ws, job))

        async def fail(tx: Transaction) -> None:
            assert await tx.claim_job(ws, job, 100) is not None
            raise RuntimeError("after the claim")

        with pytest.raises(RuntimeError):
            await storage.write(ws, fail)
        assert await storage.read(lambda tx: tx.get_job(ws, job.id)) == job


class ReceiptCases:
    """Receipts of idempotency keys."""

    async def find(
        self, workspace: WorkspaceId, subject: str, receipt: bytes, tx: Transaction
    ) -> Receipt | None:
        """The receipt, as a use."""
        return await tx.get_receipt(workspace, subject, receipt)

    async def test_a_receipt_is_kept_by_what_it_is_about_r47(self, storage: Storage) -> None:
        build = Builder()
        home, other = [await make_home(storage, build) for _ in range(2)]
        ws, store = home.workspace, home.store.id
        receipts = [
            Receipt(sha256(bytes([n])).digest(), subject, sha256(b"f").digest(), {"n": str(n)}, n)
            for n, subject in enumerate((store, ws))
        ]

        async def keep(tx: Transaction) -> Receipt | None:
            assert await tx.get_receipt(ws, store, receipts[0].id) is None
            for receipt in receipts:
                tx.put_receipt(ws, receipt)
            return await tx.get_receipt(ws, store, receipts[0].id)

        assert await storage.write(None, keep) == receipts[0]
        for receipt in receipts:
            found = await storage.read(partial(self.find, ws, receipt.subject, receipt.id))
            assert found == receipt
        strange = other.workspace
        assert await storage.read(lambda tx: tx.get_receipt(ws, ws, receipts[0].id)) is None
        assert await storage.read(lambda tx: tx.get_receipt(strange, store, receipts[0].id)) is None

    async def test_of_two_writers_of_one_receipt_the_second_finds_the_first_r47(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace

        async def once(n: int, tx: Transaction) -> Receipt:
            mine = Receipt(b"r" * 32, ws, b"f" * 32, {"made": str(n)}, n)
            found = await tx.get_receipt(ws, ws, mine.id)
            if found is None:
                tx.put_receipt(ws, mine)
            return found or mine

        answers = await asyncio.gather(*(storage.write(None, partial(once, n)) for n in range(8)))
        assert len({answer.created_at for answer in answers}) == 1

    async def test_erasing_a_store_takes_its_receipts_along(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        ids = [sha256(bytes([n])).digest() for n in range(20)]
        kept = Receipt(b"k" * 32, ws, b"f" * 32, {}, 1)

        async def keep(tx: Transaction) -> None:
            tx.put_receipt(ws, kept)
            for one in ids:
                tx.put_receipt(ws, Receipt(one, store, b"f" * 32, {"store": store}, 1))

        await storage.write(None, keep)
        await erase(storage, home, 7)
        for one in ids:
            found = await storage.read(partial(self.find, ws, store, one))
            assert found is None
        assert await storage.read(lambda tx: tx.get_receipt(ws, ws, kept.id)) == kept
