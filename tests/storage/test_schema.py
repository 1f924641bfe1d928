"""The migrations lead to the schema, on both databases, and no order depends on a collation."""

import asyncio
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from muniment.model.ids import DEFAULT_WORKSPACE, PoolId
from muniment.storage import postgres, sqlite
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage
from muniment.storage.statements import (
    load_statements,
    load_tables,
    migrations,
    schema,
    split_script,
)

SQLITE_CATALOG = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
POSTGRES_CATALOG = """
SELECT table_name, column_name, ordinal_position, data_type, is_nullable
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL
SELECT tablename, indexdef, 0, '', '' FROM pg_indexes WHERE schemaname = 'public'
ORDER BY 1, 3, 2
"""
TEXT_KEYS = {
    ("principals", "external_id"),
    ("owners", "kind"),
    ("stores", "owner_kind"),
    ("refs", "name"),
    ("jobs", "kind"),
}
"""Text in keys and indexes: compared for equality, never for order."""


def test_the_sqlite_migrations_make_the_schema(tmp_path: Path) -> None:
    def catalog(scripts: list[str], name: str) -> list[Any]:
        connection = apsw.Connection(str(tmp_path / name))
        for script in scripts:
            for statement in split_script(script):
                connection.execute(statement)
        rows: list[Any] = connection.execute(SQLITE_CATALOG).fetchall()
        return [(*row[:3], " ".join((row[3] or "").split())) for row in rows]

    stepwise = catalog([text for _, _, text in migrations(sqlite.WORDS)], "steps.db")
    assert stepwise == catalog([schema(sqlite.WORDS)], "whole.db")
    assert len(stepwise) > 30


@pytest.mark.postgres
async def test_the_postgres_migrations_make_the_schema(fresh_database: Any) -> None:
    catalogs = []
    for scripts in ([t for _, _, t in migrations(postgres.WORDS)], [schema(postgres.WORDS)]):
        connection = await asyncpg.connect(fresh_database())
        for script in scripts:
            for statement in split_script(script):
                await connection.execute(statement)
        catalogs.append([tuple(row) for row in await connection.fetch(POSTGRES_CATALOG)])
        await connection.close()
    assert catalogs[0] == catalogs[1]
    assert len(catalogs[0]) > 150


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [number for number, _, _ in migrations(sqlite.WORDS)]
    assert numbers == list(range(1, len(numbers) + 1))


def test_ids_hashes_and_paths_are_bytes_and_text_orders_nothing() -> None:
    tables = load_tables(postgres.WORDS)
    for table in tables.values():
        for column, kind in zip(table.columns, table.types, strict=True):
            if column == "path" or column.endswith(("_id", "_hash", "hash")):
                assert (table.name, column) == ("principals", "external_id") or kind == "BYTEA"
        for position in table.key:
            name = table.columns[position]
            assert table.types[position] != "TEXT" or (table.name, name) in TEXT_KEYS
    for statement in load_statements(postgres.WORDS).values():
        _, _, order = statement.text.partition("ORDER BY ")
        assert not any(word in order.split("LIMIT")[0] for word in ("name", "kind", "external"))


def test_every_tenant_table_begins_its_key_with_the_workspace() -> None:
    for table in load_tables(sqlite.WORDS).values():
        if table.name not in ("migrations", "instance"):
            assert table.columns[table.key[0]] == "workspace_id", table.name


def test_every_statement_on_a_tenant_table_names_the_workspace() -> None:
    operators = {"list_workspaces", "due_jobs"}
    for statement in load_statements(sqlite.WORDS).values():
        tenant = statement.tables - {"migrations", "instance", "m", "r"}
        if tenant and statement.name not in operators:
            assert "workspace_id = :" in statement.text or "workspace_id = ?" in statement.text


@pytest.mark.postgres
async def test_two_nodes_may_migrate_at_once(postgres_dsn: str) -> None:
    nodes = [
        postgres.PostgresStorage(postgres_dsn, os.urandom, Sealer(os.urandom)) for _ in range(3)
    ]
    for node in nodes:
        await node.start()
    assert set(await asyncio.gather(*[node.migrate(1) for node in nodes])) == {2}
    assert len({await node.cursor_key() for node in nodes}) == 1
    for node in nodes:
        await node.check_ready()
        await node.stop()


async def test_r_82_bodies_are_sealed_with_a_key_each_where_a_master_key_is_set(
    tmp_path: Path,
) -> None:
    path, pool = tmp_path / "sealed.db", PoolId("pool_" + "1" * 32)
    content = b"a canary that must not lie in the file as it is"
    blob = sha256(content).digest()
    sealer = Sealer(os.urandom, {1: b"k" * 32}, 1)
    storage = SqliteStorage(path, os.urandom, sealer)
    await storage.start()
    await storage.migrate(1)

    async def put(tx: Any) -> None:
        tx.put_blob(DEFAULT_WORKSPACE, pool, blob, content)

    await storage.write(None, put)
    assert await storage.read(lambda tx: tx.get_blob(DEFAULT_WORKSPACE, pool, blob)) == content
    await storage.stop()
    assert content not in path.read_bytes()
    stranger = SqliteStorage(path, os.urandom, Sealer(os.urandom, {1: b"x" * 32}, 1))
    await stranger.start()
    with pytest.raises(ValueError, match="does not open"):
        await stranger.read(lambda tx: tx.get_blob(DEFAULT_WORKSPACE, pool, blob))
    await stranger.stop()
