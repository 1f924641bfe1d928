"""The worker: claims jobs that are due, of every workspace, and runs them one after the other.

`serve` and the embedded library have one inside, `muniment worker` is one by itself. Any number of
them may share a database: a job has one holder at a time (house section 8).
"""

import asyncio
import logging

from muniment.model.ids import WorkspaceId
from muniment.model.jobs import ERASE_STORE, Job
from muniment.service import deletions
from muniment.service.app import App
from muniment.service.jobs import Handler, Outcome, Ran, claim_next, run_leased

HANDLERS: dict[str, Handler] = {ERASE_STORE: deletions.erase_store}
"""Who does which kind of job."""

POLL_SECONDS = 1.0
TROUBLE_SECONDS = 10.0

log = logging.getLogger("muniment.worker")


async def work(app: App) -> None:
    """Works until it is cancelled; a job that runs is then given back for others to take up."""
    while True:
        try:
            busy = await work_once(app)
        except Exception:
            # The database does not answer, most likely: what was leased falls due again.
            log.exception("jobs not looked for")
            await asyncio.sleep(TROUBLE_SECONDS)
        else:
            if not busy:
                await asyncio.sleep(POLL_SECONDS)


async def work_once(app: App) -> bool:
    """Runs one job that is due; False where there is none."""
    lease = await claim_next(app, tuple(HANDLERS))
    if lease is None:
        return False
    ran = await run_leased(app, lease, HANDLERS[lease.job.kind])
    _tell(lease.workspace, lease.job, ran)
    return True


def _tell(workspace: WorkspaceId, job: Job, ran: Ran) -> None:
    """One log line a run, with ids and the failure's name but never content."""
    fields = {
        "job": job.id,
        "kind": job.kind,
        "subject": job.subject,
        "workspace": workspace,
        "attempt": job.attempts,
        "outcome": ran.outcome.value,
    }
    if ran.error is not None:
        fields["reason"] = type(ran.error).__name__
    level = logging.WARNING if ran.outcome in (Outcome.FAILED, Outcome.LOST) else logging.INFO
    if ran.outcome is Outcome.PARKED:
        level = logging.ERROR
    log.log(level, "job", extra=fields)
