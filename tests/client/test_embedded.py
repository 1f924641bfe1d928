"""A database without a server: `muniment.open`."""

import subprocess
import sys
from pathlib import Path

import pytest

import muniment
from muniment.settings import SettingsError

WRITER = """
import sys, muniment
path, store, name = sys.argv[1:]
with muniment.open(path) as client:
    for number in range(10):
        client.documents.put(store, f"/{name}/{number}", "x")
        client.documents.edit(store, "/all", lambda text: (text or "") + name, attempts=100)
"""
FORGETFUL = """
import sys, muniment
client = muniment.open(sys.argv[1])
store = client.stores.create("kept")
client.documents.put(store.id, "/a", "x")
"""
FORKING = """
import os, sys, muniment
with muniment.open(sys.argv[1]) as client:
    if os.fork() == 0:
        try:
            client.whoami()
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error) else 1)
    status = os.waitstatus_to_exitcode(os.wait()[1])
    client.whoami()
sys.exit(status)
"""


def test_without_a_path_it_is_the_database_of_the_home_r04_r05(home: Path) -> None:
    with muniment.open() as client:
        assert client.whoami().principal.name == "owner"
    assert (home / "muniment.db").exists()
    assert (home / "credentials").stat().st_mode & 0o777 == 0o600


def test_clients_share_a_file_and_an_owner_r05_r25(home: Path) -> None:
    with muniment.open(home / "m.db") as one, muniment.open(f"sqlite:///{home}/m.db") as two:
        assert one.whoami() == two.whoami()
        store = one.stores.create("notes").id
        left = two.documents.put(store, "/a", "x")
        assert one.documents.get(store, "/a").sha256 == left.sha256


def test_processes_write_one_file_at_once_and_nothing_is_lost_r25(home: Path) -> None:
    path = home / "m.db"
    with muniment.open(path) as client:
        store = client.stores.create("notes").id
        command = [sys.executable, "-c", WRITER, str(path), store]
        writers = [subprocess.Popen([*command, name]) for name in "abc"]
        assert [writer.wait(120) for writer in writers] == [0, 0, 0]
        paths = {item.path for item in client.documents.list(store)}
        assert paths == {f"/{name}/{n}" for name in "abc" for n in range(10)} | {"/all"}
        together = client.documents.get(store, "/all").content
        assert sorted(together) == sorted("abc" * 10)


def test_a_program_that_does_not_close_still_ends_and_has_written(home: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", FORGETFUL, str(home / "m.db")],
        timeout=60,
        capture_output=True,
        check=True,
    )
    assert (run.stdout, run.stderr) == (b"", b"")
    with muniment.open(home / "m.db") as client:
        (store,) = client.stores.list(name="kept")
        assert store.document_count == 1


def test_after_a_fork_it_says_so_and_does_not_hang(home: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING, str(home / "m.db")], timeout=60, check=True)


def test_it_acts_with_the_key_it_is_given(home: Path) -> None:
    with muniment.open(home / "m.db") as client:
        made = client.keys.create("guest")
    with muniment.open(home / "m.db", key=made.secret) as guest:
        assert guest.whoami().api_key.id == made.id
        with pytest.raises(muniment.Denied):
            list(guest.keys.list())
    with muniment.open(home / "m.db", key="wrong") as nobody, pytest.raises(muniment.InvalidKey):
        nobody.whoami()


def test_a_database_in_memory_is_gone_when_it_is_closed(home: Path) -> None:
    with muniment.open("memory:") as client:
        client.stores.create("notes")
        assert len(list(client.stores.list())) == 1
    with muniment.open("memory:") as client:
        assert list(client.stores.list()) == []


def test_an_unusable_database_says_so(tmp_path: Path, home: Path) -> None:
    (tmp_path / "text").write_text("no database at all, but a text" * 50)
    with pytest.raises(muniment.Unavailable, match="text"):
        muniment.open(tmp_path / "text")
    with pytest.raises(SettingsError, match="sqlite"):
        muniment.open("https://example.com")
