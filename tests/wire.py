"""A whole application in this process for API and service tests, over any storage."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from muniment import main
from muniment.api.http import HttpApp
from muniment.service.app import App
from muniment.settings import Settings, load
from muniment.storage.base import Storage

ADMIN_SECRET = "operator-secret-operator-secret-0123"
BASE = "http://127.0.0.1:8787"


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
