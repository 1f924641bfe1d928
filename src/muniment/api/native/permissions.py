"""Routes of permission assignments (wire.md Administration)."""

from muniment.api.http import Call, Query, Reply, Route
from muniment.api.native import fields, shapes
from muniment.api.native.stores import SUBJECT_QUERY, read_grant, read_subject_query
from muniment.model.errors import Conflict, Malformed, NotFound
from muniment.model.ids import AssignmentId, StoreId, check_id, is_id
from muniment.service import permissions
from muniment.service.app import App


async def create_assignment(app: App, call: Call) -> Reply:
    """201 with the assignment."""
    body = call.json(shapes.AssignmentCreate)
    actor = call.who()
    grant = read_grant(body.subject, body.permissions, "", actor.workspace)
    made = await permissions.create_assignment(app, actor, _store(body), grant, once=call.once(app))
    return Reply(201, shapes.assignment_shape(made))


async def list_assignments(app: App, call: Call) -> Reply:
    """Assignments by store, by subject or both."""
    text = call.text("memory_store")
    store = None if text is None else StoreId(check_id("store", text, "memory_store"))
    page = await permissions.list_assignments(
        app, call.who(), call.page(), store=store, subject=read_subject_query(call)
    )
    return Reply(200, shapes.page_shape(page, shapes.assignment_shape))


async def delete_assignment(app: App, call: Call) -> Reply:
    """204."""
    identifier = call.params["assignment"]
    if not is_id("assignment", identifier):
        raise NotFound("no such permission assignment")
    await permissions.delete_assignment(
        app, call.who(), AssignmentId(identifier), once=call.once(app)
    )
    return Reply(204)


def _store(body: shapes.AssignmentCreate) -> StoreId:
    named = body.memory_store if body.resource is None else body.resource.memory_store
    if named is None or (body.resource is not None and body.memory_store is not None):
        raise Malformed("name the store once, as memory_store or as resource", field="memory_store")
    return StoreId(check_id("store", named, "memory_store"))


_ASSIGNMENTS = "/v1/permission-assignments"

ROUTES = (
    Route(
        "POST",
        _ASSIGNMENTS,
        create_assignment,
        "Grant access to a store",
        201,
        takes=shapes.AssignmentCreate,
        gives=shapes.AssignmentShape,
        fails=(NotFound, Conflict),
    ),
    Route(
        "GET",
        _ASSIGNMENTS,
        list_assignments,
        "List permission assignments",
        query=(
            Query("memory_store", "Only of this store.", fields.id_schema("store")),
            SUBJECT_QUERY,
            *shapes.PAGING,
        ),
        gives=shapes.AssignmentPage,
        fails=(NotFound,),
    ),
    Route(
        "DELETE",
        f"{_ASSIGNMENTS}/{{assignment}}",
        delete_assignment,
        "End a permission assignment",
        204,
        fails=(NotFound, Conflict),
    ),
)
