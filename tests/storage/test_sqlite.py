import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import apsw
import pytest

from muniment.storage.base import Storage
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage
from muniment.testing.builders import Builder, make_home, put_content
from muniment.testing.faults import Faults, Mishap
from muniment.testing.storage_crashes import CrashCases
from muniment.testing.storage_events import erase
from muniment.testing.storage_races import check_two_handles
from muniment.testing.storage_suite import StorageSuite

OPENING = """
import os
from pathlib import Path
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage
keys = {master_keys!r}
sealer = Sealer(os.urandom, keys, 1) if keys else None
storage = SqliteStorage(Path({path!r}), os.urandom, sealer)
"""


def refuse(connection: apsw.Connection) -> None:
    raise apsw.IOError("disk I/O error")


def roll_back(connection: apsw.Connection) -> None:
    """As SQLite does by itself when the disk is full."""
    if not connection.get_autocommit():
        connection.execute("ROLLBACK")
    raise apsw.FullError("database or disk is full")


class TestSqliteStorage(StorageSuite, CrashCases):
    mishaps = (
        Mishap("refused", refuse),
        Mishap("refused after it ran", refuse, after=True),
        Mishap("rolled back", roll_back),
        Mishap("refused twice", refuse, again=20),
        Mishap("broken for good", refuse, lasting=True),
    )
    stride = 8

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}.db" for n in count())

    async def make(self) -> Storage:
        self.path = next(self.paths)
        return await self.start()

    async def reopen(self, storage: Storage) -> Storage:
        await storage.stop()
        return await self.start()

    async def start(self, faults: Faults | None = None) -> Storage:
        storage = self.over(self.path, faults and faults.wrap)
        await storage.start()
        await storage.migrate(now=1)
        return storage

    async def open_faulty(self, faults: Faults) -> Storage:
        return await self.start(faults)

    def opening(self) -> str:
        return OPENING.format(path=str(self.path), master_keys=self.master_keys)

    master_keys: ClassVar[dict[int, bytes]] = {}
    """What bodies are sealed with; none are where it is empty."""

    def over(self, path: Path, wrap: Callable[[Any], Any] | None = None) -> SqliteStorage:
        sealer = Sealer(os.urandom, self.master_keys, 1) if self.master_keys else None
        return SqliteStorage(path, os.urandom, sealer, wrap=wrap)

    async def test_erased_content_is_nowhere_in_the_files_once_scrubbed(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        secret = b"the passphrase is crane violet anchor " * 400
        await put_content(storage, build, home, [("/a", secret), ("/b", secret + b".")])
        await erase(storage, home, 100)
        assert await storage.scrub()
        for file in self.path.parent.iterdir():
            assert b"crane violet" not in file.read_bytes(), file

    async def test_two_storages_share_one_file(self, storage: Storage) -> None:
        second = await self.start()
        await check_two_handles(storage, second)
        await second.stop()


class TestSealedSqliteStorage(TestSqliteStorage):
    master_keys: ClassVar[dict[int, bytes]] = {1: b"m" * 32}
    stride = 24
