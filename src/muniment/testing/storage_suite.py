# ruff: noqa: D102 (a test's name is its sentence)
"""What every storage is held to. Subclass StorageSuite and say how to make an empty storage.

The parts stand in files of their own: contract cases (`storage_access`, `storage_contents`,
`storage_events`, `storage_jobs`, `storage_inspection`), races (`storage_races`), a state machine
against the oracle (`storage_machine`), failures (`storage_failures`) and crashes
(`storage_crashes`). A storage that runs statements on a database inherits from `CrashCases` too,
and says how they fail there. Asynchronous tests run through anyio's pytest plugin in its auto mode;
`pytest.register_assert_rewrite` these modules to see what an assert saw.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from muniment.storage.base import Storage, Transaction
from muniment.storage.inmemory import InMemoryStorage
from muniment.testing.builders import NOBODY, Builder, enqueueing, make_home, put_content
from muniment.testing.storage_access import AssignmentCases, IdentityCases, WorkspaceCases
from muniment.testing.storage_contents import (
    DocumentCases,
    ObjectCases,
    RevisionCases,
    StoreCases,
)
from muniment.testing.storage_crashes import InterruptionCases
from muniment.testing.storage_events import ErasingCases, EventCases
from muniment.testing.storage_failures import FailureCases
from muniment.testing.storage_inspection import InspectionCases
from muniment.testing.storage_jobs import JobCases, ReceiptCases
from muniment.testing.storage_machine import run_machine
from muniment.testing.storage_races import RaceCases


async def make_oracle() -> InMemoryStorage:
    """An empty, started oracle."""
    oracle = InMemoryStorage(cursor_key=b"o" * 32)
    await oracle.start()
    await oracle.migrate(now=1)
    return oracle


class StorageSuite(
    WorkspaceCases,
    IdentityCases,
    AssignmentCases,
    ObjectCases,
    StoreCases,
    DocumentCases,
    RevisionCases,
    EventCases,
    ErasingCases,
    JobCases,
    ReceiptCases,
    InspectionCases,
    RaceCases,
    FailureCases,
    InterruptionCases,
):
    """Every case; a subclass makes the storages."""

    async def make(self) -> Storage:
        """An empty storage, started and migrated."""
        raise NotImplementedError

    async def reopen(self, storage: Storage) -> Storage:
        """Stops the storage and opens what it kept."""
        raise NotImplementedError

    opened: Storage

    @pytest.fixture
    async def storage(self) -> AsyncIterator[Storage]:
        """An empty storage for one test."""
        self.opened = await self.make()
        yield self.opened
        await self.opened.stop()

    async def open_again(self) -> Storage:
        """What the test's storage kept."""
        self.opened = await self.reopen(self.opened)
        return self.opened

    async def test_the_cursor_key_has_32_bytes_and_stays(self, storage: Storage) -> None:
        key = await storage.cursor_key()
        assert len(key) == 32
        assert await storage.cursor_key() == key
        opened = await self.open_again()
        assert await opened.cursor_key() == key

    async def test_migrating_again_changes_nothing(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        version = await storage.migrate(build.now())
        assert await storage.migrate(build.now()) == version
        assert await storage.schema_version() == version
        await storage.check_ready()
        workspaces = await storage.read(lambda tx: tx.list_workspaces())
        assert workspaces == [home.workspace]

    async def test_a_single_read_answers_like_any_other(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        await put_content(storage, build, home, [("/a", b"text")])

        def ask(tx: Transaction) -> Coroutine[Any, Any, object]:
            return tx.open_document(home.workspace, home.store.id, NOBODY, "/a", content=True)

        whole = await storage.read(ask)
        assert whole is not None
        for scan in (False, True):
            assert await storage.read(ask, single=True, scan=scan) == whole

    async def test_scrubbing_succeeds_while_nobody_reads(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        await put_content(storage, build, home, [("/a", b"text"), ("/a", None)])
        assert await storage.scrub()
        assert await storage.scrub()
        await put_content(storage, build, home, [("/a", b"later")])

    async def test_what_was_written_is_there_after_opening_again(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        (step,) = await put_content(storage, build, home, [("/a", b"kept")])
        opened = await self.open_again()
        await opened.check_ready()
        found = await opened.read(
            lambda tx: tx.open_document(home.workspace, home.store.id, NOBODY, "/a", content=True)
        )
        assert found is not None and found[2] is not None and step.document is not None
        assert found[0] == home.store
        assert found[2].id == step.document.id and found[2].content == b"kept"

    async def test_stopping_finishes_what_was_accepted(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, jobs = home.workspace, [build.job(home.store.id) for _ in range(20)]
        writes = [
            asyncio.create_task(storage.write(home.store.id, enqueueing(ws, job))) for job in jobs
        ]
        await asyncio.sleep(0)
        opened = await self.open_again()
        await asyncio.gather(*writes)
        assert await opened.read(lambda tx: tx.list_jobs(ws, None, 30)) == jobs

    def test_every_step_answers_as_the_oracle_does(self) -> None:
        run_machine(make_oracle, self.make)
