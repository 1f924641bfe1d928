"""Routes of the event streams (R-30, wire.md)."""

from muniment.api.http import INTEGER_MAX, Call, Query, Reply, Route
from muniment.api.native import shapes
from muniment.api.native.stores import store_id
from muniment.model.errors import Malformed, NotFound
from muniment.service import events
from muniment.service.app import App
from muniment.service.events import EventList


async def list_store_events(app: App, call: Call) -> Reply:
    """The store's events."""
    found = await events.list_store_events(
        app, call.who(), store_id(call), call.page(), after=_after(call)
    )
    return _reply(found)


async def list_workspace_events(app: App, call: Call) -> Reply:
    """The workspace's own events."""
    found = await events.list_workspace_events(app, call.who(), call.page(), after=_after(call))
    return _reply(found)


def _after(call: Call) -> int:
    if call.text("page") is not None and call.text("after") is not None:
        raise Malformed("send after or page, not both", field="after")
    return call.integer("after", 0, INTEGER_MAX, 0)


def _reply(found: EventList) -> Reply:
    return Reply(
        200,
        {
            "items": [shapes.event_shape(event) for event in found.items],
            "head": {"seq": found.head.seq, "hash": found.head.hash.hex()},
            "next_page": found.next_page,
        },
    )


_NUMBER = {"type": "integer", "minimum": 0, "maximum": INTEGER_MAX}
_QUERY = (Query("after", "Only events numbered above this.", _NUMBER), *shapes.PAGING)

ROUTES = (
    Route(
        "GET",
        "/v1/memory-stores/{id}/events",
        list_store_events,
        "List a store's events",
        query=_QUERY,
        gives=shapes.EventPage,
        fails=(NotFound,),
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
