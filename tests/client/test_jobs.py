"""Jobs through the SDK: embedded, over HTTP, blocking and awaited."""

from pathlib import Path

import pytest

import muniment
from muniment.testing.server import Server
from wire import wired
from working import leave_parked_job


def test_there_is_no_job_where_all_is_done(client: muniment.Client) -> None:
    client.stores.delete(client.stores.create("gone").id)
    assert list(client.jobs.list()) == []
    with pytest.raises(muniment.NotFound):
        client.jobs.retry("job_" + "0" * 32)


async def test_a_parked_job_is_listed_and_retried(home: Path) -> None:
    url = f"sqlite:///{home / 'memory.db'}"
    async with wired(home, url) as wire:
        parked = await leave_parked_job(wire)
    with Server(home, database=url) as server:
        with muniment.Client(server.url, server.key) as client:
            (job,) = client.jobs.list()
            assert (job.id, job.kind, job.subject) == (parked.id, "erase_store", parked.subject)
            assert (job.failure, job.attempts, job.lease_until) == ("Unavailable", 12, None)
            assert job.parked_at is not None and job.parked_at.tzinfo is not None
            assert client.jobs.list_page(limit=1).items == (job,)
        async with muniment.AsyncClient(server.url, server.key) as awaited:
            again = await awaited.jobs.retry(parked.id)
            assert (again.parked_at, again.attempts) == (None, 0)
            for _ in range(600):
                if not [left async for left in awaited.jobs.list()]:
                    break
            (gone,) = [one async for one in awaited.stores.list(include_deleted=True)]
            assert gone.status == "deleted"


async def test_an_embedded_client_retries_a_job_and_does_it(home: Path) -> None:
    async with wired(home, f"sqlite:///{home / 'memory.db'}") as wire:
        parked = await leave_parked_job(wire)
    with muniment.open(home / "memory.db") as client:
        assert client.jobs.retry(parked.id).id == parked.id
        while list(client.jobs.list()):
            pass
        (gone,) = client.stores.list(include_deleted=True)
        assert gone.status == "deleted"
