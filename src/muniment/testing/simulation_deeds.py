"""What happens in a simulated script beside requests: a worker's turn, a database that is gone."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from muniment import worker
from muniment.model.errors import Unavailable
from muniment.service.app import App
from muniment.storage.base import Storage, Use
from muniment.testing.simulation_world import Answer, Request, encode_body

T = TypeVar("T")

TURNS_MAX = 20


class Interruptible:
    """A storage that can be told to stop answering."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._left: int | None = None
        self._returns = False

    def answer(self, transactions: int | None, *, returns: bool = False) -> None:
        """From here on it runs so many transactions, then none, or none but the next if `returns`.

        With None it runs any number.
        """
        self._left, self._returns = transactions, returns

    async def read(self, use: Use[T], *, scan: bool = False, single: bool = False) -> T:
        """Reads while it answers."""
        self._count()
        return await self._storage.read(use, scan=scan, single=single)

    async def write(self, group: str | None, use: Use[T]) -> T:
        """Writes while it answers."""
        self._count()
        return await self._storage.write(group, use)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def _count(self) -> None:
        if self._left is not None:
            self._left -= 1
            if self._left == -1 or (self._left < 0 and not self._returns):
                raise Unavailable("the database does not answer")


def interruptible(storage: Storage) -> tuple[Storage, Interruptible]:
    """The storage as the application is given it, and what stops it."""
    made = Interruptible(storage)
    return cast(Storage, made), made


async def done(app: App, request: Request) -> Answer:
    """What became of a deed."""
    name, *about = request.target.split(" ")
    try:
        told = await DEEDS[name](app, *about)
    except Unavailable as failure:
        return Answer(503, (), encode_body({"failed": failure.message}))
    return Answer(200, (), encode_body({"done": told}))


async def work(app: App) -> str:
    """A worker takes a turn: it does all jobs that are due."""
    turns = 0
    while turns < TURNS_MAX and await worker.work_once(app):
        turns += 1
    return f"{turns} jobs"


DEEDS: dict[str, Callable[..., Awaitable[str]]] = {"work": work}
"""Every deed by name: a function of the application and of the words after the name."""
