"""A whole application in this process for API and service tests, over any storage."""

import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from muniment import main
from muniment.api.http import HttpApp
from muniment.model.access import Action, Actor, ApiKey, Principal
from muniment.model.events import Event
from muniment.model.ids import DEFAULT_WORKSPACE, KeyId, PrincipalId, StoreId, WorkspaceId
from muniment.model.revisions import CANONICAL
from muniment.model.stores import Workspace
from muniment.service import guard
from muniment.service.app import App
from muniment.service.jobs import Outcome, claim_next, run_leased
from muniment.service.keys import authenticate, new_secret, secret_hash
from muniment.service.revisions import Edit, Target, apply
from muniment.settings import Settings, load
from muniment.storage.base import LIST_MAX, Storage, Transaction
from muniment.worker import HANDLERS

ADMIN_SECRET = "operator-secret-operator-secret-0123"
BASE = "http://127.0.0.1:8787"
DAY = 86_400_000_000
STATUSES = ("active", "archived", "deleting", "deleted")


@dataclass
class Person:
    """A principal with a key: its ids, its secret, and a client that sends it."""

    principal: str
    key: str
    secret: str
    client: httpx.AsyncClient


class Wire:
    """The application, its clients, and short ways to make what a test needs."""

    def __init__(self, settings: Settings, app: App, http: HttpApp) -> None:
        self.settings = settings
        self.app = app
        self.http = http
        self.storage: Storage = app.storage
        self.owner = self.client(main.owner_secret(settings))
        """The local owner: an administrator, and a person with stores of its own."""
        self.operator = self.client(ADMIN_SECRET)
        """MUNIMENT_ADMIN_KEY: an administrator that owns nothing."""

    def client(self, secret: str | None, **headers: str) -> httpx.AsyncClient:
        """A client that sends this key; None sends none."""
        if secret is not None:
            headers["Authorization"] = f"Bearer {secret}"
        transport = httpx.ASGITransport(app=self.http, raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=BASE, headers=headers)

    async def person(self, name: str = "ada", role: str = "member") -> Person:
        """A new service principal with a key."""
        made = await self.owner.post("/v1/api-keys", json={"name": name, "role": role})
        assert made.status_code == 201, made.text
        key = made.json()
        return Person(key["principal"], key["id"], key["secret"], self.client(key["secret"]))

    async def store(
        self, client: httpx.AsyncClient | None = None, name: str = "notes", **fields: Any
    ) -> str:
        """A new store of the client's principal (the owner's by default); its id."""
        made = await (client or self.owner).post("/v1/memory-stores", json={"name": name, **fields})
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    async def put(
        self, store: str, path: str, content: str, client: httpx.AsyncClient | None = None
    ) -> str:
        """Creates a document; its hash."""
        answer = await (client or self.owner).put(
            document_url(store), params={"path": path}, json={"content": content}
        )
        assert answer.status_code == 201, answer.text
        return str(answer.json()["sha256"])

    async def actor(self, secret: str | None = None) -> Actor:
        """Who a secret stands for, to call use cases without HTTP; the local owner by default."""
        return await authenticate(self.app, secret or main.owner_secret(self.settings))

    async def fill(self, store: str, documents: Mapping[str, str]) -> None:
        """Puts many new documents in one revision, which no single request of the API does yet."""
        actor, stamp = await self.actor(), self.app.revision_stamp(len(documents))
        edits = []
        for path, content in sorted(documents.items()):
            body = content.encode()
            edits.append(Edit(path, body, hashlib.sha256(body).digest(), None))

        async def use(tx: Transaction) -> None:
            record, _ = await guard.open_store(tx, actor, StoreId(store), Action.WRITE)
            ref = await tx.get_ref(actor.workspace, record.id, CANONICAL)
            assert ref is not None
            await apply(self.app, tx, Target(actor, record, ref), edits, stamp)

        await self.storage.write(store, use)

    async def grant(self, store: str, subject: dict[str, str], *permissions: str) -> str:
        """An assignment, made by the local owner; its id."""
        body = {"memory_store": store, "subject": subject, "permissions": list(permissions)}
        made = await self.owner.post("/v1/permission-assignments", json=body)
        assert made.status_code == 201, made.text
        return str(made.json()["id"])

    async def other_workspace(self, *, status: str = "active", role: str = "admin") -> Person:
        """A key of a further workspace with one principal, made below the API."""
        workspace = WorkspaceId(main.new_id("workspace"))
        principal, key = PrincipalId(main.new_id("principal")), KeyId(main.new_id("key"))
        secret = new_secret(workspace, os.urandom(32))

        async def use(tx: Transaction) -> None:
            tx.put_workspace(Workspace(workspace, "other", status, False, None, 1))
            tx.put_principal(workspace, Principal(principal, "person", "eve", None, 1))
            tx.put_key(workspace, ApiKey(key, "eve", role, principal, 1), secret_hash(secret))

        await self.storage.write(None, use)
        return Person(principal, key, secret, self.client(secret))

    async def state(self) -> dict[str, object]:
        """What must not change when a request is refused: every store, tree and stream head."""
        workspace = DEFAULT_WORKSPACE

        async def use(tx: Transaction) -> dict[str, object]:
            found: dict[str, object] = {workspace: await tx.get_head(workspace, workspace)}
            after = None
            while stores := await tx.list_stores(
                workspace, after, LIST_MAX, readers=None, statuses=STATUSES
            ):
                for one in stores:
                    found[one.store.id] = (one, await tx.get_head(workspace, one.store.id))
                after = stores[-1].store.id
            return found

        return await self.storage.read(use, scan=True)

    async def events(self, stream: str) -> list[Event]:
        """Every event of a stream of workspace `default`, salts and payloads too."""

        async def use(tx: Transaction) -> list[Event]:
            found: list[Event] = []
            while page := await tx.list_events(DEFAULT_WORKSPACE, stream, len(found), LIST_MAX):
                found += page
            return found

        return await self.storage.read(use, scan=True)

    async def documents(
        self, store: str, client: httpx.AsyncClient | None = None, **query: Any
    ) -> tuple[list[dict[str, Any]], str]:
        """All documents of a store, page by page, and the one tree that every page showed."""
        items: list[dict[str, Any]] = []
        digests: set[str] = set()
        while True:
            answer = await (client or self.owner).get(
                f"/v1/memory-stores/{store}/documents", params=query
            )
            assert answer.status_code == 200, answer.text
            body = answer.json()
            items += body["items"]
            digests.add(body["tree_digest"])
            if body["next_page"] is None:
                assert len(digests) == 1
                return items, digests.pop()
            query["page"] = body["next_page"]


async def finish_jobs(app: App) -> int:
    """Runs every job as a worker does a day later, when each lease and pause is over; how many."""
    fields = {name: getattr(app, name) for name in app.__dataclass_fields__}
    later = App(**{**fields, "now": lambda: app.now() + DAY})
    finished = 0
    while (lease := await claim_next(later, tuple(HANDLERS))) is not None:
        ran = await run_leased(later, lease, HANDLERS[lease.job.kind])
        assert ran.outcome is Outcome.DONE, ran
        finished += 1
    return finished


def document_url(store: str) -> str:
    """Where a store's documents are read and written."""
    return f"/v1/memory-stores/{store}/document"


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and error type, the envelope checked (C-234, C-235)."""
    body = answer.json()
    assert set(body) == {"error"}, body
    error = body["error"]
    assert set(error) in ({"type", "message", "more"}, {"type", "message", "more", "detail"})
    slug = error["type"].replace(".", "-").replace("_", "-")
    assert error["more"] == f"{BASE}/docs/errors#{slug}"
    assert error["message"]
    return answer.status_code, error["type"]


@asynccontextmanager
async def wired(home: Path, database: str, **settings: Any) -> AsyncIterator[Wire]:
    """The application over the database, opened as `serve` opens it."""
    given = load({}, home=home, database=database, admin_key=ADMIN_SECRET, **settings)
    storage = main.make_storage(given)
    await storage.start()
    try:
        app = await main.make_app(given, storage)
        yield Wire(given, app, main.make_http(given, app))
    finally:
        await storage.stop()


def pack(value: Any) -> bytes:
    """MessagePack in shortest form, as far as hashed records need it; written again on purpose."""
    if value is None:
        return b"\xc0"
    if isinstance(value, int):
        if value < 128:
            return bytes([value])
        size = next(size for size in (1, 2, 4, 8) if value < 256**size)
        return bytes([0xCB + size.bit_length()]) + value.to_bytes(size, "big")
    if isinstance(value, list):
        head = [0x90 | len(value)] if len(value) < 16 else [0xDC, *len(value).to_bytes(2, "big")]
        return bytes(head) + b"".join(map(pack, value))
    raw = value.encode() if isinstance(value, str) else value
    if isinstance(value, str) and len(raw) < 32:
        return bytes([0xA0 | len(raw)]) + raw
    wide = len(raw) > 255
    marker = (0xD9 if isinstance(value, str) else 0xC4) + wide
    return bytes([marker]) + len(raw).to_bytes(1 + wide, "big") + raw


def tree_hash(documents: Mapping[str, bytes]) -> str:
    """The tree of these documents by the rules of docs/tree.md, from scratch (C-029)."""
    rows = [
        [path, hashlib.sha256(body).digest(), len(body)]
        for path, body in sorted(documents.items(), key=lambda item: item[0].encode())
    ]
    level, totals = 0, [(1, row[2]) for row in rows]
    while True:
        nodes: list[list[Any]] = []
        above: list[tuple[int, int]] = []
        start = 0
        for n, row in enumerate(rows):
            digest = hashlib.sha256(str(row[0]).encode()).hexdigest()
            if len(digest) - len(digest.rstrip("0")) > level or n == len(rows) - 1:
                counts, sizes = zip(*totals[start : n + 1], strict=True)
                node = hashlib.sha256(pack([level, rows[start : n + 1]])).digest()
                above.append((sum(counts), sum(sizes)))
                nodes.append([row[0], node, *above[-1]])
                start = n + 1
        if len(nodes) <= 1:
            return bytes(nodes[0][1]).hex() if nodes else hashlib.sha256(pack([0, []])).hexdigest()
        rows, totals, level = nodes, above, level + 1


def check_chain(stream: str, events: list[Event]) -> bytes:
    """Asserts that the numbers have no gap and every hash follows (R-30); the last hash."""
    last = bytes(32)
    for number, event in enumerate(events, start=1):
        assert event.seq == number
        assert event.payload is not None and event.salt is not None
        assert event.commitment == hashlib.sha256(event.salt + event.payload).digest()
        ids = bytes.fromhex(stream[-32:]), bytes.fromhex(event.id[-32:])
        header = [last, ids[0], number, ids[1], event.type, event.created_at, event.commitment]
        last = hashlib.sha256(pack(["event", *header])).digest()
        assert event.hash == last
    return last
