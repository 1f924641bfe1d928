"""Jobs with their leases, and the receipts of idempotency keys, over SQL."""

from collections.abc import Sequence
from typing import Any

from muniment.model.ids import JobId, WorkspaceId, to_bytes
from muniment.model.jobs import Job
from muniment.model.receipts import Receipt
from muniment.storage import rows
from muniment.storage.sql_running import Running


class SqlJobs(Running):
    """The port's Jobs and Receipts."""

    async def get_receipt(
        self, workspace: WorkspaceId, subject: str, receipt: bytes
    ) -> Receipt | None:
        row = await self._row("get_receipt", workspace, subject=to_bytes(subject), receipt=receipt)
        return None if row is None else rows.receipt(subject, row)

    def put_receipt(self, workspace: WorkspaceId, receipt: Receipt) -> None:
        self._insert("receipts", workspace, *rows.receipt_values(receipt))

    def enqueue(self, workspace: WorkspaceId, job: Job) -> None:
        self._insert("jobs", workspace, *rows.job_values(job))

    async def get_job(self, workspace: WorkspaceId, job: JobId) -> Job | None:
        row = await self._row("get_job", workspace, job=to_bytes(job))
        return None if row is None else rows.job(row)

    async def list_jobs(self, workspace: WorkspaceId, after: JobId | None, limit: int) -> list[Job]:
        found = await self._rows("list_jobs", workspace, after=rows.after(after), limit=limit)
        return [rows.job(row) for row in found]

    async def due_jobs(
        self, now: int, kinds: Sequence[str], limit: int
    ) -> list[tuple[WorkspaceId, Job]]:
        values = {"now": now, "limit": limit, **rows.kinds(kinds)}
        found = await self._executor.rows("due_jobs", values)
        return [(rows.workspace_id(row[0]), rows.job(row[1:])) for row in found]

    async def claim_job(self, workspace: WorkspaceId, job: Job, until: int) -> Job | None:
        self.writes += 1
        row = await self._row("claim_job", workspace, **_held(job), run_at=job.run_at, until=until)
        return None if row is None else rows.job(row)

    async def hold_job(self, workspace: WorkspaceId, job: Job, until: int) -> bool:
        self.writes += 1
        row = await self._row("hold_job", workspace, **_held(job), until=until)
        return row is not None

    def return_job(self, workspace: WorkspaceId, job: Job) -> None:
        self._run(
            "return_job",
            workspace,
            **_held(job),
            run_at=job.run_at,
            attempts=job.attempts,
            lease_until=job.lease_until,
            failure=job.failure,
            parked_at=job.parked_at,
        )

    def finish_job(self, workspace: WorkspaceId, job: Job) -> None:
        self._run("finish_job", workspace, **_held(job))


def _held(job: Job) -> dict[str, Any]:
    """The job by its id and the fence under which it is held."""
    return {"job": to_bytes(job.id), "fence": job.fence}
