"""Reading event streams (R-30, R-41)."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from muniment.model.access import Action, Actor
from muniment.model.errors import Internal
from muniment.model.events import Event, Head, check_payload
from muniment.model.ids import PrincipalId, StoreId
from muniment.service import guard
from muniment.service.app import App
from muniment.service.paging import PAGE_ITEMS_MAX, Page
from muniment.storage.base import Transaction

SCAN_EVENTS_MAX = 1000
"""How far one page looks for the events that concern a principal."""


class EventList(Struct, frozen=True):
    """Events in order, where their stream ends, and the cursor of the next page."""

    items: list[Event]
    head: Head
    next_page: str | None


async def list_store_events(
    app: App, actor: Actor, store: StoreId, page: Page, *, after: int = 0
) -> EventList:
    """The store's events numbered above `after`: for its readers, and for administrators.

    A page ends before an event whose payload does not fit its commitment, and one that would begin
    with it is Internal, naming `stream` and `seq`.
    """

    async def admit(tx: Transaction) -> None:
        action = Action.INSPECT if actor.admin else Action.READ
        await guard.open_store(tx, actor, store, action)

    return await _page(app, actor, store, (page, after), admit)


async def list_workspace_events(app: App, actor: Actor, page: Page, *, after: int = 0) -> EventList:
    """The workspace's own events numbered above `after` (R-41).

    Administrators see all, others those that concern their principal; a page that looked at
    SCAN_EVENTS_MAX events may hold fewer than asked for and still have a next one.
    """

    async def admit(tx: Transaction) -> None:
        del tx

    return await _page(app, actor, actor.workspace, (page, after), admit)


async def _page(
    app: App,
    actor: Actor,
    stream: str,
    place: tuple[Page, int],
    admit: Callable[[Transaction], Awaitable[None]],
) -> EventList:
    page, after = place
    pins = (stream, actor.principal, actor.admin)
    if page.cursor is not None:
        after = app.cursors.open(actor.workspace, "events", pins, page.cursor)
    mine = None if actor.admin or stream != actor.workspace else actor.principal

    async def use(tx: Transaction) -> tuple[list[Event], int, Head]:
        await admit(tx)
        head = await tx.get_head(actor.workspace, stream)
        items: list[Event] = []
        at, end = after, min(head.seq, after + SCAN_EVENTS_MAX)
        while at < end and len(items) < page.limit:
            wanted = page.limit if mine is None else PAGE_ITEMS_MAX
            found = await tx.list_events(actor.workspace, stream, at, wanted)
            if not found:
                # The end is missing: a cursor would lead here again, and again.
                at = end
                break
            for event in found:
                if check_payload(event) is not None:
                    if at > after:
                        return items, at, head
                    raise _damaged(stream, event)
                at = event.seq
                if mine is None or concerns(event, mine):
                    items.append(event)
                if len(items) == page.limit:
                    break
        return items, at, head

    items, at, head = await app.storage.read(use, scan=True)
    cursor = None
    if at < head.seq:
        cursor = app.cursors.seal(actor.workspace, "events", pins, at)
    return EventList(items, head, cursor)


def _damaged(stream: str, event: Event) -> Internal:
    """Where a page would begin with it; what comes before is served, and so is what follows."""
    damage = check_payload(event)
    return Internal(
        f"event {event.seq} of {stream} is damaged: {damage}; after={event.seq} reads on behind it",
        stream=stream,
        seq=event.seq,
        damage=damage,
    )


def concerns(event: Event, principal: PrincipalId) -> bool:
    """Whether the event is about the principal, or its own act."""
    if event.payload is None:
        return False
    payload = msgspec.json.decode(event.payload)
    named = [payload.get("principal"), payload.get("delegate")]
    for field in ("subject", "actor"):
        named.append(payload.get(field, {}).get("principal"))
    return principal in named
