"""Everything that a storage holds, read through the port: a line a row, to compare storages."""

from collections.abc import Awaitable, Callable

from muniment.model import tree
from muniment.model.ids import WorkspaceId
from muniment.model.jobs import ERASE_STORE
from muniment.model.owners import OWNER_ID_KINDS, OwnerRow
from muniment.model.revisions import CANONICAL, Revision
from muniment.model.stores import StoreSummary
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
    hash when it was read. For small storages: it reads every tree.
    """

    async def read(tx: Transaction) -> Rows:
        found: Rows = []
        for workspace in await tx.list_workspaces():
            found.append(await tx.get_workspace(workspace))
            found += await _identities(tx, workspace)
            found += await _stream(tx, workspace, workspace)
            found += await tx.list_jobs(workspace, ERASE_STORE, LIST_MAX)
            for summary in await all_stores(tx, workspace):
                found += await _store(tx, workspace, summary)
        return found

    return [repr(row) for row in await storage.read(read, scan=True)]


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


async def _stream(tx: Transaction, workspace: WorkspaceId, stream: str) -> Rows:
    """The events of a stream, and where it ends."""
    head = (stream, await tx.get_head(workspace, stream))
    return [*await all_events(tx, workspace, stream), head]


async def _store(tx: Transaction, workspace: WorkspaceId, summary: StoreSummary) -> Rows:
    """The store, its ref, stream, documents, revisions, changes and the sizes of bodies."""
    store = summary.store
    ref = await tx.get_ref(workspace, store.id, CANONICAL)
    found: Rows = [summary, (store.id, ref), *await _stream(tx, workspace, store.id)]
    for item in await all_documents(tx, workspace, store.id):
        opened = await tx.open_document(workspace, store.id, NOBODY, item.path)
        found += [item, opened]

    async def load(node: bytes) -> bytes:
        return await tx.get_node(workspace, store.pool, node)

    paths: set[str] = set()
    at = None if ref is None else ref.revision
    while at is not None:
        revision: Revision | None = await tx.get_revision(workspace, store.id, at)
        assert revision is not None, f"{store.id}: revision {at} is missing"
        found.append(revision)
        paths.update([entry.path async for entry in tree.scan(tree.TreeHash(revision.tree), load)])
        at = revision.parent
    for path in sorted(paths):
        for change in await all_changes(tx, workspace, store.id, path):
            found.append(change)
            if change.blob is not None:
                body = await tx.get_blob(workspace, store.pool, change.blob)
                found.append((change.blob, None if body is None else len(body)))
    return found
