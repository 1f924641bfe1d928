"""HTTP below the dialects: routes as data, one reader of requests, one writer of answers.

A dialect is a table of routes and an error table. This module finds the route, authenticates,
bounds and reads the request, calls the handler, and turns whatever fails into the dialect's
envelope. No handler catches a Failure itself, and nothing here knows what a store is.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from muniment.api.requestlog import RequestLog
from muniment.model.access import Actor
from muniment.model.errors import (
    Failure,
    Internal,
    InvalidKey,
    Malformed,
    MethodNotAllowed,
    NotFound,
    TooLarge,
)
from muniment.model.receipts import KEY_CHARACTERS_MAX
from muniment.service.app import App
from muniment.service.idempotency import Once, once
from muniment.service.keys import SECRET_CHARACTERS_MAX, authenticate
from muniment.service.paging import (
    CURSOR_CHARACTERS_MAX,
    PAGE_ITEMS_DEFAULT,
    PAGE_ITEMS_MAX,
    Page,
)

T = TypeVar("T")

BODY_BYTES_MAX = 4 * 1024 * 1024
BODY_SECONDS_MAX = 60
SERVED_HOSTS_MAX = 100
QUERY_FIELDS_MAX = 32
INTEGER_MAX = 2**53 - 1
REASON_CHARACTERS_MAX = 200
SINGLE_HEADERS = (
    b"authorization",
    b"content-length",
    b"host",
    b"origin",
    b"if-match",
    b"if-none-match",
    b"idempotency-key",
    b"muniment-acted-as",
    b"muniment-version",
    b"checkfu-version",
)
"""Headers of which a request has at most one."""

_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNKNOWN_FIELD = re.compile(r"unknown field `([^`]{1,64})`")
_PORT = re.compile(r":[0-9]{1,5}\Z", re.ASCII)
REQUEST_ID = b"muniment-request-id"
_JSON = (b"content-type", b"application/json")
_ENCODER = msgspec.json.Encoder()

log = logging.getLogger("muniment.http")


class Reply(Struct, frozen=True):
    """An answer: a body that is encoded as JSON, or raw bytes of a media type."""

    status: int
    body: object = None
    headers: Sequence[tuple[bytes, bytes]] = ()
    media_type: bytes | None = None


Handler = Callable[[App, "Call"], Awaitable[Reply]]


NO_NUL: Mapping[str, object] = {"type": "string", "pattern": r"^[^\x00]*$"}


@dataclass(frozen=True, slots=True)
class Query:
    """A query parameter, for reading, refusing others, and the OpenAPI document."""

    name: str
    description: str
    schema: Mapping[str, object] = field(default_factory=lambda: NO_NUL)
    required: bool = False


IDEMPOTENCY_KEY = Query(
    "Idempotency-Key",
    "Sent again with the same request: nothing is made twice, and the answer is the first.",
    {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX, "pattern": "^[ -~]*$"},
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Another success of a route than its usual one."""

    status: int
    description: str
    gives: Any = None


@dataclass(frozen=True, slots=True)
class Route:
    """One operation: where it answers, who may ask, the shapes it takes and gives, how it fails.

    `others` are further successes, `sends` the headers of all of them. `fails` leaves out what
    every route of the dialect may fail of.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    status: int = 200
    query: tuple[Query, ...] = ()
    takes: Any = None
    gives: Any = None
    headers: tuple[Query, ...] = ()
    others: tuple[Answer, ...] = ()
    sends: tuple[Query, ...] = ()
    fails: tuple[type[Failure], ...] = ()
    authenticated: bool = True
    known: frozenset[str] = field(init=False)
    """The names of the query parameters."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "known", frozenset(query.name for query in self.query))
        if self.method != "GET":
            object.__setattr__(self, "headers", (*self.headers, IDEMPOTENCY_KEY))


@dataclass(frozen=True, slots=True)
class Dialect:
    """A wire API: its routes, what it checks first, and how it says that something failed.

    `statuses` is its error table. `params` describes the variable segments of its paths, `headers`
    are those that every request may have, `fails` is what every route may fail of.
    """

    name: str
    prefix: str
    routes: tuple[Route, ...]
    check: Callable[["Call"], None]
    render: Callable[[Failure], Reply]
    statuses: Mapping[type[Failure], int] = field(default_factory=dict)
    params: Mapping[str, Query] = field(default_factory=dict)
    headers: tuple[Query, ...] = ()
    fails: tuple[type[Failure], ...] = ()


class Call:
    """One request, read on demand; every reader fails as Malformed and names the field."""

    __slots__ = ("_decoded", "_query", "actor", "body", "headers", "params", "raw_query", "route")

    def __init__(self, scope: Scope, route: Route, params: dict[str, str]) -> None:
        self.route = route
        self.params = params
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        if len(self.headers) != len(scope["headers"]):
            _refuse_repeated(scope["headers"])
        self.raw_query: bytes = scope["query_string"]
        self.body = b""
        self.actor: Actor | None = None
        self._query: dict[str, str] | None = None
        self._decoded: object = None

    def who(self) -> Actor:
        """The authenticated actor of a route that asks for one."""
        if self.actor is None:
            raise InvalidKey("send Authorization: Bearer <key>")
        return self.actor

    def header(self, name: bytes) -> str | None:
        """A header's text, None if absent."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1").strip()

    def check_query(self) -> None:
        """Refuses what `query` refuses, also where the handler reads no parameter."""
        self._query = self._read_query()

    @property
    def query(self) -> dict[str, str]:
        """The query parameters; unknown and repeated ones are refused, and NUL in any."""
        if self._query is None:
            self._query = self._read_query()
        return self._query

    def _read_query(self) -> dict[str, str]:
        if not self.raw_query:
            return {}
        if self.raw_query.count(b"&") >= QUERY_FIELDS_MAX:
            raise Malformed(f"a query has at most {QUERY_FIELDS_MAX} parameters")
        try:
            fields = [
                (_unescape(name), _unescape(value))
                for name, _, value in (
                    field.partition("=")
                    for field in self.raw_query.decode("ascii").split("&")
                    if field
                )
            ]
        except ValueError:
            raise Malformed("the query string must be percent-encoded UTF-8") from None
        known = self.route.known
        found: dict[str, str] = {}
        for name, value in fields:
            if name not in known:
                allowed = ", ".join(sorted(known)) or "none"
                raise Malformed(
                    f"unknown query parameter {name[:64]!r}; known here: {allowed}",
                    field=name[:64],
                )
            if name in found:
                raise Malformed(f"{name} must be given once", field=name)
            if "\x00" in value:
                raise Malformed(f"{name} must not contain NUL", field=name)
            found[name] = value
        return found

    def text(self, name: str) -> str | None:
        """A query parameter's text, None if absent."""
        return self.query.get(name)

    def required(self, name: str) -> str:
        """A query parameter that must be there."""
        value = self.query.get(name)
        if value is None:
            raise Malformed(f"the query parameter {name} is required", field=name)
        return value

    def integer(self, name: str, low: int, high: int, default: int) -> int:
        """A whole number from `low` to `high`."""
        value = self.query.get(name)
        if value is None:
            return default
        rule = f"{name} must be a whole number from {low} to {high}"
        if not (value.isascii() and value.isdigit() and len(value) <= 16):
            raise Malformed(rule, field=name, limit=high)
        number = int(value)
        if not low <= number <= high:
            raise Malformed(rule, field=name, limit=high)
        return number

    def flag(self, name: str) -> bool:
        """`true` or `false`; absent is false."""
        value = self.query.get(name, "false")
        if value not in ("true", "false"):
            raise Malformed(f"{name} must be true or false", field=name)
        return value == "true"

    def page(self) -> Page:
        """The `limit` and `page` parameters of a list."""
        cursor = self.query.get("page")
        if cursor is not None and len(cursor) > CURSOR_CHARACTERS_MAX:
            raise Malformed("page is not a cursor of ours", field="page")
        return Page(self.integer("limit", 1, PAGE_ITEMS_MAX, PAGE_ITEMS_DEFAULT), cursor)

    def json(self, kind: type[T]) -> T:
        """The body as a shape of the dialect. One clear Malformed for whatever is wrong with it."""
        try:
            value = msgspec.json.decode(self.body, type=kind)
        except msgspec.ValidationError as error:
            reason = str(error)[:REASON_CHARACTERS_MAX]
            raise Malformed(f"the body does not fit: {reason}", field=_field_of(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = str(error)[:REASON_CHARACTERS_MAX]
            if "truncated" in reason and self.body.rstrip().endswith(b"}"):
                reason = "invalid UTF-8 or a lone surrogate"
            raise Malformed(f"the body must be one JSON object in UTF-8: {reason}") from None
        if _may_repeat(kind, self.body):
            _refuse_duplicates(self.body)
        if b"\\u0000" in self.body:
            _refuse_nul(msgspec.to_builtins(value), "")
        self._decoded = value
        return value

    def once(self, app: App) -> Once | None:
        """The request under its idempotency key, None without one; read the body before (R-47)."""
        key = self.header(b"idempotency-key")
        if key is None:
            return None
        where = self.route.path.format(**self.params)
        matches = [(self.header(name) or "").strip('"') for name in (b"if-match", b"if-none-match")]
        said = (self.query, matches, self._decoded)
        request = msgspec.json.encode(said, order="sorted")
        return once(app, f"{self.route.method} {where}", key, request)


def _unescape(text: str) -> str:
    """A query's text without its escapes. ValueError where they are not UTF-8."""
    if "%" not in text and "+" not in text:
        return text
    if _BAD_ESCAPE.search(text) is not None:
        raise ValueError("a bare percent sign")
    if "+" in text:
        text = text.replace("+", " ")
    return unquote_to_bytes(text).decode()


def _field_of(error: msgspec.ValidationError) -> str | None:
    text = str(error)
    unknown = _UNKNOWN_FIELD.search(text)
    _, found, place = text.rpartition("`$.")
    if unknown is not None:
        return f"{place.rstrip('`')}.{unknown[1]}" if found else unknown[1]
    return place.rstrip("`") if found else None


def _refuse_nul(value: object, place: str) -> None:
    """Malformed, naming the field, where any text holds NUL (R-17)."""
    if isinstance(value, str):
        if "\x00" in value:
            raise Malformed(f"{place} must not contain NUL", field=place)
    elif isinstance(value, dict):
        for key, item in value.items():
            _refuse_nul(key, f"{place}.{key}".lstrip(".") if place else str(key))
            _refuse_nul(item, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            _refuse_nul(item, f"{place}[{n}]")


def _refuse_repeated(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Malformed where a header that we read stands there twice: which one counts is not ours."""
    names = [name for name, _ in headers]
    for name in SINGLE_HEADERS:
        if names.count(name) > 1:
            raise Malformed(f"{name.decode().title()} must be sent once", field=name.decode())


def _may_repeat(kind: type, body: bytes) -> bool:
    """Whether an object of the body could have one key twice; unknown keys are refused before."""
    names: tuple[str, ...] = kind.__struct_fields__  # type: ignore[attr-defined]  # a shape
    if len(names) > 1 or b"\\u" in body:
        return True
    return body.count(b'"' + names[0].encode() + b'"') > 1


def _refuse_duplicates(body: bytes) -> None:
    """Malformed where an object has one key twice: parsers differ in which one they take."""

    def collect(pairs: list[tuple[str, object]]) -> None:
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise Malformed(f"the field {name[:64]} must be given once", field=name[:64])
            seen.add(name)

    try:
        json.loads(body, object_pairs_hook=collect)
    except (ValueError, RecursionError):
        raise Malformed("the body must be one JSON object in UTF-8") from None


class Routes:
    """A dialect's routes as a tree of path segments, so that finding one costs its depth."""

    def __init__(self, dialects: Sequence[Dialect]) -> None:
        self._root: dict[str, Any] = {}
        for dialect in dialects:
            for route in dialect.routes:
                node = self._root
                for segment in route.path.split("/")[1:]:
                    key = "*" if segment.startswith("{") else segment
                    node = node.setdefault(key, {})
                node.setdefault("", {})[route.method] = (dialect, route, _names(route.path))

    def find(
        self, path: str
    ) -> tuple[dict[str, tuple[Dialect, Route, tuple[str, ...]]], list[str]]:
        """The routes of every method at the path, with the values of its variable segments."""
        node: dict[str, Any] = self._root
        values: list[str] = []
        for segment in path.split("/")[1:]:
            inner = node.get(segment) if segment else None
            if inner is None:
                inner = node.get("*")
                if inner is None or not segment:
                    return {}, values
                values.append(segment)
            node = inner
        return node.get("", {}), values


def _names(path: str) -> tuple[str, ...]:
    return tuple(part[1:-1] for part in path.split("/") if part.startswith("{"))


class HttpApp:
    """The ASGI application over all dialects. The first dialect answers where no route does."""

    def __init__(
        self,
        app: App,
        dialects: Sequence[Dialect],
        *,
        hosts: Sequence[str] = ("*",),
        new_request_id: Callable[[], str],
        request_log: RequestLog | None = None,
    ) -> None:
        self._app = app
        self._dialects = tuple(dialects)
        self._routes = Routes(dialects)
        self._hosts = frozenset(hosts)
        self._served: set[bytes] = set()
        self._new_request_id = new_request_id
        self._log = request_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request; other protocols are refused."""
        if scope["type"] != "http":
            raise ValueError("this application speaks HTTP only")
        started = perf_counter()
        request_id = self._new_request_id()
        call: Call | None = None
        dialect = self._dialects[0]
        try:
            dialect, call = self._find(scope)
            if call.route.authenticated:
                self._check_host(call)
                call.actor = await self._authenticate(call)
            dialect.check(call)
            if call.raw_query:
                call.check_query()
            call.body = await _read_body(call, receive)
            reply = await call.route.handler(self._app, call)
        except Failure as failure:
            if isinstance(failure, Internal):
                log.error(failure.message, extra={"request_id": request_id})
            reply = dialect.render(failure)
        except Exception:
            route = None if call is None else call.route.path
            log.exception("failed", extra={"request_id": request_id, "route": route})
            reply = dialect.render(Internal(f"unexpected failure; request id {request_id}"))
        await _send(send, reply, request_id)
        if self._log is not None:
            actor = None if call is None else call.actor
            who = (None, None) if actor is None else (actor.workspace, actor.key)
            route = None if call is None else call.route.path
            took = perf_counter() - started
            self._log.add((scope["method"], route, reply.status, took, request_id, *who))

    def _check_host(self, call: Call) -> None:
        """Malformed for a Host or Origin we do not serve: a page elsewhere may not reach us.

        Routes without a key say nothing that a page could not know; probers name any host.
        """
        if "*" in self._hosts:
            return
        for name in (b"host", b"origin"):
            value = call.headers.get(name)
            if value is None or value in self._served:
                continue
            host = value.decode("latin-1").rpartition("://")[2].lower()
            if _PORT.sub("", host) not in self._hosts:
                raise Malformed(
                    f"{name.decode().capitalize()} is not a host of this server;"
                    " allow it with MUNIMENT_ALLOWED_HOSTS",
                    field=name.decode(),
                )
            if len(self._served) < SERVED_HOSTS_MAX:
                self._served.add(value)

    def _find(self, scope: Scope) -> tuple[Dialect, Call]:
        raw = scope.get("raw_path") or scope["path"].encode()
        try:
            methods, values = self._routes.find(raw.decode("ascii"))
            if b"%" in raw:
                values = [unquote_to_bytes(value).decode() for value in values]
        except (UnicodeDecodeError, ValueError):
            raise Malformed("the URL's path must be percent-encoded UTF-8") from None
        if not methods:
            raise NotFound("no such route: the API is below /v1, see /openapi.json")
        found = methods.get(scope["method"])
        if found is None:
            raise MethodNotAllowed(
                f"{scope['method'][:16]} is not allowed here", allow=sorted(methods)
            )
        dialect, route, names = found
        return dialect, Call(scope, route, dict(zip(names, values, strict=True)))

    async def _authenticate(self, call: Call) -> Actor:
        scheme, _, secret = (call.header(b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer" or not secret:
            raise InvalidKey("send Authorization: Bearer <key>")
        if len(secret) > SECRET_CHARACTERS_MAX:
            raise InvalidKey("no such API key")
        return await authenticate(self._app, secret, call.header(b"muniment-acted-as"))


async def _read_body(call: Call, receive: Receive) -> bytes:
    """The whole body; TooLarge over the limit, before it is read where its length is declared."""
    declared = call.headers.get(b"content-length", b"0")
    if declared.isdigit() and (len(declared) > 9 or int(declared) > BODY_BYTES_MAX):
        raise TooLarge(f"the body is over {BODY_BYTES_MAX} bytes", limit=BODY_BYTES_MAX)
    if call.route.method == "GET" and declared == b"0":
        return b""
    if call.headers.get(b"content-encoding", b"identity") != b"identity":
        raise Malformed("bodies are not compressed here", field="Content-Encoding")
    body = b""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Malformed("the request ended before its body")
                body = message.get("body", b"")
                size += len(body)
                if size > BODY_BYTES_MAX:
                    raise TooLarge(f"the body is over {BODY_BYTES_MAX} bytes", limit=BODY_BYTES_MAX)
                if not message.get("more_body", False):
                    return body if not parts else b"".join([*parts, body])
                parts.append(body)
    except TimeoutError:
        raise Malformed(f"the body did not arrive within {BODY_SECONDS_MAX} seconds") from None


async def _send(send: Send, reply: Reply, request_id: str) -> None:
    if reply.body is None:
        body = b""
    elif isinstance(reply.body, bytes):
        body = reply.body
    else:
        body = _ENCODER.encode(reply.body)
    headers = [(REQUEST_ID, request_id.encode()), *reply.headers]
    if reply.media_type is not None:
        headers.append((b"content-type", reply.media_type))
    elif body:
        headers.append(_JSON)
    if reply.status not in (204, 304):
        headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
