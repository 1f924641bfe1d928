"""What happens in a simulated script beside requests: a worker's turn, what the operator does, a
database that is gone."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from muniment import worker
from muniment.api.native.envelope import STATUS
from muniment.model.errors import Failure, Unavailable
from muniment.service import workspaces
from muniment.service.app import App
from muniment.storage.base import Storage, Use
from muniment.testing.simulation_world import Answer, Request, encode_body

T = TypeVar("T")
Told = dict[str, object]

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
        return Answer(200, (), encode_body(await DEEDS[name](app, *about)))
    except Failure as failure:
        error = {"type": failure.code, "message": failure.message}
        return Answer(STATUS[type(failure)], (), encode_body({"error": error}))


async def work(app: App) -> Told:
    """A worker takes a turn: it does all jobs that are due."""
    turns = 0
    while turns < TURNS_MAX and await worker.work_once(app):
        turns += 1
    return {"jobs": turns}


async def create_workspace(app: App, name: str) -> Told:
    """The operator makes a workspace."""
    made = await workspaces.create_workspace(app, name)
    return {
        "workspace": made.workspace.id,
        "principal": made.principal.id,
        "key": made.key.id,
        "secret": made.secret,
    }


async def disable_workspace(app: App, workspace: str) -> Told:
    """The operator disables a workspace."""
    left = await workspaces.disable_workspace(app, workspace)
    return {"workspace": left.id, "status": left.status}


async def enable_workspace(app: App, workspace: str) -> Told:
    """The operator enables a workspace again."""
    left = await workspaces.enable_workspace(app, workspace)
    return {"workspace": left.id, "status": left.status}


DEEDS: dict[str, Callable[..., Awaitable[Told]]] = {
    "work": work,
    "create_workspace": create_workspace,
    "disable_workspace": disable_workspace,
    "enable_workspace": enable_workspace,
}
"""Every deed by name: a function of the application and of the words after the name."""
