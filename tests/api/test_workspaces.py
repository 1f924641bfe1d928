"""Workspaces that the operator makes, disables and enables again (R-49)."""

import json

import httpx
import pytest

from muniment.api import native
from muniment.model.errors import Malformed, NotFound
from muniment.model.events import Event
from muniment.model.ids import DEFAULT_WORKSPACE, WorkspaceId
from muniment.service import workspaces
from muniment.service.workspaces import NewWorkspace
from muniment.worker import work_once
from wire import BASE, Wire, check_chain, document_url, error_of
from working import leave_job

DISABLED = (403, "auth.disabled_tenancy")
ROUTES = native.dialect(BASE).routes


async def made(wire: Wire, **options: str) -> tuple[NewWorkspace, httpx.AsyncClient]:
    """A new workspace `acme`, and a client with its first key."""
    new = await workspaces.create_workspace(wire.app, "acme", **options)
    return new, wire.client(new.secret)


async def events_of(wire: Wire, workspace: WorkspaceId) -> list[Event]:
    """The workspace's own events; the chain is whole."""
    events = await wire.storage.read(lambda tx: tx.list_events(workspace, workspace, 0, 200))
    check_chain(workspace, events)
    return events


async def state_of(wire: Wire, workspace: WorkspaceId, store: str) -> object:
    """What must not change while a workspace is disabled."""
    return (
        await events_of(wire, workspace),
        await wire.storage.read(lambda tx: tx.get_head(workspace, store)),
        await wire.storage.read(lambda tx: tx.list_keys(workspace, None, 200)),
    )


async def test_a_new_workspace_has_a_person_with_an_administrators_key_r49(wire: Wire) -> None:
    new, client = await made(wire)
    assert new.secret.startswith(f"mun_{new.workspace.id[4:]}_")
    me = (await client.get("/v1/whoami")).json()
    assert me["workspace"] == {"id": new.workspace.id, "name": "acme"}
    assert (me["principal"]["name"], me["principal"]["kind"]) == ("owner", "person")
    assert me["api_key"]["role"] == "admin"
    store = await wire.store(client)
    await wire.put(store, "/a.md", "theirs", client)
    assert error_of(await wire.owner.get(f"/v1/memory-stores/{store}"))[0] == 404
    assert [key["id"] for key in (await client.get("/v1/api-keys")).json()["items"]] == [new.key.id]
    told = await events_of(wire, new.workspace.id)
    assert [event.type for event in told[:2]] == ["workspace.created", "key.created"]
    assert "actor" not in json.loads(told[1].payload or b"")
    assert new.secret.encode() not in b"".join(event.payload or b"" for event in told)
    twin, other = await made(wire, principal="Ada")
    assert twin.workspace.id != new.workspace.id
    assert (await other.get("/v1/whoami")).json()["principal"]["name"] == "Ada"
    assert (await other.get("/v1/memory-stores")).json()["items"] == []
    found = await workspaces.list_workspaces(wire.app)
    assert [(one.name, one.status) for one in found] == [
        ("default", "active"),
        ("acme", "active"),
        ("acme", "active"),
    ]


@pytest.mark.parametrize("name", ["", " ", "a\nb", "x" * 256, "\ud800"])
async def test_a_bad_name_makes_no_workspace_r49(wire: Wire, name: str) -> None:
    for options in ({"name": name}, {"name": "acme", "principal": name}):
        with pytest.raises(Malformed):
            await workspaces.create_workspace(wire.app, **options)
    assert len(await workspaces.list_workspaces(wire.app)) == 1


async def test_a_disabled_workspace_answers_no_key_at_any_route_r49(wire: Wire) -> None:
    new, client = await made(wire)
    store = await wire.store(client)
    sha256 = await wire.put(store, "/a.md", "kept", client)
    member = (await client.post("/v1/api-keys", json={"name": "member"})).json()
    revoked = (await client.post("/v1/api-keys", json={"name": "revoked"})).json()
    await client.delete(f"/v1/api-keys/{revoked['id']}")
    assert (await workspaces.disable_workspace(wire.app, new.workspace.id)).status == "disabled"
    before = await state_of(wire, new.workspace.id, store)
    acting = {"Muniment-Acted-As": new.principal.id}
    callers = [client, wire.client(member["secret"]), wire.client(member["secret"], **acting)]
    ids = {"id": store, "key": new.key.id, "job": "x", "delegation": "x", "assignment": "x"}
    for caller in callers:
        for route in ROUTES:
            answer = await caller.request(
                route.method,
                route.path.format(**ids),
                params={"path": "/a.md"} if route.path.endswith("/document") else {},
                json={"content": "taken", "name": "taken"},
                headers={"If-Match": sha256, "Idempotency-Key": "k"},
            )
            assert error_of(answer) == DISABLED, route.path
            assert f"muniment workspace enable {new.workspace.id}" in answer.text
    assert error_of(await wire.client(revoked["secret"]).get("/v1/whoami"))[0] == 401
    assert await state_of(wire, new.workspace.id, store) == before
    assert (await wire.owner.get("/v1/whoami")).status_code == 200
    for path in ("/healthz", "/readyz", "/docs/errors"):
        assert (await client.get(path)).status_code == 200
    assert (await workspaces.enable_workspace(wire.app, new.workspace.id)).status == "active"
    found = await client.get(document_url(store), params={"path": "/a.md"})
    assert found.json()["content"] == "kept"
    assert (await callers[1].get("/v1/whoami")).status_code == 200


async def test_disabling_twice_is_disabling_once_r49(wire: Wire) -> None:
    new, _ = await made(wire)
    identifier = new.workspace.id
    for _ in range(2):
        assert (await workspaces.disable_workspace(wire.app, identifier)).status == "disabled"
    for _ in range(2):
        assert (await workspaces.enable_workspace(wire.app, identifier)).status == "active"
    told = await events_of(wire, identifier)
    assert [event.type for event in told[2:]] == ["workspace.disabled", "workspace.enabled"]
    assert [json.loads(event.payload or b"") for event in told[2:]] == [
        {"workspace": identifier}
    ] * 2
    for use in (workspaces.disable_workspace, workspaces.enable_workspace):
        with pytest.raises(NotFound):
            await use(wire.app, "wsp_" + "f" * 32)
        with pytest.raises(Malformed):
            await use(wire.app, "acme")


async def test_the_default_workspace_can_be_disabled_too_and_its_jobs_are_done_r49(
    wire: Wire,
) -> None:
    _, other = await made(wire)
    store = await leave_job(wire, 3)
    await workspaces.disable_workspace(wire.app, DEFAULT_WORKSPACE)
    for client in (wire.owner, wire.operator):
        answer = await client.get("/v1/whoami")
        assert error_of(answer) == DISABLED
        assert f"muniment workspace enable {DEFAULT_WORKSPACE}" in answer.text
    assert (await other.get("/v1/whoami")).status_code == 200
    assert await work_once(wire.app)
    await workspaces.enable_workspace(wire.app, DEFAULT_WORKSPACE)
    listed = (await wire.operator.get("/v1/memory-stores?include_deleted=true")).json()["items"]
    assert [(one["id"], one["status"]) for one in listed] == [(store, "deleted")]
    assert (await wire.owner.get("/v1/jobs")).json()["items"] == []
