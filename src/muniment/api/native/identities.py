"""Routes of keys, principals, delegations and other owners (wire.md Administration)."""

from msgspec import UNSET

from muniment.api.http import Call, Reply, Route
from muniment.api.native import identity_shapes, shapes
from muniment.model.errors import Conflict, NotFound
from muniment.model.ids import DelegationId, check_id, is_id
from muniment.service import identities, keys
from muniment.service.app import App


async def whoami(app: App, call: Call) -> Reply:
    """Who this request comes from."""
    found = await keys.whoami(app, call.who())
    actor = found.actor
    return Reply(
        200,
        identity_shapes.WhoAmI(
            workspace=identity_shapes.WorkspaceName(actor.workspace, found.workspace_name),
            api_key=identity_shapes.KeyName(actor.key, found.key_name, found.role),
            principal=identity_shapes.principal_shape(found.principal),
            session=actor.session,
        ),
    )


async def create_key(app: App, call: Call) -> Reply:
    """201 with the key and, this once, its secret."""
    body = call.json(identity_shapes.KeyCreate)
    if body.principal is not None:
        check_id("principal", body.principal, "principal")
    expires = None
    if body.expires_at is not None:
        expires = shapes.read_time(body.expires_at, "expires_at")
    made = await keys.create_key(
        app,
        call.who(),
        body.name,
        body.role,
        principal=body.principal,
        expires_at=expires,
        once=call.once(app),
    )
    secret = UNSET if made.secret is None else made.secret
    return Reply(201, identity_shapes.key_shape(made.key, secret))


async def list_keys(app: App, call: Call) -> Reply:
    """The workspace's keys without secrets."""
    page = await keys.list_keys(app, call.who(), call.page())
    return Reply(200, shapes.page_shape(page, identity_shapes.key_shape))


async def revoke_key(app: App, call: Call) -> Reply:
    """204; the key is refused from now on."""
    identifier = call.params["key"]
    if not is_id("key", identifier):
        raise NotFound("no such API key")
    await keys.revoke_key(app, call.who(), identifier, once=call.once(app))
    return Reply(204)


async def create_principal(app: App, call: Call) -> Reply:
    """201 with the principal."""
    body = call.json(identity_shapes.PrincipalCreate)
    made = await identities.create_principal(
        app, call.who(), body.name, body.kind, external_id=body.external_id, once=call.once(app)
    )
    return Reply(201, identity_shapes.principal_shape(made))


async def list_principals(app: App, call: Call) -> Reply:
    """The workspace's principals."""
    page = await identities.list_principals(app, call.who(), call.page())
    return Reply(200, shapes.page_shape(page, identity_shapes.principal_shape))


async def create_delegation(app: App, call: Call) -> Reply:
    """201 with the delegation."""
    body = call.json(identity_shapes.DelegationCreate)
    actor = call.who()
    delegate = shapes.read_subject(body.delegate, "delegate", actor.workspace)
    made = await identities.create_delegation(
        app, actor, body.principal, delegate, once=call.once(app)
    )
    return Reply(201, identity_shapes.delegation_shape(made))


async def list_delegations(app: App, call: Call) -> Reply:
    """The workspace's delegations."""
    page = await identities.list_delegations(app, call.who(), call.page())
    return Reply(200, shapes.page_shape(page, identity_shapes.delegation_shape))


async def delete_delegation(app: App, call: Call) -> Reply:
    """204."""
    identifier = call.params["delegation"]
    if not is_id("delegation", identifier):
        raise NotFound("no such delegation")
    await identities.delete_delegation(
        app, call.who(), DelegationId(identifier), once=call.once(app)
    )
    return Reply(204)


async def create_agent(app: App, call: Call) -> Reply:
    """201 with the agent, as far as it can own stores."""
    body = call.json(identity_shapes.OwnerCreate)
    made = await identities.create_owner(
        app, call.who(), "agent_definition", body.name, once=call.once(app)
    )
    return Reply(201, identity_shapes.owner_shape(made))


async def create_session(app: App, call: Call) -> Reply:
    """201 with the Session, as far as it can own stores."""
    body = call.json(identity_shapes.OwnerCreate)
    made = await identities.create_owner(app, call.who(), "session", body.name, once=call.once(app))
    return Reply(201, identity_shapes.owner_shape(made))


async def create_scope(app: App, call: Call) -> Reply:
    """201 with the surface scope."""
    body = call.json(identity_shapes.ScopeCreate)
    made = await identities.create_owner(
        app, call.who(), "surface_scope", body.name, scope_kind=body.kind, once=call.once(app)
    )
    return Reply(201, identity_shapes.owner_shape(made))


async def list_agents(app: App, call: Call) -> Reply:
    """The workspace's agents."""
    page = await identities.list_owners(app, call.who(), "agent_definition", call.page())
    return Reply(200, shapes.page_shape(page, identity_shapes.owner_shape))


async def list_sessions(app: App, call: Call) -> Reply:
    """The workspace's Sessions."""
    page = await identities.list_owners(app, call.who(), "session", call.page())
    return Reply(200, shapes.page_shape(page, identity_shapes.owner_shape))


async def list_scopes(app: App, call: Call) -> Reply:
    """The workspace's surface scopes."""
    page = await identities.list_owners(app, call.who(), "surface_scope", call.page())
    return Reply(200, shapes.page_shape(page, identity_shapes.owner_shape))


_CHANGES = (NotFound, Conflict)

ROUTES = (
    Route("GET", "/v1/whoami", whoami, "Who this request comes from", gives=identity_shapes.WhoAmI),
    Route(
        "POST",
        "/v1/api-keys",
        create_key,
        "Create an API key",
        201,
        takes=identity_shapes.KeyCreate,
        gives=identity_shapes.KeyShape,
        fails=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/api-keys",
        list_keys,
        "List API keys",
        query=shapes.PAGING,
        gives=identity_shapes.KeyPage,
    ),
    Route("DELETE", "/v1/api-keys/{key}", revoke_key, "Revoke an API key", 204, fails=_CHANGES),
    Route(
        "POST",
        "/v1/principals",
        create_principal,
        "Create a principal",
        201,
        takes=identity_shapes.PrincipalCreate,
        gives=identity_shapes.PrincipalShape,
        fails=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/principals",
        list_principals,
        "List principals",
        query=shapes.PAGING,
        gives=identity_shapes.PrincipalPage,
    ),
    Route(
        "POST",
        "/v1/delegations",
        create_delegation,
        "Let one principal act as another",
        201,
        takes=identity_shapes.DelegationCreate,
        gives=identity_shapes.DelegationShape,
        fails=_CHANGES,
    ),
    Route(
        "GET",
        "/v1/delegations",
        list_delegations,
        "List delegations",
        query=shapes.PAGING,
        gives=identity_shapes.DelegationPage,
    ),
    Route(
        "DELETE",
        "/v1/delegations/{delegation}",
        delete_delegation,
        "End a delegation",
        204,
        fails=_CHANGES,
    ),
    *(
        route
        for path, create, listed, noun, takes in (
            ("/v1/agents", create_agent, list_agents, "agent", identity_shapes.OwnerCreate),
            ("/v1/sessions", create_session, list_sessions, "Session", identity_shapes.OwnerCreate),
            (
                "/v1/surface-scopes",
                create_scope,
                list_scopes,
                "surface scope",
                identity_shapes.ScopeCreate,
            ),
        )
        for route in (
            Route(
                "POST",
                path,
                create,
                f"Register a {noun}".replace("a agent", "an agent"),
                201,
                takes=takes,
                gives=identity_shapes.OwnerShape,
                fails=_CHANGES,
            ),
            Route(
                "GET",
                path,
                listed,
                f"List {noun}s",
                query=shapes.PAGING,
                gives=identity_shapes.OwnerPage,
            ),
        )
    ),
)
