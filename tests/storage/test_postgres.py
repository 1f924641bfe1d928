import asyncio
import os

import pytest

from conftest import FreshDatabase
from muniment.storage.base import Storage
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sealing import Sealer
from muniment.testing.postgres import PostgresServer
from muniment.testing.storage_races import check_two_handles
from muniment.testing.storage_suite import StorageSuite


async def start(dsn: str) -> Storage:
    storage = PostgresStorage(dsn, os.urandom, Sealer(os.urandom))
    await storage.start()
    await storage.migrate(now=1)
    return storage


def initialize(dsn: str) -> None:
    async def migrate() -> None:
        await (await start(dsn)).stop()

    asyncio.run(migrate())


@pytest.mark.postgres
class TestPostgresStorage(StorageSuite):
    @pytest.fixture(autouse=True)
    def server(self, postgres_server: PostgresServer, fresh_database: FreshDatabase) -> None:
        self.template = postgres_server.template("migrated", initialize)
        self.fresh = fresh_database

    async def make(self) -> Storage:
        self.dsn = self.fresh(self.template)
        return await start(self.dsn)

    async def reopen(self, storage: Storage) -> Storage:
        await storage.stop()
        return await start(self.dsn)

    async def test_two_storages_share_one_database(self, storage: Storage) -> None:
        second = await start(self.dsn)
        await check_two_handles(storage, second)
        await second.stop()
