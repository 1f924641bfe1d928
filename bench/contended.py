"""`contended` and `grouped`: many writers on one store, and what sharing a commit saves."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from bench.report import Figure, Target
from bench.servers import Server
from bench.wire import Cell, Figures, document_url, measure, put_job, raw_writers
from bench.workshop import Workshop

WRITERS = 16
MANY_WRITERS = 64
SERVERS_MAX = 3
TARGET = Target("≥", 1_000, of="ours")
_COUNT = "SELECT count(*), count(DISTINCT xmin::text) FROM revisions WHERE parent_id IS NOT NULL"
"""Writes and the transactions that made them: a row keeps its transaction's number."""


def run_contended(workshop: Workshop) -> list[Figure]:
    """Sixteen writers of one store, through one server and, on PostgreSQL, through several."""
    raw = raw_writers(workshop)
    cells = {
        f"raw {name}": Cell(f"raw {name}", server, raw_job(workshop, name))
        for name, server in ((key.removeprefix("raw "), server) for key, server in raw.items())
    }
    shapes: list[tuple[str, str, int]] = []
    servers: list[Server] = [*raw.values()]
    for storage in workshop.options.storages:
        for count in range(1, SERVERS_MAX + 1 if storage == "postgres" else 2):
            name = f"{storage} {count}"
            made = serve_several(workshop, storage, count)
            servers += made
            job = shared_job(workshop, storage, made, [made[0].make_store("shared")])
            cells[name] = Cell(name, made[0], job | {"connections": WRITERS})
            shapes.append((name, storage, count))
    found = measure(workshop, list(cells.values()))
    for server in servers:
        server.stop()
    return [
        figure(
            ("contended", f"{storage}, {WRITERS} writers, one store, {several(count)}"),
            found["raw postgres" if storage == "postgres" else "raw sqlite"],
            found[name],
            TARGET if storage == "postgres" and count == 1 else None,
        )
        for name, storage, count in shapes
    ]


def run_grouped(workshop: Workshop) -> list[Figure]:
    """Sixty-four writers of one store, beside as many with a store each."""
    figures = []
    for storage in workshop.options.storages:
        databases = [workshop.database(storage) for _ in range(2)]
        cells = []
        for database, (name, count) in zip(
            databases, (("apart", MANY_WRITERS), ("shared", 1)), strict=True
        ):
            server = workshop.serve("serve", database)
            stores = [server.make_store(f"{n}") for n in range(count)]
            job = shared_job(workshop, storage, [server], stores)
            cells.append(Cell(name, server, job | {"connections": MANY_WRITERS}))
        found = measure(workshop, cells)
        for cell in cells:
            cell.server.stop()
        more: dict[str, float] = {}
        if storage == "postgres":
            apart, shared = (asyncio.run(writes_a_commit(database)) for database in databases)
            more = {"writes a commit, 64 stores": apart, "one store": shared}
        case = f"{storage}, {MANY_WRITERS} writers, one store v. {MANY_WRITERS} stores"
        figures.append(figure(("grouped", case), found["apart"], found["shared"], None, more))
    return figures


def serve_several(workshop: Workshop, storage: str, count: int) -> list[Server]:
    """Servers of one new database, with one owner."""
    home, database = workshop.folder(), workshop.database(storage)
    return [workshop.serve("serve", database, home=home) for _ in range(count)]


def raw_job(workshop: Workshop, storage: str) -> dict[str, Any]:
    """The same 4 KB to a raw server."""
    job = put_job(["/document"]) | {"connections": WRITERS}
    return job | database_of(workshop, storage)


def shared_job(
    workshop: Workshop, storage: str, servers: Sequence[Server], stores: Sequence[str]
) -> dict[str, Any]:
    """New documents, the connections spread over the servers and over the stores."""
    job = put_job([document_url(store, "/notes/{n}.md") for store in stores]) | {"fresh": 1}
    job |= {"ports": [one.port for one in servers], "pids": [one.pid for one in servers]}
    return job | database_of(workshop, storage)


def database_of(workshop: Workshop, storage: str) -> dict[str, Any]:
    """Whose processor time is the database's."""
    return {"database": workshop.postgres_pid} if storage == "postgres" else {}


async def writes_a_commit(database: str) -> float:
    """How many writes of documents shared a transaction, in the mean."""
    connection = await asyncpg.connect(database)
    try:
        writes, commits = await connection.fetchrow(_COUNT)
    finally:
        await connection.close()
    return float(writes) / max(int(commits), 1)


def several(count: int) -> str:
    """How many servers."""
    return "one server" if count == 1 else f"{count} servers"


def figure(
    named: tuple[str, str],
    raw: Figures,
    ours: Figures,
    target: Target | None,
    more: Mapping[str, float] | None = None,
) -> Figure:
    """Writes a second, and where the processor time of one went."""
    beside = {
        "µs CPU raw server": raw["server_cpu_us"],
        "database": raw.get("database_cpu_us", 0.0),
        "ours server": ours["server_cpu_us"],
        "ours database": ours.get("database_cpu_us", 0.0),
        "client µs": ours["client_cpu_us"],
        "p50 ms": ours["p50_ms"],
        "p99 ms": ours["p99_ms"],
    }
    row, case = named
    if "database_cpu_us" not in ours:
        beside = {name: value for name, value in beside.items() if "database" not in name}
    return Figure(
        row, case, "/s", ours["per_second"], raw["per_second"], target, {**beside, **(more or {})}
    )
