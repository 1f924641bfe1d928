"""What is somebody's, every request that would reach for it, and the neighbours who send them.

The neighbours are an administrator and a member of a second workspace, with a store of the same
name that holds other content at the same path (K12).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from muniment.api import native
from muniment.api.http import Route
from wire import BASE, Person, Wire
from working import jobs_of, leave_job

ROUTES = native.dialect(BASE).routes

BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/api-keys"): {"name": "x"},
    ("POST", "/v1/principals"): {"name": "x"},
    ("POST", "/v1/delegations"): {
        "principal": "{principal}",
        "delegate": {"kind": "api_key", "api_key": "{key}"},
    },
    ("POST", "/v1/agents"): {"name": "x"},
    ("POST", "/v1/sessions"): {"name": "x"},
    ("POST", "/v1/surface-scopes"): {"name": "x", "kind": "public"},
    ("POST", "/v1/permission-assignments"): {
        "memory_store": "{id}",
        "subject": {"kind": "principal", "principal": "{principal}"},
        "permissions": ["read", "write"],
    },
    ("POST", "/v1/memory-stores"): {
        "name": "x",
        "owner": {"kind": "principal", "principal": "{principal}"},
    },
    ("PATCH", "/v1/memory-stores/{id}"): {"expected_version": 1, "name": "taken"},
    ("POST", "/v1/memory-stores/{id}/archive"): {"expected_version": 1},
    ("PUT", "/v1/memory-stores/{id}/document"): {"content": "taken"},
}
"""A good body for every route that takes one; `{id}` and the like are filled in."""

QUERIES = {
    "/v1/memory-stores/{id}/document": "?path=/a.md",
    "/v1/memory-stores/{id}/access": "?subject=principal:{principal}",
}


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


def filled(value: Any, ids: dict[str, str]) -> Any:
    """The value with every `{name}` replaced by the id of that name."""
    text = json.dumps(value)
    for name, identifier in ids.items():
        text = text.replace("{" + name + "}", identifier)
    return json.loads(text)


async def victim(wire: Wire) -> tuple[Person, dict[str, str]]:
    """A member with one of everything, and the ids that a route's path may name."""
    ada, bob = await wire.person("CANARY-ada"), await wire.person("CANARY-bob")
    store = await wire.store(ada.client, name="CANARY-NAME")
    sha256 = await wire.put(store, "/a.md", "CANARY-CONTENT", ada.client)
    session = await ada.client.post("/v1/sessions", json={"name": "CANARY"})
    agent = await wire.owner.post("/v1/agents", json={"name": "CANARY"})
    scope = {"name": "CANARY", "kind": "private"}
    scope_id = (await wire.owner.post("/v1/surface-scopes", json=scope)).json()["id"]
    subject = {"kind": "principal", "principal": bob.principal}
    made = await ada.client.post(
        "/v1/delegations", json={"principal": ada.principal, "delegate": subject}
    )
    await leave_job(wire)
    (job,) = await jobs_of(wire)
    held = await wire.owner.get("/v1/permission-assignments", params={"memory_store": store})
    await wire.owner.delete(f"/v1/delegations/{made.json()['id']}")
    made = await ada.client.post(
        "/v1/delegations", json={"principal": ada.principal, "delegate": subject}
    )
    return ada, {
        "id": store,
        "key": ada.key,
        "principal": ada.principal,
        "delegation": made.json()["id"],
        "assignment": held.json()["items"][0]["id"],
        "job": job.id,
        "session": session.json()["id"],
        "agent": agent.json()["id"],
        "scope": scope_id,
        "sha256": sha256,
    }


def requests(ids: dict[str, str]) -> Iterator[tuple[Route, str, Any]]:
    """Every native route with a URL and a body that would be good for the ids' owner."""
    for route in ROUTES:
        url = filled(route.path + QUERIES.get(route.path, ""), ids)
        assert "{" not in url, f"say in `victim` what fills {route.path}"
        body = BODIES.get((route.method, route.path))
        assert body is not None or route.takes is None, f"give a body for {named(route)}"
        yield route, url, filled(body, ids)


def precondition(route: Route, ids: Mapping[str, str]) -> dict[str, str]:
    """The header that the owner of the ids would send too."""
    takes = {header.name for header in route.headers}
    return {"If-Match": ids["sha256"]} if "If-Match" in takes else {}


@dataclass
class Neighbours:
    """An administrator and a member of a second workspace, and the store of each."""

    admin: Person
    member: Person
    stores: dict[str, str]

    @property
    def both(self) -> tuple[Person, Person]:
        """Both of them."""
        return self.admin, self.member


async def neighbours(wire: Wire, *, name: str = "CANARY-NAME") -> Neighbours:
    """The second workspace, with stores of the given name."""
    admin = await wire.other_workspace()
    made = (await admin.client.post("/v1/api-keys", json={"name": "member"})).json()
    secret = made["secret"]
    member = Person(made["principal"], made["id"], secret, wire.client(secret))
    stores = {}
    for person in (admin, member):
        stores[person.key] = await wire.store(person.client, name=name)
        await wire.put(stores[person.key], "/a.md", "OWN", person.client)
    return Neighbours(admin, member, stores)
