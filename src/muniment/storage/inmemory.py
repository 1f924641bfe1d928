"""The oracle: a storage of dicts, strict and obviously right, that every other one is held to.

It answers without ever suspending, so each write is a transaction of its own and each read sees
one state. What the contract forbids or leaves undefined raises ContractBroken.
"""

from typing import TypeVar

from muniment.storage.base import Lost, Use
from muniment.storage.drive import drive
from muniment.storage.inmemory_tables import ContractBroken, Tables, require
from muniment.storage.inmemory_transaction import InMemoryTransaction

__all__ = ["ContractBroken", "InMemoryStorage"]

T = TypeVar("T")

SCHEMA_VERSION = 2
RUNS_MAX = 100
"""How often one write may lose before it counts as one that can never win."""


class InMemoryStorage:
    """Remembers until the process ends; `stop` and `start` again keep what was written."""

    def __init__(self, cursor_key: bytes) -> None:
        require(len(cursor_key) == 32, "a cursor key has 32 bytes")
        self._cursor_key = cursor_key
        self._tables = Tables()
        self._started = False
        self._busy = False

    async def start(self) -> None:
        """Opens it."""
        require(not self._started, "the storage is started already")
        self._started = True

    async def stop(self) -> None:
        """Closes it."""
        self._started = False

    async def schema_version(self) -> int:
        """The version; it is made with it."""
        return SCHEMA_VERSION

    async def migrate(self, now: int) -> int:
        """The version; there is nothing to bring up to it."""
        require(self._started, "the storage is not started")
        return SCHEMA_VERSION

    async def check_schema(self) -> int:
        """The version."""
        require(self._started, "the storage is not started")
        return SCHEMA_VERSION

    async def holds_master_key(self) -> bool:
        """Nothing is sealed."""
        return True

    async def check_ready(self) -> None:
        """Ready whenever it is started."""
        require(self._started, "the storage is not started")

    async def cursor_key(self) -> bytes:
        """The key it was made with."""
        return self._cursor_key

    async def scrub(self) -> bool:
        """Nothing is kept anywhere else."""
        return True

    async def check_integrity(self) -> list[str]:
        """There is no file that could be damaged."""
        return []

    async def read(self, use: Use[T], *, scan: bool = False, single: bool = False) -> T:
        """Runs `use` on what is there."""
        return self._run(use, InMemoryTransaction(self._tables, writable=False, single=single))

    async def write(self, group: str | None, use: Use[T]) -> T:
        """Runs `use`, again where it lost; keeps all of what it wrote or nothing."""
        for _ in range(RUNS_MAX):
            try:
                answer = self._run(use, InMemoryTransaction(self._tables, writable=True))
            except Lost:
                self._tables.undo()
            except BaseException:
                self._tables.undo()
                raise
            else:
                self._tables.keep()
                return answer
        raise ContractBroken("move_ref expects what its transaction never read")

    def _run(self, use: Use[T], transaction: InMemoryTransaction) -> T:
        require(self._started, "the storage is not started")
        require(not self._busy, "a use called its storage")
        self._busy = True
        try:
            answer = drive(use(transaction))
            transaction.check()
            return answer
        finally:
            transaction.open = False
            self._busy = False
