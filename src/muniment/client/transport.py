"""How a request reaches the application: in this process, without a socket or HTTP's text (R-87).

The in-process transports are handed the opened application and know only that it speaks ASGI.
Over a network it is `muniment.client.http`, which is loaded when a client has a URL.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from muniment.client.calls import Answer, Call, check_headers
from muniment.client.errors import error_of_failure
from muniment.client.portal import Portal, PortalClosed
from muniment.model.errors import Failure

Message = MutableMapping[str, Any]
Asgi = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]
Opener = Callable[[], AbstractAsyncContextManager[Asgi]]

HOST = (b"host", b"127.0.0.1")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent; `target` is path and query."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def request_of(call: Call[Any], headers: Mapping[str, str]) -> Request:
    """The call's request, with a client's headers. Malformed where a part of it cannot be sent."""
    together = {**headers, **call.headers}
    check_headers(together)
    return Request(call.method, call.target, together, call.body)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a client over a network.

    `seconds` is the longest wait for the next bytes of an answer, `connect_seconds` for a
    connection; `connections` is how many are open at once.
    """

    seconds: float = 60.0
    connect_seconds: float = 5.0
    connections: int = 20


DEFAULT_LIMITS = Limits()


class Transport(Protocol):
    """Sends one request and waits for its answer. NoAnswer where there is none."""

    def send(self, request: Request) -> Answer:
        """The answer."""

    def close(self) -> None:
        """Gives up what it holds; may be called again."""


class AsyncTransport(Protocol):
    """Like Transport, without blocking; `open` fails early, and is not needed."""

    async def open(self) -> None:
        """Opens what the first request would open."""

    async def send(self, request: Request) -> Answer:
        """The answer."""

    async def close(self) -> None:
        """Gives up what it holds; may be called again."""


def http_transport(url: str, limits: Limits) -> Transport:
    """A transport to a server."""
    made: Transport = _http().HttpTransport(url, limits)
    return made


def async_http_transport(url: str, limits: Limits) -> AsyncTransport:
    """A transport to a server, for an event loop."""
    made: AsyncTransport = _http().AsyncHttpTransport(url, limits)
    return made


def _http() -> Any:
    # httpx takes longer to load than all of Muniment, and an embedded client needs none of it.
    return import_module("muniment.client.http")


class AsyncInProcess:
    """Calls the application in the caller's own event loop, opening it at the first request."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._opened: AbstractAsyncContextManager[Asgi] | None = None
        self._app: Asgi | None = None
        self._lock = asyncio.Lock()
        self._closed = False

    async def open(self) -> None:
        """Opens the application. Unavailable, Denied, … as the storage says; once is enough."""
        async with self._lock:
            if self._closed:
                raise RuntimeError("this client is closed")
            if self._app is None:
                opened = self._opener()
                try:
                    self._app = await opened.__aenter__()
                except Failure as failure:
                    raise error_of_failure(failure) from failure
                self._opened = opened

    async def send(self, request: Request) -> Answer:
        """The application's answer."""
        if self._app is None:
            await self.open()
        assert self._app is not None
        return await call_asgi(self._app, request)

    async def close(self) -> None:
        """Closes the application with its storage."""
        async with self._lock:
            self._closed = True
            self._app = None
            opened, self._opened = self._opened, None
            if opened is not None:
                await opened.__aexit__(None, None, None)


class InProcess:
    """Calls the application in a portal's event loop, from any thread; opened when it is made."""

    def __init__(self, opener: Opener, portal: Portal) -> None:
        self._inner = AsyncInProcess(opener)
        self._portal = portal
        try:
            portal.run(self._inner.open())
        except BaseException:
            portal.close()
            raise

    def send(self, request: Request) -> Answer:
        """The application's answer."""
        return self._portal.run(self._inner.send(request))

    def close(self) -> None:
        """Closes the application with its storage, and the portal."""
        try:
            if self._portal.alive:
                self._portal.run(self._inner.close())
        except PortalClosed:  # another thread was faster
            pass
        self._portal.close()


async def call_asgi(app: Asgi, request: Request) -> Answer:
    """One request through an ASGI application."""
    path, _, query = request.target.partition("?")
    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [HOST, *headers],
        "client": None,
        "server": None,
    }
    status = 0
    answered: dict[str, str] = {}
    body = b""

    async def receive() -> Message:
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
            for name, value in message["headers"]:
                answered[name.decode()] = value.decode("latin-1")
        else:
            body += message.get("body", b"")

    await app(scope, receive, send)
    return Answer(status, answered, body)
