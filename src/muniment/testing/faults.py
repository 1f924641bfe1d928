"""Faults on demand: a use cut off at its n-th call, a statement that fails in a connection."""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from typing import Any, cast

from msgspec import Struct

from muniment.storage.base import Transaction, Use

ENDS = ("BEGIN", "COMMIT")
"""How the statements begin that begin and end a transaction."""


class Refused(Exception):
    """What an interrupted use raises."""


class Interrupted:
    """A use that is cut off at its `at`-th call of the port, before or after the call is made."""

    def __init__(self, whole: Use[Any], at: int, *, after: bool) -> None:
        self._whole = whole
        self._at = at
        self._after = after
        self.calls = 0

    async def use(self, tx: Transaction) -> Any:
        """The use; `calls` says afterwards how far it came."""
        self.calls = 0
        return await self._whole(cast(Transaction, _Calls(self, tx)))

    def call(self, method: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Makes one call, or raises Refused."""
        self.calls += 1
        due = self.calls == self._at
        if due and not self._after:
            raise Refused
        answer = method(*values, **options)
        if due and isawaitable(answer):
            return self._cut_off(answer)
        if due:
            raise Refused
        return answer

    async def _cut_off(self, answer: Awaitable[Any]) -> None:
        await answer
        raise Refused


class _Calls:
    """A transaction whose every call goes through an Interrupted."""

    def __init__(self, interrupted: Interrupted, tx: Transaction) -> None:
        self._interrupted = interrupted
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return partial(self._interrupted.call, getattr(self._tx, name))


class Mishap(Struct, frozen=True):
    """A way for a statement to fail: `strike` is called with the connection and raises.

    It may return something to await that raises. With `after` the statement runs first; with
    `unsure` also a BEGIN or a COMMIT may run and then fail, as where the connection breaks, so that
    nobody knows what became of it. With `lasting` each later statement fails as well; with `again`
    the one so many statements later, when a group may run member by member. A ROLLBACK never
    fails: an end of the connection is one.
    """

    name: str
    strike: Callable[[Any], Any]
    after: bool = False
    unsure: bool = False
    lasting: bool = False
    again: int = 0


class Faults:
    """Counts the statements on wrapped connections, from a BEGIN on, and lets the n-th fail."""

    def __init__(self) -> None:
        self._mishap: Mishap | None = None
        self._at = 0
        self._armed = False
        self._counting = False
        self.count = 0
        self.struck = ""

    def arm(self, mishap: Mishap | None, at: int) -> None:
        """The `at`-th statement, counted from the next BEGIN, fails; with None it only counts."""
        self._mishap, self._at, self._armed = mishap, at, True
        self._counting, self.count, self.struck = False, 0, ""

    def disarm(self) -> None:
        """Nothing fails any more."""
        self._mishap, self._armed = None, False

    def wrap(self, connection: Any) -> Any:
        """What stands in the connection's place."""
        return Watched(self, connection, connection)

    def run(self, connection: Any, method: Callable[..., Any], text: str, *values: Any) -> Any:
        """Runs one statement, or lets it fail."""
        mishap = self._due(text)
        if mishap is None:
            return method(text, *values)
        if not mishap.after:
            return mishap.strike(connection)
        answer = method(text, *values)
        if isawaitable(answer):
            return self._strike_later(answer, mishap, connection)
        answer.fetchall()  # it ran to its end: a cursor left open would hold the transaction
        return mishap.strike(connection)

    async def _strike_later(self, answer: Awaitable[Any], mishap: Mishap, connection: Any) -> Any:
        await answer
        return await struck if isawaitable(struck := mishap.strike(connection)) else struck

    def _due(self, text: str) -> Mishap | None:
        self._counting = self._armed and (self._counting or text.startswith("BEGIN"))
        if not self._counting or text == "ROLLBACK":
            return None
        self.count += 1
        mishap = self._mishap
        if mishap is None or (mishap.after and not mishap.unsure and text.startswith(ENDS)):
            return None
        if self.count in (self._at, self._at + mishap.again) or (self.struck and mishap.lasting):
            self.struck = self.struck or text
            return mishap
        return None


class Watched:
    """A connection, or a cursor of it, whose statements `Faults` may let fail."""

    _STATEMENTS = frozenset({"execute", "fetch", "fetchrow", "fetchval"})

    def __init__(self, faults: Faults, target: Any, connection: Any) -> None:
        self._faults = faults
        self._target = target
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._target, name)
        if name == "cursor":
            return lambda: Watched(self._faults, attribute(), self._connection)
        if name in self._STATEMENTS:
            return partial(self._faults.run, self._connection, attribute)
        return attribute
