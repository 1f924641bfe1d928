"""Verifying an event stream, event by event, without trust in who keeps it (R-30)."""

from collections.abc import Mapping

from msgspec import Struct

from muniment.model.events import Event, Head, check_event, check_head, link


class Verified(Struct, frozen=True):
    """What came of a stream: how many events, how many of them without data, where it ends.

    `damage` says what is wrong first, and `number` with which event; of the whole where it is None.
    """

    stream: str
    events: int
    erased: int
    head: Head
    damage: str | None = None
    number: int | None = None


class Audit:
    """A stream as it is read, in order. `noted` are heads that somebody knows from before."""

    def __init__(self, stream: bytes, noted: Mapping[int, bytes] | None = None) -> None:
        self.head = Head()
        self.events = 0
        self.erased = 0
        self.damage: tuple[str, int | None] | None = None
        self._stream = stream
        self._noted = dict(noted or {})
        self._before = [Head()]
        """What the next event may follow: what stands there, and what would have been right."""

    def add(self, event: Event) -> str | None:
        """What is wrong with the next event; None where nothing is."""
        found = [check_event(self._stream, head, event) for head in self._before]
        damage = None if None in found else found[0]
        self._before = [Head(event.seq, event.hash)]
        if damage is not None:
            right = link(self._stream, self.head.hash, event)
            self._before.append(Head(event.seq, right))
        noted = self._noted.pop(event.seq, event.hash)
        if damage is None and noted != event.hash:
            damage = "its hash is not the one that was noted: the stream was rewritten"
        self.head = Head(event.seq, event.hash)
        self.events += 1
        self.erased += event.payload is None
        self._keep(damage, event.seq)
        return damage

    def finish(self, said: Head) -> str | None:
        """What is wrong with the end, given where the stream is said to end."""
        damage = check_head(self.head, said)
        for number in sorted(self._noted):
            damage = damage or f"event {number}, a head that was noted, is missing"
        self._keep(damage, None)
        return damage

    def stop(self, damage: str, number: int | None) -> None:
        """Notes that the stream cannot be read on."""
        self._keep(damage, number)

    def verified(self, stream: str) -> Verified:
        """The outcome so far."""
        damage, number = self.damage or (None, None)
        return Verified(stream, self.events, self.erased, self.head, damage, number)

    def _keep(self, damage: str | None, number: int | None) -> None:
        if damage is not None and self.damage is None:
            self.damage = (damage, number)
