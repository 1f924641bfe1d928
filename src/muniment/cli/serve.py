"""`muniment serve`: the HTTP server of one process, and what it says when it starts."""

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
from dataclasses import replace
from types import FrameType

import uvicorn

from muniment import __version__, main
from muniment.cli.command import CommandError
from muniment.settings import Settings

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 30
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def serve(settings: Settings, *, quiet: bool) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what runs and returns.

    CommandError where the address cannot be listened on; Failure where the database cannot be
    opened.
    """
    listener = bind(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    settings = replace(settings, base_url=settings.base_url or address_of(settings))
    main.configure_logging(settings)
    # The storage says the same once, and in one line.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)
    with contextlib.closing(listener):
        answer(settings, listener, quiet=quiet)


def bind(host: str, port: int) -> socket.socket:
    """A socket that has the address, before anything slow is done. CommandError if it is taken."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        advice = "choose another with --port, or --port 0 for a free one"
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"cannot listen on {host}:{port}: {reason}; {advice}") from None
    return listener


def answer(settings: Settings, listener: socket.socket, *, quiet: bool) -> None:
    """Runs uvicorn over the opened application; what the storage accepted is finished."""

    async def run() -> None:
        async with main.opened(settings, main.make_request_log(settings)) as http:
            config = uvicorn.Config(
                http,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=GRACE_SECONDS,
            )
            server = uvicorn.Server(config)
            for number in (signal.SIGTERM, signal.SIGINT):
                # uvicorn stops by itself and then raises the signal again, for this to ignore.
                signal.signal(number, _ignore)
            # What a start leaves behind stays for good: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            print(greeting(settings, quiet=quiet), file=sys.stderr, flush=True)
            await server.serve(sockets=[listener])

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop that the platform has."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _ignore(number: int, frame: FrameType | None) -> None:
    pass


def address_of(settings: Settings) -> str:
    """How this machine reaches the server."""
    host = WILDCARDS.get(settings.host, settings.host)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def greeting(settings: Settings, *, quiet: bool) -> str:
    """What people see when the server is ready."""
    url = address_of(settings)
    ready = f"Muniment {__version__} is ready at {url}"
    if quiet:
        return ready
    lines = [
        ready,
        "",
        f"  data  {settings.shown_database}",
        f"  key   {settings.credentials} holds the owner's; commands on this machine use it",
        "",
        "Try, in another terminal:",
        "",
        f"  export MUNIMENT_URL={url}",
        "  muniment store create notes",
        "  muniment doc put notes /hello.md --text 'Hello'",
        f'  curl -H "Authorization: Bearer $(cat {settings.credentials})" $MUNIMENT_URL/v1/whoami',
        "",
    ]
    if settings.host in WILDCARDS and not settings.allowed_hosts:
        lines += ["Set MUNIMENT_ALLOWED_HOSTS to the names by which other machines reach it.", ""]
    return "\n".join([*lines, "Ctrl-C stops it."])
