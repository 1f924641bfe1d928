# ruff: noqa: D102 (a test's name is its sentence)
"""Contract cases of workspaces, identities and assignments, one per sentence of the port."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest

from muniment.model.access import Assignment, Rights, Subject
from muniment.model.ids import KeyId, PrincipalId, StoreId, WorkspaceId, to_bytes
from muniment.model.owners import OWNER_ID_KINDS
from muniment.model.stores import Owner
from muniment.storage.base import Storage, Transaction, Use
from muniment.testing.builders import NOBODY, Builder, doing, make_home


class WorkspaceCases:
    """Tenancy."""

    async def test_a_workspace_is_kept_as_it_was_put(self, storage: Storage) -> None:
        plain = Builder().workspace("acmé ☂ \U0001f9fe")
        row = msgspec.structs.replace(
            plain, status="disabled", zero_data_retention=True, retention_seconds=86_400
        )
        await storage.write(None, doing(lambda tx: tx.put_workspace(row)))
        assert await storage.read(lambda tx: tx.get_workspace(row.id)) == row

    async def test_an_absent_workspace_is_none(self, storage: Storage) -> None:
        absent = WorkspaceId(Builder().new_id("workspace"))
        assert await storage.read(lambda tx: tx.get_workspace(absent)) is None

    async def test_putting_a_workspace_again_changes_nothing(self, storage: Storage) -> None:
        row = Builder().workspace()
        other = msgspec.structs.replace(row, name="other", created_at=row.created_at + 1)
        await storage.write(row.id, doing(lambda tx: tx.put_workspace(row)))
        await storage.write(row.id, doing(lambda tx: tx.put_workspace(other)))
        assert await storage.read(lambda tx: tx.get_workspace(row.id)) == row

    async def test_every_workspace_is_listed_in_order(self, storage: Storage) -> None:
        build = Builder()
        rows = [build.workspace() for _ in range(3)]
        assert await storage.read(lambda tx: tx.list_workspaces()) == []

        async def fill(tx: Transaction) -> None:
            for row in (rows[1], rows[2], rows[0]):
                tx.put_workspace(row)

        await storage.write(None, fill)
        assert await storage.read(lambda tx: tx.list_workspaces()) == [row.id for row in rows]

    async def test_one_workspace_sees_nothing_of_another_with_the_same_ids(
        self, storage: Storage
    ) -> None:
        one, two = Builder(), Builder()
        home = await make_home(storage, one)
        other = msgspec.structs.replace(two.workspace("other"), id=WorkspaceId("wsp_" + "f" * 32))
        principal = msgspec.structs.replace(two.principal("ext"), name="Grace", id=home.principal)
        store = msgspec.structs.replace(two.store(home.principal), id=home.store.id, name="theirs")
        await storage.write(
            None,
            doing(
                lambda tx: tx.put_workspace(other),
                lambda tx: tx.put_principal(other.id, principal),
                lambda tx: tx.put_store(other.id, store),
            ),
        )

        async def look(tx: Transaction) -> None:
            mine = await tx.get_store(home.workspace, home.store.id, NOBODY)
            theirs = await tx.get_store(other.id, home.store.id, NOBODY)
            assert mine is not None and mine[0] == home.store
            assert theirs is not None and theirs[0] == store
            assert await tx.get_ref(other.id, store.id, "canonical") is None
            assert await tx.find_principal(home.workspace, "ext") is None
            assert await tx.find_principal(other.id, "ext") == principal
            first = await tx.get_principal(home.workspace, home.principal)
            assert first is not None and first.name == "Ada"
            assert await tx.list_principals(other.id, None, 9) == [principal]

        await storage.read(look)


class IdentityCases:
    """Principals, keys, delegations and the rows of other owners."""

    async def test_a_principal_is_found_by_id_and_by_external_id(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        row = build.principal("Ada@example.org")
        await storage.write(None, doing(lambda tx: tx.put_principal(home.workspace, row)))

        async def look(tx: Transaction) -> None:
            assert await tx.get_principal(home.workspace, row.id) == row
            assert await tx.find_principal(home.workspace, "Ada@example.org") == row
            for other in ("ada@example.org", "Ada@example.org ", ""):
                assert await tx.find_principal(home.workspace, other) is None
            absent = PrincipalId(build.new_id("principal"))
            assert await tx.get_principal(home.workspace, absent) is None

        await storage.read(look)

    async def test_putting_a_principal_again_changes_nothing(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        row = build.principal("ext")
        again = msgspec.structs.replace(row, name="Grace")
        await storage.write(None, doing(lambda tx: tx.put_principal(home.workspace, row)))
        await storage.write(None, doing(lambda tx: tx.put_principal(home.workspace, again)))
        assert await storage.read(lambda tx: tx.get_principal(home.workspace, row.id)) == row

    async def test_many_principals_need_no_external_id(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        rows = [build.principal() for _ in range(3)]

        async def fill(tx: Transaction) -> None:
            for row in rows:
                tx.put_principal(home.workspace, row)

        await storage.write(home.workspace, fill)
        listed = await storage.read(
            lambda tx: tx.list_principals(home.workspace, home.principal, 10)
        )
        assert listed == rows

    async def test_identities_are_listed_above_after_in_order_up_to_the_limit(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        people = [build.principal() for _ in range(4)]
        keys = [build.key(person.id) for person in people]
        agents = [build.owner("agent_definition", person.id) for person in people]
        leaves = [build.delegation(home.principal, person.id) for person in people]

        async def fill(tx: Transaction) -> None:
            for n in (2, 0, 3, 1):
                tx.put_principal(home.workspace, people[n])
                tx.put_key(home.workspace, *keys[n])
                tx.put_owner(home.workspace, agents[n])
                tx.put_delegation(home.workspace, leaves[n])

        async def look(tx: Transaction) -> None:
            ws = home.workspace
            assert await tx.list_principals(ws, people[0].id, 2) == people[1:3]
            assert await tx.list_keys(ws, None, 3) == [key for key, _ in keys[:3]]
            assert await tx.list_keys(ws, keys[2][0].id, 3) == [keys[3][0]]
            assert await tx.list_owners(ws, "agent_definition", None, 2) == agents[:2]
            assert await tx.list_owners(ws, "agent_definition", agents[1].id, 201) == agents[2:]
            assert await tx.list_owners(ws, "session", None, 2) == []
            assert await tx.list_delegations(ws, None, 201) == leaves
            assert await tx.list_delegations(ws, leaves[0].id, 1) == leaves[1:2]

        await storage.write(None, fill)
        await storage.read(look)

    async def test_a_key_is_found_by_its_secret_with_its_workspace(self, storage: Storage) -> None:
        build = Builder()
        workspace, person = build.workspace(), build.principal()
        key, secret = build.key(person.id)
        await storage.write(
            None,
            doing(
                lambda tx: tx.put_workspace(workspace),
                lambda tx: tx.put_principal(workspace.id, person),
                lambda tx: tx.put_key(workspace.id, key, secret),
            ),
        )

        async def look(tx: Transaction) -> None:
            assert await tx.find_key(workspace.id, secret) == (workspace, key)
            assert await tx.find_key(workspace.id, b"\0" * 32) is None
            assert await tx.find_key(WorkspaceId(build.new_id("workspace")), secret) is None
            assert await tx.get_key(workspace.id, key.id) == key

        await storage.read(look)

    async def test_a_key_is_revoked_once_and_still_found(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        key, secret = build.key(home.principal)
        ws = home.workspace
        await storage.write(ws, doing(lambda tx: tx.put_key(ws, key, secret)))
        await storage.write(ws, doing(lambda tx: tx.revoke_key(ws, key.id, 77)))
        await storage.write(ws, doing(lambda tx: tx.revoke_key(ws, key.id, 88)))
        revoked = msgspec.structs.replace(key, revoked_at=77)

        async def look(tx: Transaction) -> None:
            assert await tx.get_key(ws, key.id) == revoked
            assert await tx.list_keys(ws, None, 5) == [revoked]
            found = await tx.find_key(ws, secret)
            assert found is not None and found[1] == revoked

        await storage.read(look)

    async def test_keys_looked_for_at_once_are_each_told_as_they_stand(
        self, storage: Storage
    ) -> None:
        """One read each, as requests do: known and unknown keys, of two workspaces, revoked ones
        as revoked from the moment that the revocation was answered."""
        build = Builder()
        home = await make_home(storage, build)
        other = build.workspace("other")
        stranger = build.principal()
        places = [home.workspace if n % 4 else other.id for n in range(40)]
        keys = [build.key(stranger.id if place == other.id else home.principal) for place in places]

        async def fill(tx: Transaction) -> None:
            tx.put_workspace(other)
            tx.put_principal(other.id, stranger)
            for place, (key, secret) in zip(places, keys, strict=True):
                tx.put_key(place, key, secret)

        def find(place: WorkspaceId, secret: bytes) -> Coroutine[Any, Any, Any]:
            return storage.read(lambda tx: tx.find_key(place, secret), single=True)

        def revoking(place: WorkspaceId, key: KeyId) -> Use[None]:
            return doing(lambda tx: tx.revoke_key(place, key, 9))

        await storage.write(None, fill)
        for revoked in (None, 3, 4):
            if revoked is not None:
                place, key = places[revoked], keys[revoked][0]
                keys[revoked] = (msgspec.structs.replace(key, revoked_at=9), keys[revoked][1])
                await storage.write(place, revoking(place, key.id))
            asked = [(place, secret) for place, (_, secret) in zip(places, keys, strict=True)]
            strange = [(other.id, keys[1][1]), (home.workspace, b"\0" * 32)]
            found = await asyncio.gather(*[find(*one) for one in asked * 2 + strange])
            told = [None if one is None else (one[0].id, one[1]) for one in found]
            known = [(place, key) for place, (key, _) in zip(places, keys, strict=True)]
            assert told == [*known, *known, None, None]

    async def test_a_delegation_has_a_direction_and_an_end(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, friend = home.workspace, build.principal()
        row = build.delegation(home.principal, friend.id)
        await storage.write(
            None,
            doing(lambda tx: tx.put_principal(ws, friend), lambda tx: tx.put_delegation(ws, row)),
        )

        async def look(tx: Transaction) -> None:
            assert await tx.get_delegation(ws, row.id) == row
            assert await tx.find_delegation(ws, home.principal, friend.id) == row
            assert await tx.find_delegation(ws, friend.id, home.principal) is None

        async def end(tx: Transaction) -> None:
            tx.delete_delegation(ws, row.id)
            tx.delete_delegation(ws, row.id)
            assert await tx.get_delegation(ws, row.id) is None

        async def look_again(tx: Transaction) -> None:
            assert await tx.find_delegation(ws, home.principal, friend.id) is None
            assert await tx.list_delegations(ws, None, 5) == []

        await storage.read(look)
        await storage.write(ws, end)
        await storage.read(look_again)
        again = build.delegation(home.principal, friend.id)
        await storage.write(ws, doing(lambda tx: tx.put_delegation(ws, again)))
        assert await storage.read(lambda tx: tx.get_delegation(ws, again.id)) == again

    @pytest.mark.parametrize("kind", OWNER_ID_KINDS)
    async def test_an_owner_is_kept_by_its_kind(self, storage: Storage, kind: str) -> None:
        build = Builder()
        home = await make_home(storage, build)
        row = build.owner(kind, home.principal)
        await storage.write(None, doing(lambda tx: tx.put_owner(home.workspace, row)))

        async def look(tx: Transaction) -> None:
            for each in OWNER_ID_KINDS:
                found = await tx.get_owner(home.workspace, each, row.id)
                assert found == (row if each == kind else None)
            assert await tx.list_owners(home.workspace, kind, None, 5) == [row]

        await storage.read(look)


class AssignmentCases:
    """Assignments and what they add up to."""

    async def test_assignments_are_filtered_by_store_and_subject(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        friend, second = build.principal(), build.store(home.principal)
        me, you = Subject("principal", home.principal), Subject("principal", friend.id)
        rows = [
            build.assignment(store, subject, read=read, write=write)
            for store in (home.store.id, second.id)
            for subject in (me, you, Subject("workspace", ws))
            for read, write in ((True, False), (False, True))
        ]

        async def fill(tx: Transaction) -> None:
            tx.put_principal(ws, friend)
            tx.put_store(ws, second)
            for row in reversed(rows):
                tx.put_assignment(ws, row)

        async def look(tx: Transaction) -> None:
            assert await tx.list_assignments(ws, None, 201) == rows
            assert await tx.list_assignments(ws, rows[3].id, 2) == rows[4:6]
            assert await tx.list_assignments(ws, None, 20, store=second.id) == rows[6:]
            assert await tx.list_assignments(ws, rows[6].id, 2, store=second.id) == rows[7:9]
            mine = [row for row in rows if row.subject == me]
            assert await tx.list_assignments(ws, None, 20, subject=me) == mine
            assert await tx.list_assignments(ws, mine[0].id, 1, subject=me) == mine[1:2]
            both = await tx.list_assignments(ws, None, 20, store=second.id, subject=you)
            assert both == rows[8:10]
            assert await tx.get_assignment(ws, rows[0].id) == rows[0]

        await storage.write(None, fill)
        await storage.read(look)

    async def test_an_assignment_ends_once(self, storage: Storage) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, me = home.workspace, Subject("principal", home.principal)
        row = build.assignment(home.store.id, me, write=True)
        await storage.write(None, doing(lambda tx: tx.put_assignment(ws, row)))

        async def end(tx: Transaction) -> None:
            tx.delete_assignment(ws, row.id)
            tx.delete_assignment(ws, row.id)
            assert await tx.get_assignment(ws, row.id) is None
            opened = await tx.get_store(ws, home.store.id, [home.principal])
            assert opened == (home.store, Rights())

        await storage.write(None, end)
        assert await storage.read(lambda tx: tx.list_assignments(ws, None, 5)) == []

    async def test_rights_are_what_the_subjects_assignments_give_together(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        friend, agent = build.principal(), build.owner("agent_definition", home.principal)
        reading = build.assignment(store, Subject("principal", friend.id))
        writing = build.assignment(store, Subject("workspace", ws), read=False, write=True)
        nothing = build.assignment(store, Subject("agent_definition", agent.id), read=False)

        async def fill(tx: Transaction) -> None:
            tx.put_principal(ws, friend)
            tx.put_owner(ws, agent)
            for row in (reading, writing, nothing):
                tx.put_assignment(ws, row)

        async def look(tx: Transaction) -> None:
            for subjects, rights in (
                ([friend.id], Rights(read=True)),
                ([ws], Rights(write=True)),
                ([friend.id, ws], Rights(read=True, write=True)),
                ([home.principal], Rights()),
                ([agent.id], Rights()),
                ([home.principal, agent.id, ws, friend.id], Rights(read=True, write=True)),
            ):
                assert await tx.get_store(ws, store, subjects) == (home.store, rights)
                opened = await tx.open_document(ws, store, subjects, "/a")
                assert opened == (home.store, rights, None)

        await storage.write(None, fill)
        await storage.read(look)

    async def test_a_subject_is_not_another_kind_of_owner_with_the_same_bytes(
        self, storage: Storage
    ) -> None:
        """The default workspace and the operator's principal differ in their prefixes only."""
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        twin = PrincipalId("prin_" + to_bytes(ws).hex())
        person = msgspec.structs.replace(build.principal(), id=twin)
        row = build.assignment(home.store.id, Subject("principal", twin), write=True)

        async def fill(tx: Transaction) -> None:
            tx.put_principal(ws, person)
            tx.put_assignment(ws, row)

        async def look(tx: Transaction) -> None:
            everybody = Subject("workspace", ws)
            assert await tx.get_store(ws, home.store.id, [ws]) == (home.store, Rights())
            assert await tx.list_assignments(ws, None, 5, subject=everybody) == []
            listed = await tx.list_stores(ws, None, 5, readers=[ws], statuses=["active"])
            assert listed == []

        await storage.write(None, fill)
        await storage.read(look)

    async def test_stores_are_listed_for_readers_who_hold_any_assignment(
        self, storage: Storage
    ) -> None:
        build = Builder()
        home = await make_home(storage, build)
        ws = home.workspace
        shared, hidden = build.store(home.principal), build.store(home.principal)
        owned = build.store(home.principal, owner=Owner("workspace"))
        me = Subject("principal", home.principal)
        rows = [
            build.assignment(home.store.id, me),
            build.assignment(home.store.id, me, read=False, write=True),
            build.assignment(shared.id, Subject("workspace", ws), read=False, write=True),
        ]

        async def fill(tx: Transaction) -> None:
            for store in (shared, hidden, owned):
                tx.put_store(ws, store)
            for row in rows:
                tx.put_assignment(ws, row)

        async def listed(tx: Transaction, readers: list[str] | None) -> list[StoreId]:
            found = await tx.list_stores(ws, None, 9, readers=readers, statuses=["active"])
            return [each.store.id for each in found]

        async def look(tx: Transaction) -> None:
            every = [home.store.id, shared.id, hidden.id, owned.id]
            assert await listed(tx, None) == every
            assert await listed(tx, [home.principal]) == every[:1]
            assert await listed(tx, [home.principal, ws]) == every[:2]
            assert await listed(tx, [ws]) == [shared.id]

        await storage.write(None, fill)
        await storage.read(look)

    @pytest.mark.parametrize("others", [0, 100])
    async def test_each_caller_of_a_locked_store_has_its_own_rights(
        self, storage: Storage, others: int
    ) -> None:
        """Whoever else came first in the transaction, and however much is granted on the store."""
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        people = [build.principal() for _ in range(4 + others)]
        none, writer, reader, both, *rest = [person.id for person in people]

        def given(to: str, kind: str = "principal", **rights: bool) -> Assignment:
            return build.assignment(store, Subject(kind, to), **rights)

        rows = [
            given(writer, read=False, write=True),
            given(reader),
            given(both),
            given(both, read=False, write=True),
            *[given(one, write=True) for one in rest],
        ]
        late = given(ws, "workspace")

        async def check(tx: Transaction, extra: bool) -> None:
            for caller, read, write in (
                (none, False, False),
                (writer, False, True),
                (reader, True, False),
                (both, True, True),
            ):
                rights = Rights(read or extra, write)
                assert await tx.get_store(ws, store, [caller, ws]) == (home.store, rights)

        async def use(tx: Transaction) -> None:
            await tx.lock_store(ws, store)
            for person in people:
                tx.put_principal(ws, person)
            for row in rows:
                tx.put_assignment(ws, row)
            await check(tx, extra=False)
            tx.put_assignment(ws, late)
            await check(tx, extra=True)
            tx.delete_assignment(ws, late.id)
            await check(tx, extra=False)

        async def again(tx: Transaction) -> None:
            await tx.lock_store(ws, store)
            await check(tx, extra=False)

        await storage.write(store, use)
        await storage.write(store, again)

    async def test_six_subjects_may_be_asked_for_at_once(self, storage: Storage) -> None:
        """A Session's actor speaks for its agent, itself, its scope, a principal, everybody."""
        build = Builder()
        home = await make_home(storage, build)
        ws, store = home.workspace, home.store.id
        row = build.assignment(store, Subject("principal", home.principal))
        await storage.write(None, doing(lambda tx: tx.put_assignment(ws, row)))
        many = [build.new_id("principal") for _ in range(5)] + [home.principal]

        async def look(tx: Transaction) -> None:
            for subjects, rights in ((many[:1], Rights()), (many, Rights(read=True))):
                assert await tx.get_store(ws, store, subjects) == (home.store, rights)
                opened = await tx.open_document(ws, store, subjects, "/a")
                assert opened == (home.store, rights, None)
            active = ["active"]
            found = await tx.list_stores(ws, None, 5, readers=many, statuses=active)
            assert [each.store for each in found] == [home.store]
            assert await tx.list_stores(ws, None, 5, readers=many[:1], statuses=active) == []

        await storage.read(look)
