"""The doctor finds what is not as it must be, names it, and changes nothing (N25)."""

import asyncio
import json
import random
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from damage import Cell, cells, damaged, diagnose, fill, filled, named, other
from muniment.model.errors import NotFound, Unavailable
from muniment.model.ids import DEFAULT_WORKSPACE, JobId, StoreId
from muniment.model.jobs import ERASE_STORE, new_job
from muniment.service import doctor
from muniment.service.doctor import Scope
from muniment.service.doctor_notes import FINDINGS_MAX, Report
from wire import Wire, document_url, wired

SEED = 7
FLIPS = 120


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A filled database, closed."""
    return filled(tmp_path_factory.mktemp("whole"))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home in which the doctor makes nothing."""
    yield tmp_path / "home"
    assert not (tmp_path / "home").exists()


async def test_what_use_cases_wrote_has_no_findings_on_any_storage_n25(wire: Wire) -> None:
    await fill(wire)
    report = await doctor.diagnose(wire.storage)
    assert (report.findings, report.warnings) == ([], [])
    assert report.checked["documents"] == 7 and report.checked["revisions"] == 13
    assert report.checked["tree entries"] == 7 and report.checked["streams"] == 4
    one = await doctor.diagnose(wire.storage, Scope(store=StoreId(await wire.store())))
    assert one.findings == [] and one.checked["stores"] == 1
    with pytest.raises(NotFound):
        await doctor.diagnose(wire.storage, Scope(store=StoreId("memstore_" + "f" * 32)))


@pytest.mark.slow
def test_every_changed_value_is_found_and_named_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    """One row a table and column, but for what nothing in the database can tell."""
    chance = random.Random(SEED)
    by_column: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells(whole):
        if not cell.unproven:
            by_column[cell.table, cell.column].append(cell)
    missed = []
    for (table, column), candidates in by_column.items():
        cell = chance.choice(candidates)
        value = other(cell)
        if not damaged(whole, tmp_path / "copy.db", cell, value):
            continue
        report = diagnose(tmp_path / "copy.db", home)
        if not report.findings or not named(report, cell, value):
            missed.append((table, column, cell.value, value, report.findings))
    # A pool without content can be any.
    assert [one for one in missed if one[1] != "pool_id" or one[4]] == []
    assert len(by_column) > 100


def impossible(cell: Cell) -> list[Any]:
    """Values that the column cannot have."""
    if cell.kind == "INTEGER":
        return [None, "text", b"bytes", 1.5]
    if cell.kind == "TEXT":
        return [None, b"bytes", "CAST"]
    return [None, b"", b"\xff\xfe", "text", 5, cell.value[:-1] if cell.value else b"1"]


@pytest.mark.slow
def test_a_value_that_no_column_can_have_is_a_finding_and_no_traceback_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    by_column: dict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in cells(whole):
        if cell.value is not None and not cell.unproven:
            by_column[cell.table, cell.column].append(cell)
    for candidates in by_column.values():
        cell = chance.choice(candidates)
        value = chance.choice(impossible(cell))
        if value == "CAST":
            value = "x"
        if not damaged(whole, tmp_path / "copy.db", cell, value):
            continue
        report = diagnose(tmp_path / "copy.db", home)
        assert report.findings, (cell, value)
        assert not any("could not be finished" in one.message for one in report.findings), cell


def test_text_that_is_not_utf_8_is_one_finding_and_what_is_behind_it_is_checked_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    copy, undamaged = tmp_path / "copy.db", diagnose(whole, home)
    for table, column in (
        ("changes", "operation"),
        ("stores", "name"),
        ("principals", "name"),
        ("revisions", "kind"),
        ("events", "type"),
        ("refs", "name"),
        ("assignments", "origin"),
        ("workspaces", "name"),
    ):
        shutil.copy(whole, copy)
        with sqlite3.connect(copy) as connection:
            key = connection.execute(f"PRAGMA table_info({table})").fetchall()[1][1]
            least = f"(SELECT MIN({key}) FROM {table})"
            change = f"UPDATE {table} SET {column} = CAST(x'ff80' AS TEXT)"
            connection.execute(f"{change} WHERE {key} = {least}")
        connection.close()
        report = diagnose(copy, home)
        assert table in {one.kind for one in report.findings}, (table, report.findings)
        if table != "refs":
            assert report.checked == undamaged.checked, table


def test_every_row_that_is_taken_away_or_put_elsewhere_is_missed_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    tables = {cell.table for cell in cells(whole)} - {"principals"}
    for table in sorted(tables):
        shutil.copy(whole, copy)
        with sqlite3.connect(copy) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            key = columns[1] if len(columns) > 1 else columns[0]
            where = f"{key} = (SELECT MAX({key}) FROM {table})"
            connection.execute(f"DELETE FROM {table} WHERE {where}")
        connection.close()
        report = diagnose(copy, home)
        # A row that says which store is somebody's default can be taken back at any time.
        assert report.findings or table in ("default_stores", "event_payloads"), table


def test_a_document_that_answers_with_the_content_of_another_is_found_n25(
    tmp_path: Path, home: Path
) -> None:
    whole = filled(tmp_path / "made")
    with sqlite3.connect(whole) as connection:
        at = "path = CAST(? AS BLOB)"
        row = connection.execute(
            f"SELECT blob_id, size FROM documents WHERE {at}", ["/a/3.md"]
        ).fetchone()
        connection.execute(
            f"UPDATE documents SET blob_id = ?, size = ? WHERE {at}", [*row, "/a/4.md"]
        )
    connection.close()
    report = diagnose(whole, home)
    places = [(one.kind, one.place) for one in report.findings]
    assert places == [("documents", "/a/4.md")], report.findings


def rows_of(database: Path) -> dict[str, list[Any]] | None:
    """Every row of every table, or None where SQLite cannot read them."""
    connection = sqlite3.connect(database)
    connection.text_factory = bytes
    try:
        names = [
            row[0].decode()
            for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in names}
    except (sqlite3.Error, UnicodeDecodeError):
        return None
    finally:
        connection.close()


def only_unproven(before: dict[str, list[Any]], after: dict[str, list[Any]]) -> bool:
    """Whether all that differs is what nothing in the database can tell, or is no workspace's."""
    known = {"stores": {1, 2, 3, 8, 10}, "workspaces": {1, 3, 4, 5}, "principals": {2, 3, 4, 5}}
    known |= {"api_keys": {3, 5, 7}, "owners": {3, 5}, "changes": {2}}
    for table in before.keys() | after.keys():
        old, new = before.get(table, []), after.get(table, [])
        if old == new or table in ("migrations", "instance", "sqlite_sequence"):
            continue
        if len(old) != len(new):
            return False
        for one, two in zip(old, new, strict=True):
            differ = {
                at for at, pair in enumerate(zip(one, two, strict=True)) if pair[0] != pair[1]
            }
            if not differ <= known.get(table, set()):
                return False
    return True


@pytest.mark.slow
def test_bytes_flipped_in_the_file_are_found_wherever_they_change_a_row_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    raw, before = whole.read_bytes(), rows_of(whole)
    assert before is not None
    copy = tmp_path / "copy.db"
    told = 0
    for _ in range(FLIPS):
        at, bit = chance.randrange(100, len(raw)), 1 << chance.randrange(8)
        copy.write_bytes(raw[:at] + bytes([raw[at] ^ bit]) + raw[at + 1 :])
        after = rows_of(copy)
        try:
            report = diagnose(copy, home)
        except Unavailable:
            continue
        if after is None or not only_unproven(before, after):
            told += 1
            assert report.findings, (at, bit)
    assert told >= 10


def test_what_belongs_to_nothing_is_found_n25(whole: Path, home: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    for table, part in (
        ("documents", "store_id"),
        ("blobs", "pool_id"),
        ("nodes", "workspace_id"),
        ("events", "stream_id"),
        ("changes", "revision_id"),
    ):
        shutil.copy(whole, copy)
        with sqlite3.connect(copy) as connection:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            shown = ", ".join("randomblob(16)" if one == part else one for one in columns)
            if table == "changes":
                shown = shown.replace("change_id", "randomblob(16)", 1)
            copied = f"INSERT INTO {table} SELECT {shown} FROM {table} LIMIT 1"
            connection.execute(copied)
        connection.close()
        report = diagnose(copy, home)
        assert table in {one.kind for one in report.findings}, (table, report.findings)


def test_what_no_tree_needs_is_counted_as_a_warning_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(whole, copy)
    with sqlite3.connect(copy) as connection:
        connection.execute(
            "INSERT INTO blobs SELECT workspace_id, pool_id,"
            " x'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855', 0, x''"
            " FROM blobs LIMIT 1"
        )
    connection.close()
    report = diagnose(copy, home)
    assert report.findings == []
    (warning,) = report.warnings
    assert warning.kind == "blobs" and "1" in warning.message


def test_many_like_findings_are_counted_and_not_all_listed_n25(tmp_path: Path, home: Path) -> None:
    async def run() -> None:
        async with wired(tmp_path / "made", f"sqlite:///{tmp_path / 'many.db'}") as wire:
            store = await wire.store()
            await wire.fill(store, {f"/{n:03}.md": str(n) for n in range(300)})

    asyncio.run(run())
    with sqlite3.connect(tmp_path / "many.db") as connection:
        connection.execute("UPDATE documents SET updated_at = 7")
    connection.close()
    report = diagnose(tmp_path / "many.db", home)
    assert len(report.findings) == FINDINGS_MAX + 1
    assert report.findings[-1].message.startswith(f"{300 - FINDINGS_MAX} more")


async def test_jobs_about_living_stores_are_findings_and_parked_ones_warnings_n25(
    wire: Wire,
) -> None:
    store = StoreId(await wire.store())
    job = new_job(JobId("job_" + "1" * 32), ERASE_STORE, store, 1)

    async def enqueue(tx: Any) -> None:
        tx.enqueue(DEFAULT_WORKSPACE, job)

    await wire.storage.write(None, enqueue)
    report = await doctor.diagnose(wire.storage)
    assert [(one.kind, one.place) for one in report.findings] == [("jobs", job.id)]


async def test_it_runs_beside_writers_and_finds_nothing_n25(tmp_path: Path, home: Path) -> None:
    database = tmp_path / "busy.db"
    async with wired(tmp_path / "made", f"sqlite:///{database}") as wire:
        store = await wire.store()

        async def write(writer: int) -> None:
            for n in range(25):
                await wire.put(store, f"/{writer}/{n}.md", "x")

        async def check() -> list[Report]:
            return [await asyncio.to_thread(diagnose, database, home) for _ in range(4)]

        reports, *_ = await asyncio.gather(check(), *(write(writer) for writer in range(4)))
        assert [one.findings for one in reports] == [[]] * 4


def test_the_files_of_a_database_stay_as_they_are_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "kept" / "copy.db"
    copy.parent.mkdir()
    shutil.copy(whole, copy)
    # A server that was killed has left a log, which stays where it is.
    connection = sqlite3.connect(copy)
    connection.execute("UPDATE instance SET probed_at = probed_at + 1")
    connection.commit()
    left = tmp_path / "left"
    shutil.copytree(copy.parent, left)
    connection.close()
    for folder in (copy.parent, left):
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        before.pop("copy.db-shm", None)
        assert diagnose(folder / "copy.db", home).findings == []
        after = {file.name: file.read_bytes() for file in folder.iterdir()}
        after.pop("copy.db-shm", None)
        assert after == before
    assert (left / "copy.db-wal").stat().st_size > 0


def test_another_schema_is_refused_with_what_to_do_n25(
    whole: Path, home: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    for change, message in (
        ("DELETE FROM migrations WHERE version > 1", "run `muniment migrate`"),
        ("INSERT INTO migrations VALUES (999, 'later', 1)", "upgrade it"),
        ("DROP TABLE migrations", "no schema"),
    ):
        shutil.copy(whole, copy)
        with sqlite3.connect(copy) as connection:
            connection.execute(change)
        connection.close()
        with pytest.raises(Unavailable, match=message):
            diagnose(copy, home)


def test_sealed_bodies_are_opened_and_a_wrong_master_key_is_a_finding_n25(
    tmp_path: Path, home: Path
) -> None:
    key = "5a" * 32
    whole = filled(tmp_path / "made", master_key=key)
    assert diagnose(whole, home, master_key=key).findings == []
    for other_key in ("", "6b" * 32):
        (finding,) = diagnose(whole, home, master_key=other_key).findings
        assert "MUNIMENT_MASTER_KEY" in finding.message
    with sqlite3.connect(whole) as connection:
        least = "(SELECT MIN(blob_id) FROM blob_keys)"
        (blob,) = connection.execute("SELECT MIN(blob_id) FROM blob_keys").fetchone()
        connection.execute(f"DELETE FROM blob_keys WHERE blob_id = {least}")
        connection.execute("UPDATE blobs SET body = body || x'00' WHERE blob_id <> ?", [blob])
    connection.close()
    report = diagnose(whole, home, master_key=key)
    assert {one.kind for one in report.findings} == {"blobs"}
    assert len(report.findings) == report.checked["blobs"]
    assert blob.hex() in {one.place for one in report.findings}


@pytest.mark.postgres
async def test_changed_values_are_found_on_postgresql_n25(
    postgres_dsn: str, tmp_path: Path
) -> None:
    async with wired(tmp_path / "made", postgres_dsn) as wire:
        store = await fill(wire)
        assert (await doctor.diagnose(wire.storage)).findings == []
        assert (await wire.owner.get(document_url(store), params={"path": "/a/4.md"})).is_success
    for table, change in (
        ("documents", "size = size + 1"),
        ("changes", "seq = seq + 1 WHERE path = '/a/3.md'"),
        ("revisions", "total_bytes = total_bytes + 1 WHERE kind = 'changes'"),
        ("refs", "version = version + 1"),
        ("nodes", "body = body || '\\x00'"),
        ("blobs", "body = body || '\\x00'"),
        ("streams", "seq = seq - 1"),
        ("api_keys", "role = 'member' WHERE role = 'admin'"),
        ("assignments", "can_write = 1 - can_write"),
        ("stores", "status = 'odd' WHERE status = 'archived'"),
    ):
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
            await connection.execute(f"CREATE TABLE kept AS TABLE {table}")
            await connection.execute(f"UPDATE {table} SET {change}")
        async with wired(tmp_path / "made", postgres_dsn) as wire:
            report = await doctor.diagnose(wire.storage)
        assert table in {one.kind for one in report.findings}, (table, report.findings)
        assert not any("finished" in one.message for one in report.findings)
        async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
            await connection.execute(f"DELETE FROM {table}")
            await connection.execute(f"INSERT INTO {table} SELECT * FROM kept")
            await connection.execute("DROP TABLE kept")


def test_the_report_is_json_n25(whole: Path, home: Path) -> None:
    report = json.loads(msgspec.json.encode(diagnose(whole, home)))
    assert report["findings"] == [] and report["schema"] >= 2
