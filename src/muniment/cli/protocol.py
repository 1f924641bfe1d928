"""uvicorn's HTTP protocol with bounds on a request's head, and refusals in the API's envelope.

The parser has no limits of its own: without these a stranger could make the server keep headers
for ever, and what it cannot parse would be answered in plain text.
"""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS_MAX = 30.0


class BoundedProtocol(HttpToolsProtocol):
    """A connection; `docs_url` is where the error types are explained."""

    docs_url = ""
    _in_head = True
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Gives the first request's head its time."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._head_is_late)

    def data_received(self, data: bytes) -> None:
        """Bounds a head that is not complete yet."""
        super().data_received(data)
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self._refuse(431, f"the request's head is over {HEAD_BYTES_MAX} bytes")
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS_MAX, self._head_is_late)

    def on_message_begin(self) -> None:
        """A head begins."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The head is there: what follows is a body, whose time and size the API bounds."""
        self._head_done()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the clock."""
        self._head_done()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuses what is not HTTP."""
        self._refuse(400, "the request is not valid HTTP/1.1; percent-encode its URL")

    def _head_done(self) -> None:
        self._in_head = False
        self._head_bytes = 0
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        self._head_done()
        if self.transport.is_closing():
            return
        kind = "validation.malformed"
        more = f"{self.docs_url}#validation-malformed"
        body = msgspec.json.encode({"error": {"type": kind, "message": message, "more": more}})
        reason = {400: b"Bad Request", 431: b"Request Header Fields Too Large"}[status]
        self.transport.write(
            b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s" % (status, reason, len(body), body)
        )
        self.transport.close()


def bounded(docs_url: str) -> type[BoundedProtocol]:
    """The protocol class of a server whose error types are explained at `docs_url`."""
    return type("Protocol", (BoundedProtocol,), {"docs_url": docs_url})
