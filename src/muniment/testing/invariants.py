"""What holds of a workspace at every moment, whatever failed before: read through the port."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from muniment.model.documents import DocumentItem
from muniment.model.events import Event, Head
from muniment.model.ids import StoreId, WorkspaceId
from muniment.model.revisions import CANONICAL, Change
from muniment.model.stores import STATUSES, StoreSummary
from muniment.service.doctor import Scope, diagnose
from muniment.storage.base import Storage, Transaction

T = TypeVar("T")

PAGE = 201
POSITION_MAX = 2**62
Contents = dict[str, tuple[bytes, int]]
"""The blob and the size at each path."""


async def check_invariants(storage: Storage, workspace: WorkspaceId, *, told: bool = False) -> None:
    """AssertionError where the doctor has a finding about what the workspace holds.

    The trees must be real. With `told` every revision, key and right must have its event, too, as
    what use cases wrote has. The database's check of its files is left out: it takes long.
    """
    report = await diagnose(storage, Scope(workspace, told=told, files=False))
    found = [f"{one.kind} {one.store} {one.place}: {one.message}" for one in report.findings]
    assert not found, "\n".join(found)


async def check_erased(tx: Transaction, workspace: WorkspaceId, store: StoreId) -> None:
    """Nothing of the store is left but its row."""
    assert await tx.get_ref(workspace, store, CANONICAL) is None, f"{store}: a ref is left"
    assert await tx.get_head(workspace, store) == Head(), f"{store}: its stream is left"
    assert await tx.list_documents(workspace, store, "/", None, 1) == [], f"{store}: documents left"
    assert await tx.list_events(workspace, store, 0, 1) == [], f"{store}: events are left"


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
