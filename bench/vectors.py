"""A stand-in for the term vector that search will write: one row of its size with each change.

Only the benchmark has it. It goes through the storage's own way of inserting, in the transaction
of the change, so that its price is the one that search will pay.
"""

import os
from typing import Any

from muniment.storage import postgres_executor, sqlite
from muniment.storage.base import Storage, Use
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sqlite import SqliteStorage
from muniment.storage.statements import Table, Words

VECTOR_BYTES = 3000
_NAME = "bench_vectors"
_COLUMNS = ("workspace_id", "vector_id", "body")
_CREATE = (
    f"CREATE TABLE IF NOT EXISTS {_NAME} (workspace_id {{bytes}} NOT NULL,"
    " vector_id {bytes} NOT NULL, body {bytes} NOT NULL, PRIMARY KEY (workspace_id, vector_id))"
)
_WORKSPACE = bytes(16)
_BODY = os.urandom(VECTOR_BYTES)


def add_vectors(storage: Storage) -> Storage:
    """The storage, its every use that wrote also writing one row of VECTOR_BYTES."""
    migrate, write = storage.migrate, storage.write
    kept: dict[bytes, bytes] = {}

    async def migrate_and_make(now: int) -> int:
        version = await migrate(now)
        await _make_table(storage)
        return version

    async def write_both(group: str | None, use: Use[Any]) -> Any:
        async def both(tx: Any) -> Any:
            before = getattr(tx, "writes", None)
            answer = await use(tx)
            if before is None:
                kept[os.urandom(32)] = bytes(bytearray(_BODY))
            elif tx.writes != before:
                tx._executor.insert(_NAME, (_WORKSPACE, os.urandom(32), _BODY))
            return answer

        return await write(group, both)

    for name, replacement in (("migrate", migrate_and_make), ("write", write_both)):
        setattr(storage, name, replacement)
    return storage


async def _make_table(storage: Storage) -> None:
    """Tells the adapter of the table as if it were in the schema, and makes it."""
    if isinstance(storage, SqliteStorage):
        sqlite._INSERTS[_NAME] = sqlite._insert_text(_table(sqlite.WORDS))
        storage._write_connection.execute(sqlite.WORDS.fill(_CREATE)).fetchall()
    elif isinstance(storage, PostgresStorage):
        table = _table(postgres_executor.WORDS)
        postgres_executor.TABLES[_NAME] = table
        postgres_executor.INSERTS[_NAME] = postgres_executor.insert_texts(table)
        async with storage._connection() as connection:
            await connection.execute(postgres_executor.WORDS.fill(_CREATE))


def _table(words: Words) -> Table:
    return Table(_NAME, _COLUMNS, (words.bytes,) * len(_COLUMNS), (False,) * len(_COLUMNS), (0, 1))
