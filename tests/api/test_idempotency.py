"""Idempotency keys on every route that writes: nothing twice, and one answer (R-47, K4)."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from muniment.api import native
from wire import BASE, Person, Wire, document_url, error_of, wired
from working import jobs_of, leave_job

KEY = "Idempotency-Key"
WRITES = [route for route in native.dialect(BASE).routes if route.method != "GET"]

OTHER: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/api-keys"): {"name": "other"},
    ("POST", "/v1/principals"): {"name": "other"},
    ("POST", "/v1/delegations"): {"principal": "{bob}"},
    ("POST", "/v1/agents"): {"name": "other"},
    ("POST", "/v1/sessions"): {"name": "other"},
    ("POST", "/v1/surface-scopes"): {"name": "other"},
    ("POST", "/v1/permission-assignments"): {"permissions": ["read"]},
    ("POST", "/v1/memory-stores"): {"name": "other"},
    ("PATCH", "/v1/memory-stores/{id}"): {"name": "other"},
    ("POST", "/v1/memory-stores/{id}/archive"): {"expected_version": 7},
    ("PUT", "/v1/memory-stores/{id}/document"): {"content": "other"},
}
"""What makes another request of one with a body."""


class Writes:
    """One good request for every route that writes, and what it is about."""

    def __init__(self, wire: Wire, ids: Mapping[str, str], sha256: str) -> None:
        self.wire = wire
        self.ids = ids
        self.sha256 = sha256

    def body(self, method: str, path: str) -> dict[str, Any] | None:
        """The request's body."""
        bob = {"kind": "principal", "principal": self.ids["bob"]}
        return {
            ("POST", "/v1/api-keys"): {"name": "x"},
            ("POST", "/v1/principals"): {"name": "x", "external_id": "x-1"},
            ("POST", "/v1/delegations"): {"principal": self.ids["ada"], "delegate": bob},
            ("POST", "/v1/agents"): {"name": "x"},
            ("POST", "/v1/sessions"): {"name": "x"},
            ("POST", "/v1/surface-scopes"): {"name": "x", "kind": "public"},
            ("POST", "/v1/permission-assignments"): {
                "memory_store": self.ids["id"],
                "subject": bob,
                "permissions": ["read", "write"],
            },
            ("POST", "/v1/memory-stores"): {"name": "x", "grants": []},
            ("PATCH", "/v1/memory-stores/{id}"): {"expected_version": 1, "name": "y"},
            ("POST", "/v1/memory-stores/{id}/archive"): {"expected_version": 1},
            ("PUT", "/v1/memory-stores/{id}/document"): {"content": "new"},
        }.get((method, path))

    async def send(self, method: str, path: str, key: str | None, **changed: Any) -> httpx.Response:
        """The route's request, with some fields changed."""
        body = self.body(method, path)
        if body is not None:
            body |= json.loads(json.dumps(changed).replace("{bob}", self.ids["bob"]))
        headers = {} if key is None else {KEY: key}
        params = {}
        if path.endswith("/document"):
            params["path"] = "/a.md"
            headers["If-Match"] = self.sha256
        return await self.wire.owner.request(
            method, path.format(**self.ids), params=params, json=body, headers=headers
        )


async def prepared(wire: Wire) -> Writes:
    """A store with a document, two principals, an assignment, a delegation, a key to revoke."""
    ada, bob = await wire.person(), await wire.person("bob")
    store = await wire.store()
    sha256 = await wire.put(store, "/a.md", "old")
    subject = {"kind": "principal", "principal": ada.principal}
    delegation = await wire.owner.post(
        "/v1/delegations", json={"principal": bob.principal, "delegate": subject}
    )
    await leave_job(wire)
    (job,) = await jobs_of(wire)
    ids = {
        "id": store,
        "job": job.id,
        "key": ada.key,
        "ada": ada.principal,
        "bob": bob.principal,
        "assignment": await wire.grant(store, subject, "read"),
        "delegation": delegation.json()["id"],
    }
    return Writes(wire, ids, sha256)


def test_every_route_that_takes_a_body_has_another_request_here_r47() -> None:
    assert {(route.method, route.path) for route in WRITES if route.takes} == set(OTHER)


@pytest.mark.parametrize("route", WRITES, ids=lambda route: f"{route.method} {route.path}")
async def test_a_request_sent_again_makes_nothing_and_gets_its_answer_r47(
    wire: Wire, route: Any
) -> None:
    writes = await prepared(wire)
    method, path = route.method, route.path
    first = await writes.send(method, path, "once")
    assert first.status_code == route.status, first.text
    before = await wire.state()
    again = await writes.send(method, path, "once")
    assert await wire.state() == before
    if (method, path) == ("DELETE", "/v1/memory-stores/{id}"):
        assert error_of(again) == (404, "validation.not_found")
        return
    assert again.status_code == first.status_code
    if first.content:
        answer = first.json()
        secret = answer.pop("secret", None)
        assert again.json() == answer
        assert (secret is not None) == (path == "/v1/api-keys")
    changed = OTHER.get((method, path), {})
    if changed:
        refused = await writes.send(method, path, "once", **changed)
        assert error_of(refused) == (409, "memory.conflict")
        assert refused.json()["error"]["detail"] == {"field": KEY}
        assert await wire.state() == before


async def test_five_equal_creates_at_once_are_one_k4(wire: Wire) -> None:
    store = await wire.store()
    head = (await wire.events(store))[-1].seq

    async def put(path: str, content: str, key: str | None) -> httpx.Response:
        headers = {} if key is None else {KEY: key}
        return await wire.owner.put(
            document_url(store), params={"path": path}, json={"content": content}, headers=headers
        )

    answers = await asyncio.gather(*(put("/a.md", "same", "k") for _ in range(5)))
    assert {(answer.status_code, answer.content) for answer in answers} == {
        (201, answers[0].content)
    }
    assert len({answer.headers["etag"] for answer in answers}) == 1
    assert (await wire.events(store))[-1].seq == head + 1
    for path, content in (("/a.md", "other"), ("/b.md", "same")):
        refused = await put(path, content, "k")
        assert error_of(refused) == (409, "memory.conflict")
    # Two equal documents at two paths: two documents, one blob.
    assert (await put("/b.md", "same", "k2")).status_code == 201
    items, _ = await wire.documents(store)
    assert [item["path"] for item in items] == ["/a.md", "/b.md"]
    assert len({item["sha256"] for item in items}) == 1


async def test_parallel_creates_on_two_nodes_are_one_k4(tmp_path: Path, postgres_dsn: str) -> None:
    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(wired(tmp_path / "home", postgres_dsn))
            for _ in range(2)
        ]
        for path, body in (
            ("/v1/memory-stores", {"name": "x"}),
            ("/v1/principals", {"name": "x", "external_id": "e"}),
            ("/v1/sessions", {"name": "x"}),
        ):
            answers = await asyncio.gather(
                *(
                    node.owner.post(path, json=body, headers={KEY: f"for {path}"})
                    for _ in range(4)
                    for node in nodes
                )
            )
            assert {(one.status_code, one.content) for one in answers} == {
                (201, answers[0].content)
            }
        assert len((await nodes[0].owner.get("/v1/memory-stores")).json()["items"]) == 1


async def test_a_key_counts_for_one_sender_one_route_and_its_ids_r47(wire: Wire) -> None:
    ada, bob = await wire.person(), await wire.person("bob")
    made = [
        await client.post("/v1/memory-stores", json={"name": "n"}, headers={KEY: "k"})
        for client in (wire.owner, ada.client, bob.client)
    ]
    session = await ada.client.post("/v1/sessions", json={"name": "n"}, headers={KEY: "k"})
    assert [one.status_code for one in (*made, session)] == [201] * 4
    stores = [one.json()["id"] for one in made]
    assert len(set(stores)) == 3
    second = await wire.store()
    for store in (stores[0], second):
        put = await wire.owner.put(
            document_url(store),
            params={"path": "/a"},
            json={"content": f"of {store}"},
            headers={KEY: "k"},
        )
        assert put.status_code == 201
    # Acting for somebody else is another sender.
    await ada.client.post(
        "/v1/delegations",
        json={
            "principal": ada.principal,
            "delegate": {"kind": "principal", "principal": bob.principal},
        },
    )
    acting = await bob.client.post(
        "/v1/memory-stores",
        json={"name": "n"},
        headers={KEY: "k", "Muniment-Acted-As": ada.principal},
    )
    assert acting.status_code == 201 and acting.json()["id"] not in stores


async def test_only_a_request_that_was_carried_out_binds_its_key_r47(wire: Wire) -> None:
    store = await wire.store()
    url, ada = document_url(store), await wire.person()

    async def put(person: httpx.AsyncClient, **sent: Any) -> httpx.Response:
        headers = {KEY: "k", **sent.pop("headers", {})}
        body = {"params": {"path": "/a.md"}, "json": {"content": "x"}, **sent}
        return await person.put(url, headers=headers, **body)

    assert error_of(await put(wire.owner, json={"content": 1}))[0] == 400
    assert error_of(await put(wire.owner, params={"path": "a"}))[0] == 400
    assert error_of(await put(ada.client))[0] == 404
    assert error_of(await put(wire.owner, headers={"If-Match": "0" * 64}))[0] == 409
    assert (await put(wire.owner)).status_code == 201


async def test_authorisation_comes_before_the_answer_of_old_r47(wire: Wire) -> None:
    ada = await wire.person()
    store = await wire.store()
    subject = {"kind": "principal", "principal": ada.principal}
    held = await wire.grant(store, subject, "read", "write")

    async def put() -> httpx.Response:
        return await ada.client.put(
            document_url(store),
            params={"path": "/a.md"},
            json={"content": "x"},
            headers={KEY: "k"},
        )

    first = await put()
    assert first.status_code == 201
    await wire.owner.delete(f"/v1/permission-assignments/{held}")
    assert error_of(await put()) == (404, "validation.not_found")
    await wire.grant(store, subject, "read")
    assert error_of(await put()) == (403, "policy.denied")
    await wire.grant(store, subject, "write")
    assert (await put()).content == first.content


async def test_the_answer_is_what_was_made_whatever_became_of_it_r47(wire: Wire) -> None:
    store = await wire.store()

    async def put(content: str, key: str, match: str | None = None) -> httpx.Response:
        headers = {KEY: key} | ({} if match is None else {"If-Match": match})
        return await wire.owner.put(
            document_url(store),
            params={"path": "/a.md"},
            json={"content": content},
            headers=headers,
        )

    first = await put("one", "k1")
    second = await put("two", "k2", first.json()["sha256"])
    same = await put("two", "k3", second.json()["sha256"])
    assert (second.status_code, same.status_code) == (200, 200)
    await wire.owner.delete(
        document_url(store),
        params={"path": "/a.md"},
        headers={"If-Match": second.json()["sha256"]},
    )
    for answer, key, sent in (
        (first, "k1", ("one", None)),
        (second, "k2", ("two", first.json()["sha256"])),
        (same, "k3", ("two", second.json()["sha256"])),
    ):
        again = await put(sent[0], key, sent[1])
        assert (again.status_code, again.content) == (answer.status_code, answer.content)
        assert again.headers["etag"] == answer.headers["etag"]
    assert (await wire.documents(store))[0] == []


async def test_what_is_gone_is_not_made_again_r47(wire: Wire) -> None:
    made = await wire.owner.post("/v1/memory-stores", json={"name": "n"}, headers={KEY: "k"})
    store = made.json()["id"]
    subject = {"kind": "workspace"}
    body = {"memory_store": store, "subject": subject, "permissions": ["read"]}
    grant = await wire.owner.post("/v1/permission-assignments", json=body, headers={KEY: "k"})
    await wire.owner.delete(f"/v1/permission-assignments/{grant.json()['id']}")
    again = await wire.owner.post("/v1/permission-assignments", json=body, headers={KEY: "k"})
    assert error_of(again) == (404, "validation.not_found")
    await wire.owner.delete(f"/v1/memory-stores/{store}")
    before = await wire.state()
    again = await wire.owner.post("/v1/memory-stores", json={"name": "n"}, headers={KEY: "k"})
    assert error_of(again) == (404, "validation.not_found")
    assert await wire.state() == before


@pytest.mark.parametrize("key", ["", "x" * 256, "ké", "a\tb"])
async def test_a_key_that_is_none_is_refused_by_every_write_r47(plain: Wire, key: str) -> None:
    writes = await prepared(plain)
    before = await plain.state()
    for route in WRITES:
        headers = {KEY.encode(): key.encode("latin-1")}
        answer = await plain.owner.request(
            route.method,
            route.path.format(**writes.ids),
            params={"path": "/a.md"} if route.path.endswith("/document") else {},
            json=writes.body(route.method, route.path),
            headers=headers,
        )
        assert error_of(answer) == (400, "validation.malformed")
        assert answer.json()["error"]["detail"]["field"] == KEY
    assert await plain.state() == before


async def test_how_a_request_is_spelled_makes_no_other_request_of_it_r47(plain: Wire) -> None:
    store = await plain.store()
    sha256 = await plain.put(store, "/a b.md", "old")
    bodies = ['{"content":"\\u0061"}', ' { "content" : "a" } ']
    paths, tags = ["/a%20b.md", "/a+b.md"], [sha256, f'"{sha256}"']
    answers = [
        await plain.owner.put(
            f"{document_url(store)}?path={path}",
            content=body,
            headers={KEY: "k", "If-Match": tag, "Content-Type": "application/json"},
        )
        for path, body, tag in zip(paths, bodies, tags, strict=True)
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].content == answers[1].content


async def test_receipts_hold_neither_content_nor_secrets_nor_the_key_r47(tmp_path: Path) -> None:
    async with wired(tmp_path / "home", f"sqlite:///{tmp_path / 'test.db'}") as wire:
        store = await wire.store()
        for path, body in (
            ("/v1/api-keys", {"name": "n"}),
            ("/v1/memory-stores", {"name": "n"}),
        ):
            made = await wire.owner.post(path, json=body, headers={KEY: "CANARY-KEY"})
            assert made.status_code == 201
            if path == "/v1/api-keys":
                secret = made.json()["secret"]
        await wire.owner.put(
            document_url(store),
            params={"path": "/a"},
            json={"content": "yes"},
            headers={KEY: "CANARY-KEY"},
        )
    raw = bytes_of(tmp_path)
    assert b"CANARY-KEY" not in raw and secret.encode() not in raw


def bytes_of(folder: Path) -> bytes:
    """Everything in the database's files."""
    return b"".join(file.read_bytes() for file in folder.glob("test.db*"))


async def test_a_person_gets_no_answer_of_another_one_r47(wire: Wire) -> None:
    people: list[Person] = [await wire.person(name) for name in ("ada", "bob")]
    answers = [
        await person.client.post("/v1/sessions", json={"name": "s"}, headers={KEY: "k"})
        for person in people
    ]
    assert answers[0].json()["id"] != answers[1].json()["id"]
    stranger = await wire.other_workspace()
    made = await stranger.client.post("/v1/sessions", json={"name": "s"}, headers={KEY: "k"})
    assert made.status_code == 201
