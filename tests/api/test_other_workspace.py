"""The keys of a second workspace reach for what is in the first one (K12)."""

from collections import Counter
from typing import Any

import pytest

from muniment import main
from muniment.model.ids import is_id
from neighbours import ROUTES, named, neighbours, precondition, requests, victim
from wire import Wire, document_url, error_of

ID_KINDS = {"id": "store"}
"""Names of `victim` that are not those of an id's kind."""


def absent_ids(ids: dict[str, str]) -> dict[str, str]:
    """Ids of the same kinds that nobody has."""
    found = {}
    for name, one in ids.items():
        kind = ID_KINDS.get(name, name)
        found[name] = main.new_id(kind) if name != "sha256" and is_id(kind, one) else one
    return found


async def test_no_route_shows_or_changes_anything_of_another_workspace_k12(wire: Wire) -> None:
    _, ids = await victim(wire)
    others = await neighbours(wire)
    absent = absent_ids(ids)
    assert absent.keys() == ids.keys() and not set(absent.values()) & {*ids.values()} - {
        ids["sha256"]
    }
    before = await wire.state()
    refused: Counter[tuple[str, int]] = Counter()
    for who in others.both:
        for (route, url, body), (_, gone, other) in zip(
            requests(ids), requests(absent), strict=True
        ):
            match = precondition(route, ids)
            answer = await who.client.request(route.method, url, json=body, headers=match)
            nothing = await who.client.request(route.method, gone, json=other, headers=match)
            if (url, body) != (gone, other):
                expected = (404,) if who is others.admin else (403, 404)
                assert error_of(answer)[0] in expected, (named(route), answer.text)
                assert answer.json() == nothing.json(), named(route)
                refused[route.method, answer.status_code] += 1
            check_own(answer.text, ids)
    assert await wire.state() == before
    assert refused["GET", 404] >= 10 and refused["DELETE", 404] >= 5


def check_own(text: str, ids: dict[str, str]) -> None:
    """Nothing of the first workspace stands in the answer; a name that is equal is their own."""
    assert "CANARY-CONTENT" not in text and "CANARY-ada" not in text and "CANARY-bob" not in text
    assert not any(one in text for name, one in ids.items()), text


async def test_lists_and_filters_hold_the_own_workspace_only_k12(wire: Wire) -> None:
    _, ids = await victim(wire)
    others = await neighbours(wire)
    lists = [route.path for route in ROUTES if route.method == "GET" and "{" not in route.path]
    for who in others.both:
        for path in lists:
            answer = await who.client.get(path)
            assert answer.status_code in (200, 403), path
            check_own(answer.text, ids)
        found = (await who.client.get("/v1/memory-stores", params={"name": "CANARY-NAME"})).json()
        mine = set(others.stores.values()) if who is others.admin else {others.stores[who.key]}
        assert {one["id"] for one in found["items"]} == mine
        read = await who.client.get(document_url(others.stores[who.key]), params={"path": "/a.md"})
        assert read.json()["content"] == "OWN"
        for query in (
            {"memory_store": ids["id"]},
            {"subject": f"principal:{ids['principal']}"},
            {"subject": f"api_key:{ids['key']}"},
            {"subject": f"session:{ids['session']}"},
            {"subject": "workspace:wsp_" + "0" * 31 + "1"},
            {"memory_store": others.stores[who.key], "subject": f"principal:{ids['principal']}"},
        ):
            answer = await who.client.get("/v1/permission-assignments", params=query)
            assert error_of(answer)[0] in (403, 404), query
            check_own(answer.text.replace(ids["id"], ""), ids)
        about = {"subject": f"principal:{ids['principal']}"}
        answer = await who.client.get(
            f"/v1/memory-stores/{others.stores[who.key]}/access", params=about
        )
        assert error_of(answer)[0] in (403, 404)


async def test_bodies_that_name_another_workspace_reach_nothing_there_k12(wire: Wire) -> None:
    _, ids = await victim(wire)
    others = await neighbours(wire)
    first = "wsp_" + "0" * 31 + "1"
    before = await wire.state()
    subjects: list[dict[str, Any]] = [
        {"kind": "workspace", "workspace": first},
        {"kind": "principal", "principal": ids["principal"]},
        {"kind": "api_key", "api_key": ids["key"]},
        {"kind": "session", "session": ids["session"]},
        {"kind": "agent_definition", "agent_definition": ids["agent"]},
        {"kind": "surface_scope", "surface_scope": ids["scope"]},
    ]
    for who in others.both:
        own = others.stores[who.key]
        for subject in subjects:
            grant = {"subject": subject, "permissions": ["read", "write"]}
            bodies = [
                ("/v1/permission-assignments", {"memory_store": own, **grant}),
                ("/v1/memory-stores", {"name": "x", "grants": [grant]}),
            ]
            if subject["kind"] != "api_key":
                bodies.append(("/v1/memory-stores", {"name": "x", "owner": subject}))
            if subject["kind"] in ("principal", "api_key"):
                mine = {"principal": who.principal, "delegate": subject}
                bodies.append(("/v1/delegations", mine))
            for path, body in bodies:
                answer = await who.client.post(path, json=body)
                assert error_of(answer)[0] in (403, 404), (path, body)
        for path, body in (
            ("/v1/memory-stores", {"name": "x"}),
            ("/v1/sessions", {"name": "x"}),
            ("/v1/api-keys", {"name": "x"}),
            ("/v1/permission-assignments", {"memory_store": own, **grant}),
        ):
            for field in ("workspace", "workspace_id", "actor", "created_by", "id"):
                answer = await who.client.post(path, json={**body, field: first})
                assert error_of(answer) == (400, "validation.malformed"), (path, field)
    assert await wire.state() == before


async def test_what_was_sealed_or_sent_in_one_workspace_says_nothing_in_another_k12(
    wire: Wire,
) -> None:
    ada, ids = await victim(wire)
    others = await neighbours(wire)
    await wire.store(ada.client)
    await wire.put(ids["id"], "/b.md", "CANARY-CONTENT", ada.client)
    cursors = {}
    for path in ("/v1/memory-stores", f"/v1/memory-stores/{ids['id']}/documents"):
        page = await ada.client.get(path, params={"limit": 1})
        cursors[path.replace(ids["id"], "{id}")] = page.json()["next_page"]
    again = {"Idempotency-Key": "the same key"}
    body = {"name": "CANARY-NAME"}
    made = await ada.client.post("/v1/memory-stores", json=body, headers=again)
    before = await wire.state()
    for who in others.both:
        for path, cursor in cursors.items():
            answer = await who.client.get(
                path.replace("{id}", others.stores[who.key]), params={"limit": 1, "page": cursor}
            )
            assert error_of(answer) == (400, "validation.malformed")
        own = await who.client.post("/v1/memory-stores", json=body, headers=again)
        assert own.status_code == 201 and own.json()["id"] != made.json()["id"]
        acting = wire.client(who.secret, **{"Muniment-Acted-As": ids["principal"]})
        for path in ("/v1/whoami", f"/v1/memory-stores/{ids['id']}"):
            assert error_of(await acting.get(path)) == (403, "policy.denied")
    foreign = "mun_" + "0" * 31 + "1" + others.admin.secret[36:]
    assert error_of(await wire.client(foreign).get("/v1/whoami"))[0] == 401
    assert await wire.state() == before


async def test_equal_contents_and_names_of_two_workspaces_live_and_die_apart_k12(
    wire: Wire,
) -> None:
    ada, ids = await victim(wire)
    others = await neighbours(wire)
    for who in others.both:
        own = others.stores[who.key]
        await wire.put(own, "/b.md", "CANARY-CONTENT", who.client)
        assert (await who.client.delete(f"/v1/memory-stores/{own}")).status_code == 204
    read = await ada.client.get(document_url(ids["id"]), params={"path": "/a.md"})
    assert read.json()["content"] == "CANARY-CONTENT"
    same = {"name": "x", "external_id": "tenant:a/b|c"}
    for client in (wire.owner, others.admin.client):
        assert (await client.post("/v1/principals", json=same)).status_code == 201
        assert error_of(await client.post("/v1/principals", json=same))[0] == 409


@pytest.mark.parametrize(
    ("names", "unlike"),
    [
        (["tenant/acme", "tenant/acme-corp"], ["tenant", "tenant/", "tenant/acme%", "TENANT/ACME"]),
        (["a_b", "axb"], ["a%b", "a?b", "a*b", "_", "a_b "]),
        (["t%", "tenant"], ["t", "%", "t_nant", "ten%"]),
        (["a:b", "a/b", "a|b"], ["a", "b", "a b", ":", "a:b/", "a\\b"]),
    ],
)
async def test_names_are_found_exactly_and_never_as_patterns_k12(
    wire: Wire, names: list[str], unlike: list[str]
) -> None:
    others = await neighbours(wire)
    ada = await wire.person()
    made = {name: await wire.store(ada.client, name=name) for name in names}
    for name in names:
        await wire.store(others.member.client, name=name)
        found = (await ada.client.get("/v1/memory-stores", params={"name": name})).json()["items"]
        assert [one["id"] for one in found] == [made[name]]
    for name in unlike:
        found = await ada.client.get("/v1/memory-stores", params={"name": name})
        assert found.json()["items"] == [], name


@pytest.mark.parametrize("mark", [":", "/", "|", "%", "_", "*", "\x00", "\n", " ", "..", "'", "\\"])
async def test_ids_with_marks_in_them_are_nobodys_k12(plain: Wire, mark: str) -> None:
    _, ids = await victim(plain)
    others = await neighbours(plain)
    quoted = "".join(f"%{byte:02x}" for byte in mark.encode())
    before = await plain.state()
    for client in (plain.owner, others.admin.client):
        for place in ("{}" + quoted, quoted + "{}", "{}" + quoted + "x", quoted):
            marked = {name: place.format(one) for name, one in ids.items()}
            for (route, url, _), (_, _, body) in zip(requests(marked), requests(ids), strict=True):
                if "{" in route.path:
                    answer = await client.request(route.method, url, json=body)
                    assert error_of(answer)[0] in (400, 404), (named(route), url)
    for place in ("{}" + mark, mark + "{}", mark):
        marked = {name: place.format(one) for name, one in ids.items()}
        for subject in ("principal:" + marked["principal"], marked["key"], marked["principal"]):
            for path in (f"/v1/memory-stores/{ids['id']}/access", "/v1/permission-assignments"):
                answer = await plain.owner.get(path, params={"subject": subject})
                assert error_of(answer)[0] == 400, subject
        subject = {"kind": "principal", "principal": marked["principal"]}
        body = {"memory_store": ids["id"], "subject": subject, "permissions": ["read"]}
        answer = await plain.owner.post("/v1/permission-assignments", json=body)
        assert error_of(answer)[0] == 400
    assert await plain.state() == before
