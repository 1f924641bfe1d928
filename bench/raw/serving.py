"""How a raw server is served: the same uvicorn, under the same options as `muniment serve`."""

import socket

import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75


async def ready(request: Request) -> Response:
    """200, so that the benchmark knows that the server is up."""
    return Response(b"")


def serve(app: ASGIApp, port: int) -> None:
    """Serves until SIGTERM."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    uvicorn.Server(config).run(sockets=[listener])
