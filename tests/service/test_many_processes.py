"""Servers, commands and embedded programs write one database at once (K1, K13, R-25)."""

import asyncio
import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

import muniment
from muniment import main
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.settings import load
from muniment.testing.invariants import check_invariants
from muniment.testing.server import Server
from shell import Shell

PROGRAM = """
import json, sys
import muniment

where, key, store, name, puts, every = sys.argv[1:]
opened = muniment.Client(where, key) if where.startswith("http") else muniment.open(where, key=key)
with opened as client:
    for n in range(int(puts)):
        made = client.documents.put(store, f"/{name}/{n:03}.md", f"{name} {n} " + "x" * 500)
        print(json.dumps(["document", made.path, made.sha256]), flush=True)
        while n % int(every) == 0:
            log = client.documents.get(store, "/log.md")
            text = log.content + f"{name} {n}\\n"
            try:
                made = client.documents.put(store, "/log.md", text, if_match=log.sha256)
            except muniment.Conflict as conflict:
                print(json.dumps(["refused", log.sha256, conflict.current_sha256]), flush=True)
            else:
                print(json.dumps(["line", f"{name} {n}", made.sha256]), flush=True)
                break
"""
WRITER_SECONDS_MAX = 300
SNAPSHOT_SECONDS = 30
LOG_BYTES_A_WRITE_MAX = 128 * 1024
"""What a write of half a kilobyte may add to the write-ahead file while a reader keeps a snapshot.

That is 32 pages of 4 KiB and their heads; 19 are usual: a leaf of each table and index that gets or
changes a row, the nodes of the tree, some inner pages. Writes that share a commit need fewer.
Nothing can be taken out of the file in that time, so this times the writes is the only bound.
"""
LOG_BYTES_KEPT = 64 * 1024 * 1024
"""`journal_size_limit`: what is kept of the file once nobody reads an old snapshot."""


@dataclass
class Told:
    """What the writers of one store were told."""

    store: str
    documents: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    logs: set[str] = field(default_factory=set)
    refusals: list[tuple[str, str]] = field(default_factory=list)

    def note(self, kind: str, what: str, sha256: str) -> None:
        """One thing that a writer was told."""
        if kind == "document":
            self.documents[what] = sha256
        elif kind == "line":
            self.lines.append(what)
            self.logs.add(sha256)
        else:
            self.refusals.append((what, sha256))


@dataclass
class Program:
    """A process that writes through the SDK, to a server's URL or with the database embedded."""

    name: str
    where: str
    home: Path
    puts: int
    every: int = 1

    def write(self, told: Told) -> None:
        """Puts documents, and with every so many appends a line to the log."""
        key = (self.home / "credentials").read_text().strip()
        arguments = [self.where, key, told.store, self.name, str(self.puts), str(self.every)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env={"MUNIMENT_HOME": str(self.home), "PATH": ""},
            capture_output=True,
            text=True,
            timeout=WRITER_SECONDS_MAX,
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        for line in done.stdout.splitlines():
            told.note(*json.loads(line))


@dataclass
class Commands:
    """`muniment doc …`, a process a command, with the database embedded."""

    name: str
    where: str
    home: Path
    puts: int
    every: int = 1

    def write(self, told: Told) -> None:
        """Puts documents, and with every so many appends a line to the log."""
        self.shell = Shell(self.home)
        self.shell.environment["MUNIMENT_DATABASE_URL"] = self.where
        for n in range(self.puts):
            path, text = f"/{self.name}/{n:03}.md", f"{self.name} {n} " + "x" * 500
            sha256 = self.shell.answer("doc", "put", told.store, path, "--text", text)
            told.note("document", path, sha256)
            if n % self.every == 0:
                self._append(told, f"{self.name} {n}")

    def _append(self, told: Told, line: str) -> None:
        while True:
            log = json.loads(self.shell.answer("doc", "get", told.store, "/log.md", "--json"))
            text, expected = log["content"] + line + "\n", log["sha256"]
            command = ("doc", "put", told.store, "/log.md", "--if-match", expected)
            run = self.shell.run(*command, input=text.encode())
            if run.returncode == 0:
                told.note("line", line, run.stdout.decode().strip())
                return
            said = re.search(r"it has ([0-9a-f]{64})", run.stderr.decode())
            assert run.returncode == 1 and said, run.stderr.decode()
            told.note("refused", expected, said[1])


Writer = Program | Commands


def write_all(writers: list[Writer], told: Told) -> None:
    """Lets all writers write at once."""
    with ThreadPoolExecutor(len(writers)) as threads:
        for done in [threads.submit(writer.write, told) for writer in writers]:
            done.result()


def make_store(url: str, key: str) -> Told:
    """A new store with an empty log."""
    with muniment.Client(url, key) as client:
        store = client.stores.create("shared").id
        empty = client.documents.put(store, "/log.md", "")
    return Told(store, logs={empty.sha256})


def check(told: Told, clients: list[muniment.Client], writers: list[Writer]) -> None:
    """What was acknowledged is there, for everybody who looks; what was refused had its reason."""
    assert len(told.documents) == sum(writer.puts for writer in writers)
    assert len(told.lines) == sum(-(-writer.puts // writer.every) for writer in writers)
    for client in clients:
        there = {item.path: item.sha256 for item in client.documents.list(told.store)}
        log = client.documents.get(told.store, "/log.md")
        assert sorted(log.content.splitlines()) == sorted(told.lines)
        assert there == {**told.documents, "/log.md": log.sha256}
        path, sha256 = next(iter(told.documents.items()))
        content = client.documents.get(told.store, path).content
        assert hashlib.sha256(content.encode()).hexdigest() == sha256
        events = [event.type for event in client.stores.events(told.store)]
        assert events.count("revision.created") == 1 + len(told.documents) + len(told.lines)
    for expected, current in told.refusals:
        assert current != expected and current in told.logs


async def check_database(home: Path, address: str) -> None:
    """Everything in the database agrees with itself, from outside."""
    storage = main.make_storage(load({}, home=home, database=address))
    await storage.start()
    try:
        await check_invariants(storage, DEFAULT_WORKSPACE, told=True)
    finally:
        await storage.stop()


def test_a_server_commands_and_embedded_programs_write_one_sqlite_file_k1(tmp_path: Path) -> None:
    home = tmp_path / "home"
    address = f"sqlite:///{home / 'muniment.db'}"
    with Server(home) as server:
        told = make_store(server.url, server.key)
        writers: list[Writer] = [
            Program("served", server.url, home, 20),
            Program("embedded", address, home, 20),
            Commands("commanded", address, home, 5),
        ]
        write_all(writers, told)
        with (
            muniment.Client(server.url, server.key) as served,
            muniment.open(address, key=server.key) as embedded,
        ):
            check(told, [served, embedded], writers)
    asyncio.run(check_database(home, address))


@pytest.mark.postgres
def test_three_servers_commands_and_programs_write_one_postgresql_database_k1(
    tmp_path: Path, postgres_dsn: str
) -> None:
    homes = [tmp_path / f"node {n}" for n in range(3)]
    with ExitStack() as stack:
        servers = [stack.enter_context(Server(home, database=postgres_dsn)) for home in homes]
        key = servers[0].key
        told = make_store(servers[0].url, key)
        writers: list[Writer] = [
            *(Program(f"node-{n}", each.url, homes[0], 20) for n, each in enumerate(servers)),
            Program("embedded", postgres_dsn, homes[0], 20),
            Commands("commanded", postgres_dsn, homes[0], 5),
        ]
        write_all(writers, told)
        clients = [stack.enter_context(muniment.Client(each.url, key)) for each in servers]
        check(told, clients, writers)
    asyncio.run(check_database(homes[0], postgres_dsn))


@contextmanager
def snapshot(file: Path, seconds: float) -> Iterator[None]:
    """A reader that sees the file as it is at the beginning, to the end and at least so long."""
    began = time.monotonic()
    reader = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    reader.execute("BEGIN")
    before = reader.execute("SELECT COUNT(*) FROM documents").fetchall()
    yield
    time.sleep(max(0.0, began + seconds - time.monotonic()))
    assert reader.execute("SELECT COUNT(*) FROM documents").fetchall() == before
    reader.execute("COMMIT")
    reader.close()


@contextmanager
def watched(log: Path, bytes_max: int) -> Iterator[None]:
    """Asserts that the file never has more bytes."""
    most, over = 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(0.05):
            most = max(most, log.stat().st_size)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert most <= bytes_max, f"{log} had {most:,} bytes"
    print(f"{log.name}: at most {most:,} bytes, {bytes_max:,} allowed")


def write_beside_a_snapshot(folder: Path, puts: int, seconds: float) -> None:
    """K13: eight processes put so many documents each while one reader keeps its snapshot."""
    home = folder / "home"
    file = home / "muniment.db"
    address = f"sqlite:///{file}"
    with Server(home) as server:
        told = make_store(server.url, server.key)
        writers: list[Writer] = [
            *(Program(f"served-{n}", server.url, home, puts, 10) for n in range(2)),
            *(Program(f"embedded-{n}", address, home, puts, 10) for n in range(5)),
            Commands("commanded", address, home, puts, 10),
        ]
        log = file.with_name(file.name + "-wal")
        writes = len(writers) * (puts + -(-puts // 10))
        bound = log.stat().st_size + writes * LOG_BYTES_A_WRITE_MAX
        with watched(log, bound), snapshot(file, seconds):
            write_all(writers, told)
        with muniment.Client(server.url, server.key) as client:
            check(told, [client], writers)
            # The next writer takes what is in the file into the database, one more begins it anew.
            for n in range(100):
                client.documents.put(told.store, f"/after-{n}.md", "x")
                assert n < 2 or log.stat().st_size <= LOG_BYTES_KEPT
    asyncio.run(check_database(home, address))
    assert not log.exists()


def test_eight_processes_put_while_a_reader_keeps_its_snapshot_k13(tmp_path: Path) -> None:
    write_beside_a_snapshot(tmp_path, puts=10, seconds=0)


@pytest.mark.slow
def test_eight_processes_put_a_hundred_each_while_a_snapshot_lasts_thirty_seconds_k13(
    tmp_path: Path,
) -> None:
    write_beside_a_snapshot(tmp_path, puts=100, seconds=SNAPSHOT_SECONDS)
