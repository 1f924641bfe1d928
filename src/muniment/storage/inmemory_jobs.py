"""Jobs with their leases, and the receipts of idempotency keys, in the oracle."""

from collections.abc import Sequence
from itertools import chain

from msgspec import structs

from muniment.model.ids import JobId, WorkspaceId
from muniment.model.jobs import KINDS, Job
from muniment.model.receipts import Receipt
from muniment.storage.base import KINDS_ASKED_MAX
from muniment.storage.inmemory_running import Running, page
from muniment.storage.inmemory_tables import require, require_id


class InMemoryJobs(Running):
    """The port's Jobs and Receipts."""

    async def get_receipt(
        self, workspace: WorkspaceId, subject: str, receipt: bytes
    ) -> Receipt | None:
        return self._reading().receipts.get((workspace, subject), receipt)

    def put_receipt(self, workspace: WorkspaceId, receipt: Receipt) -> None:
        t = self._writing(workspace)
        require(len(receipt.id) == len(receipt.fingerprint) == 32, "a receipt is named by hashes")
        self._expect(
            lambda: receipt.subject == workspace or t.stores.has((workspace,), receipt.subject),
            f"a receipt about {receipt.subject}",
        )
        t.receipts.add((workspace, receipt.subject), bytes(receipt.id), receipt)

    def enqueue(self, workspace: WorkspaceId, job: Job) -> None:
        t = self._writing(workspace)
        require_id("job", job.id)
        require(job.kind in KINDS, f"nobody does a {job.kind}")
        require_id(KINDS[job.kind], job.subject)
        t.jobs.add((workspace,), job.id, job)

    async def get_job(self, workspace: WorkspaceId, job: JobId) -> Job | None:
        return self._reading().jobs.get((workspace,), job)

    async def list_jobs(self, workspace: WorkspaceId, after: JobId | None, limit: int) -> list[Job]:
        return page(self._reading().jobs.values((workspace,), after), limit)

    async def due_jobs(
        self, now: int, kinds: Sequence[str], limit: int
    ) -> list[tuple[WorkspaceId, Job]]:
        t = self._reading()
        require(1 <= len(kinds) <= KINDS_ASKED_MAX, f"{len(kinds)} kinds")
        jobs = chain.from_iterable(
            ((row.id, job) for job in t.jobs.values((row.id,))) for row in t.workspaces.values(())
        )
        due = [
            (owner, job)
            for owner, job in jobs
            if job.kind in kinds and job.parked_at is None and job.run_at <= now
        ]
        return page(sorted(due, key=lambda item: (item[1].run_at, item[0], item[1].id)), limit)

    async def claim_job(self, workspace: WorkspaceId, job: Job, until: int) -> Job | None:
        held = self._held(workspace, job)
        if held is None or held.run_at != job.run_at or held.parked_at is not None:
            return None
        claimed = structs.replace(
            held,
            fence=held.fence + 1,
            attempts=held.attempts + 1,
            run_at=until,
            lease_until=until,
        )
        self._tables.jobs.put((workspace,), job.id, claimed)
        return claimed

    async def hold_job(self, workspace: WorkspaceId, job: Job, until: int) -> bool:
        held = self._held(workspace, job)
        if held is not None:
            longer = structs.replace(held, run_at=until, lease_until=until)
            self._tables.jobs.put((workspace,), job.id, longer)
        return held is not None

    def return_job(self, workspace: WorkspaceId, job: Job) -> None:
        held = self._held(workspace, job)
        if held is not None:
            returned = structs.replace(
                held,
                run_at=job.run_at,
                attempts=job.attempts,
                lease_until=job.lease_until,
                failure=job.failure,
                parked_at=job.parked_at,
            )
            self._tables.jobs.put((workspace,), job.id, returned)

    def finish_job(self, workspace: WorkspaceId, job: Job) -> None:
        if self._held(workspace, job) is not None:
            self._tables.jobs.discard((workspace,), job.id)

    def _held(self, workspace: str, job: Job) -> Job | None:
        """The job as it stands, if nobody claimed it since."""
        found = self._writing(workspace).jobs.get((workspace,), job.id)
        return None if found is None or found.fence != job.fence else found
