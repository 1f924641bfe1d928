# ruff: noqa: D102 (a test's name is its sentence)
"""Part four: a write is cut off at each of its steps, a process is killed, a storage is closed.

`InterruptionCases` cut a use off between its calls of the port, on every storage. `CrashCases` are
for storages that run statements on a database; a storage takes a `wrap`, which puts something in
the place of the connection that its writes run on, and its subclass opens it with `Faults.wrap`
and names the ways in which its statements fail. After each failure, and once more after opening
again, every write has landed whole or left nothing, and `check_invariants` holds.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import count
from random import Random
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec import Struct

from muniment.model import tree
from muniment.model.documents import Document
from muniment.model.errors import Unavailable
from muniment.model.events import Fact
from muniment.model.ids import ChangeId, DocumentId, RevisionId, WorkspaceId
from muniment.model.revisions import CANONICAL, Change, Revision
from muniment.model.stores import Ref, StoreRecord
from muniment.storage.base import Storage, Transaction, Use
from muniment.storage.inmemory_tables import ContractBroken
from muniment.testing.builders import (
    ACTOR,
    NOBODY,
    Builder,
    Home,
    add_store,
    enqueueing,
    make_home,
    replacing,
)
from muniment.testing.faults import Faults, Interrupted, Mishap, Refused
from muniment.testing.invariants import all_changes, all_events, check_erased, check_invariants

ERASED_AT_ONCE = 7
ANSWER_SECONDS = 20
GATE_SECONDS = 5.0
CHILDREN = 2
WRITERS = 4


class Edit(Struct, frozen=True):
    """A document to put or (`content` None) remove, with every id that its use will need."""

    path: str
    content: bytes | None
    revision: RevisionId
    change: ChangeId
    document: DocumentId
    fact: Fact
    at: int


def edit(build: Builder, path: str, content: bytes | None) -> Edit:
    """An edit with ids of its own."""
    return Edit(
        path,
        content,
        RevisionId(build.new_id("revision")),
        ChangeId(build.new_id("change")),
        DocumentId(build.new_id("document")),
        build.fact(path=path),
        build.now(),
    )


def applying(workspace: WorkspaceId, store: StoreRecord, *edits: Edit) -> Use[None]:
    """The use that makes a revision of each edit, as a use case does: over a real tree."""

    async def use(tx: Transaction) -> None:
        await tx.lock_store(workspace, store.id)
        for each in edits:
            await apply_edit(tx, workspace, store, each)

    return use


async def apply_edit(
    tx: Transaction, workspace: WorkspaceId, store: StoreRecord, made: Edit
) -> None:
    """Blob, nodes, revision, change, document, ref and event of one edit."""
    opened = await tx.open_document(workspace, store.id, NOBODY, made.path)
    ref = await tx.get_ref(workspace, store.id, CANONICAL)
    assert opened is not None and ref is not None
    content, current = made.content, opened[2]
    blob = None if content is None else sha256(content).digest()
    size = None if content is None else len(content)
    wanted: tree.Change = tree.Remove(made.path, tree.ANY)
    if blob is not None and content is not None:
        wanted = tree.Put(made.path, blob, len(content), tree.ANY)
    applied = await tree.apply(
        tree.TreeHash(ref.tree), [wanted], lambda node: tx.get_node(workspace, store.pool, node)
    )
    totals = (applied.root, applied.documents, applied.size)
    document = made.document if current is None else current.id
    if blob is not None and content is not None:
        tx.put_blob(workspace, store.pool, blob, content)
        created_at = made.at if current is None else current.created_at
        row = Document(document, made.path, blob, len(content), made.change, created_at, made.at)
    for digest, body in applied.nodes.items():
        tx.put_node(workspace, store.pool, digest, body)
    tx.put_revision(
        workspace,
        store.id,
        Revision(made.revision, ref.revision, *totals, "changes", ACTOR, made.at),
    )
    word, version = "delete" if blob is None else "put", ref.version + 1
    change = (made.change, made.revision, made.path, 0, document, word, None, blob, size, version)
    tx.put_change(workspace, store.id, Change(*change, ACTOR, made.at))
    if blob is None:
        tx.remove_document(workspace, store.id, made.path)
    else:
        tx.put_document(workspace, store.id, row)
    moved = Ref(CANONICAL, made.revision, *totals, version, made.at)
    tx.move_ref(workspace, store.id, moved, ref)
    await tx.append(workspace, store.id, made.fact)


async def has_landed(storage: Storage, workspace: WorkspaceId, store: StoreRecord, e: Edit) -> bool:
    """Whether the edit is there; AssertionError where half of it is. Nobody else edits its path."""

    async def look(tx: Transaction) -> dict[str, bool]:
        opened = await tx.open_document(workspace, store.id, NOBODY, e.path)
        assert opened is not None
        row = opened[2]
        signs = {
            "revision": await tx.get_revision(workspace, store.id, e.revision) is not None,
            "change": e.change
            in [c.id for c in await all_changes(tx, workspace, store.id, e.path)],
            "event": e.fact.id in [v.id for v in await all_events(tx, workspace, store.id)],
            "document": row is None if e.content is None else row is not None,
        }
        if e.content is not None:
            blob = sha256(e.content).digest()
            signs["document"] = row is not None and row.change == e.change
            signs["blob"] = await tx.get_blob(workspace, store.pool, blob) is not None
        return signs

    signs = await storage.read(look)
    assert len(set(signs.values())) == 1, f"half of the write of {e.path} is there: {signs}"
    return signs["revision"]


class Scene(Struct, frozen=True):
    """A workspace with a store of three documents and a fenced one, and writes to try on them."""

    home: Home
    fenced: StoreRecord
    edits: tuple[Edit, ...]
    erases: bool

    def uses(self) -> list[Use[Any]]:
        """One for each edit, and the step that erases."""
        made: list[Use[Any]] = [
            applying(self.home.workspace, self.home.store, each) for each in self.edits
        ]
        return [*made, self.erase] if self.erases else made

    async def erase(self, tx: Transaction) -> int:
        """One bounded step of the fenced store's deletion."""
        ws, store = self.home.workspace, self.fenced
        await tx.lock_store(ws, store.id)
        return await tx.erase_store(ws, store.id, store.pool, ERASED_AT_ONCE)

    async def left(self, storage: Storage) -> list[object]:
        """What the port shows of the fenced store, where one is to be erased."""
        if not self.erases:
            return []
        ws, store, pool = self.home.workspace, self.fenced.id, self.fenced.pool
        blobs = [sha256(content).digest() for content in FIRST.values()]

        async def look(tx: Transaction) -> list[object]:
            return [
                await tx.list_documents(ws, store, "/", None, 99),
                [await all_changes(tx, ws, store, path) for path in FIRST],
                await tx.get_ref(ws, store, CANONICAL),
                await tx.list_events(ws, store, 0, 99),
                await tx.get_head(ws, store),
                [await tx.get_blob(ws, pool, blob) for blob in blobs],
            ]

        return await storage.read(look)

    async def finish(self, storage: Storage) -> None:
        """Erases what is left of the fenced store, after which nothing is."""
        ws, store = self.home.workspace, self.fenced
        if not self.erases:
            return
        while await storage.write(store.id, self.erase):
            pass
        await storage.read(lambda tx: check_erased(tx, ws, store.id))
        assert (await self.left(storage))[-1] == [None] * len(FIRST)


FIRST = {"/a": b"first", "/b": b"second", "/c/d": b"third"}
"""What is in each store before."""

PLANS: dict[str, tuple[tuple[str, ...], bool]] = {
    "put": (("/new",), False),
    "replace": (("/a",), False),
    "remove": (("/b",), False),
    "erase": ((), True),
    "four": (("/new", "/a", "/b", "/c/e"), False),
    "three and an erasing": (("/new", "/a", "/b"), True),
}
"""The paths that are edited, each by a write of its own, and whether a step of erasing joins them.

`/b` is removed; elsewhere a new content is put.
"""


async def set_scene(storage: Storage, build: Builder, plan: str) -> Scene:
    """A scene in a workspace of its own."""
    home = await make_home(storage, build)
    ws, (paths, erases) = home.workspace, PLANS[plan]
    filled = [edit(build, path, content) for path, content in FIRST.items()]
    await storage.write(home.store.id, applying(ws, home.store, *filled))
    fenced = build.store(home.principal)
    if erases:
        others = [edit(build, path, content) for path, content in FIRST.items()]

        async def fill(tx: Transaction) -> None:
            add_store(tx, ws, fenced, build)
            await applying(ws, fenced, *others)(tx)

        await storage.write(None, fill)
        fenced = msgspec.structs.replace(fenced, status="deleting")
        await storage.write(fenced.id, replacing(ws, fenced))
    edits = [edit(build, p, None if p == "/b" else b"new at " + p.encode()) for p in paths]
    return Scene(home, fenced, tuple(edits), erases)


async def check_scene(
    storage: Storage, scene: Scene, before: list[object], answers: Sequence[object]
) -> list[bool]:
    """Which writes have landed, each whole or not at all, as those answered with success have."""
    ws, store = scene.home.workspace, scene.home.store
    landed = [await has_landed(storage, ws, store, each) for each in scene.edits]
    if scene.erases:
        landed.append(await scene.left(storage) != before)
    for there, answer in zip(landed, answers, strict=True):
        assert there or isinstance(answer, BaseException), f"acknowledged and lost: {landed}"
    await check_invariants(storage, ws)
    return landed


async def write_together(
    storage: Storage, group: str, uses: Sequence[Use[Any]], ready: Callable[[], None]
) -> list[object]:
    """The answers, or what was raised, of uses that the storage takes up as one group.

    A writer in a thread of its own is kept busy until all of them wait. `ready` is called when it
    is, before the first of them may begin.
    """
    loop, home_thread = asyncio.get_running_loop(), threading.get_ident()
    entered, release = asyncio.Event(), threading.Event()

    threads: list[int] = []

    async def hold(tx: Transaction) -> None:
        threads.append(threading.get_ident())
        loop.call_soon_threadsafe(entered.set)
        if threads[-1] != home_thread:
            release.wait(GATE_SECONDS)

    gate = asyncio.create_task(storage.write("gate", hold))
    await entered.wait()
    if threads[-1] == home_thread:
        await gate
    ready()
    writes = [asyncio.create_task(storage.write(group, use)) for use in uses]
    await asyncio.sleep(0)
    release.set()
    async with asyncio.timeout(ANSWER_SECONDS):
        answers: list[object] = list(await asyncio.gather(*writes, return_exceptions=True))
        await gate
    return answers


class InterruptionCases:
    """Uses cut off anywhere, and storages that are closed: for every storage."""

    async def open_again(self) -> Storage:
        """Provided by StorageSuite."""
        raise NotImplementedError

    @pytest.mark.parametrize("plan", ["four", "three and an erasing"])
    @pytest.mark.parametrize("after", [False, True], ids=["before a call", "after a call"])
    async def test_a_use_cut_off_anywhere_leaves_nothing_and_its_group_lands(
        self, storage: Storage, plan: str, after: bool
    ) -> None:
        build = Builder()
        for at in count(1):
            scene = await set_scene(storage, build, plan)
            before = await scene.left(storage)
            uses = scene.uses()
            victim = at % len(uses)
            interrupted = Interrupted(uses[victim], at, after=after)
            uses[victim] = interrupted.use
            group = scene.home.store.id
            answers = await asyncio.gather(
                *(storage.write(group, use) for use in uses), return_exceptions=True
            )
            landed = await check_scene(storage, scene, before, answers)
            failed = [n for n, answer in enumerate(answers) if isinstance(answer, BaseException)]
            assert [n for n, there in enumerate(landed) if not there] == failed
            if interrupted.calls < at:
                assert failed == []
                if at > 2 * len(uses):
                    break
            else:
                assert failed == [victim] and isinstance(answers[victim], Refused)
        await scene.finish(storage)

    async def test_what_was_cut_off_stays_away_after_opening_again(self, storage: Storage) -> None:
        scene = await set_scene(storage, Builder(), "four")
        store, use = scene.home.store.id, scene.uses()[0]
        with pytest.raises(Refused):
            await storage.write(store, Interrupted(use, 9, after=True).use)
        opened = await self.open_again()
        assert await check_scene(opened, scene, [], [Refused()] * 4) == [False] * 4
        await opened.write(store, use)
        assert await check_scene(opened, scene, [], [None, *[Refused()] * 3]) == [
            True,
            *[False] * 3,
        ]

    async def test_a_closed_storage_refuses_at_once(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        await storage.stop()
        job = build.job(home.store.id)
        for group in (None, home.store.id):
            # The oracle takes such a write for a fault in the program.
            with pytest.raises((Unavailable, ContractBroken)):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await storage.write(group, enqueueing(home.workspace, job))
        with pytest.raises((Unavailable, ContractBroken)):
            async with asyncio.timeout(ANSWER_SECONDS):
                await storage.check_ready()
        opened = await self.open_again()
        assert await opened.read(lambda tx: tx.list_jobs(home.workspace, None, 9)) == []

    async def test_a_write_that_meets_the_closing_is_answered(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        acknowledged: list[str] = []
        enough = asyncio.Event()

        async def write_on() -> None:
            while True:
                job = build.job(store)
                await storage.write(store, enqueueing(ws, job))
                acknowledged.append(job.id)
                if len(acknowledged) == 2 * WRITERS:
                    enough.set()
                await asyncio.sleep(0)

        writers = [asyncio.create_task(write_on()) for _ in range(WRITERS)]
        await enough.wait()
        stopping = asyncio.create_task(storage.stop())
        async with asyncio.timeout(ANSWER_SECONDS):
            answers = await asyncio.gather(*writers, return_exceptions=True)
            await stopping
        assert all(isinstance(a, Unavailable | ContractBroken) for a in answers), answers
        opened = await self.open_again()
        jobs = await opened.read(lambda tx: tx.list_jobs(ws, None, 201))
        assert {job.id for job in jobs} >= set(acknowledged[:201])


class CrashCases:
    """Statements that fail and processes that are killed: for storages in a database."""

    mishaps: ClassVar[Sequence[Mishap]]
    """The ways in which a statement can fail on this database."""

    stride: ClassVar[int] = 8
    """Of so many statements one fails; `slow` cases let every one fail."""

    async def open_faulty(self, faults: Faults) -> Storage:
        """Opens what the test's storage kept, with `faults.wrap` around its connections."""
        raise NotImplementedError

    def opening(self) -> str:
        """Python that makes `storage`, not started, over the same database in another process."""
        raise NotImplementedError

    @pytest.mark.parametrize("plan", ["put", "four", "three and an erasing"])
    async def test_a_failed_statement_leaves_all_or_nothing(
        self, storage: Storage, plan: str
    ) -> None:
        await self.fail_statements(storage, plan, self.stride)

    @pytest.mark.slow
    @pytest.mark.parametrize("plan", PLANS)
    async def test_every_failed_statement_leaves_all_or_nothing(
        self, storage: Storage, plan: str
    ) -> None:
        await self.fail_statements(storage, plan, 1)

    async def fail_statements(self, storage: Storage, plan: str, stride: int) -> None:
        """Each mishap at each statement, or at one of `stride` and the last, a COMMIT."""
        await storage.stop()
        build, faults = Builder(), Faults()
        storage = await self.open_faulty(faults)
        try:
            await self.fail_at(storage, build, faults, plan, mishap=None)
            total = faults.count
            for number, mishap in enumerate(self.mishaps):
                places = {*range(1 + number % stride, total, stride), total}
                outcomes = [
                    await self.fail_at(storage, build, faults, plan, mishap=mishap, at=at)
                    for at in sorted(places)
                ]
                await storage.stop()
                storage = await self.open_faulty(faults)
                for outcome in outcomes:
                    await outcome.check_again(storage)
        finally:
            await storage.stop()

    async def fail_at(
        self,
        storage: Storage,
        build: Builder,
        faults: Faults,
        plan: str,
        *,
        mishap: Mishap | None,
        at: int = 0,
    ) -> "Outcome":
        """One scene with one mishap, after which the storage goes on."""
        scene = await set_scene(storage, build, plan)
        ws, store = scene.home.workspace, scene.home.store
        before = await scene.left(storage)
        try:
            arm = partial(faults.arm, mishap, at)
            answers = await write_together(storage, store.id, scene.uses(), arm)
            faults.disarm()
            landed = await check_scene(storage, scene, before, answers)
            check_outcome(landed, answers, faults, mishap)
            later = edit(build, "/later", b"later")
            await storage.write(store.id, applying(ws, store, later))
        except AssertionError as error:
            error.add_note(f"{mishap and mishap.name} at statement {at}: {faults.struck}")
            raise
        finally:
            faults.disarm()
        return Outcome(scene, before, answers, landed)

    async def test_a_killed_process_loses_nothing_acknowledged(self, storage: Storage) -> None:
        await self.kill_writers(storage, first=1, rounds=1)

    @pytest.mark.slow
    async def test_many_killed_processes_lose_nothing_acknowledged(self, storage: Storage) -> None:
        await self.kill_writers(storage, first=50, rounds=3)

    async def kill_writers(self, storage: Storage, *, first: int, rounds: int) -> None:
        """Several processes write to one database; each is killed at a moment of its own."""
        await storage.stop()
        chance, numbers = Random(first), count(first)
        for _ in range(rounds):
            said = await asyncio.gather(
                *(
                    write_and_be_killed(self.opening(), next(numbers), chance.uniform(0.02, 0.3))
                    for _ in range(CHILDREN)
                )
            )
            opened = await self.open_faulty(Faults())
            for workspace, paths in said:
                await check_acknowledged(opened, WorkspaceId(workspace), paths)
            await opened.check_ready()
            await opened.stop()


class Outcome(Struct, frozen=True):
    """What a scene held, answered and holds after a mishap."""

    scene: Scene
    before: list[object]
    answers: list[object]
    landed: list[bool]

    async def check_again(self, storage: Storage) -> None:
        """A storage that was opened since holds the same, and goes on with it."""
        assert await check_scene(storage, self.scene, self.before, self.answers) == self.landed
        await self.scene.finish(storage)
        await check_invariants(storage, self.scene.home.workspace)


def check_outcome(
    landed: list[bool], answers: list[object], faults: Faults, mishap: Mishap | None
) -> None:
    """All or none have landed, unless some failed twice; none that failed, if that is known."""
    twice = mishap is not None and mishap.again
    assert twice or len(set(landed)) == 1, f"half of the group has landed: {landed} {answers}"
    failed = [isinstance(answer, BaseException) for answer in answers]
    if mishap is None or not faults.struck:
        assert not any(failed), answers
    elif not (mishap.unsure and faults.struck == "COMMIT"):
        assert failed == [not there for there in landed], f"refused and landed: {answers}"


async def check_acknowledged(storage: Storage, workspace: WorkspaceId, paths: list[str]) -> None:
    """The workspace's one store is whole and has a document at each of the paths."""
    await check_invariants(storage, workspace)

    async def look(tx: Transaction) -> None:
        (found,) = await tx.list_stores(workspace, None, 2, readers=None, statuses=["active"])
        for path in paths:
            opened = await tx.open_document(workspace, found.store.id, NOBODY, path, content=True)
            assert opened is not None and opened[2] is not None, f"acknowledged and lost: {path}"
            assert opened[2].content == path.encode()

    assert paths
    await storage.read(look)


async def write_and_be_killed(opening: str, number: int, seconds: float) -> tuple[str, list[str]]:
    """What a process acknowledged that was killed so long after its first write: its workspace
    and the paths it put.
    """
    script = f"from {__name__} import write_for_ever\n{opening}\nwrite_for_ever(storage, {number})"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, stdout=asyncio.subprocess.PIPE, limit=1 << 22
    )
    assert child.stdout is not None
    try:
        async with asyncio.timeout(6 * ANSWER_SECONDS):
            start = await child.stdout.readline() + await child.stdout.readline()
        await asyncio.sleep(seconds)
    finally:
        with suppress(ProcessLookupError):
            child.kill()
    said = (start + await child.stdout.read()).decode()
    assert await child.wait() == -9, said
    # The last line may be cut off with its process; such a write was never acknowledged.
    workspace, *paths = said[: said.rfind("\n")].split("\n")
    return workspace, paths


def write_for_ever(storage: Storage, number: int) -> None:
    """Puts documents until the process is killed; says each one's path once it is acknowledged."""
    asyncio.run(_write_for_ever(storage, number))


async def _write_for_ever(storage: Storage, number: int) -> None:
    await storage.start()
    build = Builder(first=(1 << 80) + (number << 40))
    home = await make_home(storage, build)
    sys.stdout.write(f"{home.workspace}\n")

    async def write_on(writer: int) -> None:
        for n in count():
            path = f"/{writer}/{n}"
            made = edit(build, path, path.encode())
            await storage.write(home.store.id, applying(home.workspace, home.store, made))
            sys.stdout.write(f"{path}\n")
            sys.stdout.flush()

    await asyncio.gather(*(write_on(writer) for writer in range(WRITERS)))
