"""Deleting a store: fence, erase in bounded steps, tombstone (C-170 … C-172).

The fence and the job are one transaction; every step after it is idempotent, so a deletion that
was interrupted, or that met a database that did not answer, is finished by `resume_deletions`.
"""

from collections.abc import Callable

from msgspec import structs

from muniment.model.access import Action, Actor
from muniment.model.ids import JobId, StoreId, WorkspaceId
from muniment.model.jobs import ERASE_STORE, Job
from muniment.service import guard
from muniment.service.app import App
from muniment.service.revisions import actor_fields
from muniment.service.stores import check_version
from muniment.storage.base import Transaction

STEP_ROWS = 2_000
RESUMED_AT_ONCE = 200


async def delete_store(
    app: App, actor: Actor, store: StoreId, *, expected_version: int | None = None
) -> bool:
    """Fences the store's writers, erases all it holds, then leaves a tombstone.

    The fence, with who asked for it, also stands in the workspace's stream, since the store's own
    stream goes. False where a reader holds up the erasure of the database's files (R-83). Denied
    unless an administrator or the owning principal; Conflict for another version.
    """
    stamp, told = app.stamps("memory.store_deleting", "memory.store_deleting")
    job = Job(JobId(app.new_id("job")), ERASE_STORE, store, stamp.at)

    async def fence(tx: Transaction) -> None:
        record, _ = await guard.open_store(tx, actor, store, Action.ADMINISTER)
        if expected_version is not None:
            check_version(record, expected_version)
        fact = stamp.fact(store=store, actor=actor_fields(actor))
        event = await tx.append(actor.workspace, store, fact)
        told_fact = told.fact(store=store, actor=actor_fields(actor))
        await tx.append(actor.workspace, actor.workspace, told_fact)
        tx.put_store(
            actor.workspace,
            structs.replace(
                record,
                status="deleting",
                version=record.version + 1,
                generation=record.generation + 1,
                updated_at=stamp.at,
                last_event_hash=event.hash,
            ),
        )
        tx.enqueue(actor.workspace, job)

    await app.storage.write(None, fence)
    return await finish_deletion(app, actor.workspace, job)


async def finish_deletion(app: App, workspace: WorkspaceId, job: Job) -> bool:
    """Erases what is left of a fenced store and writes its tombstone; safe to run again.

    False where a reader holds up the erasure of the files; the job stays for another time (R-83).
    """
    store = StoreId(job.subject)

    async def step(tx: Transaction) -> int:
        await tx.lock_store(workspace, store)
        found = await tx.get_store(workspace, store, (workspace,))
        if found is None or found[0].status != "deleting":
            return 0
        return await tx.erase_store(workspace, store, found[0].pool, STEP_ROWS)

    while await app.storage.write(store, step):
        pass
    stamp = app.stamp("memory.store_deleted")

    async def bury(tx: Transaction) -> None:
        await tx.lock_store(workspace, store)
        found = await tx.get_store(workspace, store, (workspace,))
        if found is None or found[0].status != "deleting":
            return
        record = found[0]
        tx.put_store(
            workspace,
            structs.replace(
                record, status="deleted", name="", description=None, deleted_at=stamp.at
            ),
        )
        last = record.last_event_hash
        fact = stamp.fact(store=store, last_event_hash=None if last is None else last.hex())
        await tx.append(workspace, workspace, fact)

    await app.storage.write(None, bury)
    if not await app.storage.scrub():
        return False

    async def finish(tx: Transaction) -> None:
        tx.finish_job(workspace, job.id)

    await app.storage.write(workspace, finish)
    return True


async def resume_deletions(app: App, failed: Callable[[Job, Exception], None]) -> int:
    """Finishes every deletion that was interrupted; how many. `failed` hears of those that fail."""
    resumed = 0
    for workspace in await app.storage.read(lambda tx: tx.list_workspaces()):

        async def waiting(tx: Transaction, workspace: WorkspaceId = workspace) -> list[Job]:
            return await tx.list_jobs(workspace, ERASE_STORE, RESUMED_AT_ONCE)

        finished = RESUMED_AT_ONCE
        while finished == RESUMED_AT_ONCE:
            finished = 0
            for job in await app.storage.read(waiting):
                try:
                    finished += await finish_deletion(app, workspace, job)
                except Exception as error:
                    failed(job, error)
            resumed += finished
    return resumed
