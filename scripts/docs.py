"""Fills the generated tables of the documentation from the code; `--check` only compares.

A table stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`. What stands outside is
written by hand. Events are found by doing everything that makes one, over the in-memory storage.
"""

import argparse
import ast
import asyncio
import inspect
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.inspect import type_info

import muniment
from muniment import main as composition
from muniment import settings
from muniment.api import native, site
from muniment.api.http import INTEGER_MAX, HttpApp, Query, Route
from muniment.api.native.envelope import STATUS
from muniment.api.native.shapes import Body
from muniment.client.asynchronous import AsyncClient
from muniment.client.errors import BY_TYPE
from muniment.client.transport import AsyncInProcess
from muniment.model import events, ids, jobs
from muniment.model.events import Fact
from muniment.service import workspaces
from muniment.service.app import App
from muniment.storage import base
from muniment.storage.base import Storage, Transaction, Use
from muniment.storage.inmemory import InMemoryStorage

ROOT = Path(__file__).resolve().parent.parent
BASE_URL = "http://127.0.0.1:8787"
NATIVE = native.dialect(BASE_URL)
SITE = site.dialect(BASE_URL, NATIVE)

LIMITS: Mapping[str, str] = {
    "CONTENT_BYTES_MAX": "a document's content, in UTF-8",
    "PATH_WRITE_BYTES_MAX": "a path that is written, with its leading slash, in UTF-8",
    "PATH_BYTES_MAX": "a path that is read, after its leading slash, in UTF-8",
    "SEGMENT_BYTES_MAX": "one segment of a path, in UTF-8",
    "SEGMENTS_MAX": "segments of a path",
    "DOCUMENTS_MAX": "documents of a store, unless `MUNIMENT_DOCUMENTS_MAX` is another",
    "NAME_CHARACTERS_MAX": "the name of a store, key, principal, agent, Session, scope",
    "DESCRIPTION_CHARACTERS_MAX": "a store's description",
    "EXTERNAL_ID_CHARACTERS_MAX": "a principal's `external_id`",
    "KEY_CHARACTERS_MAX": "an idempotency key",
    "GRANTS_MAX": "`grants` of a store that is made",
    "PAGE_ITEMS_MAX": "items of a page",
    "PAGE_ITEMS_DEFAULT": "items of a page where no `limit` is sent",
    "CURSOR_CHARACTERS_MAX": "a `page` cursor",
    "HEAD_BYTES_MAX": "a request's line and headers",
    "HEAD_SECONDS_MAX": "the time in which they have to arrive",
    "BODY_BYTES_MAX": "a request's body",
    "BODY_SECONDS_MAX": "the time in which a body has to arrive",
    "QUERY_FIELDS_MAX": "query parameters of a request",
    "INTEGER_MAX": "a whole number in a query or a body",
    "ADMIN_KEY_CHARACTERS_MIN": "`MUNIMENT_ADMIN_KEY`, at least",
    "ADMIN_KEY_CHARACTERS_MAX": "`MUNIMENT_ADMIN_KEY`, at most",
}
"""What callers meet, in the order of the page. A constant that stands neither here nor below is
found all the same, and what it bounds is said by its docstring or its comment in the source."""

INTERNAL_LIMITS = {
    "ATTEMPTS_MAX",
    "FINDINGS_MAX",
    "KEPT_MAX",
    "NODE_ROWS_MAX",
    "PAUSE_SECONDS_MAX",
    "REASON_CHARACTERS_MAX",
    "REQUESTS_MAX",
    "SCAN_EVENTS_MAX",
    "SECRET_CHARACTERS_MAX",
    "SERVED_HOSTS_MAX",
}
"""Bounds within the program, which no caller can meet or which another one stands for."""

LIMITED = ("model", "service", "api", "settings.py", "cli/protocol.py")
"""Where limits are looked for, below src/muniment."""

UNITS = {"BYTES": "bytes", "CHARACTERS": "characters", "SECONDS": "seconds"}


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def prose(documented: object) -> str:
    """A docstring as one line."""
    return " ".join((inspect.getdoc(documented) or "").split())


# Routes


def routes() -> str:
    """Every route with what it takes and gives."""
    rows = []
    for route in (*NATIVE.routes, *SITE.routes):
        rows.append(
            (
                f"`{route.method} {route.path}`",
                route.summary + ("" if route.authenticated else " (no key)"),
                ", ".join([*map(named, route.query), *map(named, route.headers)]) or "–",
                "–" if route.takes is None else shape_link(route.takes),
                answers(route),
            )
        )
    return table(("route", "what it does", "query, *headers*", "body", "answer"), rows)


def named(query: Query) -> str:
    """A parameter's name: a header in italics, a required one in bold."""
    if query.name[:1].isupper():
        return f"*{query.name}*"
    return f"**`{query.name}`**" if query.required else f"`{query.name}`"


def answers(route: Route) -> str:
    """The statuses of success and the shape that comes with them."""
    same = [one.status for one in route.others if one.gives in (None, route.gives)]
    statuses = ", ".join(str(status) for status in (route.status, *same))
    found = [statuses if route.gives is None else f"{statuses} {shape_link(route.gives)}"]
    for one in route.others:
        if one.status not in same:
            found.append(f"{one.status} {shape_link(one.gives)}")
    return ", ".join(found)


def shape_link(kind: type) -> str:
    """A shape's name, linked to its fields; of a plain page the name of its items."""
    item = page_item(kind)
    if item is not None:
        return f"page of {shape_link(item)}"
    return f"[{kind.__name__}](#{kind.__name__.lower()})"


def page_item(kind: type) -> type | None:
    """What a page that is `{items, next_page}` and nothing else has as items."""
    found = {field.name: field.type for field in struct_fields(kind)}
    return structs_of(found["items"])[0] if found.keys() == {"items", "next_page"} else None


def parameters() -> str:
    """Every query parameter and header, once a meaning."""
    found: dict[tuple[str, str], None] = {}
    for route in NATIVE.routes:
        for query in (*route.query, *route.headers):
            found[query.name, f"{query.description}{bounds(query.schema)}"] = None
    return table(("name", "meaning"), [(f"`{name}`", meaning) for name, meaning in sorted(found)])


def bounds(schema: Mapping[str, object]) -> str:
    """The bounds of a number, in words."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None:
        return ""
    return f" From {low} on." if high == INTEGER_MAX else f" From {low} to {high}."


def shapes() -> str:
    """The fields of every body and answer, in order of first use; pages of items are left out."""
    seen: dict[type, None] = {}
    for route in NATIVE.routes:
        for kind in (route.takes, route.gives, *(one.gives for one in route.others)):
            if kind is not None:
                collect(kind, seen)
    return "\n\n".join(section(kind) for kind in seen)


def collect(kind: type, seen: dict[type, None]) -> None:
    """Adds a shape and those within it."""
    item = page_item(kind)
    kind = kind if item is None else item
    if kind in seen:
        return
    seen[kind] = None
    for field in struct_fields(kind):
        for inner in structs_of(field.type):
            collect(inner, seen)


def struct_fields(kind: type) -> Sequence[msgspec.inspect.Field]:
    """The fields of a shape."""
    info = type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def structs_of(info: Any) -> list[type]:
    """The shapes that a field's type speaks of."""
    if isinstance(info, msgspec.inspect.Metadata):
        return structs_of(info.type)
    if isinstance(info, msgspec.inspect.StructType):
        return [info.cls]
    if isinstance(info, msgspec.inspect.UnionType):
        return [kind for one in info.types for kind in structs_of(one)]
    if isinstance(info, msgspec.inspect.ListType):
        return structs_of(info.item_type)
    return []


def section(kind: type) -> str:
    """A shape's heading, sentence and fields."""
    rows = []
    for field in struct_fields(kind):
        need = "yes" if field.required else "no"
        if field.default not in (msgspec.NODEFAULT, msgspec.UNSET, None):
            need = f"no, `{msgspec.json.encode(field.default).decode()}`"
        rows.append((f"`{field.encode_name}`", type_text(field.type), need))
    head = ("field", "type", "required" if issubclass(kind, Body) else "always there")
    return f"#### {kind.__name__}\n\n{prose(kind)}\n\n{table(head, rows)}"


def type_text(info: Any) -> str:
    """A field's type in words."""
    inspected = msgspec.inspect
    if isinstance(info, inspected.Metadata):
        return described(info.extra_json_schema or {}) or type_text(info.type)
    if isinstance(info, inspected.UnionType):
        return " or ".join(type_text(one) for one in info.types)
    if isinstance(info, inspected.StructType):
        return shape_link(info.cls)
    if isinstance(info, inspected.ListType):
        return f"list of {type_text(info.item_type)}"
    if isinstance(info, inspected.LiteralType):
        return " or ".join(f"`{value}`" for value in info.values)
    words: dict[type, str] = {
        inspected.StrType: "text",
        inspected.IntType: "number",
        inspected.BoolType: "boolean",
        inspected.NoneType: "null",
    }
    return words.get(type(info), "object")


def described(schema: Mapping[str, Any]) -> str:
    """What a field's schema says of it, where that is more than its type: words, an id, a time."""
    words: Sequence[str] = schema.get("enum", ())
    if words:
        return " or ".join(f"`{word}`" for word in words)
    prefix = re.match(r"\^([a-z]+_)\[", str(schema.get("pattern", "")))
    if prefix is not None:
        return f"`{prefix[1]}…`"
    return "time" if schema.get("format") == "date-time" else ""


def id_kinds() -> str:
    """What the ids of each kind begin with."""
    rows = [(kind, f"`{prefix}_`") for kind, prefix in ids.PREFIXES.items()]
    return table(("id of a", "begins with"), rows)


# Errors, settings, limits, the port


def errors() -> str:
    """The catalogue of failures, with status and the SDK's exception."""
    rows: list[tuple[str, str, str, str]] = []
    for failure, status in STATUS.items():
        raised = BY_TYPE[failure.code].__name__
        rows.append((f"`{failure.code}`", str(status), prose(failure), f"`{raised}`"))
    return table(("type", "status", "meaning", "in Python"), sorted(rows))


def setting_rows() -> str:
    """Every setting with its environment name and default."""
    rows = []
    for field in fields(settings.Settings):
        default = str(field.default).lower() if field.type is bool else str(field.default)
        shown = f"`{default}`" if default else "none"
        variable = field.metadata["variable"]
        rows.append((f"`{variable}`", shown, field.metadata["description"]))
    return table(("variable", "default", "meaning"), rows)


class Limit(NamedTuple):
    """A bound in the source: where it is, what it is, and what it bounds."""

    place: str
    value: float
    meaning: str


def limits() -> str:
    """Every bound that a caller can meet."""
    rows = []
    for name, limit in sorted(known_limits().items(), key=lambda item: place_on_page(item[0])):
        unit = next((UNITS[word] for word in name.split("_") if word in UNITS), "")
        value = f"{int(limit.value):,} {unit}".strip()
        rows.append((limit.meaning, value, f"`{limit.place}.{name}`"))
    return table(("what", "limit", "constant"), rows)


def place_on_page(name: str) -> tuple[int, str]:
    """Limits stand in the order of LIMITS, all others by name behind them."""
    return (list(LIMITS).index(name) if name in LIMITS else len(LIMITS), name)


def known_limits() -> dict[str, Limit]:
    """Every constant `…_MAX`, `…_MIN`, `…_DEFAULT` that is not internal, by its name."""
    found: dict[str, Limit] = {}
    source = ROOT / "src" / "muniment"
    for entry in LIMITED:
        for path in sorted((source / entry).rglob("*.py")) or [source / entry]:
            module = ".".join(path.relative_to(source).with_suffix("").parts)
            for name, comment in constants(path.read_text("utf-8")):
                if name not in INTERNAL_LIMITS and name not in found:
                    value = getattr(import_module(f"muniment.{module}"), name)
                    found[name] = Limit(module, value, LIMITS.get(name, comment))
    return found


def constants(source: str) -> Iterator[tuple[str, str]]:
    """Each limit that a file defines, with its docstring, or the comment behind or above it."""
    lines = source.splitlines()
    body = ast.parse(source).body
    for n, node in enumerate(body):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if re.fullmatch(r"[A-Z_]+_(?:MAX|MIN|DEFAULT)", name) is None:
            continue
        below = body[n + 1] if n + 1 < len(body) else None
        behind = lines[node.lineno - 1].partition("  # ")[2]
        above = lines[node.lineno - 2] if node.lineno > 1 else ""
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            text = str(below.value.value)
        else:
            text = behind or (above.removeprefix("# ") if above.startswith("# ") else "")
        yield name, " ".join(text.split()).removesuffix(".")


def port() -> str:
    """The storage port, a table a noun."""
    sections = []
    for noun in (*nouns(), Storage):
        rows = [
            (f"`{name}`", prose(member).replace("|", "\\|"))
            for name, member in vars(noun).items()
            if inspect.isfunction(member) and not name.startswith("_")
        ]
        sections.append(f"#### {noun.__name__}\n\n{prose(noun)}\n\n{table(('method', ''), rows)}")
    return "\n\n".join(sections)


def nouns() -> list[type]:
    """The protocols that make up a transaction."""
    return [kind for kind in base.Transaction.__bases__ if kind.__module__ == base.__name__]


# Events


class Watched:
    """A storage whose appended facts are kept, with the stream they went to."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.facts: list[tuple[str, Fact]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    async def write(self, group: str | None, use: Use[Any]) -> Any:
        """Like the storage's own."""

        async def watched(tx: Transaction) -> Any:
            return await use(WatchedTransaction(tx, self.facts))

        return await self._storage.write(group, watched)


class WatchedTransaction:
    """A transaction that notes what is appended."""

    def __init__(self, tx: Transaction, facts: list[tuple[str, Fact]]) -> None:
        self._tx = tx
        self._facts = facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def append(self, workspace: ids.WorkspaceId, stream: str, fact: Fact) -> Any:
        """Like the transaction's own."""
        self._facts.append((stream, fact))
        return await self._tx.append(workspace, stream, fact)


def event_rows() -> str:
    """Every event type: whose stream, what it says, which fields its payload has."""
    facts = asyncio.run(everything())
    rows = []
    for name, meaning in events.TYPES.items():
        found = [(stream, msgspec.json.decode(f.payload)) for stream, f in facts if f.type == name]
        if not found:
            raise SystemExit(f"scripts/docs.py: nothing in everything() makes {name}")
        kinds = {"store" if stream.startswith("memstore_") else "workspace" for stream, _ in found}
        data = field_list([payload for _, payload in found])
        rows.append((f"`{name}`", " or ".join(sorted(kinds)), meaning, f"`{data}`"))
    return table(("type", "stream", "meaning", "`data`"), rows)


def field_list(values: Sequence[Mapping[str, Any]]) -> str:
    """The fields of some objects; one that not all of them have gets a question mark."""
    names = sorted({name for value in values for name in value})
    shown = []
    for name in names:
        there = [value[name] for value in values if name in value]
        optional = "?" if len(there) < len(values) else ""
        shown.append(f"{name}{optional}{inner_text(there)}")
    return ", ".join(shown)


def inner_text(there: Sequence[Any]) -> str:
    """What an object or a list of objects holds."""
    if all(isinstance(one, dict) for one in there):
        tagged = all(one.keys() <= {"kind", one.get("kind")} for one in there)
        return " {kind, <kind>}" if tagged else f" {{{field_list(there)}}}"
    items = [item for one in there if isinstance(one, list) for item in one]
    if items and all(isinstance(item, dict) for item in items):
        return f" [{{{field_list(items)}}}]"
    return " [text]" if items else ""


async def everything() -> list[tuple[str, Fact]]:
    """What is appended when every use case that makes an event is done once."""
    with tempfile.TemporaryDirectory() as home:
        given = settings.load({}, home=Path(home), database="memory:")
        watched = Watched(InMemoryStorage(bytes(32)))
        await watched.start()
        app = await composition.make_app(given, watched)

        @asynccontextmanager
        async def opened() -> AsyncIterator[HttpApp]:
            yield composition.make_http(given, app)

        key = (Path(home) / "credentials").read_text("utf-8").strip()
        async with AsyncClient(key=key, transport=AsyncInProcess(opened)) as client:
            await do_all(client)
            await client.jobs.retry(await unfinished_job(app))
        await workspaces.disable_workspace(app, ids.DEFAULT_WORKSPACE)
        await workspaces.enable_workspace(app, ids.DEFAULT_WORKSPACE)
        await watched.stop()
    return watched.facts


async def do_all(client: AsyncClient) -> None:
    """One of each: a test fails when an event type is missing here."""
    me = (await client.whoami()).principal.id
    other = await client.principals.create("other")
    key = await client.keys.create("worker")
    delegation = await client.delegations.create(other.id, f"principal:{me}")
    await client.sessions.create("session")
    store = await client.stores.create("notes")
    shared = await client.stores.create("shared", owner="workspace")
    grant = await client.assignments.create(store.id, f"principal:{other.id}", ["read", "write"])
    await client.assignments.create(shared.id, "workspace", ["read"])
    put = await client.documents.put(store.id, "/a.md", "text")
    acting = client.acting_as(other.id)
    await acting.documents.delete(store.id, "/a.md", if_match=put.sha256)
    await client.stores.update(store.id, expected_version=store.version, description="words")
    await client.stores.archive(store.id, expected_version=store.version + 1)
    await client.assignments.delete(grant.id)
    await client.delegations.delete(delegation.id)
    await client.keys.revoke(key.id)
    await client.stores.delete(store.id)


async def unfinished_job(app: App) -> str:
    """A job of the workspace `default` that nobody works on; its id."""
    subject = ids.StoreId(app.new_id("store"))
    job = jobs.new_job(ids.JobId(app.new_id("job")), jobs.ERASE_STORE, subject, app.now())

    async def use(tx: Transaction) -> None:
        tx.enqueue(ids.DEFAULT_WORKSPACE, job)

    await app.storage.write(None, use)
    return job.id


# Pages

BLOCKS: Mapping[str, Callable[[], str]] = {
    "routes": routes,
    "parameters": parameters,
    "shapes": shapes,
    "ids": id_kinds,
    "errors": errors,
    "settings": setting_rows,
    "limits": limits,
    "port": port,
    "events": event_rows,
}

_BLOCK = re.compile(r"(<!-- generated: (\w+) -->\n)(.*?)(<!-- end: \2 -->)", re.DOTALL)


def pages() -> list[Path]:
    """Every page of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def filled(page: str) -> str:
    """The page with its tables made anew."""
    return _BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[4]}", page)


def stale() -> list[tuple[Path, str]]:
    """Pages whose tables are not what the code says, with what they should be."""
    found = []
    for path in pages():
        page = path.read_text("utf-8")
        wanted = filled(page)
        if wanted != page:
            found.append((path, wanted))
    return found


def main(arguments: Sequence[str]) -> int:
    """Fills the tables, or with `--check` names the pages that are stale and returns 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail where stale")
    check = parser.parse_args(arguments).check
    found = stale()
    for path, wanted in found:
        if not check:
            path.write_text(wanted, "utf-8")
        print(f"{path.relative_to(ROOT)}: {'is stale; run' if check else 'filled by'} docs.py")
    print(f"muniment {muniment.__version__}: {len(found)} of {len(pages())} pages differed")
    return int(check and bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
