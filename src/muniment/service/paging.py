"""Pages and their sealed cursors (house section 8, C-062).

A cursor is AES-256-GCM over a list's name, its workspace, its filters and its position, so that
an altered, foreign or stale one is refused in one place and shows nothing to who holds it.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from muniment.model.access import Actor
from muniment.model.errors import Malformed
from muniment.model.ids import WorkspaceId
from muniment.model.stores import StoreSummary
from muniment.storage.base import Storage, Transaction

T = TypeVar("T")
U = TypeVar("U")

PAGE_ITEMS_MAX = 200
PAGE_ITEMS_DEFAULT = 50
CURSOR_CHARACTERS_MAX = 8192
_NONCE_BYTES = 12


class Page(Struct, frozen=True):
    """What a list is asked for: at most `limit` items, after the sealed `cursor` if any."""

    limit: int = PAGE_ITEMS_DEFAULT
    cursor: str | None = None


class Slice(Struct, Generic[T], frozen=True):
    """A page's items, and the cursor of the next page; None at the end."""

    items: list[T]
    next_page: str | None

    def map(self, render: Callable[[T], U]) -> "Slice[U]":
        """The same page with each item rendered."""
        return Slice([render(item) for item in self.items], self.next_page)


class Pager(Protocol):
    """What a list needs of the App."""

    @property
    def storage(self) -> Storage:
        """Where the items are."""

    @property
    def cursors(self) -> "CursorSeal":
        """What seals the positions."""


class CursorSeal:
    """Seals and opens cursors under the deployment's key."""

    def __init__(self, key: bytes, random_bytes: Callable[[int], bytes]) -> None:
        self._cipher = AESGCM(key)
        self._random_bytes = random_bytes

    def seal(
        self, workspace: WorkspaceId, name: str, pins: Sequence[object], position: object
    ) -> str:
        """The cursor of list `name` with these filters, at a position."""
        nonce = self._random_bytes(_NONCE_BYTES)
        text = msgspec.msgpack.encode(position)
        sealed = self._cipher.encrypt(nonce, text, _context(workspace, name, pins))
        return base64.urlsafe_b64encode(nonce + sealed).rstrip(b"=").decode()

    def open(self, workspace: WorkspaceId, name: str, pins: Sequence[object], cursor: str) -> Any:
        """The position. Malformed for a cursor that we did not make for this very list."""
        try:
            raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != cursor:
                raise ValueError("not as we wrote it")
            context = _context(workspace, name, pins)
            text = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], context)
        except (InvalidTag, binascii.Error, ValueError):
            raise Malformed(
                "page must be the next_page of the same list with the same filters", field="page"
            ) from None
        return msgspec.msgpack.decode(text)


def _context(workspace: WorkspaceId, name: str, pins: Sequence[object]) -> bytes:
    return msgspec.msgpack.encode((workspace, name, *pins))


async def page_of(
    app: "Pager",
    actor: Actor,
    pins: Sequence[object],
    page: Page,
    fetch: Callable[[Transaction, Any, int], Awaitable[list[T]]],
    *,
    admit: Callable[[Transaction], Awaitable[object]] | None = None,
) -> Slice[T]:
    """A page of a list ordered by id: `fetch` gives at most so many items above an id.

    `pins` are the list's name and filters, which its cursor is bound to. `admit` decides first,
    in the same snapshot, whether the actor may see the list.
    """
    name, filters = str(pins[0]), pins[1:]
    after: str | None = None
    if page.cursor is not None:
        after = app.cursors.open(actor.workspace, name, filters, page.cursor)

    async def use(tx: Transaction) -> list[T]:
        if admit is not None:
            await admit(tx)
        return await fetch(tx, after, page.limit + 1)

    items = await app.storage.read(use, scan=True)
    if len(items) <= page.limit:
        return Slice(items, None)
    items = items[: page.limit]
    cursor = app.cursors.seal(actor.workspace, name, filters, id_of(items[-1]))
    return Slice(items, cursor)


def id_of(item: object) -> str:
    """The id a list item is ordered by: its own, or its store's."""
    if isinstance(item, StoreSummary):
        return item.store.id
    return str(item.id)  # type: ignore[attr-defined]  # every listed record has an id
