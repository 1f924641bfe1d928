"""The raw counterpart of a document's PUT: one 4 KB row a request, group-committed into SQLite."""

import asyncio
import queue
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bench.raw.serving import ready, serve

GROUP_MAX = 256
ROW_BYTES = 4096
_TABLE = "CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB NOT NULL)"
_PRAGMAS = ("journal_mode = wal", "synchronous = FULL", "busy_timeout = 60000")


class Writer:
    """Group commit: a thread that takes all rows that wait, commits once, then answers."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for pragma in _PRAGMAS:
            self._connection.execute(f"PRAGMA {pragma}").fetchall()
        self._connection.execute(_TABLE)
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = (
            queue.SimpleQueue()
        )
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    async def insert(self, row: bytes) -> None:
        """Returns once the row is durable."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((row, done))
        await done

    def stop(self) -> None:
        """Finishes what waits."""
        self._queue.put(None)
        self._thread.join()
        self._connection.close()

    def _work(self) -> None:
        cursor = self._connection.cursor()
        stopping = False
        while not stopping:
            batch = [self._queue.get()]
            while len(batch) < GROUP_MAX:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            stopping = None in batch
            rows = [one for one in batch if one is not None]
            cursor.execute("BEGIN IMMEDIATE")
            for row, _ in rows:
                cursor.execute("INSERT INTO rows (body) VALUES (?)", (row,))
            cursor.execute("COMMIT")
            self._loop.call_soon_threadsafe(_resolve, [done for _, done in rows])


def _resolve(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(None)


def application(path: Path) -> ASGIApp:
    """Keeps each request's body, cut to 4 KB, as one durable row of SQLite."""
    writers: list[Writer] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        writers.append(Writer(path))
        yield
        writers[0].stop()

    async def put(request: Request) -> Response:
        body = await request.body()
        await writers[0].insert(body[:ROW_BYTES])
        return Response(b'{"kept":true}', 201, media_type="application/json")

    routes = [Route("/document", put, methods=["PUT"]), Route("/readyz", ready)]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    serve(application(Path(sys.argv[2])), int(sys.argv[1]))
