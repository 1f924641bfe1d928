"""Reading event streams (R-30, R-41)."""

from msgspec import Struct

from muniment.model.access import Action, Actor
from muniment.model.events import Event, Head
from muniment.model.ids import StoreId
from muniment.service import guard
from muniment.service.app import App
from muniment.storage.base import Transaction


class EventList(Struct, frozen=True):
    """Events in order, and where their stream ends."""

    items: list[Event]
    head: Head
    more: bool


async def list_store_events(
    app: App, actor: Actor, store: StoreId, *, after: int, limit: int
) -> EventList:
    """The store's events numbered above `after`: for its readers, and for administrators."""

    async def use(tx: Transaction) -> EventList:
        action = Action.INSPECT if actor.admin else Action.READ
        await guard.open_store(tx, actor, store, action)
        return await _page(tx, actor, store, after, limit)

    return await app.storage.read(use, scan=True)


async def list_workspace_events(app: App, actor: Actor, *, after: int, limit: int) -> EventList:
    """The workspace's own events numbered above `after`. Administrators only."""
    guard.require_admin(actor)

    async def use(tx: Transaction) -> EventList:
        return await _page(tx, actor, actor.workspace, after, limit)

    return await app.storage.read(use, scan=True)


async def _page(tx: Transaction, actor: Actor, stream: str, after: int, limit: int) -> EventList:
    items = await tx.list_events(actor.workspace, stream, after, limit + 1)
    head = await tx.get_head(actor.workspace, stream)
    return EventList(items[:limit], head, len(items) > limit)
