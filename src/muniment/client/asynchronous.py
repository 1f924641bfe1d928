"""The client for asyncio: the methods of `muniment.client.sync`, to await."""

import asyncio
from collections.abc import Callable
from copy import copy
from itertools import count
from typing import Self, TypeVar

from muniment.client import calls
from muniment.client.attempts import pause_after, pause_after_conflict
from muniment.client.calls import Answer, Call, read_answer
from muniment.client.errors import Conflict, NoAnswer, NotFound
from muniment.client.methods import AsyncSender, async_items, async_method
from muniment.client.records import DocumentMeta
from muniment.client.transport import (
    DEFAULT_LIMITS,
    AsyncTransport,
    Limits,
    Request,
    async_http_transport,
    request_of,
)

T = TypeVar("T")


class AsyncStores:
    """Stores, by id."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_store)
    get = async_method(calls.get_store)
    list = async_items(calls.list_stores)
    list_page = async_method(calls.list_stores)
    update = async_method(calls.update_store)
    archive = async_method(calls.archive_store)
    delete = async_method(calls.delete_store)
    access = async_method(calls.store_access)
    events = async_items(calls.store_events)
    events_page = async_method(calls.store_events)


class AsyncDocuments:
    """Documents of a store, by path."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    get = async_method(calls.get_document)
    put = async_method(calls.put_document)
    delete = async_method(calls.delete_document)
    list = async_items(calls.list_documents)
    list_page = async_method(calls.list_documents)

    async def edit(
        self, store: str, path: str, function: Callable[[str | None], str], *, attempts: int = 8
    ) -> DocumentMeta:
        """Puts what `function` makes of the document's content, None where the path is free.

        Nobody's write is lost: where another came between, `function` is called again with the new
        content, up to `attempts` times in all; then the last Conflict is raised.
        """
        for attempt in count(1):
            sha256, content = await self._current(store, path)
            try:
                return await self.put(store, path, function(content), if_match=sha256)
            except Conflict as conflict:
                pause = pause_after_conflict(conflict, attempt, attempts)
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def _current(self, store: str, path: str) -> tuple[str | None, str | None]:
        try:
            document = await self.get(store, path)
        except NotFound as error:
            if "path" not in error.detail:
                raise
            return None, None
        return document.sha256, document.content


class AsyncKeys:
    """API keys, by id."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_key)
    list = async_items(calls.list_keys)
    list_page = async_method(calls.list_keys)
    revoke = async_method(calls.revoke_key)


class AsyncPrincipals:
    """People and services."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_principal)
    list = async_items(calls.list_principals)
    list_page = async_method(calls.list_principals)


class AsyncDelegations:
    """Who may act as whom."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_delegation)
    list = async_items(calls.list_delegations)
    list_page = async_method(calls.list_delegations)
    delete = async_method(calls.delete_delegation)


class AsyncAssignments:
    """Permission assignments: who may read and write which store."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_assignment)
    list = async_items(calls.list_assignments)
    list_page = async_method(calls.list_assignments)
    delete = async_method(calls.delete_assignment)


class AsyncAgents:
    """Agents, as owners of stores."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_agent)
    list = async_items(calls.list_agents)
    list_page = async_method(calls.list_agents)


class AsyncSessions:
    """Sessions, as owners of stores."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_session)
    list = async_items(calls.list_sessions)
    list_page = async_method(calls.list_sessions)


class AsyncScopes:
    """Surface scopes, as owners of stores."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    create = async_method(calls.create_scope)
    list = async_items(calls.list_scopes)
    list_page = async_method(calls.list_scopes)


class AsyncJobs:
    """Jobs that are not finished."""

    def __init__(self, sender: AsyncSender) -> None:
        self.sender = sender

    list = async_items(calls.list_jobs)
    list_page = async_method(calls.list_jobs)
    retry = async_method(calls.retry_job)


class AsyncClient:
    """A connection to a server, or with a `transport` to something in this process.

    For one event loop of asyncio. Close it with `aclose`, or use it in an `async with`; closing
    twice is fine. What it raises is what `Client` raises.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        limits: Limits = DEFAULT_LIMITS,
        retries: int = 2,
        transport: AsyncTransport | None = None,
    ) -> None:
        """A client of the server at `url`, with an API key's secret.

        `retries` bounds how often a request is sent again where that can do no harm.
        """
        self._transport = async_http_transport(url, limits) if transport is None else transport
        self._headers = calls.headers_of(key)
        self._retries = retries
        self._shared = False
        self._once: str | None = None
        self._add_nouns()

    def _add_nouns(self) -> None:
        self.sender: AsyncSender = self
        self.stores = AsyncStores(self)
        self.documents = AsyncDocuments(self)
        self.keys = AsyncKeys(self)
        self.principals = AsyncPrincipals(self)
        self.delegations = AsyncDelegations(self)
        self.assignments = AsyncAssignments(self)
        self.agents = AsyncAgents(self)
        self.sessions = AsyncSessions(self)
        self.scopes = AsyncScopes(self)
        self.jobs = AsyncJobs(self)

    whoami = async_method(calls.whoami)
    events = async_items(calls.list_events)
    events_page = async_method(calls.list_events)

    def acting_as(self, principal: str) -> Self:
        """A client that acts as another principal (R-43), over the same connections.

        Its calls raise Denied without a delegation. Closing it closes nothing.
        """
        other = copy(self)
        other._headers = {**self._headers, calls.ACTED_AS: principal}
        other._shared = True
        other._add_nouns()
        return other

    def once(self, idempotency_key: str) -> Self:
        """A client whose writes carry this key: sent again, a write makes nothing new (R-47).

        One that got no answer is then sent again by itself. The key counts for each kind of write
        by itself; with other fields it is a Conflict. Only the first answer has a key's secret.
        """
        other = copy(self)
        other._once = idempotency_key
        other._shared = True
        other._add_nouns()
        return other

    async def send(self, call: Call[T]) -> T:
        """What the call's answer says; sent again only where that can do no harm."""
        call = call.under(self._once)
        request = request_of(call, self._headers)
        for attempt in count(1):
            outcome = await self._try(request)
            pause = pause_after(call, outcome, attempt, self._retries)
            if pause is None:
                break
            await asyncio.sleep(pause)
        return read_answer(call, outcome)

    async def _try(self, request: Request) -> Answer | NoAnswer:
        try:
            return await self._transport.send(request)
        except NoAnswer as error:
            return error

    async def aclose(self) -> None:
        """Closes the connections, or the storage of an embedded client."""
        if not self._shared:
            await self._transport.close()

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
