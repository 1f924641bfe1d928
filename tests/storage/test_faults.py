"""What the adapters do when a database, a connection or a member of a group fails."""

import asyncio
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from muniment.model.ids import DEFAULT_WORKSPACE, PoolId
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage

POOL = PoolId("pool_" + "1" * 32)
OPEN = """
import asyncio, os, sys
from pathlib import Path
from muniment.storage.sqlite import SqliteStorage
async def main():
    storage = SqliteStorage(Path(sys.argv[1]), os.urandom)
    await storage.start()
    await storage.migrate(1)
    await storage.check_ready()
    await storage.stop()
asyncio.run(main())
"""


def putting(content: bytes, then: Any = None) -> Any:
    """A use that keeps a blob, and then fails with `then` if that is an exception."""

    async def use(tx: Any) -> bytes:
        blob = sha256(content).digest()
        tx.put_blob(DEFAULT_WORKSPACE, POOL, blob, content)
        if then is not None:
            raise then
        return blob

    return use


async def there(storage: Any, content: bytes) -> bool:
    blob = sha256(content).digest()
    found = await storage.read(lambda tx: tx.get_blob(DEFAULT_WORKSPACE, POOL, blob))
    return found is not None


def test_r_25_processes_may_open_one_new_file_at_once(tmp_path: Path) -> None:
    for n in range(3):
        command = [sys.executable, "-c", OPEN, str(tmp_path / f"{n}.db")]
        started = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(6)]
        for process in started:
            _, said = process.communicate(timeout=60)
            assert process.returncode == 0, said.decode()


async def test_r_80_a_group_that_sqlite_rolled_back_leaves_nothing_of_any_member(
    tmp_path: Path,
) -> None:
    """As on a full disk, the transaction ends under a member that has not written yet."""
    storage = SqliteStorage(tmp_path / "a.db", os.urandom)
    await storage.start()
    await storage.migrate(1)
    runs = []

    async def spoil(tx: Any) -> None:
        runs.append(1)
        storage._write_connection.execute("ROLLBACK")
        storage._write_connection.execute("SELECT * FROM no_such_table")

    async def hold(tx: Any) -> None:
        await_less = sum(range(200_000))  # keeps the writer busy while the group gathers
        assert await_less

    answers = await asyncio.gather(
        storage.write("a", hold),
        storage.write("a", putting(b"first")),
        storage.write("a", spoil),
        storage.write("a", putting(b"last")),
        return_exceptions=True,
    )
    assert isinstance(answers[2], Exception)
    assert answers[1] == sha256(b"first").digest()
    assert answers[3] == sha256(b"last").digest()
    assert await there(storage, b"first")
    assert await there(storage, b"last")
    await storage.write("a", putting(b"the writer goes on"))
    await storage.stop()


@pytest.mark.postgres
@pytest.mark.parametrize("connections", [1, 3])
async def test_k14_connections_that_died_are_replaced_without_a_failed_write(
    postgres_dsn: str, connections: int
) -> None:
    storage = PostgresStorage(postgres_dsn, os.urandom, Sealer(os.urandom), connections=connections)
    await storage.start()
    await storage.migrate(1)
    names = [f"group {n}" for n in range(connections)]
    await asyncio.gather(*[storage.write(name, putting(name.encode())) for name in names])
    other = await asyncpg.connect(postgres_dsn)
    await other.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await other.close()
    async with asyncio.timeout(8):
        answers = await asyncio.gather(
            *[storage.write(name, putting(f"{name} again".encode())) for name in names]
        )
    assert len(answers) == connections
    for name in names:
        assert await there(storage, f"{name} again".encode())
    await storage.stop()


@pytest.mark.postgres
async def test_r_80_one_members_bad_statement_does_not_fail_its_group(postgres_dsn: str) -> None:
    storage = PostgresStorage(postgres_dsn, os.urandom, Sealer(os.urandom))
    await storage.start()
    await storage.migrate(1)

    async def bad(tx: Any) -> None:
        await tx._executor._connection.fetch("SELECT 1 / 0")

    answers = await asyncio.gather(
        *[storage.write("a", putting(f"{n}".encode())) for n in range(4)],
        storage.write("a", bad),
        *[storage.write("a", putting(f"{n}".encode())) for n in range(4, 8)],
        return_exceptions=True,
    )
    assert type(answers.pop(4)).__name__ == "StorageFault"
    assert all(isinstance(answer, bytes) for answer in answers)
    assert all([await there(storage, f"{n}".encode()) for n in range(8)])
    await storage.stop()
