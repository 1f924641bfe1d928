"""Requests over a network, through httpx: connections are kept and shared."""

from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from muniment import __version__
from muniment.client.calls import Answer
from muniment.client.errors import NoAnswer
from muniment.client.transport import Limits, Request

USER_AGENT = f"muniment-python/{__version__}"
KEEP_ALIVE_SECONDS = 30.0

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class HttpTransport:
    """A pool of connections to one server, for threads."""

    def __init__(self, url: str, limits: Limits) -> None:
        self._url = base_url(url)
        self._client = httpx.Client(
            timeout=_timeout(limits),
            limits=_pool(limits),
            headers={"user-agent": USER_AGENT},
            trust_env=not _is_here(self._url),
        )

    def send(self, request: Request) -> Answer:
        """The server's answer. NoAnswer where it gives none."""
        with _no_answer(self._url):
            answer = self._client.request(
                request.method,
                self._url + request.target,
                content=request.body or None,
                headers=request.headers,
            )
        return _read(answer)

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()


class AsyncHttpTransport:
    """A pool of connections to one server, for an event loop."""

    def __init__(self, url: str, limits: Limits) -> None:
        self._url = base_url(url)
        self._client = httpx.AsyncClient(
            timeout=_timeout(limits),
            limits=_pool(limits),
            headers={"user-agent": USER_AGENT},
            trust_env=not _is_here(self._url),
        )

    async def open(self) -> None:
        """Nothing: the first request connects."""

    async def send(self, request: Request) -> Answer:
        """The server's answer. NoAnswer where it gives none."""
        with _no_answer(self._url):
            answer = await self._client.request(
                request.method,
                self._url + request.target,
                content=request.body or None,
                headers=request.headers,
            )
        return _read(answer)

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.aclose()


def base_url(url: str) -> str:
    """The URL without a slash at its end. ValueError unless it is one of HTTP."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ValueError(f"{url!r} is not a URL: {error}") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError(f"{url!r} must begin with http:// or https:// and name a host")
    return url.rstrip("/")


def _is_here(url: str) -> bool:
    """Whether the server is on this machine: no proxy may see the owner's key then (R-05)."""
    return httpx.URL(url).host in ("127.0.0.1", "::1", "localhost")


def _timeout(limits: Limits) -> httpx.Timeout:
    return httpx.Timeout(limits.seconds, connect=limits.connect_seconds)


def _pool(limits: Limits) -> httpx.Limits:
    return httpx.Limits(
        max_connections=limits.connections,
        max_keepalive_connections=limits.connections,
        keepalive_expiry=KEEP_ALIVE_SECONDS,
    )


@contextmanager
def _no_answer(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.RequestError, UnicodeError) as error:  # the latter for a host that is no name
        reason = str(error) or type(error).__name__
        sent = not isinstance(error, (*_NEVER_SENT, UnicodeError))
        doubt = "; the request may have been carried out" if sent else ""
        raise NoAnswer(f"no answer from {url}: {reason}{doubt}", sent=sent) from error


def _read(answer: httpx.Response) -> Answer:
    return Answer(answer.status_code, answer.headers, answer.content)
