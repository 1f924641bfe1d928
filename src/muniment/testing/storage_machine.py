"""A state machine that takes every step on the oracle and on a candidate and compares answers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from itertools import count
from typing import Any, TypeVar

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from muniment.model.access import Subject
from muniment.model.documents import Document
from muniment.model.ids import StoreId, WorkspaceId
from muniment.model.jobs import ERASE_STORE, Job
from muniment.model.receipts import Receipt
from muniment.model.revisions import CANONICAL
from muniment.model.stores import Owner, Ref, StoreRecord
from muniment.storage.base import Storage, Transaction, Use
from muniment.testing.builders import NOBODY, Builder, Step, replacing, write_step

T = TypeVar("T")
Make = Callable[[], Awaitable[Storage]]

PATHS = ["/a", "/a/b", "/a.md", "/A", "/b/c/d", "/é", "/ﬀ", "/\U0001f9fe", "/z z"]
PREFIXES = ["", "/", "/a", "/a/", "/b/", "/é", "/\U0001f9fe", "/none"]
CONTENTS = [b"", b"one", b"two\n", b"\xff\0", b"x" * 5000]
NAMES = ["notes", "Notes", "größe"]
STATUSES = ["active", "archived", "deleting", "deleted"]
WORKING = "session/1"
LIMITS = st.sampled_from([1, 2, 3, 201])

_examples = count(1)


class Failed(Exception):
    """What a use of the machine raises after it wrote."""


class Pair:
    """The oracle and the candidate, driven by one event loop and asked the same."""

    def __init__(self, runner: asyncio.Runner, oracle: Storage, candidate: Storage) -> None:
        self._runner = runner
        self._oracle = oracle
        self._candidate = candidate

    def read(self, use: Use[T], *, scan: bool = False) -> T:
        """The answer of both."""

        async def ask(storage: Storage) -> T:
            return await storage.read(use, scan=scan)

        return self._compare(ask)

    def write(self, group: str | None, use: Use[T]) -> T:
        """The answer of both."""

        async def ask(storage: Storage) -> T:
            return await storage.write(group, use)

        return self._compare(ask)

    def write_together(self, group: str | None, uses: Sequence[Use[object]]) -> None:
        """Runs the uses at the same time; what each answers or raises is the same on both."""

        async def ask(storage: Storage) -> list[str]:
            writes = (storage.write(group, use) for use in uses)
            return [repr(each) for each in await asyncio.gather(*writes, return_exceptions=True)]

        self._compare(ask)

    def write_until_nothing(self, group: str, use: Use[int]) -> None:
        """Repeats the use until it answers 0, on each for as long as it takes."""

        async def ask(storage: Storage) -> bool:
            for _ in range(2_000):
                if await storage.write(group, use) == 0:
                    return True
            return False

        assert self._compare(ask)

    def _compare(self, ask: Callable[[Storage], Awaitable[T]]) -> T:
        async def both() -> tuple[T, T]:
            return await ask(self._oracle), await ask(self._candidate)

        expected, answer = self._runner.run(both())
        assert answer == expected, f"the oracle says {expected!r}, the candidate {answer!r}"
        return expected


def run_machine(
    make_oracle: Make, make_candidate: Make, *, examples: int = 15, steps: int = 30
) -> None:
    """Runs the machine on a fresh pair; each example works in a workspace of its own."""
    with asyncio.Runner() as runner:
        oracle, candidate = runner.run(call(make_oracle)), runner.run(call(make_candidate))
        try:
            run_state_machine_as_test(
                machine(Pair(runner, oracle, candidate)),
                settings=settings(
                    max_examples=examples,
                    stateful_step_count=steps,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(candidate.stop())
            runner.run(oracle.stop())


async def call(make: Make) -> Storage:
    """The storage that `make` makes."""
    return await make()


def machine(pair: Pair) -> type["StorageMachine"]:
    """The machine's class for this pair."""
    return type("StorageMachineOfPair", (StorageMachine,), {"pair": pair})


class StorageMachine(RuleBasedStateMachine):
    """Random steps in a fresh workspace. What there is to choose from is asked of the pair."""

    pair: Pair

    def __init__(self) -> None:
        super().__init__()
        build = self.build = Builder()
        workspace = WorkspaceId(f"wsp_{next(_examples):032x}")
        self.ws = workspace
        self.people = [build.principal(f"person {n}") for n in range(2)]
        agent = self.agent = build.owner("agent_definition", self.people[0].id)
        self.session = build.owner("session", self.people[1].id)
        self.streams = [workspace, self.session.id]
        self.jobs: list[Job] = []

        async def use(tx: Transaction) -> None:
            row = msgspec.structs.replace(build.workspace(), id=workspace)
            tx.put_workspace(row)
            for person in self.people:
                tx.put_principal(workspace, person)
            tx.put_owner(workspace, agent)
            tx.put_owner(workspace, self.session)

        self.pair.write(None, use)

    # What there is

    def stores(self, *statuses: str) -> list[StoreRecord]:
        """The stores of these statuses, active ones where none is given."""
        wanted = statuses or ("active",)
        found = self.pair.read(
            lambda tx: tx.list_stores(self.ws, None, 201, readers=None, statuses=wanted)
        )
        return [each.store for each in found]

    def documents(self, store: StoreId) -> list[str]:
        """The paths that hold a document."""
        found = self.pair.read(lambda tx: tx.list_documents(self.ws, store, "", None, 201))
        return [item.path for item in found]

    def head(self, store: StoreId, path: str, ref: str) -> tuple[Ref, Document | None]:
        """The ref and the document at the path."""

        async def use(tx: Transaction) -> tuple[Ref | None, Document | None]:
            opened = await tx.open_document(self.ws, store, NOBODY, path)
            return await tx.get_ref(self.ws, store, ref), opened[2] if opened else None

        found, document = self.pair.read(use)
        assert found is not None
        return found, document

    def subjects(self) -> list[Subject]:
        """Everybody who can hold an assignment."""
        return [
            *(Subject("principal", person.id) for person in self.people),
            Subject("agent_definition", self.agent.id),
            Subject("session", self.session.id),
            Subject("workspace", self.ws),
        ]

    # Stores

    @rule(data=st.data(), who=st.integers(0, 1), name=st.sampled_from(NAMES), join=st.booleans())
    def add_store(self, data: st.DataObject, who: int, name: str, join: bool) -> None:
        """A store with its first revision, perhaps in the pool of another."""
        person, others = self.people[who].id, self.stores()
        owner = data.draw(
            st.sampled_from(
                [
                    Owner("principal", person),
                    Owner("workspace"),
                    Owner(self.agent.kind, self.agent.id),
                ]
            )
        )
        pool = data.draw(st.sampled_from(others)).pool if join and others else None
        store = self.build.store(person, owner=owner, pool=pool)
        store = msgspec.structs.replace(store, name=name)
        revision, ref = self.build.first()
        fact = self.build.fact("memory.store_created", memory_store_id=store.id)

        async def use(tx: Transaction) -> tuple[object, ...]:
            await tx.lock_store(self.ws, store.id)
            before = await tx.get_store(self.ws, store.id, NOBODY)
            tx.put_store(self.ws, store)
            tx.put_revision(self.ws, store.id, revision)
            tx.put_ref(self.ws, store.id, ref)
            return before, await tx.append(self.ws, store.id, fact)

        self.pair.write(None, use)

    @precondition(lambda self: self.stores("active", "archived"))
    @rule(data=st.data(), name=st.sampled_from(NAMES), status=st.sampled_from(STATUSES[:2]))
    def edit_store(self, data: st.DataObject, name: str, status: str) -> None:
        """Replaces mutable fields."""
        store = data.draw(st.sampled_from(self.stores("active", "archived")))
        now = self.build.now()
        edited = msgspec.structs.replace(
            store,
            name=name,
            description=data.draw(st.sampled_from([None, "", "what we know"])),
            status=status,
            version=store.version + 1,
            updated_at=now,
            archived_at=now if status == "archived" else None,
        )
        self.pair.write(store.id, replacing(self.ws, edited))

    @precondition(lambda self: self.stores())
    @rule(data=st.data(), limit=st.sampled_from([1, 3, 8, 500]))
    def erase_store(self, data: st.DataObject, limit: int) -> None:
        """Fences a store, erases it step by step and leaves its tombstone."""
        store = data.draw(st.sampled_from(self.stores()))
        fenced = msgspec.structs.replace(store, status="deleting", version=store.version + 1)
        self.pair.write(store.id, replacing(self.ws, fenced))
        last = self.pair.read(lambda tx: tx.get_head(self.ws, store.id))

        async def step(tx: Transaction) -> int:
            return await tx.erase_store(self.ws, store.id, store.pool, limit)

        self.pair.write_until_nothing(store.id, step)
        gone = msgspec.structs.replace(
            fenced, status="deleted", deleted_at=self.build.now(), last_event_hash=last.hash
        )
        self.pair.write(store.id, replacing(self.ws, gone))

    @rule(data=st.data(), who=st.integers(0, 1))
    def set_default(self, data: st.DataObject, who: int) -> None:
        """One of the principal's stores, or none, becomes its default."""
        person = self.people[who].id
        mine = [row.id for row in self.stores() if row.owner == Owner("principal", person)]
        store = data.draw(st.sampled_from([None, *mine]))

        async def use(tx: Transaction) -> object:
            tx.put_default_store(self.ws, person, store)
            return await tx.get_default_store(self.ws, person)

        self.pair.write(self.ws, use)

    # History

    @precondition(lambda self: self.stores())
    @rule(
        data=st.data(),
        path=st.sampled_from(PATHS),
        content=st.sampled_from(CONTENTS),
        fails=st.booleans(),
    )
    def put_document(self, data: st.DataObject, path: str, content: bytes, fails: bool) -> None:
        """A put on canonical with its event; it may fail once everything is written."""
        store = data.draw(st.sampled_from(self.stores()))
        ref, current = self.head(store.id, path, CANONICAL)
        step = self.build.step(ref, path, content, current)
        self.apply(store, step, fails=fails and data.draw(st.booleans()))

    @precondition(lambda self: any(self.documents(row.id) for row in self.stores()))
    @rule(data=st.data())
    def remove_document(self, data: st.DataObject) -> None:
        """A removal on canonical."""
        filled = [row for row in self.stores() if self.documents(row.id)]
        store = data.draw(st.sampled_from(filled))
        path = data.draw(st.sampled_from(self.documents(store.id)))
        ref, current = self.head(store.id, path, CANONICAL)
        self.apply(store, self.build.step(ref, path, None, current))

    @precondition(lambda self: any(self.documents(row.id) for row in self.stores()))
    @rule(data=st.data())
    def move_document(self, data: st.DataObject) -> None:
        """A move to a free path keeps the document's id."""
        filled = [row for row in self.stores() if self.documents(row.id)]
        store = data.draw(st.sampled_from(filled))
        taken = self.documents(store.id)
        source = data.draw(st.sampled_from(taken))
        target = data.draw(st.sampled_from([each for each in [*PATHS, "/m"] if each not in taken]))
        ref, current = self.head(store.id, source, CANONICAL)
        assert current is not None
        content = next(each for each in CONTENTS if len(each) == current.size)
        step = self.build.step(ref, target, content, current)
        moved = msgspec.structs.replace(step.change, operation="move", moved_from=source)
        self.apply(store, msgspec.structs.replace(step, change=moved), remove=source)

    def apply(
        self, store: StoreRecord, step: Step, *, fails: bool = False, remove: str | None = None
    ) -> None:
        """Writes the step, reads it back in the same transaction and appends its event."""
        fact = self.build.fact(revision=step.revision.id, paths=[step.change.path])

        async def use(tx: Transaction) -> tuple[object, ...]:
            await tx.lock_store(self.ws, store.id)
            if remove is not None:
                tx.remove_document(self.ws, store.id, remove)
            write_step(tx, self.ws, store, step)
            opened = await tx.open_document(
                self.ws, store.id, [self.ws], step.change.path, content=True
            )
            listed = await tx.list_documents(self.ws, store.id, "/", None, 201)
            ref = await tx.get_ref(self.ws, store.id, step.ref.name)
            event = await tx.append(self.ws, store.id, fact)
            if fails:
                raise Failed
            return opened, listed, ref, event

        async def answer(tx: Transaction) -> object:
            return await tx.get_revision(self.ws, store.id, step.revision.id)

        self.pair.write_together(store.id, [use])
        assert (self.pair.read(answer) is None) == fails

    @precondition(lambda self: self.stores())
    @rule(data=st.data(), path=st.sampled_from(PATHS), content=st.sampled_from(CONTENTS))
    def work(self, data: st.DataObject, path: str, content: bytes) -> None:
        """A revision of a working ref, which is made where there is none."""
        store = data.draw(st.sampled_from(self.stores()))

        async def find(tx: Transaction) -> tuple[Ref | None, Ref | None]:
            working = await tx.get_ref(self.ws, store.id, WORKING)
            return working, await tx.get_ref(self.ws, store.id, CANONICAL)

        working, canonical = self.pair.read(find)
        assert canonical is not None
        fresh = working is None
        ref = working or msgspec.structs.replace(canonical, name=WORKING, version=1)
        step = self.build.step(ref, path, content, None)

        async def use(tx: Transaction) -> object:
            await tx.lock_store(self.ws, store.id)
            if fresh:
                tx.put_ref(self.ws, store.id, ref)
            write_step(tx, self.ws, store, step)
            return await tx.get_ref(self.ws, store.id, WORKING)

        self.pair.write(store.id, use)

    # Access

    @precondition(lambda self: self.stores("active", "archived"))
    @rule(data=st.data(), read=st.booleans(), write=st.booleans())
    def assign(self, data: st.DataObject, read: bool, write: bool) -> None:
        """A grant to anybody."""
        store = data.draw(st.sampled_from(self.stores("active", "archived")))
        subject = data.draw(st.sampled_from(self.subjects()))
        row = self.build.assignment(store.id, subject, read=read, write=write)

        async def use(tx: Transaction) -> object:
            tx.put_assignment(self.ws, row)
            return await tx.get_store(self.ws, store.id, [subject.id])

        self.pair.write(None, use)

    @rule(data=st.data())
    def unassign(self, data: st.DataObject) -> None:
        """Ends a grant, if there is one."""
        rows = self.pair.read(lambda tx: tx.list_assignments(self.ws, None, 201))
        if rows:
            row = data.draw(st.sampled_from(rows))

            async def use(tx: Transaction) -> object:
                tx.delete_assignment(self.ws, row.id)
                return await tx.get_store(self.ws, row.store, [row.subject.id])

            self.pair.write(self.ws, use)

    # Events and jobs

    @rule(stream=st.integers(0, 1), n=st.integers(1, 3))
    def append(self, stream: int, n: int) -> None:
        """Events in the workspace's or the Session's stream."""
        facts = [self.build.fact("owner.created", n=n) for _ in range(n)]

        async def use(tx: Transaction) -> object:
            return [await tx.append(self.ws, self.streams[stream], fact) for fact in facts]

        self.pair.write(self.streams[stream], use)

    @precondition(lambda self: self.stores())
    @rule(data=st.data(), fails=st.lists(st.booleans(), min_size=1, max_size=5))
    def enqueue_together(self, data: st.DataObject, fails: list[bool]) -> None:
        """Jobs written by several uses of one group at the same time, some of which fail."""
        store = data.draw(st.sampled_from(self.stores()))

        def enqueue(job: Job, fail: bool) -> Use[None]:
            async def use(tx: Transaction) -> None:
                tx.enqueue(self.ws, job)
                if fail:
                    raise Failed

            return use

        jobs = [self.build.job(store.id) for _ in fails]
        uses = [enqueue(job, fail) for job, fail in zip(jobs, fails, strict=True)]
        self.pair.write_together(store.id, uses)
        self.jobs += jobs

    @precondition(lambda self: self.jobs)
    @rule(data=st.data())
    def finish_job(self, data: st.DataObject) -> None:
        """Removes a job that may be gone."""
        job = data.draw(st.sampled_from(self.jobs))

        async def use(tx: Transaction) -> object:
            tx.finish_job(self.ws, job)
            return await tx.list_jobs(self.ws, None, 201)

        self.pair.write(None, use)

    @precondition(lambda self: self.jobs)
    @rule(
        data=st.data(),
        step=st.sampled_from(("claim", "hold", "return")),
        fence=st.integers(0, 2),
        at=st.sampled_from((1, 3, 7)),
        due=st.sampled_from((None, 1, 3, 7)),
    )
    def lease_job(
        self, data: st.DataObject, step: str, fence: int, at: int, *, due: int | None
    ) -> None:
        """Claims, holds or gives back a job as it may have been seen before."""
        job = data.draw(st.sampled_from(self.jobs))
        seen = job.run_at if due is None else due
        job = msgspec.structs.replace(job, fence=fence, run_at=seen)

        async def use(tx: Transaction) -> object:
            answer: object = None
            if step == "claim":
                answer = await tx.claim_job(self.ws, job, at)
            elif step == "hold":
                answer = await tx.hold_job(self.ws, job, at)
            else:
                parked = at if at > 5 else None
                returned = msgspec.structs.replace(job, failure="Lost", parked_at=parked)
                tx.return_job(self.ws, returned)
            return (
                answer,
                await tx.due_jobs(at, (ERASE_STORE, "x"), 9),
                await tx.get_job(self.ws, job.id),
            )

        self.pair.write(self.ws, use)

    @precondition(lambda self: self.stores())
    @rule(data=st.data(), number=st.integers(0, 3))
    def keep_receipt(self, data: st.DataObject, number: int) -> None:
        """Keeps a receipt once, of a store or of the workspace."""
        subjects = [self.ws, *(store.id for store in self.stores())]
        subject = data.draw(st.sampled_from(subjects))
        receipt = Receipt(bytes([number] * 32), subject, b"f" * 32, {"n": str(number)}, number)

        async def use(tx: Transaction) -> object:
            found = await tx.get_receipt(self.ws, subject, receipt.id)
            if found is None:
                tx.put_receipt(self.ws, receipt)
            return found

        self.pair.write(None, use)

    # Questions

    @rule(data=st.data(), limit=LIMITS, scan=st.booleans())
    def page_stores(self, data: st.DataObject, limit: int, scan: bool) -> None:
        """Lists of stores with every filter."""
        ids = [row.id for row in self.stores(*STATUSES)]
        after = data.draw(st.sampled_from([None, *ids]))
        everybody = [subject.id for subject in self.subjects()]
        readers = data.draw(
            st.none() | st.lists(st.sampled_from(everybody), min_size=1, max_size=4)
        )
        statuses = data.draw(st.lists(st.sampled_from(STATUSES), min_size=1, max_size=4))
        name = data.draw(st.none() | st.sampled_from(NAMES))
        owner = data.draw(
            st.sampled_from([Owner("workspace"), Owner("principal", self.people[0].id)])
        )

        async def use(tx: Transaction) -> object:
            return (
                await tx.list_stores(
                    self.ws, after, limit, readers=readers, statuses=statuses, name=name
                ),
                await tx.list_stores_of(self.ws, owner, after, limit),
            )

        self.pair.read(use, scan=scan)

    @precondition(lambda self: self.stores(*STATUSES))
    @rule(data=st.data(), limit=LIMITS, up_to=st.integers(0, 12), scan=st.booleans())
    def page_contents(self, data: st.DataObject, limit: int, up_to: int, scan: bool) -> None:
        """Pages of one store's documents, history and events."""
        store = data.draw(st.sampled_from(self.stores(*STATUSES))).id
        prefix = data.draw(st.sampled_from(PREFIXES))
        after = data.draw(st.none() | st.sampled_from(PATHS))
        path = data.draw(st.sampled_from(PATHS))
        paths = data.draw(st.lists(st.sampled_from(PATHS), max_size=4))
        subjects = data.draw(
            st.lists(st.sampled_from([each.id for each in self.subjects()]), min_size=1, max_size=4)
        )

        async def use(tx: Transaction) -> object:
            return (
                await tx.list_documents(self.ws, store, prefix, after, limit),
                await tx.list_changes(self.ws, store, path, up_to, limit),
                await tx.changed_at(self.ws, store, paths, up_to),
                await tx.list_events(self.ws, store, up_to, limit),
                await tx.open_document(self.ws, store, subjects, path, content=True),
            )

        self.pair.read(use, scan=scan)

    @rule(data=st.data(), limit=LIMITS)
    def page_assignments(self, data: st.DataObject, limit: int) -> None:
        """Lists of assignments with every filter."""
        rows = self.pair.read(lambda tx: tx.list_assignments(self.ws, None, 201))
        after = data.draw(st.sampled_from([None, *(row.id for row in rows)]))
        store = data.draw(st.sampled_from([None, *(row.id for row in self.stores())]))
        subject = data.draw(st.none() | st.sampled_from(self.subjects()))
        self.pair.read(
            lambda tx: tx.list_assignments(self.ws, after, limit, store=store, subject=subject)
        )

    def teardown(self) -> None:
        """Looks at everything once more."""
        stores = self.stores(*STATUSES)

        async def use(tx: Transaction) -> list[Any]:
            seen: list[Any] = [await tx.list_jobs(self.ws, None, 201)]
            for stream in (*self.streams, *(row.id for row in stores)):
                seen.append(await tx.get_head(self.ws, stream))
                seen.append(await tx.list_events(self.ws, stream, 0, 201))
            for row in stores:
                for path in PATHS:
                    seen.append(await tx.open_document(self.ws, row.id, NOBODY, path, content=True))
                    for up_to in (2, 3, 4, 6, 999):
                        seen.append(await tx.list_changes(self.ws, row.id, path, up_to, 201))
                for up_to in (2, 3, 4, 6, 999):
                    seen.append(await tx.changed_at(self.ws, row.id, PATHS, up_to))
                seen.append(await tx.get_ref(self.ws, row.id, WORKING))
                for content in CONTENTS:
                    blob = sha256(content).digest()
                    seen.append(await tx.get_blob(self.ws, row.pool, blob))
            return seen

        self.pair.read(use, scan=True)
