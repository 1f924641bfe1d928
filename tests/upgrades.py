"""Databases as earlier programs wrote them, and processes that are killed upgrading them."""

import asyncio
import inspect
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from muniment.main import make_sealer
from muniment.settings import Settings, load
from muniment.storage import postgres, sqlite
from muniment.storage.base import Storage
from muniment.storage.statements import Words, migrations, split_script
from shell import PROCESSES

FOLDER = Path(__file__).parent / "storage" / "written"
NEWEST = migrations(sqlite.WORDS)[-1][0]
SECONDS_MAX = 60


class Written:
    """What an earlier program wrote and said (`scripts/written.py`)."""

    def __init__(self, file: Path) -> None:
        kept = json.loads(file.read_text("utf-8"))
        self.name = file.stem
        self.schema: int = kept["schema"]
        self.master_key: str = kept["master_key"]
        self.secret: str = kept["secret"]
        self.doomed: str = kept["doomed"]
        self.stores: dict[str, Any] = kept["stores"]
        self._tables: dict[str, Any] = kept["tables"]

    def settings(self, home: Path, address: str) -> Settings:
        """The settings for a database of it, with the owner's key in place."""
        home.mkdir(mode=0o700, exist_ok=True)
        file = home / "credentials"
        file.write_text(self.secret + "\n")
        file.chmod(0o600)
        return load({}, home=home, database=address, master_key=self.master_key)

    async def restore(self, address: str) -> None:
        """Makes the database: the first migrations, then every row."""
        if address.startswith("sqlite"):
            connection = apsw.Connection(address.removeprefix("sqlite:///"))
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
            for text, values in self._statements(sqlite.WORDS):
                connection.execute(text, values)
            connection.close()
            return
        other = await asyncpg.connect(address)
        async with other.transaction():
            for text, values in self._statements(postgres.WORDS):
                await other.execute(text, *values)
        await other.close()

    def _statements(self, words: Words) -> list[tuple[str, tuple[Any, ...]]]:
        made: list[tuple[str, tuple[Any, ...]]] = []
        for number, _, script in migrations(words):
            if number <= self.schema:
                made += [(statement, ()) for statement in split_script(script)]
        for name, table in self._tables.items():
            columns = ", ".join(table["columns"])
            marks = ", ".join(f"{words.mark}{n + 1}" for n in range(len(table["columns"])))
            text = f"INSERT INTO {name} ({columns}) VALUES ({marks})"
            made += [(text, tuple(map(_value, row))) for row in table["rows"]]
        return made


def _value(kept: Any) -> Any:
    return bytes.fromhex(kept["hex"]) if isinstance(kept, dict) else kept


def written() -> list[Written]:
    """Every database that is kept."""
    return [Written(file) for file in sorted(FOLDER.glob("*.json"))]


async def schema_of(address: str) -> int:
    """The version that the database says it has; 0 where it says none."""
    if address.startswith("sqlite"):
        connection = apsw.Connection(address.removeprefix("sqlite:///"))
        try:
            return int(connection.execute("SELECT MAX(version) FROM migrations").fetchall()[0][0])  # type: ignore[arg-type]  # an integer
        finally:
            connection.close()
    other = await asyncpg.connect(address)
    try:
        return int(await other.fetchval("SELECT MAX(version) FROM migrations"))
    finally:
        await other.close()


class Deadly:
    """A connection, or a cursor of it, whose process is killed at its n-th statement of all.

    `left` counts down, for all connections that were wrapped together; with `after` the statement
    has run.
    """

    _STATEMENTS = frozenset({"execute", "fetch", "fetchval", "fetchrow"})

    def __init__(self, target: Any, left: Iterator[int], *, after: bool) -> None:
        self._target = target
        self._left = left
        self._after = after

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name == "cursor":
            return lambda: Deadly(attribute(), self._left, after=self._after)
        return partial(self._run, attribute) if name in self._STATEMENTS else attribute

    def _run(self, method: Callable[..., Any], *values: Any) -> Any:
        if next(self._left) > 1:
            return method(*values)
        if not self._after:
            die()
        answer = method(*values)
        if inspect.isawaitable(answer):
            return self._die_later(answer)
        answer.fetchall()
        return die()

    async def _die_later(self, answer: Awaitable[Any]) -> None:
        await answer
        die()


def die() -> None:
    """Ends this process as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def storage_over(settings: Settings, wrap: Callable[[Any], Any] | None = None) -> Storage:
    """The storage that the settings name, with something in the place of its connections."""
    sealer = make_sealer(settings)
    if settings.database_file is not None:
        sealing = sealer if settings.master_key else None
        return sqlite.SqliteStorage(settings.database_file, os.urandom, sealing, wrap=wrap)
    return postgres.PostgresStorage(settings.database_url, os.urandom, sealer, wrap=wrap)


def migrate_and_die(settings: Settings, at: int, after: bool) -> None:
    """Migrates the database, and is killed at the `at`-th statement where there are so many."""
    left = count(at, -1)

    async def migrate() -> None:
        storage = storage_over(settings, lambda connection: Deadly(connection, left, after=after))
        await storage.start()
        await storage.migrate(now=1)
        await storage.stop()

    asyncio.run(migrate())


def is_killed_migrating(settings: Settings, at: int, *, after: bool) -> bool:
    """Whether a process that migrates the database was killed at that statement, or had fewer."""
    process = PROCESSES.Process(target=migrate_and_die, args=(settings, at, after))
    process.start()
    process.join(SECONDS_MAX)
    assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
    return process.exitcode != 0
