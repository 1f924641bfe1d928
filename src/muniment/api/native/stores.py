"""Routes of the stores themselves (native.md 2.4, C-206, R-41)."""

from muniment.api.http import INTEGER_MAX, Answer, Call, Query, Reply, Route
from muniment.api.native import fields, shapes
from muniment.model.access import Subject
from muniment.model.errors import Conflict, Malformed, NotFound, ReadOnly
from muniment.model.ids import StoreId, is_id
from muniment.model.stores import Owner
from muniment.service import deletions, stores
from muniment.service.app import App
from muniment.service.permissions import Grant
from muniment.service.stores import NewStore, StorePatch


async def create_store(app: App, call: Call) -> Reply:
    """201 with the store."""
    body = call.json(shapes.StoreCreate)
    actor = call.who()
    owner = None
    if body.owner is not None:
        subject = shapes.read_subject(body.owner, "owner", actor.workspace)
        owner = Owner(subject.kind, None if subject.kind == "workspace" else subject.id)
        if subject.kind == "workspace" and subject.id != actor.workspace:
            raise NotFound("no such workspace", field="owner.workspace")
    new = NewStore(
        name=body.name,
        description=body.description,
        owner=owner,
        promotion_policy=body.promotion_policy,
        require_distinct_reviewer=body.require_distinct_reviewer,
        default=body.default,
        grants=[
            read_grant(grant.subject, grant.permissions, f"grants[{n}]", actor.workspace)
            for n, grant in enumerate(body.grants)
        ],
    )
    made = await stores.create_store(app, actor, new, once=call.once(app))
    return Reply(201, shapes.store_shape(made))


async def list_stores(app: App, call: Call) -> Reply:
    """The stores the caller may see."""
    page = await stores.list_stores(
        app,
        call.who(),
        call.page(),
        name=call.text("name"),
        include_archived=call.flag("include_archived"),
        include_deleted=call.flag("include_deleted"),
    )
    return Reply(200, shapes.page_shape(page, shapes.store_shape))


async def get_store(app: App, call: Call) -> Reply:
    """The store's metadata."""
    found = await stores.get_store(app, call.who(), store_id(call))
    return Reply(200, shapes.store_shape(found))


async def update_store(app: App, call: Call) -> Reply:
    """The store after the change."""
    body = call.json(shapes.StoreUpdate)
    patch = StorePatch(
        name=body.name,
        description=body.description,
        promotion_policy=body.promotion_policy,
        require_distinct_reviewer=body.require_distinct_reviewer,
        default=body.default,
    )
    changed = await stores.update_store(
        app, call.who(), store_id(call), body.expected_version, patch, once=call.once(app)
    )
    return Reply(200, shapes.store_shape(changed))


async def archive_store(app: App, call: Call) -> Reply:
    """The archived store."""
    body = call.json(shapes.StoreArchive)
    changed = await stores.archive_store(
        app, call.who(), store_id(call), body.expected_version, once=call.once(app)
    )
    return Reply(200, shapes.store_shape(changed))


async def delete_store(app: App, call: Call) -> Reply:
    """204 once the store's content is erased and its tombstone written.

    202 with `physical: pending` where a reader holds up the erasure of the database's files.
    """
    expected = None
    if call.text("expected_version") is not None:
        expected = call.integer("expected_version", 1, INTEGER_MAX, 1)
    # What is gone is 404 for a repetition too, so its key is looked at and not kept.
    call.once(app)
    gone = await deletions.delete_store(app, call.who(), store_id(call), expected_version=expected)
    return Reply(204) if gone else Reply(202, shapes.DeletionPending())


async def explain_access(app: App, call: Call) -> Reply:
    """What the caller, or `subject`, may do with the store."""
    subject = read_subject_query(call)
    found = await stores.explain_access(app, call.who(), store_id(call), subject)
    return Reply(
        200,
        shapes.AccessShape(
            found.read,
            found.write,
            shapes.MountShape(**found.mount),
            list(found.assignments),
            found.reasons,
        ),
    )


def store_id(call: Call) -> StoreId:
    """The store a route names. NotFound where it cannot be the id of one."""
    identifier = call.params["id"]
    if not is_id("store", identifier):
        raise NotFound("no such memory store")
    return StoreId(identifier)


def read_grant(
    subject: shapes.SubjectShape, permissions: list[shapes.Permission], name: str, workspace: str
) -> Grant:
    """A grant from its wire shape."""
    who = shapes.read_subject(subject, f"{name}.subject".lstrip("."), workspace)
    return Grant(who, "read" in permissions, "write" in permissions)


def read_subject_query(call: Call) -> Subject | None:
    """The `subject` parameter: `<kind>:<id>`, or None."""
    text = call.text("subject")
    if text is None:
        return None
    kind, _, identifier = text.partition(":")
    known = [name for name in shapes.SubjectShape.__struct_fields__ if name != "kind"]
    if kind not in known or not identifier:
        raise Malformed(
            f"subject must be <kind>:<id> with a kind of {', '.join(known)}", field="subject"
        )
    return Subject(kind, identifier)


_STORES = "/v1/memory-stores"
_STORE = f"{_STORES}/{{id}}"
SUBJECT_QUERY = Query(
    "subject", "`<kind>:<id>`, such as `api_key:apikey_…`.", fields.subject_schema()
)
_CHANGES = (NotFound, Conflict)

ROUTES = (
    Route(
        "POST",
        _STORES,
        create_store,
        "Create a store",
        201,
        takes=shapes.StoreCreate,
        gives=shapes.StoreShape,
        fails=_CHANGES,
    ),
    Route(
        "GET",
        _STORES,
        list_stores,
        "List stores",
        query=(
            Query("name", "Only stores of exactly this name."),
            Query("include_archived", "Archived stores too.", fields.BOOLEAN),
            Query("include_deleted", "Tombstones too; for administrators.", fields.BOOLEAN),
            *shapes.PAGING,
        ),
        gives=shapes.StorePage,
    ),
    Route(
        "GET",
        _STORE,
        get_store,
        "Read a store's metadata",
        gives=shapes.StoreShape,
        fails=(NotFound,),
    ),
    Route(
        "PATCH",
        _STORE,
        update_store,
        "Change a store's metadata",
        takes=shapes.StoreUpdate,
        gives=shapes.StoreShape,
        fails=(*_CHANGES, ReadOnly),
    ),
    Route(
        "DELETE",
        _STORE,
        delete_store,
        "Delete a store and erase what it holds",
        204,
        query=(
            Query(
                "expected_version",
                "The version the store was read at.",
                {"type": "integer", "minimum": 1, "maximum": INTEGER_MAX},
            ),
        ),
        others=(
            Answer(202, "Deleted; a reader holds up erasing the files", shapes.DeletionPending),
        ),
        fails=_CHANGES,
    ),
    Route(
        "POST",
        f"{_STORE}/archive",
        archive_store,
        "Archive a store",
        takes=shapes.StoreArchive,
        gives=shapes.StoreShape,
        fails=_CHANGES,
    ),
    Route(
        "GET",
        f"{_STORE}/access",
        explain_access,
        "Explain what a subject may do with a store",
        query=(SUBJECT_QUERY,),
        gives=shapes.AccessShape,
        fails=(NotFound,),
    ),
)
