"""The doctor: is what the database holds what it must be, checked against hashes and trees?

For the operator, below all access: it reads every workspace and writes nothing. Each store is read
in one snapshot, so it may run beside servers. Memory does not grow with a store; one revision's
changes are held at a time.

`doctor_pools` knows blobs and nodes, `doctor_stores` revisions and documents, `doctor_streams`
events; here is what a workspace holds beside its stores.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from muniment.model.audit import Audit
from muniment.model.errors import NotFound, Unavailable
from muniment.model.events import Event, Head
from muniment.model.ids import DEFAULT_WORKSPACE, PoolId, StoreId, WorkspaceId, to_bytes
from muniment.model.stores import POLICIES, STATUSES, WORKSPACE_STATUSES, StoreRecord
from muniment.service.doctor_facts import Facts
from muniment.service.doctor_identities import check_identities, check_jobs, is_there
from muniment.service.doctor_notes import Finding, Notes, Progress, Report
from muniment.service.doctor_pools import Pool
from muniment.service.doctor_reading import Reading, reason
from muniment.service.doctor_stores import check_store
from muniment.service.doctor_streams import Noted, Told, check_stream
from muniment.storage.base import Storage, Transaction

_STREAM_TABLES = ("events", "event_payloads", "streams")

Check = Callable[[Reading], Awaitable[None]]


class Scope(Struct, frozen=True):
    """What is checked: one workspace or all, one store or all, everything or streams alone.

    `told` asks that every revision has its event and every tombstone its own, as the use cases
    leave them; `files` also runs the database's check of itself. `noted` are heads of streams that
    somebody knows from before, and that have to lie on them.
    """

    workspace: WorkspaceId | None = None
    store: StoreId | None = None
    streams_only: bool = False
    told: bool = True
    files: bool = True
    noted: Noted = {}


async def diagnose(
    storage: Storage, scope: Scope | None = None, progress: Progress | None = None
) -> Report:
    """Checks everything in the scope.

    Unavailable where the schema is not this program's; NotFound where no workspace has the store.
    """
    scope = scope or Scope()
    notes = Notes(progress)
    schema = await storage.check_schema()
    if scope.files:
        notes.begin("the database's files")
        for line in await storage.check_integrity():
            notes.find(Finding("database", line))
        notes.count("database")
    try:
        opens = await storage.holds_master_key()
    except Unavailable as error:
        notes.find(Finding("instance", f"it cannot be read: {error.message}"))
        opens = False
    if not opens and not scope.streams_only:
        message = "bodies are sealed under another master key and were not opened"
        notes.find(Finding("blobs", f"{message}: set MUNIMENT_MASTER_KEY to it"))
    known = False
    for workspace in await _workspaces(storage, notes, scope):
        checking = _Workspace(storage, notes, scope, workspace)
        await checking.check(opens=opens)
        known = known or checking.knows_store
    if scope.store is not None and not known:
        raise NotFound(f"no workspace has the store {scope.store}")
    return notes.report(schema)


async def _workspaces(storage: Storage, notes: Notes, scope: Scope) -> list[WorkspaceId]:
    if scope.workspace is not None:
        return [scope.workspace]
    listed: list[WorkspaceId] = []

    async def use(tx: Transaction) -> None:
        r = Reading(tx, notes, DEFAULT_WORKSPACE)
        async for _, workspace in r.rows("workspaces"):
            listed.append(workspace.id)
            if workspace.status not in WORKSPACE_STATUSES:
                r.find("workspaces", f"{workspace.status} is no status", workspace.id)
        for stray in [] if scope.store is not None else await tx.find_homeless():
            if scope.streams_only and stray.table not in _STREAM_TABLES:
                continue
            message = f"{stray.rows} rows are of a workspace that is not there"
            notes.find(Finding(stray.table, message, f"wsp_{stray.owner.hex()}"))

    try:
        await storage.read(use, scan=True)
    except Exception as error:
        notes.find(Finding("database", f"workspaces cannot be listed: {reason(error)}"))
    return listed


class _Workspace:
    """One workspace's check: first what is no store's, then the stores, a snapshot each."""

    def __init__(
        self, storage: Storage, notes: Notes, scope: Scope, workspace: WorkspaceId
    ) -> None:
        self.storage = storage
        self.notes = notes
        self.scope = scope
        self.id = workspace
        self.pools: dict[PoolId, list[StoreId]] = {}
        self.erasing: set[str] = set()
        self.tombstones = 0
        self.knows_store = False

    async def check(self, *, opens: bool) -> None:
        """Everything in the scope."""
        self.notes.begin(self.id)
        await self._read(self._check_own)
        for pool, stores in self.pools.items():

            async def check(
                r: Reading, pool: PoolId = pool, stores: list[StoreId] = stores
            ) -> None:
                await self._check_stores(r, Pool(r, pool, opens=opens), stores)

            if self.scope.store is None or self.scope.store in stores:
                await self._read(check)

    async def _read(self, check: Check) -> None:
        """Runs a part of the check on one snapshot; what ends it too early is a finding."""

        async def use(tx: Transaction) -> None:
            await check(Reading(tx, self.notes, self.id))

        try:
            await self.storage.read(use, scan=True)
        except Exception as error:
            message = f"a part of the check could not be finished: {reason(error)}"
            self.notes.find(Finding("database", message, self.id))

    # What is no store's

    async def _check_own(self, r: Reading) -> None:
        await self._list_stores(r)
        if self.scope.store is not None:
            return
        if not self.scope.streams_only:
            await check_identities(r)
            async for _ in r.rows("receipts", self.id):
                pass
            await check_jobs(r, self.erasing)
        await self._check_streams(r)
        for stray in await r.tx.find_strays(self.id):
            if not self.scope.streams_only or stray.table in _STREAM_TABLES:
                message = f"{stray.rows} rows belong to what is not there"
                r.find(stray.table, message, stray.owner.hex())

    async def _list_stores(self, r: Reading) -> None:
        wanted = self.scope.store
        if wanted is None:
            async for _, store in r.rows("stores"):
                await self._take_up(r, store)
            return
        found = await r.row("stores", key=to_bytes(wanted))
        self.knows_store = found is not None
        if found is not None and found.record is not None:
            r.notes.count("stores")
            await self._take_up(r, found.record)
        elif found is not None:
            r.of(wanted).find("stores", found.damage or "it cannot be read", wanted)

    async def _take_up(self, r: Reading, store: StoreRecord) -> None:
        await self._check_store_row(r.of(store.id), store)
        if store.status == "deleted":
            self.tombstones += 1
        elif store.status == "deleting":
            self.erasing.add(store.id)
        else:
            self.pools.setdefault(store.pool, []).append(store.id)

    async def _check_store_row(self, r: Reading, store: StoreRecord) -> None:
        if store.status not in STATUSES:
            r.find("stores", f"{store.status} is no status", store.id)
        if (store.deleted_at is None) == (store.status == "deleted"):
            r.find("stores", "its status and the time it was deleted at do not agree", store.id)
        if store.promotion_policy not in POLICIES:
            r.find("stores", f"{store.promotion_policy} is no promotion policy", store.id)
        if not await is_there(r, store.owner):
            r.find("stores", f"its owner {store.owner.id} is not there", store.id)
        if not await r.has("principals", store.created_by):
            r.find("stores", f"its maker {store.created_by} is not there", store.id)

    # Streams

    async def _check_streams(self, r: Reading) -> None:
        """Each stream that is no store's; those of stores come with the stores."""
        known = False
        async for _, (raw, head) in r.rows("streams"):
            stream = await self._owner_of(r, raw)
            known = known or stream == self.id
            if stream == self.id:
                await self._check_own_stream(r, head)
            elif stream.startswith("sess_"):
                self._keep(stream, await check_stream(r, stream, head, self.scope.noted))
            elif not stream.startswith("memstore_"):
                r.find("streams", "it belongs to nothing that is there", raw.hex())
        if not known and self.scope.told:
            r.find("streams", "the workspace has no stream", self.id)
            self._keep(self.id, await check_stream(r, self.id, None, self.scope.noted))

    async def _owner_of(self, r: Reading, raw: bytes) -> str:
        if raw == to_bytes(self.id):
            return self.id
        found = await r.row("stores", key=raw)
        if found is not None and (found.record is None or found.record.status != "deleted"):
            return f"memstore_{raw.hex()}"
        session = await r.row("owners", "session", key=raw)
        return f"sess_{raw.hex()}" if session is not None else raw.hex()

    async def _check_own_stream(self, r: Reading, head: Head) -> None:
        buried: set[str] = set()
        facts = Facts(r)

        async def visit(event: Event, data: dict[str, Any]) -> None:
            if not self.scope.streams_only:
                await facts.visit(event, data)
            if event.type == "memory.store_deleted":
                buried.add(data["store"])
                found = await r.row("stores", key=to_bytes(data["store"]))
                store = None if found is None else found.record
                self._compare_tombstone(r.of(data["store"]), store, event, data)

        shown = visit if self.scope.told else None
        audit = await check_stream(r, self.id, head, self.scope.noted, shown)
        self._keep(self.id, audit)
        if not self.scope.told or self.scope.streams_only:
            return
        await facts.finish(audit.erased)
        if len(buried) + audit.erased < self.tombstones:
            async for _, store in r.quietly().rows("stores"):
                if store.status == "deleted" and store.id not in buried:
                    r.of(store.id).find("stores", "no event tells of its deletion", store.id)

    def _compare_tombstone(
        self, r: Reading, store: StoreRecord | None, event: Event, told: dict[str, Any]
    ) -> None:
        if store is None or store.status != "deleted":
            r.find("stores", "an event tells of its deletion, and it is no tombstone", r.store)
        elif (store.last_event_hash or b"").hex() != (told["last_event_hash"] or ""):
            r.find("stores", "another event ended its stream than told", store.id)
        elif store.deleted_at != event.created_at:
            r.find("stores", "it was deleted at another time than told", store.id)

    # Stores

    async def _check_stores(self, r: Reading, pool: Pool, stores: list[StoreId]) -> None:
        """The stores of a pool. What was fenced since the workspace was read is left alone."""
        wanted = [one for one in stores if self.scope.store in (None, one)]
        found = [await r.row("stores", key=to_bytes(one)) for one in wanted]
        records = [one.record for one in found if one is not None and one.record is not None]
        living = [one for one in records if one.status not in ("deleting", "deleted")]
        if not self.scope.streams_only and living:
            self.notes.begin(living[0].id)
            await pool.of(living[0].id if len(stores) == 1 else None).check()
        for store in living:
            self.notes.begin(store.id)
            at = r.of(store.id)
            revisions = 0
            if not self.scope.streams_only:
                revisions = await check_store(at, store, pool)
            await self._check_store_stream(at, store, revisions)
        if not self.scope.streams_only and len(living) == len(stores):
            await pool.warn_of_orphans()

    async def _check_store_stream(self, r: Reading, store: StoreRecord, revisions: int) -> None:
        found = await r.row("streams", key=to_bytes(store.id))
        head = None if found is None or found.record is None else found.record[1]
        if self.scope.store is not None:
            r.notes.count("streams")
        if not self.scope.streams_only:
            async for _ in r.rows("receipts", store.id):
                pass
        if found is None and self.scope.told:
            r.find("streams", "the store has no stream", store.id)
        told = Told(r, store) if self.scope.told and not self.scope.streams_only else None
        shown = None if told is None else told.visit
        audit = await check_stream(r, store.id, head, self.scope.noted, shown)
        self._keep(store.id, audit)
        if told is not None:
            await told.count(revisions, audit.erased)

    def _keep(self, stream: str, audit: Audit) -> None:
        """Streams are listed where they are what is asked for; there may be many."""
        if self.scope.streams_only:
            self.notes.streams.append(audit.verified(stream))
