"""`start`, `memory`, `cli`: what processes cost, beside bare ones."""

import resource
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import wire
from bench.load import ROOT, cpu_seconds
from bench.report import Figure, Target, medians
from bench.servers import COMMAND, Server, environment
from bench.workshop import Workshop

MEGABYTE = 1_000_000
GETS = 1_000
RUNS_PER_START = 3
START_TARGET = Target("≤", 1.0, of="ours")
MEMORY_TARGET = Target("≤", 120, of="ours")
CLI_TARGET = Target("≤", 0.2, of="ours")
STORE = "bench"
PATH = "/notes/1.md"


def run_start(workshop: Workshop) -> list[Figure]:
    """Seconds from the start of the process until `/readyz` answers 200."""
    raw = workshop.folder() / "answer"
    raw.write_bytes(b"{}")
    names = [
        f"{storage}, {state}" for storage in workshop.options.storages for state in states(storage)
    ]
    rounds: dict[str, list[Mapping[str, float]]] = {name: [] for name in ("raw", *names)}
    for _ in range(workshop.options.starts):
        rounds["raw"].append(timed_start(workshop, "get", str(raw), workshop.folder()))
        for storage in workshop.options.storages:
            home, database = workshop.folder(), workshop.database(storage)
            for state in states(storage):
                once = timed_start(workshop, "serve", database, home)
                rounds[f"{storage}, {state}"].append(once)
    found = {name: medians(one) for name, one in rounds.items()}
    return [
        seconds_figure("start", name, found["raw"], found[name], START_TARGET) for name in names
    ]


def states(storage: str) -> tuple[str, ...]:
    """In which states a server finds its database; one in memory is always new."""
    return ("new database",) if storage == "memory" else ("new database", "again")


def timed_start(workshop: Workshop, kind: str, source: str, home: Path) -> Mapping[str, float]:
    """Starts a server and stops it again."""
    started = time.perf_counter()
    server = workshop.serve(kind, source, home=home)
    seconds = time.perf_counter() - started
    cpu = cpu_seconds(server.pid)
    server.stop()
    return {"seconds": seconds, "cpu": cpu}


def run_memory(workshop: Workshop) -> list[Figure]:
    """Resident memory after the start, and after a thousand GETs."""
    raw_file = workshop.folder() / "answer"
    raw_file.write_bytes(b"{}" * 2048)
    raw = workshop.serve("get", str(raw_file))
    idle, used = raw.rss_bytes, rss_after_gets(workshop, raw, ["/document"])
    raw.stop()
    figures = []
    for storage in workshop.options.storages:
        home, database = workshop.folder(), workshop.database(storage)
        if storage != "memory":
            first = workshop.serve("serve", database, home=home)
            targets = wire.fill(workshop, first)
            first.stop()
        server = workshop.serve("serve", database, home=home)
        rss = server.rss_bytes
        figures.append(memory_figure(f"{storage}, after the start", idle, rss))
        if storage == "memory":
            targets = wire.fill(workshop, server)
        rss = rss_after_gets(workshop, server, targets)
        figures.append(memory_figure(f"{storage}, after {GETS:,} GETs", used, rss))
        server.stop()
    return figures


def rss_after_gets(workshop: Workshop, server: Server, targets: Sequence[str]) -> int:
    """The memory of a server that has answered."""
    job = {"method": "GET", "targets": list(targets), "count": GETS, "connections": 16}
    wire.perform(workshop, server, job)
    return server.rss_bytes


def memory_figure(case: str, raw: int, ours: int) -> Figure:
    """Megabytes."""
    return Figure("memory", case, "MB", ours / MEGABYTE, raw / MEGABYTE, MEMORY_TARGET)


def run_cli(workshop: Workshop) -> list[Figure]:
    """Seconds of a whole command, beside a Python that does nothing."""
    home = workshop.folder()
    commands = {"raw": [sys.executable, "-c", "pass"], "muniment --version": [COMMAND, "--version"]}
    get = [COMMAND, "doc", "get", STORE, PATH]
    make = [COMMAND, "store", "create", STORE]
    put = [COMMAND, "doc", "put", STORE, PATH, "--text", "a note"]
    if all(timed_command(one, home) for one in (make, put, get)):
        commands["muniment doc get, embedded"] = get
    else:
        workshop.skipped.append("cli: `muniment doc get` is skipped, there is no such command yet")
    rounds: dict[str, list[Mapping[str, float]]] = {name: [] for name in commands}
    for _ in range(workshop.options.starts * RUNS_PER_START):
        for name, command in commands.items():
            once = timed_command(command, home)
            if once is None:
                raise RuntimeError(f"{name} has failed")
            rounds[name].append(once)
    found = {name: medians(one) for name, one in rounds.items()}
    raw = found.pop("raw")
    return [seconds_figure("cli", name, raw, ours, CLI_TARGET) for name, ours in found.items()]


def timed_command(command: Sequence[str], home: Path) -> Mapping[str, float] | None:
    """Seconds and processor time of a command that succeeds; None where it fails."""
    cpu, started = children_cpu_seconds(), time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(home),
        check=False,
    )
    seconds = time.perf_counter() - started
    if done.returncode != 0:
        return None
    return {"seconds": seconds, "cpu": children_cpu_seconds() - cpu}


def children_cpu_seconds() -> float:
    """Processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds_figure(
    row: str,
    case: str,
    raw: Mapping[str, float],
    ours: Mapping[str, float],
    target: Target,
) -> Figure:
    """A line of seconds, with the processor's seconds beside it."""
    more = {"s CPU raw": raw["cpu"], "ours": ours["cpu"]}
    return Figure(row, case, "s", ours["seconds"], raw["seconds"], target, more)
