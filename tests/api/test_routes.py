"""The routing law, the envelope, and the pages that need no key (C-234 … C-236)."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from muniment.api import native, site
from muniment.api.native.envelope import STATUS
from muniment.model import errors
from neighbours import ROUTES, filled, named, precondition, requests, victim
from wire import BASE, Wire, document_url, error_of

OPEN = ("/healthz", "/readyz", "/openapi.json", "/docs/errors")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND")


async def test_every_route_without_a_key_is_401_and_changes_nothing(plain: Wire) -> None:
    _, ids = await victim(plain)
    before = await plain.state()
    for route, url, body in requests(ids):
        answer = await plain.client(None).request(route.method, url, json=body)
        assert error_of(answer) == (401, "auth.invalid_key"), named(route)
    assert await plain.state() == before


async def test_r_44_no_route_shows_or_changes_what_a_stranger_may_not_see(wire: Wire) -> None:
    ada, ids = await victim(wire)
    stranger = await wire.person("stranger")
    before = await wire.state()
    for route, url, body in requests(ids):
        answer = await stranger.client.request(
            route.method, url, json=body, headers=precondition(route, ids)
        )
        assert answer.status_code < 500, named(route)
        assert "CANARY" not in answer.text, named(route)
        if "{" in route.path:
            expected = (404,) if "{id}" in route.path else (403, 404)
            assert answer.status_code in expected, (named(route), answer.text)
        if answer.is_success:
            assert not any(one in answer.text for one in ids.values()), named(route)
    after = await wire.state()
    assert {key: value for key, value in after.items() if key in before and key != WORKSPACE} == {
        key: value for key, value in before.items() if key != WORKSPACE
    }
    assert (await ada.client.get("/v1/whoami")).status_code == 200
    for one in await wire.events(WORKSPACE):
        assert one.payload is not None
        made_by_the_stranger = stranger.key.encode() in one.payload
        assert not (made_by_the_stranger and ada.principal.encode() in one.payload)


WORKSPACE = "wsp_" + "0" * 31 + "1"


async def test_a_wrong_method_is_405_with_the_allowed_ones(plain: Wire) -> None:
    _, ids = await victim(plain)
    allowed: dict[str, set[str]] = {path: {"GET"} for path in OPEN}
    for route in ROUTES:
        allowed.setdefault(filled(route.path, ids), set()).add(route.method)
    before = await plain.state()
    for path, methods in allowed.items():
        for method in METHODS:
            if method in methods:
                continue
            answer = await plain.owner.request(method, path)
            assert answer.status_code == 405, (method, path)
            assert answer.headers["allow"] == ", ".join(sorted(methods))
            if method != "HEAD":
                assert error_of(answer) == (405, "validation.malformed")
    assert await plain.state() == before


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1", "/v1/", "/v2/whoami", "/v1/whoami/", "/v1//whoami", "//v1/whoami",
        "/V1/whoami", "/v1/Whoami", "/v1/whoami/x", "/v1/whoami%2f", "/v1/who%61mi",
        "/v1/memory-stores/", "/v1/memory-stores//documents", "/v1/memory%2Dstores",
        "/v1/memory-stores/x/y/z", "/v1/memory-stores/{id}/", "/v1/memory-stores/{id}/Documents",
        "/v1/memory-stores/{id}/document/a.md", "/v1/memory-stores/{id}/documents/",
        "/v1/memory-stores%2F{id}", "/api/v1/whoami", "/.env", "/docs/errors/", "/healthz/",
        "/v1/*", "/*/whoami", "/%00", "/v1/whoami%00",
    ],
)  # fmt: skip
async def test_an_unknown_route_is_404_in_the_envelope(plain: Wire, path: str) -> None:
    store = await plain.store()
    for method in ("GET", "POST", "DELETE"):
        answer = await plain.owner.request(method, BASE + path.replace("{id}", store))
        assert error_of(answer) == (404, "validation.not_found")
    anonymous = await plain.client(None).get(BASE + path.replace("{id}", store))
    assert anonymous.status_code in (401, 404)


async def test_the_routing_law_keeps_memory_stores_with_a_hyphen_apart(plain: Wire) -> None:
    ada, ids = await victim(plain)
    before = await plain.state()
    for route, url, body in requests(ids):
        if "memory-stores" in url:
            twin = url.replace("/memory-stores", "/memory_stores")
            answer = await ada.client.request(route.method, twin, json=body)
            assert answer.status_code == 404, named(route)
            assert "CANARY" not in answer.text
    assert await plain.state() == before


def test_c_236_every_failure_of_the_catalogue_has_a_status_in_the_documented_order() -> None:
    def below(cls: type[errors.Failure]) -> Iterator[type[errors.Failure]]:
        for one in cls.__subclasses__():
            yield one
            yield from below(one)

    assert set(STATUS) == set(below(errors.Failure))
    documented = {
        "validation.malformed": {400, 405, 413},
        "auth.invalid_key": {401},
        "auth.disabled_tenancy": {403},
        "policy.denied": {403},
        "memory.read_only": {403},
        "validation.not_found": {404},
        "memory.conflict": {409},
        "budget.exceeded": {429},
        "runtime.internal": {500},
        "memory.backend_unavailable": {503},
    }
    found: dict[str, set[int]] = {}
    for failure, status in STATUS.items():
        found.setdefault(failure.code, set()).add(status)
    assert found == documented


def test_c_234_c_235_every_failure_renders_as_the_envelope() -> None:
    render = native.dialect(BASE).render
    for failure, status in STATUS.items():
        reply = render(failure("because", field="f"))
        assert reply.status == status
        assert isinstance(reply.body, dict)
        error = reply.body["error"]
        assert error["type"] == failure.code
        assert error["more"] == f"{BASE}/docs/errors#{re.sub('[._]', '-', failure.code)}"
        assert (error["message"], error["detail"]) == ("because", {"field": "f"})


async def test_c_235_the_page_of_errors_has_an_anchor_for_every_type(plain: Wire) -> None:
    answer = await plain.client(None).get("/docs/errors")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    for failure in errors.catalogue():
        slug = failure.code.replace(".", "-").replace("_", "-")
        assert answer.text.count(f'id="{slug}"') == 1
        assert failure.code in answer.text


async def test_r_03_more_never_comes_from_the_host_header(plain: Wire) -> None:
    for host in ("localhost:1", "[::1]:8787", "evil.example"):
        answer = await plain.client(None).get("/v1/whoami", headers={"Host": host})
        assert answer.json()["error"]["more"].startswith(f"{BASE}/docs/errors#")


async def test_every_answer_names_its_request(plain: Wire) -> None:
    seen = set()
    for path in ("/v1/whoami", "/nothing", "/healthz", "/v1/memory-stores"):
        for client in (plain.owner, plain.client(None)):
            answer = await client.get(path)
            seen.add(answer.headers["muniment-request-id"])
            assert answer.headers["content-type"] == "application/json"
    assert len(seen) == 8


async def test_a_500_says_nothing_of_the_inside(plain: Wire) -> None:
    store = await plain.store()

    def broken(_: int) -> bytes:
        raise RuntimeError("CANARY in /secret/path")

    object.__setattr__(plain.app, "random_bytes", broken)
    answer = await plain.owner.put(
        document_url(store), params={"path": "/a.md"}, json={"content": "CANARY"}
    )
    assert error_of(answer) == (500, "runtime.internal")
    assert "CANARY" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["muniment-request-id"] in answer.text


async def test_openapi_names_every_route_its_parameters_and_its_shapes(plain: Wire) -> None:
    answer = await plain.client(None).get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    spec = answer.json()
    assert spec["openapi"].startswith("3.1.")
    assert spec["info"]["title"] and spec["info"]["version"]
    assert spec["servers"][0]["url"] == BASE
    described = {(method.upper(), path) for path, item in spec["paths"].items() for method in item}
    assert {(route.method, route.path) for route in ROUTES} <= described
    operations = [op for item in spec["paths"].values() for op in item.values()]
    identifiers = [op["operationId"] for op in operations]
    assert len(set(identifiers)) == len(identifiers)
    for path, item in spec["paths"].items():
        for operation in item.values():
            check_operation(spec, path, operation)
    for reference in re.findall(r'"\$ref":\s*"([^"]+)"', answer.text):
        assert resolve(spec, reference), reference
    assert spec["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}


def check_operation(spec: dict[str, Any], path: str, operation: dict[str, Any]) -> None:
    """The parts of OpenAPI 3.1 that every client generator leans on."""
    parameters = operation["parameters"]
    keys = [(one["name"], one["in"]) for one in parameters]
    assert len(set(keys)) == len(keys)
    in_path = {one["name"] for one in parameters if one["in"] == "path"}
    assert in_path == set(re.findall(r"{(\w+)}", path))
    for one in parameters:
        assert one["in"] in ("path", "query", "header")
        assert one["schema"]
        assert one["in"] != "path" or one["required"] is True
        assert one["in"] != "path" or one["schema"]["pattern"].endswith("_[0-9a-f]{32}$")
    assert operation["responses"] and operation["summary"] and operation["tags"]
    assert {"400", "401", "403", "503", "default"} <= operation["responses"].keys()
    assert "requestBody" not in operation or "413" in operation["responses"]
    for status, response in operation["responses"].items():
        assert re.fullmatch(r"[1-5]\d\d|default", status)
        assert response["description"]
    default = operation["responses"]["default"]["content"]["application/json"]["schema"]
    assert "error" in resolve(spec, default["$ref"])["properties"]
    if "requestBody" in operation:
        assert operation["requestBody"]["content"]["application/json"]["schema"]


def resolve(spec: dict[str, Any], reference: str) -> Any:
    found: Any = spec
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


async def test_healthz_and_readyz_need_no_key_and_no_version(wire: Wire) -> None:
    for path in ("/healthz", "/readyz"):
        answer = await wire.client(None).get(path, headers={"Muniment-Version": "nonsense"})
        assert answer.status_code == 200
        assert answer.json()["status"]


def test_the_site_answers_at_four_paths() -> None:
    wire = native.dialect(BASE)
    assert tuple(route.path for route in site.dialect(BASE, wire).routes) == OPEN
    assert not any(route.authenticated for route in site.dialect(BASE, wire).routes)
    assert all(route.authenticated for route in ROUTES)
