"""Event streams are verified from within and from outside, and damage is named (R-30, C-161)."""

import asyncio
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
import pytest

from damage import Cell, cells, damaged, diagnose, fill, filled, other
from muniment import main
from muniment.client.audit import verify_shown, verify_stream
from muniment.client.portal import Portal
from muniment.client.records import Event, Page
from muniment.client.sync import Client
from muniment.client.transport import InProcess
from muniment.model.audit import Audit, Verified
from muniment.model.events import Event as Kept
from muniment.model.events import Fact, Head, chain, check_event
from muniment.model.ids import DEFAULT_WORKSPACE, EventId, to_bytes
from muniment.settings import load, read_credentials
from wire import Wire, wired

TABLES = ("events", "event_payloads", "streams")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled database, closed; its home beside it."""
    return filled(tmp_path_factory.mktemp("whole"))


@contextmanager
def client_of(database: str, home: Path) -> Iterator[Client]:
    """A client of the database with its owner's key."""
    settings = load({}, home=home, database=database)
    key = read_credentials(settings.credentials)
    assert key is not None
    portal = Portal()
    with Client(key=key, transport=InProcess(partial(main.opened, settings), portal)) as client:
        yield client


def outside(database: str, home: Path, noted: dict[str, dict[int, bytes]]) -> dict[str, Verified]:
    """What a client makes of every stream that it sees."""
    found = {}
    with client_of(database, home) as client:
        workspace = str(DEFAULT_WORKSPACE)
        found[workspace] = verify_stream(workspace, client.events_page, noted.get(workspace))
        for store in client.stores.list(include_archived=True):

            def fetch(*, limit: int, page: str | None = None, of: str = store.id) -> Page[Event]:
                return client.stores.events_page(of, limit=limit, page=page)

            found[store.id] = verify_stream(store.id, fetch, noted.get(store.id))
    return found


def inside(database: Path | str, home: Path, noted: dict[str, dict[int, bytes]]) -> list[Verified]:
    """What is found in the database itself."""
    return diagnose(database, home, streams_only=True, noted=noted).streams


def heads(verified: dict[str, Verified]) -> dict[str, dict[int, bytes]]:
    """The heads that somebody could have noted."""
    return {stream: {one.head.seq: one.head.hash} for stream, one in verified.items()}


def test_whole_streams_verify_from_within_and_from_outside_c161(
    whole: Path, tmp_path: Path
) -> None:
    seen = outside(f"sqlite:///{whole}", whole.parent / "home", {})
    within = {one.stream: one for one in inside(whole, tmp_path, heads(seen))}
    assert seen == within and len(seen) == 4
    assert all(one.damage is None and one.events == one.head.seq > 0 for one in seen.values())


@pytest.mark.slow
def test_one_flipped_byte_anywhere_is_named_with_stream_and_number_c161(
    whole: Path, tmp_path: Path
) -> None:
    by_column: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells(whole):
        if cell.table in TABLES:
            by_column[cell.table, cell.column].append(cell)
    copy, home = tmp_path / "copy.db", whole.parent / "home"
    for (table, column), candidates in by_column.items():
        cell = candidates[len(candidates) // 2]
        if not damaged(whole, copy, cell, other(cell)):
            continue
        stream, number = cell.row["stream_id"].hex(), cell.row["seq"]
        moved = column in ("workspace_id", "stream_id", "seq")
        report = diagnose(copy, tmp_path / "none", streams_only=True)
        from_within = [one for one in report.streams if one.damage is not None]
        assert from_within or (moved and report.findings), (table, column)
        if not moved:
            assert stream in from_within[0].stream
            assert from_within[0].number == (number if table != "streams" else None)
        if table == "event_payloads" and moved:
            continue  # from outside it looks as if it had been erased
        seen = outside(f"sqlite:///{copy}", home, {})
        damage = [one for one in seen.values() if one.damage is not None]
        assert damage and stream in damage[0].stream, (table, column, seen)
        if not moved:
            assert damage[0].number == (number if table != "streams" else None), (table, column)


CHANGES: dict[str, tuple[str, int | None]] = {
    "removed in the middle": ("DELETE FROM {t} WHERE stream_id = {s} AND seq = 4", 5),
    "swapped": (
        "UPDATE {t} SET seq = CASE seq WHEN 3 THEN -2 ELSE -3 END"
        " WHERE stream_id = {s} AND seq IN (2, 3)",
        2,
    ),
    "text that is not UTF-8": (
        "UPDATE events SET type = CAST(x'ff' AS TEXT) WHERE stream_id = {s} AND seq = 6",
        6,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_events_removed_or_swapped_are_named_c161(change: str, whole: Path, tmp_path: Path) -> None:
    text, number = CHANGES[change]
    stream = max(inside(whole, tmp_path, {}), key=lambda one: one.events * ("mem" in one.stream))
    copy = tmp_path / "copy.db"
    shutil.copy(whole, copy)
    with sqlite3.connect(copy) as connection:
        named = f"x'{stream.stream[-32:]}'"
        for table in ("events", "event_payloads") if "{t}" in text else ("events",):
            connection.execute(text.format(t=table, s=named))
            connection.execute(f"UPDATE {table} SET seq = -seq WHERE seq < 0")
    connection.close()
    within = {one.stream: one for one in inside(copy, tmp_path / "none", {})}
    seen = outside(f"sqlite:///{copy}", whole.parent / "home", {})
    for found in (within, seen):
        assert found[stream.stream].number == number, found[stream.stream]
        assert [one.stream for one in found.values() if one.damage] == [stream.stream]


def test_a_truncated_or_rewritten_stream_does_not_lead_to_a_noted_head_c161(
    whole: Path, tmp_path: Path
) -> None:
    noted = heads(outside(f"sqlite:///{whole}", whole.parent / "home", {}))
    stream = next(one for one in noted if one.startswith("memstore"))
    (last,) = noted[stream]
    copy = tmp_path / "copy.db"
    shutil.copy(whole, copy)
    name = bytes.fromhex(stream[-32:])
    with sqlite3.connect(copy) as connection:
        for table in ("events", "event_payloads"):
            connection.execute(f"DELETE FROM {table} WHERE stream_id = ? AND seq = ?", [name, last])
    connection.close()
    # Cut off clumsily, the head betrays it; and a server must not send its client in circles.
    for found in (
        outside(f"sqlite:///{copy}", whole.parent / "home", {})[stream],
        {one.stream: one for one in inside(copy, tmp_path / "none", {})}[stream],
    ):
        assert found.damage is not None and "its end is missing" in found.damage
    with sqlite3.connect(copy) as connection:
        connection.execute(
            "UPDATE streams SET seq = seq - 1, hash = (SELECT hash FROM events e WHERE"
            " e.stream_id = streams.stream_id AND e.seq = streams.seq - 1) WHERE stream_id = ?",
            [name],
        )
    connection.close()
    # Cut off with care, only who has noted a head can tell.
    assert outside(f"sqlite:///{copy}", whole.parent / "home", {})[stream].damage is None
    for found in (
        outside(f"sqlite:///{copy}", whole.parent / "home", noted)[stream],
        {one.stream: one for one in inside(copy, tmp_path / "none", noted)}[stream],
    ):
        assert found.damage is not None and f"event {last}" in found.damage
    rewritten = {stream: {2: b"\x01" * 32}}
    found = outside(f"sqlite:///{whole}", whole.parent / "home", rewritten)[stream]
    assert found.number == 2 and "rewritten" in (found.damage or "")


def test_an_event_whose_payload_was_erased_verifies_c161(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(whole, copy)
    with sqlite3.connect(copy) as connection:
        connection.execute("DELETE FROM event_payloads WHERE seq = 3")
    connection.close()
    seen = outside(f"sqlite:///{copy}", whole.parent / "home", {})
    assert all(one.damage is None for one in seen.values())
    assert sum(one.erased for one in seen.values()) >= 2
    assert {one.stream: one for one in inside(copy, tmp_path / "none", {})} == seen


async def damage_payload(wire: Wire, stream: str, number: int) -> None:
    """Writes other bytes where an event's payload is."""
    url = wire.settings.database_url
    values: list[Any] = [b'{"a":"b","secret":1}', bytes.fromhex(stream[-32:]), number]
    text = "UPDATE event_payloads SET payload = {} WHERE stream_id = {} AND seq = {}"
    if url.startswith("sqlite"):
        # Not sqlite3: two libraries in one process take each other's locks of a file.
        connection = apsw.Connection(str(wire.settings.database_file))
        connection.execute(text.format("?", "?", "?"), values)
        connection.close()
        return
    async with await psycopg.AsyncConnection.connect(url) as made:
        await made.execute(text.format("%s", "%s", "%s"), values)


@pytest.mark.parametrize("name", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_a_payload_that_does_not_fit_its_commitment_is_never_served_c161(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    if name == "postgres":
        url = str(request.getfixturevalue("postgres_dsn"))
    async with wired(tmp_path / "home", url) as wire:
        store = await wire.store()
        for n in range(9):
            await wire.put(store, f"/{n}.md", "x")
        at = f"/v1/memory-stores/{store}/events"
        await damage_payload(wire, store, 5)
        page = (await wire.owner.get(at)).json()
        assert [event["seq"] for event in page["items"]] == [1, 2, 3, 4]
        answer = await wire.owner.get(at, params={"page": page["next_page"]})
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (500, "runtime.internal")
        assert (error["detail"]["stream"], error["detail"]["seq"]) == (store, 5)
        assert f"event 5 of {store}" in error["message"] and "secret" not in answer.text
        rest = (await wire.owner.get(at, params={"after": 5})).json()
        assert [event["seq"] for event in rest["items"]] == [6, 7, 8, 9, 10]
        await damage_payload(wire, str(DEFAULT_WORKSPACE), 1)
        answer = await wire.owner.get("/v1/events")
        assert answer.status_code == 500, answer.text
        assert answer.json()["error"]["detail"]["seq"] == 1


@pytest.mark.postgres
async def test_a_changed_event_is_named_on_postgresql_c161(
    postgres_dsn: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    async with wired(home, postgres_dsn) as wire:
        store = await fill(wire)
    name = bytes.fromhex(store[-32:])
    for change in (
        "events SET type = 'memory.store_archived'",
        "events SET created_at = created_at + 1",
        "events SET commitment = sha256(commitment)",
        "events SET hash = sha256(hash)",
        "events SET event_id = substr(sha256(event_id), 1, 16)",
        "event_payloads SET payload = replace(convert_from(payload, 'UTF8'), 'put', 'get')::bytea",
        "event_payloads SET salt = substr(sha256(salt), 1, 16)",
        "streams SET hash = sha256(hash)",
        "streams SET seq = seq + 1",
    ):
        table = change.split()[0]
        number = None if table == "streams" else 3
        where = "stream_id = %s" + (" AND seq = 3" if number else "")
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as made:
            await made.execute(f"CREATE TABLE kept AS TABLE {table}")
            await made.execute(f"UPDATE {change} WHERE {where}", [name])
        for ask in (inside, outside):
            found = await run_in_thread(partial(ask, postgres_dsn, home, {}))  # type: ignore[arg-type]  # both take an address
            streams = list(found.values()) if isinstance(found, dict) else found
            (wrong,) = [one for one in streams if one.damage is not None]
            assert (wrong.stream, wrong.number) == (store, number), (change, wrong)
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as made:
            await made.execute(f"DELETE FROM {table}")
            await made.execute(f"INSERT INTO {table} SELECT * FROM kept")
            await made.execute("DROP TABLE kept")


async def run_in_thread(call: Callable[[], Any]) -> Any:
    """Runs what has an event loop of its own."""
    return await asyncio.to_thread(call)


def test_a_member_checks_the_payloads_of_what_it_is_shown_c161(whole: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(whole, copy)
    with client_of(f"sqlite:///{copy}", whole.parent / "home") as owner:
        made = owner.keys.create("member", role="member")
        with Client(key=made.secret, transport=owner._transport) as member:
            found = verify_shown(str(DEFAULT_WORKSPACE), member.events_page)
    assert found.damage is None and 0 < found.events < found.head.seq


def test_check_event_says_what_is_wrong_c161() -> None:
    stream, head, made = to_bytes(DEFAULT_WORKSPACE), Head(), []
    for n in range(4):
        fact = Fact(EventId(f"evt_{n:032x}"), "key.created", b"{}", bytes([n]) * 16, n)
        made.append(chain(stream, head, fact))
        head = Head(made[-1].seq, made[-1].hash)

    def wrong(**changed: Any) -> str:
        fields = {name: getattr(made[1], name) for name in Kept.__struct_fields__}
        before = Head(1, made[0].hash)
        return check_event(stream, before, Kept(**(fields | changed))) or ""

    assert wrong() == wrong(payload=None, salt=None) == ""
    assert "follows number 1" in wrong(seq=3)
    assert "only one" in wrong(payload=None)
    for field in ("payload", "salt", "commitment"):
        assert "commitment" in wrong(**{field: b"x" * 32})
    for changed in ({"hash": b"x" * 32}, {"type": "key.revoked"}, {"created_at": 7}):
        assert "does not follow" in wrong(**changed)
    # A damaged hash is one damage, not two: what follows fits what should stand there.
    audit = Audit(stream)
    bad = Kept(*(made[1].id, 2, "key.created", 1, made[1].commitment, b"x" * 32, b"{}", b"\1" * 16))
    found = [audit.add(event) for event in (made[0], bad, *made[2:])]
    assert [damage is None for damage in found] == [True, False, True, True]


def test_a_server_that_says_nonsense_is_named_and_does_not_keep_a_client_c161() -> None:
    stream = str(DEFAULT_WORKSPACE)
    said = {
        "id": "evt_" + "1" * 32,
        "seq": 1,
        "type": "workspace.created",
        "created_at": "2026-12-01T00:00:00Z",
        "commitment": "0" * 64,
        "hash": "no digits",
        "data": {},
        "salt": "00",
    }

    def nonsense(*, limit: int, page: str | None = None) -> Page[Event]:
        return Page(items=[msgspec.convert(said, Event)], next_page=None)

    for verify in (verify_stream, verify_shown):
        found = verify(stream, nonsense)
        assert (found.damage, found.number) == ("it is not written as an event is", 1)

    def again(*, limit: int, page: str | None = None) -> Page[Event]:
        return Page(items=[], next_page="the same")

    found = verify_stream(stream, again)
    assert found.damage == "the server gives the same page again"
