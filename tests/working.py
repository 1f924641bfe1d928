"""Jobs in tests: what makes one, a clock that is set, storages that go away, worker processes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

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
