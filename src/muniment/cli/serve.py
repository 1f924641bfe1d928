"""`muniment serve`: the HTTP server of one process, and what it says when it starts."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn

from muniment import __version__, main
from muniment.cli.command import CommandError
from muniment.cli.output import note
from muniment.cli.protocol import bounded
from muniment.model.errors import DisabledTenancy, Failure
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.settings import WILDCARD_HOSTS, Settings

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
GRACE_SECONDS = 30


def serve(settings: Settings, *, quiet: bool) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what runs and returns.

    CommandError where the address cannot be listened on; Failure where the database cannot be
    opened.
    """
    listener = bind(settings.host, settings.port)
    settings = replace(settings, port=listener.getsockname()[1])
    main.configure_logging(settings)
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
        request_log = main.make_request_log(settings)
        async with main.opened_app(settings) as app:
            http = main.make_http(settings, app, request_log)
            server = uvicorn.Server(configuration(http, settings.public_url))
            refusal = await main.refusal_of_owner(settings, app)

            def stop(number: int, frame: FrameType | None) -> None:
                server.should_exit = True

            for number in (signal.SIGTERM, signal.SIGINT):
                # uvicorn puts its own handlers over these while it runs, and raises the signal
                # again when it has stopped; before it runs, this is how it is told.
                signal.signal(number, stop)
            # What a start leaves behind stays for good: the collector need not look at it again.
            gc.collect()
            gc.freeze()
            note(greeting(settings, quiet=quiet, refusal=refusal))
            try:
                await server.serve(sockets=[listener])
            finally:
                if request_log is not None:
                    request_log.flush()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run())
    if not quiet:
        # A terminal shows ^C where the cursor stands.
        note("\nstopped" if sys.stderr.isatty() else "stopped")


def configuration(http: Any, url: str) -> uvicorn.Config:
    """How uvicorn serves the application at `url`."""
    return uvicorn.Config(
        http,
        http=bounded(f"{url}/docs/errors"),
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


def new_loop() -> asyncio.AbstractEventLoop:
    """The fastest event loop that the platform has."""
    if sys.platform == "win32":
        return asyncio.new_event_loop()
    import uvloop

    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def leave(number: int, frame: FrameType | None) -> None:
    """What a signal does before there is anything to finish."""
    raise SystemExit(0)


def greeting(settings: Settings, *, quiet: bool, refusal: Failure | None) -> str:
    """What people see when the server is ready; `refusal` is why the local owner's key is none."""
    url = settings.local_url
    ready = f"Muniment {__version__} is ready at {url}"
    if quiet:
        return ready
    lines = [ready, "", f"  data  {settings.shown_database}"]
    owned = refusal is None
    if owned:
        lines += [
            f"  key   {settings.credentials} holds the owner's; commands on this machine use it"
        ]
    elif isinstance(refusal, DisabledTenancy):
        lines += [
            "  key   those of other workspaces: `default` is disabled, and",
            f"        `muniment workspace enable {DEFAULT_WORKSPACE}` enables it again",
        ]
    elif settings.admin_key:
        lines += ["  key   MUNIMENT_ADMIN_KEY is an administrator's, or use another of its keys"]
    else:
        lines += [
            f"  key   the one in {settings.credentials} is none of this database: use one that is,",
            "        or start with MUNIMENT_ADMIN_KEY",
        ]
    lines += ["", "Try, in another terminal:", "", f"  export MUNIMENT_URL={url}"]
    bearer = f"$(cat {settings.credentials})" if owned else "$MUNIMENT_API_KEY"
    if not owned:
        disabled = isinstance(refusal, DisabledTenancy)
        chosen = "$MUNIMENT_ADMIN_KEY" if settings.admin_key and not disabled else "…"
        lines += [f"  export MUNIMENT_API_KEY={chosen}"]
    lines += [
        "  muniment store create notes",
        "  muniment doc put notes /hello.md --text 'Hello'",
        f'  curl -H "Authorization: Bearer {bearer}" $MUNIMENT_URL/v1/whoami',
        "",
    ]
    if settings.host in WILDCARD_HOSTS and not settings.allowed_hosts:
        lines += ["Set MUNIMENT_ALLOWED_HOSTS to the names by which other machines reach it.", ""]
    return "\n".join([*lines, "Ctrl-C stops it."])
