"""An event loop in a thread of its own, for callers that block."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

T = TypeVar("T")


class PortalClosed(RuntimeError):
    """The portal runs nothing more, or not in this process."""


class Portal:
    """Runs coroutines for any thread but its own.

    The thread is a daemon: a program that forgets to close it still ends, and what was
    acknowledged is durable.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="muniment-portal", daemon=True)
        self._lock = threading.Lock()
        self.closed = False
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether it runs coroutines: not after `close`, nor in a process forked off."""
        return not self.closed and self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What the coroutine returns or raises.

        PortalClosed after `close`, also where it comes while the coroutine runs, and after a fork.
        """
        # Not even the lock is touched after a fork: a thread that is gone may hold it.
        if not self.alive:
            work.close()
            raise self._unusable()
        with self._lock:
            # What is scheduled before `close` stops the loop is begun, and ended by it.
            if self.closed:
                work.close()
                raise self._unusable()
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            if self.closed:
                raise self._unusable() from None
            raise

    def close(self) -> None:
        """Ends the loop and its thread; may be called again."""
        if not self._thread.is_alive():
            self.closed = True
            return
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _unusable(self) -> "PortalClosed":
        reason = "is closed" if self.closed else "was opened before a fork; open one after it"
        return PortalClosed(f"this client {reason}")

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
