"""The raw counterpart of a document's PUT: one 4 KB row and one commit a request, in PostgreSQL."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bench.raw.serving import ready, serve

POOL_CONNECTIONS = 10
ROW_BYTES = 4096
_TABLE = (
    "CREATE TABLE rows (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body BYTEA NOT NULL)"
)


def application(dsn: str) -> ASGIApp:
    """Keeps each request's body, cut to 4 KB, as one row, over the driver that ours has."""
    pools: list[Any] = []

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with asyncpg.create_pool(
            dsn, min_size=POOL_CONNECTIONS, max_size=POOL_CONNECTIONS
        ) as pool:
            await pool.execute(_TABLE)
            pools.append(pool)
            yield

    async def put(request: Request) -> Response:
        body = await request.body()
        await pools[0].execute("INSERT INTO rows (body) VALUES ($1)", body[:ROW_BYTES])
        return Response(b'{"kept":true}', 201, media_type="application/json")

    routes = [Route("/document", put, methods=["PUT"]), Route("/readyz", ready)]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    serve(application(sys.argv[2]), int(sys.argv[1]))
