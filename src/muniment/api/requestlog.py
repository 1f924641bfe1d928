"""The request log: one JSON line a request, never content.

A line costs a fortieth of a request this way, and a fifth through the general logger; so lines
gather for a moment and are written together. What a killed process loses of them is that moment.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct

FLUSH_SECONDS = 0.05
LINES_MAX = 1_000


class RequestLine(Struct):
    """What is kept of a request: ids, the route's template, the outcome."""

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


class RequestLog:
    """Gathers lines and writes them together; `clock` gives the time's text."""

    def __init__(self, sink: Sink, clock: Callable[[], str]) -> None:
        self._sink = sink
        self._clock = clock
        self._lines: list[bytes] = []
        self._encoder = msgspec.json.Encoder()

    def add(
        self,
        request: tuple[str, str | None, int, float],
        request_id: str,
        who: tuple[str | None, str | None],
    ) -> None:
        """Keeps the line of a (method, route, status, milliseconds) from a (workspace, key)."""
        line = RequestLine(self._clock(), "request", *request, request_id, *who)
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._lines.append(self._encoder.encode(line))
        if len(self._lines) > LINES_MAX:
            self.flush()

    def flush(self) -> None:
        """Writes what has gathered."""
        if self._lines:
            lines, self._lines = self._lines, []
            self._sink.write(b"\n".join(lines) + b"\n")
            self._sink.flush()
