"""Deleting a store: fence, erase in bounded steps, tombstone (C-170 … C-172).

The fence and the job are one transaction; every step after it is idempotent, so a deletion that
was interrupted, or that met a database that did not answer, is finished by a worker.
"""

from msgspec import structs

from muniment.model.access import Action, Actor
from muniment.model.errors import Unavailable
from muniment.model.ids import JobId, StoreId
from muniment.model.jobs import ERASE_STORE, leased, new_job
from muniment.service import guard
from muniment.service.app import App
from muniment.service.jobs import Lease, Outcome, run_leased
from muniment.service.revisions import actor_fields
from muniment.service.stores import check_version
from muniment.storage.base import Transaction

STEP_ROWS = 2_000


async def delete_store(
    app: App, actor: Actor, store: StoreId, *, expected_version: int | None = None
) -> bool:
    """Fences the store's writers, erases all it holds, then leaves a tombstone.

    The fence, with who asked for it, also stands in the workspace's stream, since the store's own
    stream goes. False where a reader holds up the erasure of the database's files (R-83), or where
    the database did not answer after the fence: a worker goes on. Denied
    unless an administrator or the owning principal; Conflict for another version.
    """
    stamp, told = app.stamps("memory.store_deleting", "memory.store_deleting")
    # The caller does the work itself; a worker takes over where its lease runs out.
    job = leased(new_job(JobId(app.new_id("job")), ERASE_STORE, store, stamp.at), stamp.at)

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
    ran = await run_leased(app, Lease(actor.workspace, job), erase_store)
    if ran.error is not None and not isinstance(ran.error, Unavailable):
        raise ran.error
    return ran.outcome is Outcome.DONE


async def erase_store(app: App, lease: Lease) -> bool:
    """The handler of ERASE_STORE: erases what is left of a fenced store, writes its tombstone.

    False where a reader holds up the erasure of the files; it is then to be run again (R-83).
    """
    workspace, store = lease.workspace, StoreId(lease.job.subject)

    async def step(tx: Transaction) -> int:
        await lease.renew(app, tx)
        await tx.lock_store(workspace, store)
        found = await tx.get_store(workspace, store, (workspace,))
        if found is None or found[0].status != "deleting":
            return 0
        return await tx.erase_store(workspace, store, found[0].pool, STEP_ROWS)

    while await app.storage.write(None, step):
        pass
    stamp = app.stamp("memory.store_deleted")

    async def bury(tx: Transaction) -> None:
        await lease.renew(app, tx)
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
    return await app.storage.scrub()
