"""The request log: one JSON line a request, never content.

Lines gather for a moment and are made and written together, which costs a tenth of making each
in its request. What a killed process loses of its log is that moment.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct

FLUSH_SECONDS = 0.05
REQUESTS_MAX = 1_000


class RequestLine(Struct):
    """What is kept of a request: ids, the route's template, the outcome; `ms` is how long."""

    at: str
    event: str
    method: str
    route: str | None
    status: int
    ms: float
    request_id: str
    workspace: str | None
    api_key: str | None


class Sink(Protocol):
    """Where lines go, such as standard error's buffer."""

    def write(self, data: bytes, /) -> object:
        """Takes some bytes."""

    def flush(self) -> object:
        """Hands them on."""


Request = tuple[str, str | None, int, float, str, str | None, str | None]
"""Method, route, status, seconds, request id, workspace, key."""


class RequestLog:
    """Gathers requests and writes their lines; `clock` is UTC microseconds, `render` its text."""

    def __init__(self, sink: Sink, clock: Callable[[], int], render: Callable[[int], str]) -> None:
        self._sink = sink
        self._clock = clock
        self._render = render
        self._requests: list[tuple[int, Request]] = []
        self._encoder = msgspec.json.Encoder()

    def add(self, request: Request) -> None:
        """Keeps a request that has just been answered."""
        if not self._requests:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._requests.append((self._clock(), request))
        if len(self._requests) >= REQUESTS_MAX:
            self.flush()

    def flush(self) -> None:
        """Writes what has gathered."""
        if not self._requests:
            return
        requests, self._requests = self._requests, []
        lines = [
            RequestLine(self._render(at), "request", *told[:3], round(told[3] * 1000, 2), *told[4:])
            for at, told in requests
        ]
        with suppress(OSError):  # nobody reads the log any more: requests go on
            self._sink.write(self._encoder.encode_lines(lines))
            self._sink.flush()
