"""Runs a transaction's statements on PostgreSQL in few round trips.

A round trip costs this process and the server about as much processor time as the rows it moves.
So writes wait in a buffer and go out together: one array of values a column, one statement a table,
and the statements of several tables as one.
"""

import re
from functools import lru_cache, partial
from typing import Any

from muniment.storage.base import Lost
from muniment.storage.executor import KEEP, REPLACE, on_conflict
from muniment.storage.inspection import load_inspections
from muniment.storage.rows import Row
from muniment.storage.statements import Statement, Table, Words, load_statements, load_tables

Connection = Any
"""A connection of the driver, or the pool's stand-in for one."""

WORDS = Words(
    bytes="BYTEA",
    int="BIGINT",
    clustered="",
    lock="FOR UPDATE",
    mark="$",
    raw="convert_to({}, 'UTF8')",
)
STATEMENTS = load_statements(WORDS) | load_inspections(WORDS)
TABLES = load_tables(WORDS)
BEGIN = "BEGIN"
KNOWN = frozenset({"get_document"})
"""Reads of rows that the transaction remembers where it has written them itself."""
TEXTS_MAX = 256
_BY_KEY = {"get_receipt": ("receipts", ("workspace", "subject", "receipt"))}
"""Reads of one row by its table's key: rows with other keys may wait on."""

_MARK = re.compile(r"\$(\d+)")
_LOCK = "lock_store"
_WRITING = ("INSERT ", "UPDATE ", "DELETE ")


def insert_texts(table: Table) -> tuple[str, str]:
    """The statement for one row, and the one for many as an array a column."""
    into = f"INSERT INTO {table.name} ({', '.join(table.columns)})"
    marks = ", ".join(f"${n + 1}" for n in range(len(table.columns)))
    arrays = ", ".join(f"${n + 1}::{kind}[]" for n, kind in enumerate(table.types))
    conflict = on_conflict(table)
    return f"{into} VALUES ({marks}){conflict}", f"{into} SELECT * FROM unnest({arrays}){conflict}"


INSERTS = {name: insert_texts(table) for name, table in TABLES.items()}


@lru_cache(TEXTS_MAX)
def joined(texts: tuple[tuple[str, int], ...]) -> str:
    """Several writing statements as one, given with the number of their values.

    All see the state before the first of them, so no two may touch one table.
    """
    parts, before = [], 0
    for text, count in texts:
        parts.append(_MARK.sub(partial(_renumber, before), text))
        before += count
    *first, last = parts
    return f"WITH {', '.join(f'w{n} AS ({part})' for n, part in enumerate(first))} {last}"


def _renumber(by: int, mark: re.Match[str]) -> str:
    return f"${int(mark[1]) + by}"


def in_script(statement: Statement, values: Row) -> str:
    """The statement with its values, all bytes, within it."""
    return _MARK.sub(lambda mark: rf"'\x{values[int(mark[1]) - 1].hex()}'", statement.text)


class PostgresExecutor:
    """Buffers writes until a read could see them, or the end.

    With `begins` the first statement begins the transaction, and a store's lock that comes first
    goes along with that.
    """

    locks = True

    def __init__(self, connection: Connection, *, begins: bool = False) -> None:
        self._connection = connection
        self._begins = begins
        self._inserts: dict[str, dict[Row, Row]] = {}
        self._pending: list[tuple[Statement, Row, bool]] = []
        self._dirty: set[str] = set()
        self.begun = False
        """Whether the server has answered to the beginning of the transaction."""

    async def rows(self, name: str, values: dict[str, Any]) -> list[Row]:
        """The statement's rows, after what was buffered for its tables."""
        statement = STATEMENTS[name]
        if self._dirty and self._could_show(name, statement, values):
            await self.flush()
        if self._begins:
            await self._begin()
        bound = [values[value] for value in statement.values]
        found: list[Row] = await self._connection.fetch(statement.text, *bound)
        return found

    def _could_show(self, name: str, statement: Statement, values: dict[str, Any]) -> bool:
        """Whether something that waits could change the statement's rows."""
        if name in KNOWN or self._dirty.isdisjoint(statement.tables):
            return False
        place = _BY_KEY.get(name)
        if place is None or self._pending:
            return True
        table, key = place
        return tuple([values[part] for part in key]) in self._inserts.get(table, {})

    def run(self, name: str, values: dict[str, Any], *, one: bool = False) -> None:
        """Keeps the statement for later; with `one`, Lost by the end unless it returns one row."""
        statement = STATEMENTS[name]
        for table in statement.tables:
            self._settle(table)
        self._pending.append((statement, tuple([values[v] for v in statement.values]), one))
        self._dirty |= TABLES.keys() if name == _LOCK else statement.tables

    def insert(self, table: str, row: Row) -> None:
        """Keeps the row; a later row with its key replaces it where the table says so."""
        rows = self._inserts.get(table)
        if rows is None:
            self._inserts[table] = rows = {}
            self._dirty.add(table)
        key = tuple([row[position] for position in TABLES[table].key])
        if key not in rows or table in REPLACE:
            rows[key] = row
        elif table not in KEEP:
            raise ValueError(f"two rows of {table} have one key")

    def _settle(self, table: str) -> None:
        """Turns the table's buffered rows into a pending statement, in their place in order."""
        rows = self._inserts.pop(table, None)
        if not rows:
            return
        single, many = INSERTS[table]
        names = frozenset({table})
        if len(rows) == 1:
            only = next(iter(rows.values()))
            self._pending.append((Statement(table, single, (), names), only, False))
            return
        # One order of rows for all writers, so that two that share a pool cannot block each other.
        columns = tuple(zip(*[rows[key] for key in sorted(rows)], strict=True))
        self._pending.append((Statement(table, many, (), names), columns, False))

    async def flush(self) -> None:
        """Sends everything that waits. Lost where a conditional write finds another row."""
        for table in list(self._inserts):
            self._settle(table)
        self._dirty.clear()
        if self._begins:
            await self._begin()
        pending, self._pending = self._pending, []
        together: dict[str, tuple[Statement, Row]] = {}
        for statement, values, one in pending:
            table = next(iter(statement.tables))
            alone = one or len(statement.tables) > 1 or not statement.text.startswith(_WRITING)
            if together and (alone or table in together):
                await self._send(together)
                together = {}
            if not alone:
                together[table] = (statement, values)
                continue
            found = await self._connection.fetch(statement.text, *values)
            if one and len(found) != 1:
                raise Lost(statement.name)
        if together:
            await self._send(together)

    async def _send(self, together: dict[str, tuple[Statement, Row]]) -> None:
        """Runs writes of different tables as one statement, in one order for all writers."""
        parts = [together[table] for table in sorted(together)]
        if len(parts) == 1:
            statement, values = parts[0]
            await self._connection.fetch(statement.text, *values)
            return
        text = joined(tuple([(statement.text, len(values)) for statement, values in parts]))
        await self._connection.fetch(text, *[value for _, values in parts for value in values])

    async def _begin(self) -> None:
        """Begins the transaction, and takes the lock that waits first in the same round trip."""
        self._begins = False
        text = BEGIN
        if self._pending and self._pending[0][0].name == _LOCK:
            statement, values, _ = self._pending.pop(0)
            text = f"{BEGIN}; {in_script(statement, values)}"
        await self._connection.execute(text)
        self.begun = True
