"""The storage for many nodes: PostgreSQL through asyncpg, buffered group commit (R-80, R-81).

Writers run READ COMMITTED and take the store's row lock first; readers run one REPEATABLE READ
snapshot. Writes of one group in this process share a transaction: a leader takes a connection,
drains the group's queue and sends what its members wrote together, one statement a table.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import asyncpg

from muniment.model.errors import Unavailable
from muniment.storage.base import Lost, Use
from muniment.storage.cache import NodeCache
from muniment.storage.postgres_executor import STATEMENTS, WORDS, Connection, PostgresExecutor
from muniment.storage.postgres_lookups import PointExecutor
from muniment.storage.rows import Row
from muniment.storage.sealing import Sealer, check_master_key, has_master_key
from muniment.storage.sql import SqlTransaction
from muniment.storage.statements import check_version, migrations, split_script

T = TypeVar("T")

CONNECTIONS_MAX = 10
RESERVED_FOR_READS = 2
WAIT_SECONDS = 10.0
COMMAND_SECONDS = 30.0
_SESSION = {"lock_timeout": "20000", "idle_in_transaction_session_timeout": "60000"}
"""In milliseconds: a peer that hangs in a transaction does not hold the others for ever."""
GROUP_MAX = 64
RETRIES = 20
STATEMENT_CACHE = 512
_BEGIN_READ = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
_MIGRATIONS = migrations(WORDS)
_NEWEST = _MIGRATIONS[-1][0]

_RERUN = (
    Lost,
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.UniqueViolationError,
)
"""What another writer can cause and a rerun can mend; a use that read first decides again."""


_UNREACHABLE = (
    OSError,
    TimeoutError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.InsufficientResourcesError,
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.ReadOnlySQLTransactionError,
)
"""What tells that the server, or a connection to it, does not serve us now."""


class StorageFault(Exception):
    """PostgreSQL refused a statement of ours; says where, without the values it was about."""


def _is_severed(error: BaseException) -> bool:
    """Whether the connection broke, rather than that the server lets us wait for too long."""
    waited = (TimeoutError, asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError)
    return _is_unreachable(error) and not isinstance(error, waited)


def _is_unreachable(error: BaseException) -> bool:
    """Whether the server does not serve us, rather than refuse what we ask."""
    closed = isinstance(error, asyncpg.InterfaceError) and not isinstance(error, ValueError)
    return closed or isinstance(error, _UNREACHABLE)


class _Pending:
    """A write that waits in its group, and where its answer goes."""

    __slots__ = ("answer", "error", "future", "use")

    def __init__(self, use: Use[Any]) -> None:
        self.use = use
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.answer: Any = None
        self.error: BaseException | None = None


class PostgresStorage:
    """A storage in one PostgreSQL database. Bodies are always sealed (R-82).

    `wrap` puts something in the place of each connection; tests make statements fail there.
    """

    def __init__(
        self,
        dsn: str,
        random_bytes: Callable[[int], bytes],
        sealer: Sealer,
        *,
        connections: int = CONNECTIONS_MAX,
        wrap: Callable[[Connection], Connection] | None = None,
    ) -> None:
        self._random_bytes = random_bytes
        self._sealer = sealer
        self._wrap = wrap or (lambda connection: connection)
        self._nodes = NodeCache()
        self._points = PointExecutor(self._fetch)
        self._groups: dict[str, deque[_Pending]] = {}
        self._leaders: set[asyncio.Task[None]] = set()
        # Writers that wait for a row lock leave connections for the readers.
        self._leading = asyncio.Semaphore(max(1, connections - RESERVED_FOR_READS))
        self._dsn = dsn
        self._connections = connections
        self._pool: Any = None

    async def start(self) -> None:
        """Connects. Unavailable if the server does not answer."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=1,
                max_size=self._connections,
                timeout=WAIT_SECONDS,
                command_timeout=COMMAND_SECONDS,
                server_settings=_SESSION,
                statement_cache_size=STATEMENT_CACHE,
                max_cacheable_statement_size=0,
                reset=_leave,
            )
        except asyncpg.PostgresError as error:
            raise Unavailable(f"PostgreSQL refused the connection: {error}") from error
        except (*_UNREACHABLE, asyncpg.InterfaceError) as error:
            raise Unavailable(f"PostgreSQL does not answer: {error}") from error

    async def stop(self) -> None:
        """Finishes what was accepted and closes."""
        if self._leaders:
            await asyncio.gather(*self._leaders, return_exceptions=True)
        if self._pool is not None:
            pool, self._pool = self._pool, None
            try:
                await asyncio.wait_for(pool.close(), WAIT_SECONDS)
            except TimeoutError:
                pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        """A pooled connection; Unavailable where there is none in time or it breaks."""
        if self._pool is None:
            raise Unavailable("the database is closed")
        try:
            connection = await self._pool.acquire(timeout=WAIT_SECONDS)
            try:
                yield self._wrap(connection)
            except BaseException as error:
                if _is_unreachable(error):
                    _abandon(connection)
                raise
            finally:
                await self._pool.release(connection)
        except asyncpg.PostgresError as error:
            if _is_unreachable(error):
                raise Unavailable(_absent(error)) from error
            if isinstance(error, _RERUN):
                raise
            place = (error.sqlstate, error.table_name, error.constraint_name)
            raise StorageFault(f"{type(error).__name__}: {place}") from None
        except Exception as error:
            if _is_unreachable(error):
                raise Unavailable(_absent(error)) from error
            raise

    # Schema

    async def schema_version(self) -> int:
        """The version of the schema that is there; 0 where there is none yet."""
        async with self._connection() as connection:
            return await self._version(connection)

    async def migrate(self, now: int) -> int:
        """Brings the schema to this program's version, one transaction a step; that version.

        Where two nodes start at once, one makes a step and the other finds it made.
        """
        for _ in range(RETRIES):
            try:
                async with self._connection() as connection:
                    version = await self._version(connection)
                    if version > _NEWEST:
                        raise Unavailable(
                            f"the database has schema {version}, this program knows {_NEWEST}:"
                            " upgrade it"
                        )
                    for number, name, text in _MIGRATIONS:
                        if number > version:
                            await self._step(connection, (number, name, now), text)
                    executor = PostgresExecutor(connection)
                    executor.run("add_instance", {"cursor_key": self._random_bytes(32)})
                    await executor.flush()
                    kept = await connection.fetchval(STATEMENTS["get_seal_check"].text)
                    check = check_master_key(self._sealer, kept)
                    if check is not None:
                        executor.run("set_seal_check", {"seal_check": check})
                        await executor.flush()
                        # Another node may have been first, under another key.
                        kept = await connection.fetchval(STATEMENTS["get_seal_check"].text)
                        check_master_key(self._sealer, kept)
                    return _NEWEST
            except (asyncpg.UniqueViolationError, asyncpg.DuplicateTableError):
                await asyncio.sleep(0.1)
        raise Unavailable("another node is migrating the database: try again")

    async def _step(self, connection: Connection, version: tuple[int, str, int], text: str) -> None:
        async with connection.transaction():
            statements = split_script(text)
            if version[0] == 1:
                statements = [s for s in statements if "CREATE TABLE migrations" not in s]
                await connection.execute(_migrations_table())
            executor = PostgresExecutor(connection)
            number, name, now = version
            executor.run("add_migration", {"version": number, "name": name, "applied_at": now})
            await executor.flush()
            for statement in statements:
                await connection.execute(statement)

    async def _version(self, connection: Connection) -> int:
        if not await connection.fetchval("SELECT to_regclass('migrations') IS NOT NULL"):
            return 0
        return int(await connection.fetchval(STATEMENTS["migration_version"].text) or 0)

    async def check_schema(self) -> int:
        """This program's schema version; Unavailable on another, and where there is none."""
        async with self._connection() as connection:
            return check_version(await self._version(connection), _NEWEST)

    async def holds_master_key(self) -> bool:
        """Whether this process has what the database's bodies were sealed with."""
        async with self._connection() as connection:
            kept = await connection.fetchval(STATEMENTS["get_seal_check"].text)
        return has_master_key(self._sealer, kept)

    async def check_ready(self) -> None:
        """Unavailable unless the server answers, the schema is ours and a write works."""
        async with self._connection() as connection:
            version = await self._version(connection)
            if version != _NEWEST:
                raise Unavailable(f"the database has schema {version}, this program {_NEWEST}")
            await connection.fetch(STATEMENTS["probe_instance"].text)

    async def cursor_key(self) -> bytes:
        """32 bytes shared by every node of this database."""
        async with self._connection() as connection:
            return bytes(await connection.fetchval(STATEMENTS["get_instance"].text))

    async def scrub(self) -> bool:
        """Bodies are sealed, so a body is gone with its key's row.

        The row's own bytes go when the database vacuums and recycles its log (docs/security.md).
        """
        return True

    async def check_integrity(self) -> list[str]:
        """PostgreSQL checks its pages itself where it was made with checksums."""
        return []

    # Reading

    async def read(self, use: Use[T], *, scan: bool = False, single: bool = False) -> T:
        """Runs `use` on one REPEATABLE READ snapshot; once more where a connection had died."""
        del scan
        if single:
            return await use(SqlTransaction(self._points, self._nodes, self._sealer))
        for last in (False, True):
            async with self._connection() as connection:
                try:
                    return await self._read_once(connection, use)
                except Exception as error:
                    if last or not _is_unreachable(error):
                        raise
                    _abandon(connection)
        raise AssertionError("the last attempt answers or raises")

    async def _fetch(self, name: str, values: dict[str, Any]) -> list[Row]:
        """The rows of one statement, which is its own snapshot; repeated like `read`."""
        statement = STATEMENTS[name]
        bound = [values[value] for value in statement.values]
        for last in (False, True):
            async with self._connection() as connection:
                try:
                    found: list[Row] = await connection.fetch(statement.text, *bound)
                    return found
                except Exception as error:
                    if last or not _is_unreachable(error):
                        raise
                    _abandon(connection)
        raise AssertionError("the last attempt answers or raises")

    async def _read_once(self, connection: Connection, use: Use[T]) -> T:
        tx = SqlTransaction(PostgresExecutor(connection), self._nodes, self._sealer)
        await connection.execute(_BEGIN_READ)
        try:
            answer = await use(tx)
        except BaseException as error:
            await _roll_back(connection, error)
            raise
        await connection.execute("COMMIT")
        return answer

    # Writing

    async def write(self, group: str | None, use: Use[T]) -> T:
        """Runs `use` with the other waiting writes of its group, in one transaction."""
        pending = _Pending(use)
        if group is None:
            self._begin(self._lead_alone(pending))
        else:
            waiting = self._groups.get(group)
            if waiting is None:
                self._groups[group] = waiting = deque()
                self._begin(self._lead(group))
            waiting.append(pending)
        answer: T = await asyncio.shield(pending.future)
        return answer

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Leave to hold one of the writers' connections; Unavailable where all stay in use."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._leading.acquire()
        except TimeoutError:
            raise Unavailable("too many writers wait for the database: try again") from None
        try:
            yield
        finally:
            self._leading.release()

    def _begin(self, leader: Any) -> None:
        task = asyncio.get_running_loop().create_task(leader)
        self._leaders.add(task)
        task.add_done_callback(self._leaders.discard)

    async def _lead(self, group: str) -> None:
        """Runs what waits in the group, batch after batch, until nothing does."""
        waiting = self._groups[group]
        try:
            while waiting:
                await self._lead_batch(waiting)
        finally:
            del self._groups[group]
            for pending in waiting:
                pending.error = Unavailable("the database is closed")
                _resolve(pending)

    async def _lead_batch(self, waiting: deque[_Pending]) -> None:
        batch: list[_Pending] = []
        done = True
        try:
            async with self._turn():
                done = await self._on_connection(batch, waiting)
        except Exception as error:
            batch = batch or [waiting.popleft() for _ in range(len(waiting))]
            for pending in batch:
                pending.error = error
        for pending in batch:
            if not done:
                await self._run_alone(pending)
            _resolve(pending)

    async def _lead_alone(self, pending: _Pending) -> None:
        await self._run_alone(pending)
        _resolve(pending)

    async def _run_alone(self, pending: _Pending) -> None:
        for attempt in range(RETRIES):
            try:
                async with self._turn():
                    if await self._on_connection([pending], deque()):
                        return
            except Exception as error:
                pending.error = error
                return
            await asyncio.sleep(0.001 * attempt)
        pending.error = Unavailable("the write was overtaken too often: try again")

    async def _on_connection(self, group: list[_Pending], waiting: deque[_Pending]) -> bool:
        """What `_attempt` says; a pooled connection that died unnoticed is replaced once."""
        for last in (False, True):
            async with self._connection() as connection:
                while waiting and len(group) < GROUP_MAX:
                    group.append(waiting.popleft())
                executor = PostgresExecutor(connection, begins=True)
                try:
                    return await self._attempt(connection, executor, group, waiting)
                except Exception as error:
                    if last or executor.begun or not _is_severed(error):
                        raise
                    _abandon(connection)
        raise AssertionError("the last attempt answers or raises")

    async def _attempt(
        self,
        connection: Connection,
        executor: PostgresExecutor,
        group: list[_Pending],
        waiting: deque[_Pending],
    ) -> bool:
        """Whether every member has its answer or its refusal for good.

        Who comes to wait while the members run joins them. False has changed nothing and asks for
        another run: each alone, or the one again. A group of one that fails half-way has its
        refusal, and has changed nothing either.
        """
        tx = SqlTransaction(executor, self._nodes, self._sealer)
        try:
            for pending in _members(group, waiting):
                before = tx.writes
                pending.error = None
                try:
                    pending.answer = await pending.use(tx)
                except Exception as error:
                    if isinstance(error, Lost | asyncpg.PostgresError) or _is_unreachable(error):
                        raise
                    pending.error = error
                    if tx.writes != before:
                        await _roll_back(connection, error)
                        return len(group) == 1
            tx.finish()
            await executor.flush()
            if executor.begun:
                await connection.execute("COMMIT")
        except BaseException as error:
            await _roll_back(connection, error)
            if isinstance(error, _RERUN):
                return False
            # The server answers, and one member's statement has spoilt the group.
            refused = isinstance(error, asyncpg.PostgresError) and not _is_unreachable(error)
            if refused and len(group) > 1:
                return False
            raise
        return True


def _members(group: list[_Pending], waiting: deque[_Pending]) -> Iterator[_Pending]:
    """The group's members, then those that it takes in."""
    yield from group
    while waiting and len(group) < GROUP_MAX:
        group.append(waiting.popleft())
        yield group[-1]


async def _leave(connection: Connection) -> None:
    """What the pool runs on a connection that comes back: nothing, for we leave it clean."""
    del connection


def _migrations_table() -> str:
    """The one table that every step, also a first one that crashed, may find there."""
    text = next(s for s in split_script(migrations(WORDS)[0][2]) if "TABLE migrations" in s)
    return text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS")


def _abandon(connection: Connection) -> None:
    """Throws the connection away; one that the pool has found dead meanwhile is gone already."""
    with suppress(asyncpg.InterfaceError):
        connection.terminate()


async def _roll_back(connection: Connection, error: BaseException) -> None:
    """Ends a transaction that failed half-way; a connection that cannot is thrown away.

    So is one that a server has not answered on in time: it would be waited for once more.
    """
    try:
        if _is_unreachable(error):
            _abandon(connection)
        elif not connection.is_closed():
            await connection.execute("ROLLBACK")
    except Exception:
        _abandon(connection)


def _absent(error: BaseException) -> str:
    return f"PostgreSQL does not answer ({type(error).__name__})"


def _resolve(pending: _Pending) -> None:
    if pending.future.done():
        return
    if pending.error is None:
        pending.future.set_result(pending.answer)
    else:
        pending.future.set_exception(pending.error)
