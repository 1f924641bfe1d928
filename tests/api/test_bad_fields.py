"""Bad fields, foreign ids and big bodies on every route that takes a body."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from muniment import main
from wire import Person, Wire, document_url, error_of

MALFORMED = (400, "validation.malformed")
ABSENT = (404, "validation.not_found")
BODY_BYTES_MAX = 4 * 1024 * 1024

TEXTS = (
    ("POST", "/v1/memory-stores", {"name": "x"}, "name"),
    ("POST", "/v1/memory-stores", {"name": "x", "description": "x"}, "description"),
    ("POST", "/v1/memory-stores", {"name": "x", "promotion_policy": "x"}, "promotion_policy"),
    ("PATCH", "/v1/memory-stores/{store}", {"expected_version": 1, "name": "x"}, "name"),
    (
        "PATCH",
        "/v1/memory-stores/{store}",
        {"expected_version": 1, "description": "x"},
        "description",
    ),
    (
        "PATCH",
        "/v1/memory-stores/{store}",
        {"expected_version": 1, "promotion_policy": "x"},
        "promotion_policy",
    ),
    ("PUT", "/v1/memory-stores/{store}/document?path=/n.md", {"content": "x"}, "content"),
    ("POST", "/v1/api-keys", {"name": "x"}, "name"),
    ("POST", "/v1/api-keys", {"name": "x", "role": "x"}, "role"),
    ("POST", "/v1/api-keys", {"name": "x", "principal": "x"}, "principal"),
    ("POST", "/v1/api-keys", {"name": "x", "expires_at": "x"}, "expires_at"),
    ("POST", "/v1/principals", {"name": "x"}, "name"),
    ("POST", "/v1/principals", {"name": "x", "kind": "x"}, "kind"),
    ("POST", "/v1/principals", {"name": "x", "external_id": "x"}, "external_id"),
    ("POST", "/v1/agents", {"name": "x"}, "name"),
    ("POST", "/v1/sessions", {"name": "x"}, "name"),
    ("POST", "/v1/surface-scopes", {"name": "x", "kind": "public"}, "name"),
    ("POST", "/v1/surface-scopes", {"name": "x", "kind": "x"}, "kind"),
)
"""Every text field at the top of a body: the request that is good but for that field."""

GRANT = {"memory_store": "STORE", "subject": {"kind": "workspace"}, "permissions": ["read"]}
WORDS: list[tuple[str, str, dict[str, Any], str]] = [
    *((m, p, {**b, f: w}, f) for m, p, b, f in TEXTS[2:3] for w in ("Direct", "", "merge")),
    ("POST", "/v1/api-keys", {"name": "x", "role": "owner"}, "role"),
    ("POST", "/v1/api-keys", {"name": "x", "role": "Admin"}, "role"),
    ("POST", "/v1/api-keys", {"name": "x", "principal": ""}, "principal"),
    ("POST", "/v1/principals", {"name": "x", "kind": "robot"}, "kind"),
    ("POST", "/v1/principals", {"name": "x", "external_id": ""}, "external_id"),
    ("POST", "/v1/principals", {"name": "x", "external_id": "x" * 256}, "external_id"),
    ("POST", "/v1/surface-scopes", {"name": "x", "kind": "Public"}, "kind"),
    ("POST", "/v1/surface-scopes", {"name": "x"}, "kind"),
    ("POST", "/v1/memory-stores", {"name": "x", "owner": {"kind": "team"}}, "owner"),
    ("POST", "/v1/memory-stores", {"name": "x", "owner": {"kind": "api_key"}}, "owner"),
    ("POST", "/v1/memory-stores", {"name": "x", "owner": {"kind": "kind"}}, "owner"),
    ("POST", "/v1/memory-stores", {"name": "x", "owner": {"kind": "principal"}}, "owner"),
    ("POST", "/v1/memory-stores", {"name": "x", "owner": {}}, "kind"),
    ("POST", "/v1/memory-stores", {"name": "x", "owner": "me"}, "owner"),
    ("POST", "/v1/memory-stores", {"name": "x", "default": "yes"}, "default"),
    ("POST", "/v1/memory-stores", {"name": "x", "default": 1}, "default"),
    (
        "POST",
        "/v1/memory-stores",
        {"name": "x", "owner": {"kind": "workspace"}, "default": True},
        "default",
    ),
    ("POST", "/v1/memory-stores", {"name": "x", "grants": {}}, "grants"),
    ("POST", "/v1/memory-stores", {"name": "x", "grants": [GRANT] * 51}, "grants"),
    ("POST", "/v1/memory-stores", {"name": "x", "id": "memstore_" + "0" * 32}, "id"),
    ("POST", "/v1/memory-stores", {"name": "x", "workspace": "wsp_" + "0" * 32}, "workspace"),
    ("POST", "/v1/permission-assignments", {**GRANT, "permissions": []}, "permissions"),
    ("POST", "/v1/permission-assignments", {**GRANT, "permissions": "read"}, "permissions"),
    ("POST", "/v1/permission-assignments", {**GRANT, "permissions": ["own"]}, "permissions"),
    ("POST", "/v1/permission-assignments", {**GRANT, "permissions": None}, "permissions"),
    ("POST", "/v1/permission-assignments", {**GRANT, "memory_store": None}, "memory_store"),
    ("POST", "/v1/permission-assignments", {**GRANT, "memory_store": "x"}, "memory_store"),
    ("POST", "/v1/permission-assignments", {**GRANT, "resource": {}}, "resource"),
    (
        "POST",
        "/v1/permission-assignments",
        {
            "subject": GRANT["subject"],
            "permissions": ["read"],
            "resource": {"kind": "memory_store", "memory_store": "STORE", "colour": "red"},
        },
        "colour",
    ),
    ("POST", "/v1/permission-assignments", {**GRANT, "subject": {"kind": "dog"}}, "kind"),
    (
        "POST",
        "/v1/permission-assignments",
        {
            **GRANT,
            "subject": {"kind": "principal", "principal": "prin_" + "0" * 32, "session": "x"},
        },
        "subject",
    ),
]
"""Requests with one field that is wrong, and the word that the answer names; STORE is a store."""

NAMES = ("/v1/memory-stores", "/v1/api-keys", "/v1/principals", "/v1/agents", "/v1/sessions")

BLANK = ("", " ", "\t", "\n", "\u00a0", "\u3000 \u2028", " " * 255)
WRONG = ("a\u0001b", "a\u007fb", "a\u0085b", "a\nb", "a\tb")


async def test_r_17_nul_is_refused_in_every_text_field(wire: Wire) -> None:
    store = await wire.store()
    before = await wire.state()
    for method, path, body, field in TEXTS:
        for value in ("\x00", "a\x00b", "a" * 300 + "\x00"):
            answer = await wire.owner.request(
                method, path.format(store=store), json={**body, field: value}
            )
            assert error_of(answer) == MALFORMED, (path, field)
            error = answer.json()["error"]
            assert field in error["message"], (path, error)
    subject = {"kind": "principal", "principal": "a\x00"}
    for path, body in (
        ("/v1/delegations", {"principal": "a\x00", "delegate": subject}),
        ("/v1/delegations", {"principal": main.new_id("principal"), "delegate": subject}),
        ("/v1/memory-stores", {"name": "x", "owner": subject}),
        ("/v1/memory-stores", {"name": "x", "owner": {"kind": "\x00"}}),
        ("/v1/memory-stores", {"name": "x", "grants": [{"subject": subject, "permissions": []}]}),
        (
            "/v1/permission-assignments",
            {"memory_store": "a\x00", "subject": {"kind": "workspace"}, "permissions": ["read"]},
        ),
        (
            "/v1/permission-assignments",
            {"memory_store": store, "subject": subject, "permissions": ["read"]},
        ),
        (
            "/v1/permission-assignments",
            {
                "resource": {"kind": "memory_store", "memory_store": "\x00"},
                "subject": {"kind": "workspace"},
                "permissions": ["read"],
            },
        ),
    ):
        assert error_of(await wire.owner.post(path, json=body)) == MALFORMED, body
    assert await wire.state() == before


async def test_r_17_nul_is_refused_in_every_query_parameter_and_path_parameter(
    wire: Wire,
) -> None:
    store = await wire.store()
    at = f"/v1/memory-stores/{store}"
    before = await wire.state()
    for url in (
        f"{at}/document?path=/a%00",
        f"{at}/documents?path_prefix=/a%00",
        f"{at}/documents?page=%00",
        f"{at}/documents?limit=5%00",
        f"{at}/access?subject=principal:%00",
        f"{at}/events?after=%00",
        "/v1/memory-stores?name=a%00",
        "/v1/memory-stores?include_archived=true%00",
        "/v1/permission-assignments?memory_store=%00",
        "/v1/permission-assignments?subject=%00",
        "/v1/memory-stores?a%00=b",
    ):
        assert error_of(await wire.owner.get(url)) == MALFORMED, url
    for method, url in (
        ("GET", "/v1/memory-stores/%00"),
        ("GET", f"{at}%00"),
        ("GET", "/v1/memory-stores/memstore_" + "0" * 31 + "%00"),
        ("DELETE", "/v1/api-keys/%00"),
        ("DELETE", "/v1/delegations/a%00b"),
        ("DELETE", "/v1/permission-assignments/a%00b"),
    ):
        assert error_of(await wire.owner.request(method, url)) in (MALFORMED, ABSENT), url
    assert await wire.state() == before


@pytest.mark.parametrize("path", NAMES)
async def test_names_have_1_to_255_characters_and_some_that_show(plain: Wire, path: str) -> None:
    before = await plain.state()
    for name in (*BLANK, *WRONG, "x" * 256, "é" * 256, "🦊" * 256, "x" * 100_000):
        answer = await plain.owner.post(path, json={"name": name})
        assert error_of(answer) == MALFORMED, repr(name[:20])
        error = answer.json()["error"]
        assert error["detail"]["field"] == "name"
        assert "name" in error["message"]
    assert await plain.state() == before
    for name in ("x", "x" * 255, "🦊" * 255, " x ", "Ünïcode", "'; DROP TABLE stores; --", "\\"):
        made = await plain.owner.post(path, json={"name": name})
        assert made.status_code == 201, made.text
        assert made.json()["name"] == name


async def test_descriptions_have_at_most_1_024_characters(wire: Wire) -> None:
    store = await wire.store()
    before = await wire.state()
    for description in ("x" * 1_025, "é" * 1_025, "a\u0000", "a\u0007", "a\u007f"):
        for method, path, body in (
            ("POST", "/v1/memory-stores", {"name": "x"}),
            ("PATCH", f"/v1/memory-stores/{store}", {"expected_version": 1}),
        ):
            answer = await wire.owner.request(
                method, path, json={**body, "description": description}
            )
            assert error_of(answer) == MALFORMED
            assert "description" in answer.json()["error"]["message"]
    assert await wire.state() == before
    for version, description in enumerate(("🦊" * 1_024, "two\nlines\t", "", None), start=1):
        kept = await wire.owner.patch(
            f"/v1/memory-stores/{store}",
            json={"expected_version": version, "description": description},
        )
        assert kept.json()["description"] == description


async def test_words_that_are_none_of_the_listed_are_refused(plain: Wire) -> None:
    store = await plain.store()
    before = await plain.state()
    for method, path, body, word in WORDS:
        text = json.dumps(body).replace("STORE", store)
        answer = await plain.owner.request(method, path, content=text.encode())
        assert error_of(answer) == MALFORMED, (path, body)
        error = answer.json()["error"]
        assert word in error["message"] or word in str(error.get("detail")), error
    assert await plain.state() == before


async def test_times_that_cannot_be_are_refused_and_leave_no_key(plain: Wire) -> None:
    before = await plain.state()
    for text in (
        "", "tomorrow", "2999-01-01", "2999-01-01T00:00:00", "2999-13-01T00:00:00Z",
        "2999-02-30T00:00:00Z", "2999-01-01T25:00:00Z", "2000-01-01T00:00:00Z", "32503680000",
        "9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.9999999-23:59", "10000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59", "-001-01-01T00:00:00Z",
    ):  # fmt: skip
        answer = await plain.owner.post("/v1/api-keys", json={"name": "x", "expires_at": text})
        assert error_of(answer) == MALFORMED, text
        assert "expires_at" in answer.json()["error"]["message"]
    assert await plain.state() == before
    for text, kept in (
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59.000000Z"),
        ("2999-01-01T00:00:00+02:00", "2998-12-31T22:00:00.000000Z"),
    ):
        made = await plain.owner.post("/v1/api-keys", json={"name": "x", "expires_at": text})
        assert made.json()["expires_at"] == kept
    assert (await plain.owner.get("/v1/api-keys")).status_code == 200


async def test_k12_foreign_and_unknown_ids_in_bodies_are_404_and_change_nothing(
    wire: Wire,
) -> None:
    eve = await wire.other_workspace()
    mine, theirs = await wire.store(), await wire.store(eve.client)
    before = await wire.state()
    everybody = {"subject": {"kind": "workspace"}, "permissions": ["read"]}
    for principal, key, store, workspace in (
        (eve.principal, eve.key, theirs, "wsp_" + eve.secret[4:36]),
        (main.new_id("principal"), main.new_id("key"), main.new_id("store"), "wsp_" + "f" * 32),
    ):
        person = {"kind": "principal", "principal": principal}
        owner = (await wire.owner.get("/v1/whoami")).json()["principal"]["id"]
        subjects = [person, {"kind": "api_key", "api_key": key}]
        subjects += [{"kind": "workspace", "workspace": workspace}]
        subjects += [
            {"kind": kind, kind: main.new_id(name)}
            for kind, name in (
                ("session", "session"),
                ("agent_definition", "agent"),
                ("surface_scope", "scope"),
            )
        ]
        for subject in subjects:
            grant = {"subject": subject, "permissions": ["read"]}
            for path, body in (
                ("/v1/permission-assignments", {"memory_store": mine, **grant}),
                ("/v1/memory-stores", {"name": "x", "grants": [grant]}),
                ("/v1/memory-stores", {"name": "x", "owner": subject}),
            ):
                if subject["kind"] == "api_key" and "owner" in body:
                    continue
                answer = await wire.owner.post(path, json=body)
                assert error_of(answer) == ABSENT, (path, body)
        for path, body in (
            ("/v1/permission-assignments", {"memory_store": store, **everybody}),
            ("/v1/api-keys", {"name": "x", "principal": principal}),
            ("/v1/delegations", {"principal": principal, "delegate": subjects[0]}),
            ("/v1/delegations", {"principal": owner, "delegate": subjects[0]}),
            ("/v1/delegations", {"principal": owner, "delegate": subjects[1]}),
        ):
            assert error_of(await wire.owner.post(path, json=body)) == ABSENT, (path, body)
        for path in (f"/v1/api-keys/{key}", f"/v1/memory-stores/{store}"):
            assert error_of(await wire.owner.delete(path)) == ABSENT, path
    assert await wire.state() == before
    assert (await eve.client.get(f"/v1/memory-stores/{theirs}")).status_code == 200


async def test_ids_that_are_none_are_refused(plain: Wire) -> None:
    right = main.new_id("store")
    for identifier in (
        "x", "memstore_", right[:-1], right + "0", right.upper(), "store_" + right[-32:],
        right[:-1] + "g", right.replace("_", "-"), "%20" + right, right + "%0a", "%2e%2e",
        "a%2fb", "٣" * 41, "memstore_" + "٣" * 32,
    ):  # fmt: skip
        for path in ("", "/access", "/events", "/documents", "/document?path=/a"):
            answer = await plain.owner.get(f"/v1/memory-stores/{identifier}{path}")
            assert error_of(answer) in (MALFORMED, ABSENT), (identifier, path)


async def pieces(size: int) -> AsyncIterator[bytes]:
    """A body of so many bytes that never says how long it is."""
    piece = b" " * 65_536
    while size > 0:
        yield piece[:size]
        size -= len(piece)


async def test_a_body_over_4_mib_is_413_with_and_without_its_length(plain: Wire) -> None:
    store = await plain.store()
    before = await plain.state()
    small = b'{"content":"x"}'
    for method, path in (
        ("PUT", document_url(store) + "?path=/a.md"),
        ("POST", "/v1/memory-stores"),
        ("PATCH", f"/v1/memory-stores/{store}"),
        ("DELETE", document_url(store) + "?path=/a.md"),
    ):
        for content, headers in (
            (b" " * BODY_BYTES_MAX + small, {}),
            (pieces(BODY_BYTES_MAX + 1), {}),
            (small, {"Content-Length": str(BODY_BYTES_MAX + 1)}),
            (small, {"Content-Length": "9" * 40}),
            (small, {"Content-Length": "9" * 5_000}),
        ):
            answer = await plain.owner.request(method, path, content=content, headers=headers)
            assert error_of(answer) == (413, "validation.malformed"), (method, headers)
            assert "4194304" in answer.json()["error"]["message"].replace(",", "")
    assert await plain.state() == before
    exactly = small + b" " * (BODY_BYTES_MAX - len(small))
    put = await plain.owner.put(document_url(store), params={"path": "/a.md"}, content=exactly)
    assert put.status_code == 201


async def test_the_order_of_checks_puts_the_key_before_the_version_before_syntax(
    plain: Wire,
) -> None:
    ada = await plain.person()
    store = await plain.store()
    url = document_url(store) + "?path=nonsense"
    bad = {"Muniment-Version": "1999-01-01"}
    stranger = plain.client("mun_" + "0" * 32 + "_" + "A" * 43)
    disabled = await plain.other_workspace(status="disabled")
    for client in (plain.client(None), stranger):
        for headers, content in (
            (bad, b"{"),
            ({}, b"{"),
            ({}, b" " * (BODY_BYTES_MAX + 1)),
            ({"Muniment-Acted-As": "nonsense"}, b"{"),
        ):
            answer = await client.put(url, headers=headers, content=content)
            assert error_of(answer) == (401, "auth.invalid_key"), headers
    answer = await disabled.client.put(url, headers=bad, content=b"{")
    assert error_of(answer) == (403, "auth.disabled_tenancy")
    answer = await ada.client.put(url, headers=bad, content=b"{")
    assert error_of(answer) == MALFORMED
    assert "Version" in answer.json()["error"]["message"]
    answer = await ada.client.put(url, content=b'{"content":"x"}')
    assert error_of(answer) == MALFORMED
    assert "path" in answer.json()["error"]["message"]
    answer = await ada.client.put(document_url(store) + "?path=/a.md", content=b"{")
    assert error_of(answer) == MALFORMED
    answer = await ada.client.put(document_url(store) + "?path=/a.md", content=b'{"content":"x"}')
    assert error_of(answer) == ABSENT


async def test_every_route_refuses_unknown_and_repeated_query_parameters(plain: Wire) -> None:
    store = await plain.store()
    person: Person = await plain.person()
    before = await plain.state()
    for method, path, body in (
        ("GET", "/v1/whoami", None),
        ("GET", f"/v1/memory-stores/{store}", None),
        ("POST", "/v1/memory-stores", {"name": "x"}),
        ("PATCH", f"/v1/memory-stores/{store}", {"expected_version": 1, "name": "x"}),
        ("POST", f"/v1/memory-stores/{store}/archive", {"expected_version": 1}),
        ("DELETE", f"/v1/memory-stores/{store}", None),
        ("GET", f"/v1/memory-stores/{store}/access", None),
        ("POST", "/v1/api-keys", {"name": "x"}),
        ("DELETE", f"/v1/api-keys/{person.key}", None),
        ("POST", "/v1/principals", {"name": "x"}),
        ("POST", "/v1/sessions", {"name": "x"}),
    ):
        for query in ("colour=red", "colour", "a=1&a=1", "x=%00", "x=%ff", "expected_versionn=7"):
            answer = await plain.owner.request(method, f"{path}?{query}", json=body)
            assert error_of(answer) == MALFORMED, (method, path, query)
    assert await plain.state() == before
