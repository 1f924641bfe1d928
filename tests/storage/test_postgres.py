import asyncio
import os
from typing import Any

import asyncpg
import pytest

from conftest import FreshDatabase
from muniment.storage.base import Storage
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sealing import Sealer
from muniment.testing.faults import Faults, Mishap
from muniment.testing.postgres import PostgresServer
from muniment.testing.storage_crashes import CrashCases
from muniment.testing.storage_races import check_two_handles
from muniment.testing.storage_suite import StorageSuite


async def start(dsn: str, faults: Faults | None = None) -> Storage:
    wrap, connections = (None, 10) if faults is None else (faults.wrap, 3)
    storage = PostgresStorage(
        dsn, os.urandom, Sealer(os.urandom), connections=connections, wrap=wrap
    )
    await storage.start()
    await storage.migrate(now=1)
    return storage


def initialize(dsn: str) -> None:
    async def migrate() -> None:
        await (await start(dsn)).stop()

    asyncio.run(migrate())


OPENING = """
import os
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sealing import Sealer
storage = PostgresStorage({dsn!r}, os.urandom, Sealer(os.urandom))
"""


def refuse(connection: Any) -> Any:
    """A statement that the server refuses: within a transaction, the transaction is lost."""
    return connection.fetch("SELECT 1 / 0")


def lose(connection: Any) -> None:
    connection.terminate()
    raise asyncpg.ConnectionDoesNotExistError("connection was closed in the middle of operation")


@pytest.mark.postgres
class TestPostgresStorage(StorageSuite, CrashCases):
    mishaps = (
        Mishap("refused", refuse),
        Mishap("refused after it ran", refuse, after=True),
        Mishap("refused twice", refuse, again=20),
        Mishap("lost", lose),
        Mishap("lost after it ran", lose, after=True, unsure=True),
        Mishap("lost for good", lose, lasting=True),
    )
    stride = 30

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

    async def open_faulty(self, faults: Faults) -> Storage:
        return await start(self.dsn, faults)

    def opening(self) -> str:
        return OPENING.format(dsn=self.dsn)

    async def test_two_storages_share_one_database(self, storage: Storage) -> None:
        second = await start(self.dsn)
        await check_two_handles(storage, second)
        await second.stop()
