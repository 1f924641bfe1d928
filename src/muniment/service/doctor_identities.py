"""Whether principals, keys, delegations, owners, assignments and jobs refer to what is there."""

from muniment.model.access import Subject
from muniment.model.ids import StoreId, to_bytes
from muniment.model.jobs import KINDS, Job
from muniment.model.owners import OWNER_ID_KINDS
from muniment.model.stores import Owner
from muniment.service.doctor_reading import Reading


async def check_identities(r: Reading) -> None:
    """Every row about somebody, and about who may do what."""
    async for _ in r.rows("principals"):
        pass
    async for _, key in r.rows("api_keys"):
        await _principal(r, "api_keys", key.id, key.principal)
    async for _, delegation in r.rows("delegations"):
        for principal in (delegation.principal, delegation.delegate):
            await _principal(r, "delegations", delegation.id, principal)
    for kind in OWNER_ID_KINDS:
        async for _, owner in r.rows("owners", kind):
            await _principal(r, "owners", owner.id, owner.principal)
    async for _, assignment in r.rows("assignments"):
        if not await is_there(r, assignment.subject):
            missing = f"its subject {assignment.subject.id} is not there"
            r.find("assignments", missing, assignment.id)
    async for _, (principal, store) in r.rows("default_stores"):
        await _principal(r, "default_stores", principal, principal)
        found = await r.row("stores", key=to_bytes(store))
        owner = None if found is None or found.record is None else found.record.owner
        if owner != Owner("principal", principal):
            r.find("default_stores", f"{store} is not a store of its own", principal)


async def _principal(r: Reading, kind: str, place: str, principal: str) -> None:
    if not await r.has("principals", principal):
        r.find(kind, f"its principal {principal} is not there", place)


async def is_there(r: Reading, who: Subject | Owner) -> bool:
    """Whether an assignment's subject or a store's owner is one of the workspace."""
    if who.kind == "workspace":
        return who.id in (None, r.workspace)
    if who.id is None:
        return False
    if who.kind == "principal":
        return await r.has("principals", who.id)
    return who.kind in OWNER_ID_KINDS and await r.has("owners", who.id, who.kind)


async def check_jobs(r: Reading, erasing: set[str]) -> None:
    """Every job is about a store that is being deleted, and every such store has a job."""
    waiting = set(erasing)
    async for _, job in r.rows("jobs"):
        waiting.discard(job.subject)
        await _check_job(r, job)
    for store in sorted(waiting):
        message = "it is being deleted, and no job does it: delete it again"
        r.of(StoreId(store)).warn("jobs", message, store)


async def _check_job(r: Reading, job: Job) -> None:
    if job.kind not in KINDS:
        r.warn("jobs", f"{job.kind} is a kind that this program does not know", job.id)
        return
    found = await r.row("stores", key=to_bytes(job.subject))
    status = "absent" if found is None or found.record is None else found.record.status
    if status not in ("deleting", "deleted"):
        r.find("jobs", f"it would erase {job.subject}, which is {status}", job.id)
    if job.parked_at is not None:
        failure = job.failure or "something"
        r.warn("jobs", f"given up after {job.attempts} attempts, of {failure}", job.id)
