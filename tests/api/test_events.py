"""Events: one for each change, in its transaction, chained, and without content (R-30, R-31)."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from muniment.model.events import TYPES
from muniment.model.ids import DEFAULT_WORKSPACE
from wire import Wire, check_chain, document_url, error_of, pack, tree_hash

WORKSPACE = str(DEFAULT_WORKSPACE)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def types(wire: Wire, stream: str, since: int = 0) -> list[str]:
    return [event.type for event in (await wire.events(stream))[since:]]


SHA = hashlib.sha256(b"one").hexdigest()
DOCUMENT = "/v1/memory-stores/{store}/document?path=/a.md"
PERSON = {"kind": "principal", "principal": "{principal}"}
GRANT = {"memory_store": "{store}", "subject": PERSON, "permissions": ["read"]}

Request = tuple[str, str, dict[str, Any] | None]
STEPS: list[tuple[str, str, Request]] = [
    ("", "principal.created key.created", ("POST", "/v1/api-keys", {"name": "k"})),
    ("", "key.created", ("POST", "/v1/api-keys", {"name": "k", "principal": "{principal}"})),
    ("", "principal.created", ("POST", "/v1/principals", {"name": "p"})),
    ("", "owner.created", ("POST", "/v1/agents", {"name": "a"})),
    ("", "owner.created", ("POST", "/v1/sessions", {"name": "s"})),
    ("", "owner.created", ("POST", "/v1/surface-scopes", {"name": "s", "kind": "public"})),
    (
        "",
        "delegation.created",
        ("POST", "/v1/delegations", {"principal": "{principals}", "delegate": PERSON}),
    ),
    ("", "assignment.created", ("POST", "/v1/permission-assignments", GRANT)),
    ("", "assignment.created", ("POST", "/v1/memory-stores", {"name": "n"})),
    ("", "", ("POST", "/v1/memory-stores", {"name": "w", "owner": {"kind": "workspace"}})),
    ("revision.created", "", ("PUT", DOCUMENT, {"content": "one"})),
    ("", "", ("PUT", DOCUMENT, {"content": "one"})),
    ("revision.created", "", ("DELETE", DOCUMENT, None)),
    (
        "memory.store_updated",
        "",
        ("PATCH", "/v1/memory-stores/{store}", {"expected_version": 1, "name": "m"}),
    ),
    ("", "delegation.deleted", ("DELETE", "/v1/delegations/{delegations}", None)),
    (
        "",
        "assignment.deleted",
        ("DELETE", "/v1/permission-assignments/{permission-assignments}", None),
    ),
    ("", "key.revoked", ("DELETE", "/v1/api-keys/{api-keys}", None)),
    ("", "", ("DELETE", "/v1/api-keys/{api-keys}", None)),
    (
        "memory.store_archived",
        "",
        ("POST", "/v1/memory-stores/{store}/archive", {"expected_version": 2}),
    ),
    ("", "", ("POST", "/v1/memory-stores/{store}/archive", {"expected_version": 3})),
]
"""Events in the store's stream, events in the workspace's, and the request that makes them."""


async def test_every_change_makes_exactly_its_event_in_its_stream(wire: Wire) -> None:
    ada, store = await wire.person(), await wire.store()
    made = {"store": store, "principal": ada.principal}
    for in_store, in_workspace, (method, path, body) in STEPS:
        before = len(await wire.events(store)), len(await wire.events(WORKSPACE))
        url, text = path, json.dumps(body)
        for name, identifier in made.items():
            url, text = (one.replace("{" + name + "}", identifier) for one in (url, text))
        present = SHA.encode() if before[0] > 1 and path == DOCUMENT else None
        answer = await wire.owner.request(
            method, url, content=text.encode(), headers={b"If-Match": present} if present else {}
        )
        assert answer.is_success, answer.text
        if answer.status_code == 201 and "id" in answer.json():
            made[url.rpartition("/")[2]] = answer.json()["id"]
        assert await types(wire, store, before[0]) == in_store.split()
        assert await types(wire, WORKSPACE, before[1]) == in_workspace.split()


async def test_r_30_a_deleted_store_leaves_the_last_hash_of_its_stream(wire: Wire) -> None:
    store = await wire.store()
    await wire.put(store, "/a.md", "x")
    before = len(await wire.events(WORKSPACE))
    last = (await wire.events(store))[-1]
    assert (await wire.owner.delete(f"/v1/memory-stores/{store}")).status_code == 204
    assert await wire.events(store) == []
    ended = (await wire.events(WORKSPACE))[before:]
    kinds = ["memory.store_deleting", "memory.store_deleted"]
    assert [event.type for event in ended] == kinds
    who = json.loads(ended[0].payload or b"")["actor"]
    assert set(who) == {"principal", "api_key"}
    payload = json.loads(ended[1].payload or b"")
    assert payload["store"] == store
    assert len(payload["last_event_hash"]) == 64
    assert payload["last_event_hash"] != last.hash.hex()
    check_chain(WORKSPACE, await wire.events(WORKSPACE))


async def test_r_30_the_chain_is_gapless_and_verifies_by_its_written_rule(wire: Wire) -> None:
    store, other = await wire.store(), await wire.store()
    for n in range(30):
        await wire.put(store, f"/{n}.md", f"{n}")
        if n % 3 == 0:
            await wire.put(other, f"/{n}.md", f"{n}")
            await wire.person(f"p{n}")
    salts = set()
    for stream, count in ((store, 31), (other, 11), (WORKSPACE, 24)):
        events = await wire.events(stream)
        assert len(events) == count
        url = "/v1/events" if stream == WORKSPACE else f"/v1/memory-stores/{stream}/events"
        head = (await wire.owner.get(url, params={"limit": 1})).json()["head"]
        assert head == {"seq": count, "hash": check_chain(stream, events).hex()}
        salts |= {event.salt for event in events}
        assert {event.type for event in events} <= set(TYPES)
    assert len(salts) == 31 + 11 + 24


async def test_r_30_a_reader_verifies_the_chain_from_the_answers_alone(wire: Wire) -> None:
    store = await wire.store()
    for n in range(5):
        await wire.put(store, f"/é{n}.md", "x")
    page = (await wire.owner.get(f"/v1/memory-stores/{store}/events")).json()
    last = bytes(32)
    for event in page["items"]:
        text = json.dumps(event["data"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        commitment = hashlib.sha256(bytes.fromhex(event["salt"]) + text.encode()).digest()
        assert event["commitment"] == commitment.hex()
        at = (datetime.fromisoformat(event["created_at"]) - EPOCH) // timedelta(microseconds=1)
        ids = [bytes.fromhex(one[-32:]) for one in (store, event["id"])]
        header = ["event", last, ids[0], event["seq"], ids[1], event["type"], at, commitment]
        last = hashlib.sha256(pack(header)).digest()
        assert event["hash"] == last.hex()
    assert page["head"] == {"seq": 6, "hash": last.hex()}


async def test_events_are_paged_without_repeats_or_gaps(wire: Wire) -> None:
    store = await wire.store()
    for n in range(12):
        await wire.put(store, f"/{n}.md", "x")
    url = f"/v1/memory-stores/{store}/events"
    found: list[dict[str, Any]] = []
    query: dict[str, Any] = {"limit": 5}
    while True:
        page = (await wire.owner.get(url, params=query)).json()
        found += page["items"]
        if page["next_page"] is None:
            break
        query = {"limit": 5, "page": page["next_page"]}
    assert [event["seq"] for event in found] == list(range(1, 14))
    assert [event["id"] for event in found] == [event.id for event in await wire.events(store)]
    assert found[-1]["hash"] == page["head"]["hash"]
    after = (await wire.owner.get(url, params={"after": 11})).json()
    assert [event["seq"] for event in after["items"]] == [12, 13]
    for number in (13, 14, 2**53 - 1):
        end = (await wire.owner.get(url, params={"after": number})).json()
        assert (end["items"], end["next_page"], end["head"]["seq"]) == ([], None, 13)
    for bad in ("-1", "1.5", "x", str(2**53), "9" * 4_000, ""):
        answer = await wire.owner.get(url, params={"after": bad})
        assert error_of(answer) == (400, "validation.malformed"), bad
    both = await wire.owner.get(url, params={"after": 1, "page": query["page"]})
    assert error_of(both) == (400, "validation.malformed")


async def test_r_31_an_event_names_paths_and_tree_hashes_and_no_document_hash(
    wire: Wire,
) -> None:
    ada = await wire.person()
    store = await wire.store(ada.client)
    before = (await ada.client.get(f"/v1/memory-stores/{store}")).json()["canonical_revision"]
    sha = await wire.put(store, "/a.md", "one", ada.client)
    after = (await ada.client.get(f"/v1/memory-stores/{store}")).json()["canonical_revision"]
    event = (await ada.client.get(f"/v1/memory-stores/{store}/events")).json()["items"][-1]
    assert set(event) == {
        "id", "seq", "type", "created_at", "data", "salt", "commitment", "hash",
    }  # fmt: skip
    assert event["type"] == "revision.created"
    assert event["data"] == {
        "store": store,
        "ref": "canonical",
        "revision": after,
        "parent": before,
        "kind": "changes",
        "tree_hash": tree_hash({"/a.md": b"one"}),
        "documents": 1,
        "changes": [{"path": "/a.md", "operation": "put"}],
        "actor": {"principal": ada.principal, "api_key": ada.key},
    }
    assert sha not in json.dumps(event)
    gone = await ada.client.delete(
        document_url(store), params={"path": "/a.md"}, headers={"If-Match": sha}
    )
    assert gone.status_code == 204
    event = (await ada.client.get(f"/v1/memory-stores/{store}/events")).json()["items"][-1]
    assert event["data"]["changes"] == [{"path": "/a.md", "operation": "delete"}]
    assert event["data"]["documents"] == 0


async def test_c_161_no_event_holds_content_a_document_hash_a_name_or_a_secret(
    wire: Wire,
) -> None:
    canary = "CANARY"
    ada = await wire.person(f"{canary}-key")
    await wire.owner.post(
        "/v1/principals", json={"name": f"{canary}-person", "external_id": f"{canary}-external"}
    )
    store = await wire.store(
        ada.client, name=f"{canary}-store", description=f"{canary}-description"
    )
    shas = {await wire.put(store, "/a.md", f"{canary} one", ada.client)}
    for content in (f"{canary} two", "\ufeff" + canary * 100, canary):
        answer = await ada.client.put(
            document_url(store),
            params={"path": "/a.md"},
            json={"content": content},
            headers={"If-Match": (await current(ada.client, store))},
        )
        shas.add(answer.json()["sha256"])
    await ada.client.patch(
        f"/v1/memory-stores/{store}",
        json={"expected_version": 1, "name": f"{canary}-2", "description": canary},
    )
    gone = await ada.client.delete(
        document_url(store),
        params={"path": "/a.md"},
        headers={"If-Match": await current(ada.client, store)},
    )
    assert gone.status_code == 204
    payloads = [
        event.payload or b"" for stream in (store, WORKSPACE) for event in await wire.events(stream)
    ]
    assert len(payloads) > 10
    for payload in payloads:
        assert canary.encode() not in payload
        assert ada.secret.encode() not in payload
        assert ada.secret[-43:].encode() not in payload
        for sha in shas:
            assert sha.encode() not in payload
            assert bytes.fromhex(sha) not in payload
        assert (
            payload
            == json.dumps(
                json.loads(payload), sort_keys=True, separators=(",", ":"), ensure_ascii=False
            ).encode()
        )


async def current(client: httpx.AsyncClient, store: str) -> str:
    """The hash of `/a.md` now."""
    found = await client.get(document_url(store), params={"path": "/a.md"})
    return str(found.json()["sha256"])


async def test_a_refused_request_makes_no_event(wire: Wire) -> None:
    reader = await wire.person()
    store = await wire.store()
    await wire.put(store, "/a.md", "one")
    await wire.grant(store, {"kind": "principal", "principal": reader.principal}, "read")
    at, doc, path = f"/v1/memory-stores/{store}", document_url(store), {"path": "/a.md"}
    before = await wire.state()
    for client, method, url, body in (
        (wire.owner, "PUT", doc, {"content": "two"}),
        (reader.client, "PUT", doc, {"content": "two"}),
        (wire.owner, "DELETE", doc, None),
        (wire.owner, "PATCH", at, {"expected_version": 9, "name": "x"}),
        (reader.client, "PATCH", at, {"expected_version": 1, "name": "x"}),
        (reader.client, "POST", f"{at}/archive", {"expected_version": 1}),
        (reader.client, "DELETE", at, None),
        (reader.client, "POST", "/v1/api-keys", {"name": "x"}),
        (reader.client, "POST", "/v1/principals", {"name": "x"}),
        (reader.client, "POST", "/v1/agents", {"name": "x"}),
        (wire.owner, "POST", "/v1/sessions", {"name": ""}),
    ):
        params = path if url == doc else None
        answer = await client.request(method, url, params=params, json=body)
        assert answer.status_code in (400, 403, 409), (method, url)
    for url in (f"{at}/documents", f"{at}/access", f"{at}/events", "/v1/memory-stores"):
        assert (await reader.client.get(url)).status_code == 200
    assert await wire.state() == before
