"""`make demo`: a tour on real text, with a crash in the middle, ending in a server to look at.

Writes this clone's documentation and source through the SDK, edits and deletes with preconditions,
kills the server under concurrent writers, and counts what it had acknowledged against what is
there. Without a terminal, or with CI=true, it stops by itself; its status is 0 if nothing is lost.
"""

import asyncio
import hashlib
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import track

import muniment
from muniment.client.records import DocumentItem
from muniment.testing.server import Server

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".demo"
SUFFIXES = {".md", ".py", ".sql", ".toml", ".txt"}
CONTENT_BYTES_MAX = 102_400
AT_ONCE = 32
WRITERS = 16
CRASH_AFTER = 400
CRASH_SECONDS_MAX = 20.0

out = Console(highlight=False, soft_wrap=True)


def real_text() -> dict[str, str]:
    """The clone's own documents by path, those that fit in one."""
    found = {}
    folders = (".", "docs", "src", "scripts", "changes")
    for folder in folders:
        pattern = "*" if folder == "." else "**/*"
        for file in sorted((ROOT / folder).glob(pattern)):
            if file.suffix in SUFFIXES and file.is_file():
                text = file.read_text(encoding="utf-8")
                if len(text.encode()) <= CONTENT_BYTES_MAX:
                    found["/" + file.relative_to(ROOT).as_posix()] = text
    return found


def main() -> int:
    """The whole demonstration; the exit status."""
    shutil.rmtree(HOME, ignore_errors=True)
    server = Server(HOME)
    server.start()
    try:
        store, right = asyncio.run(tour(server))
        leave(server, store)
        return 0 if right else 1
    finally:
        server.kill()


async def tour(server: Server) -> tuple[str, bool]:
    """The store's id, and whether everything was as promised."""
    out.print(f"[bold]Muniment {muniment.__version__}[/] runs at {server.url}, data in .demo/")
    async with client_of(server) as client:
        store = (await client.stores.create("demo")).id
        await write_text(client, store)
        await edit_and_delete(client, store)
    acknowledged = await crash(server, store)
    server.start()
    out.print(f"   started again at {server.url}")
    async with client_of(server) as client:
        lost = await count(client, store, acknowledged)
        same = await verify_tree(client, store)
    return store, lost == 0 and same


@asynccontextmanager
async def client_of(server: Server) -> AsyncIterator[muniment.AsyncClient]:
    """A client of the server with the local owner's key."""
    async with muniment.AsyncClient(server.url, server.key) as client:
        yield client


async def write_text(client: muniment.AsyncClient, store: str) -> None:
    """Step 1: many documents, many requests at a time."""
    texts = real_text()
    gate = asyncio.Semaphore(AT_ONCE)

    async def put(path: str, text: str) -> None:
        async with gate:
            await client.documents.put(store, path, text)

    began = time.perf_counter()
    tasks = [asyncio.create_task(put(path, text)) for path, text in texts.items()]
    finished: Iterable[object] = asyncio.as_completed(tasks)
    if sys.stdout.isatty():
        finished = track(finished, "   writing", total=len(tasks), console=out, transient=True)
    for task in finished:
        await task  # type: ignore[misc]  # track() keeps what it iterates over
    took = time.perf_counter() - began
    size = sum(len(text.encode()) for text in texts.values())
    out.print(
        f"\n[bold]1[/]  wrote {len(texts)} documents ({size / 1024:,.0f} KB) of this clone,\n"
        f"   {AT_ONCE} requests at a time, {len(texts) / took:,.0f}/s: each a durable revision"
    )


async def edit_and_delete(client: muniment.AsyncClient, store: str) -> None:
    """Step 2: edits and deletes with preconditions, and one that loses."""
    readme = await client.documents.get(store, "/README.md")
    edited = await client.documents.put(
        store, "/README.md", readme.content + "\nEdited.\n", if_match=readme.sha256
    )
    out.print(f"\n[bold]2[/]  edited /README.md: {readme.sha256[:8]} → {edited.sha256[:8]}")
    try:
        await client.documents.put(store, "/README.md", "mine", if_match=readme.sha256)
    except muniment.Conflict as conflict:
        out.print("   the same precondition again loses:")
        out.print(f"   [yellow]{conflict.message}[/]")
        out.print(f"   what is there now: {str(conflict.current_sha256)[:8]}; nothing changed")
    try:
        await client.documents.put(store, "/README.md", "mine")
    except muniment.Conflict:
        out.print("   and without a precondition an existing document is never overwritten")
    removed = 0
    async for item in client.documents.list(store, "/changes/"):
        await client.documents.delete(store, item.path, if_match=item.sha256)
        removed += 1
    out.print(f"   deleted {removed} documents below /changes/ by their hashes")


async def crash(server: Server, store: str) -> dict[str, str]:
    """Step 3: SIGKILL under concurrent writers; what was acknowledged, by path."""
    log_path = HOME / "acknowledged.log"
    acknowledged: dict[str, str] = {}
    enough = asyncio.Event()

    async def write(client: muniment.AsyncClient, writer: int) -> None:
        for n in range(1_000_000):
            path = f"/crash/{writer:02}/{n:06}.md"
            try:
                made = await client.documents.put(store, path, f"writer {writer}, document {n}\n")
            except muniment.MunimentError:
                return
            with log_path.open("a", encoding="utf-8") as log:
                log.write(f"{made.sha256} {path}\n")
            acknowledged[path] = made.sha256
            if len(acknowledged) >= CRASH_AFTER:
                enough.set()

    async with client_of(server) as client:
        writers = [asyncio.create_task(write(client, n)) for n in range(WRITERS)]
        await asyncio.wait_for(enough.wait(), CRASH_SECONDS_MAX)
        server.kill()
        await asyncio.gather(*writers)
    out.print(
        f"\n[bold]3[/]  killed the server (SIGKILL) under {WRITERS} writers;\n"
        f"   they had logged {len(acknowledged)} acknowledgements"
    )
    return acknowledged


async def count(client: muniment.AsyncClient, store: str, acknowledged: dict[str, str]) -> int:
    """Compares what was acknowledged with what is there; how much is lost."""
    there = {item.path: item.sha256 async for item in client.documents.list(store, "/crash/")}
    found = sum(there.get(path) == sha256 for path, sha256 in acknowledged.items())
    lost = len(acknowledged) - found
    style = "green" if lost == 0 else "red"
    out.print(
        f"   acknowledged {len(acknowledged)}, found {found}, [bold {style}]lost {lost}[/]\n"
        f"   ({len(there) - found} more were saved before they could be acknowledged)"
    )
    return lost


async def verify_tree(client: muniment.AsyncClient, store: str) -> bool:
    """Step 4: the tree's hash, computed again from the documents alone."""
    items = [item async for item in client.documents.list(store)]
    page = await client.documents.list_page(store, limit=1)
    same = tree_hash(items) == page.tree_digest
    verdict = "[green]equal[/]" if same else "[bold red]DIFFERENT[/]"
    out.print(
        f"\n[bold]4[/]  tree hash of {len(items)} documents {page.tree_digest[:16]}…,\n"
        f"   recomputed from their paths and hashes: {verdict}"
    )
    return same


def tree_hash(items: list[DocumentItem]) -> str:
    """The documented tree format in a few lines, so that anybody can check a store."""
    encode = msgspec.msgpack.encode

    def level(path: str) -> int:
        digits = hashlib.sha256(path.encode()).hexdigest()
        return len(digits) - len(digits.rstrip("0"))

    rows = sorted(
        (item.path, bytes.fromhex(item.sha256), item.size_bytes, item.path) for item in items
    )
    height = 0
    while True:
        nodes, node = [], []
        for n, row in enumerate(rows):
            node.append(row)
            if level(row[-1]) > height or n == len(rows) - 1:
                nodes.append(node)
                node = []
        if height == 0:
            packed = [(rows_of, [row[:3] for row in rows_of]) for rows_of in nodes or [[]]]
        else:
            packed = [(rows_of, [(row[-1], *row[:3]) for row in rows_of]) for rows_of in nodes]
        hashes = [hashlib.sha256(encode([height, body])).digest() for _, body in packed]
        if len(packed) == 1:
            return hashes[0].hex()
        rows = [
            (
                digest,
                len(body) if height == 0 else sum(row[1] for row in rows_of),
                sum(row[2] for row in rows_of),
                rows_of[-1][-1],
            )
            for digest, (rows_of, body) in zip(hashes, packed, strict=True)
        ]
        height += 1


def leave(server: Server, store: str) -> None:
    """Says what to try; with somebody to try it, leaves the server running until they stop it."""
    if not sys.stdout.isatty() or os.environ.get("CI") == "true":
        out.print(
            "\nNobody is watching, so the server stops here. Run it in a terminal to look on."
        )
        return
    out.print(
        f"\nThe server is still running. In another terminal, in this folder:\n\n"
        f"  export MUNIMENT_URL={server.url} MUNIMENT_API_KEY=$(cat .demo/credentials)\n"
        f"  .venv/bin/muniment doc ls demo /docs/\n"
        f"  .venv/bin/muniment doc get demo /README.md\n"
        f"  .venv/bin/muniment doc edit demo /notes/mine.md\n"
        f'  curl -H "Authorization: Bearer $MUNIMENT_API_KEY" {server.url}/v1/memory-stores\n\n'
        f"The store's id is {store}. Press Ctrl-C to stop the server; the data stays in .demo/."
    )
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        out.print("\nstopped")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(0)
