"""Reading rows that may be damaged: every one that can be read is, the others are findings."""

from collections.abc import AsyncIterator, Callable
from typing import Any, Generic, TypeVar

from muniment.model.ids import PREFIXES, RevisionId, StoreId, WorkspaceId, to_bytes
from muniment.model.revisions import Revision
from muniment.service.doctor_notes import Finding, Notes
from muniment.storage.base import LIST_MAX, Found, Key, Transaction

T = TypeVar("T")

_ID_KINDS = {
    "workspaces": "workspace",
    "principals": "principal",
    "api_keys": "key",
    "delegations": "delegation",
    "assignments": "assignment",
    "stores": "store",
    "default_stores": "principal",
    "revisions": "revision",
    "changes_by_id": "change",
    "jobs": "job",
}
"""Kinds of rows whose key is an id, and the id's kind."""


Damaged = Callable[[str, Key], None]
"""Is told what is wrong with a row, and its key; or behind which key nothing can be read."""


class Abandoned(Exception):
    """The transaction answers nothing any more; its use is given up."""


class Reading:
    """One snapshot of a workspace, or of one store of it, and where findings about it go."""

    def __init__(
        self, tx: Transaction, notes: Notes, workspace: WorkspaceId, store: StoreId | None = None
    ) -> None:
        self.tx = tx
        self.notes = notes
        self.workspace = workspace
        self.store = store

    def of(self, store: StoreId) -> "Reading":
        """The same snapshot, about one store."""
        return Reading(self.tx, self.notes, self.workspace, store)

    def quietly(self) -> "Reading":
        """The same snapshot, read once more: what is found was noted the first time."""
        return Reading(self.tx, Notes(), self.workspace, self.store)

    def find(self, kind: str, message: str, place: object = None) -> None:
        """Notes damage here."""
        at = None if place is None else str(place)
        self.notes.find(Finding(kind, message, self.workspace, self.store, at))

    def warn(self, kind: str, message: str, place: object = None) -> None:
        """Notes here what is worth a look."""
        at = None if place is None else str(place)
        self.notes.warn(Finding(kind, message, self.workspace, self.store, at))

    async def rows(
        self, kind: str, *part: str, called: str = "", damaged: Damaged | None = None
    ) -> AsyncIterator[tuple[Key, Any]]:
        """Key and record of every row that has one, in order; damaged ones are findings.

        Where a page cannot be read, its rows are asked for one by one. `called` is what the kind
        is counted as, where not as itself; `damaged` is told of damaged rows, too.
        """
        after: Key | None = None
        limit = LIST_MAX
        while True:
            try:
                page = await self.tx.inspect(kind, self.workspace, part, after, limit)
            except Exception as error:
                if limit > 1:
                    limit = 1
                    continue
                behind = "from the first on" if after is None else f"behind {shown(kind, after)}"
                message = f"rows {behind} cannot be read: {reason(error)}"
                self.find(kind, message)
                if damaged is not None:
                    damaged(message, after or ())
                await self._still_answers()
                return
            self.notes.count(called or kind, len(page))
            for found in page:
                if found.damage is not None:
                    self.find(called or kind, found.damage, shown(kind, found.key))
                    if damaged is not None:
                        damaged(found.damage, found.key)
                if found.record is not None:
                    yield found.key, found.record
            if len(page) < limit:
                return
            after = page[-1].key

    async def row(self, kind: str, *part: str, key: bytes) -> Found | None:
        """The row with that key, perhaps a damaged one, or None. Counts as nothing checked."""
        number = int.from_bytes(key)
        after = (number - 1).to_bytes(len(key)) if number else b""
        try:
            page = await self.tx.inspect(kind, self.workspace, part, (after,), 1)
        except Exception as error:
            self.find(kind, f"it cannot be read: {reason(error)}", shown(kind, (key,)))
            await self._still_answers()
            return None
        return page[0] if page and page[0].key == (key,) else None

    async def has(self, kind: str, identifier: str, *part: str) -> bool:
        """Whether there is a row with that id, sound or not."""
        return await self.row(kind, *part, key=to_bytes(identifier)) is not None

    async def revision(self, store: StoreId, revision: RevisionId) -> Revision | None:
        """The revision; None where it is absent or damaged."""
        found = await self.row("revisions", store, key=to_bytes(revision))
        return None if found is None else found.record

    async def _still_answers(self) -> None:
        """Abandoned where the statement that failed has ended the transaction."""
        try:
            await self.tx.list_workspaces()
        except Exception as error:
            raise Abandoned(reason(error)) from error


class Ahead(Generic[T]):
    """Items of which the next can be looked at: `next`, None at the end."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self.next: T | None = None

    async def advance(self) -> T | None:
        """Takes the next item; what it was."""
        taken = self.next
        self.next = await anext(self._items, None)
        return taken


async def ahead(items: AsyncIterator[T]) -> Ahead[T]:
    """The items, the first of them looked at."""
    made = Ahead(items)
    await made.advance()
    return made


def shown(kind: str, key: Key) -> str:
    """A row's key as people read it: an id, a hash, a path, numbers."""
    if kind in _ID_KINDS:
        return f"{PREFIXES[_ID_KINDS[kind]]}_{key[0].hex()}"
    first = key[0]
    if isinstance(first, bytes):
        text = kind in ("documents", "changes", "landed", "refs")
        first = first.decode("utf-8", "backslashreplace") if text else first.hex()
    return str(first)


def reason(error: Exception) -> str:
    """What an error says; what we raise ourselves says it without its class."""
    said = str(error)
    return said if said and isinstance(error, ValueError) else f"{type(error).__name__}: {said}"
