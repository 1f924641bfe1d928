"""A powerless actor tries every use case, and gets and changes nothing (R-40 … R-44, C-024)."""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import muniment.service
from muniment.model.access import Actor, Subject
from muniment.model.documents import Absent
from muniment.model.errors import Denied, Failure, NotFound
from muniment.model.ids import AssignmentId, DelegationId, StoreId
from muniment.model.stores import Owner
from muniment.service import (
    deletions,
    documents,
    events,
    identities,
    jobs,
    keys,
    permissions,
    stores,
)
from muniment.service.idempotency import once
from muniment.service.keys import authenticate
from muniment.service.paging import Page
from muniment.service.permissions import Grant
from muniment.service.stores import NewStore, StorePatch
from wire import Person, Wire
from working import jobs_of, leave_job

NOT_FOR_CALLERS = {"paging.page_of"}
"""What takes an App and an Actor and is a part of use cases, not one."""

PAGE = Page(limit=200)


@dataclass(frozen=True)
class Nouns:
    """What belongs to somebody else: ids by kind, and the hash of the document `/a.md`."""

    store: StoreId
    sha256: bytes
    principal: str
    key: str
    session: str
    agent: str
    delegation: DelegationId
    assignment: AssignmentId
    job: str

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no answer to somebody without power holds."""
        ids = (self.store, self.principal, self.key, self.session, self.agent)
        return (*ids, self.delegation, self.assignment, "CANARY")


@dataclass(frozen=True)
class Attempt:
    """A use case with arguments, and what must come of it: a refusal, or an own thing."""

    use_case: Callable[..., Any]
    refusal: type[Failure] | None
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return name_of(self.use_case)


def refused(use_case: Callable[..., Any], why: type[Failure], *given: Any, **also: Any) -> Attempt:
    """A use of what belongs to somebody else."""
    return Attempt(use_case, why, given, also)


def allowed(use_case: Callable[..., Any], *given: Any, **also: Any) -> Attempt:
    """A use that anybody may make, of things of its own."""
    return Attempt(use_case, None, given, also)


def name_of(use_case: Callable[..., Any]) -> str:
    return f"{use_case.__module__.rpartition('.')[2]}.{use_case.__name__}"


def use_cases() -> Iterator[str]:
    """The name of every public function of the service that begins with an App and an Actor."""
    for found in pkgutil.iter_modules(muniment.service.__path__, "muniment.service."):
        module = importlib.import_module(found.name)
        for name, function in inspect.getmembers(module, inspect.iscoroutinefunction):
            taken = list(inspect.signature(function).parameters)
            public = function.__module__ == module.__name__ and not name.startswith("_")
            if public and taken[:2] == ["app", "actor"]:
                yield name_of(function)


def attempts(theirs: Nouns, me: Actor) -> list[Attempt]:
    """Every use case on what is somebody else's; the refusals first, then what is allowed."""
    mine = Subject("principal", me.principal)
    return [
        *on_documents(theirs),
        *on_stores(theirs, me),
        *on_permissions(theirs, me),
        *on_identities(theirs, me),
        refused(jobs.list_jobs, Denied, PAGE),
        refused(jobs.retry_job, Denied, theirs.job),
        allowed(stores.list_stores, PAGE, include_archived=True),
        allowed(stores.list_stores, PAGE, name="CANARY"),
        allowed(permissions.list_assignments, PAGE, subject=mine),
        allowed(permissions.list_assignments, PAGE, store=theirs.store, subject=mine),
        allowed(events.list_workspace_events, PAGE),
        allowed(keys.whoami),
        allowed(identities.create_owner, "session", "own"),
        allowed(stores.create_store, NewStore("own")),
    ]


def on_documents(theirs: Nouns) -> list[Attempt]:
    store = theirs.store
    put, delete = documents.put_document, documents.delete_document
    return [
        refused(documents.get_document, NotFound, store, "/a.md"),
        refused(documents.get_document, NotFound, store, "/none.md"),
        refused(documents.list_documents, NotFound, store, PAGE),
        refused(documents.list_documents, NotFound, store, PAGE, prefix="/a"),
        refused(put, NotFound, store, "/a.md", "taken", precondition=theirs.sha256),
        refused(put, NotFound, store, "/b.md", "taken", precondition=Absent.NONE),
        refused(put, NotFound, store, "/b.md", "taken", precondition=Absent.MUST_NOT_EXIST),
        refused(delete, NotFound, store, "/a.md", precondition=theirs.sha256),
        refused(delete, NotFound, store, "/none.md", precondition=Absent.NONE),
        refused(events.list_store_events, NotFound, store, PAGE),
    ]


def on_stores(theirs: Nouns, me: Actor) -> list[Attempt]:
    everybody = Grant(Subject("workspace", me.workspace), True, True)
    return [
        refused(stores.get_store, NotFound, theirs.store),
        refused(stores.update_store, NotFound, theirs.store, 1, StorePatch(name="taken")),
        refused(stores.update_store, NotFound, theirs.store, 9, StorePatch(default=True)),
        refused(
            stores.update_store, NotFound, theirs.store, 1, StorePatch(promotion_policy="proposal")
        ),
        refused(stores.archive_store, NotFound, theirs.store, 1),
        refused(stores.explain_access, NotFound, theirs.store),
        refused(
            stores.explain_access, NotFound, theirs.store, Subject("principal", theirs.principal)
        ),
        refused(stores.list_stores, Denied, PAGE, include_deleted=True),
        *(
            refused(stores.create_store, Denied, NewStore("taken", owner=owner))
            for owner in (
                Owner("workspace"),
                Owner("principal", theirs.principal),
                Owner("session", theirs.session),
                Owner("agent_definition", theirs.agent),
            )
        ),
        refused(
            stores.create_store,
            Denied,
            NewStore("taken", owner=Owner("principal", theirs.principal), grants=[everybody]),
        ),
        refused(deletions.delete_store, NotFound, theirs.store),
        refused(deletions.delete_store, NotFound, theirs.store, expected_version=9),
    ]


def on_permissions(theirs: Nouns, me: Actor) -> list[Attempt]:
    listed, store = permissions.list_assignments, theirs.store
    them = Subject("principal", theirs.principal)
    return [
        *(
            refused(permissions.create_assignment, NotFound, store, Grant(subject, True, True))
            for subject in (
                Subject("principal", me.principal),
                Subject("api_key", me.key),
                Subject("workspace", me.workspace),
                them,
            )
        ),
        refused(permissions.delete_assignment, NotFound, theirs.assignment),
        refused(listed, Denied, PAGE),
        refused(listed, Denied, PAGE, subject=them),
        refused(listed, Denied, PAGE, subject=Subject("api_key", theirs.key)),
        refused(listed, NotFound, PAGE, store=store),
        refused(listed, NotFound, PAGE, store=store, subject=them),
    ]


def on_identities(theirs: Nouns, me: Actor) -> list[Attempt]:
    mine = Subject("principal", me.principal)
    return [
        refused(keys.create_key, Denied, "taken", "admin"),
        refused(keys.create_key, Denied, "taken", "member", principal=theirs.principal),
        refused(keys.create_key, Denied, "taken", "admin", principal=me.principal),
        refused(keys.list_keys, Denied, PAGE),
        refused(keys.revoke_key, Denied, theirs.key),
        refused(identities.create_principal, Denied, "taken", "person"),
        refused(identities.list_principals, Denied, PAGE),
        refused(identities.create_delegation, Denied, theirs.principal, mine),
        refused(identities.create_delegation, Denied, theirs.principal, Subject("api_key", me.key)),
        *(
            refused(identities.create_delegation, Denied, whose, Subject("api_key", me.key))
            for whose in (me.principal, me.delegate)
            if me.delegate is not None
        ),
        refused(identities.list_delegations, Denied, PAGE),
        refused(identities.delete_delegation, NotFound, theirs.delegation),
        refused(identities.create_owner, Denied, "agent_definition", "taken"),
        refused(identities.create_owner, Denied, "surface_scope", "taken", scope_kind="public"),
        *(
            refused(identities.list_owners, Denied, kind, PAGE)
            for kind in ("agent_definition", "session", "surface_scope")
        ),
    ]


async def somebody(wire: Wire) -> tuple[Person, Nouns]:
    """A member with one of everything."""
    ada, friend = await wire.person("CANARY-ada"), await wire.person("CANARY-friend")
    store = await wire.store(ada.client, name="CANARY")
    sha256 = await wire.put(store, "/a.md", "CANARY", ada.client)
    session = await ada.client.post("/v1/sessions", json={"name": "CANARY"})
    agent = await wire.owner.post("/v1/agents", json={"name": "CANARY"})
    await leave_job(wire)
    (job,) = await jobs_of(wire)
    whom = {"kind": "principal", "principal": friend.principal}
    delegation = await ada.client.post(
        "/v1/delegations", json={"principal": ada.principal, "delegate": whom}
    )
    return ada, Nouns(
        StoreId(store),
        bytes.fromhex(sha256),
        ada.principal,
        ada.key,
        session.json()["id"],
        agent.json()["id"],
        DelegationId(delegation.json()["id"]),
        AssignmentId(await wire.grant(store, whom, "read", "write")),
        job.id,
    )


async def powerless(wire: Wire, theirs: Nouns) -> dict[str, Actor]:
    """Callers without any power over these nouns, one of each kind."""
    mallory, acting, ended = [await wire.person(name) for name in ("mallory", "acted as", "ended")]
    chief = await wire.person("chief", "admin")
    for delegate in (mallory, chief):
        whom = {"kind": "principal", "principal": delegate.principal}
        body = {"principal": acting.principal, "delegate": whom}
        assert (await wire.owner.post("/v1/delegations", json=body)).status_code == 201
    whom = {"kind": "principal", "principal": ended.principal}
    held = await wire.grant(theirs.store, whom, "read", "write")
    reads = await ended.client.get(f"/v1/memory-stores/{theirs.store}")
    assert reads.status_code == 200
    assert (await wire.owner.delete(f"/v1/permission-assignments/{held}")).status_code == 204
    app = wire.app
    return {
        "a member without an assignment": await authenticate(app, mallory.secret),
        "on a delegation": await authenticate(app, mallory.secret, acting.principal),
        "an administrator on a delegation": await authenticate(app, chief.secret, acting.principal),
        "whose assignments have ended": await authenticate(app, ended.secret),
    }


async def outcome_of(wire: Wire, me: Actor, attempt: Attempt, **also: Any) -> Any:
    """What the attempt returns, or the class of what it raises."""
    try:
        return await attempt.use_case(wire.app, me, *attempt.arguments, **attempt.options, **also)
    except Failure as failure:
        assert "CANARY" not in f"{failure.message} {failure.detail}"
        return type(failure)


def check_own(result: Any, me: Actor, theirs: Nouns, attempt: Attempt) -> None:
    """Only the actor's own things come back; an event is its own where it names its principal."""
    if isinstance(result, events.EventList):
        assert result.items
        for event in result.items:
            assert event.payload is not None and me.principal.encode() in event.payload
            assert theirs.principal.encode() not in event.payload
        return
    assert not any(one in repr(result) for one in theirs.secrets), attempt


def test_every_use_case_is_tried_by_a_powerless_actor() -> None:
    nothing = "0" * 32
    theirs = Nouns(
        StoreId(nothing), b"", "p", "k", "s", "a", DelegationId("d"), AssignmentId("a"), "j"
    )
    me: Any = Actor("w", "p", "k", delegate="d")
    tried = {attempt.name for attempt in attempts(theirs, me)}
    there = set(use_cases()) - NOT_FOR_CALLERS
    assert not there - tried, f"try these with somebody else's nouns: {sorted(there - tried)}"
    assert not tried - there, f"these are no use cases: {sorted(tried - there)}"


async def test_a_powerless_actor_is_refused_by_every_use_case_and_changes_nothing_c024_r44(
    wire: Wire,
) -> None:
    ada, theirs = await somebody(wire)
    callers = await powerless(wire, theirs)
    for who, me in callers.items():
        before = await wire.state()
        tried = attempts(theirs, me)
        for attempt in tried:
            if attempt.refusal is None:
                continue
            assert await outcome_of(wire, me, attempt) is attempt.refusal, (who, attempt)
            if "once" in inspect.signature(attempt.use_case).parameters:
                again = once(wire.app, "POST /here", "a key", b"a request")
                got = await outcome_of(wire, me, attempt, once=again)
                assert got is attempt.refusal, (who, "under a key", attempt)
        assert await wire.state() == before, who
        for attempt in tried:
            if attempt.refusal is None:
                found = await outcome_of(wire, me, attempt)
                assert not isinstance(found, type), (who, attempt, found)
                check_own(found, me, theirs, attempt)
        after = await wire.state()
        assert {name: after[name] for name in before if name != me.workspace} == {
            name: one for name, one in before.items() if name != me.workspace
        }, who
    assert (await ada.client.get(f"/v1/memory-stores/{theirs.store}")).json()["version"] == 1


async def test_what_one_powerless_actor_makes_the_others_do_not_see_r44(wire: Wire) -> None:
    _, theirs = await somebody(wire)
    callers = await powerless(wire, theirs)
    made: dict[str, set[str]] = {}
    for me in callers.values():
        own = await stores.create_store(wire.app, me, NewStore("own"))
        made.setdefault(me.principal, set()).add(own.store.id)
    for me in callers.values():
        seen = await stores.list_stores(wire.app, me, PAGE)
        assert {one.store.id for one in seen.items} == made[me.principal]
