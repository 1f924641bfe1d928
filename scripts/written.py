"""Keeps small databases as this program writes them, for the tests of upgrades.

Run it, with the program of before, when a migration is added: it writes
`tests/storage/written/<schema>-plain.json` and `…-sealed.json`, and the tests then bring those up
to date on each database. They hold every table's rows, bytes in hexadecimal, and beside them what
that program said of its documents, trees and streams.
"""

import asyncio
import json
import os
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import muniment
from muniment import main
from muniment.model.errors import Unavailable
from muniment.model.ids import StoreId
from muniment.service.deletions import delete_store
from muniment.service.keys import authenticate
from muniment.settings import load
from muniment.storage.base import Storage, Transaction

T = TypeVar("T")

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "storage" / "written"
MASTER_KEY = "5a" * 32


class Dying:
    """A storage that goes away after its first write, as where a process dies."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._writes = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def write(self, group: str | None, use: Callable[[Transaction], Awaitable[T]]) -> T:
        """The first write."""
        if self._writes == 0:
            raise Unavailable("the process has died")
        self._writes -= 1
        answer: T = await self._storage.write(group, use)  # type: ignore[arg-type]  # an older port
        return answer


def fill(client: muniment.Client) -> dict[str, Any]:
    """Writes some of everything; what the program says of it, and the store to be deleted."""
    owner = client.principals.create("Ada", kind="person")
    key = client.keys.create("importer", principal=owner.id)
    agent = client.agents.create("archivist")
    session = client.sessions.create("first session")
    notes = client.stores.create("notes", description="of the first days")
    second = client.stores.create("second", default=True)
    doomed = client.stores.create("doomed")
    old = client.stores.create("old")
    for name in (f"agent_definition:{agent.id}", f"session:{session.id}"):
        client.assignments.create(notes.id, name, ["read"])
    for n in range(9):
        client.documents.put(notes.id, f"/{n % 5}/{n:02}.md", f"document {n}\n" * (1 + n % 4))
    for n in range(0, 9, 3):
        path = f"/{n % 5}/{n:02}.md"
        current = client.documents.get(notes.id, path)
        if n % 2:
            client.documents.delete(notes.id, path, if_match=current.sha256)
        else:
            client.documents.put(notes.id, path, f"edited {n}\n", if_match=current.sha256)
    client.documents.put(notes.id, "/größe/프로젝트.md", "größer\r\n\ufeffБ")
    for store in (second, doomed, old):
        client.documents.put(store.id, "/a.md", f"of {store.name}\n")
    client.stores.archive(old.id, expected_version=old.version)
    client.keys.revoke(key.id)
    return {
        "doomed": doomed.id,
        "stores": {store.id: look(client, store.id) for store in (notes, second, old)},
    }


def look(client: muniment.Client, store: str) -> dict[str, Any]:
    """What the program says of a store: documents, tree, stream."""
    page = client.documents.list_page(store, limit=1)
    events = [[event.type, event.hash] for event in client.stores.events(store)]
    return {
        "name": client.stores.get(store).name,
        "tree": page.tree_digest,
        "events": events,
        "documents": {
            item.path: client.documents.get(store, item.path).content
            for item in client.documents.list(store)
        },
    }


async def leave_half_deleted(store: str) -> None:
    """Fences a store and dies before its erasure, so that a job is left."""
    settings = load()
    storage = main.make_storage(settings)
    await storage.start()
    try:
        app = await main.make_app(settings, storage)
        actor = await authenticate(app, main.owner_secret(settings))
        fields = {name: getattr(app, name) for name in app.__dataclass_fields__}
        dying = type(app)(**{**fields, "storage": Dying(storage)})
        with suppress(Unavailable):
            await delete_store(dying, actor, StoreId(store))
    finally:
        await storage.stop()


def rows_of(file: Path) -> dict[str, Any]:
    """Every table's columns and rows."""
    tables = {}
    with closing(sqlite3.connect(file)) as database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        for (name,) in database.execute(names).fetchall():
            found = database.execute(f"SELECT * FROM {name}")
            columns = [column[0] for column in found.description]
            tables[name] = {"columns": columns, "rows": [list(map(plain, row)) for row in found]}
    return tables


def plain(value: Any) -> Any:
    """A value that JSON has; bytes as `{"hex": …}`."""
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def write(name: str, master_key: str) -> Path:
    """Makes one database and keeps it."""
    with tempfile.TemporaryDirectory() as home:
        os.environ["MUNIMENT_HOME"] = home
        os.environ["MUNIMENT_MASTER_KEY"] = master_key
        with muniment.open() as client:
            said = fill(client)
        asyncio.run(leave_half_deleted(said["doomed"]))
        tables = rows_of(load().database_file or Path())
        secret = load().credentials.read_text().strip()
    schema = max(row[0] for row in tables["migrations"]["rows"])
    kept = {"schema": schema, "master_key": master_key, "secret": secret, **said, "tables": tables}
    FOLDER.mkdir(exist_ok=True)
    file = FOLDER / f"{schema:04}-{name}.json"
    file.write_text(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n")
    return file


if __name__ == "__main__":
    for name, master_key in (("plain", ""), ("sealed", MASTER_KEY)):
        print(f"wrote {write(name, master_key)}")
