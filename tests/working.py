"""Jobs in tests: what makes one, a clock that is set, storages that go away, worker processes."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
from msgspec import structs

from muniment.model import jobs
from muniment.model.errors import Unavailable
from muniment.model.ids import DEFAULT_WORKSPACE, JobId, StoreId
from muniment.model.jobs import Job, new_job
from muniment.service import deletions
from muniment.service.app import App
from muniment.storage.base import Storage, Transaction
from wire import Wire

T = TypeVar("T")
SECOND = 1_000_000
WAIT_SECONDS = 60
POLL_SECONDS = 0.01


class Failing:
    """A storage that goes away after so many writes: the crash between two steps."""

    def __init__(self, inner: Storage, writes: int) -> None:
        self.inner = inner
        self.writes = writes

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def write(self, group: str | None, use: Callable[[Transaction], Awaitable[T]]) -> T:
        if self.writes == 0:
            raise Unavailable("the process has died")
        self.writes -= 1
        return await self.inner.write(group, use)


def failing(app: App, writes: int) -> App:
    """The app over a storage that fails after so many writes."""
    return replaced(app, storage=Failing(app.storage, writes))


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Waits until it holds."""
    for _ in range(int(WAIT_SECONDS / POLL_SECONDS)):
        if await holds():
            return
        await asyncio.sleep(POLL_SECONDS)
    raise AssertionError(f"not within {WAIT_SECONDS} seconds: {holds.__name__}")


class Clock:
    """A time that stands until it is set."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self) -> int:
        return self.at

    def pass_by(self, seconds: float) -> None:
        """Lets so many seconds pass."""
        self.at += int(seconds * SECOND)


def replaced(app: App, **fields: Any) -> App:
    """The app with other parts."""
    return App(**{name: getattr(app, name) for name in app.__dataclass_fields__} | fields)


async def leave_job(wire: Wire, documents: int = 0, *, seconds_ago: float = 3600) -> str:
    """A store whose deletion has died right after its fence, so long ago; its id."""
    store = await wire.store()
    if documents:
        await wire.fill(store, {f"/{n:05}.md": f"{n}" for n in range(documents)})
    then = Clock(wire.app.now() - int(seconds_ago * SECOND))
    try:
        dying = replaced(failing(wire.app, 1), now=then)
        await deletions.delete_store(dying, await wire.actor(), StoreId(store))
    except Unavailable:
        return store
    raise AssertionError("the deletion has ended")


async def leave_unknown_job(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job long due of a kind that only a newer program knows, which shares this database."""
    made = new_job(JobId(wire.app.new_id("job")), "dream", wire.app.new_id("store"), 1)

    async def use(tx: Transaction) -> None:
        tx.enqueue(DEFAULT_WORKSPACE, made)

    with monkeypatch.context() as newer:
        newer.setitem(jobs.KINDS, "dream", "store")
        await wire.storage.write(None, use)
    return made


async def leave_parked_job(wire: Wire, documents: int = 0) -> Job:
    """A job that was given up after its last attempt."""
    await leave_job(wire, documents)
    (job,) = await jobs_of(wire)
    parked = structs.replace(
        job, attempts=12, lease_until=None, failure="Unavailable", parked_at=wire.app.now()
    )

    async def use(tx: Transaction) -> None:
        tx.return_job(DEFAULT_WORKSPACE, parked)

    await wire.storage.write(None, use)
    return parked


async def jobs_of(wire: Wire) -> list[Job]:
    """Every job of workspace `default`, as its storage has it."""
    return await wire.storage.read(lambda tx: tx.list_jobs(DEFAULT_WORKSPACE, None, 200))


_WORKER = """
import sys
from muniment import worker
from muniment.cli.app import main
from muniment.model import jobs
from muniment.service import deletions
from muniment.service import jobs as service
jobs.LEASE_SECONDS, deletions.STEP_ROWS = int(sys.argv[2]), int(sys.argv[3])
worker.POLL_SECONDS, service.LATER_SECONDS = 0.05, 1
sys.argv = ["muniment", "worker", "--db", sys.argv[1]]
main()
"""


class Worker:
    """A `muniment worker` process whose leases and steps may be short; it looks for jobs often."""

    def __init__(
        self, home: Path, database: str, *, lease_seconds: int = 30, step_rows: int = 2000
    ) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        self._log_path = home / "worker.log"
        with self._log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _WORKER, database, str(lease_seconds), str(step_rows)],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "MUNIMENT_HOME": str(home)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def log(self) -> str:
        """All that it has said."""
        return self._log_path.read_text("utf-8", "replace")

    @property
    def runs(self) -> list[dict[str, Any]]:
        """What it has logged of the jobs that it ran."""
        # Behind the last line's end may stand the beginning of the next line.
        whole = self.log.rpartition("\n")[0].splitlines()
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return [line for line in lines if line["event"] == "job"]

    async def ready(self) -> Self:
        """Waits until it works."""

        async def said() -> bool:
            assert self.process.poll() is None, self.log
            return re.search(r"^Muniment \S+ does the jobs of ", self.log, re.M) is not None

        await until(said)
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks it to stop and waits for it; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(WAIT_SECONDS)
