"""The blocking client, on an embedded database and on a server alike (R-87)."""

import threading
from datetime import UTC, datetime

import pytest

import muniment
from muniment.client.records import Grant


def test_a_document_lives_from_put_to_delete(client: muniment.Client, store: str) -> None:
    made = client.documents.put(store, "/a/ä b.md", "Grüße\r\n")
    assert (made.created, made.size_bytes) == (True, 9)
    found = client.documents.get(store, "/a/ä b.md")
    assert (found.content, found.sha256) == ("Grüße\r\n", made.sha256)
    assert found.updated_at.tzinfo is not None
    left = client.documents.put(store, "/a/ä b.md", "second", if_match=made.sha256)
    assert not left.created
    client.documents.delete(store, "/a/ä b.md", if_match=left.sha256)
    with pytest.raises(muniment.NotFound) as raised:
        client.documents.get(store, "/a/ä b.md")
    assert raised.value.status == 404
    assert raised.value.request_id


def test_a_lost_precondition_is_a_conflict_that_names_the_current_hash_c205_c210(
    client: muniment.Client, store: str
) -> None:
    made = client.documents.put(store, "/a.md", "one")
    for if_match in (None, "0" * 64):
        with pytest.raises(muniment.Conflict) as raised:
            client.documents.put(store, "/a.md", "two", if_match=if_match)
        assert raised.value.current_sha256 == made.sha256
        assert raised.value.type == "memory.conflict"
        assert raised.value.more is not None and raised.value.more.endswith("#memory-conflict")
    with pytest.raises(muniment.Conflict) as raised:
        client.documents.put(store, "/b.md", "two", if_match=made.sha256)
    assert raised.value.current_sha256 is None
    assert client.documents.get(store, "/a.md").content == "one"


def test_a_write_under_an_idempotency_key_is_made_once_r47(client: muniment.Client) -> None:
    once = client.once(f"made by {client.whoami().api_key.id}")
    first, again = once.stores.create("made once"), once.stores.create("made once")
    assert first == again
    with pytest.raises(muniment.Conflict, match="used for another request"):
        once.stores.create("another")
    with pytest.raises(muniment.Malformed, match="printable ASCII"):
        client.once("ké").stores.create("made once")
    key = once.keys.create("worker")
    assert key.secret and once.keys.create("worker").secret is None


def test_a_list_goes_through_all_pages(client: muniment.Client, store: str) -> None:
    paths = [f"/n/{number}.md" for number in range(5)]
    for path in paths:
        client.documents.put(store, path, "x")
    client.documents.put(store, "/other.md", "x")
    assert [item.path for item in client.documents.list(store, "/n/", limit=2)] == paths
    page = client.documents.list_page(store, limit=4)
    assert len(page.items) == 4
    rest = client.documents.list_page(store, limit=4, page=page.next_page)
    assert [item.path for item in rest.items] == ["/n/4.md", "/other.md"]
    assert rest.next_page is None
    assert rest.tree_digest == page.tree_digest


def test_edits_of_several_threads_are_all_kept(client: muniment.Client, store: str) -> None:
    def work() -> None:
        for _ in range(5):
            client.documents.edit(
                store, "/counter", lambda text: str(int(text or "0") + 1), attempts=50
            )

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.documents.get(store, "/counter").content == "20"


def test_an_edit_gives_up_after_its_attempts(client: muniment.Client, store: str) -> None:
    calls = []

    def overtaken(text: str | None) -> str:
        calls.append(text)
        client.documents.edit(store, "/a", lambda now: f"{now} other")
        return "mine"

    with pytest.raises(muniment.Conflict):
        client.documents.edit(store, "/a", overtaken, attempts=3)
    assert len(calls) == 3


def test_an_edit_does_not_repeat_what_cannot_succeed(client: muniment.Client, store: str) -> None:
    client.documents.put(store, "/a/b", "x")
    calls = []
    with pytest.raises(muniment.Conflict):
        client.documents.edit(store, "/a", lambda text: calls.append(text) or "a folder")
    assert calls == [None]


def test_a_store_lives_from_create_to_delete(client: muniment.Client) -> None:
    made = client.stores.create("plans", description="What we want", default=True)
    assert (made.name, made.status, made.default) == ("plans", "active", True)
    assert str(made.owner) == f"principal:{client.whoami().principal.id}"
    changed = client.stores.update(made.id, expected_version=made.version, description=None)
    assert (changed.description, changed.name) == (None, "plans")
    with pytest.raises(muniment.Conflict) as raised:
        client.stores.update(made.id, expected_version=made.version, name="late")
    assert raised.value.current_version == changed.version
    archived = client.stores.archive(made.id, expected_version=changed.version)
    assert archived.archived_at is not None
    with pytest.raises(muniment.ReadOnly):
        client.documents.put(made.id, "/a", "x")
    assert made.id not in [store.id for store in client.stores.list()]
    assert made.id in [store.id for store in client.stores.list(include_archived=True)]
    kinds = [event.type for event in client.stores.events(made.id, limit=2)]
    assert kinds[0] == "memory.store_created"
    assert kinds[-1] == "memory.store_archived"
    client.stores.delete(made.id)
    assert [store.id for store in client.stores.list(name="plans")] == []


def test_access_is_granted_explained_and_taken_back(
    client: muniment.Client, store: str, home: object
) -> None:
    reader = client.keys.create("reader", expires_at=datetime(2999, 1, 1, tzinfo=UTC))
    assert reader.secret is not None
    subject = f"api_key:{reader.id}"
    before = client.stores.access(store, subject=subject)
    assert (before.read, before.write) == (False, False)
    given = client.assignments.create(store, subject, ["read"])
    assert client.stores.access(store, subject=subject).read
    assert given.id in [one.id for one in client.assignments.list(store=store)]
    assert [one.id for one in client.assignments.list(subject=subject)] == [given.id]
    client.assignments.delete(given.id)
    assert not client.stores.access(store, subject=subject).read
    client.keys.revoke(reader.id)
    revoked = {key.id: key for key in client.keys.list()}[reader.id]
    assert revoked.revoked_at is not None
    assert revoked.secret is None


def test_a_delegate_acts_as_its_principal_r43(client: muniment.Client) -> None:
    robot = client.principals.create("robot")
    assert robot in list(client.principals.list())
    me = client.whoami()
    other = client.acting_as(robot.id)
    with pytest.raises(muniment.Denied):
        other.whoami()
    made = client.delegations.create(robot.id, f"api_key:{me.api_key.id}")
    assert other.whoami().principal == robot
    assert str(other.stores.create("of the robot").owner) == f"principal:{robot.id}"
    other.close()
    assert client.whoami().principal == me.principal
    assert made in list(client.delegations.list())
    client.delegations.delete(made.id)
    with pytest.raises(muniment.Denied):
        other.whoami()


def test_other_owners_are_registered_and_own_stores(client: muniment.Client) -> None:
    agent = client.agents.create("helper")
    session = client.sessions.create("today")
    scope = client.scopes.create("the kitchen", kind="private")
    assert scope.kind == "private"
    assert agent in list(client.agents.list())
    assert session in list(client.sessions.list())
    assert scope in list(client.scopes.list())
    me = f"principal:{client.whoami().principal.id}"
    made = client.stores.create(
        "of the agent", owner=f"agent_definition:{agent.id}", grants=[Grant.of(me, "read")]
    )
    assert made.promotion_policy == "proposal"
    assert client.stores.access(made.id).read


def test_the_workspace_has_events_of_its_own(client: muniment.Client) -> None:
    first = client.events_page(limit=1)
    assert first.items[0].type == "workspace.created"
    assert first.head is not None
    numbers = [event.seq for event in client.events(after=1, limit=2)]
    assert numbers == list(range(2, len(numbers) + 2))


def test_a_refused_request_raises_the_class_of_its_type(
    client: muniment.Client, store: str
) -> None:
    with pytest.raises(muniment.Malformed) as raised:
        client.documents.put(store, "no slash", "x")
    assert raised.value.detail["field"] == "path"
    with pytest.raises(muniment.Malformed):
        client.documents.put(store, "/big", "x" * 102_401)
    with pytest.raises(muniment.NotFound):
        client.stores.get("memstore_" + "0" * 32)
    with pytest.raises(muniment.NotFound):
        client.stores.get("../../readyz")
    with pytest.raises(ValueError, match="kind"):
        client.stores.access(store, subject=muniment.Subject.of("nobody:x"))


def test_closing_is_final_and_may_be_repeated(client: muniment.Client) -> None:
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.whoami()
