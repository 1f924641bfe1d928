"""The raw counterpart of a document's GET: a route that returns the same bytes."""

import sys
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from bench.raw.serving import ready, serve


def application(answer: Path) -> ASGIApp:
    """A route that returns the bytes of a file, read once."""
    body = answer.read_bytes()

    async def get(request: Request) -> Response:
        return Response(body, media_type="application/json")

    return Starlette(routes=[Route("/document", get), Route("/readyz", ready)])


if __name__ == "__main__":
    serve(application(Path(sys.argv[2])), int(sys.argv[1]))
