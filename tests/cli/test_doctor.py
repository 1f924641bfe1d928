"""`muniment doctor` and `muniment audit verify` as people and scripts run them."""

import json
import re
import sqlite3
from pathlib import Path

from muniment.testing.server import Server
from shell import Shell


def change(shell: Shell, text: str) -> None:
    """Changes the embedded database behind everybody's back."""
    with sqlite3.connect(shell.home / "muniment.db") as connection:
        connection.execute(text)
    connection.close()


def test_doctor_lists_what_it_checked_and_what_it_found_n25(shell: Shell, tmp_path: Path) -> None:
    store = shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a.md", "--text", "one")
    run = shell.run("doctor")
    lines = run.stdout.decode().splitlines()
    assert lines[0].split() == ["CHECKED", "COUNT"]
    assert ["documents", "1"] in [line.split() for line in lines]
    assert (run.returncode, run.stderr) == (0, b"whole: no findings\n")
    change(shell, "UPDATE documents SET size = 4")
    run = shell.run("doctor")
    assert run.returncode == 1 and run.stderr.startswith(b"damaged: 1 finding; ")
    last = run.stdout.decode().splitlines()[-1]
    assert last.startswith("finding: documents: ") and f"{store} /a.md: " in last
    report = json.loads(shell.run("doctor", "--json", "--store", store).stdout)
    (finding,) = report["findings"]
    assert (finding["kind"], finding["store"], finding["place"]) == ("documents", store, "/a.md")
    assert report["checked"]["stores"] == 1 and report["warnings"] == []
    assert "no workspace has the store" in shell.refusal("doctor", "--store", store[:-1] + "0")


def test_doctor_goes_on_behind_a_page_that_cannot_be_read_n25(shell: Shell) -> None:
    shell.answer("store", "create", "notes")
    path = shell.home / "muniment.db"
    with sqlite3.connect(path) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = "SELECT rootpage FROM sqlite_master WHERE name = 'instance'"
        page = connection.execute(root).fetchone()[0]
    connection.close()
    raw = bytearray(path.read_bytes())
    raw[(page - 1) * size : page * size] = b"\xee" * size
    path.write_bytes(raw)
    run = shell.run("doctor")
    said = run.stdout.decode()
    assert run.returncode == 1 and run.stderr.startswith(b"damaged: ")
    assert "finding: instance: " in said and "finding: database: " in said
    assert ["stores", "1"] in [line.split() for line in said.splitlines()]


def test_doctor_opens_what_is_there_and_makes_nothing_n25(shell: Shell, tmp_path: Path) -> None:
    nowhere = tmp_path / "none" / "a.db"
    assert f"there is no database at {nowhere}" in shell.refusal("doctor", "--db", str(nowhere))
    empty = tmp_path / "empty.db"
    empty.touch()
    assert "no schema" in shell.refusal("doctor", "--db", str(empty))
    assert "memory:" in shell.refusal("doctor", "--db", "memory:")
    assert "--store" in shell.refusal("doctor", "--db", str(empty), "--store", "x", status=2)
    assert not shell.home.exists() and not nowhere.parent.exists()
    assert empty.stat().st_size == 0


def test_audit_verifies_with_a_key_or_in_the_database_c161(shell: Shell) -> None:
    store = shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a.md", "--text", "one")
    noted = json.loads(shell.answer("audit", "verify", "--json"))["streams"]
    assert [one["damage"] for one in noted] == [None, None]
    head = f"{noted[1]['head']['seq']}:{noted[1]['head']['hash']}"
    shell.answer("doc", "put", "notes", "/b.md", "--text", "two")
    database = str(shell.home / "muniment.db")
    inside = shell.run("audit", "verify", "--db", database, "--head", f"{store}={head}")
    outside = shell.run("audit", "verify", "--head", f"{store}={head}")
    assert inside.stdout == outside.stdout and inside.returncode == outside.returncode == 0
    assert outside.stderr == b"verified: 6 events in 2 streams\n"
    assert shell.run("audit", "verify", "--store", "notes", "--head", head).returncode == 0
    wrong = "2:" + "0" * 64
    run = shell.run("audit", "verify", "--store", "notes", "--head", wrong)
    assert run.returncode == 1 and b"event 2: its hash is not the one that was noted" in run.stdout
    assert "--head" in shell.refusal("audit", "verify", "--head", "2", status=2)
    change(shell, "UPDATE event_payloads SET salt = zeroblob(16) WHERE seq = 3")
    for options in ((), ("--db", database)):
        run = shell.run("audit", "verify", *options)
        assert run.returncode == 1 and run.stderr.endswith(b"damaged: 2 of 2 streams\n")
        assert run.stdout.count(b"event 3: its payload and salt do not fit") == 2


def test_what_was_named_or_noted_and_is_not_seen_is_not_verified(shell: Shell) -> None:
    store = shell.answer("store", "create", "notes")
    database = str(shell.home / "muniment.db")
    (head,) = re.findall(r"1:[0-9a-f]{64}", shell.answer("audit", "verify", "--store", store))
    shell.answer("store", "delete", "notes", "--yes")
    for options in ((), ("--db", database)):
        shell.refusal("audit", "verify", "--store", "memstore_" + "0" * 32, *options)
        run = shell.run("audit", "verify", "--head", f"{store}={head}", *options)
        assert run.returncode == 1 and b"it is not to be seen" in run.stdout
    assert "no such memory store" in shell.refusal("audit", "verify", "--store", store)


def test_audit_says_what_a_member_does_not_see_c161(server: Server, tmp_path: Path) -> None:
    owner, member = Shell(server.home), Shell(tmp_path / "member")
    for each in (owner, member):
        each.environment["MUNIMENT_URL"] = server.url
    owner.answer("store", "create", "hidden")
    key = json.loads(owner.answer("key", "create", "auditor", "--json"))["secret"]
    member.environment["MUNIMENT_API_KEY"] = key
    mine = member.answer("store", "create", "mine")
    run = member.run("audit", "verify", "--json")
    answer = json.loads(run.stdout)
    assert run.returncode == 0
    assert [one["stream"] for one in answer["streams"]][1:] == [mine]
    assert len(answer["not_seen"]) == 2
    assert b"not seen: stores on which" in member.run("audit", "verify").stderr
    assert owner.run("audit", "verify").returncode == 0
