"""Stores over HTTP: owners, policies, versions, archive, default (C-021, C-022, C-040 … C-043)."""

from typing import Any

from muniment import main
from wire import Wire, check_chain, document_url, error_of

DENIED = (403, "policy.denied")
READ_ONLY = (403, "memory.read_only")
STALE = (409, "memory.conflict")
ABSENT = (404, "validation.not_found")
MALFORMED = (400, "validation.malformed")


async def owners(wire: Wire) -> dict[str, str]:
    """One of each kind that can own a store, made by the local owner: kind to id."""
    made = {"principal": (await wire.owner.get("/v1/whoami")).json()["principal"]["id"]}
    for kind, path, body in (
        ("agent_definition", "/v1/agents", {"name": "a"}),
        ("session", "/v1/sessions", {"name": "s"}),
        ("surface_scope", "/v1/surface-scopes", {"name": "p", "kind": "public"}),
    ):
        made[kind] = (await wire.owner.post(path, json=body)).json()["id"]
    return made


async def assignments(wire: Wire, store: str) -> list[dict[str, Any]]:
    answer = await wire.owner.get("/v1/permission-assignments", params={"memory_store": store})
    return list(answer.json()["items"])


async def test_c_021_two_stores_share_no_owner_no_history_no_visibility_and_no_document(
    wire: Wire,
) -> None:
    ada, bob, reader = [await wire.person(name) for name in ("ada", "bob", "reader")]
    one, two = await wire.store(ada.client), await wire.store(bob.client)
    for store, person in ((one, ada), (two, bob)):
        await wire.put(store, "/a.md", "same", person.client)
    await wire.grant(one, {"kind": "principal", "principal": reader.principal}, "read")

    async def seen(store: str) -> tuple[Any, ...]:
        shown = (await wire.operator.get(f"/v1/memory-stores/{store}")).json()
        return shown, await wire.events(store)

    before = await seen(two)
    assert before[0]["owner"] == {"kind": "principal", "principal": bob.principal}

    # History: what happens to one is no event and no revision of the other.
    await wire.put(one, "/b.md", "more", ada.client)
    ids = [{event.id for event in await wire.events(store)} for store in (one, two)]
    assert not ids[0] & ids[1]
    for store in (one, two):
        check_chain(store, await wire.events(store))

    # Visibility: a grant on one says nothing of the other.
    for store, status in ((one, 200), (two, 404)):
        for path in ("", "/documents", "/document?path=/a.md", "/events", "/access"):
            answer = await reader.client.get(f"/v1/memory-stores/{store}{path}")
            assert answer.status_code == status, path
    listed = (await reader.client.get("/v1/memory-stores")).json()["items"]
    assert [store["id"] for store in listed] == [one]

    # Ownership: the owner of one is nobody to the other; documents end with their own store.
    assert error_of(await ada.client.delete(f"/v1/memory-stores/{two}")) == ABSENT
    assert (await ada.client.delete(f"/v1/memory-stores/{one}")).status_code == 204
    assert await seen(two) == before
    kept = await bob.client.get(document_url(two), params={"path": "/a.md"})
    assert (kept.status_code, kept.json()["content"]) == (200, "same")


async def test_c_022_the_owner_decides_what_is_minted_how_a_store_starts_and_who_ends_it(
    wire: Wire,
) -> None:
    member = await wire.person()
    subject = {"kind": "principal", "principal": member.principal}
    kinds = await owners(wire) | {"principal": member.principal, "workspace": ""}
    for kind, identifier in kinds.items():
        owner = {"kind": kind, kind: identifier} if identifier else {"kind": kind}
        store = await wire.store(owner=owner)
        at = f"/v1/memory-stores/{store}"
        minted = [(one["subject"], one["permissions"]) for one in await assignments(wire, store)]
        assert minted == ([(owner, ["read", "write"])] if identifier else []), kind
        policy = (await wire.owner.get(at)).json()["promotion_policy"]
        assert policy == ("direct" if kind in ("principal", "session") else "proposal"), kind
        await wire.grant(store, subject, "read", "write")
        archived = await member.client.post(f"{at}/archive", json={"expected_version": 1})
        if kind == "principal":
            assert archived.json()["status"] == "archived"
            assert (await member.client.delete(at)).status_code == 204
        else:
            assert error_of(archived) == DENIED, kind
            assert error_of(await member.client.delete(at)) == DENIED, kind
            assert (await wire.operator.delete(at)).status_code == 204, kind


async def test_c_040_c_041_each_owner_kind_mints_one_assignment_of_read_and_write(
    wire: Wire,
) -> None:
    for kind, identifier in (await owners(wire)).items():
        owner = {"kind": kind, kind: identifier}
        store = await wire.store(owner=owner)
        found = (await wire.owner.get(f"/v1/memory-stores/{store}")).json()
        assert found["owner"] == owner
        assert found["promotion_policy"] == (
            "direct" if kind in ("principal", "session") else "proposal"
        )
        held = await assignments(wire, store)
        assert len(held) == 1
        assert held[0]["subject"] == owner
        assert (held[0]["permissions"], held[0]["origin"]) == (["read", "write"], "minted")
    for kind in ("team", "api_key", "agent", "Workspace", ""):
        answer = await wire.owner.post(
            "/v1/memory-stores", json={"name": "x", "owner": {"kind": kind}}
        )
        assert error_of(answer) == MALFORMED


async def test_c_042_c_043_a_workspace_store_mints_nothing_and_opens_to_nobody(
    wire: Wire,
) -> None:
    member = await wire.person()
    store = await wire.store(owner={"kind": "workspace"})
    assert await assignments(wire, store) == []
    found = (await wire.owner.get(f"/v1/memory-stores/{store}")).json()
    assert found["owner"] == {"kind": "workspace"}
    assert found["promotion_policy"] == "proposal"
    for client, refusal in ((member.client, ABSENT), (wire.owner, DENIED), (wire.operator, DENIED)):
        answer = await client.get(f"/v1/memory-stores/{store}/documents")
        assert error_of(answer) == refusal
        answer = await client.get(document_url(store), params={"path": "/a.md"})
        assert error_of(answer) == refusal
    await wire.grant(store, {"kind": "principal", "principal": member.principal}, "read")
    opened = await member.client.get(f"/v1/memory-stores/{store}/documents")
    assert opened.status_code == 200


async def test_a_new_store_says_all_of_itself_and_holds_the_empty_tree(wire: Wire) -> None:
    made = await wire.owner.post(
        "/v1/memory-stores", json={"name": "notes", "description": "what I know"}
    )
    store = made.json()
    me = (await wire.owner.get("/v1/whoami")).json()["principal"]["id"]
    given = {key: store.pop(key) for key in ("id", "created_at", "updated_at")}
    revision = store.pop("canonical_revision")
    assert store == {
        "name": "notes",
        "description": "what I know",
        "owner": {"kind": "principal", "principal": me},
        "status": "active",
        "version": 1,
        "generation": 1,
        "promotion_policy": "direct",
        "require_distinct_reviewer": False,
        "default": False,
        "document_count": 0,
        "total_bytes": 0,
        "archived_at": None,
        "deleted_at": None,
    }
    assert given["id"].startswith("memstore_") and len(given["id"]) == 41
    assert revision.startswith("memrev_")
    assert given["created_at"] == given["updated_at"]
    assert len(given["created_at"]) == len("2026-11-30T12:00:00.000000Z")
    items, digest = await wire.documents(given["id"])
    assert items == []
    assert digest == "e53bd4ecd7ae0201c7312ef3a9f78bae2bad2babd9ac86fa98d9578f367e9928"
    await wire.put(given["id"], "/a.md", "hello\n")
    after = (await wire.owner.get(f"/v1/memory-stores/{given['id']}")).json()
    assert (after["document_count"], after["total_bytes"], after["version"]) == (1, 6, 1)
    assert after["canonical_revision"] != revision


async def test_r_06_names_need_not_be_unique_and_are_found_exactly(wire: Wire) -> None:
    stores = [await wire.store(name=name) for name in ("a", "a", "A", "a ", "ä")]
    for name, wanted in (("a", stores[:2]), ("A", stores[2:3]), ("ä", stores[4:]), ("b", [])):
        found = await wire.owner.get("/v1/memory-stores", params={"name": name})
        assert [one["id"] for one in found.json()["items"]] == sorted(wanted)


async def test_grants_at_creation_are_all_made_or_nothing_is(wire: Wire) -> None:
    ada, bob = await wire.person(), await wire.person("bob")
    grants = [
        {"subject": {"kind": "api_key", "api_key": bob.key}, "permissions": ["read", "write"]},
        {"subject": {"kind": "workspace"}, "permissions": ["read"]},
    ]
    store = await wire.store(ada.client, grants=grants)
    held = await assignments(wire, store)
    found = [(one["subject"]["kind"], one["permissions"], one["origin"]) for one in held]
    assert sorted(found) == [
        ("principal", ["read", "write"], "granted"),
        ("principal", ["read", "write"], "minted"),
        ("workspace", ["read"], "granted"),
    ]
    await wire.put(store, "/a.md", "x", bob.client)
    before = await wire.state()
    nobody = {"kind": "principal", "principal": main.new_id("principal")}
    for more, refusal in (
        ({"subject": nobody, "permissions": ["read"]}, ABSENT),
        ({"subject": {"kind": "workspace"}, "permissions": []}, MALFORMED),
    ):
        answer = await ada.client.post(
            "/v1/memory-stores", json={"name": "x", "grants": [*grants, more]}
        )
        assert error_of(answer) == refusal
    session = (await ada.client.post("/v1/sessions", json={"name": "s"})).json()["id"]
    owned = {"kind": "session", "session": session}
    before = await wire.state()
    refused = await ada.client.post(
        "/v1/memory-stores", json={"name": "x", "owner": owned, "grants": grants}
    )
    assert error_of(refused) == DENIED
    assert await wire.state() == before
    assert (await wire.store(ada.client, owner=owned)).startswith("memstore_")
    assert (await wire.store(owner=owned, grants=grants)).startswith("memstore_")


async def test_r_43_who_may_make_a_store_for_whom(wire: Wire) -> None:
    ada, bob = await wire.person(), await wire.person("bob")
    for_ada = {"name": "x", "owner": {"kind": "principal", "principal": ada.principal}}
    before = await wire.state()
    assert error_of(await bob.client.post("/v1/memory-stores", json=for_ada))[0] in (403, 404)
    for kind, identifier in (await owners(wire)).items():
        if kind != "principal":
            body = {"name": "x", "owner": {"kind": kind, kind: identifier}}
            answer = await bob.client.post("/v1/memory-stores", json=body)
            assert error_of(answer)[0] in (403, 404), kind
    shared = {"name": "x", "owner": {"kind": "workspace"}}
    assert error_of(await bob.client.post("/v1/memory-stores", json=shared)) == DENIED
    assert set(await wire.state()) == set(before)
    assert (await wire.owner.post("/v1/memory-stores", json=for_ada)).status_code == 201
    await wire.owner.post(
        "/v1/delegations",
        json={
            "principal": ada.principal,
            "delegate": {"kind": "principal", "principal": bob.principal},
        },
    )
    made = await bob.client.post("/v1/memory-stores", json=for_ada)
    assert made.status_code == 201
    at = f"/v1/memory-stores/{made.json()['id']}"
    assert error_of(await bob.client.get(at)) == ABSENT
    assert (await ada.client.get(at)).status_code == 200


async def test_c_087_r_13_nobody_writes_directly_to_a_store_under_proposals(wire: Wire) -> None:
    member, admin = await wire.person(), await wire.person("admin", "admin")
    for kind, identifier in {"workspace": "", **(await owners(wire))}.items():
        owner = {"kind": kind, kind: identifier} if identifier else {"kind": kind}
        policy = {"promotion_policy": "proposal"} if kind in ("principal", "session") else {}
        store = await wire.store(owner=owner, **policy)
        for person in (member, admin):
            subject = {"kind": "principal", "principal": person.principal}
            await wire.grant(store, subject, "read", "write")
        before = await wire.state()
        for client in (member.client, admin.client, wire.owner, wire.operator):
            put = await client.put(
                document_url(store), params={"path": "/a.md"}, json={"content": "x"}
            )
            assert error_of(put) == READ_ONLY, kind
            gone = await client.delete(
                document_url(store), params={"path": "/a.md"}, headers={"If-Match": "0" * 64}
            )
            assert error_of(gone) == READ_ONLY, kind
        assert await wire.state() == before
        listed = await member.client.get(f"/v1/memory-stores/{store}/documents")
        assert listed.status_code == 200


async def test_r_13_only_administrators_choose_or_change_the_promotion_policy(wire: Wire) -> None:
    ada = await wire.person()
    store = await wire.store(ada.client)
    at = f"/v1/memory-stores/{store}"
    body = {"expected_version": 1, "promotion_policy": "proposal"}
    assert error_of(await ada.client.patch(at, json=body)) == DENIED
    changed = await wire.owner.patch(at, json=body)
    assert (changed.json()["promotion_policy"], changed.json()["version"]) == ("proposal", 2)
    put = await ada.client.put(document_url(store), params={"path": "/a"}, json={"content": "x"})
    assert error_of(put) == READ_ONLY
    back = {"expected_version": 2, "promotion_policy": "direct"}
    assert error_of(await ada.client.patch(at, json=back)) == DENIED
    assert (await wire.operator.patch(at, json=back)).status_code == 200
    await wire.put(store, "/a", "x", ada.client)
    member = await wire.person("member")
    direct = await wire.store(
        owner={"kind": "workspace"},
        promotion_policy="direct",
        grants=[{"subject": {"kind": "workspace"}, "permissions": ["read", "write"]}],
    )
    await wire.put(direct, "/a", "x", member.client)
    for body in (
        {"expected_version": 1, "promotion_policy": "proposal"},
        {"expected_version": 1, "name": "mine"},
    ):
        answer = await member.client.patch(f"/v1/memory-stores/{direct}", json=body)
        assert error_of(answer) == DENIED


async def test_c_206_c_209_c_210_patch_and_archive_compare_the_version(wire: Wire) -> None:
    store = await wire.store()
    at = f"/v1/memory-stores/{store}"
    first = await wire.owner.patch(at, json={"expected_version": 1, "name": "second"})
    assert (first.json()["name"], first.json()["version"]) == ("second", 2)
    assert first.json()["updated_at"] > first.json()["created_at"]
    before = await wire.state()
    for method, path, body in (
        ("PATCH", at, {"expected_version": 1, "name": "third"}),
        ("PATCH", at, {"expected_version": 3, "name": "third"}),
        ("POST", f"{at}/archive", {"expected_version": 1}),
    ):
        answer = await wire.owner.request(method, path, json=body)
        assert error_of(answer) == STALE
        assert answer.json()["error"]["detail"] == {"current_version": 2}
    gone = await wire.owner.delete(at, params={"expected_version": 1})
    assert error_of(gone) == STALE
    for method, path in (("PATCH", at), ("POST", f"{at}/archive")):
        answer = await wire.owner.request(method, path, json={})
        assert error_of(answer) == MALFORMED
    assert await wire.state() == before
    kept = await wire.owner.patch(at, json={"expected_version": 2, "description": "d"})
    assert (kept.json()["name"], kept.json()["description"]) == ("second", "d")
    cleared = await wire.owner.patch(at, json={"expected_version": 3, "description": None})
    assert cleared.json()["description"] is None
    assert (await wire.owner.delete(at, params={"expected_version": 4})).status_code == 204


async def test_c_206_a_write_of_content_moves_no_version(wire: Wire) -> None:
    store = await wire.store()
    await wire.put(store, "/a.md", "x")
    await wire.grant(store, {"kind": "workspace"}, "read")
    patched = await wire.owner.patch(
        f"/v1/memory-stores/{store}", json={"expected_version": 1, "name": "still one"}
    )
    assert patched.json()["version"] == 2


async def test_c_152_an_archived_store_is_read_and_not_written(wire: Wire) -> None:
    reader = await wire.person()
    store = await wire.store()
    at = f"/v1/memory-stores/{store}"
    present = await wire.put(store, "/a.md", "x")
    await wire.grant(store, {"kind": "principal", "principal": reader.principal}, "read")
    archived = await wire.owner.post(f"{at}/archive", json={"expected_version": 1})
    assert (archived.json()["status"], archived.json()["version"]) == ("archived", 2)
    assert archived.json()["archived_at"] == archived.json()["updated_at"]
    before = await wire.state()
    for client in (wire.owner, reader.client):
        found = await client.get(document_url(store), params={"path": "/a.md"})
        assert found.json()["content"] == "x"
        assert (await client.get(f"{at}/documents")).status_code == 200
        for path, headers in (("/a.md", {"If-Match": present}), ("/b.md", {})):
            put = await client.put(
                document_url(store), params={"path": path}, json={"content": "y"}, headers=headers
            )
            assert error_of(put) == READ_ONLY
        gone = await client.delete(
            document_url(store), params={"path": "/a.md"}, headers={"If-Match": present}
        )
        assert error_of(gone) == READ_ONLY
    patched = await wire.owner.patch(at, json={"expected_version": 2, "name": "x"})
    assert error_of(patched) == READ_ONLY
    again = await wire.owner.post(f"{at}/archive", json={"expected_version": 2})
    assert again.json() == archived.json()
    assert error_of(await wire.owner.post(f"{at}/archive", json={"expected_version": 1})) == STALE
    assert await wire.state() == before
    listed = (await wire.owner.get("/v1/memory-stores")).json()["items"]
    assert store not in [one["id"] for one in listed]
    listed = (await wire.owner.get("/v1/memory-stores?include_archived=true")).json()["items"]
    assert store in [one["id"] for one in listed]
    access = (await wire.owner.get(f"{at}/access")).json()
    assert access["mount"] == {"read_only": "read_only", "read_write": "read_only"}
    assert (await wire.owner.delete(at)).status_code == 204


async def test_one_store_of_a_principal_is_its_default(wire: Wire) -> None:
    ada = await wire.person()

    async def defaults() -> list[str]:
        items = (await ada.client.get("/v1/memory-stores")).json()["items"]
        for one in items:
            got = (await ada.client.get(f"/v1/memory-stores/{one['id']}")).json()
            assert got["default"] == one["default"]
        return [one["id"] for one in items if one["default"]]

    first = await wire.store(ada.client, default=True)
    assert await defaults() == [first]
    second = await wire.store(ada.client, default=True)
    assert await defaults() == [second]
    at = f"/v1/memory-stores/{first}"
    patched = await ada.client.patch(at, json={"expected_version": 1, "default": True})
    assert patched.json()["default"] is True
    assert await defaults() == [first]
    other = await wire.store(default=True)
    assert await defaults() == [first]
    assert (await wire.owner.get(f"/v1/memory-stores/{other}")).json()["default"] is True
    other_at = f"/v1/memory-stores/{second}"
    await ada.client.patch(other_at, json={"expected_version": 1, "default": False})
    assert await defaults() == [first]
    await ada.client.patch(at, json={"expected_version": 2, "default": False})
    assert await defaults() == []
    await ada.client.patch(at, json={"expected_version": 3, "default": True})
    assert (await ada.client.delete(at)).status_code == 204
    assert await defaults() == []
    shared = await wire.store(owner={"kind": "workspace"})
    answer = await wire.owner.patch(
        f"/v1/memory-stores/{shared}", json={"expected_version": 1, "default": True}
    )
    assert error_of(answer) == MALFORMED


async def test_c_071_lists_of_stores_have_no_repeats_and_no_gaps(wire: Wire) -> None:
    made = [await wire.store(name=f"s{n}") for n in range(23)]
    await wire.owner.delete(f"/v1/memory-stores/{made.pop(5)}")
    found: list[str] = []
    query: dict[str, Any] = {"limit": 4}
    while True:
        page = (await wire.owner.get("/v1/memory-stores", params=query)).json()
        found += [one["id"] for one in page["items"]]
        assert len(page["items"]) <= 4
        if page["next_page"] is None:
            break
        query["page"] = page["next_page"]
    assert found == sorted(made)
