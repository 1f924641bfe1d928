"""Requests that nobody would write, made from our own OpenAPI document: the API does what it says.

Each round makes things, then requests that fit the document, with the ids that answers have shown,
and then requests that do not. They go to the application on two storages, as an administrator, a
member and a stranger. What is wrong is collected and told together, each kind with one request.

`make fuzz ARGS="--fuzz-rounds=50 --hypothesis-seed=7"` makes more of them, and others.
"""

import re
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from muniment.api.http import INTEGER_MAX
from muniment.client.portal import Portal
from muniment.model.ids import DEFAULT_WORKSPACE, PREFIXES
from muniment.testing.invariants import check_invariants
from wire import BASE, Wire, error_of, wired
from working import leave_job

T = TypeVar("T")
Document = dict[str, Any]

EXAMPLES = 5
"""Requests for each operation in a round, and again so many that do not fit it."""

KNOWN_MAX = 6
FAILURES_TOLD = 5
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
REQUEST_FIELDS = ("method", "url", "headers", "params", "data", "json", "cookies")

ANY_ID = re.compile(rf"(?:{'|'.join(PREFIXES.values())})_[0-9a-f]{{32}}")
ANY_HASH = re.compile(r'"sha256":"([0-9a-f]{64})"')
PATHS = ("/a.md", "/b/c.md")
ENDING = ("archive_store", "delete_assignment", "delete_delegation", "revoke_key", "delete_store")
"""Operations that take away what the others need: they come last."""

UNSAID = (
    "the unassigned character",
    "the format character",
    "the line separator",
    "the private use character",
    "the dot segment",
    "a segment that begins or ends with white space",
    "must not have the segment .",
    "in normalisation form C",
    "at most 58 segments",
    "bytes in UTF-8",
    "If-Match or If-None-Match, not both",
    "after or page, not both",
    "expires_at must lie in the future",
    "expires_at must be a time",
    "default is for stores owned by a principal",
    "Expected `int`, got `float`",
)
"""Rules that no schema can say: a request that fits the document may break one of these."""


class World:
    """The application on one storage, and those who call it."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.callers: list[httpx.AsyncClient] = []
        numbers = iter(range(1, 10**9))

        def new_id(kind: str) -> str:
            return f"{PREFIXES[kind]}_{next(numbers):032x}"

        # Ids that count are the same in every world, so that one request means the same to all.
        object.__setattr__(wire.app, "new_id", new_id)

    async def populate(self) -> str:
        """Makes people with stores, documents, keys, grants and more; what tells of them."""
        wire = self.wire
        ada, bob, stranger = [await wire.person(name) for name in ("ada", "bob", "stranger")]
        self.callers = [wire.owner, ada.client, wire.owner, stranger.client]
        whom = {"kind": "principal", "principal": bob.principal}
        seen = [f"{ada.principal} {bob.principal} {bob.key}"]
        for client in (ada.client, wire.owner):
            for name in ("notes", "plans", "old"):
                store = await wire.store(client, name=name)
                digest = await wire.put(store, "/a.md", "one", client)
                await wire.put(store, "/b/c.md", "one", client)
                grant = await wire.grant(store, {"kind": "workspace"}, "read", "write")
                seen.append(f'{store} {grant} "sha256":"{digest}"')
        await leave_job(wire)
        for path, body in (
            ("delegations", {"principal": ada.principal, "delegate": whom}),
            ("agents", {"name": "helper"}),
            ("sessions", {"name": "today"}),
            ("surface-scopes", {"name": "kitchen", "kind": "private"}),
            ("memory-stores", {"name": "kb", "owner": {"kind": "workspace"}}),
        ):
            made = await wire.owner.post(f"/v1/{path}", json=body)
            assert made.status_code == 201
            seen.append(made.text)
        seen.append((await wire.owner.get("/v1/jobs")).text)
        return "".join(seen)


class Fuzzer:
    """The worlds, what their answers have shown so far, and what was wrong with them."""

    def __init__(self, portal: Portal, worlds: list[World]) -> None:
        self.portal = portal
        self.worlds = worlds
        self.known: dict[str, dict[str, None]] = {}
        self.kept: set[str] = set()
        """The callers' own keys: revoked, they would end everything."""
        self.failures: dict[str, str] = {}
        self.statuses: dict[str, Counter[int]] = {}
        self.count = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.portal.run(work)

    def populate(self) -> None:
        """Makes new things in every world, and forgets the old ones."""
        self.known.clear()
        for world in self.worlds:
            seen = self.run(world.populate())
            for caller in world.callers:
                me = self.run(caller.get("/v1/whoami"))
                self.kept.add(me.json()["api_key"]["id"])
            self.learn(seen)

    def learn(self, text: str) -> None:
        """Remembers the ids and the hashes that stand in an answer."""
        for identifier in ANY_ID.findall(text):
            if identifier in self.kept:
                continue
            self.known.setdefault(identifier.rpartition("_")[0], {})[identifier] = None
        for digest in ANY_HASH.findall(text):
            self.known.setdefault("sha256", {})[digest] = None

    def document(self) -> Document:
        """Our OpenAPI document without what excuses any status, and without what is for all."""
        answer = self.run(self.worlds[0].wire.owner.get("/openapi.json"))
        found: Document = answer.json()
        # Each request gets a key that is one; without any it is tried apart.
        del found["security"], found["components"]["securitySchemes"]
        for item in found["paths"].values():
            for operation in item.values():
                del operation["responses"]["default"]
                operation["parameters"] = [
                    one
                    for one in operation["parameters"]
                    if one["name"] not in ("Muniment-Acted-As", "page")
                ]
        return found

    def ask(self, case: Case) -> None:
        """Sends the request to every world and checks each answer."""
        request = request_of(case)
        self.count += 1
        for world in self.worlds:
            caller = world.callers[self.count % len(world.callers)]
            answer = self.run(send(caller, request))
            self.learn(answer.text)
            self.check(case, answer)
            if self.count % 5 == 0:
                nobody = self.run(send(world.wire.client(None), request))
                assert error_of(nobody) == (401, "auth.invalid_key")

    def check(self, case: Case, answer: httpx.Response) -> None:
        name = case.operation.definition.raw["operationId"]
        self.statuses.setdefault(name, Counter())[answer.status_code] += 1
        self.check_type(name, case, answer)
        checks = [*CHECKS, negative_data_rejection]
        if not any(rule in answer.text for rule in UNSAID):
            checks.append(positive_data_acceptance)
        try:
            case.validate_response(answer, checks=checks)
        except FailureGroup as group:
            for failure in group.exceptions:
                title = f"{name}: {failure.title}: {answer.status_code}"
                self.failures.setdefault(title, str(group))

    def check_type(self, name: str, case: Case, answer: httpx.Response) -> None:
        """A refusal is one of the types that the document lists for its status."""
        if answer.status_code < 400:
            return
        _, kind = error_of(answer)
        responses = case.operation.definition.raw["responses"]
        documented = responses.get(str(answer.status_code), {}).get("x-error-types", [])
        if kind not in documented:
            title = f"{name}: {answer.status_code} {kind} is not documented"
            self.failures.setdefault(title, answer.text)


def request_of(case: Case) -> requests.PreparedRequest:
    """The request as it goes over the wire."""
    fields = case.as_transport_kwargs(base_url=BASE)
    given = {name: value for name, value in fields.items() if name in REQUEST_FIELDS}
    return requests.Request(**given).prepare()


async def send(caller: httpx.AsyncClient, request: requests.PreparedRequest) -> httpx.Response:
    """The answer to the request with the caller's key."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers.pop("authorization", None)
    if "authorization" in caller.headers:
        headers["authorization"] = caller.headers["authorization"]
    return await caller.send(
        httpx.Request(
            str(request.method),
            str(request.url),
            headers=[(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            content=request.body,
        )
    )


def with_known(
    document: Document, known: dict[str, dict[str, None]], *, ids: bool, all: bool
) -> Document:
    """The document where each id, path and hash of a request may be one that is there.

    It is no other with `ids`, or for paths and hashes with `all`.
    """

    def changed(found: Any) -> Any:
        if isinstance(found, list):
            return [changed(item) for item in found]
        if not isinstance(found, dict):
            return found
        if isinstance(found.get("pattern"), str) and (values := known_values(found, known)):
            there = {"type": "string", "enum": values}
            alone = ids if ANY_ID.search(values[0]) else all
            return there if alone else {"anyOf": [there, found]}
        if all and found.get("type") == "integer" and found.get("maximum") == INTEGER_MAX:
            return {"type": "integer", "enum": [1, 2]}
        return {
            name: value.replace("schemas/", "schemas/Asked") if name == "$ref" else changed(value)
            for name, value in found.items()
        }

    schemas = document["components"]["schemas"]
    schemas.update({f"Asked{name}": changed(schema) for name, schema in schemas.items()})
    for item in document["paths"].values():
        for operation in item.values():
            for part in ("parameters", "requestBody"):
                if part in operation:
                    operation[part] = changed(operation[part])
    return document


def known_values(schema: Document, known: dict[str, dict[str, None]]) -> list[str]:
    """Some of what is there and fits the schema, the oldest and the newest."""
    pattern = schema["pattern"]
    values: list[str] = []
    if pattern.startswith("^([0-9a-f]{64}"):
        values = list(known["sha256"])
    elif pattern.startswith("^(/"):
        values = list(PATHS)
    elif pattern.startswith("^("):
        values = [
            f"{kind}:{one}"
            for kind, prefix in (("principal", "prin"), ("api_key", "apikey"), ("session", "sess"))
            for one in list(known[prefix])[:2]
        ]
    for prefix, ids in known.items():
        if pattern.startswith(f"^{prefix}_"):
            values = list(ids)
    return values if len(values) <= KNOWN_MAX else values[: KNOWN_MAX - 1] + values[-1:]


def fuzz(fuzzer: Fuzzer, rounds: int, first: int) -> None:
    """So many rounds; in each, the operations that end things come last."""
    for number in range(first, first + rounds):
        fuzzer.populate()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            # Where a request must not fit, what fits is more than what is there.
            ids = mode is GenerationMode.POSITIVE
            every = ids and number % 2 == 1
            document = with_known(fuzzer.document(), fuzzer.known, ids=ids, all=every)
            schema = schemathesis.openapi.from_dict(document)
            operations = [found.ok() for found in schema.get_all_operations()]
            operations.sort(key=lambda one: one.definition.raw["operationId"] in ENDING)
            for operation in operations:
                ask_often(fuzzer, operation.as_strategy(mode), number)


def ask_often(fuzzer: Fuzzer, strategy: Any, number: int) -> None:
    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def ask(case: Case) -> None:
        fuzzer.ask(case)

    ask()


@pytest.fixture
def fuzzer(tmp_path: Path) -> Iterator[Fuzzer]:
    """The application in memory and on SQLite, with things in it."""
    portal, stack = Portal(), AsyncExitStack()
    worlds = []
    for name in ("memory:", f"sqlite:///{tmp_path / 'test.db'}"):
        wire = portal.run(stack.enter_async_context(wired(tmp_path / name[:6], name)))
        worlds.append(World(wire))
    made = Fuzzer(portal, worlds)
    yield made
    portal.run(stack.aclose())
    portal.close()


@pytest.mark.slow
def test_the_api_does_what_its_document_says_c234(
    fuzzer: Fuzzer, request: pytest.FixtureRequest
) -> None:
    fuzz(
        fuzzer,
        request.config.getoption("--fuzz-rounds"),
        int(request.config.getoption("--hypothesis-seed") or 0),
    )
    print(f"{fuzzer.count} requests")
    for name, counts in sorted(fuzzer.statuses.items()):
        print(name, dict(sorted(counts.items())))
    told = [*fuzzer.failures, *list(fuzzer.failures.values())[:FAILURES_TOLD]]
    assert not told, "\n\n".join(told)
    for world in fuzzer.worlds:
        fuzzer.run(check_invariants(world.wire.storage, DEFAULT_WORKSPACE))
    never = [name for name, counts in fuzzer.statuses.items() if min(counts) >= 300]
    assert len(never) < 3, f"these never succeeded, so little of them was tried: {never}"
