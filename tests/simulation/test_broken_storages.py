"""The simulation notices a storage that breaks one rule, and shows how in a few steps."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from msgspec import structs

from muniment.storage.base import Storage, Use
from muniment.storage.inmemory import InMemoryStorage
from muniment.storage.inmemory_transaction import InMemoryTransaction
from muniment.testing.simulation import (
    KINDS,
    Differs,
    Kind,
    RandomBytes,
    Script,
    command,
    numbers_of,
    run,
    simulate,
    spans,
)

NOTICED = "broken (answers otherwise|holds other rows|disagrees with itself)"


class Forgetful(InMemoryStorage):
    """Loses a write now and then after it has answered."""

    writes = 0

    async def write(self, group: str | None, use: Use[Any]) -> Any:
        self.writes += 1
        if self.writes % 20:
            return await super().write(group, use)
        try:
            return self._run(use, InMemoryTransaction(self._tables, writable=True))
        finally:
            self._tables.undo()


class Bent(InMemoryStorage):
    """Hands out transactions of which one method does something else."""

    def __init__(self, cursor_key: bytes, transaction: type) -> None:
        super().__init__(cursor_key)
        self._transaction = transaction

    async def read(self, use: Use[Any], **options: Any) -> Any:
        return await super().read(lambda tx: use(self._transaction(tx)), **options)

    async def write(self, group: str | None, use: Use[Any]) -> Any:
        return await super().write(group, lambda tx: use(self._transaction(tx)))


class Plain:
    """A transaction that does what it should."""

    def __init__(self, tx: Any) -> None:
        self.tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tx, name)


class ByLetters(Plain):
    """Orders documents as a collation would."""

    async def list_documents(self, *values: Any) -> Any:
        found = await self.tx.list_documents(*values)
        return sorted(found, key=lambda item: item.path.lower())


class Shifted(Plain):
    """Numbers the changes of a store from two."""

    def put_change(self, workspace: Any, store: Any, change: Any) -> None:
        shifted = structs.replace(change, seq=change.seq + 1)
        self.tx.put_change(workspace, store, shifted)


class Unsigned(Plain):
    """Keeps another author of each revision, which no route shows."""

    def put_revision(self, workspace: Any, store: Any, revision: Any) -> None:
        self.tx.put_revision(workspace, store, structs.replace(revision, actor=b""))


class Careless(Plain):
    """Leaves an assignment where it was."""

    def delete_assignment(self, *values: Any) -> None:
        pass


class Faulty(Plain):
    """Fails where a default store is set."""

    def put_default_store(self, *values: Any) -> None:
        raise ValueError("a fault")


def broken(transaction: type | None) -> Kind:
    @contextmanager
    def kind(random_bytes: RandomBytes) -> Iterator[Storage]:
        key = random_bytes(32)
        yield Forgetful(key) if transaction is None else Bent(key, transaction)

    return kind


def failure(transaction: type | None) -> Differs:
    """Of the first script that fails."""
    kinds = {"memory": KINDS["memory"], "broken": broken(transaction)}
    for seed in range(1, 13):
        try:
            asyncio.run(simulate(Script(seed, 200), kinds, shrink_seconds=60))
        except Differs as found:
            return found
    raise AssertionError("nothing was noticed")


@pytest.mark.parametrize(
    ("transaction", "told", "steps"),
    [
        (None, NOTICED, 25),
        (ByLetters, NOTICED, 8),
        (Shifted, NOTICED, 12),
        (Unsigned, NOTICED, 4),
        (Careless, NOTICED, 8),
        (Faulty, "broken answers otherwise than memory", 4),
    ],
)
def test_a_broken_storage_is_told_with_seed_and_script(
    transaction: type | None, told: str, steps: int
) -> None:
    found = failure(transaction)
    text = str(found)
    assert re.search(told, text)
    assert len(found.taken) <= steps
    assert all(one.line() in text for one in found.taken)
    again = re.search(r'make simulate SEED=(\d+) ARGS="--keep ([-,0-9]+)"', text)
    assert again is not None
    assert text.startswith(f"seed {again[1]}, ")
    kinds = {"memory": KINDS["memory"], "broken": broken(transaction)}
    with pytest.raises(Differs) as repeated:
        asyncio.run(run(Script(int(again[1]), kept=numbers_of(again[2])), kinds))
    assert repeated.value.taken == found.taken


def test_a_failure_shows_the_request_and_both_answers() -> None:
    text = str(failure(Faulty))
    assert "default" in text
    assert "memory: 201" in text or "memory: 200" in text
    assert "broken: 500" in text
    assert "Authorization: Bearer" in text


def test_a_fault_that_all_storages_share_is_a_failure_too() -> None:
    with pytest.raises(Differs, match="a fault of the server"):
        for seed in range(1, 13):
            script = Script(seed, 200)
            asyncio.run(simulate(script, {"broken": broken(Faulty)}, shrink_seconds=2))


def test_the_command_ends_with_1_and_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kinds = {"memory": KINDS["memory"], "broken": broken(Unsigned)}
    monkeypatch.setattr("muniment.testing.simulation.KINDS", kinds)
    assert command(["--seed", "1-9", "--storage", "memory,broken", "--shrink-seconds", "60"]) == 1
    assert "again:     make simulate SEED=" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["1", "1-3,7", "2,4-5", "1-300"])
def test_spans_of_numbers_are_read_as_they_are_written(text: str) -> None:
    assert spans(numbers_of(text)) == text
