"""`embedded`: one change through `muniment.open()`, beside a bare durable row and beside git."""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import apsw
import uvloop

import muniment
from bench.changes import STRIDE, WARM, filled, first_content, path_of
from bench.load import MARK
from bench.report import Figure, Target, medians
from bench.servers import environment
from bench.workshop import Workshop, prose

STORE = "bench"
GIT_CHANGES_MAX = 5
GIT_TARGET = Target("≤", 0.2)
_GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@example.com")
_DURABLE = ("-c", "core.fsync=all", "-c", "gc.auto=0")

Change = Callable[[int, str], None]
"""Makes a change durable: the document's number and its new content."""


def run_embedded(workshop: Workshop) -> list[Figure]:
    """Milliseconds of one change in a store of many documents, without a server."""
    documents = workshop.options.many_documents
    home = workshop.folder()
    file = home / "memory.db"
    workshop.say(f"making {documents:,} documents")
    store = uvloop.run(make(home, file, documents))
    changes: dict[str, Change] = {"raw": raw_change(workshop.folder())}
    if which("git") is None:
        workshop.skipped.append("embedded: the comparison with git is skipped, there is no git")
    else:
        workshop.say("making the same folder with git")
        changes["git"] = git_change(workshop.folder(), documents)
    with opened(home, file) as client:
        changes["ours"] = our_change(client, store)
        found = measure(workshop, changes, documents)
    case = f"{documents:,} documents"
    ours, raw = found["ours"], found["raw"]
    figures = [figure(f"{case}, v. one 4 KB row in SQLite", raw, ours, None)]
    if "git" in found:
        figures.append(figure(f"{case}, v. git add and commit", found["git"], ours, GIT_TARGET))
    return figures


def figure(
    case: str, raw: Mapping[str, float], ours: Mapping[str, float], target: Target | None
) -> Figure:
    """One line of milliseconds."""
    more = {"ms CPU in this process, raw": raw["cpu_ms"], "ours": ours["cpu_ms"]}
    return Figure("embedded", case, "ms", ours["ms"], raw["ms"], target, more)


def measure(
    workshop: Workshop, changes: Mapping[str, Change], documents: int
) -> dict[str, dict[str, float]]:
    """The medians of every kind of change over rounds that take them in turn."""
    options = workshop.options
    rounds: dict[str, list[Mapping[str, float]]] = {name: [] for name in changes}
    text = prose()
    number = 0
    for turn in range(options.rounds + 1):
        for name, change in changes.items():
            count = WARM if turn == 0 else options.changes
            count = min(count, options.changes, GIT_CHANGES_MAX if name == "git" else count)
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(count):
                number += 1
                change(number * STRIDE % documents, f"{number:016d}{text[len(MARK) :]}")
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            if turn:
                rounds[name].append({"ms": wall / count * 1000, "cpu_ms": cpu / count * 1000})
    return {name: medians(one) for name, one in rounds.items()}


async def make(home: Path, file: Path, documents: int) -> str:
    """A database with one store of so many documents; the store's id."""
    async with filled(home, f"sqlite:///{file}", documents) as store:
        return store.id


@contextmanager
def opened(home: Path, file: Path) -> Iterator[muniment.Client]:
    """The embedded client, with a home of its own."""
    kept = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment(home))
    try:
        with muniment.open(file) as client:
            yield client
    finally:
        os.environ.clear()
        os.environ.update(kept)


def our_change(client: muniment.Client, store: str) -> Change:
    """Replaces a document by its hash."""
    known: dict[int, str] = {}

    def change(n: int, content: str) -> None:
        expected = known.get(n) or hashlib.sha256(first_content(n)).hexdigest()
        known[n] = client.documents.put(store, path_of(n), content, if_match=expected).sha256

    return change


def raw_change(folder: Path) -> Change:
    """One row in one durable transaction of SQLite."""
    connection = apsw.Connection(str(folder / "raw.db"))
    for pragma in ("journal_mode = wal", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE documents (path TEXT PRIMARY KEY, body TEXT NOT NULL)")

    def change(n: int, content: str) -> None:
        connection.execute(
            "INSERT OR REPLACE INTO documents (path, body) VALUES (?, ?)", (path_of(n), content)
        )

    return change


def git_change(folder: Path, documents: int) -> Change:
    """Writes the file, then adds and commits it, made durable."""
    git(folder, "init", "--quiet")
    stream = [b"commit refs/heads/bench\ncommitter b <b@example.com> 0 +0000\ndata 1\n.\n"]
    for n in range(documents):
        body = first_content(n)
        stream.append(b"M 644 inline %b\n" % path_of(n)[1:].encode())
        stream.append(b"data %d\n%b\n" % (len(body), body))
    git(folder, "fast-import", "--quiet", given=b"".join(stream))
    git(folder, "symbolic-ref", "HEAD", "refs/heads/bench")
    git(folder, "reset", "--quiet", "--hard")

    def change(n: int, content: str) -> None:
        name = path_of(n)[1:]
        (folder / name).write_text(content, "utf-8")
        git(folder, *_DURABLE, "add", name)
        git(folder, *_DURABLE, "commit", "--quiet", "-m", "change")

    return change


def git(folder: Path, *arguments: str, given: bytes | None = None) -> None:
    """Runs git in the folder; fails where it fails."""
    subprocess.run([*_GIT, *arguments], cwd=folder, input=given, check=True, capture_output=True)
