"""The commands as people and scripts run them: output, statuses, and what is never overwritten."""

import json
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from muniment import __version__
from muniment.testing.server import Server
from shell import Shell


def test_a_script_makes_a_store_and_writes_documents_r06(shell: Shell) -> None:
    store = shell.answer("store", "create", "notes")
    assert store.startswith("memstore_")
    sha256 = shell.answer("doc", "put", "notes", "/a.md", "-", input="Grüße\r\n".encode())
    raw = shell.run("doc", "get", store, "/a.md").stdout
    assert raw == "Grüße\r\n".encode()
    listed = shell.answer("doc", "ls", "notes").splitlines()
    assert [line.split()[0] for line in listed] == ["PATH", "/a.md"]
    assert sha256 in listed[1]
    assert shell.answer("doc", "ls", "notes", "/b", "--paths") == ""
    shell.answer("doc", "rm", "notes", "/a.md")
    assert shell.refusal("doc", "get", "notes", "/a.md") == "no document at /a.md"


def test_nothing_is_overwritten_unread_c210(shell: Shell, tmp_path: Path) -> None:
    shell.answer("store", "create", "notes")
    first = shell.answer("doc", "put", "notes", "/a", "--text", "one")
    assert first in shell.refusal("doc", "put", "notes", "/a", "--text", "two")
    wrong = "0" * 64
    assert first in shell.refusal("doc", "put", "notes", "/a", "--text", "2", "--if-match", wrong)
    assert first in shell.refusal("doc", "rm", "notes", "/a", "--if-match", wrong)
    file = tmp_path / "content"
    file.write_bytes(b"two")
    second = shell.answer("doc", "put", "notes", "/a", str(file), "--replace")
    assert shell.answer("doc", "get", "notes", "/a") == "two"
    shell.answer("doc", "put", "notes", "/a", "--text", "three", "--if-match", second)
    assert shell.answer("doc", "get", "notes", "/a") == "three"


def test_machines_get_json(shell: Shell) -> None:
    made = json.loads(shell.answer("store", "create", "notes", "--json"))
    assert made["owner"]["kind"] == "principal"
    assert json.loads(shell.answer("store", "list", "--json")) == [made]
    left = json.loads(shell.answer("doc", "put", "notes", "/a", "--text", "x", "--json"))
    (item,) = json.loads(shell.answer("doc", "ls", "notes", "--json"))
    assert item["sha256"] == left["sha256"]
    assert json.loads(shell.answer("doc", "ls", "notes", "/none", "--json")) == []
    assert json.loads(shell.answer("doc", "get", "notes", "/a", "--json"))["content"] == "x"
    assert json.loads(shell.answer("whoami", "--json"))["principal"]["name"] == "owner"


def test_an_ambiguous_name_lists_the_ids_r06(shell: Shell) -> None:
    ids = [shell.answer("store", "create", "notes") for _ in range(2)]
    error = shell.refusal("doc", "ls", "notes")
    assert all(identifier in error for identifier in ids)
    shell.answer("store", "archive", ids[0])
    assert shell.answer("store", "show", "notes", "--json").count(ids[1]) == 1
    assert "'none'" in shell.refusal("doc", "ls", "none")


def test_a_shared_store_is_under_proposals_and_open_to_its_maker_r06(shell: Shell) -> None:
    store = shell.answer("store", "create", "kb", "--shared", "--description", "What we know")
    shown = json.loads(shell.answer("store", "show", "kb", "--json"))
    assert (shown["owner"]["kind"], shown["promotion_policy"]) == ("workspace", "proposal")
    access = json.loads(shell.answer("access", store, "--json"))
    assert (access["read"], access["write"]) == (True, True)
    assert "proposals" in shell.refusal("doc", "put", "kb", "/a", "--text", "x")
    shell.answer("store", "update", "kb", "--policy", "direct", "--description", "")
    shell.answer("doc", "put", "kb", "/a", "--text", "x")


def test_access_is_granted_to_a_key_and_taken_back(shell: Shell) -> None:
    store = shell.answer("store", "create", "notes")
    secret = shell.answer("key", "create", "reader", "--expires", "2999-01-01")
    (reader,) = (
        key for key in json.loads(shell.answer("key", "list", "--json")) if key["name"] == "reader"
    )
    assert "no such" in shell.refusal("doc", "ls", store, "--key", secret)
    grant = shell.answer("grant", "add", "notes", reader["id"], "--read")
    assert shell.answer("doc", "ls", store, "--paths", "--key", secret) == ""
    assert grant in shell.answer("grant", "list", "notes")
    shell.answer("grant", "rm", grant)
    shell.refusal("doc", "ls", store, "--key", secret)
    shell.answer("key", "revoke", reader["id"])
    assert "revoked" in shell.refusal("whoami", "--key", secret)
    principal = shell.answer("principal", "create", "Ada", "--person")
    assert principal in shell.answer("principal", "list")


def test_a_store_is_deleted_only_by_somebody_who_means_it(shell: Shell) -> None:
    store = shell.answer("store", "create", "notes")
    assert "--yes" in shell.refusal("store", "delete", "notes", status=2)
    assert answered(shell, b"n\n", "store", "delete", "notes") == 1
    assert answered(shell, b"y\n", "store", "delete", "notes") == 0
    assert store not in shell.answer("store", "list")
    assert store in shell.answer("store", "list", "--deleted")


def answered(shell: Shell, answer: bytes, *arguments: str) -> int:
    """The status of a command at a terminal where somebody types the answer."""
    master, slave = pty.openpty()
    process = shell.start(*arguments, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.write(master, answer)
    status = process.wait(60)
    os.close(master)
    return status


def editor(tmp_path: Path, script: str) -> str:
    """An EDITOR that runs Python over the file."""
    path = tmp_path / "editor.py"
    path.write_text(f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n{script}\n")
    return f"'{sys.executable}' '{path}'"


def test_a_document_is_edited_in_the_editor(shell: Shell, tmp_path: Path) -> None:
    shell.answer("store", "create", "notes")
    shell.environment["EDITOR"] = editor(
        tmp_path, "file.write_bytes(file.read_bytes() + b'!\\r\\n')"
    )
    shell.answer("doc", "edit", "notes", "/a.md")
    shell.answer("doc", "edit", "notes", "/a.md")
    assert shell.run("doc", "get", "notes", "/a.md").stdout == b"!\r\n!\r\n"
    shell.environment["VISUAL"] = "false"
    assert "nothing was written" in shell.refusal("doc", "edit", "notes", "/a.md")
    shell.environment["VISUAL"] = "no-such-editor"
    refusal = shell.refusal("doc", "edit", "notes", "/a.md")
    assert "no such file or directory; set EDITOR" in refusal and "Errno" not in refusal
    del shell.environment["VISUAL"], shell.environment["EDITOR"]
    assert "no terminal to edit in" in shell.refusal("doc", "edit", "notes", "/a.md")


def test_an_edit_that_is_no_document_keeps_the_text(shell: Shell, tmp_path: Path) -> None:
    shell.answer("store", "create", "notes")
    for script, reason in (
        ("file.write_bytes(b'\\xff')", "what you wrote is not UTF-8"),
        ("file.write_bytes(b'x' * 102_401)", "102,400 bytes"),
    ):
        shell.environment["EDITOR"] = editor(tmp_path, script)
        error = shell.refusal("doc", "edit", "notes", "/a.md")
        kept = Path(error.rpartition("kept in ")[2])
        assert reason in error and error.count(str(kept)) == 1
        kept.unlink()
        kept.parent.rmdir()


def test_an_edit_that_lost_a_race_keeps_the_text(shell: Shell, tmp_path: Path) -> None:
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a.md", "--text", "one")
    other = (
        "import muniment\n"
        "with muniment.open() as client:\n"
        "    store = next(client.stores.list()).id\n"
        "    client.documents.edit(store, '/a.md', lambda text: 'theirs')\n"
        "file.write_text('mine')"
    )
    shell.environment["EDITOR"] = editor(tmp_path, other)
    error = shell.refusal("doc", "edit", "notes", "/a.md")
    kept = Path(error.rpartition("kept in ")[2])
    assert kept.read_text() == "mine"
    kept.unlink()
    kept.parent.rmdir()
    assert shell.answer("doc", "get", "notes", "/a.md") == "theirs"


def test_commands_ask_a_server_as_its_local_owner_r05(server: Server, tmp_path: Path) -> None:
    shell = Shell(server.home)
    shell.environment["MUNIMENT_URL"] = server.url
    shell.answer("store", "create", "through the server")
    assert server.url in shell.answer("whoami")
    away = Shell(tmp_path / "elsewhere")
    lacking = away.refusal("whoami", "--url", server.url)
    assert "needs a key" in lacking and f"no {away.home / 'credentials'}" in lacking
    assert "--key" in away.refusal("whoami", "--url", server.url, "--key", "wrong")
    away.environment["MUNIMENT_URL"] = server.url
    away.environment["MUNIMENT_API_KEY"] = server.key
    assert away.answer("store", "list").count("through the server") == 1
    database = str(tmp_path / "own.db")
    away.answer("store", "create", "my own", "--db", database)
    assert "through the server" not in away.answer("store", "list", "--db", database)


def test_failures_are_one_line(shell: Shell, tmp_path: Path) -> None:
    assert "running?" in shell.refusal("whoami", "--url", "http://127.0.0.1:1", "--key", "k")
    assert "needs a key" in shell.refusal("whoami", "--url", "http://example.com")
    assert "not both" in shell.refusal("whoami", "--url", "http://x", "--db", "x", status=2)
    assert "--help" in shell.refusal("whoami", "--nonsense", status=2)
    assert "PATH" in shell.refusal("doc", "get", "notes", status=2)
    for database in ("ftp://x", "mysql://x", "sqlite:x", "postgresql:x"):
        assert "--db must begin" in shell.refusal("whoami", "--db", database)
    assert "--log-level must" in shell.refusal("serve", "--log-level", "loud")
    for url in ("ftp://x", "127.0.0.1:8787", "example.com", "http://", "http://[::1"):
        assert "--url must begin with http" in shell.refusal("whoami", "--url", url)
    shell.environment["MUNIMENT_URL"] = "127.0.0.1:8787"
    assert "MUNIMENT_URL must begin" in shell.refusal("whoami")
    del shell.environment["MUNIMENT_URL"]
    (tmp_path / "text").write_text("no database at all, but a text" * 50)
    assert "text" in shell.refusal("whoami", "--db", str(tmp_path / "text"))
    assert "UTF-8" in shell.refusal("doc", "put", "s", "/a", input=b"\xff")
    assert "cannot read" in shell.refusal("doc", "put", "s", "/a", str(tmp_path / "none"))


def test_a_reader_that_has_enough_is_no_failure(shell: Shell) -> None:
    store = shell.answer("store", "create", "notes")
    process = shell.start("doc", "ls", store, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.wait(60) in (0, 141)
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()


def test_the_version_and_the_schema(shell: Shell) -> None:
    assert shell.answer("--version") == f"muniment {__version__}"
    schema = json.loads(shell.answer("migrate", "--json"))["schema"]
    with sqlite3.connect(shell.home / "muniment.db") as database:
        assert database.execute("SELECT MAX(version) FROM migrations").fetchone() == (schema,)
    database.close()
    started = shell.start("--version", stdout=subprocess.PIPE)
    assert started.communicate()[0].decode() == f"muniment {__version__}\n"
    usage = shell.run()
    assert usage.returncode == 2
    assert usage.stdout == shell.run("--help").stdout


@pytest.mark.parametrize("group", [(), ("store",), ("doc",), ("key",), ("job",), ("workspace",)])
def test_a_list_of_commands_says_whole_sentences(shell: Shell, group: tuple[str, ...]) -> None:
    page = shell.answer(*group, "--help")
    assert page.startswith("Usage: ")
    assert "..." not in page.partition("Commands:")[2]


def test_only_what_makes_databases_makes_one(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "mistyped" / "m.db"
    for command in (
        ("whoami",),
        ("store", "list"),
        ("doc", "get", "notes", "/a"),
        ("doc", "put", "notes", "/a", "--text", "x"),
        ("key", "create", "ci"),
        ("principal", "create", "Ada"),
        ("grant", "list"),
    ):
        said = shell.refusal(*command, "--db", str(file))
        assert f"there is no database at {file}" in said and "store create" in said
    assert not file.parent.exists() and not shell.home.exists()
    made = [shell.run("store", "create", "notes", "--db", str(file)) for _ in range(2)]
    said = [run.stderr.decode().count(f"made a new database at {file}\n") for run in made]
    assert said == [1, 0]
    shell.answer("whoami", "--db", str(file))
    shell.answer("migrate")
    shell.answer("whoami")


def test_warnings_for_operators_are_not_said_to_commands(shell: Shell, postgres_dsn: str) -> None:
    run = shell.run("whoami", "--db", postgres_dsn)
    assert (run.returncode, run.stderr) == (0, b"")


def test_a_url_that_is_almost_right_is_suspected(server: Server) -> None:
    shell = Shell(server.home)
    assert "URL right" in shell.refusal("whoami", "--url", f"{server.url}/x")
    secure = server.url.replace("http:", "https:")
    assert "http://…" in shell.refusal("whoami", "--url", secure, "--key", "k")


def test_a_damaged_credentials_file_is_named(server: Server, shell: Shell) -> None:
    shell.answer("store", "create", "notes")
    file = shell.home / "credentials"
    for content in (b"", b"\x82\xff\x00", b"mun_0000", b"two words" * 9):
        file.write_bytes(content)
        for command in (("whoami",), ("whoami", "--url", server.url), ("serve", "--port", "0")):
            assert f"{file} holds no key: remove it" in shell.refusal(*command)
    file.unlink()
    file.mkdir(mode=0o700)
    for command in (("whoami",), ("whoami", "--url", server.url), ("serve", "--port", "0")):
        said = shell.refusal(*command)
        assert f"{file} is no file" in said and "chmod" not in said
