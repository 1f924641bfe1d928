"""Whether the rows about people and rights are what the workspace's events tell of them."""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from muniment.model.events import Event
from muniment.model.ids import to_bytes
from muniment.service.doctor_reading import Reading

Row = Any
Fields = dict[str, object]

_NAMED = {
    "principals": "principal",
    "api_keys": "api_key",
    "delegations": "delegation",
    "assignments": "assignment",
    "owners": "owner",
}
"""By kind of row, the field of an event that names one."""


class Facts:
    """Holds each row against the event that made it, and counts, so that none came without one."""

    def __init__(self, r: Reading) -> None:
        self.r = r
        self.told: Counter[str] = Counter()
        """How many rows of each kind are there as told."""
        self._gone: dict[str, dict[str, Any]] = {}
        """What was told to be made and is not there; until it is told that it ended."""
        self._visits: dict[str, Callable[[Event, dict[str, Any]], Awaitable[None]]] = {
            "principal.created": self._principal,
            "key.created": self._key,
            "key.revoked": self._revoked,
            "delegation.created": self._delegation,
            "delegation.deleted": self._deleted,
            "assignment.created": self._assignment,
            "assignment.deleted": self._deleted,
            "owner.created": self._owner,
        }

    async def visit(self, event: Event, data: dict[str, Any]) -> None:
        """Compares the row that the event is about with it."""
        visit = self._visits.get(event.type)
        if visit is not None:
            await visit(event, data)

    async def _principal(self, event: Event, data: dict[str, Any]) -> None:
        expected: Fields = {"kind": data["kind"], "created_at": event.created_at}
        await self._compare("principals", data["principal"], expected)

    async def _key(self, event: Event, data: dict[str, Any]) -> None:
        expected: Fields = {"principal": data["principal"], "role": data["role"]}
        expected["created_at"] = event.created_at
        await self._compare("api_keys", data["api_key"], expected)

    async def _revoked(self, event: Event, data: dict[str, Any]) -> None:
        row = await self._row("api_keys", data["api_key"])
        self.told["revoked"] += 1
        if row is not None and row.revoked_at != event.created_at:
            told = f"event {event.seq} tells that it was revoked, at another time than it says"
            self.r.find("api_keys", told, row.id)

    async def _owner(self, event: Event, data: dict[str, Any]) -> None:
        expected: Fields = {"kind": data["kind"], "created_at": event.created_at}
        await self._compare("owners", data["owner"], expected, data["kind"])

    async def _delegation(self, event: Event, data: dict[str, Any]) -> None:
        expected: Fields = {name: data[name] for name in ("principal", "delegate")}
        expected["created_at"] = event.created_at
        await self._compare_ending("delegations", data["delegation"], expected, data)

    async def _assignment(self, event: Event, data: dict[str, Any]) -> None:
        expected: Fields = {name: data[name] for name in ("store", "read", "write", "origin")}
        subject = data["subject"]
        expected["subject"] = (subject["kind"], subject[subject["kind"]])
        expected["created_at"] = event.created_at
        await self._compare_ending("assignments", data["assignment"], expected, data)

    async def _deleted(self, event: Event, data: dict[str, Any]) -> None:
        kind = "delegations" if "delegation" in data else "assignments"
        identifier = data[_NAMED[kind]]
        if self._gone.pop(identifier, None) is None:
            message = f"event {event.seq} tells that it ended, and it is there"
            self.r.find(kind, message, identifier)

    async def _compare_ending(
        self, kind: str, identifier: str, expected: Fields, data: dict[str, Any]
    ) -> None:
        if await self._row(kind, identifier) is None:
            self._gone[identifier] = data
        else:
            await self._compare(kind, identifier, expected)

    async def _compare(self, kind: str, identifier: str, expected: Fields, *part: str) -> None:
        row = await self._row(kind, identifier, *part)
        if row is None:
            self.r.find(kind, "an event tells of it, and it is not there or damaged", identifier)
            return
        self.told[kind] += 1
        for name, value in expected.items():
            has = getattr(row, name)
            if ((has.kind, has.id) if name == "subject" else has) != value:
                self.r.find(kind, f"its {name} is not what its event tells", identifier)

    async def _row(self, kind: str, identifier: str, *part: str) -> Row | None:
        found = await self.r.row(kind, *part, key=to_bytes(identifier))
        return None if found is None else found.record

    async def finish(self, erased: int) -> None:
        """What is missing, and what came without an event; not so where events lost their data."""
        for identifier, data in self._gone.items():
            kind = "delegations" if "delegation" in data else "assignments"
            if kind == "delegations" or await self._lives(data["store"]):
                self.r.find(kind, "an event tells of it, and it is not there", identifier)
        if erased:
            return
        counted = ("api_keys", "delegations", "assignments")
        rows = {kind: await self.r.tx.count_rows(kind, self.r.workspace, ()) for kind in counted}
        for kind, count in rows.items():
            if count > self.told[kind]:
                untold = f"{count - self.told[kind]} of them came about without an event"
                self.r.find(kind, untold, self.r.workspace)
        revoked = 0
        async for _, key in self.r.quietly().rows("api_keys"):
            revoked += key.revoked_at is not None
        if revoked > self.told["revoked"]:
            self.r.find("api_keys", "one was revoked without an event", self.r.workspace)

    async def _lives(self, store: str) -> bool:
        found = await self.r.row("stores", key=to_bytes(store))
        return found is not None and (
            found.record is None or found.record.status not in ("deleting", "deleted")
        )
