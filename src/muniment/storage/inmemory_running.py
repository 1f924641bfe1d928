"""What the nouns of the oracle's transaction share: its tables, its end, the checks at the end."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TypeVar

from muniment.model.access import Rights
from muniment.model.stores import Ref
from muniment.storage.base import LIST_MAX, Lost
from muniment.storage.inmemory_tables import Tables, require

T = TypeVar("T")


class Running:
    """One use's transaction; `open` until the storage ends it."""

    def __init__(self, tables: Tables, *, writable: bool, single: bool = False) -> None:
        self.open = True
        self._tables = tables
        self._writable = writable
        self._single = single
        self._used = False
        self._locked: set[str] = set()
        self._appended = False
        self._lost = False
        self._checks: list[tuple[Callable[[], bool], str]] = []

    def check(self) -> None:
        """ContractBroken where a reference leads nowhere, Lost where a ref was another one."""
        if self._lost:
            raise Lost
        for holds, message in self._checks:
            require(holds(), message)

    def _reading(self) -> Tables:
        require(self.open, "the transaction has ended")
        require(not (self._single and self._used), "a single read calls one method once")
        self._used = True
        return self._tables

    def _writing(self, workspace: str) -> Tables:
        t = self._reading()
        require(self._writable, "a read does not write")
        self._expect(lambda: t.workspaces.has((), workspace), f"{workspace} is absent")
        return t

    def _rights(self, workspace: str, store: str, subjects: Sequence[str]) -> Rights:
        t = self._tables
        found = [
            row for subject in subjects for row in t.rights.values((workspace, store, subject))
        ]
        return Rights(any(row.read for row in found), any(row.write for row in found))

    def _expect(self, holds: Callable[[], bool], message: str) -> None:
        self._checks.append((holds, message))

    def _expect_principal(self, workspace: str, principal: str) -> None:
        t = self._tables
        self._expect(lambda: t.principals.has((workspace,), principal), f"{principal} is absent")

    def _expect_store(self, workspace: str, store: str) -> None:
        t = self._tables
        self._expect(lambda: t.stores.has((workspace,), store), f"{store} is absent")

    def _expect_ref(self, workspace: str, store: str, ref: Ref) -> None:
        t = self._tables
        self._expect_store(workspace, store)
        self._expect(
            lambda: t.ref_fits(workspace, store, ref),
            f"{ref.name}: its revision is absent or says otherwise",
        )


def page(rows: Iterable[T], limit: int) -> list[T]:
    """The first `limit` rows; ContractBroken for a limit that no list method takes."""
    require(1 <= limit <= LIST_MAX, f"a list of {limit}")
    return list(islice(rows, limit))
