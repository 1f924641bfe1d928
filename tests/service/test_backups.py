"""Backups of an SQLite database while a server, a program and commands write to it (R-25)."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import apsw
import pytest

import muniment
from muniment import main
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.settings import load
from muniment.storage.base import LIST_MAX, Transaction
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage
from muniment.testing.invariants import check_invariants
from muniment.testing.server import Server
from shell import Shell
from wire import wired

THREADS = 8
PAUSE_SECONDS = 0.03
"""Between two writes of a thread: every revision's whole tree is looked at in the end."""

LONGEST_SECONDS = 10.0
"""No write is held up for the time of a backup; a busy machine is allowed for."""

PROGRAM = """
import muniment, time
with muniment.open() as client:
    store = next(iter(client.stores.list(name="notes"))).id
    n = 0
    while True:
        print(f"? /embedded/{n:05}", flush=True)
        client.documents.put(store, f"/embedded/{n:05}", f"embedded {n} " + "x" * 500)
        print(f"! /embedded/{n:05}", flush=True)
        n += 1
        time.sleep(0.03)
"""


@dataclass
class Writers:
    """What was asked to be written, what was acknowledged, in each writer's order."""

    asked: dict[str, list[str]] = field(default_factory=dict)
    done: dict[str, list[str]] = field(default_factory=dict)
    failures: list[BaseException] = field(default_factory=list)
    longest: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)

    def put(self, client: muniment.Client, store: str, writer: str) -> None:
        asked, done = self.asked.setdefault(writer, []), self.done.setdefault(writer, [])
        try:
            while not self.stopping.is_set():
                path = f"/{writer}/{len(asked):05}"
                asked.append(path)
                began = time.monotonic()
                client.documents.put(store, path, f"{writer} {path} " + "x" * 500)
                self.longest = max(self.longest, time.monotonic() - began)
                done.append(path)
                self.stopping.wait(PAUSE_SECONDS)
        except BaseException as error:
            self.failures.append(error)

    def command(self, shell: Shell, writer: str) -> None:
        asked, done = self.asked.setdefault(writer, []), self.done.setdefault(writer, [])
        try:
            while not self.stopping.is_set():
                path = f"/{writer}/{len(asked):05}"
                asked.append(path)
                shell.answer("doc", "put", "notes", path, "--text", path)
                done.append(path)
        except BaseException as error:
            self.failures.append(error)

    def listen(self, running: "subprocess.Popen[str]", writer: str) -> None:
        asked, done = self.asked.setdefault(writer, []), self.done.setdefault(writer, [])
        assert running.stdout is not None
        for line in running.stdout:
            (asked if line.startswith("?") else done).append(line[2:].strip())


@contextmanager
def writing(server: Server, shell: Shell, store: str) -> Iterator[Writers]:
    """Threads that write through the server, a program with the file open, and commands."""
    writers = Writers()
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=shell.environment, stdout=subprocess.PIPE, text=True
    )
    clients = [muniment.Client(server.url, server.key) for _ in range(THREADS)]
    threads = [
        threading.Thread(target=writers.put, args=(client, store, f"thread-{n}"))
        for n, client in enumerate(clients)
    ]
    threads += [
        threading.Thread(target=writers.command, args=(shell, "command")),
        threading.Thread(target=writers.listen, args=(running, "embedded")),
    ]
    for thread in threads:
        thread.start()
    try:
        yield writers
    finally:
        writers.stopping.set()
        with suppress(ProcessLookupError):
            running.kill()
        for thread in threads:
            thread.join()
        running.wait()
        for client in clients:
            client.close()


async def paths_of(shell: Shell, database: Path) -> set[str]:
    """The paths in the store `notes` of a database, all of it checked against itself."""
    storage = main.make_storage(load(shell.environment, database=f"sqlite:///{database}"))
    await storage.start()
    try:
        await check_invariants(storage, DEFAULT_WORKSPACE)

        async def use(tx: Transaction) -> set[str]:
            stores = await tx.list_stores(
                DEFAULT_WORKSPACE, None, LIST_MAX, readers=None, statuses=("active",)
            )
            (notes,) = [one.store.id for one in stores if one.store.name == "notes"]
            found: list[str] = []
            after = None
            while page := await tx.list_documents(DEFAULT_WORKSPACE, notes, "/", after, LIST_MAX):
                found += [item.path for item in page]
                after = found[-1]
            return set(found)

        return await storage.read(use, scan=True)
    finally:
        await storage.stop()


async def test_r_25_a_backup_holds_one_state_with_all_that_was_acknowledged_before_it(
    tmp_path: Path,
) -> None:
    shell = Shell(tmp_path / "home")
    async with wired(shell.home, f"sqlite:///{shell.home / 'muniment.db'}") as wire:
        # So that a copy takes a while.
        big = await wire.store(name="big")
        await wire.fill(big, {f"/{n}.md": os.urandom(5_000).hex() for n in range(1500)})
        store = await wire.store(name="notes")
    with Server(shell.home) as server:
        with writing(server, shell, store) as writers:
            before: list[set[str]] = []
            for number in range(2):
                await asyncio.sleep(1)
                before.append({path for paths in writers.done.values() for path in paths})
                copy = tmp_path / f"{number}.db"
                done = await asyncio.to_thread(shell.run, "backup", str(copy))
                assert done.returncode == 0, done.stderr.decode()
        assert writers.failures == []
        assert "locked" not in server.log
    assert all(writers.done.values())
    assert writers.longest < LONGEST_SECONDS
    for number, acknowledged in enumerate(before):
        fresh = Shell(tmp_path / f"fresh-{number}")
        fresh.answer("restore", str(tmp_path / f"{number}.db"))
        held = await paths_of(fresh, fresh.home / "muniment.db")
        assert acknowledged <= held
        for asked in writers.asked.values():
            # Each writes one after the other, so one moment has the first so many of them.
            there = [path in held for path in asked]
            assert there == sorted(there, reverse=True)
        assert held <= {path for asked in writers.asked.values() for path in asked}


# Erased content


@pytest.mark.parametrize("sealed", [False, True])
def test_r_83_what_was_erased_before_is_in_no_byte_of_a_backup(
    tmp_path: Path, sealed: bool
) -> None:
    shell, copy = Shell(tmp_path / "home"), tmp_path / "copy.db"
    if sealed:
        shell.environment["MUNIMENT_MASTER_KEY"] = "ab" * 32
    secret = "the passphrase is crane violet anchor " * 400
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/kept.md", "--text", "kept")
    shell.answer("store", "create", "gone")
    shell.answer("doc", "put", "gone", "/secret-path.md", "--text", secret)
    database = apsw.Connection(str(shell.home / "muniment.db"))
    bodies = database.execute("SELECT body FROM blobs ORDER BY LENGTH(body) DESC").fetchall()
    keys = database.execute("SELECT data_key FROM blob_keys").fetchall()
    traces = [b"crane violet", b"secret-path", bytes(bodies[0][0])[5_000:5_064]]
    # Free pages as a program leaves them that does not overwrite them.
    database.pragma("secure_delete", False)
    database.execute("CREATE TABLE freed (body)")
    database.execute("INSERT INTO freed SELECT body FROM blobs")
    database.execute("DROP TABLE freed")
    database.close()
    shell.answer("store", "delete", "gone", "--yes")
    assert traces[2] in (shell.home / "muniment.db").read_bytes()
    shell.answer("backup", str(copy))
    held = copy.read_bytes()
    assert not [trace for trace in traces if trace in held]
    kept = apsw.Connection(str(copy)).execute("SELECT data_key FROM blob_keys").fetchall()
    assert (len(keys), len(kept)) == ((2, 1) if sealed else (0, 0))
    assert not [key for key in keys if key not in kept and bytes(key[0]) in held]
    assert shell.answer("doc", "get", "notes", "/kept.md", "--db", str(copy)) == "kept"


# One that comes too late


def test_what_opened_a_database_in_the_last_moment_cannot_write_to_it(tmp_path: Path) -> None:
    """It has the file of before, at the old name the log of another: SQLite refuses."""
    shell, copy = Shell(tmp_path / "home"), tmp_path / "copy.db"
    shell.answer("store", "create", "notes")
    shell.answer("backup", str(copy))
    late = apsw.Connection(str(shell.home / "muniment.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    shell.answer("restore", str(copy), "--force")
    assert late.pragma("journal_mode") == "delete"
    with pytest.raises(apsw.ReadOnlyError):
        late.pragma("journal_mode", "wal")
    with pytest.raises(apsw.ReadOnlyError):
        late.execute("DELETE FROM stores")
    late.close()
    assert "notes" in shell.answer("store", "list")


async def test_a_restored_database_is_used_by_a_storage_that_starts(tmp_path: Path) -> None:
    shell, copy = Shell(tmp_path / "home"), tmp_path / "copy.db"
    shell.environment["MUNIMENT_MASTER_KEY"] = "ab" * 32
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a", "--text", "sealed")
    shell.answer("backup", str(copy))
    shell.answer("restore", str(copy), "--force")
    storage = SqliteStorage(
        shell.home / "muniment.db", os.urandom, Sealer(os.urandom, {1: bytes.fromhex("ab" * 32)}, 1)
    )
    await storage.start()
    await storage.check_ready()
    await check_invariants(storage, DEFAULT_WORKSPACE)
    await storage.stop()
