"""Running a use to its end in one go, for storages that answer without waiting (R-80)."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, run without an event loop.

    One that suspends is closed and a RuntimeError raised: it would hold the storage's only writer
    while it waits for something else.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        answer: T = stop.value
        return answer
    coroutine.close()
    raise RuntimeError("a use awaited something other than its transaction")
