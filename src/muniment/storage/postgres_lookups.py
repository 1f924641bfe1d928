"""Point reads of many callers that wait together, answered by one statement.

Every request asks for its key's row. The statement begins after each of its callers came, so each
is told what stands in the rows now, as if it had asked alone; nothing is kept for the next one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muniment.storage.rows import KEYS_MAX, Row, padded

Answer = asyncio.Future[Row | None]
Fetch = Callable[[str, dict[str, Any]], Awaitable[list[Row]]]
"""Runs a statement of `queries.sql` by its name on a connection of its own."""


class KeyLookups:
    """Finds keys by the hash of their secret, one statement at a time for each workspace."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._waiting: dict[bytes, dict[bytes, list[Answer]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def find(self, workspace: bytes, secret_hash: bytes) -> list[Row]:
        """The rows of `find_key`: one, or none for an unknown key. Fails as the statement does."""
        waiting = self._waiting.get(workspace)
        if waiting is None:
            self._waiting[workspace] = waiting = {}
            task = asyncio.get_running_loop().create_task(self._run(workspace, waiting))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        answer: Answer = asyncio.get_running_loop().create_future()
        waiting.setdefault(secret_hash, []).append(answer)
        row = await answer
        return [] if row is None else [row]

    async def _run(self, workspace: bytes, waiting: dict[bytes, list[Answer]]) -> None:
        """Asks for what waits, again and again, until nothing does."""
        try:
            while waiting:
                asked = {digest: waiting.pop(digest) for digest in list(waiting)[:KEYS_MAX]}
                await self._ask(workspace, asked)
        finally:
            del self._waiting[workspace]

    async def _ask(self, workspace: bytes, asked: dict[bytes, list[Answer]]) -> None:
        found: dict[bytes, Row] = {}
        failure: Exception | None = None
        try:
            values = padded("secret", list(asked)) | {"workspace": workspace}
            found = {row[0]: row[1:] for row in await self._fetch("find_keys", values)}
        except Exception as error:
            failure = error
        for digest, answers in asked.items():
            for answer in answers:
                if answer.done():  # who asked has gone away
                    continue
                if failure is None:
                    answer.set_result(found.get(digest))
                else:
                    answer.set_exception(failure)


class PointExecutor:
    """Runs reads of one statement, each on a connection of its own or with its like."""

    locks = True

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._keys = KeyLookups(fetch)

    async def rows(self, name: str, values: dict[str, Any]) -> list[Row]:
        """The statement's rows."""
        if name == "find_key":
            return await self._keys.find(values["workspace"], values["secret_hash"])
        return await self._fetch(name, values)

    def run(self, name: str, values: dict[str, Any], *, one: bool = False) -> None:
        """A reader writes nothing."""
        raise ValueError(f"{name} runs in a write, not in a read")

    def insert(self, table: str, row: Row) -> None:
        """A reader writes nothing."""
        raise ValueError(f"{table} is written in a write, not in a read")
