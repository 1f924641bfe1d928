"""What holds of a workspace at every moment, whatever failed before: read through the port."""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeVar

from muniment.model import tree
from muniment.model.documents import DocumentItem
from muniment.model.events import Event, Fact, Head, chain
from muniment.model.ids import RevisionId, StoreId, WorkspaceId, to_bytes
from muniment.model.revisions import CANONICAL, Change, Revision
from muniment.model.stores import Ref, StoreRecord, StoreSummary
from muniment.storage.base import Storage, Transaction
from muniment.testing.builders import NOBODY

T = TypeVar("T")

PAGE = 201
POSITION_MAX = 2**62
STATUSES = ("active", "archived", "deleting", "deleted")
"""Every status; a store that is being deleted is half erased, and nothing is asked of it."""

Contents = dict[str, tuple[bytes, int]]
"""The blob and the size at each path."""


async def check_invariants(storage: Storage, workspace: WorkspaceId) -> None:
    """AssertionError where what the workspace holds does not agree with itself.

    Of each store: canonical's tree is the documents' rows; each document's content is readable and
    has its hash; every revision back to the first is there with its whole tree, and its changes are
    the difference to its parent; the stream is gapless and its chain valid. A deleted store holds
    nothing. Reads every tree of every store, so it is for small ones; the trees must be real.
    """

    async def check(tx: Transaction) -> None:
        await check_stream(tx, workspace, workspace)
        for summary in await all_stores(tx, workspace):
            store = summary.store
            if store.status == "deleted":
                await check_erased(tx, workspace, store.id)
            elif store.status != "deleting":
                await check_stream(tx, workspace, store.id)
                await check_store(tx, workspace, store)

    await storage.read(check, scan=True)


async def check_stream(tx: Transaction, workspace: WorkspaceId, stream: str) -> None:
    """Events numbered from one without a gap, each chained to the one before, up to the head."""
    head = Head()
    for event in await all_events(tx, workspace, stream):
        assert event.seq == head.seq + 1, f"{stream}: {event.seq} follows {head.seq}"
        if event.payload is not None and event.salt is not None:
            fact = Fact(event.id, event.type, event.payload, event.salt, event.created_at)
            assert chain(to_bytes(stream), head, fact) == event, f"{stream}: {event.seq} is forged"
        head = Head(event.seq, event.hash)
    assert await tx.get_head(workspace, stream) == head, f"{stream}: the head is another event"


async def check_erased(tx: Transaction, workspace: WorkspaceId, store: StoreId) -> None:
    """Nothing of the store is left but its row."""
    assert await tx.get_ref(workspace, store, CANONICAL) is None, f"{store}: a ref is left"
    assert await tx.get_head(workspace, store) == Head(), f"{store}: its stream is left"
    assert await tx.list_documents(workspace, store, "/", None, 1) == [], f"{store}: documents left"
    assert await tx.list_events(workspace, store, 0, 1) == [], f"{store}: events are left"


async def check_store(tx: Transaction, workspace: WorkspaceId, store: StoreRecord) -> None:
    """Ref, tree, documents, revisions and changes say the same."""
    ref = await tx.get_ref(workspace, store.id, CANONICAL)
    assert ref is not None, f"{store.id}: canonical is missing"
    items = await all_documents(tx, workspace, store.id)
    rows = {item.path: (item.blob, item.size) for item in items}
    trees = await _check_revisions(tx, workspace, store, ref)
    assert rows == trees[-1][1], f"{store.id}: the documents are not canonical's tree"
    newest = await _check_changes(tx, workspace, store.id, trees)
    for path, (blob, size) in rows.items():
        opened = await tx.open_document(workspace, store.id, NOBODY, path, content=True)
        assert opened is not None and opened[2] is not None, f"{store.id}: no row of {path}"
        document = opened[2]
        assert document.content is not None, f"{store.id}: {path} has no content"
        assert sha256(document.content).digest() == document.blob == blob, path
        assert len(document.content) == document.size == size, path
        assert (document.id, document.change) == (newest[path].document, newest[path].id), path


async def _check_revisions(
    tx: Transaction, workspace: WorkspaceId, store: StoreRecord, ref: Ref
) -> list[tuple[Revision, Contents]]:
    """Canonical's revisions from the first to the last, with what is in their trees."""

    async def load(node: bytes) -> bytes:
        return await tx.get_node(workspace, store.pool, node)

    found: list[tuple[Revision, Contents]] = []
    at: RevisionId | None = ref.revision
    while at is not None:
        revision = await tx.get_revision(workspace, store.id, at)
        assert revision is not None, f"{store.id}: revision {at} is missing"
        entries = [entry async for entry in tree.scan(tree.TreeHash(revision.tree), load)]
        contents = {entry.path: (entry.blob, entry.size) for entry in entries}
        totals = (len(entries), sum(entry.size for entry in entries))
        assert (revision.documents, revision.total_bytes) == totals, f"{store.id}: {at}"
        found.append((revision, contents))
        at = revision.parent
    last = found[0][0]
    expected = (last.tree, last.documents, last.total_bytes, len(found))
    held = (ref.tree, ref.documents, ref.total_bytes, ref.version)
    assert held == expected, f"{store.id}: canonical is not its revision"
    return found[::-1]


async def _check_changes(
    tx: Transaction,
    workspace: WorkspaceId,
    store: StoreId,
    trees: list[tuple[Revision, Contents]],
) -> dict[str, Change]:
    """The newest change of each path; each revision's changes make its tree of its parent's."""
    expected: dict[tuple[str, str], tuple[bytes, int] | None] = {}
    before: Contents = {}
    positions: dict[str, int] = {}
    for position, (revision, contents) in enumerate(trees, start=1):
        positions[revision.id] = position
        for path in before.keys() | contents.keys():
            if before.get(path) != contents.get(path):
                expected[revision.id, path] = contents.get(path)
        before = contents
    newest: dict[str, Change] = {}
    for path in sorted({path for _, path in expected}):
        for change in await all_changes(tx, workspace, store, path):
            place = f"{store}: {path} in {change.revision}"
            assert positions.get(change.revision) == change.seq, place
            there = None if change.blob is None else (change.blob, change.size)
            # A put of what was there already is a change, too, and no difference.
            assert expected.pop((change.revision, path), there) == there, place
            newest[path] = change
    assert not expected, f"{store}: changes are missing: {sorted(expected)}"
    return newest


async def all_events(tx: Transaction, workspace: WorkspaceId, stream: str) -> list[Event]:
    """Every event of the stream, in order."""
    return await pages(
        lambda last: tx.list_events(workspace, stream, 0 if last is None else last.seq, PAGE)
    )


async def all_changes(
    tx: Transaction, workspace: WorkspaceId, store: StoreId, path: str
) -> list[Change]:
    """Every change of the path on canonical, oldest first."""
    newest_first = await pages(
        lambda last: tx.list_changes(workspace, store, path, _before(last), PAGE)
    )
    return newest_first[::-1]


def _before(change: Change | None) -> int:
    """The position before a change's, so one revision changes a path once; at first the last."""
    return POSITION_MAX if change is None or change.seq is None else change.seq - 1


async def all_documents(
    tx: Transaction, workspace: WorkspaceId, store: StoreId
) -> list[DocumentItem]:
    """Every document of the store, in order of path."""
    return await pages(
        lambda last: tx.list_documents(workspace, store, "/", last.path if last else None, PAGE)
    )


async def all_stores(tx: Transaction, workspace: WorkspaceId) -> list[StoreSummary]:
    """Every store of every status, in order of id."""
    return await pages(
        lambda last: tx.list_stores(
            workspace, last.store.id if last else None, PAGE, readers=None, statuses=STATUSES
        )
    )


async def pages(ask: Callable[[T | None], Awaitable[list[T]]]) -> list[T]:
    """Everything that a list method gives, page after page."""
    found: list[T] = []
    while page := await ask(found[-1] if found else None):
        assert not found or page[-1] != found[-1], f"a list goes on where it was: {page[-1]}"
        found += page
    return found
