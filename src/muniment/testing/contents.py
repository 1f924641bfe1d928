"""Everything that a storage holds, read through the port: a line a row, to compare storages."""

from collections.abc import Awaitable, Callable

from muniment.model.ids import RevisionId, StoreId, WorkspaceId
from muniment.model.owners import OWNER_ID_KINDS, OwnerRow
from muniment.model.revisions import CANONICAL, Change
from muniment.model.stores import Owner, StoreSummary
from muniment.storage.base import LIST_MAX, Storage, Transaction
from muniment.testing.builders import NOBODY
from muniment.testing.invariants import (
    all_changes,
    all_documents,
    all_events,
    all_stores,
    pages,
)

Rows = list[object]


async def contents(storage: Storage) -> list[str]:
    """Every row that the port can read, as a line of text, in one order for all storages.

    Of events the salts, payloads and hashes too. Of a body its size: it was checked against its
    hash when it was read.
    """

    async def read(tx: Transaction) -> Rows:
        found: Rows = []
        for workspace in await tx.list_workspaces():
            found += await _workspace(tx, workspace)
        return found

    return [repr(row) for row in await storage.read(read, scan=True)]


async def _workspace(tx: Transaction, workspace: WorkspaceId) -> Rows:
    """Everything of the workspace."""
    found: Rows = [await tx.get_workspace(workspace)]
    found += await _identities(tx, workspace)
    found += await _streams(tx, workspace)
    jobs = await pages(lambda last: tx.list_jobs(workspace, last.id if last else None, LIST_MAX))
    stores = await all_stores(tx, workspace)
    found += [*jobs]
    for owner in dict.fromkeys(summary.store.owner for summary in stores):
        found.append((owner, await pages(_stores_of(tx, workspace, owner))))
    for summary in stores:
        found += await _store(tx, workspace, summary)
    return found


async def _identities(tx: Transaction, workspace: WorkspaceId) -> Rows:
    """Principals with their default stores, keys, delegations, owners and assignments."""
    people = await pages(
        lambda last: tx.list_principals(workspace, last.id if last else None, LIST_MAX)
    )
    found: Rows = [*people]
    for one in people:
        found.append((one.id, "default store", await tx.get_default_store(workspace, one.id)))
        if one.external_id is not None:
            assert await tx.find_principal(workspace, one.external_id) == one, one.external_id
    keys = await pages(lambda last: tx.list_keys(workspace, last.id if last else None, LIST_MAX))
    found += keys
    for each in await pages(
        lambda last: tx.list_delegations(workspace, last.id if last else None, LIST_MAX)
    ):
        found.append(each)
        assert await tx.find_delegation(workspace, each.principal, each.delegate) == each, each.id
    for kind in OWNER_ID_KINDS:
        owners = await pages(_owners_of(tx, workspace, kind))
        found += owners
    assignments = await pages(
        lambda last: tx.list_assignments(workspace, last.id if last else None, LIST_MAX)
    )
    return [*found, *assignments]


def _owners_of(
    tx: Transaction, workspace: WorkspaceId, kind: str
) -> Callable[[OwnerRow | None], Awaitable[list[OwnerRow]]]:
    return lambda last: tx.list_owners(workspace, kind, last.id if last else None, LIST_MAX)


def _stores_of(
    tx: Transaction, workspace: WorkspaceId, owner: Owner
) -> Callable[[StoreId | None], Awaitable[list[StoreId]]]:
    return lambda last: tx.list_stores_of(workspace, owner, last, LIST_MAX)


async def _streams(tx: Transaction, workspace: WorkspaceId) -> Rows:
    """The workspace's own events, and where each stream ends."""
    heads = await pages(
        lambda last: tx.list_streams(workspace, last[0] if last else None, LIST_MAX)
    )
    return [*await all_events(tx, workspace, workspace), *heads]


async def _store(tx: Transaction, workspace: WorkspaceId, summary: StoreSummary) -> Rows:
    """All that is kept of the store, by kind of row."""
    store, pool = summary.store.id, summary.store.pool
    found: Rows = [summary, *await tx.list_refs(workspace, store)]
    found.append((store, await tx.get_ref(workspace, store, CANONICAL)))
    found += await all_events(tx, workspace, store)
    for item in await all_documents(tx, workspace, store):
        found += [item, await tx.open_document(workspace, store, NOBODY, item.path)]
    revisions = await pages(
        lambda last: tx.list_revisions(workspace, store, last.id if last else None, LIST_MAX)
    )
    paths: dict[str, None] = {}
    for revision in revisions:
        changes = await pages(_changes_of(tx, workspace, store, revision.id))
        found += [revision, *changes]
        paths |= dict.fromkeys(change.path for change in changes)
    for path in paths:
        landed = [change.id for change in await all_changes(tx, workspace, store, path)]
        found.append((path, landed))
    for blob in await pages(lambda last: tx.list_blobs(workspace, pool, last, LIST_MAX)):
        body = await tx.get_blob(workspace, pool, blob)
        found.append(("blob", blob, None if body is None else len(body)))
    for node in await pages(lambda last: tx.list_nodes(workspace, pool, last, LIST_MAX)):
        found.append(("node", node, len(await tx.get_node(workspace, pool, node))))
    return found


def _changes_of(
    tx: Transaction, workspace: WorkspaceId, store: StoreId, revision: RevisionId
) -> Callable[[Change | None], Awaitable[list[Change]]]:
    return lambda last: tx.list_revision_changes(
        workspace, store, revision, (last.path, last.n) if last else None, LIST_MAX
    )
