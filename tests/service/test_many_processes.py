"""Several processes on one SQLite file: every acknowledged write is there (R-25, K1, K13)."""

import asyncio
import hashlib
import json
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from wire import Wire, check_chain, tree_hash, wired

WRITER = """
import asyncio, json, sys
from muniment import main
from muniment.model.documents import Absent
from muniment.service.documents import get_document, put_document
from muniment.service.keys import authenticate
from muniment.model.errors import Conflict
from muniment.settings import load

home, database, store, number, count = sys.argv[1:]

async def run():
    settings = load({}, home=home, database=database)
    storage = main.make_storage(settings)
    await storage.start()
    app = await main.make_app(settings, storage)
    actor = await authenticate(app, main.owner_secret(settings))
    lost = 0
    for n in range(int(count)):
        path, body = f"/{number}/{n}.md", f"writer {number} document {n} " + "x" * 500
        await put_document(app, actor, store, path, body, precondition=Absent.NONE)
        print(json.dumps([path, body]), flush=True)
        if n % 10 == 0:
            while True:
                log = await get_document(app, actor, store, "/log.md")
                line = log.content.decode() + f"{number} {n}\\n"
                try:
                    await put_document(app, actor, store, "/log.md", line, precondition=log.blob)
                    break
                except Conflict:
                    lost += 1
    await storage.stop()

asyncio.run(run())
"""

LOG_BYTES_MAX = 64 * 1024 * 1024
"""What the write-ahead file is cut back to once nobody reads an old snapshot."""

LOG_BYTES_A_WRITE_MAX = 200_000
"""What one write may add to it while somebody does."""


async def run_writers(
    wire: Wire, folder: Path, processes: int, puts: int, snapshot_seconds: float
) -> None:
    store = await wire.store()
    await wire.put(store, "/log.md", "")
    arguments = [str(wire.settings.home), wire.settings.database, store]
    lines = await asyncio.to_thread(
        write_beside_a_snapshot, folder, arguments, (processes, puts), snapshot_seconds
    )
    wanted = dict(json.loads(line) for line in lines)
    assert len(wanted) == processes * puts
    await check_all_there(wire, store, wanted)
    log = folder / "test.db-wal"
    assert log.stat().st_size < LOG_BYTES_A_WRITE_MAX * len(lines) * 2
    for path in ("/after.md", "/and-after.md"):
        await wire.put(store, path, "x")
    assert log.stat().st_size <= LOG_BYTES_MAX
    assert await wire.storage.scrub()
    assert log.stat().st_size == 0


def write_beside_a_snapshot(
    folder: Path, arguments: list[str], sizes: tuple[int, int], seconds: float
) -> list[str]:
    """What the writers print, one line an acknowledged put, while a reader holds its snapshot."""
    processes, puts = sizes
    reader = apsw.Connection(str(folder / "test.db"))
    reader.execute("BEGIN; SELECT COUNT(*) FROM documents").fetchall()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, *arguments, str(number), str(puts)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    try:
        time.sleep(seconds)
        assert reader.execute("SELECT COUNT(*) FROM documents").fetchall() == [(1,)]
        reader.execute("COMMIT")
        reader.close()
        lines: list[str] = []
        for writer in writers:
            output, error = writer.communicate(timeout=240)
            assert writer.returncode == 0, error[-2_000:]
            lines += output.splitlines()
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
    return lines


async def check_all_there(wire: Wire, store: str, wanted: dict[str, str]) -> None:
    """Every acknowledged document with its bytes, every line of the log, one unbroken chain."""
    items, digest = await wire.documents(store, limit=200)
    log = (
        await wire.owner.get(f"/v1/memory-stores/{store}/document", params={"path": "/log.md"})
    ).json()["content"]
    assert len(set(log.splitlines())) == len(log.splitlines())
    assert len(log.splitlines()) * 10 >= len(wanted)
    everything = {path: body.encode() for path, body in {**wanted, "/log.md": log}.items()}
    assert {item["path"]: item["sha256"] for item in items} == {
        path: hashlib.sha256(body).hexdigest() for path, body in everything.items()
    }
    assert digest == tree_hash(everything)
    events = await wire.events(store)
    assert len(events) == 1 + len(wanted) + 1 + len(log.splitlines())
    check_chain(store, events)


async def test_k13_r_25_eight_processes_write_while_one_reads_an_old_snapshot(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path / "home", f"sqlite:///{tmp_path / 'test.db'}") as wire:
        await run_writers(wire, tmp_path, processes=8, puts=20, snapshot_seconds=3)


@pytest.mark.slow
async def test_k13_eight_processes_write_a_hundred_each_while_one_reads_for_thirty_seconds(
    tmp_path: Path,
) -> None:
    async with wired(tmp_path / "home", f"sqlite:///{tmp_path / 'test.db'}") as wire:
        await run_writers(wire, tmp_path, processes=8, puts=100, snapshot_seconds=30)


async def test_r_25_two_storages_in_one_process_see_each_other_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with wired(tmp_path / "home", url) as one, wired(tmp_path / "home", url) as two:
        store = await one.store()
        sha = await two.put(store, "/a.md", "from two")
        found = await one.owner.get(f"/v1/memory-stores/{store}/document", params={"path": "/a.md"})
        assert found.json()["sha256"] == sha
        assert (await one.owner.delete(f"/v1/memory-stores/{store}")).status_code == 204
        answer = await two.owner.get(f"/v1/memory-stores/{store}/documents")
        assert answer.status_code == 404
        first = await one.store()
        page = await one.owner.get("/v1/memory-stores", params={"limit": 1})
        assert page.json()["items"][0]["id"] == first
