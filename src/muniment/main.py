"""The composition root: settings become a storage, an App, an ASGI application, a client.

Only this file knows which storage, clock and source of randomness are in use.
"""

import asyncio
import hashlib
import hmac
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from muniment import worker
from muniment.api import native, site
from muniment.api.http import HttpApp
from muniment.api.native.shapes import time_text
from muniment.api.requestlog import RequestLog
from muniment.client.asynchronous import AsyncClient
from muniment.client.portal import Portal
from muniment.client.sync import Client
from muniment.client.transport import AsyncInProcess, InProcess
from muniment.model.copies import Contents, Tell
from muniment.model.errors import DisabledTenancy, Failure, InvalidKey, Malformed, Unavailable
from muniment.model.ids import DEFAULT_WORKSPACE, PREFIXES, StoreId
from muniment.model.stores import Workspace
from muniment.service import doctor, workspaces
from muniment.service.app import App, Policy
from muniment.service.doctor import Scope
from muniment.service.doctor_notes import Progress, Report
from muniment.service.doctor_streams import Noted
from muniment.service.keys import SECRET_BYTES, authenticate, new_secret
from muniment.service.paging import CursorSeal
from muniment.service.workspaces import NewWorkspace, ensure_default_workspace
from muniment.settings import (
    Settings,
    database_address,
    load,
    read_credentials,
    write_credentials,
)
from muniment.storage.base import Storage
from muniment.storage.sealing import Sealer

TIME_MAX = 253_402_300_799_999_999
"""The last microsecond of the year 9999."""
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "[::1]")

log = logging.getLogger("muniment")


class Randomness:
    """Bytes of the system's random source, fetched a page at a time and handed out once.

    A call into the kernel costs more than the rest of an id; a forked process starts empty.
    """

    def __init__(self, page_bytes: int = 4096) -> None:
        self._page_bytes = page_bytes
        self._lock = threading.Lock()
        self._page = b""
        self._at = 0
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self, count: int) -> bytes:
        """`count` random bytes."""
        with self._lock:
            if self._at + count > len(self._page):
                self._page = os.urandom(max(self._page_bytes, count))
                self._at = 0
            taken = self._page[self._at : self._at + count]
            self._at += count
            return taken

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._page = b""


random_bytes = Randomness()


def now() -> int:
    """UTC microseconds, within the years that a time can be written in."""
    return min(max(time.time_ns() // 1000, 0), TIME_MAX)


def new_id(kind: str) -> str:
    """An id of `kind` (a key of PREFIXES): 48 bits of milliseconds, then 80 random ones."""
    milliseconds = now() // 1000
    return f"{PREFIXES[kind]}_{milliseconds:012x}{random_bytes(10).hex()}"


def make_storage(settings: Settings, *, reading: bool = False) -> Storage:
    """The storage that the database's address names. Adapters are loaded when they are needed.

    With `reading` nothing of it is to be changed, not even its files.
    """
    url = settings.database_url
    sealer = make_sealer(settings)
    if url.startswith("memory:"):
        from muniment.storage.inmemory import InMemoryStorage

        return InMemoryStorage(os.urandom(32))
    if url.startswith("sqlite:"):
        from muniment.storage.sqlite import SqliteStorage

        path = settings.database_file
        assert path is not None
        sealing = sealer if settings.master_key else None
        return SqliteStorage(path, random_bytes, sealing, reading=reading)
    from muniment.storage.postgres import PostgresStorage

    if not settings.master_key and not reading:
        log.warning("data keys lie unwrapped: set MUNIMENT_MASTER_KEY to wrap them")
    return PostgresStorage(url, random_bytes, sealer, connections=settings.connections_max)


def make_sealer(settings: Settings) -> Sealer:
    """What seals bodies; with a master key it wraps their keys."""
    if not settings.master_key:
        return Sealer(random_bytes)
    return Sealer(random_bytes, {1: bytes.fromhex(settings.master_key)}, 1)


@dataclass(frozen=True, slots=True)
class Ambient:
    """Where time, ids and chance come from: the system, or a simulation."""

    now: Callable[[], int]
    new_id: Callable[[str], str]
    random_bytes: Callable[[int], bytes]


SYSTEM = Ambient(now, new_id, random_bytes)


async def make_app(settings: Settings, storage: Storage, ambient: Ambient = SYSTEM) -> App:
    """The application over a started storage, its schema migrated and its first rows made."""
    app = await compose(settings, storage, ambient)
    shared = settings.database_url.startswith("postgres")
    await ensure_default_workspace(app, owner_secret(settings), shared=shared)
    return app


async def compose(settings: Settings, storage: Storage, ambient: Ambient = SYSTEM) -> App:
    """The application over a started storage, its schema migrated."""
    await storage.migrate(ambient.now())
    return await compose_as_is(settings, storage, ambient)


async def compose_as_is(settings: Settings, storage: Storage, ambient: Ambient = SYSTEM) -> App:
    """The application over a started storage whose schema may be older."""
    operator = settings.admin_key
    shared_key = await storage.cursor_key()
    return App(
        storage=storage,
        policy=Policy(
            versioned_surface=settings.versioned_surface,
            operator_key_hash=hashlib.sha256(operator.encode()).digest() if operator else None,
            documents_max=settings.documents_max,
        ),
        cursors=CursorSeal(shared_key, ambient.random_bytes),
        now=ambient.now,
        new_id=ambient.new_id,
        random_bytes=ambient.random_bytes,
        fingerprint_key=hmac.digest(shared_key, b"idempotency", "sha256"),
    )


def owner_secret(settings: Settings) -> str:
    """The local owner's key: from the credentials file, which is made where it is absent."""
    secret = read_credentials(settings.credentials)
    if secret is not None:
        return secret
    made = new_secret(DEFAULT_WORKSPACE, os.urandom(SECRET_BYTES))
    return write_credentials(settings.credentials, made)


def make_http(settings: Settings, app: App, request_log: RequestLog | None = None) -> HttpApp:
    """The HTTP application: every dialect over one App."""
    base_url = settings.public_url
    wire = native.dialect(base_url)
    return HttpApp(
        app,
        (wire, site.dialect(base_url, wire)),
        hosts=allowed_hosts(settings),
        new_request_id=partial(request_id, app.random_bytes(8).hex(), count()),
        request_log=request_log,
    )


def request_id(process: str, numbers: Iterator[int]) -> str:
    """The next request's id: the process's random part and a number."""
    return f"req_{process}{next(numbers):08x}"


def allowed_hosts(settings: Settings) -> tuple[str, ...]:
    """The host names that requests may name (R-48)."""
    hosts = [settings.host.lower(), urlsplit(settings.public_url).hostname or ""]
    hosts += [host.strip().lower() for host in settings.allowed_hosts.split(",")]
    # A Host header has brackets around an address of IPv6, which most other places leave out.
    bracketed = [f"[{host}]" if ":" in host and host[0] != "[" else host for host in hosts]
    return tuple(dict.fromkeys((*LOOPBACK_HOSTS, *filter(None, bracketed))))


@asynccontextmanager
async def opened(
    settings: Settings, request_log: RequestLog | None = None
) -> AsyncIterator[HttpApp]:
    """The HTTP application with its storage open."""
    async with opened_app(settings) as app:
        try:
            yield make_http(settings, app, request_log)
        finally:
            if request_log is not None:
                request_log.flush()


@asynccontextmanager
async def opened_app(settings: Settings) -> AsyncIterator[App]:
    """The application with its storage open, and a worker beside it unless switched off."""
    storage = make_storage(settings)
    try:
        await storage.start()
        app = await make_app(settings, storage)
        working = asyncio.create_task(worker.work(app)) if settings.worker else None
        try:
            yield app
        finally:
            if working is not None:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
    finally:
        await storage.stop()


@asynccontextmanager
async def opened_for_operator(settings: Settings) -> AsyncIterator[App]:
    """The application with its storage open, for who needs no key: neither the local owner nor a
    workspace is made, and no worker runs beside it."""
    storage = make_storage(settings)
    try:
        await storage.start()
        yield await compose(settings, storage)
    finally:
        await storage.stop()


async def refusal_of_owner(settings: Settings, app: App) -> Failure | None:
    """Why the local owner's key is refused, None where it is good.

    InvalidKey where it is revoked, or a shared database had its workspace before this home had its
    key; DisabledTenancy where the workspace `default` is disabled.
    """
    try:
        await authenticate(app, owner_secret(settings))
    except (InvalidKey, DisabledTenancy) as refusal:
        return refusal
    return None


async def create_workspace(settings: Settings, name: str, principal: str) -> NewWorkspace:
    """Makes a workspace with a person and an administrator's key in the settings' database."""
    async with opened_for_operator(settings) as app:
        return await workspaces.create_workspace(app, name, principal=principal)


async def list_workspaces(settings: Settings) -> list[Workspace]:
    """Every workspace of the settings' database."""
    async with opened_for_operator(settings) as app:
        return await workspaces.list_workspaces(app)


async def disable_workspace(settings: Settings, workspace: str) -> Workspace:
    """Disables a workspace in the settings' database."""
    async with opened_for_operator(settings) as app:
        return await workspaces.disable_workspace(app, workspace)


async def enable_workspace(settings: Settings, workspace: str) -> Workspace:
    """Enables a workspace in the settings' database again."""
    async with opened_for_operator(settings) as app:
        return await workspaces.enable_workspace(app, workspace)


def make_request_log(settings: Settings) -> RequestLog | None:
    """The request log on standard error, where the log level lets it speak."""
    if logging.getLevelNamesMapping()[settings.log_level.upper()] > logging.INFO:
        return None
    return RequestLog(sys.stderr.buffer, now, time_text)


class Migrated(NamedTuple):
    """The schema's version before a migration, 0 in a new database, and after it."""

    before: int
    after: int


async def migrate(settings: Settings) -> Migrated:
    """Brings the database's schema to this program's version."""
    storage = make_storage(settings)
    try:
        await storage.start()
        before = await storage.schema_version()
        return Migrated(before, await storage.migrate(now()))
    finally:
        await storage.stop()


def back_up(settings: Settings, file: Path, tell: Tell, *, force: bool = False) -> Contents:
    """Copies the SQLite database to `file` while others use it; what the copy holds.

    `tell` hears what is done, and how much of it (0 to 1, or None). Malformed for a database or a
    file of another kind, Conflict where the file exists unless `force` replaces it, Unavailable
    where it cannot be done.
    """
    from muniment.storage import sqlite_files

    return sqlite_files.back_up(_sqlite_file(settings, "pg_dump"), file, tell, force=force)


class Restored(NamedTuple):
    """What a restored database holds, where the one before it is kept, and whose it is.

    `migrates` is whether the next start brings its schema up to date; `owned` whether the local
    owner's key is one of it, None where there is no such key or it cannot be told.
    """

    contents: Contents
    kept: Path | None
    migrates: bool
    owned: bool | None


def restore(settings: Settings, file: Path, tell: Tell, *, force: bool = False) -> Restored:
    """Puts a copy of `file` in the place of the SQLite database, which nobody may have open.

    Malformed for a database or a file of another kind, Conflict where there is a database unless
    `force` replaces it, or somebody has it open; Unavailable for a file that is damaged, newer, or
    sealed under another master key, and where it cannot be done.
    """
    from muniment.storage import sqlite_files
    from muniment.storage.sqlite import NEWEST

    database = _sqlite_file(settings, "pg_restore")
    sealer = make_sealer(settings) if settings.master_key else None
    has_key = read_credentials(settings.credentials) is not None
    contents, kept = sqlite_files.restore(file, database, sealer, tell, force=force)
    owned = asyncio.run(_owned(settings)) if has_key else None
    return Restored(contents, kept, contents.schema < NEWEST, owned)


def _sqlite_file(settings: Settings, other: str) -> Path:
    """The SQLite database's file. Malformed for another database, naming the program for it."""
    file = settings.database_file
    if file is None:
        shown = settings.shown_database
        if shown.startswith("memory:"):
            raise Malformed("memory: ends with its process, and has no file")
        raise Malformed(f"this is for SQLite: use {other} for {shown} (docs/operating.md, Backup)")
    return file


async def _owned(settings: Settings) -> bool | None:
    """Whether the database as it is has the local owner's key; None where it does not say."""
    storage = make_storage(settings)
    try:
        await storage.start()
        app = await compose_as_is(settings, storage)
        return not isinstance(await refusal_of_owner(settings, app), InvalidKey)
    except Unavailable:  # its schema may be older
        return None
    finally:
        await storage.stop()


async def diagnose(
    settings: Settings,
    store: str | None = None,
    *,
    noted: Noted | None = None,
    streams_only: bool = False,
    progress: Progress | None = None,
) -> Report:
    """What the doctor finds in the database, or in one store of it; nothing is changed.

    `streams_only` verifies event streams and nothing else, against the `noted` heads too.
    Unavailable where the database cannot be opened or its schema is another one; NotFound for an
    unknown store.
    """
    scope = Scope(
        store=None if store is None else StoreId(store),
        streams_only=streams_only,
        files=not streams_only and store is None,
        noted=noted or {},
    )
    storage = make_storage(settings, reading=True)
    await storage.start()
    try:
        return await doctor.diagnose(storage, scope, progress)
    finally:
        await storage.stop()


def open_client(
    database: str | os.PathLike[str] | None = None, *, key: str | None = None
) -> Client:
    """A client of a database without a server: `muniment.open`.

    `database` is a path or an address (`sqlite:///path`, `postgresql://…`, `memory:`); None is the
    settings' own. The client acts with the local owner's key (R-05), or with `key`. Programs may
    share a database, with or without a server (R-25). Unavailable where it cannot be opened,
    SettingsError where it cannot be an address. Close the client, or use it in a `with`.
    """
    settings, secret = _embedded(database, key)
    transport = InProcess(partial(opened, settings), Portal())
    return Client(key=secret, transport=transport)


def open_async_client(
    database: str | os.PathLike[str] | None = None, *, key: str | None = None
) -> AsyncClient:
    """Like `open_client`, for asyncio: `async with muniment.open_async(…) as client`.

    The database is opened at the start of the `async with`, or by the first request.
    """
    settings, secret = _embedded(database, key)
    return AsyncClient(key=secret, transport=AsyncInProcess(partial(opened, settings)))


def _embedded(database: str | os.PathLike[str] | None, key: str | None) -> tuple[Settings, str]:
    """The settings of an embedded client, and the key it sends."""
    address = None if database is None else database_address(os.fspath(database))
    settings = load(database=address)
    return settings, key or owner_secret(settings)


def configure_logging(settings: Settings) -> None:
    """Makes what this package and its libraries log one JSON line each on standard error, without
    content.

    For programs of ours; embedded, the host program's own logging decides.
    """
    import structlog

    before: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    ]
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=before,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(serializer=_json_line),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    # What libraries tell below a warning is about them, not about this server.
    root.setLevel(max(level, logging.WARNING))
    log.setLevel(level)
    # The storage says what the driver says, once and in one line.
    logging.getLogger("asyncpg").setLevel(logging.CRITICAL)


def _json_line(event: object, **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()
