"""Reads `schema.sql` and `queries.sql` and fills in a database's few words.

Statements are written with named values (`:store`) and run with numbered ones (`?1` or `$1`), so
that a caller passes a tuple. The columns of every table come from the schema itself.
"""

import re
from dataclasses import dataclass
from importlib import resources

from muniment.model.errors import Unavailable
from muniment.storage.base import SUBJECTS_MAX

STORE_COLUMNS = (
    "s.store_id, s.name, s.description, s.owner_kind, s.owner_id, s.status, s.version,"
    " s.generation, s.promotion_policy, s.require_distinct_reviewer, s.pool_id, s.created_by,"
    " s.created_at, s.updated_at, s.archived_at, s.deleted_at, s.last_event_hash"
)


RIGHTS = ",\n  ".join(
    " OR ".join(
        "EXISTS (SELECT 1 FROM assignments a WHERE a.workspace_id = :workspace"
        f" AND a.store_id = :store AND a.subject_id = :subject_{n + 1} AND a.{right} = 1)"
        for n in range(SUBJECTS_MAX)
    )
    for right in ("can_read", "can_write")
)
"""Whether one of the subjects may read, and may write; a subject that may ends the search."""


@dataclass(frozen=True, slots=True)
class Words:
    """What differs between the databases' texts.

    `mark` stands before a value's number, `raw` gives the bytes of a column of text, named {}.
    """

    bytes: str
    int: str
    clustered: str
    lock: str
    mark: str
    raw: str

    def fill(self, text: str) -> str:
        """The text with this database's words."""
        for word in ("bytes", "int", "clustered", "lock"):
            text = text.replace("{" + word + "}", getattr(self, word))
        return text.replace("{store}", STORE_COLUMNS).replace("{rights}", RIGHTS)


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement ready to run: its values' names in number order, the tables it touches."""

    name: str
    text: str
    values: tuple[str, ...]
    tables: frozenset[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table's columns, their declared types, which may be NULL, and where its key's stand."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    nullable: tuple[bool, ...]
    key: tuple[int, ...]


def check_version(version: int, newest: int) -> int:
    """The schema's version. Unavailable unless it is the newest that this program knows."""
    if version == 0:
        raise Unavailable("there is no schema in this database: it is empty, or none of Muniment")
    if version < newest:
        raise Unavailable(
            f"the database has schema {version}, this program {newest}: run `muniment migrate`"
        )
    if version > newest:
        raise Unavailable(
            f"the database has schema {version}, this program knows {newest}: upgrade it"
        )
    return version


def read_text(name: str) -> str:
    """A file of this package."""
    return (resources.files("muniment.storage") / name).read_text(encoding="utf-8")


def load_statements(words: Words) -> dict[str, Statement]:
    """Every statement of `queries.sql` by name."""
    statements = {}
    for block in read_text("queries.sql").split("-- name: ")[1:]:
        name, _, text = block.partition("\n")
        statements[name] = numbered(name, words.fill(text).strip(), words.mark)
    return statements


def numbered(name: str, text: str, mark: str) -> Statement:
    """The statement with its named values numbered in the order they first appear."""
    values: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match[1] not in values:
            values.append(match[1])
        return f"{mark}{values.index(match[1]) + 1}"

    text = re.sub(r"(?<!:):([a-z_0-9]+)", number, text)
    tables = re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE)\s+([a-z_]+)", text)
    return Statement(name, text, tuple(values), frozenset(tables))


def load_tables(words: Words) -> dict[str, Table]:
    """Every table of the schema by name."""
    tables = {}
    for name, body in re.findall(r"CREATE TABLE (\w+) \(\n(.*?)\n\)", schema(words), re.DOTALL):
        columns, types, nullable, key = [], [], [], ""
        for line in body.splitlines():
            word, rest = line.strip().rstrip(",").split(" ", 1)
            if word == "PRIMARY":
                key = rest[rest.index("(") + 1 : rest.index(")")]
            else:
                columns.append(word)
                types.append(rest.split(" ")[0])
                nullable.append("NOT NULL" not in rest)
        positions = tuple(columns.index(column) for column in key.split(", "))
        tables[name] = Table(name, tuple(columns), tuple(types), tuple(nullable), positions)
    return tables


def schema(words: Words) -> str:
    """The whole schema in this database's words."""
    return words.fill(read_text("schema.sql"))


def migrations(words: Words) -> list[tuple[int, str, str]]:
    """Every migration as (version, name, text), in order."""
    found = []
    for file in (resources.files("muniment.storage") / "migrations").iterdir():
        number, _, rest = file.name.partition("_")
        if file.name.endswith(".sql"):
            found.append((int(number), rest.removesuffix(".sql"), words.fill(file.read_text())))
    return sorted(found)


def split_script(text: str) -> list[str]:
    """The statements of a schema script; comments go, no statement there holds a semicolon."""
    bare = re.sub(r"--[^\n]*", "", text)
    return [statement.strip() for statement in bare.split(";") if statement.strip()]
