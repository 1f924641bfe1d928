"""Jobs: leasing one, running it, what becomes of it, and what administrators see of it.

A handler is a use case that can be run again from the start. It renews its lease within each of
its transactions (`Lease.renew`), so a worker that was taken for dead writes nothing any more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum

from msgspec import Struct

from muniment.model import jobs
from muniment.model.access import Actor, check_admin
from muniment.model.errors import Conflict, NotFound
from muniment.model.ids import JobId, WorkspaceId, is_id
from muniment.model.jobs import Job
from muniment.service.app import App
from muniment.service.idempotency import Once, keep, replay
from muniment.service.paging import Page, Slice, page_of
from muniment.service.revisions import actor_fields
from muniment.storage.base import Transaction


class Outcome(Enum):
    """What a run of a job came to."""

    DONE = "done"
    LATER = "later"
    FAILED = "failed"
    PARKED = "parked"
    LOST = "lost"


class Ran(Struct, frozen=True):
    """A run of a job: what it came to, and what it failed of."""

    outcome: Outcome
    error: Exception | None = None


class LostLease(Exception):
    """Another worker has claimed the job since; it never reaches a caller."""


class LostWorkers(Exception):
    """As many attempts as there may be have begun, and no worker has lived to end the last."""


class Lease(Struct, frozen=True):
    """A job that this worker holds."""

    workspace: WorkspaceId
    job: Job

    async def renew(self, app: App, tx: Transaction) -> None:
        """Goes on holding the job; first in each of a handler's transactions. LostLease if lost."""
        if not await tx.hold_job(self.workspace, self.job, jobs.lease_end(app.now())):
            raise LostLease(self.job.id)


Handler = Callable[[App, Lease], Awaitable[bool]]
"""Does the work of one kind of job. False where it is to be run again later, without a failure."""

LATER_SECONDS = 60


async def claim_next(app: App, kinds: Sequence[str]) -> Lease | None:
    """The lease of a due job of any workspace; None where none is, or others were first.

    Jobs of other kinds than these are left to programs that know them, and keep nobody waiting.
    """
    now = app.now()
    due = await app.storage.read(
        lambda tx: tx.due_jobs(now, kinds, jobs.CLAIMS_AT_ONCE), single=True
    )
    for workspace, job in due:
        claimed = await _claim(app, workspace, job)
        if claimed is not None:
            return Lease(workspace, claimed)
    return None


async def _claim(app: App, workspace: WorkspaceId, job: Job) -> Job | None:
    """The job, leased; None where another was first. Cancelled, it gives back what it takes."""

    async def use(tx: Transaction) -> Job | None:
        return await tx.claim_job(workspace, job, jobs.lease_end(app.now()))

    claiming = asyncio.ensure_future(app.storage.write(None, use))
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        with suppress(Exception):
            claimed = await claiming
            if claimed is not None:
                await _record(app, workspace, jobs.postponed(claimed, app.now()), done=False)
        raise


async def run_leased(app: App, lease: Lease, handler: Handler) -> Ran:
    """Runs the job and records what came of it: finished, due again later, failed or parked.

    Of a failure its name is recorded and never its text, which might hold content. A job whose
    attempts all began and did not end is parked unrun: it may be what ends its workers. Cancelled,
    it gives the job back at once.
    """
    workspace, job = lease.workspace, lease.job
    error: Exception | None = None
    try:
        if job.attempts > jobs.ATTEMPTS_MAX:
            raise LostWorkers(job.id)
        done = await handler(app, lease)
        outcome = Outcome.DONE if done else Outcome.LATER
        left = jobs.postponed(job, app.now(), seconds=LATER_SECONDS)
    except LostLease:
        return Ran(Outcome.LOST)
    except Exception as failure:
        error = failure
        left = jobs.failed(job, type(failure).__name__, app.now())
        outcome = Outcome.FAILED if left.parked_at is None else Outcome.PARKED
    except BaseException:
        # Where the database does not answer either, the lease ends by itself.
        with suppress(Exception):
            await _record(app, workspace, jobs.postponed(job, app.now()), done=False)
        raise
    await _record(app, workspace, left, done=outcome is Outcome.DONE)
    return Ran(outcome, error)


async def _record(app: App, workspace: WorkspaceId, job: Job, *, done: bool) -> None:
    async def use(tx: Transaction) -> None:
        if done:
            tx.finish_job(workspace, job)
        else:
            tx.return_job(workspace, job)

    # Alone: sharing a commit could mean to hold the stream's head while waiting for the job.
    await app.storage.write(None, use)


async def list_jobs(app: App, actor: Actor, page: Page) -> Slice[Job]:
    """The workspace's unfinished jobs, parked ones too, in order of id. Administrators only."""
    check_admin(actor)
    return await page_of(
        app,
        actor,
        ("jobs",),
        page,
        lambda tx, after, limit: tx.list_jobs(actor.workspace, after, limit),
    )


async def retry_job(app: App, actor: Actor, job: str, *, once: Once | None = None) -> Job:
    """The job, due at once with all its attempts before it. Administrators only.

    NotFound for one that is finished or unknown; Conflict while a worker holds it.
    """
    check_admin(actor)
    stamp = app.stamp("job.retried")

    async def use(tx: Transaction) -> Job:
        found = await tx.get_job(actor.workspace, JobId(job)) if is_id("job", job) else None
        if found is None:
            raise NotFound("no such job")
        if await replay(tx, actor, actor.workspace, once) is not None:
            return found
        if found.lease_until is not None and found.lease_until > stamp.at:
            raise Conflict("a worker has this job just now: see what becomes of it")
        # Against a claim in this moment: the event is to say what happened.
        if not await tx.hold_job(actor.workspace, found, stamp.at):
            raise Conflict("a worker has just taken this job: see what becomes of it")
        again = jobs.retried(found, stamp.at)
        keep(tx, actor, actor.workspace, once, stamp.at, job=found.id)
        tx.return_job(actor.workspace, again)
        fact = stamp.fact(job=found.id, kind=found.kind, actor=actor_fields(actor))
        await tx.append(actor.workspace, actor.workspace, fact)
        return again

    # Alone, like a claim: no group holds the stream's head while it waits for a job.
    return await app.storage.write(None, use)
