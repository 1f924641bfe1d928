"""What a simulated script is made from: a clock, ids and chance that depend on the step alone, and
the world as the answers have told it so far.

Everything here is a function of the seed and the number of the step, so that a script from which
steps were taken out still asks much the same in the steps that are left.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b, sha256
from random import Random
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

from msgspec import Struct, structs

from muniment.api.http import HttpApp
from muniment.model.ids import DEFAULT_WORKSPACE, PREFIXES

T = TypeVar("T")

BEGIN_US = 1_790_000_000_000_000
STEP_US = 1_000_000
"""How far apart steps are: time enough for a key to expire."""

APART_MS = 600_000
"""How far apart the clocks are by which ids are made."""

RECENT_CURSORS = 12
RECENT_REQUESTS = 40


def time_of(step: int) -> int:
    """When a step begins, in UTC microseconds."""
    return BEGIN_US + step * STEP_US


class Chance:
    """Random-looking bytes that are a function of a label and of what was taken before."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._taken = 0

    def __call__(self, count: int) -> bytes:
        """The next `count` bytes."""
        found = b""
        while len(found) < count:
            found += sha256(f"{self._label}/{self._taken}".encode()).digest()
            self._taken += 1
        return found[:count]


class Clockwork:
    """Clock, ids and chance of one application: functions of the step and of what was asked in it.

    Ids are what several nodes make whose clocks are minutes apart: their order is not that in which
    they were made, so a list in another order is seen.
    """

    def __init__(self) -> None:
        self.begin(0)

    def begin(self, step: int) -> None:
        """Starts a step: what it is given does not depend on the steps before."""
        self._step = step
        self._ticks = 0
        self._ids = 0
        self.random_bytes = Chance(f"step {step}")

    def now(self) -> int:
        """The next microsecond of the step."""
        self._ticks += 1
        return time_of(self._step) + self._ticks

    def new_id(self, kind: str) -> str:
        """The next id of the kind."""
        self._ids += 1
        drawn = sha256(f"id {self._step}/{self._ids}".encode()).digest()
        apart = int.from_bytes(drawn[10:]) % APART_MS
        milliseconds = time_of(self._step) // 1000 + apart
        return f"{PREFIXES[kind]}_{milliseconds:012x}{drawn[:10].hex()}"

    def chance(self, count: int) -> bytes:
        """The step's next random bytes."""
        return self.random_bytes(count)


class Dice(Random):
    """The chance of one step of a script."""

    def __init__(self, seed: int, step: int) -> None:
        super().__init__(f"{seed}/{step}")

    def of(self, known: Mapping[str, T]) -> T:
        """One of what is known. Taking another one out of it does not change which."""
        salt = self.randbytes(8)
        drawn = min(known, key=lambda name: blake2b(name.encode(), key=salt).digest())
        return known[drawn]

    def some(self, chance: float) -> bool:
        """True as often as that."""
        return self.random() < chance


DEED = "DO"
"""The method of what is no request but a deed of the operator's or of a worker's."""


class Request(Struct, frozen=True):
    """A whole request; `actor` is what the script calls who sends it.

    With the method DEED it is a deed: `target` is its name and what it is about. Where
    `database_answers` is a number, the database does so many more transactions and then no more,
    until the answer is given; or, with `database_returns`, then only the next one not.
    """

    actor: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    database_answers: int | None = None
    database_returns: bool = False

    @property
    def path(self) -> str:
        """The target without its query."""
        return self.target.partition("?")[0]

    @property
    def outage(self) -> str:
        """What the database does meanwhile, where it does not answer."""
        if self.database_answers is None:
            return ""
        gone = "gone for one" if self.database_returns else "gone"
        return f", the database {gone} after {self.database_answers} transactions"

    def text(self) -> str:
        """The request as people read it."""
        head = [f"{self.method} {self.target}    as {self.actor}{self.outage}"]
        head += [f"{name}: {value}" for name, value in self.headers]
        return "\n".join([*head, *_shown(self.body)])


class Answer(Struct, frozen=True):
    """A whole answer, every byte of it."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def json(self) -> Any:
        """The body, None where there is none or it is no JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None

    @property
    def failure(self) -> str | None:
        """The type of the failure that the answer tells of, or None."""
        found = self.json()
        return found["error"]["type"] if isinstance(found, dict) and "error" in found else None

    def text(self) -> str:
        """The answer as people read it."""
        head = [str(self.status)]
        head += [f"{name.decode()}: {value.decode()}" for name, value in self.headers]
        return "\n".join([*head, *_shown(self.body)])


def _shown(body: bytes) -> list[str]:
    return [body.decode("utf-8", "backslashreplace")] if body else []


async def send(http: HttpApp, request: Request) -> Answer:
    """What the application answers."""
    path, _, query = request.target.partition("?")
    named = {name.lower() for name, _ in request.headers}
    headers = [(name.lower().encode(), value.encode("latin-1")) for name, value in request.headers]
    if "host" not in named:
        headers.insert(0, (b"host", b"127.0.0.1"))
    if request.body and "content-length" not in named:
        headers.append((b"content-length", str(len(request.body)).encode()))
    scope = {
        "type": "http",
        "method": request.method,
        "path": path,
        "raw_path": path.encode("ascii"),
        "query_string": query.encode("ascii"),
        "headers": headers,
    }
    answered: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def take(message: Any) -> None:
        answered.append(message)

    await http(scope, receive, take)
    start, body = answered
    return Answer(start["status"], tuple(start["headers"]), body["body"])


class Actor(Struct, frozen=True):
    """Somebody who sends requests: a secret, perhaps in the place of another principal."""

    name: str
    secret: str | None
    principal: str | None = None
    key: str | None = None
    acted_as: str | None = None
    admin: bool = False


class Store(Struct):
    """A store as far as the answers told of it."""

    id: str
    version: int
    hashes: dict[str, str]
    """The last known hash at each path."""

    former: dict[str, str]
    """A hash that each path once had."""

    users: dict[str, str]
    """The names of actors that may well use it."""

    writable: bool = True
    """Whether its state lets somebody write to it."""

    def see(self, path: str, sha256: str | None) -> None:
        """Notes what is at the path now."""
        known = self.hashes.pop(path, None)
        if known is not None and known != sha256:
            self.former[path] = known
        if sha256 is not None:
            self.hashes[path] = sha256


class Cursor(Struct, frozen=True):
    """A list that goes on: the request of its last page, and where the next begins."""

    request: Request
    page: str


@dataclass
class World:
    """Everything that a step can choose from."""

    actors: dict[str, Actor] = field(default_factory=dict)
    outcasts: dict[str, Actor] = field(default_factory=dict)
    """Those whose key is refused: unknown, revoked, expired, of a disabled workspace."""

    stores: dict[str, Store] = field(default_factory=dict)
    principals: dict[str, str] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)
    assignments: dict[str, str] = field(default_factory=dict)
    delegations: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    workspaces: dict[str, str] = field(default_factory=dict)
    """Each workspace's status."""

    cursors: deque[Cursor] = field(default_factory=lambda: deque(maxlen=RECENT_CURSORS))
    requests: deque[Request] = field(default_factory=lambda: deque(maxlen=RECENT_REQUESTS))
    step: int = 0
    workspace: str = DEFAULT_WORKSPACE

    def request(
        self,
        actor: Actor,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Request:
        """The actor's request; a body is sent as JSON, a query's parameters that are None not."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        found = (*identify(actor), *(headers or {}).items())
        sent = b"" if body is None else encode_body(body)
        return Request(actor.name, method, target, found, sent)


IDENTIFYING = ("Authorization", "Muniment-Acted-As")


def identify(actor: Actor) -> tuple[tuple[str, str], ...]:
    """The headers that say who sends a request."""
    acting = () if actor.acted_as is None else (("Muniment-Acted-As", actor.acted_as),)
    return (*bearer(actor), *acting)


def bearer(actor: Actor) -> tuple[tuple[str, str], ...]:
    """The header with the actor's key; none without one."""
    return () if actor.secret is None else (("Authorization", f"Bearer {actor.secret}"),)


def encode_body(body: object) -> bytes:
    """A body as JSON, lone surrogates as escapes."""
    text = json.dumps(body, ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def query_of(request: Request) -> dict[str, str]:
    """The parameters of a request's query; of a repeated one the last."""
    return dict(parse_qsl(request.target.partition("?")[2], keep_blank_values=True))


def fields_of(request: Request) -> dict[str, Any]:
    """The fields of a request's body; none where it is no JSON object."""
    try:
        found = json.loads(request.body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def store_of(world: World, request: Request) -> Store | None:
    """The store that a request's path names, where it is known."""
    parts = request.path.split("/")
    return world.stores.get(parts[3]) if len(parts) > 3 else None


Learn = Callable[[World, Request, Any], None]
"""What the world learns from a request and the body of its answer, which is a success."""


def learn(world: World, route: str, request: Request, answer: Answer) -> None:
    """Adds to the world what the answer of the route (`POST /v1/…/{id}`) told."""
    if request.method != DEED:
        world.requests.append(request)
    body = answer.json()
    if answer.status == 401:
        actor = world.actors.get(request.actor)
        if actor is not None and request.headers[:1] == bearer(actor):
            world.outcasts[actor.name] = world.actors.pop(actor.name)
    elif answer.status == 409:
        _learn_from_conflict(world, request, body["error"].get("detail", {}))
    elif answer.status == 503 and route == "DELETE /v1/memory-stores/{id}":
        _learn_deletion(world, request, body)
    elif answer.status < 400:
        if route in LEARNING:
            LEARNING[route](world, request, body)
        if isinstance(body, dict) and body.get("next_page"):
            world.cursors.append(Cursor(request, body["next_page"]))


def actors_of(world: World, subject: Mapping[str, str]) -> dict[str, str]:
    """The names of the actors that act as this principal; none for another kind of subject."""
    principal = subject.get("principal", "")
    return {name: name for name, one in world.actors.items() if one.principal == principal}


def _learn_from_conflict(world: World, request: Request, detail: Mapping[str, Any]) -> None:
    store = store_of(world, request)
    if store is not None and "current_version" in detail:
        store.version = detail["current_version"]
    if store is not None and detail.get("current_sha256") and "path" in detail:
        store.hashes[detail["path"]] = detail["current_sha256"]


def _learn_store(world: World, request: Request, body: Any) -> None:
    store = world.stores.setdefault(body["id"], Store(body["id"], 0, {}, {}, {}))
    store.users.update(actors_of(world, body["owner"]))
    store.version = body["version"]
    store.writable = (body["status"], body["promotion_policy"]) == ("active", "direct")


def _learn_deletion(world: World, request: Request, body: Any) -> None:
    store = store_of(world, request)
    if store is not None:
        store.writable = False


def _learn_self(world: World, request: Request, body: Any) -> None:
    actor = world.actors.get(request.actor)
    if actor is None or actor.principal is not None or request.headers != bearer(actor):
        return
    principal, key = body["principal"]["id"], body["api_key"]["id"]
    world.actors[actor.name] = structs.replace(actor, principal=principal, key=key)
    world.principals[principal] = principal


def _learn_document(world: World, request: Request, body: Any) -> None:
    store = store_of(world, request)
    if store is not None and body is not None:
        store.see(body["path"], body["sha256"])
        store.users[request.actor] = request.actor


def _learn_removal(world: World, request: Request, body: Any) -> None:
    store, path = store_of(world, request), query_of(request).get("path")
    if store is not None and path is not None:
        store.see(path, None)


def _learn_key(world: World, request: Request, body: Any) -> None:
    if "secret" not in body:
        return
    name, admin = f"{body['role']} {world.step}", body["role"] == "admin"
    actor = Actor(name, body["secret"], body["principal"], body["id"], admin=admin)
    world.actors[name] = actor
    world.keys[body["id"]] = body["id"]
    world.principals[body["principal"]] = body["principal"]


def _learn_delegation(world: World, request: Request, body: Any) -> None:
    world.delegations[body["id"]] = body["id"]
    for actor in list(world.actors.values()):
        if actor.principal == body["delegate"]["principal"] and actor.acted_as is None:
            name = f"{actor.name} as another {world.step}"
            world.actors[name] = Actor(
                name, actor.secret, body["principal"], actor.key, acted_as=body["principal"]
            )


def _learn_assignment(world: World, request: Request, body: Any) -> None:
    world.assignments[body["id"]] = body["id"]
    store = world.stores.get(body["resource"]["memory_store"])
    if store is not None:
        store.users.update(actors_of(world, body["subject"]))


def _noting(kind: str) -> Learn:
    """Notes the id of what was made, or of what a list shows."""

    def note(world: World, request: Request, body: Any) -> None:
        for item in body.get("items", [body]):
            getattr(world, kind)[item["id"]] = item["id"]

    return note


def _learn_jobs(world: World, request: Request, body: Any) -> None:
    if "page" not in query_of(request):
        world.jobs.clear()  # what is done is not listed any more
    _noting("jobs")(world, request, body)


def _learn_workspace(world: World, request: Request, body: Any) -> None:
    world.workspaces[body["workspace"]] = body.get("status", "active")
    if "secret" in body:
        name = f"founder {world.step}"
        world.actors[name] = Actor(name, body["secret"], body["principal"], body["key"], admin=True)


_DOCUMENT = "/v1/memory-stores/{id}/document"
LEARNING: dict[str, Learn] = {
    "POST /v1/memory-stores": _learn_store,
    "GET /v1/memory-stores/{id}": _learn_store,
    "PATCH /v1/memory-stores/{id}": _learn_store,
    "POST /v1/memory-stores/{id}/archive": _learn_store,
    f"GET {_DOCUMENT}": _learn_document,
    f"PUT {_DOCUMENT}": _learn_document,
    f"DELETE {_DOCUMENT}": _learn_removal,
    "DELETE /v1/memory-stores/{id}": _learn_deletion,
    "GET /v1/whoami": _learn_self,
    "POST /v1/api-keys": _learn_key,
    "POST /v1/principals": _noting("principals"),
    "POST /v1/delegations": _learn_delegation,
    "POST /v1/permission-assignments": _learn_assignment,
    "GET /v1/permission-assignments": _noting("assignments"),
    "POST /v1/agents": _noting("agents"),
    "POST /v1/sessions": _noting("sessions"),
    "POST /v1/surface-scopes": _noting("scopes"),
    "GET /v1/jobs": _learn_jobs,
    f"{DEED} create_workspace": _learn_workspace,
    f"{DEED} disable_workspace": _learn_workspace,
    f"{DEED} enable_workspace": _learn_workspace,
}
"""What is learned from each route that tells of something to use later."""
