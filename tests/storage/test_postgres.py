import os

import pytest

from conftest import FreshDatabase
from muniment.storage.base import Storage
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sealing import Sealer
from muniment.testing.storage_suite import StorageSuite


@pytest.mark.postgres
class TestPostgresStorage(StorageSuite):
    @pytest.fixture(autouse=True)
    def server(self, fresh_database: FreshDatabase) -> None:
        self.fresh = fresh_database

    async def make(self) -> Storage:
        self.dsn = self.fresh()
        return await self.start()

    async def reopen(self, storage: Storage) -> Storage:
        await storage.stop()
        return await self.start()

    async def start(self) -> Storage:
        storage = PostgresStorage(self.dsn, os.urandom, Sealer(os.urandom))
        await storage.start()
        await storage.migrate(now=1)
        return storage
