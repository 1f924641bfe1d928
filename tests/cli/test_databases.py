"""`muniment backup`, `restore` and `migrate`, as people call them."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muniment.storage.sqlite import NEWEST, WORDS
from muniment.storage.statements import migrations, split_script
from muniment.testing.server import Server
from shell import Shell

MASTER_KEY = "ab" * 32


@pytest.fixture
def notes(shell: Shell) -> Shell:
    """A home with one store and one document."""
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a.md", "--text", "first")
    return shell


@pytest.fixture
def copy(notes: Shell, tmp_path: Path) -> Path:
    """A backup of it."""
    notes.answer("backup", str(tmp_path / "copy.db"))
    return tmp_path / "copy.db"


def database(shell: Shell) -> Path:
    return shell.home / "muniment.db"


def change(file: Path, statement: str) -> None:
    """Changes a database behind Muniment's back."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def old_database(file: Path, version: int) -> None:
    """An empty database of an earlier schema."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(file)) as connection, connection:
        for number, name, text in migrations(WORDS)[:version]:
            for statement in split_script(text):
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?, 1)", (number, name))
        connection.execute("INSERT INTO instance VALUES (1, zeroblob(32), NULL, 0)")


# Backup


def test_a_backup_says_what_it_holds(notes: Shell, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    done = notes.run("backup", str(file))
    assert (done.returncode, done.stderr.decode()) == (0, f"copied {database(notes)} to {file}\n")
    lines = dict(line.split("  ", 1) for line in done.stdout.decode().splitlines())
    held = {name: value.strip() for name, value in lines.items()}
    assert held.pop("last write").startswith("20")
    assert held == {
        "bytes": str(file.stat().st_size),
        "workspaces": "1",
        "stores": "1",
        "documents": "1",
        "schema": str(NEWEST),
        "sealed": "no",
    }
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if path != notes.home] == ["copy.db"]


def test_a_backup_is_told_to_programs(notes: Shell, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    done = notes.run("backup", str(file), "--json")
    held = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, b"")
    assert held.pop("last_write").endswith("Z")
    assert held == {
        "file": str(file),
        "database": str(database(notes)),
        "bytes": file.stat().st_size,
        "workspaces": 1,
        "stores": 1,
        "documents": 1,
        "schema": NEWEST,
        "sealed": False,
    }


def test_a_backup_of_an_older_schema_leaves_it_as_it_is(shell: Shell, tmp_path: Path) -> None:
    old_database(database(shell), 1)
    assert json.loads(shell.answer("backup", str(tmp_path / "copy.db"), "--json"))["schema"] == 1
    with closing(sqlite3.connect(database(shell))) as connection:
        assert connection.execute("SELECT MAX(version) FROM migrations").fetchone() == (1,)


def test_a_file_that_exists_is_replaced_only_by_force(notes: Shell, tmp_path: Path) -> None:
    file = tmp_path / "copy.db"
    file.write_bytes(b"something else")
    assert "exists" in notes.refusal("backup", str(file))
    assert file.read_bytes() == b"something else"
    notes.answer("backup", str(file), "--force")
    assert file.read_bytes().startswith(b"SQLite format 3\0")
    assert file.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_a_backups_file_is_refused(notes: Shell, tmp_path: Path) -> None:
    own = database(notes)
    alias = tmp_path / "alias.db"
    alias.symlink_to(own)
    twin = tmp_path / "twin.db"
    twin.hardlink_to(own)
    os.mkfifo(tmp_path / "pipe")
    assert "no stream" in notes.refusal("backup", "-", status=2)
    assert "is a folder" in notes.refusal("backup", str(tmp_path))
    assert "there is no folder" in notes.refusal("backup", str(tmp_path / "no" / "copy.db"))
    assert "is no file" in notes.refusal("backup", str(tmp_path / "pipe"), "--force")
    for itself in (own, alias, twin, own.with_name("muniment.db-wal")):
        assert "is the database itself" in notes.refusal("backup", str(itself), "--force")
    (tmp_path / "copy.db-wal").write_bytes(b"of another one")
    assert "copy.db-wal is there" in notes.refusal("backup", str(tmp_path / "copy.db"))
    notes.answer("doc", "get", "notes", "/a.md")


def test_a_backup_does_not_replace_a_database_that_is_in_use(notes: Shell, tmp_path: Path) -> None:
    with Server(tmp_path / "other") as server:
        said = notes.refusal("backup", str(server.home / "muniment.db"), "--force")
        assert "another process has" in said


def test_what_is_no_database_is_not_backed_up(shell: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "copy.db")
    assert "there is no database at" in shell.refusal("backup", file)
    assert not shell.home.exists()
    assert "pg_dump" in shell.refusal("backup", file, "--db", "postgresql://u:secret@h/d")
    assert "secret" not in shell.refusal("backup", file, "--db", "postgresql://u:secret@h/d")
    assert "has no file" in shell.refusal("backup", file, "--db", "memory:")
    other = tmp_path / "other.db"
    other.write_bytes(b"text " * 1000)
    assert "no database of Muniment" in shell.refusal("backup", file, "--db", str(other))
    other.write_bytes(b"")
    assert "no database of Muniment" in shell.refusal("backup", file, "--db", str(other))
    assert not Path(file).exists()


def test_a_damaged_database_makes_no_backup(notes: Shell, tmp_path: Path) -> None:
    change(database(notes), "UPDATE blobs SET body = CAST('forged' AS BLOB)")
    file = tmp_path / "copy.db"
    assert "not what its hash says" in notes.refusal("backup", str(file))
    change(database(notes), "DELETE FROM documents")
    assert "number of documents" in notes.refusal("backup", str(file))
    assert [path for path in tmp_path.iterdir() if path != notes.home] == []


# Restore


def test_a_backup_is_restored_into_a_fresh_home(copy: Path, notes: Shell, tmp_path: Path) -> None:
    fresh = Shell(tmp_path / "fresh")
    done = fresh.run("restore", str(copy))
    said = done.stderr.decode()
    assert done.returncode == 0
    assert f"restored {database(fresh)} from {copy}\n" in said
    assert "there is no key in" in said and "kept as" not in said
    assert database(fresh).stat().st_mode & 0o777 == 0o600
    assert fresh.home.stat().st_mode & 0o777 == 0o700
    shutil.copy2(notes.home / "credentials", fresh.home / "credentials")
    assert fresh.answer("doc", "get", "notes", "/a.md") == "first"


def test_a_restore_takes_the_same_home_back(copy: Path, notes: Shell) -> None:
    notes.answer("doc", "put", "notes", "/a.md", "--text", "second", "--replace")
    assert "there is a database at" in notes.refusal("restore", str(copy))
    done = notes.run("restore", str(copy), "--force")
    kept = notes.home / "muniment.db.before-restore"
    assert done.returncode == 0 and f"kept as {kept}" in done.stderr.decode()
    assert "commands on this machine are its owner's" in done.stderr.decode()
    assert notes.answer("doc", "get", "notes", "/a.md") == "first"
    assert notes.answer("doc", "get", "notes", "/a.md", "--db", str(kept)) == "second"
    told = json.loads(notes.answer("restore", str(copy), "--force", "--json"))
    assert told["kept"] == f"{kept}-2" and told["owned"] is True and told["migrates"] is False
    assert notes.answer("doc", "get", "notes", "/a.md", "--db", str(kept)) == "second"


def test_a_restore_says_that_this_homes_key_is_another(copy: Path, tmp_path: Path) -> None:
    other = Shell(tmp_path / "other")
    other.answer("migrate")
    other.answer("store", "create", "own")
    done = other.run("restore", str(copy), "--force")
    assert "is none of it: put the credentials file" in done.stderr.decode()
    assert json.loads(other.answer("restore", str(copy), "--force", "--json"))["owned"] is False


def test_an_older_schema_is_restored_and_migrated_later(shell: Shell, tmp_path: Path) -> None:
    old_database(tmp_path / "old.db", 1)
    done = shell.run("restore", str(tmp_path / "old.db"))
    assert "it has schema 1: the next start" in done.stderr.decode()
    said = shell.run("migrate").stderr.decode()
    assert said == f"brought the database from schema 1 to {NEWEST}\n"


def test_what_is_no_good_backup_is_refused(copy: Path, notes: Shell, tmp_path: Path) -> None:
    before = database(notes).read_bytes()
    bad = tmp_path / "bad.db"

    def refusal() -> str:
        return notes.refusal("restore", str(bad), "--force")

    assert "no stream" in notes.refusal("restore", "-", status=2)
    assert "there is no file" in refusal()
    assert "is no file" in notes.refusal("restore", str(tmp_path), "--force")
    assert "is the database itself" in notes.refusal("restore", str(database(notes)), "--force")
    for content in (b"", b"text " * 1000):
        bad.write_bytes(content)
        assert "no database of Muniment" in refusal()
    bad.unlink()
    change(bad, "CREATE TABLE migrations (version)")
    assert "no database of Muniment" in refusal()
    whole = copy.read_bytes()
    bad.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in refusal() or "malformed" in refusal()
    bad.write_bytes(whole.replace(b"first", b"forge"))
    assert "not what its hash says" in refusal()
    bad.write_bytes(whole)
    change(bad, "INSERT INTO migrations VALUES (99, 'later', 1)")
    assert f"has schema 99, this program knows {NEWEST}" in refusal()
    assert database(notes).read_bytes() == before
    assert not list(notes.home.glob("*before-restore*")) and not list(notes.home.glob(".*"))


def test_a_file_with_a_damaged_page_is_refused(copy: Path, notes: Shell) -> None:
    whole = copy.read_bytes()
    assert len(whole) // 4096 > 30
    for page in range(1, len(whole) // 4096, 5):
        spoilt = bytearray(whole)
        spoilt[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        copy.write_bytes(spoilt)
        done = notes.run("restore", str(copy), "--force")
        assert done.returncode == 1, page


def test_a_backup_that_is_sealed_needs_its_master_key(shell: Shell, tmp_path: Path) -> None:
    file, fresh = tmp_path / "copy.db", Shell(tmp_path / "fresh")
    shell.environment["MUNIMENT_MASTER_KEY"] = MASTER_KEY
    shell.answer("store", "create", "notes")
    del shell.environment["MUNIMENT_MASTER_KEY"]
    assert "MUNIMENT_MASTER_KEY" in shell.run("backup", str(file)).stderr.decode()
    assert "sealed under another master key" in fresh.refusal("restore", str(file))
    fresh.environment["MUNIMENT_MASTER_KEY"] = "cd" * 32
    assert "sealed under another master key" in fresh.refusal("restore", str(file))
    assert not fresh.home.exists()
    fresh.environment["MUNIMENT_MASTER_KEY"] = MASTER_KEY
    fresh.answer("restore", str(file))


def test_other_databases_are_not_restored(copy: Path, shell: Shell) -> None:
    said = shell.refusal("restore", str(copy), "--db", "postgresql://u:secret@h/d")
    assert "pg_restore" in said and "docs/operating.md" in said and "secret" not in said
    assert "has no file" in shell.refusal("restore", str(copy), "--db", "memory:")


def test_a_database_that_is_open_is_never_replaced(copy: Path, notes: Shell) -> None:
    """Not one that a server has, idle as it is, and not one that an embedded program has."""
    with Server(notes.home) as server:
        for force in ((), ("--force",)):
            said = notes.refusal("restore", str(copy), *force)
            assert ("another process has" if force else "there is a database") in said
        before = notes.answer("doc", "get", "notes", "/a.md", "--url", server.url)
        server.stop()
    program = (
        "import muniment; client = muniment.open(); client.whoami();"
        " print('open', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=notes.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as embedded:
        assert embedded.stdout is not None and embedded.stdout.readline() == b"open\n"
        assert "another process has" in notes.refusal("restore", str(copy), "--force")
        embedded.communicate(b"\n")
    assert before == "first"
    assert not list(notes.home.glob("*before-restore*"))
    notes.answer("restore", str(copy), "--force")


@pytest.fixture
def crashed(notes: Shell) -> Iterator[Shell]:
    """A home whose server was killed, so that its log lies beside the database."""
    with Server(notes.home) as server:
        notes.answer("doc", "put", "notes", "/b.md", "--text", "late", "--url", server.url)
        server.kill()
    assert (notes.home / "muniment.db-wal").stat().st_size > 0
    yield notes


def test_a_log_of_the_old_database_never_meets_the_new(copy: Path, crashed: Shell) -> None:
    crashed.answer("restore", str(copy), "--force")
    kept = crashed.home / "muniment.db.before-restore"
    assert {path.name for path in crashed.home.iterdir()} == {
        "credentials", "muniment.db", "muniment.db.before-restore", "serve.log"
    }  # fmt: skip
    assert crashed.answer("doc", "ls", "notes", "--paths") == "/a.md"
    listed = crashed.answer("doc", "ls", "notes", "--paths", "--db", str(kept))
    assert listed == "/a.md\n/b.md"


def test_a_log_without_its_database_is_set_aside(copy: Path, crashed: Shell) -> None:
    database(crashed).unlink()
    log = (crashed.home / "muniment.db-wal").read_bytes()
    crashed.answer("restore", str(copy))
    assert (crashed.home / "muniment.db.before-restore-wal").read_bytes() == log
    assert crashed.answer("doc", "ls", "notes", "--paths") == "/a.md"


def test_a_log_without_its_database_never_meets_one_that_was_kept(
    copy: Path, crashed: Shell
) -> None:
    kept = crashed.home / "muniment.db.before-restore"
    kept.write_bytes(b"kept before")
    database(crashed).unlink()
    log = (crashed.home / "muniment.db-wal").read_bytes()
    crashed.answer("restore", str(copy))
    assert kept.read_bytes() == b"kept before"
    assert not kept.with_name(f"{kept.name}-wal").exists()
    assert (crashed.home / "muniment.db.before-restore-2-wal").read_bytes() == log


def test_a_damaged_database_is_replaced_and_kept_with_its_log(copy: Path, crashed: Shell) -> None:
    spoilt = b"spoilt" + database(crashed).read_bytes()[6:]
    database(crashed).write_bytes(spoilt)
    log = (crashed.home / "muniment.db-wal").read_bytes()
    crashed.answer("restore", str(copy), "--force")
    assert crashed.answer("doc", "ls", "notes", "--paths") == "/a.md"
    kept = crashed.home / "muniment.db.before-restore"
    assert (kept.read_bytes(), kept.with_name(f"{kept.name}-wal").read_bytes()) == (spoilt, log)


# Migrate


def test_a_migration_says_what_it_did(shell: Shell) -> None:
    file = database(shell)
    made = shell.run("migrate").stderr.decode()
    assert made == f"made a new database at {file}, with schema {NEWEST}\n"
    said = shell.run("migrate").stderr.decode()
    assert said.endswith(f"the database has schema {NEWEST}: there is nothing to do\n")
    assert json.loads(shell.answer("migrate", "--json")) == {"schema": NEWEST, "before": NEWEST}
    file.unlink()
    old_database(file, 1)
    assert json.loads(shell.answer("migrate", "--json")) == {"schema": NEWEST, "before": 1}


def test_an_old_program_refuses_a_newer_schema_k20(shell: Shell) -> None:
    shell.answer("migrate")
    change(database(shell), "INSERT INTO migrations VALUES (99, 'later', 1)")
    for command in (("migrate",), ("serve", "--port", "0"), ("whoami",)):
        assert f"the database has schema 99, this program knows {NEWEST}" in shell.refusal(*command)


def test_a_migration_of_postgresql_says_what_it_did(shell: Shell, postgres_dsn: str) -> None:
    told = [json.loads(shell.run("migrate", "--json", "--db", postgres_dsn).stdout) for _ in "12"]
    assert told == [{"schema": NEWEST, "before": 0}, {"schema": NEWEST, "before": NEWEST}]
    said = shell.run("migrate", "--db", postgres_dsn).stderr.decode()
    assert said.endswith(f"the database has schema {NEWEST}: there is nothing to do\n")
