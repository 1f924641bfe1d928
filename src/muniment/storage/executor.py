"""What runs the statements of `queries.sql` and the inserts of `schema.sql` on one database."""

from typing import Any, Protocol

from muniment.storage.rows import Row
from muniment.storage.statements import Table


class Executor(Protocol):
    """Runs the statements of `queries.sql` and inserts rows into the tables of `schema.sql`."""

    locks: bool
    """Whether rows must be locked; a database with one writer at a time need not."""

    async def rows(self, name: str, values: dict[str, Any]) -> list[Row]:
        """The statement's rows, after everything written before that it could see."""

    def run(self, name: str, values: dict[str, Any], *, one: bool = False) -> None:
        """Runs the statement; with `one`, Lost unless it returns exactly one row."""

    def insert(self, table: str, row: Row) -> None:
        """Inserts the row, in the way that KEEP and REPLACE say for its table."""


KEEP = frozenset({"workspaces", "principals", "blobs", "blob_keys", "nodes"})
"""Tables in which a row that is there already stays as it is."""

REPLACE = frozenset({"documents", "stores", "default_stores"})
"""Tables in which a row replaces the one with its key."""


def on_conflict(table: Table) -> str:
    """What an insert into the table does about a row with its key."""
    key = [table.columns[position] for position in table.key]
    if table.name in KEEP:
        return f" ON CONFLICT ({', '.join(key)}) DO NOTHING"
    if table.name not in REPLACE:
        return ""
    rest = ", ".join(f"{name} = excluded.{name}" for name in table.columns if name not in key)
    return f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {rest}"
