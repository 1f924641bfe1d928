"""A backup and a restore that end in the middle: by a kill, by Ctrl-C, by a full disk."""

import asyncio
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from muniment.testing.server import Server
from shell import Shell
from wire import wired

KILLS = 15
BIG_DOCUMENTS = 1500
CHANGES_MAX = 40


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `new.db`, a backup, and a home whose server was killed while it had a log."""
    folder = tmp_path_factory.mktemp("origin")
    shell = Shell(folder / "home")
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a.md", "--text", "new")
    shell.answer("backup", str(folder / "new.db"))
    with Server(shell.home) as server:
        at = ("--url", server.url)
        shell.answer("doc", "put", "notes", "/a.md", "--text", "old", "--replace", *at)
    assert (shell.home / "muniment.db-wal").stat().st_size > 0
    return folder


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home whose database takes a moment to copy."""
    home = tmp_path_factory.mktemp("big")

    async def fill() -> None:
        async with wired(home, f"sqlite:///{home / 'muniment.db'}") as wire:
            store = await wire.store(name="big")
            chance = random.Random(1)
            texts = {f"/{n}.md": chance.randbytes(8_000).hex() for n in range(BIG_DOCUMENTS)}
            await wire.fill(store, texts)

    asyncio.run(fill())
    return home


def begin(origin: Path, folder: Path) -> Shell:
    """A home as it was before."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(origin / "home", folder)
    return Shell(folder)


def content(shell: Shell) -> str:
    return shell.answer("doc", "get", "notes", "/a.md")


def partials(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if ".partial" in path.name]


@pytest.mark.parametrize("forced", [True, False])
def test_a_restore_that_is_killed_leaves_the_old_or_the_new(
    origin: Path, tmp_path: Path, forced: bool
) -> None:
    """Killed before each change of a file's name in turn; done again, it is done."""
    restore = ("restore", str(origin / "new.db"), *(["--force"] if forced else []))
    before = "old" if forced else None
    found = []
    for changes in range(CHANGES_MAX):
        shell = begin(origin, tmp_path / "home")
        database = shell.home / "muniment.db"
        if not forced:
            database.unlink()
        done = shell.run(*restore, changes=changes)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
        found.append(content(shell) if database.exists() else None)
        if done.returncode == 0:
            break
        if found[-1] == before:
            shell.answer(*restore)
        assert content(shell) == "new"
        assert len(list(shell.home.glob("*.before-restore"))) == forced
        if found[-1] == before:
            assert partials(shell.home) == []
    assert found[0] == before and found[-1] == "new"
    assert found == sorted(found, key=lambda one: one == "new")
    assert len(found) > 4


def test_a_backup_that_is_killed_leaves_no_half_file(origin: Path, tmp_path: Path) -> None:
    for changes in range(CHANGES_MAX):
        shell = begin(origin, tmp_path / "home")
        folder = tmp_path / f"{changes}"
        folder.mkdir()
        file = folder / "copy.db"
        done = shell.run("backup", str(file), changes=changes)
        if done.returncode == 0:
            break
        if not file.exists():
            shell.answer("backup", str(file))
        else:
            shell.answer("backup", str(file), "--force")
        assert [path.name for path in folder.iterdir()] == ["copy.db"]
    assert changes > 2


def test_backups_that_are_killed_at_any_time_leave_what_was_there(
    big: Path, tmp_path: Path
) -> None:
    shell, file = Shell(big), tmp_path / "copy.db"
    began = time.monotonic()
    shell.answer("backup", str(file))
    seconds = time.monotonic() - began
    before, chance = file.read_bytes(), random.Random(7)
    killed = 0
    for _ in range(KILLS):
        done = shell.run("backup", str(file), "--force", seconds=chance.uniform(0.1, seconds))
        killed += done.returncode != 0
        assert file.read_bytes() == before
        assert len(partials(tmp_path)) <= 2  # one, and SQLite's journal of it
    assert killed > KILLS // 3
    shell.answer("backup", str(file), "--force")
    assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]


def test_restores_that_are_killed_at_any_time_leave_a_whole_database(
    big: Path, tmp_path: Path
) -> None:
    file, shell = tmp_path / "copy.db", Shell(tmp_path / "home")
    Shell(big).answer("backup", str(file))
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", "/a.md", "--text", "old")
    shutil.copytree(shell.home, tmp_path / "before")
    began = time.monotonic()
    shell.answer("restore", str(file), "--force")
    seconds, chance = time.monotonic() - began, random.Random(8)
    old = 0
    for _ in range(KILLS):
        shutil.rmtree(shell.home)
        shutil.copytree(tmp_path / "before", shell.home)
        shell.run("restore", str(file), "--force", seconds=chance.uniform(0.1, seconds * 1.1))
        again = Shell(shell.home)
        names = again.answer("store", "list", "--name", "notes")
        old += "notes" in names
        if "notes" in names:
            assert content(again) == "old"
        else:
            again.answer("backup", str(tmp_path / "check.db"), "--force")
    assert old > KILLS // 3


def test_a_backup_that_is_interrupted_takes_its_file_away(big: Path, tmp_path: Path) -> None:
    running = Shell(big).start("backup", str(tmp_path / "copy.db"), stderr=subprocess.PIPE)
    while not any(path.stat().st_size for path in tmp_path.glob(".*.partial")):
        assert running.poll() is None
        time.sleep(0.001)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate()
    assert (running.returncode, said) == (130, b"")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_what_was_there(big: Path, tmp_path: Path) -> None:
    shell, file = Shell(big), tmp_path / "copy.db"
    file.write_bytes(b"before")
    limits = {"preexec_fn": limit_files, "stderr": subprocess.PIPE}
    running = shell.start("backup", str(file), "--force", **limits)
    said = running.communicate()[1].decode()
    assert running.returncode == 1 and said.startswith(f"error: {file} cannot be written: ")
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]
    assert file.read_bytes() == b"before"


def limit_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))


def test_two_backups_to_one_file_do_not_disturb_each_other(big: Path, tmp_path: Path) -> None:
    """Each takes the partial file of the other for what it is: that of somebody at work."""
    file = str(tmp_path / "copy.db")
    both = [Shell(big).start("backup", file, "--force") for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert [path.name for path in tmp_path.iterdir()] == ["copy.db"]
