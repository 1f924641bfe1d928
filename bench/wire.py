"""`get` and `put`: one document through HTTP, beside a bare Starlette route."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bench.report import Figure, Target, medians
from bench.servers import Server
from bench.workshop import Workshop, prose

CONNECTIONS = 64
CONTENDED_WRITERS = 16
FRESH_MAX = 10_000_000
GET_TARGET = Target("≥", 0.5)
PUT_TARGET = Target("≥", 0.12)
CONTENDED_TARGET = Target("≥", 1_000, of="ours")

Figures = Mapping[str, float]


class Cell(NamedTuple):
    """One thing to measure: a job for the generator against a server."""

    name: str
    server: Server
    job: dict[str, Any]


def measure(workshop: Workshop, cells: Sequence[Cell]) -> dict[str, Figures]:
    """The medians of every cell over rounds that take the cells in turn."""
    options = workshop.options
    found: dict[str, list[Figures]] = {cell.name: [] for cell in cells}
    for number in range(options.rounds):
        workshop.say(f"round {number + 1} of {options.rounds}, {len(cells)} measurements")
        for cell in cells:
            job = cell.job | {"seconds": options.seconds, "warm": min(0.3, options.seconds / 2)}
            if "fresh" in job:
                job["fresh"] = 1 + number * FRESH_MAX
            found[cell.name].append(perform(workshop, cell.server, job))
    return {name: medians(rounds) for name, rounds in found.items()}


def run_get(workshop: Workshop) -> list[Figure]:
    """Reading one of the store's documents, 64 at a time and one at a time."""
    servers: dict[str, Server] = {}
    jobs: dict[str, dict[str, Any]] = {}
    answer = b""
    for storage in workshop.options.storages:
        workshop.say(f"filling {storage}")
        server = workshop.serve("serve", workshop.database(storage))
        targets = fill(workshop, server)
        answer = server.request("GET", targets[0])
        servers[storage] = server
        jobs[storage] = {"method": "GET", "targets": targets}
    file = workshop.folder() / "answer"
    file.write_bytes(answer)
    servers["raw"] = workshop.serve("get", str(file))
    jobs["raw"] = {"method": "GET", "targets": ["/document"]}
    cells = [
        Cell(f"{name} {connections}", servers[name], jobs[name] | {"connections": connections})
        for connections in (CONNECTIONS, 1)
        for name in ("raw", *workshop.options.storages)
    ]
    found = measure(workshop, cells)
    for server in servers.values():
        server.stop()
    return [
        figure(
            ("get", f"{storage}, {connections} connection{'s' if connections > 1 else ''}"),
            found[f"raw {connections}"],
            found[f"{storage} {connections}"],
            GET_TARGET if storage == "sqlite" else None,
        )
        for connections in (CONNECTIONS, 1)
        for storage in workshop.options.storages
    ]


def fill(workshop: Workshop, server: Server) -> list[str]:
    """Puts the documents of a read benchmark into a new store; the URL of each."""
    store = server.make_store("read")
    count = workshop.options.documents
    job = put_job([document_url(store, f"/notes/{n % 32}/{n}.md") for n in range(count)])
    perform(workshop, server, job | {"connections": 1, "count": count})
    targets: list[str] = job["targets"]
    return targets


def perform(workshop: Workshop, server: Server, job: Mapping[str, Any]) -> Figures:
    """A job against a server."""
    to = {"ports": [server.port], "pids": [server.pid], "headers": server.headers}
    return workshop.generator.perform({**to, **job})


def run_put(workshop: Workshop) -> list[Figure]:
    """Writing 4 KB, durably: 64 clients on as many stores, then all on one store."""
    figures: list[Figure] = []
    raw = raw_writers(workshop)
    ours = {
        storage: workshop.serve("vectors", workshop.database(storage))
        for storage in workshop.options.storages
    }
    for shape, connections in (
        ("64 stores", CONNECTIONS),
        ("one store", CONNECTIONS),
        ("one store", CONTENDED_WRITERS),
    ):
        cells = [
            Cell(name, server, put_job(["/document"]) | {"connections": connections})
            for name, server in raw.items()
        ]
        for storage, server in ours.items():
            count = connections if shape == "64 stores" else 1
            stores = [server.make_store(f"{connections} {n}") for n in range(count)]
            job = put_job([document_url(store, "/notes/{n}.md") for store in stores])
            cells.append(Cell(storage, server, job | {"connections": connections, "fresh": 1}))
        workshop.say(f"{shape}, {connections} clients")
        found = measure(workshop, cells)
        for storage in ours:
            figures += put_figures(found, storage, shape, connections)
    for server in (*raw.values(), *ours.values()):
        server.stop()
    return figures


def put_figures(
    found: Mapping[str, Figures], storage: str, shape: str, connections: int
) -> list[Figure]:
    """A storage's lines for one shape: PostgreSQL stands beside both raw servers."""
    case = f"{storage}, {connections} clients, {shape}"
    wide = connections == CONNECTIONS
    if storage != "postgres":
        target = PUT_TARGET if storage == "sqlite" and wide else None
        return [figure(("put", case), found["raw sqlite"], found[storage], target)]
    contended = shape == "one store" and not wide
    target = CONTENDED_TARGET if contended else None
    own = figure(("put", case), found["raw postgres"], found[storage], target)
    return [own, figure(("put", f"{case} (v. raw SQLite)"), found["raw sqlite"], found[storage])]


def raw_writers(workshop: Workshop) -> dict[str, Server]:
    """The raw servers that the chosen storages are held against."""
    path = str(workshop.folder() / "raw.db")
    servers = {"raw sqlite": workshop.serve("put_sqlite", path)}
    if "postgres" in workshop.options.storages:
        dsn = workshop.database("postgres")
        servers["raw postgres"] = workshop.serve("put_postgres", dsn)
    return servers


def put_job(targets: list[str]) -> dict[str, Any]:
    """Writes 4 KB; every content is another one."""
    return {
        "method": "PUT",
        "targets": targets,
        "body": json.dumps({"content": prose()}),
    }


def document_url(store: str, path: str) -> str:
    """A document's URL within the server."""
    return f"/v1/memory-stores/{store}/document?path={path}"


def figure(
    named: tuple[str, str], raw: Figures, ours: Figures, target: Target | None = None
) -> Figure:
    """One line of answers a second, with processor time and latencies beside it."""
    more = {
        "µs CPU raw": raw["server_cpu_us"],
        "ours": ours["server_cpu_us"],
        "ratio by CPU": raw["server_cpu_us"] / max(ours["server_cpu_us"], 0.001),
        "p50 ms": ours["p50_ms"],
        "p99 ms": ours["p99_ms"],
        "client µs": ours["client_cpu_us"],
    }
    row, case = named
    return Figure(row, case, "/s", ours["per_second"], raw["per_second"], target, more)
