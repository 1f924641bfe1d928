"""A database with something of everything, and ways to damage a copy of it."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from muniment import main
from muniment.model.ids import OPERATOR_PRINCIPAL
from muniment.service.doctor_notes import Report
from muniment.settings import load
from wire import Wire, document_url, wired

UNPROVEN = {
    "workspaces": {"name", "zero_data_retention", "retention_seconds", "created_at"},
    "principals": {"name", "external_id"},
    "api_keys": {"name", "secret_hash", "expires_at"},
    "owners": {"name", "scope_kind"},
    # Of a change that was superseded, nothing names the id.
    "changes": {"change_id"},
    "stores": {"name", "description", "generation", "require_distinct_reviewer"},
}
"""Columns of which the database holds nothing else that they could be compared with."""

OF_TOMBSTONES = {"version", "archived_at", "created_at", "updated_at", "pool_id", "owner_kind"}
"""Columns of a deleted store that went with its events."""

Row = dict[str, Any]


async def fill(wire: Wire) -> str:
    """Stores with a history, people with rights, tombstones; a store's id."""
    store = await wire.store(default=True)
    for n in range(6):
        await wire.put(store, f"/a/{n}.md", f"text {n}")
    await replace(wire, store, "/a/1.md", "new")
    await replace(wire, store, "/a/2.md", None)
    await wire.put(store, "/a/2.md", "again")
    gone = await wire.store()
    await wire.put(gone, "/é.md", "x")
    assert (await wire.owner.delete(f"/v1/memory-stores/{gone}")).is_success
    ada = await wire.person()
    person = {"kind": "principal", "principal": ada.principal}
    await wire.grant(store, person, "read")
    ended = await wire.grant(store, person, "write")
    operator = {"kind": "principal", "principal": OPERATOR_PRINCIPAL}
    asks: list[tuple[str, str, dict[str, Any]]] = [
        ("DELETE", f"/v1/permission-assignments/{ended}", {}),
        ("POST", "/v1/delegations", {"principal": ada.principal, "delegate": operator}),
        ("POST", "/v1/sessions", {"name": "s"}),
        ("POST", "/v1/surface-scopes", {"name": "p", "kind": "public"}),
        ("POST", "/v1/agents", {"name": "bot"}),
        ("POST", "/v1/api-keys", {"name": "revoked"}),
        ("POST", "/v1/memory-stores", {"name": "old"}),
    ]
    for method, url, body in asks:
        answer = await wire.owner.request(method, url, json=body or None)
        assert answer.is_success, answer.text
        made = answer.json() if answer.status_code == 201 else {}
        if url.endswith("agents"):
            owner = {"kind": "agent_definition", "agent_definition": made["id"]}
            shared = {"name": "shared", "owner": owner}
            assert (await wire.owner.post("/v1/memory-stores", json=shared)).is_success
        if url.endswith("api-keys"):
            assert (await wire.owner.delete(f"{url}/{made['id']}")).is_success
        if url.endswith("memory-stores"):
            await wire.put(made["id"], "/é.md", "é")
            archive = f"{url}/{made['id']}/archive"
            assert (await wire.owner.post(archive, json={"expected_version": 1})).is_success
    return store


async def replace(wire: Wire, store: str, path: str, content: str | None) -> None:
    """Puts another content at the path, or (None) nothing."""
    url, where = document_url(store), {"path": path}
    headers = {"If-Match": (await wire.owner.get(url, params=where)).json()["sha256"]}
    method = "DELETE" if content is None else "PUT"
    body = None if content is None else {"content": content}
    answer = await wire.owner.request(method, url, params=where, json=body, headers=headers)
    assert answer.is_success, answer.text


def filled(folder: Path, **settings: Any) -> Path:
    """An SQLite database that was filled and closed."""

    async def run() -> None:
        async with wired(folder / "home", f"sqlite:///{folder / 'whole.db'}", **settings) as wire:
            await fill(wire)

    folder.mkdir(exist_ok=True)
    asyncio.run(run())
    return folder / "whole.db"


def diagnose(database: Path | str, home: Path, **asked: Any) -> Report:
    """What the doctor finds in the database."""
    address = f"sqlite:///{database}" if isinstance(database, Path) else database
    keys = {"master_key": asked.pop("master_key", "")}
    return asyncio.run(main.diagnose(load({}, home=home, database=address, **keys), **asked))


class Cell(NamedTuple):
    """A value in a database: its table and column, and the row that it is in."""

    table: str
    column: str
    kind: str
    row: Row

    @property
    def value(self) -> Any:
        """What is there."""
        return self.row[self.column]

    @property
    def unproven(self) -> bool:
        """Whether nothing else tells what should be there."""
        if self.column in UNPROVEN.get(self.table, ()):
            return True
        if self.table == "stores" and self.row["status"] == "deleted":
            return self.column in OF_TOMBSTONES
        return self.table == "principals" and self.row["name"] in ("owner", "operator")


def cells(database: Path) -> Iterator[Cell]:
    """Every value in the tables of workspaces."""
    with sqlite3.connect(database) as connection:
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        ).fetchall():
            columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
            names = [column[1] for column in columns]
            if names[0] != "workspace_id":
                continue
            for values in connection.execute(f"SELECT * FROM {table}").fetchall():
                row = dict(zip(names, values, strict=True))
                for column in columns:
                    yield Cell(table, column[1], column[2], row)
    connection.close()


def damaged(database: Path, copy: Path, cell: Cell, value: Any) -> bool:
    """Writes the value in a copy; whether the database took it. NOT NULL counts for nothing."""
    shutil.copy(database, copy)
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA writable_schema = 1")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    connection.commit()
    connection.close()
    connection = sqlite3.connect(copy)
    where = " AND ".join(f"{column} IS ?" for column in cell.row)
    text = f"UPDATE {cell.table} SET {cell.column} = ? WHERE {where}"
    try:
        changed = connection.execute(text, [value, *cell.row.values()]).rowcount
        assert changed == 1, cell
        connection.commit()
    except sqlite3.IntegrityError:
        return False
    finally:
        connection.close()
    return True


def other(cell: Cell) -> Any:
    """Another value that the column could have."""
    value = cell.value
    if value is None:
        return 5 if cell.kind == "INTEGER" else "x" if cell.kind == "TEXT" else b"x" * 16
    if isinstance(value, int):
        return 1 - value if value in (0, 1) else value + 1
    if isinstance(value, str):
        return value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"
    at = len(value) // 2
    return value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :]


def named(report: Report, cell: Cell, value: Any) -> bool:
    """Whether a finding names the table or the row, as it was or as it is."""
    words = {cell.table}
    for one in [*cell.row.values(), value]:
        if isinstance(one, bytes) and one:
            words |= {one.hex(), one.decode("utf-8", "replace")}
    text = "\n".join(f"{f.kind} {f.message} {f.store} {f.place}" for f in report.findings)
    return any(word in text for word in words)
