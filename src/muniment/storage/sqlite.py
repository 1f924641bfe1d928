"""The embedded storage: SQLite through apsw, one writer thread with group commit (R-80, R-25).

Writes wait in a queue; the writer takes all that wait, runs them one after the other in one
`BEGIN IMMEDIATE`, commits once with `synchronous=FULL`, and then answers. Point reads run on the
event loop's own connection, scans in a thread. Several processes may share the file.
"""

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw

from muniment.model.errors import Unavailable
from muniment.storage.base import Lost, Use
from muniment.storage.cache import NodeCache
from muniment.storage.drive import drive
from muniment.storage.executor import on_conflict
from muniment.storage.inspection import load_inspections
from muniment.storage.rows import Row
from muniment.storage.sealing import Sealer, check_master_key, has_master_key
from muniment.storage.sql import SqlTransaction
from muniment.storage.statements import (
    Table,
    Words,
    check_version,
    load_statements,
    load_tables,
    migrations,
    split_script,
)

T = TypeVar("T")

WORDS = Words(
    bytes="BLOB",
    int="INTEGER",
    clustered=" WITHOUT ROWID",
    lock="",
    mark="?",
    raw="CAST({} AS BLOB)",
)
BUSY_MS = 60_000
WAIT_SECONDS = 0.01
SCRUB_MS = 2_000
GROUP_MAX = 256
RETRIES = 20
SCAN_THREADS = 2
_PRAGMAS = {
    "synchronous": 2,
    "secure_delete": 1,
    "foreign_keys": 0,
    "journal_size_limit": 64 * 1024 * 1024,
    "temp_store": 2,
    "cache_size": -16_000,
}
_STATEMENTS = load_statements(WORDS) | load_inspections(WORDS)
_MIGRATIONS = migrations(WORDS)
NEWEST = _MIGRATIONS[-1][0]


def _insert_text(table: Table) -> str:
    marks = ", ".join(f"?{n + 1}" for n in range(len(table.columns)))
    text = f"INTO {table.name} ({', '.join(table.columns)}) VALUES ({marks})"
    return f"INSERT {text}{on_conflict(table)}"


_INSERTS = {name: _insert_text(table) for name, table in load_tables(WORDS).items()}


def use_wal(connection: apsw.Connection) -> None:
    """Switches the file to write-ahead logging.

    Another process that does the same holds it for a moment, and here SQLite does not wait itself.
    """
    deadline = time.monotonic() + BUSY_MS / 1000
    while connection.pragma("journal_mode") != "wal":
        try:
            if connection.pragma("journal_mode", "wal") != "wal":
                raise Unavailable("the database cannot use write-ahead logging")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(WAIT_SECONDS)


def schema_version(connection: apsw.Connection) -> int:
    """The version of the file's schema; 0 where there is none yet."""
    known = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migrations'"
    ).fetchall()
    if not known:
        return 0
    return int(connection.execute("SELECT MAX(version) FROM migrations").fetchall()[0][0] or 0)


def check_known(version: int) -> None:
    """Unavailable where the schema is newer than this program's."""
    if version > NEWEST:
        raise Unavailable(
            f"the database has schema {version}, this program knows {NEWEST}: upgrade it"
        )


class SqliteExecutor:
    """Runs each statement at once; nothing is buffered."""

    locks = False

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()

    async def rows(self, name: str, values: dict[str, Any]) -> list[Row]:
        """The statement's rows."""
        statement = _STATEMENTS[name]
        bound = tuple([values[value] for value in statement.values])
        return self._cursor.execute(statement.text, bound).fetchall()

    def run(self, name: str, values: dict[str, Any], *, one: bool = False) -> None:
        """Runs the statement; with `one`, Lost unless it returns exactly one row."""
        statement = _STATEMENTS[name]
        bound = tuple([values[value] for value in statement.values])
        cursor = self._cursor.execute(statement.text, bound)
        if one and len(cursor.fetchall()) != 1:
            raise Lost(name)

    def command(self, text: str) -> None:
        """Begins or ends a transaction."""
        self._cursor.execute(text)

    def insert(self, table: str, row: Row) -> None:
        """Inserts the row, keeping or replacing one with its key as the table says."""
        self._cursor.execute(_INSERTS[table], row)


class _Pending:
    """A write that waits for the writer, and where its answer goes."""

    __slots__ = ("answer", "call", "error", "future", "loop", "use")

    def __init__(self, use: Use[Any] | None, call: Callable[[], Any] | None = None) -> None:
        self.use = use
        self.call = call
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.answer: Any = None
        self.error: BaseException | None = None


class SqliteStorage:
    """A storage in one SQLite file. `sealer` None keeps bodies unsealed (R-82).

    With `reading` nothing is written: the file has to be there, and stays as it is. `wrap` puts
    something in the place of the writer's connection; tests make statements fail there.
    """

    def __init__(
        self,
        path: Path,
        random_bytes: Callable[[int], bytes],
        sealer: Sealer | None = None,
        *,
        reading: bool = False,
        wrap: Callable[[Any], Any] | None = None,
    ) -> None:
        self._path = path
        self._reading = reading
        self._random_bytes = random_bytes
        self._sealer = sealer
        self._wrap = wrap or (lambda connection: connection)
        self._nodes = NodeCache()
        self._queue: queue.SimpleQueue[_Pending | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._readers: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        self._scans = ThreadPoolExecutor(SCAN_THREADS, thread_name_prefix="muniment-scan")
        self._accepts = False
        self._keeps_log = False

    async def start(self) -> None:
        """Opens the file, making it and its folder where they are absent."""
        if self._reading:
            self._start_reading()
            return
        try:
            # What SQLite puts beside the file takes the file's mode: nobody else reads them.
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            self._write_connection: apsw.Connection = self._wrap(self._open())
            self._reader = self._open(readonly=True)
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"the database {self._path} cannot be opened: {error}") from error
        self._write_executor = SqliteExecutor(self._write_connection)
        self._read_executor = SqliteExecutor(self._reader)
        self._writer = threading.Thread(target=self._work, name="muniment-writer", daemon=True)
        self._writer.start()
        self._accepts = True

    def _start_reading(self) -> None:
        try:
            # What a log holds that is there already belongs in the file, but not by our hand.
            log = self._path.with_name(f"{self._path.name}-wal")
            self._keeps_log = log.exists() and log.stat().st_size > 0
            self._reader = self._open(readonly=True)
        except (apsw.Error, OSError) as error:
            raise Unavailable(f"the database {self._path} cannot be opened: {error}") from error
        self._read_executor = SqliteExecutor(self._reader)

    async def stop(self) -> None:
        """Finishes what was accepted and closes."""
        if self._writer is not None:
            self._accepts = False
            self._queue.put(None)
            await asyncio.to_thread(self._writer.join)
            self._writer = None
        elif not self._reading:
            return
        await asyncio.to_thread(self._scans.shutdown)
        while not self._readers.empty():
            self._readers.get().close()
        self._reader.close()
        if not self._reading:
            self._write_connection.close()

    def _open(self, *, readonly: bool = False) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE
        if not self._reading:
            flags |= apsw.SQLITE_OPEN_CREATE
        connection = apsw.Connection(str(self._path), flags=flags, statementcachesize=256)
        if self._keeps_log:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(BUSY_MS)
        # Without it a statement is planned anew whenever its values change: 200 µs a read.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        if not readonly:
            use_wal(connection)
        for name, value in _PRAGMAS.items():
            connection.execute(f"PRAGMA {name} = {value}").fetchall()
            if name != "journal_size_limit" and connection.pragma(name) != value:
                raise Unavailable(f"SQLite does not take the setting {name} = {value}")
        if readonly:
            connection.pragma("query_only", True)
        return connection

    # Schema

    async def schema_version(self) -> int:
        """The version of the schema that is there; 0 where there is none yet."""
        return schema_version(self._reader)

    async def migrate(self, now: int) -> int:
        """Brings the schema to this program's version, one transaction a step; that version."""
        return await self._on_writer(lambda: self._migrate(now))

    def _migrate(self, now: int) -> int:
        connection = self._write_connection
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = schema_version(connection)
            check_known(version)
            for number, name, text in _MIGRATIONS:
                if number > version:
                    for statement in split_script(text):
                        connection.execute(statement)
                    values = {"version": number, "name": name, "applied_at": now}
                    self._write_executor.run("add_migration", values)
            self._write_executor.run("add_instance", {"cursor_key": self._random_bytes(32)})
            kept: Any = connection.execute(_STATEMENTS["get_seal_check"].text).fetchall()[0][0]
            check = check_master_key(self._sealer, kept)
            if check is not None:
                self._write_executor.run("set_seal_check", {"seal_check": check})
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return NEWEST

    async def check_schema(self) -> int:
        """This program's schema version; Unavailable on another, and where there is none."""
        try:
            return check_version(schema_version(self._reader), NEWEST)
        except apsw.Error as error:
            raise Unavailable(f"the database does not answer: {error}") from error

    async def holds_master_key(self) -> bool:
        """Whether this process has what the database's bodies were sealed with."""
        try:
            kept: Any = self._reader.execute(_STATEMENTS["get_seal_check"].text).fetchall()
        except apsw.Error as error:
            raise Unavailable(f"the database does not answer: {error}") from error
        return has_master_key(self._sealer, kept[0][0] if kept else None)

    async def check_ready(self) -> None:
        """Unavailable unless the schema is ours and a write works."""
        try:
            version = schema_version(self._reader)
            if version != NEWEST:
                raise Unavailable(f"the database has schema {version}, this program {NEWEST}")
            await self._on_writer(self._probe)
        except apsw.Error as error:
            raise Unavailable(f"the database does not answer: {error}") from error

    def _probe(self) -> None:
        self._write_connection.execute("BEGIN IMMEDIATE")
        try:
            self._write_connection.execute(_STATEMENTS["probe_instance"].text).fetchall()
        except BaseException:
            self._write_connection.execute("ROLLBACK")
            raise
        self._write_connection.execute("COMMIT")

    async def cursor_key(self) -> bytes:
        """32 bytes shared by everything that opens this file."""
        key: Any = self._reader.execute(_STATEMENTS["get_instance"].text).fetchall()[0][0]
        return bytes(key)

    async def scrub(self) -> bool:
        """Takes the write-ahead file into the database, where freed bytes are zeros; empties it."""
        return await self._on_writer(self._truncate_log)

    def _truncate_log(self) -> bool:
        connection = self._write_connection
        connection.set_busy_timeout(SCRUB_MS)
        try:
            busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]
            return busy == 0
        finally:
            connection.set_busy_timeout(BUSY_MS)

    async def check_integrity(self) -> list[str]:
        """SQLite's own check of every page and index; it may take as long as reading the file."""
        found = await asyncio.get_running_loop().run_in_executor(self._scans, self._check_pages)
        return [] if found == ["ok"] else found

    def _check_pages(self) -> list[str]:
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            try:
                connection = self._open(readonly=True)
            except (apsw.Error, Unavailable) as error:
                return [f"the database cannot be opened again: {error}"]
        try:
            lines = connection.execute("PRAGMA integrity_check(100)").fetchall()
        except apsw.Error as error:
            return [f"the database's own check failed: {error}"]
        finally:
            self._readers.put(connection)
        return [line for row in lines for line in str(row[0]).splitlines()]

    # Reading

    async def read(self, use: Use[T], *, scan: bool = False, single: bool = False) -> T:
        """Runs `use` on one snapshot: inline, or in a thread for a scan."""
        if single:
            return self._read_one(use)
        if not scan:
            return self._read_on(self._read_executor, use)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._scans, self._scan, use)

    def _scan(self, use: Use[T]) -> T:
        try:
            connection = self._readers.get_nowait()
        except queue.Empty:
            try:
                connection = self._open(readonly=True)
            except apsw.Error as error:
                raise Unavailable(f"the database does not answer: {error}") from error
        try:
            return self._read_on(SqliteExecutor(connection), use)
        finally:
            self._readers.put(connection)

    def _read_one(self, use: Use[T]) -> T:
        """A use of one statement, which is its own snapshot."""
        try:
            return drive(use(SqlTransaction(self._read_executor, self._nodes, self._sealer)))
        except apsw.Error as error:
            raise Unavailable(f"the database does not answer: {error}") from error

    def _read_on(self, executor: SqliteExecutor, use: Use[T]) -> T:
        tx = SqlTransaction(executor, self._nodes, self._sealer)
        try:
            executor.command("BEGIN")
            try:
                return drive(use(tx))
            finally:
                executor.command("COMMIT")
        except apsw.Error as error:
            raise Unavailable(f"the database does not answer: {error}") from error

    # Writing

    async def write(self, group: str | None, use: Use[T]) -> T:
        """Runs `use` in the writer's next group; there is one writer, so every group shares it."""
        answer: T = await self._enqueue(_Pending(use))
        return answer

    async def _on_writer(self, call: Callable[[], T]) -> T:
        """Runs a plain call between two groups of the writer thread."""
        answer: T = await self._enqueue(_Pending(None, call))
        return answer

    async def _enqueue(self, pending: _Pending) -> Any:
        if not self._accepts:
            raise Unavailable("the database is closed")
        self._queue.put(pending)
        return await asyncio.shield(pending.future)

    def _work(self) -> None:
        """The writer thread: takes what waits, runs it as one group, answers."""
        stopping = False
        while not stopping:
            batch = [self._queue.get()]
            while len(batch) < GROUP_MAX:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            stopping = None in batch
            group = [pending for pending in batch if pending is not None]
            for pending in group:
                if pending.call is not None:
                    _run_call(pending, pending.call)
            writes = [pending for pending in group if pending.use is not None]
            if writes:
                self._run_group(writes)
            _deliver(group)

    def _run_group(self, group: list[_Pending]) -> None:
        """One transaction for all; where one member spoils it, one for each."""
        try:
            committed = self._attempt(group)
        except Exception as error:
            for pending in group:
                pending.error = error
            return
        if not committed:
            for pending in group:
                self._run_alone(pending)

    def _run_alone(self, pending: _Pending) -> None:
        try:
            for _ in range(RETRIES):
                if self._attempt([pending]):
                    return
        except Exception as error:
            pending.error = error
            return
        pending.error = Unavailable("the write was overtaken too often: try again")

    def _attempt(self, group: list[_Pending]) -> bool:
        """Whether every member has its answer or its refusal for good.

        False has changed nothing and asks for another run: each alone, or the one again. A group
        of one that fails half-way has its refusal, and has changed nothing either.
        """
        connection = self._write_connection
        if not connection.get_autocommit():
            # A BEGIN or a ROLLBACK that failed after it ran has left this behind.
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        try:
            tx = SqlTransaction(self._write_executor, self._nodes, self._sealer)
            for pending in group:
                before = tx.writes
                pending.error = None
                try:
                    pending.answer = drive(cast(Use[Any], pending.use)(tx))
                except (Lost, apsw.Error):
                    raise
                except Exception as error:
                    pending.error = error
                    if tx.writes != before:
                        connection.execute("ROLLBACK")
                        return len(group) == 1
            tx.finish()
            connection.execute("COMMIT")
        except Exception as error:
            # SQLite may have rolled back by itself, as it does when the disk is full.
            if not connection.get_autocommit():
                connection.execute("ROLLBACK")
            if isinstance(error, Lost) or len(group) > 1:
                return False
            raise
        return True


def _run_call(pending: _Pending, call: Callable[[], Any]) -> None:
    try:
        pending.answer = call()
    except BaseException as error:
        pending.error = error


def _deliver(group: list[_Pending]) -> None:
    """Hands answers to the event loops that wait for them, one call a loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Pending]] = {}
    for pending in group:
        by_loop.setdefault(pending.loop, []).append(pending)
    for loop, members in by_loop.items():
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_resolve, members)


def _resolve(group: list[_Pending]) -> None:
    for pending in group:
        if pending.future.done():
            continue
        error = pending.error
        if error is None:
            pending.future.set_result(pending.answer)
        elif isinstance(error, apsw.Error):
            pending.future.set_exception(Unavailable(f"the database refused: {error}"))
        else:
            pending.future.set_exception(error)
