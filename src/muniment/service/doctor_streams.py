"""Whether event streams are whole, and whether they tell what the rows say (R-30)."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import structs

from muniment.model.access import Actor
from muniment.model.events import Event, Head, check_event, check_head, link
from muniment.model.ids import KeyId, PrincipalId, RevisionId, SessionId, StoreId, to_bytes
from muniment.model.revisions import Revision, pack_actor
from muniment.model.stores import Owner, StoreRecord
from muniment.service.doctor_reading import Reading, ahead

Visit = Callable[[Event, dict[str, Any]], Awaitable[None]]
"""Is shown each sound event that has its payload, with the payload read."""


async def check_stream(r: Reading, stream: str, said: Head | None, visit: Visit | None) -> int:
    """Numbers, commitments, hashes and head of a stream; how many events have lost their payload.

    `said` is where its row says that it ends, None without a row.
    """
    raw = to_bytes(stream)
    payloads = await ahead(r.rows("event_payloads", stream))
    heads = [Head()]
    erased = 0
    async for (number,), event in r.rows("events", stream):
        while payloads.next is not None and payloads.next[0] < (number,):
            await _lonely(r, stream, (await payloads.advance()))
        if payloads.next is not None and payloads.next[0] == (number,):
            _, (salt, payload) = payloads.next
            event = structs.replace(event, salt=salt, payload=payload)
            await payloads.advance()
        damage = [check_event(raw, head, event) for head in heads]
        before, heads = heads[0], [Head(event.seq, event.hash)]
        if None not in damage:
            r.find("events", f"{damage[0]} (stream {stream})", event.seq)
            # What comes next may follow from the hash that stands there, or from the right one.
            heads.append(Head(event.seq, link(raw, before.hash, event)))
        elif event.payload is None:
            erased += 1
        elif visit is not None:
            await _show(r, stream, event, visit)
    while payloads.next is not None:
        await _lonely(r, stream, await payloads.advance())
    _check_end(r, stream, heads[0], said)
    return erased


async def _lonely(r: Reading, stream: str, taken: Any) -> None:
    (number,), _ = taken
    r.find("event_payloads", f"there is no event for it (stream {stream})", number)


def _check_end(r: Reading, stream: str, last: Head, said: Head | None) -> None:
    if said is None:
        if last != Head():
            r.find("streams", f"it has {last.seq} events and no row", stream)
        return
    damage = check_head(last, said)
    if damage is not None:
        r.find("streams", damage, stream)


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
        await check_stream(self.r.quietly(), self.store.id, None, self.visit)
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
