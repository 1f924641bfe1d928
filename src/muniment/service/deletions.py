"""Deleting a store: fence, erase in bounded steps, tombstone (C-170 … C-172).

The fence and the job are one transaction; every step after it is idempotent, so a deletion that
was interrupted is finished by `resume_deletions` at the next start.
"""

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
) -> None:
    """Fences the store's writers, erases all it holds, then leaves a tombstone.

    Denied unless an administrator or the owning principal; Conflict for another version.
    """
    stamp = app.stamp("memory.store_deleting")
    job = Job(JobId(app.new_id("job")), ERASE_STORE, store, stamp.at)

    async def fence(tx: Transaction) -> None:
        record, _ = await guard.open_store(tx, actor, store, Action.ADMINISTER)
        if expected_version is not None:
            check_version(record, expected_version)
        fact = stamp.fact(store=store, actor=actor_fields(actor))
        event = await tx.append(actor.workspace, store, fact)
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

    await app.storage.write(store, fence)
    await finish_deletion(app, actor.workspace, job)


async def finish_deletion(app: App, workspace: WorkspaceId, job: Job) -> bool:
    """Erases what is left of a fenced store and writes its tombstone; safe to run again.

    False where a reader holds up the erasure of the files; the job stays for the next start (R-83).
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


async def resume_deletions(app: App) -> int:
    """Finishes every deletion that was interrupted; how many there were."""
    resumed = 0
    for workspace in await app.storage.read(lambda tx: tx.list_workspaces()):

        async def waiting(tx: Transaction, workspace: WorkspaceId = workspace) -> list[Job]:
            return await tx.list_jobs(workspace, ERASE_STORE, RESUMED_AT_ONCE)

        finished = RESUMED_AT_ONCE
        while finished == RESUMED_AT_ONCE:
            jobs = await app.storage.read(waiting)
            finished = sum([await finish_deletion(app, workspace, job) for job in jobs])
            resumed += finished
    return resumed
