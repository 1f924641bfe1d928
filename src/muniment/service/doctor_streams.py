"""Whether event streams are whole, and whether they tell what the rows say (R-30)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import structs

from muniment.model.access import Actor
from muniment.model.audit import Audit
from muniment.model.events import Event, Head
from muniment.model.ids import KeyId, PrincipalId, RevisionId, SessionId, StoreId, to_bytes
from muniment.model.revisions import Revision, pack_actor
from muniment.model.stores import Owner, StoreRecord
from muniment.service.doctor_reading import Reading, ahead
from muniment.storage.base import Key

Visit = Callable[[Event, dict[str, Any]], Awaitable[None]]
"""Is shown each sound event that has its payload, with the payload read."""

Noted = Mapping[str, Mapping[int, bytes]]
"""By stream, heads that somebody knows from before: numbers and hashes."""


async def check_stream(
    r: Reading, stream: str, said: Head | None, noted: Noted, visit: Visit | None = None
) -> Audit:
    """Numbers, commitments, hashes and head of a stream; shows its sound events to `visit`.

    `said` is where its row says that it ends, None without a row.
    """
    audit = Audit(to_bytes(stream), noted.get(stream))

    def damaged(damage: str, key: Key) -> None:
        audit.stop(damage, key[0] if key else None)

    def lonely(taken: tuple[Key, Any] | None) -> None:
        number = None if taken is None else taken[0][0]
        audit.stop("there are data without an event", number)
        r.find("event_payloads", f"there is no event for it (stream {stream})", number)

    payloads = await ahead(r.rows("event_payloads", stream, damaged=damaged))
    async for (number,), event in r.rows("events", stream, damaged=damaged):
        while payloads.next is not None and payloads.next[0] < (number,):
            lonely(await payloads.advance())
        if payloads.next is not None and payloads.next[0] == (number,):
            _, (salt, payload) = payloads.next
            event = structs.replace(event, salt=salt, payload=payload)
            await payloads.advance()
        damage = audit.add(event)
        if damage is not None:
            r.find("events", f"{damage} (stream {stream})", number)
        elif event.payload is not None and visit is not None:
            await _show(r, stream, event, visit)
    while payloads.next is not None:
        lonely(await payloads.advance())
    damage = audit.finish(audit.head if said is None else said)
    if damage is not None:
        r.find("streams", damage, stream)
    if said is None and audit.events:
        audit.stop("no row says where it ends", None)
        r.find("streams", f"it has {audit.events} events, and no row says where it ends", stream)
    return audit


async def _show(r: Reading, stream: str, event: Event, visit: Visit) -> None:
    try:
        payload = msgspec.json.decode(event.payload or b"", type=dict[str, Any])
        await visit(event, payload)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        message = f"its data is not that of {event.type}: {type(error).__name__} (stream {stream})"
        r.find("events", message, event.seq)


class Told:
    """Whether the events of a store tell of each revision what its rows say."""

    def __init__(self, r: Reading, store: StoreRecord) -> None:
        self.r = r
        self.store = store
        self.revisions = 0
        self._own: dict[str, object] = {}
        """What the store's own row has to say, by the events so far."""
        self.known: set[str] | None = None
        """The revisions told of; kept only where some are not."""

    async def visit(self, event: Event, data: dict[str, Any]) -> None:
        """Compares a revision's event with the revision, a store's with the store."""
        if event.type in ("memory.store_updated", "memory.store_archived"):
            self._own |= {"version": data["version"], "updated_at": event.created_at}
            if event.type == "memory.store_archived":
                self._own["archived_at"] = event.created_at
            for field in {"promotion_policy"} & {*data.get("fields", ())}:
                self._own.pop(field, None)
        if event.type not in ("revision.created", "memory.store_created"):
            return
        self.revisions += 1
        if self.known is not None:
            self.known.add(data["revision"])
            return
        if data["store"] != self.store.id:
            self.r.find("events", f"it tells of another store, {data['store']}", event.seq)
        if event.type == "memory.store_created":
            self._begin_store(event, data)
        revision = await self.r.revision(StoreId(self.store.id), RevisionId(data["revision"]))
        if revision is None:
            self.r.find("events", f"its revision {data['revision']} is not there", event.seq)
        else:
            await self._compare(event, data, revision)

    def _begin_store(self, event: Event, data: dict[str, Any]) -> None:
        kind = data["owner"]["kind"]
        self._own = {
            "owner": Owner(kind, data["owner"].get(kind)),
            "version": 1,
            "promotion_policy": data["promotion_policy"],
            "archived_at": None,
            **dict.fromkeys(("created_at", "updated_at"), event.created_at),
        }

    async def _compare(self, event: Event, data: dict[str, Any], revision: Revision) -> None:
        expected: dict[str, object] = {
            "tree": bytes.fromhex(data["tree_hash"]),
            "actor": _author(self.r, data["actor"]),
            "created_at": event.created_at,
        }
        if event.type == "revision.created":
            for field in ("parent", "kind", "documents"):
                expected[field] = data[field]
            await self._compare_changes(data["changes"], revision)
        for field, told in expected.items():
            if getattr(revision, field) != told:
                message = f"its {field.replace('_', ' ')} is not what event {event.seq} tells"
                self.r.find("revisions", message, revision.id)

    async def _compare_changes(self, told: list[dict[str, str]], revision: Revision) -> None:
        rows: set[tuple[str, str]] = set()
        async for _, change in self.r.quietly().rows("changes", self.store.id, revision.id):
            if change.n == 0:
                rows.add((change.path, change.operation))
        for path, operation in {(one["path"], one["operation"]) for one in told} ^ rows:
            message = f"{revision.id}: its rows and its event do not agree about a {operation}"
            self.r.find("changes", message, path)

    async def count(self, revisions: int, erased: int) -> None:
        """Every revision has its event; those whose events are erased cannot be held against one.

        Called when the stream was read and nobody was shown more.
        """
        for field, told in self._own.items():
            if not erased and getattr(self.store, field) != told:
                self.r.find("stores", f"its {field} is not what its events tell", self.store.id)
        if self.revisions + erased >= revisions:
            return
        self.known = set()
        await check_stream(self.r.quietly(), self.store.id, None, {}, self.visit)
        async for _, revision in self.r.quietly().rows("revisions", self.store.id):
            if revision.id not in self.known:
                self.r.find("revisions", "no event tells of it", revision.id)


def _author(r: Reading, actor: dict[str, str]) -> bytes:
    session = actor.get("session")
    return pack_actor(
        Actor(
            r.workspace,
            PrincipalId(actor["principal"]),
            KeyId(actor["api_key"]),
            session=None if session is None else SessionId(session),
        )
    )
