"""The blocking client. `muniment.client.asynchronous` has the same methods to await."""

import time
from collections.abc import Callable
from copy import copy
from itertools import count
from typing import Self, TypeVar

from muniment.client import calls
from muniment.client.attempts import pause_after, pause_after_conflict
from muniment.client.calls import Answer, Call, read_answer
from muniment.client.errors import Conflict, NoAnswer, NotFound
from muniment.client.methods import Sender, items, method
from muniment.client.records import DocumentMeta
from muniment.client.transport import (
    DEFAULT_LIMITS,
    Limits,
    Request,
    Transport,
    http_transport,
    request_of,
)

T = TypeVar("T")


class Stores:
    """Stores, by id."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_store)
    get = method(calls.get_store)
    list = items(calls.list_stores)
    list_page = method(calls.list_stores)
    update = method(calls.update_store)
    archive = method(calls.archive_store)
    delete = method(calls.delete_store)
    access = method(calls.store_access)
    events = items(calls.store_events)
    events_page = method(calls.store_events)


class Documents:
    """Documents of a store, by path."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    get = method(calls.get_document)
    put = method(calls.put_document)
    delete = method(calls.delete_document)
    list = items(calls.list_documents)
    list_page = method(calls.list_documents)

    def edit(
        self, store: str, path: str, function: Callable[[str | None], str], *, attempts: int = 8
    ) -> DocumentMeta:
        """Puts what `function` makes of the document's content, None where the path is free.

        Nobody's write is lost: where another came between, `function` is called again with the new
        content, up to `attempts` times in all; then the last Conflict is raised.
        """
        for attempt in count(1):
            sha256, content = self._current(store, path)
            try:
                return self.put(store, path, function(content), if_match=sha256)
            except Conflict as conflict:
                pause = pause_after_conflict(conflict, attempt, attempts)
                if pause is None:
                    raise
                time.sleep(pause)
        raise AssertionError("unreachable")

    def _current(self, store: str, path: str) -> tuple[str | None, str | None]:
        try:
            document = self.get(store, path)
        except NotFound as error:
            if "path" not in error.detail:
                raise
            return None, None
        return document.sha256, document.content


class Keys:
    """API keys, by id."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_key)
    list = items(calls.list_keys)
    list_page = method(calls.list_keys)
    revoke = method(calls.revoke_key)


class Principals:
    """People and services."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_principal)
    list = items(calls.list_principals)
    list_page = method(calls.list_principals)


class Delegations:
    """Who may act as whom."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_delegation)
    list = items(calls.list_delegations)
    list_page = method(calls.list_delegations)
    delete = method(calls.delete_delegation)


class Assignments:
    """Permission assignments: who may read and write which store."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_assignment)
    list = items(calls.list_assignments)
    list_page = method(calls.list_assignments)
    delete = method(calls.delete_assignment)


class Agents:
    """Agents, as owners of stores."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_agent)
    list = items(calls.list_agents)
    list_page = method(calls.list_agents)


class Sessions:
    """Sessions, as owners of stores."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_session)
    list = items(calls.list_sessions)
    list_page = method(calls.list_sessions)


class Scopes:
    """Surface scopes, as owners of stores."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    create = method(calls.create_scope)
    list = items(calls.list_scopes)
    list_page = method(calls.list_scopes)


class Jobs:
    """Jobs that are not finished."""

    def __init__(self, sender: Sender) -> None:
        self.sender = sender

    list = items(calls.list_jobs)
    list_page = method(calls.list_jobs)
    retry = method(calls.retry_job)


class Client:
    """A connection to a server, or with a `transport` to something in this process.

    Safe for threads. Close it, or use it in a `with`; closing twice is fine. Every method raises
    a MunimentError where the call fails, NoAnswer where nothing comes back.
    """

    def __init__(
        self,
        url: str = "",
        key: str = "",
        *,
        limits: Limits = DEFAULT_LIMITS,
        retries: int = 2,
        transport: Transport | None = None,
    ) -> None:
        """A client of the server at `url`, with an API key's secret.

        `retries` bounds how often a request is sent again where that can do no harm.
        """
        self._transport = http_transport(url, limits) if transport is None else transport
        self._headers = calls.headers_of(key)
        self._retries = retries
        self._shared = False
        self._once: str | None = None
        self._add_nouns()

    def _add_nouns(self) -> None:
        self.sender: Sender = self
        self.stores = Stores(self)
        self.documents = Documents(self)
        self.keys = Keys(self)
        self.principals = Principals(self)
        self.delegations = Delegations(self)
        self.assignments = Assignments(self)
        self.agents = Agents(self)
        self.sessions = Sessions(self)
        self.scopes = Scopes(self)
        self.jobs = Jobs(self)

    whoami = method(calls.whoami)
    events = items(calls.list_events)
    events_page = method(calls.list_events)

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

    def send(self, call: Call[T]) -> T:
        """What the call's answer says; sent again only where that can do no harm."""
        call = call.under(self._once)
        request = request_of(call, self._headers)
        for attempt in count(1):
            outcome = self._try(request)
            pause = pause_after(call, outcome, attempt, self._retries)
            if pause is None:
                break
            time.sleep(pause)
        return read_answer(call, outcome)

    def _try(self, request: Request) -> Answer | NoAnswer:
        try:
            return self._transport.send(request)
        except NoAnswer as error:
            return error

    def close(self) -> None:
        """Closes the connections, or the storage of an embedded client."""
        if not self._shared:
            self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
