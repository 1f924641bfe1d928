"""Who may do what: every kind of caller against every use of a store (R-40 … R-45)."""

import httpx

from muniment import main
from wire import Person, Wire, document_url, error_of

HIDDEN = (404, "validation.not_found")
DENIED = (403, "policy.denied")
READ_ONLY = (403, "memory.read_only")
STALE = (409, "memory.conflict")
ABSENT = (404, "validation.not_found")
DONE = (200, "")


async def uses(client: httpx.AsyncClient, store: str, present: str) -> dict[str, tuple[int, str]]:
    """What each use of the store answers. None of them changes it, whoever asks.

    `present` is the hash of `/a.md`. Where a use is allowed it ends in 200, in 404 on a free path
    or in a version conflict.
    """
    at = f"/v1/memory-stores/{store}"
    match = {"If-Match": present}
    answers = {
        "see": await client.get(at),
        "explain": await client.get(f"{at}/access"),
        "events": await client.get(f"{at}/events"),
        "list": await client.get(f"{at}/documents"),
        "read": await client.get(document_url(store), params={"path": "/a.md"}),
        "read absent": await client.get(document_url(store), params={"path": "/none.md"}),
        "write": await client.put(
            document_url(store), params={"path": "/a.md"}, json={"content": "one"}, headers=match
        ),
        "write stale": await client.put(
            document_url(store), params={"path": "/a.md"}, json={"content": "two"}
        ),
        "remove": await client.delete(
            document_url(store), params={"path": "/none.md"}, headers=match
        ),
        "patch": await client.patch(at, json={"expected_version": 999, "name": "other"}),
        "archive": await client.post(f"{at}/archive", json={"expected_version": 999}),
        "delete": await client.delete(at, params={"expected_version": 999}),
        "grants": await client.get("/v1/permission-assignments", params={"memory_store": store}),
    }
    return {
        name: DONE if answer.status_code == 200 else error_of(answer)
        for name, answer in answers.items()
    }


def expected(see: bool, read: bool, write: bool, administer: bool) -> dict[str, tuple[int, str]]:
    """What `uses` must answer to somebody with these rights on a store that moves directly."""
    reading = DONE if read else DENIED
    writing = DONE if write else DENIED
    changing = STALE if administer else DENIED
    found = {
        "see": DONE,
        "explain": DONE,
        "events": DONE if read or administer else DENIED,
        "list": reading,
        "read": reading,
        "read absent": ABSENT if read else DENIED,
        "write": writing,
        "write stale": STALE if write else DENIED,
        "remove": ABSENT if write else DENIED,
        "patch": changing,
        "archive": changing,
        "delete": changing,
        "grants": DONE if administer else DENIED,
    }
    return found if see else dict.fromkeys(found, HIDDEN)


async def test_c_024_r_41_r_44_each_caller_may_do_what_its_assignments_say(wire: Wire) -> None:
    ada, reader, writer, both, stranger = [
        await wire.person(name) for name in ("ada", "reader", "writer", "both", "stranger")
    ]
    store = await wire.store(ada.client)
    present = await wire.put(store, "/a.md", "one", ada.client)
    for person, held in ((reader, ["read"]), (writer, ["write"]), (both, ["read", "write"])):
        await wire.grant(store, {"kind": "principal", "principal": person.principal}, *held)
    before = await wire.state()
    admin = await wire.person("admin", "admin")
    eve = await wire.other_workspace()
    callers = {
        "owner": (ada.client, expected(True, True, True, True)),
        "read": (reader.client, expected(True, True, False, False)),
        "write": (writer.client, expected(True, False, True, False)),
        "read and write": (both.client, expected(True, True, True, False)),
        "admin without assignment": (admin.client, expected(True, False, False, True)),
        "operator": (wire.operator, expected(True, False, False, True)),
        "stranger": (stranger.client, expected(False, False, False, False)),
        "another workspace": (eve.client, expected(False, False, False, False)),
    }
    for name, (client, wanted) in callers.items():
        assert await uses(client, store, present) == wanted, name
    after = await wire.state()
    assert after[store] == before[store]


async def test_r_40_a_grant_to_the_workspace_reaches_everybody_in_it_and_nobody_else(
    wire: Wire,
) -> None:
    ada, member = await wire.person(), await wire.person("member")
    store = await wire.store(
        ada.client, grants=[{"subject": {"kind": "workspace"}, "permissions": ["read"]}]
    )
    present = await wire.put(store, "/a.md", "one", ada.client)
    wanted = expected(True, True, False, False)
    assert await uses(member.client, store, present) == wanted
    eve = await wire.other_workspace()
    assert set((await uses(eve.client, store, present)).values()) == {HIDDEN}
    listed = (await member.client.get("/v1/memory-stores")).json()["items"]
    assert [one["id"] for one in listed] == [store]
    assert (await eve.client.get("/v1/memory-stores")).json()["items"] == []


async def test_r_44_an_invisible_store_answers_like_one_that_does_not_exist(wire: Wire) -> None:
    ada, stranger = await wire.person(), await wire.person("stranger")
    store = await wire.store(ada.client)
    await wire.put(store, "/a.md", "one", ada.client)
    grants = await ada.client.get("/v1/permission-assignments", params={"memory_store": store})
    absent, held = main.new_id("store"), grants.json()["items"][0]["id"]
    eve = await wire.other_workspace()
    for client in (stranger.client, eve.client):
        for path in ("", "/access", "/events", "/documents", "/document?path=/a.md"):
            there = await client.get(f"/v1/memory-stores/{store}{path}")
            gone = await client.get(f"/v1/memory-stores/{absent}{path}")
            assert (there.status_code, there.json()) == (404, gone.json()), path
        grant = {"subject": {"kind": "workspace"}, "permissions": ["read"]}
        there, gone = [
            await client.post("/v1/permission-assignments", json={**grant, "memory_store": one})
            for one in (store, absent)
        ]
        assert (there.status_code, there.json()) == (404, gone.json())
        there, gone = [
            await client.delete(f"/v1/permission-assignments/{one}")
            for one in (held, main.new_id("assignment"))
        ]
        assert (there.status_code, there.json()) == (404, gone.json())


async def test_r_44_a_member_cannot_tell_which_principals_and_sessions_exist(plain: Wire) -> None:
    ada, bob = await plain.person(), await plain.person("bob")
    session = (await bob.client.post("/v1/sessions", json={"name": "s"})).json()["id"]
    for kind, known, unknown in (
        ("principal", bob.principal, main.new_id("principal")),
        ("session", session, main.new_id("session")),
    ):
        there, gone = [
            await ada.client.post(
                "/v1/memory-stores", json={"name": "x", "owner": {"kind": kind, kind: one}}
            )
            for one in (known, unknown)
        ]
        assert there.status_code in (403, 404)
        assert (there.status_code, there.json()) == (gone.status_code, gone.json()), kind


async def test_the_order_of_checks_puts_404_before_403_before_409(plain: Wire) -> None:
    ada, reader, stranger = [await plain.person(name) for name in ("ada", "reader", "stranger")]
    store = await plain.store(ada.client)
    await plain.put(store, "/a.md", "one", ada.client)
    await plain.grant(store, {"kind": "principal", "principal": reader.principal}, "read")
    at = f"/v1/memory-stores/{store}"
    for body in (
        {"expected_version": 999, "name": "x"},
        {"expected_version": 999, "promotion_policy": "proposal"},
    ):
        assert error_of(await stranger.client.patch(at, json=body)) == HIDDEN
        assert error_of(await reader.client.patch(at, json=body)) == DENIED
    put = {"params": {"path": "/a.md"}, "json": {"content": "x"}, "headers": {"If-Match": "0" * 64}}
    assert error_of(await stranger.client.put(document_url(store), **put)) == HIDDEN
    assert error_of(await reader.client.put(document_url(store), **put)) == DENIED
    assert error_of(await ada.client.put(document_url(store), **put)) == STALE


async def test_an_invalid_key_is_401_whatever_is_wrong_with_it(plain: Wire) -> None:
    invalid = (401, "auth.invalid_key")
    ada = await plain.person()
    foreign = "mun_" + "0" * 31 + "2" + ada.secret[36:]
    altered = ada.secret[:-1] + ("A" if ada.secret[-1] != "A" else "B")
    authorizations = {
        "none": None,
        "empty": "",
        "no scheme": ada.secret,
        "scheme only": "Bearer",
        "scheme and space": "Bearer ",
        "basic": f"Basic {ada.secret}",
        "two spaces": f"Bearer  {ada.secret}",
        "two words": f"Bearer {ada.secret} {ada.secret}",
        "comma": f"Bearer {ada.secret}, Bearer {ada.secret}",
        "upper case": f"Bearer {ada.secret.upper()}",
        "altered": f"Bearer {altered}",
        "cut": f"Bearer {ada.secret[:-1]}",
        "longer": f"Bearer {ada.secret}A",
        "another workspace's prefix": f"Bearer {foreign}",
        "very long": "Bearer mun_" + "a" * 20_000,
        "id for secret": f"Bearer {ada.key}",
        "not ASCII": "Bearer müñ".encode("latin-1"),
    }
    before = await plain.state()
    for name, value in authorizations.items():
        headers = [] if value is None else [("Authorization", value)]
        answer = await plain.client(None).post(
            "/v1/memory-stores", json={"name": "x"}, headers=headers
        )
        assert error_of(answer) == invalid, name
        assert answer.headers["www-authenticate"] == "Bearer"
        assert ada.secret not in answer.text
    assert await plain.state() == before
    lower = await plain.client(None).get(
        "/v1/whoami", headers={"authorization": f"bearer {ada.secret}"}
    )
    assert lower.status_code == 200


async def test_a_revoked_or_expired_key_is_refused_at_once(wire: Wire) -> None:
    ada = await wire.person()
    second = await wire.owner.post(
        "/v1/api-keys", json={"name": "second", "principal": ada.principal}
    )
    again = wire.client(second.json()["secret"])
    assert (await ada.client.get("/v1/whoami")).status_code == 200
    assert (await wire.owner.delete(f"/v1/api-keys/{ada.key}")).status_code == 204
    refused = await ada.client.get("/v1/whoami")
    assert error_of(refused) == (401, "auth.invalid_key")
    assert "revoked" in refused.json()["error"]["message"]
    assert (await again.get("/v1/whoami")).json()["principal"]["id"] == ada.principal
    assert (await wire.owner.delete(f"/v1/api-keys/{ada.key}")).status_code == 204
    late = await expired_key(wire)
    answer = await late.client.get("/v1/whoami")
    assert error_of(answer) == (401, "auth.invalid_key")
    assert "expired" in answer.json()["error"]["message"]


async def expired_key(wire: Wire) -> Person:
    """A key whose time is over, made with a clock that ran behind."""
    made = await wire.owner.post(
        "/v1/api-keys", json={"name": "late", "expires_at": "2999-01-01T00:00:00Z"}
    )
    key = made.json()
    assert key["expires_at"] == "2999-01-01T00:00:00.000000Z"
    assert made.status_code == 201
    object.__setattr__(wire.app, "now", lambda: 4_000_000_000 * 10**7)
    return Person(key["principal"], key["id"], key["secret"], wire.client(key["secret"]))


async def test_a_disabled_workspace_is_403_and_another_one_goes_on(wire: Wire) -> None:
    disabled = await wire.other_workspace(status="disabled")
    for method, path in (("GET", "/v1/whoami"), ("POST", "/v1/memory-stores")):
        answer = await disabled.client.request(method, path, json={"name": "x"})
        assert error_of(answer) == (403, "auth.disabled_tenancy")
    assert (await wire.owner.get("/v1/whoami")).status_code == 200


async def test_r_43_acting_as_another_needs_a_delegation_and_gives_no_role(wire: Wire) -> None:
    ada, bob = await wire.person(), await wire.person("bob", "admin")
    store = await wire.store(ada.client)
    present = await wire.put(store, "/a.md", "one", ada.client)
    acting = wire.client(bob.secret, **{"Muniment-Acted-As": ada.principal})
    assert set((await uses(acting, store, present)).values()) == {DENIED}
    nobody = wire.client(bob.secret, **{"Muniment-Acted-As": main.new_id("principal")})
    assert error_of(await nobody.get("/v1/whoami")) == DENIED
    made = await ada.client.post(
        "/v1/delegations",
        json={"principal": ada.principal, "delegate": {"kind": "api_key", "api_key": bob.key}},
    )
    assert made.status_code == 201, made.text
    assert await uses(acting, store, present) == expected(True, True, True, True)
    me = (await acting.get("/v1/whoami")).json()
    assert me["principal"]["id"] == ada.principal
    assert me["api_key"]["id"] == bob.key
    assert me["api_key"]["role"] == "member"
    for method, path, body in (
        ("POST", "/v1/api-keys", {"name": "x"}),
        ("GET", "/v1/api-keys", None),
        ("POST", "/v1/principals", {"name": "x"}),
        ("GET", "/v1/memory-stores?include_deleted=true", None),
    ):
        assert error_of(await acting.request(method, path, json=body)) == DENIED, path
    own = await acting.post("/v1/memory-stores", json={"name": "made for ada"})
    assert own.json()["owner"] == {"kind": "principal", "principal": ada.principal}
    assert (await wire.owner.delete(f"/v1/delegations/{made.json()['id']}")).status_code == 204
    assert error_of(await acting.get("/v1/whoami")) == DENIED


async def test_r_43_a_delegation_is_not_handed_on_and_a_key_acts_as_its_own_principal(
    plain: Wire,
) -> None:
    ada, bob, cid = [await plain.person(name) for name in ("ada", "bob", "cid")]
    for principal, delegate in ((ada, bob), (bob, cid)):
        made = await principal.client.post(
            "/v1/delegations",
            json={
                "principal": principal.principal,
                "delegate": {"kind": "principal", "principal": delegate.principal},
            },
        )
        assert made.status_code == 201
    chained = plain.client(cid.secret, **{"Muniment-Acted-As": ada.principal})
    assert error_of(await chained.get("/v1/whoami")) == DENIED
    itself = plain.client(cid.secret, **{"Muniment-Acted-As": cid.principal})
    assert (await itself.get("/v1/whoami")).json()["principal"]["id"] == cid.principal
    admin = await plain.person("admin", "admin")
    as_self = plain.client(admin.secret, **{"Muniment-Acted-As": admin.principal})
    assert (await as_self.get("/v1/api-keys")).status_code == 200


async def test_r_43_nobody_delegates_for_somebody_else(plain: Wire) -> None:
    ada, bob = await plain.person(), await plain.person("bob")
    body = {"principal": ada.principal, "delegate": {"kind": "api_key", "api_key": bob.key}}
    before = await plain.state()
    assert error_of(await bob.client.post("/v1/delegations", json=body)) == DENIED
    assert await plain.state() == before
    made = (await plain.owner.post("/v1/delegations", json=body)).json()
    assert made["delegate"] == {"kind": "principal", "principal": bob.principal}
    again = await plain.owner.post("/v1/delegations", json=body)
    assert error_of(again) == STALE
    assert error_of(await bob.client.delete(f"/v1/delegations/{made['id']}")) == HIDDEN
    assert (await ada.client.delete(f"/v1/delegations/{made['id']}")).status_code == 204


async def test_c_023_an_owner_without_assignment_is_refused(wire: Wire) -> None:
    ada = await wire.person()
    store = await wire.store(ada.client)
    present = await wire.put(store, "/a.md", "one", ada.client)
    params = {"memory_store": store}
    held = (await ada.client.get("/v1/permission-assignments", params=params)).json()["items"]
    assert [(one["origin"], one["permissions"]) for one in held] == [("minted", ["read", "write"])]
    gone = await wire.owner.delete(f"/v1/permission-assignments/{held[0]['id']}")
    assert gone.status_code == 204
    assert set((await uses(ada.client, store, present)).values()) == {HIDDEN}
    assert (await ada.client.get("/v1/memory-stores")).json()["items"] == []
    await wire.grant(store, {"kind": "principal", "principal": ada.principal}, "read")
    assert await uses(ada.client, store, present) == expected(True, True, False, True)


async def test_an_assignment_that_ends_ends_access_at_once(wire: Wire) -> None:
    reader = await wire.person()
    store = await wire.store()
    present = await wire.put(store, "/a.md", "one")
    first = await wire.grant(store, {"kind": "api_key", "api_key": reader.key}, "read")
    second = await wire.grant(store, {"kind": "principal", "principal": reader.principal}, "write")
    assert await uses(reader.client, store, present) == expected(True, True, True, False)
    assert error_of(await reader.client.delete(f"/v1/permission-assignments/{first}")) == DENIED
    assert (await wire.owner.delete(f"/v1/permission-assignments/{first}")).status_code == 204
    assert await uses(reader.client, store, present) == expected(True, False, True, False)
    assert (await wire.owner.delete(f"/v1/permission-assignments/{second}")).status_code == 204
    assert set((await uses(reader.client, store, present)).values()) == {HIDDEN}
    twice = await wire.owner.delete(f"/v1/permission-assignments/{first}")
    assert error_of(twice) == ABSENT


async def test_r_40_the_owning_principal_grants_and_others_do_not(wire: Wire) -> None:
    ada, both, bob = [await wire.person(name) for name in ("ada", "both", "bob")]
    store = await wire.store(ada.client)
    await wire.grant(store, {"kind": "principal", "principal": both.principal}, "read", "write")
    body = {
        "memory_store": store,
        "subject": {"kind": "principal", "principal": bob.principal},
        "permissions": ["read"],
    }
    before = await wire.state()
    assert error_of(await both.client.post("/v1/permission-assignments", json=body)) == DENIED
    assert error_of(await bob.client.post("/v1/permission-assignments", json=body)) == HIDDEN
    assert await wire.state() == before
    made = await ada.client.post("/v1/permission-assignments", json=body)
    assert made.status_code == 201
    assert made.json() == {
        "id": made.json()["id"],
        "subject": {"kind": "principal", "principal": bob.principal},
        "resource": {"kind": "memory_store", "memory_store": store},
        "permissions": ["read"],
        "origin": "granted",
        "created_at": made.json()["created_at"],
    }
    mine = await bob.client.get(
        "/v1/permission-assignments", params={"subject": f"principal:{bob.principal}"}
    )
    assert [one["id"] for one in mine.json()["items"]] == [made.json()["id"]]
    theirs = await bob.client.get(
        "/v1/permission-assignments", params={"subject": f"principal:{ada.principal}"}
    )
    assert error_of(theirs) == DENIED


async def test_r_44_access_explains_the_decision(wire: Wire) -> None:
    ada, reader = await wire.person(), await wire.person("reader")
    store = await wire.store(ada.client)
    at = f"/v1/memory-stores/{store}/access"
    held = await wire.grant(store, {"kind": "principal", "principal": reader.principal}, "read")
    about = {"subject": f"api_key:{reader.key}"}
    for client, params in ((reader.client, {}), (ada.client, about), (wire.operator, about)):
        found = (await client.get(at, params=params)).json()
        assert (found["read"], found["write"]) == (True, False)
        assert found["mount"] == {"read_only": "read_only", "read_write": "read_only"}
        assert found["assignments"] == [held]
        assert any("no write assignment" in reason for reason in found["reasons"])
    mine = (await ada.client.get(at)).json()
    assert (mine["read"], mine["write"], mine["reasons"]) == (True, True, [])
    assert mine["mount"] == {"read_only": "read_only", "read_write": "read_write"}
    other = await reader.client.get(at, params={"subject": f"principal:{ada.principal}"})
    assert error_of(other) == DENIED
    none = (await wire.operator.get(at)).json()
    assert (none["read"], none["write"], none["mount"]["read_only"]) == (False, False, "denied")
    assert none["reasons"]
    for subject in ("nobody", "principal:", "api_key:zzz", "cat:1", f"principal:{ada.key}"):
        answer = await ada.client.get(at, params={"subject": subject})
        assert error_of(answer) == (400, "validation.malformed"), subject
    unknown = {"subject": f"principal:{main.new_id('principal')}"}
    assert error_of(await ada.client.get(at, params=unknown)) == ABSENT


async def test_r_44_access_explains_what_the_guard_decides_however_many_assignments(
    plain: Wire,
) -> None:
    reader = await plain.person()
    store = await plain.store()
    subject = {"kind": "principal", "principal": reader.principal}
    for _ in range(60):
        await plain.grant(store, subject, "read")
    await plain.grant(store, subject, "write")
    await plain.put(store, "/a.md", "one", reader.client)
    found = (await reader.client.get(f"/v1/memory-stores/{store}/access")).json()
    assert (found["read"], found["write"]) == (True, True)


async def test_c_024_a_store_appears_once_in_a_list_however_it_is_granted(wire: Wire) -> None:
    reader = await wire.person()
    store = await wire.store()
    hidden = await wire.store(name="hidden")
    for subject in (
        {"kind": "workspace"},
        {"kind": "principal", "principal": reader.principal},
        {"kind": "api_key", "api_key": reader.key},
    ):
        await wire.grant(store, subject, "read")
    listed = (await reader.client.get("/v1/memory-stores")).json()["items"]
    assert [one["id"] for one in listed] == [store]
    admins = (await wire.operator.get("/v1/memory-stores")).json()["items"]
    assert {one["id"] for one in admins} == {store, hidden}


async def test_r_41_the_principal_concerned_sees_who_made_its_keys_and_grants(plain: Wire) -> None:
    ada, bob = await plain.person(), await plain.person("bob")
    await plain.owner.post("/v1/api-keys", json={"name": "spy", "principal": ada.principal})
    await plain.grant(
        await plain.store(), {"kind": "principal", "principal": ada.principal}, "read"
    )
    await plain.owner.post(
        "/v1/delegations",
        json={"principal": ada.principal, "delegate": {"kind": "api_key", "api_key": bob.key}},
    )
    answer = await ada.client.get("/v1/events")
    assert answer.status_code == 200, answer.text
    seen = [event["type"] for event in answer.json()["items"]]
    assert seen.count("key.created") == 2
    assert {"assignment.created", "delegation.created"} <= set(seen)
    assert bob.key not in {event["data"].get("api_key") for event in answer.json()["items"]}
