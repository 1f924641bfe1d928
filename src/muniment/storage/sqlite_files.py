"""SQLite databases as files: a copy of one in use, and one put in the place of another (R-25).

What is made is written under a name of its own beside its place, synced and checked, and gets its
name in one step. So whenever the process ends, its place holds what it held, or the whole of it.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from hashlib import sha256
from itertools import count
from pathlib import Path

import apsw

from muniment.model.copies import Contents, Tell
from muniment.model.errors import Conflict, Malformed, Unavailable
from muniment.storage.sealing import Sealer, check_master_key
from muniment.storage.sqlite import BUSY_MS, WAIT_SECONDS, check_known, schema_version, use_wal

if sys.platform != "win32":
    import fcntl

PATIENCE_SECONDS = 2.0
"""How long a file may be in use by somebody who is about to close it."""

SYNC_BYTES = 8 * 1024 * 1024
"""After so much a copy is synced, so that no writer's own sync waits for all of it."""

LOOK_STEPS = 1_000
"""SQLite's steps between two looks at a copy's size and at Ctrl-C."""

_BESIDE = ("-wal", "-shm", "-journal")
_LEVELS = (apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE)
_TABLES = {"migrations", "instance", "workspaces", "stores", "documents", "blobs", "nodes"}
_COUNTS = """
SELECT
  (SELECT COUNT(*) FROM workspaces),
  (SELECT COUNT(*) FROM stores WHERE status IN ('active', 'archived')),
  (SELECT COUNT(*) FROM documents),
  (SELECT MAX(e.created_at) FROM streams s JOIN events e
    ON e.workspace_id = s.workspace_id AND e.stream_id = s.stream_id AND e.seq = s.seq),
  (SELECT seal_check IS NOT NULL FROM instance)
"""
_MISCOUNTED = """
SELECT COUNT(*) FROM stores s
LEFT JOIN refs r
  ON r.workspace_id = s.workspace_id AND r.store_id = s.store_id AND r.name = 'canonical'
WHERE s.status IN ('active', 'archived') AND r.documents IS NOT (
  SELECT COUNT(*) FROM documents d
  WHERE d.workspace_id = s.workspace_id AND d.store_id = s.store_id)
"""
_BODIES = (
    ("blobs", "SELECT blob_id, body FROM blobs WHERE sealed = 0"),
    ("nodes", "SELECT node_id, body FROM nodes"),
)


def back_up(database: Path, file: Path, tell: Tell, *, force: bool = False) -> Contents:
    """Copies the database as it is at one moment, while others write to it; what the copy holds.

    It holds rows only, nothing of what they once were. Conflict where `file` exists, unless
    `force` replaces it; Malformed where it cannot be one; Unavailable where the database cannot be
    read, the copy cannot be written, or a check finds it bad. Then `file` is what it was.
    """
    place = _resolved(file)
    _check_place(place, database, force=force)
    if not database.exists():
        raise Unavailable(f"there is no database at {database}")
    with ExitStack() as stack:
        with _failing(f"the database {database} cannot be read"):
            connection = stack.enter_context(closing(_open(database)))
            connection.set_busy_timeout(BUSY_MS)
            _check_ours(connection, database)
            # Under another journal the copy would hold writers off.
            use_wal(connection)
        with _failing(f"{file} cannot be written"):
            partial = stack.enter_context(_partial_for(place))
            _copy(connection, partial, tell)
            contents = _inspect(partial.path, f"the database {database}", tell)
            replaces = force and place.exists()
            if replaces:
                stack.enter_context(_locked(place))
            partial.put(place, replace=replaces)
    return contents


def restore(
    file: Path, database: Path, sealer: Sealer | None, tell: Tell, *, force: bool = False
) -> tuple[Contents, Path | None]:
    """Puts a copy of `file` in the database's place; what it holds, and where the old one is kept.

    `sealer` is what the database is to be opened with. Conflict where there is a database, unless
    `force` is given, and in any case where another process has it open. Malformed where `file` is
    no database of ours, Unavailable where it is damaged, newer, or sealed under another master key.
    Then the database is what it was.
    """
    place = _resolved(database)
    if not file.is_file():
        raise Malformed(f"there is no file {file}" if not file.exists() else f"{file} is no file")
    _check_database(place, file, force=force)
    with ExitStack() as stack:
        with _failing(f"{file} cannot be read"):
            source = stack.enter_context(closing(_open(file, readonly=True)))
            _check_ours(source, file)
            seal: bytes | None = source.execute("SELECT seal_check FROM instance").get
            check_master_key(sealer, seal)
            _check_pages(source, "integrity_check", str(file), tell)
        with _failing(f"{database} cannot be written"):
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = stack.enter_context(_partial_for(place))
            _copy(source, partial, tell)
            contents = _inspect(partial.path, str(file), tell)
            kept = None
            if place.exists():
                stack.enter_context(_seized(place))
                kept = _keep(place)
                partial.give_to_owner_of(place)
            _set_log_aside(place, kept)
            partial.put(place, replace=kept is not None)
    return contents, kept


# Where files may go


def _resolved(path: Path) -> Path:
    """The file that is meant, behind links. Malformed where SQLite cannot be given its name."""
    resolved = path.resolve()
    try:
        str(resolved).encode()
    except UnicodeError:
        raise Malformed("the name of a database must be UTF-8 text") from None
    return resolved


def _check_place(place: Path, database: Path, *, force: bool) -> None:
    """Whether a copy of the database may be put there."""
    own = _resolved(database)
    if place in (own, *(_beside(own, suffix) for suffix in _BESIDE)) or _same(place, own):
        raise Malformed(f"{place} is the database itself")
    if place.is_dir():
        raise Malformed(f"{place} is a folder: name a file in it")
    if not place.parent.is_dir():
        raise Malformed(f"there is no folder {place.parent}")
    if place.exists():
        if not place.is_file():
            raise Malformed(f"{place} is no file")
        if not force:
            raise _taken(place)
        _check_unused(place)
    for suffix in _BESIDE:
        if _beside(place, suffix).exists():
            # SQLite would read it as the log of the copy.
            raise Conflict(
                f"{_beside(place, suffix)} is there, of a database that was not closed:"
                " choose another name"
            )


def _check_database(place: Path, file: Path, *, force: bool) -> None:
    """Whether the database may be replaced by the file."""
    if _same(place, file):
        raise Malformed(f"{file} is the database itself")
    if place.exists():
        if not place.is_file():
            raise Malformed(f"{place} is no file")
        if not force:
            raise Conflict(f"there is a database at {place}: --force replaces it and keeps the old")
        _check_unused(place)


def _taken(place: Path) -> Conflict:
    return Conflict(f"{place} exists: choose another name, or replace it with --force")


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


# What a file is


def _open(path: Path, *, readonly: bool = False) -> apsw.Connection:
    """The database, which has to be there."""
    flags = apsw.SQLITE_OPEN_READONLY if readonly else apsw.SQLITE_OPEN_READWRITE
    return apsw.Connection(str(_resolved(path)), flags=flags | apsw.SQLITE_OPEN_URI)


def _check_ours(connection: apsw.Connection, path: Path) -> None:
    """Malformed unless this is a database of Muniment; Unavailable where it is a newer one."""
    try:
        names = {str(row[0]) for row in connection.execute("SELECT name FROM sqlite_master")}
        version = schema_version(connection) if names >= _TABLES else 0
    except (apsw.NotADBError, apsw.SQLError):
        version = 0
    if version < 1:
        raise Malformed(f"{path} is no database of Muniment")
    check_known(version)


def _inspect(path: Path, origin: str, tell: Tell) -> Contents:
    """What the copy holds. Unavailable where SQLite or a count or a hash in it says it is bad."""
    with closing(_open(path, readonly=True)) as connection:
        _check_pages(connection, "quick_check", origin, tell)
        if connection.execute(_MISCOUNTED).get:
            raise Unavailable(
                f"{origin} is damaged: a store has another number of documents than its history"
            )
        for table, statement in _BODIES:
            for row in connection.execute(statement):
                tell("checking", None)
                if sha256(bytes(row[1])).digest() != row[0]:
                    raise Unavailable(
                        f"{origin} is damaged: a body in {table} is not what its hash says"
                    )
        counts = connection.execute(_COUNTS).fetchall()[0]
        workspaces, stores, documents, last_write, sealed = [int(n or 0) for n in counts]
        return Contents(
            bytes=path.stat().st_size,
            schema=schema_version(connection),
            workspaces=workspaces,
            stores=stores,
            documents=documents,
            last_write=last_write or None,
            sealed=bool(sealed),
        )


def _check_pages(connection: apsw.Connection, check: str, origin: str, tell: Tell) -> None:
    """Unavailable where SQLite's own check of its file finds something."""
    try:
        with _watched(connection, lambda: tell("checking", None)):
            found = connection.execute(f"PRAGMA {check}(1)").fetchall()[0][0]
    except apsw.CorruptError as error:
        found = str(error)
    if found != "ok":
        raise Unavailable(f"{origin} is damaged: {' '.join(str(found).split())}")


# Making a copy


class _Partial:
    """A file that is being written under a name of its own, readable by its owner only."""

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @property
    def bytes(self) -> int:
        return os.fstat(self._handle).st_size

    def sync(self) -> None:
        os.fsync(self._handle)

    def give_to_owner_of(self, other: Path) -> None:
        """Whoever could open the other one can open this one, also if root restores it."""
        status = other.stat()
        with suppress(OSError, AttributeError):
            os.fchown(self._handle, status.st_uid, status.st_gid)

    def put(self, place: Path, *, replace: bool) -> None:
        """Gives the file its name for good. Conflict where another has it, unless it replaces."""
        self.sync()
        # What was taken away before must not come back after a power cut, beside the new file.
        _sync_folder(place.parent)
        if replace:
            self.path.replace(place)
        else:
            self._put_first(place)
        _sync_folder(place.parent)

    def _put_first(self, place: Path) -> None:
        try:
            place.hardlink_to(self.path)
        except FileExistsError:
            raise _taken(place) from None
        except (OSError, NotImplementedError):  # a file system without hard links
            if place.exists():
                raise _taken(place) from None
            self.path.replace(place)
        else:
            self.path.unlink()


@contextmanager
def _partial_for(place: Path) -> Iterator[_Partial]:
    """A partial file of what is to be at `place`; gone at the end, unless it was put there.

    Those that killed processes have left are removed. A lock tells them from others' at work.
    """
    _remove_left_partials(place)
    while True:
        handle, name = tempfile.mkstemp(
            prefix=f".{place.name}.", suffix=".partial", dir=place.parent
        )
        # Another process may have taken it for a left one, before it had its lock.
        if _lock(handle) and os.fstat(handle).st_nlink:
            break
        os.close(handle)
    path = Path(name)
    try:
        yield _Partial(path, handle)
    finally:
        _remove_partial(path)
        os.close(handle)


def _remove_partial(path: Path) -> None:
    """Removes the partial file where it is one still; first what SQLite may have beside it."""
    _beside(path, "-journal").unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _remove_left_partials(place: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(place.name)}\.[a-z0-9_]{{8}}\.partial")
    for path in place.parent.iterdir():
        if pattern.fullmatch(path.name):
            with suppress(OSError):
                handle = os.open(path, os.O_RDWR)
                try:
                    if _lock(handle):
                        _remove_partial(path)
                finally:
                    os.close(handle)


def _lock(handle: int) -> bool:
    """Whether no other process has this partial file; it has a lock then until it is closed.

    Where the file system has no locks, none is known to have it.
    """
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _copy(connection: apsw.Connection, partial: _Partial, tell: Tell) -> None:
    """Writes the database's rows into the partial file, as one moment has them."""
    pages = int(connection.pragma("page_count")) - int(connection.pragma("freelist_count"))
    expected = max(1, pages * int(connection.pragma("page_size")))
    synced = 0

    def look() -> None:
        nonlocal synced
        written = partial.bytes
        if written - synced >= SYNC_BYTES:
            partial.sync()
            synced = written
        tell("copying", min(1.0, written / expected))

    with _watched(connection, look):
        # Nobody else knows the file, and not every file system has SQLite's locks.
        connection.execute("VACUUM INTO ?", (f"{partial.path.as_uri()}?nolock=1",))


@contextmanager
def _watched(connection: apsw.Connection, look: Callable[[], None]) -> Iterator[None]:
    """Calls `look` now and then while SQLite works; what it raises ends the work."""

    def handler() -> bool:
        look()
        return False

    connection.set_progress_handler(handler, LOOK_STEPS)
    try:
        yield
    finally:
        connection.set_progress_handler(None)


# Taking the place of another


def _check_unused(path: Path) -> None:
    with _locked(path):
        pass


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds SQLite's own lock on the file, whatever is in it. Conflict where somebody has one."""
    flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE
    with _failing(f"{path} cannot be opened"):
        file = apsw.VFSFile("", str(path), [flags, 0])
    try:
        for level in _LEVELS:
            _patiently(path, lambda level=level: file.xLock(level))  # type: ignore[misc]  # bound
        yield
    finally:
        file.xClose()


@contextmanager
def _seized(path: Path) -> Iterator[None]:
    """Holds the database alone, with its log taken into its file.

    Conflict where another process has it open, or replaces it. One that opened it in the last
    moment finds that its file has moved, and then SQLite refuses to write.
    """
    found = path.stat()
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(_open(path)))
            # A damaged one is kept as it is: its log is not to be written into it.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            _patiently(path, lambda: connection.pragma("locking_mode", "exclusive"))
            _patiently(path, lambda: connection.pragma("journal_mode", "delete"))
            _patiently(path, lambda: connection.execute("BEGIN EXCLUSIVE"))
            # Held alone, the database keeps its journal, whose work is done.
            _beside(path, "-journal").unlink(missing_ok=True)
        except (apsw.NotADBError, apsw.CorruptError):
            # Damaged, which may be why it is replaced.
            stack.close()
            stack.enter_context(_locked(path))
        if not os.path.samestat(found, path.stat()):
            raise Conflict(f"another process has replaced {path}: look at it, and try again")
        yield


def _patiently(path: Path, call: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            call()
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise Conflict(
                    f"another process has {path} open: stop the server, and what else uses it"
                ) from None
            time.sleep(WAIT_SECONDS)


def _keep(place: Path) -> Path:
    """A second name for the database that is about to lose its own."""
    for kept in _names_to_keep(place):
        try:
            kept.hardlink_to(place)
        except FileExistsError:
            if not kept.samefile(place):  # else it is from a restore that was killed here
                continue
        return kept
    raise AssertionError("numbers end")


def _names_to_keep(place: Path) -> Iterator[Path]:
    """The names that a replaced database may go on under, in order."""
    yield _beside(place, ".before-restore")
    yield from (_beside(place, f".before-restore-{number}") for number in count(2))


def _is_taken(kept: Path) -> bool:
    """Whether a kept database, or the log of one that was lost, has the name."""
    return any(path.exists() for path in (kept, *(_beside(kept, suffix) for suffix in _BESIDE)))


def _set_log_aside(place: Path, kept: Path | None) -> None:
    """Takes away what SQLite would read as the new file's log: a damaged or a lost one's."""
    old = kept or next(one for one in _names_to_keep(place) if not _is_taken(one))
    for suffix in _BESIDE:
        log = _beside(place, suffix)
        if suffix == "-shm":
            log.unlink(missing_ok=True)
        elif log.exists():
            log.replace(_beside(old, suffix))


# What fails


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Unavailable, saying what cannot be done, for what SQLite and the system refuse."""
    try:
        yield
    except apsw.Error as error:
        raise Unavailable(f"{what}: {error}") from error
    except OSError as error:
        raise Unavailable(f"{what}: {(error.strerror or str(error)).lower()}") from error


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder outlast a power cut, where the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
