"""Every row as it is: the statements that `doctor` reads tables with, and what makes a row sound.

They come from the schema: a table's rows within a part of it, in the order of a key. Text is read
as bytes, so that one row that is not UTF-8 is one damaged row and no failed statement.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from muniment.model.events import Event, Head
from muniment.model.ids import EventId, PrincipalId, StoreId, to_bytes
from muniment.storage import rows
from muniment.storage.base import Found, Key, Stray
from muniment.storage.rows import Row
from muniment.storage.statements import Statement, Words, load_tables, numbered

_TYPES = Words(bytes="bytes", int="int", clustered="", lock="", mark="", raw="")
_TABLES = load_tables(_TYPES)

_BYTES = {
    **dict.fromkeys(("blob_id", "node_id", "receipt_id", "tree_hash", "commitment", "hash"), 32),
    **dict.fromkeys(("fingerprint", "last_event_hash", "secret_hash"), 32),
    "salt": 16,
}
"""How long a column of bytes is; an id has 16 where nothing else is said."""

_FLAGS = frozenset({"can_read", "can_write", "require_distinct_reviewer", "sealed"})


class Shape(NamedTuple):
    """How a kind of row is read: the columns that bound it, that order it, and its record's."""

    table: str
    part: tuple[str, ...]
    key: tuple[str, ...]
    columns: tuple[str, ...]
    record: Callable[[Row], Any]
    where: str = ""


def _all_but(table: str, *left_out: str) -> tuple[str, ...]:
    """A table's columns behind workspace_id, in the schema's order."""
    return tuple(column for column in _TABLES[table].columns[1:] if column not in left_out)


_CHANGES = _all_but("changes", "store_id")
_CHANGES = ("change_id", *_CHANGES[1:])
_OF_STORE = ("store_id",)

SHAPES: dict[str, Shape] = {
    "workspaces": Shape(
        "workspaces",
        (),
        ("workspace_id",),
        _TABLES["workspaces"].columns,
        rows.workspace,
    ),
    "principals": Shape(
        "principals", (), ("principal_id",), _all_but("principals"), rows.principal
    ),
    "api_keys": Shape(
        "api_keys",
        (),
        ("key_id",),
        ("key_id", "name", "role", "principal_id", "created_at", "expires_at", "revoked_at"),
        rows.api_key,
    ),
    "delegations": Shape(
        "delegations", (), ("delegation_id",), _all_but("delegations"), rows.delegation
    ),
    "owners": Shape("owners", ("kind",), ("owner_id",), _all_but("owners"), rows.owner_row),
    "assignments": Shape(
        "assignments",
        (),
        ("assignment_id",),
        (
            *("assignment_id", "store_id", "subject_kind", "subject_id", "can_read", "can_write"),
            *("origin", "created_at"),
        ),
        rows.assignment,
    ),
    "stores": Shape("stores", (), ("store_id",), _all_but("stores"), rows.store),
    "default_stores": Shape(
        "default_stores",
        (),
        ("principal_id",),
        ("principal_id", "store_id"),
        lambda row: (
            PrincipalId("prin_" + row[0].hex()),
            StoreId("memstore_" + row[1].hex()),
        ),
    ),
    "refs": Shape("refs", _OF_STORE, ("name",), _all_but("refs", "store_id"), rows.ref),
    "revisions": Shape(
        "revisions",
        _OF_STORE,
        ("revision_id",),
        _all_but("revisions", "store_id"),
        rows.revision,
    ),
    "changes": Shape("changes", ("store_id", "revision_id"), ("path", "n"), _CHANGES, rows.change),
    "changes_by_id": Shape("changes", _OF_STORE, ("change_id",), _CHANGES, rows.change),
    "landed": Shape(
        "changes",
        _OF_STORE,
        ("path", "seq", "n"),
        _CHANGES,
        rows.change,
        "seq IS NOT NULL",
    ),
    "documents": Shape(
        "documents",
        _OF_STORE,
        ("path",),
        _all_but("documents", "store_id"),
        lambda row: rows.document(row[0].decode(), row[1:]),
    ),
    "blobs": Shape("blobs", ("pool_id",), ("blob_id",), ("blob_id", "sealed"), lambda row: row[0]),
    "blob_keys": Shape(
        "blob_keys", ("pool_id",), ("blob_id",), ("blob_id", "wrapping"), lambda row: row[0]
    ),
    "nodes": Shape("nodes", ("pool_id",), ("node_id",), ("node_id", "body"), lambda row: row[1]),
    "streams": Shape(
        "streams",
        (),
        ("stream_id",),
        ("stream_id", "seq", "hash"),
        lambda row: (row[0], Head(*row[1:])),
    ),
    "events": Shape(
        "events",
        ("stream_id",),
        ("seq",),
        ("event_id", "seq", "type", "created_at", "commitment", "hash"),
        lambda row: Event(EventId("evt_" + row[0].hex()), *row[1:]),
    ),
    "event_payloads": Shape(
        "event_payloads", ("stream_id",), ("seq",), ("salt", "payload"), lambda row: row
    ),
    "receipts": Shape(
        "receipts",
        ("subject_id",),
        ("receipt_id",),
        ("receipt_id", "fingerprint", "result", "created_at"),
        lambda row: rows.receipt("", row),
    ),
    "jobs": Shape("jobs", (), ("job_id",), _all_but("jobs"), rows.job),
}
"""Every kind of row that can be inspected, with the columns its record is made from."""


def load_inspections(words: Words) -> dict[str, Statement]:
    """The statements: `inspect_` and `count_` of each kind, `strays` and `homeless`."""
    texts = {"strays": _strays(), "homeless": _homeless()}
    for kind, shape in SHAPES.items():
        texts[f"inspect_{kind}"] = _page(shape, words)
        texts[f"count_{kind}"] = f"SELECT COUNT(*) FROM {shape.table} WHERE {_within(shape)}"
    return {name: numbered(name, text, words.mark) for name, text in texts.items()}


def inspection_values(kind: str, part: Sequence[str], after: Key | None) -> dict[str, Any]:
    """The values of a kind's statements but for workspace and limit."""
    shape = SHAPES[kind]
    bounds = zip(shape.part, part, strict=True)
    values: dict[str, Any] = {
        column: text if column == "kind" else to_bytes(text) for column, text in bounds
    }
    least = tuple(-1 if _type(shape, column) == "int" else b"" for column in shape.key)
    for column, value in zip(shape.key, least if after is None else after, strict=True):
        values[f"after_{column}"] = value
    return values


def stray(row: Row) -> Stray:
    """Rows of a table that belong to nothing, whatever stands where their owner's id should."""
    owner = row[1] if isinstance(row[1], bytes) else str(row[1]).encode()
    return Stray(row[0], owner, row[2])


def found(kind: str, row: Row) -> Found:
    """The row's record, or what is wrong with it."""
    shape = SHAPES[kind]
    width = len(shape.key)
    key = tuple(row[:width])
    values: list[Any] = []
    damages: list[str] = []
    for rule, value in zip(_RULES[kind], row[width:], strict=True):
        # The usual value first: this runs for every value in the database.
        usual = value.__class__ is rule.kind
        if usual and (rule.size is None or len(value) == rule.size):
            values.append(value)
            continue
        damage, sound = _read(rule, value)
        if damage is not None:
            damages.append(f"{rule.column} {damage}")
        if damage is not None and sound is None:
            return Found(key, None, damages[-1])
        values.append(sound)
    try:
        return Found(key, shape.record(tuple(values)), "; ".join(damages) or None)
    except Exception as error:
        return Found(key, None, f"it cannot be read: {type(error).__name__}: {error}")


class _Rule(NamedTuple):
    """What a column's value has to be; `kind` is None for text and flags, which are looked into."""

    column: str
    kind: type | None
    nullable: bool
    size: int | None
    text: bool
    flag: bool


def _rule(shape: Shape, column: str) -> _Rule:
    table = _TABLES[shape.table]
    at = table.columns.index(column)
    text, flag = table.types[at] == "TEXT", column in _FLAGS
    kind = None if text or flag else int if table.types[at] == "int" else bytes
    size = 17 if (table.name, column) == ("assignments", "subject_id") else _BYTES.get(column)
    if size is None and column.endswith("_id"):
        size = 16
    return _Rule(column, kind, table.nullable[at], size if kind is bytes else None, text, flag)


_RULES = {kind: [_rule(shape, one) for one in shape.columns] for kind, shape in SHAPES.items()}


def _read(rule: _Rule, value: Any) -> tuple[str | None, Any]:
    """What is wrong with a column's value, and the value as records have it.

    Damaged text is made readable, so that a record does without nothing else for its sake.
    """
    if value is None:
        return (None, None) if rule.nullable else ("is NULL", "" if rule.text else None)
    if rule.flag:
        return (None, value) if value in (0, 1) else (f"is {value}, neither 0 nor 1", None)
    if rule.kind is int:
        return "is no whole number", None
    if not isinstance(value, bytes):
        return "is not kept as bytes", None
    if rule.size is not None:
        return f"has {len(value)} bytes, not {rule.size}", None
    try:
        return None, value.decode()
    except UnicodeDecodeError:
        return "is not UTF-8", value.decode("utf-8", "backslashreplace")


def _type(shape: Shape, column: str) -> str:
    table = _TABLES[shape.table]
    return table.types[table.columns.index(column)]


def _raw(shape: Shape, column: str, words: Words) -> str:
    """The column's bytes, so that text is read and compared without a collation or a decoder."""
    return words.raw.replace("{}", column) if _type(shape, column) == "TEXT" else column


def _within(shape: Shape) -> str:
    of = "1 = 1" if shape.table == "workspaces" else "workspace_id = :workspace"
    bounds = [of, *(f"{column} = :{column}" for column in shape.part)]
    return " AND ".join([*bounds, *filter(None, [shape.where])])


def _page(shape: Shape, words: Words) -> str:
    key = [_raw(shape, column, words) for column in shape.key]
    columns = [_raw(shape, column, words) for column in shape.columns]
    behind = ""
    for column, raw in reversed(list(zip(shape.key, key, strict=True))):
        value = f":after_{column}"
        more = f" AND ({raw} > {value} OR {behind})"
        behind = f"{raw} > {value}" if not behind else f"({raw} >= {value}{more})"
    return (
        f"SELECT {', '.join([*key, *columns])} FROM {shape.table}"
        f" WHERE {_within(shape)} AND {behind} ORDER BY {', '.join(key)} LIMIT :limit"
    )


_LIVING = (
    "stores o WHERE o.workspace_id = t.workspace_id AND o.{0} = t.{0} AND o.status <> 'deleted'"
)
_STREAM = "streams o WHERE o.workspace_id = t.workspace_id AND o.stream_id = t.stream_id"
_SUBJECT = (
    "(SELECT workspace_id, workspace_id AS id FROM workspaces UNION ALL"
    " SELECT workspace_id, store_id FROM stores WHERE status <> 'deleted') o"
    " WHERE o.workspace_id = t.workspace_id AND o.id = t.subject_id"
)
_OF_STORES = [
    table.name
    for table in _TABLES.values()
    if "store_id" in table.columns and table.name != "stores"
]
_OWNED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(_OF_STORES, ("store_id", _LIVING.format("store_id"))),
    **dict.fromkeys(("blobs", "blob_keys", "nodes"), ("pool_id", _LIVING.format("pool_id"))),
    **dict.fromkeys(("events", "event_payloads"), ("stream_id", _STREAM)),
    "receipts": ("subject_id", _SUBJECT),
}
"""By table, the column that says what its rows belong to, and what then has to be there."""


def _strays() -> str:
    return "\nUNION ALL\n".join(
        f"SELECT '{table}', t.{column}, COUNT(*) FROM {table} t"
        f" WHERE t.workspace_id = :workspace AND NOT EXISTS (SELECT 1 FROM {owner})"
        f" GROUP BY t.{column}"
        for table, (column, owner) in _OWNED.items()
    )


def _homeless() -> str:
    return "\nUNION ALL\n".join(
        f"SELECT '{table}', t.workspace_id, COUNT(*) FROM {table} t WHERE NOT EXISTS"
        " (SELECT 1 FROM workspaces o WHERE o.workspace_id = t.workspace_id)"
        " GROUP BY t.workspace_id"
        for table, columns in _TABLES.items()
        if columns.columns[0] == "workspace_id" and table != "workspaces"
    )
