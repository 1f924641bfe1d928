"""Routes of the event streams (R-30, wire.md)."""

from muniment.api.http import INTEGER_MAX, Call, Query, Reply, Route
from muniment.api.native import shapes
from muniment.api.native.stores import store_id
from muniment.service import events
from muniment.service.app import App
from muniment.service.events import EventList
from muniment.service.paging import PAGE_ITEMS_DEFAULT, PAGE_ITEMS_MAX


async def list_store_events(app: App, call: Call) -> Reply:
    """The store's events."""
    found = await events.list_store_events(app, call.who(), store_id(call), **_range(call))
    return _reply(found)


async def list_workspace_events(app: App, call: Call) -> Reply:
    """The workspace's own events."""
    return _reply(await events.list_workspace_events(app, call.who(), **_range(call)))


def _range(call: Call) -> dict[str, int]:
    after = "page" if call.text("page") is not None else "after"
    return {
        "after": call.integer(after, 0, INTEGER_MAX, 0),
        "limit": call.integer("limit", 1, PAGE_ITEMS_MAX, PAGE_ITEMS_DEFAULT),
    }


def _reply(found: EventList) -> Reply:
    next_page = str(found.items[-1].seq) if found.more else None
    return Reply(
        200,
        {
            "items": [shapes.event_shape(event) for event in found.items],
            "head": {"seq": found.head.seq, "hash": found.head.hash.hex()},
            "next_page": next_page,
        },
    )


_NUMBER = {"type": "integer", "minimum": 0}
_QUERY = (Query("after", "Only events numbered above this.", _NUMBER), *shapes.PAGING)

ROUTES = (
    Route(
        "GET",
        "/v1/memory-stores/{id}/events",
        list_store_events,
        "List a store's events",
        query=_QUERY,
        gives=shapes.EventPage,
    ),
    Route(
        "GET",
        "/v1/events",
        list_workspace_events,
        "List the workspace's events",
        query=_QUERY,
        gives=shapes.EventPage,
    ),
)
