"""What writers tried and what they were told, held against what the database holds afterwards.

Each attempt to change a document puts a content that nobody else puts, or removes it, and expects
the path as one known content left it. So the changes of a path, read from outside, say whose they
are, and every promise can be looked at by itself: see `check_journal`.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import count
from math import inf

from msgspec import Struct

from muniment.model.ids import PoolId, StoreId, WorkspaceId
from muniment.model.revisions import Change
from muniment.storage.base import Transaction
from muniment.testing.invariants import all_changes

SHOWN_MAX = 10

Place = tuple[str, str]
"""A store and a path."""


class Attempt(Struct):
    """One put or removal. `left` is the hash that it leaves, `expected` the one that it replaces;
    None stands for a free path.

    It counts as unknown until its writer has an answer. `started` and `ended` are ticks of the
    journal: what ended before another started came before it.
    """

    left: str | None
    expected: str | None
    who: str
    started: int
    outcome: str = "unknown"
    ended: float = inf


class Journal:
    """Every attempt by its place, and every hash that somebody was shown there."""

    def __init__(self) -> None:
        self._ticks = count(1)
        self._attempts: dict[Place, list[Attempt]] = {}
        self._shown: dict[Place, set[str | None]] = {}

    def begin(self, place: Place, content: str | None, expected: str | None, who: str) -> Attempt:
        """Notes an attempt that is about to be sent: a put, or with `content` None a removal."""
        left = None if content is None else sha256(content.encode()).hexdigest()
        made = Attempt(left, expected, who, next(self._ticks))
        self._attempts.setdefault(place, []).append(made)
        return made

    def acknowledge(self, attempt: Attempt) -> None:
        """Its writer was told that it is done."""
        attempt.outcome, attempt.ended = "acknowledged", next(self._ticks)

    def refuse(self, attempt: Attempt) -> None:
        """Its writer was told that it is not done."""
        attempt.outcome, attempt.ended = "refused", next(self._ticks)

    def show(self, place: Place, current: str | None) -> None:
        """Somebody was shown this hash as the one at the place; None where it was free."""
        self._shown.setdefault(place, set()).add(current)

    def forget(self, store: str) -> None:
        """Drops the store's attempts: it is to be deleted."""
        for kept in (self._attempts, self._shown):
            for place in [place for place in kept if place[0] == store]:
                del kept[place]

    def places(self) -> list[Place]:
        """Every place that was written to."""
        return list(self._attempts)

    def count(self, outcome: str) -> int:
        """How many attempts have this outcome."""
        return sum(a.outcome == outcome for each in self._attempts.values() for a in each)

    def faults(self, place: Place, found: list[str | None]) -> Iterator[str]:
        """What is wrong with the hashes that the place has had, oldest first, None for free."""
        writers = _Writers(self._attempts.get(place, []))
        before: str | None = None
        latest = 0
        for sha in found:
            made = writers.take(sha, before)
            if made is None:
                yield f"nobody put {_short(sha)} after {_short(before)}, or it was refused"
            elif made.ended < latest:
                yield f"{made.who} was acknowledged, and a later attempt landed before it"
            else:
                latest = max(latest, made.started)
            before = sha
        for attempt in writers.remaining():
            if attempt.outcome == "acknowledged":
                yield f"acknowledged and lost: {attempt.who}, {_short(attempt.left)}"
        for shown in self._shown.get(place, set()) - {None, *found}:
            yield f"shown and not there: {_short(shown)}"


class _Writers:
    """The attempts at one place that were not refused, by what they leave and expect."""

    def __init__(self, attempts: list[Attempt]) -> None:
        self._left: dict[tuple[str | None, str | None], list[Attempt]] = {}
        for each in attempts:
            if each.outcome != "refused":
                self._left.setdefault((each.left, each.expected), []).append(each)

    def take(self, left: str | None, expected: str | None) -> Attempt | None:
        """The attempt that made this of that, an acknowledged one first; it is taken out."""
        fitting = self._left.get((left, expected))
        if not fitting:
            return None
        made = min(fitting, key=lambda each: each.ended)
        fitting.remove(made)
        return made

    def remaining(self) -> Iterator[Attempt]:
        """Those that were not taken."""
        for fitting in self._left.values():
            yield from fitting


async def check_journal(
    tx: Transaction, workspace: WorkspaceId, journal: Journal, pools: dict[str, PoolId] | None
) -> None:
    """AssertionError where the database does not hold what writers were told.

    Of each place: every acknowledged attempt is among its changes and no refused one is; each
    change is an attempt's and follows the one that the attempt expected; what was acknowledged
    before another attempt began comes before it; nothing was shown to anybody that is not there.
    With `pools`, which has each store's, also each change's content is there as it was sent, its
    hash computed again.
    """
    faults: list[str] = []
    for place in journal.places():
        store, path = place
        changes = await all_changes(tx, workspace, StoreId(store), path)
        found = [None if change.blob is None else change.blob.hex() for change in changes]
        faults += [f"{store}{path}: {fault}" for fault in journal.faults(place, found)]
        if pools is not None:
            lost = await _lost(tx, workspace, pools[store], changes)
            faults += [f"{store}{path}: {fault}" for fault in lost]
    shown = "\n".join(faults[:SHOWN_MAX])
    assert not faults, f"{len(faults)} faults, such as\n{shown}"


async def _lost(
    tx: Transaction, workspace: WorkspaceId, pool: PoolId, changes: list[Change]
) -> list[str]:
    """The contents of changes that are not there or have another hash."""
    return [
        f"the content of change {change.id} is not there"
        for change in changes
        if change.blob is not None and not await _is_whole(tx, workspace, pool, change.blob)
    ]


async def _is_whole(tx: Transaction, workspace: WorkspaceId, pool: PoolId, blob: bytes) -> bool:
    content = await tx.get_blob(workspace, pool, blob)
    return content is not None and sha256(content).digest() == blob


def _short(digest: str | None) -> str:
    return "nothing" if digest is None else digest[:12]
