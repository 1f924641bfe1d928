import asyncio
from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest

from muniment.model.access import Subject
from muniment.model.ids import PoolId, PrincipalId, StoreId, WorkspaceId
from muniment.model.stores import Owner
from muniment.storage.base import Storage, Transaction, Use
from muniment.storage.drive import drive
from muniment.storage.inmemory import ContractBroken
from muniment.testing.builders import (
    Builder,
    Home,
    change_document,
    doing,
    make_home,
    write_step,
)
from muniment.testing.storage_suite import StorageSuite, make_oracle


class TestInMemoryStorage(StorageSuite):
    async def make(self) -> Storage:
        return await make_oracle()

    async def reopen(self, storage: Storage) -> Storage:
        await storage.stop()
        await storage.start()
        return storage


BUILD = Builder(first=1 << 90)
ABSENT_STORE = StoreId(BUILD.new_id("store"))
ABSENT_PERSON = PrincipalId(BUILD.new_id("principal"))
JOB = BUILD.job(ABSENT_STORE)
ABSENT_WORKSPACE = WorkspaceId(BUILD.new_id("workspace"))


def put_step_without(home: Home, part: str) -> Use[None]:
    step = BUILD.step(home.ref, "/a", b"text", None)
    ws, store = home.workspace, home.store
    assert step.document is not None and step.change.blob is not None
    blob, content, document = step.change.blob, b"text", step.document
    parts: dict[str, Callable[[Transaction], None]] = {
        "node": lambda tx: tx.put_node(ws, store.pool, step.revision.tree, step.node),
        "blob": lambda tx: tx.put_blob(ws, store.pool, blob, content),
        "revision": lambda tx: tx.put_revision(ws, store.id, step.revision),
        "change": lambda tx: tx.put_change(ws, store.id, step.change),
        "document": lambda tx: tx.put_document(ws, store.id, document),
        "ref": lambda tx: tx.move_ref(ws, store.id, step.ref, step.before),
    }
    return doing(*(write for name, write in parts.items() if name != part))


def replace_store(home: Home, **fields: object) -> Use[None]:
    async def use(tx: Transaction) -> None:
        await tx.lock_store(home.workspace, home.store.id)
        tx.put_store(home.workspace, msgspec.structs.replace(home.store, **fields))

    return use


def lock_after_append(home: Home) -> Use[None]:
    async def use(tx: Transaction) -> None:
        await tx.append(home.workspace, home.store.id, BUILD.fact())
        await tx.lock_store(home.workspace, home.store.id)

    return use


FAULTS: dict[str, Callable[[Home], Use[object]]] = {
    "a workspace that is absent": lambda home: doing(
        lambda tx: tx.put_principal(ABSENT_WORKSPACE, BUILD.principal())
    ),
    "an external id that is taken": lambda home: doing(
        lambda tx: tx.put_principal(home.workspace, BUILD.principal("ext")),
        lambda tx: tx.put_principal(home.workspace, BUILD.principal("ext")),
    ),
    "a key of an absent principal": lambda home: doing(
        lambda tx: tx.put_key(home.workspace, *BUILD.key(ABSENT_PERSON))
    ),
    "a delegate who is absent": lambda home: doing(
        lambda tx: tx.put_delegation(
            home.workspace, BUILD.delegation(home.principal, ABSENT_PERSON)
        )
    ),
    "a pair that has a delegation": lambda home: doing(
        *[
            lambda tx: tx.put_delegation(
                home.workspace, BUILD.delegation(home.principal, home.principal)
            )
        ]
        * 2
    ),
    "an assignment on an absent store": lambda home: doing(
        lambda tx: tx.put_assignment(
            home.workspace,
            BUILD.assignment(ABSENT_STORE, Subject("principal", home.principal)),
        )
    ),
    "an assignment for nobody": lambda home: doing(
        lambda tx: tx.put_assignment(
            home.workspace,
            BUILD.assignment(home.store.id, Subject("session", BUILD.new_id("session"))),
        )
    ),
    "a store of an absent owner": lambda home: doing(
        lambda tx: tx.put_store(
            home.workspace,
            BUILD.store(home.principal, owner=Owner("principal", ABSENT_PERSON)),
        )
    ),
    "a store replaced without its lock": lambda home: doing(
        lambda tx: tx.put_store(home.workspace, home.store)
    ),
    "a store that changes its pool": lambda home: replace_store(
        home, pool=PoolId(BUILD.new_id("pool"))
    ),
    "a default store of somebody else": lambda home: doing(
        lambda tx: tx.put_default_store(home.workspace, home.principal, ABSENT_STORE)
    ),
    "bytes in a pool of no store": lambda home: doing(
        lambda tx: tx.put_blob(
            home.workspace, PoolId(BUILD.new_id("pool")), sha256(b"").digest(), b""
        )
    ),
    "a blob under another hash": lambda home: doing(
        lambda tx: tx.put_blob(home.workspace, home.store.pool, b"0" * 32, b"")
    ),
    "a revision without its tree": lambda home: put_step_without(home, "node"),
    "a document without its blob": lambda home: put_step_without(home, "blob"),
    "a ref without its revision": lambda home: put_step_without(home, "revision"),
    "a document without its change": lambda home: put_step_without(home, "change"),
    "a ref whose name is taken": lambda home: doing(
        lambda tx: tx.put_ref(home.workspace, home.store.id, home.ref)
    ),
    "a ref moved from what was never read": lambda home: doing(
        lambda tx: tx.move_ref(
            home.workspace,
            home.store.id,
            msgspec.structs.replace(home.ref, version=9),
            msgspec.structs.replace(home.ref, version=8),
        )
    ),
    "a document removed where there is none": lambda home: doing(
        lambda tx: tx.remove_document(home.workspace, home.store.id, "/none")
    ),
    "an event of an absent stream": lambda home: (
        lambda tx: tx.append(home.workspace, ABSENT_STORE, BUILD.fact())
    ),
    "a lock after an event": lock_after_append,
    "a job twice": lambda home: doing(*[lambda tx: tx.enqueue(home.workspace, JOB)] * 2),
    "a list without a limit": lambda home: lambda tx: tx.list_keys(home.workspace, None, 0),
    "a list over the limit": lambda home: lambda tx: tx.list_keys(home.workspace, None, 202),
}


class TestOracle:
    @pytest.mark.parametrize("fault", FAULTS)
    async def test_what_the_contract_does_not_allow_breaks_and_leaves_nothing(
        self, fault: str
    ) -> None:
        storage = await make_oracle()
        home = await make_home(storage, Builder())
        with pytest.raises(ContractBroken):
            await storage.write(None, FAULTS[fault](home))

        async def look(tx: Transaction) -> None:
            ws, store = home.workspace, home.store.id
            assert await tx.get_store(ws, store, []) is not None
            assert await tx.get_ref(ws, store, "canonical") == home.ref
            assert await tx.find_principal(ws, "ext") is None
            assert await tx.list_assignments(ws, None, 5) == []
            assert await tx.list_delegations(ws, None, 5) == []
            assert await tx.list_keys(ws, None, 5) == []
            assert await tx.list_documents(ws, store, "", None, 5) == []
            assert (await tx.get_head(ws, store)).seq == 0
            assert await tx.list_jobs(ws, None, 5) == []

        await storage.read(look)

    async def test_a_read_does_not_write(self) -> None:
        storage = await make_oracle()
        home = await make_home(storage, Builder())
        with pytest.raises(ContractBroken, match="a read does not write"):
            await storage.read(
                doing(lambda tx: tx.put_principal(home.workspace, BUILD.principal()))
            )

    async def test_a_single_read_calls_one_method(self) -> None:
        storage = await make_oracle()
        home = await make_home(storage, Builder())

        async def ask(tx: Transaction) -> None:
            await tx.open_document(home.workspace, home.store.id, [], "/a", content=True)

        async def ask_twice(tx: Transaction) -> None:
            await ask(tx)
            await ask(tx)

        await storage.read(ask, single=True)
        await storage.read(ask_twice)
        with pytest.raises(ContractBroken, match="one method once"):
            await storage.read(ask_twice, single=True)

    async def test_a_transaction_ends_with_its_use(self) -> None:
        storage = await make_oracle()
        home = await make_home(storage, Builder())

        async def leak(tx: Transaction) -> Transaction:
            return tx

        for leaked in (await storage.read(leak), await storage.write(None, leak)):
            with pytest.raises(ContractBroken, match="has ended"):
                await leaked.get_workspace(home.workspace)

    async def test_a_use_does_not_call_its_storage(self) -> None:
        storage = await make_oracle()

        async def inner(tx: Transaction) -> None:
            await storage.read(lambda tx: tx.list_workspaces())

        with pytest.raises(ContractBroken, match="a use called its storage"):
            await storage.write(None, inner)

    async def test_a_use_awaits_nothing_but_its_transaction(self) -> None:
        storage = await make_oracle()
        home = await make_home(storage, Builder())

        async def wait(tx: Transaction) -> None:
            tx.put_principal(home.workspace, BUILD.principal("ext"))
            await asyncio.sleep(0)

        with pytest.raises(RuntimeError, match="other than its transaction"):
            await storage.write(None, wait)
        found = await storage.read(lambda tx: tx.find_principal(home.workspace, "ext"))
        assert found is None

    async def test_a_storage_is_started_before_it_is_used(self) -> None:
        storage = await make_oracle()
        await storage.stop()
        with pytest.raises(ContractBroken, match="not started"):
            await storage.read(lambda tx: tx.list_workspaces())

    async def test_documents_are_at_one_path_each(self) -> None:
        storage, build = await make_oracle(), Builder()
        home = await make_home(storage, build)
        first = await change_document(storage, build, home, "/a", b"text")
        copied = build.step(first.ref, "/b", b"text", first.document)
        with pytest.raises(ContractBroken, match="at two paths"):
            await storage.write(
                None, doing(lambda tx: write_step(tx, home.workspace, home.store, copied))
            )


def test_driving_returns_raises_and_closes_what_suspends() -> None:
    closed = []

    async def answer() -> int:
        return 7

    async def refuse() -> int:
        raise KeyError("no")

    async def suspend() -> None:
        try:
            await asyncio.sleep(0)
        finally:
            closed.append(True)

    assert drive(answer()) == 7
    with pytest.raises(KeyError):
        drive(refuse())
    with pytest.raises(RuntimeError):
        drive(suspend())
    assert closed == [True]
