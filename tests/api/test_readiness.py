"""Readiness follows the database; what fails with it says so and recovers (R-04, K14)."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muniment.api.site import READY_SECONDS
from muniment.testing.postgres import PostgresServer
from wire import Wire, document_url, error_of, wired

GONE = (503, "memory.backend_unavailable")
WAIT_SECONDS_MAX = 15


async def until_ready(wire: Wire) -> None:
    """Asks until the server is ready again, as an orchestrator does."""
    began = time.monotonic()
    while (await wire.client(None).get("/readyz")).status_code != 200:
        assert time.monotonic() - began < WAIT_SECONDS_MAX
        await asyncio.sleep(0.1)


@pytest.mark.postgres
async def test_readyz_is_503_while_postgresql_is_stopped_and_recovers_by_itself(
    tmp_path: Path, fresh_database: Callable[..., str], postgres_server: PostgresServer
) -> None:
    async with wired(tmp_path / "home", fresh_database()) as wire:
        store = await wire.store()
        await wire.put(store, "/a.md", "kept")
        assert (await wire.client(None).get("/readyz")).status_code == 200
        await asyncio.to_thread(postgres_server.stop)
        await asyncio.sleep(READY_SECONDS)
        began = time.monotonic()
        try:
            health = await wire.client(None).get("/healthz")
            answers = await asyncio.gather(
                wire.client(None).get("/readyz"),
                wire.owner.get("/v1/whoami"),
                wire.owner.get(document_url(store), params={"path": "/a.md"}),
                wire.owner.get(f"/v1/memory-stores/{store}/documents"),
                *(
                    wire.operator.post("/v1/memory-stores", json={"name": f"lost {n}"})
                    for n in range(5)
                ),
                *(
                    wire.owner.put(
                        document_url(store), params={"path": "/b.md"}, json={"content": "x"}
                    )
                    for _ in range(5)
                ),
            )
        finally:
            await asyncio.to_thread(postgres_server.start)
        assert health.status_code == 200
        assert time.monotonic() - began < WAIT_SECONDS_MAX + 10
        for answer in answers:
            assert error_of(answer) == GONE
            assert int(answer.headers["retry-after"]) >= 1
            assert "postgresql://" not in answer.text and "/tmp" not in answer.text
        await until_ready(wire)
        found = await wire.owner.get(document_url(store), params={"path": "/a.md"})
        assert found.json().get("content") == "kept", found.text
        await wire.put(store, "/b.md", "goes on")
        names = [one["name"] for one in (await wire.owner.get("/v1/memory-stores")).json()["items"]]
        assert names == ["notes"]


async def test_sqlite_that_cannot_be_written_is_not_ready_and_says_503(tmp_path: Path) -> None:
    async with wired(tmp_path / "home", f"sqlite:///{tmp_path / 'test.db'}") as wire:
        store = await wire.store()
        await wire.put(store, "/a.md", "kept")
        storage: Any = wire.storage
        connection = storage._write_connection
        connection.pragma("query_only", True)
        await asyncio.sleep(READY_SECONDS)
        answers = [
            await wire.client(None).get("/readyz"),
            await wire.owner.put(
                document_url(store), params={"path": "/b.md"}, json={"content": "x"}
            ),
        ]
        for answer in answers:
            assert error_of(answer) == GONE
            assert "retry-after" in answer.headers
        found = await wire.owner.get(document_url(store), params={"path": "/a.md"})
        assert found.json()["content"] == "kept"
        connection.pragma("query_only", False)
        await until_ready(wire)
        await wire.put(store, "/b.md", "goes on")
