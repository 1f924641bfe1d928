import os
from itertools import count
from pathlib import Path

import pytest

from muniment.storage.base import Storage
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage
from muniment.testing.builders import Builder, make_home, put_content
from muniment.testing.storage_events import erase
from muniment.testing.storage_races import check_two_handles
from muniment.testing.storage_suite import StorageSuite


class TestSqliteStorage(StorageSuite):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.paths = (tmp_path / f"{n}.db" for n in count())

    async def make(self) -> Storage:
        self.path = next(self.paths)
        return await self.start()

    async def reopen(self, storage: Storage) -> Storage:
        await storage.stop()
        return await self.start()

    async def start(self) -> Storage:
        storage = self.over(self.path)
        await storage.start()
        await storage.migrate(now=1)
        return storage

    def over(self, path: Path) -> SqliteStorage:
        return SqliteStorage(path, os.urandom)

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
    def over(self, path: Path) -> SqliteStorage:
        return SqliteStorage(path, os.urandom, Sealer(os.urandom, {1: b"m" * 32}, 1))
