"""Settings that cannot be, addresses, and the credentials file whatever befalls it."""

import errno
import os
import threading
from pathlib import Path

import pytest

from muniment import main
from muniment.settings import (
    Settings,
    SettingsError,
    load,
    read_credentials,
    write_credentials,
)

SECRET = "mun_" + "0" * 32 + "_" + "A" * 43


@pytest.mark.parametrize(
    "key",
    ["x" * 31, "x" * 513, "x" * 32 + " ", "x" * 16 + " " + "x" * 16, "é" * 32, "x" * 32 + "\n"],
)
def test_an_admin_key_that_no_request_can_bear_is_refused(key: str) -> None:
    with pytest.raises(SettingsError, match="MUNIMENT_ADMIN_KEY must have 32 to 512 printable"):
        load({"MUNIMENT_ADMIN_KEY": key})


@pytest.mark.parametrize("key", ["x" * 32, "~!" * 256])
def test_an_admin_key_that_can_be_borne_is_taken(key: str) -> None:
    assert load({"MUNIMENT_ADMIN_KEY": key}).admin_key == key


def test_so_few_connections_that_readers_would_wait_for_writers_are_refused_k14() -> None:
    with pytest.raises(SettingsError, match="MUNIMENT_CONNECTIONS_MAX must be at least 2"):
        load({"MUNIMENT_CONNECTIONS_MAX": "1"})
    assert load({"MUNIMENT_CONNECTIONS_MAX": "2"}).connections_max == 2


@pytest.mark.parametrize("variable", ["MUNIMENT_URL", "MUNIMENT_BASE_URL"])
@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "https://", "http://[::1"])
def test_an_address_that_is_none_is_refused(variable: str, url: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable} must begin with http"):
        load({variable: url})


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8787"),
        ("::1", "http://[::1]:8787"),
        ("fd00::7", "http://[fd00::7]:8787"),
        ("::", "http://[::1]:8787"),
        ("0.0.0.0", "http://127.0.0.1:8787"),
    ],
)
def test_an_address_has_brackets_where_it_is_of_ipv6(host: str, url: str) -> None:
    settings = load({}, host=host)
    assert (settings.public_url, settings.local_url) == (url, url)


def test_hosts_of_ipv6_are_served_as_a_request_names_them() -> None:
    settings = load({}, host="fd00::7", base_url="https://[fd00::8]", allowed_hosts="[fd00::9],A.b")
    served = main.allowed_hosts(settings)
    assert {"[fd00::7]", "[fd00::8]", "[fd00::9]", "a.b", "[::1]"} <= set(served)


def test_a_database_has_a_file_where_it_is_of_sqlite() -> None:
    assert Settings(database="sqlite:///a/b.db").database_file == Path("a/b.db")
    assert Settings(database="sqlite:////a/b.db").database_file == Path("/a/b.db")
    assert Settings(database="memory:").database_file is None
    assert Settings(database="postgresql://a/b").database_file is None


def test_the_first_key_stays_and_no_other_file_is_left(tmp_path: Path) -> None:
    path = tmp_path / "home" / "credentials"
    assert write_credentials(path, SECRET) == SECRET
    assert write_credentials(path, SECRET[:-1] + "B") == SECRET
    assert [file.name for file in path.parent.iterdir()] == ["credentials"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_threads_that_write_at_once_agree(tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    start = threading.Barrier(8)
    kept: list[str] = []

    def write(number: int) -> None:
        start.wait()
        kept.append(write_credentials(path, f"{SECRET[:-1]}{number}"))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kept) == 8 and set(kept) == {read_credentials(path)}


def test_the_key_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    seen: list[tuple[int, bool]] = []
    sync = os.fsync

    def fsync(handle: int) -> None:
        seen.append((os.fstat(handle).st_size, path.exists()))
        sync(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write_credentials(path, SECRET)
    assert seen[0] == (len(SECRET) + 1, False)
    assert len(seen) == 2 and seen[1][1]


def test_a_file_system_without_hard_links_keeps_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refuse)
    path = tmp_path / "credentials"
    assert write_credentials(path, SECRET) == SECRET
    assert write_credentials(path, SECRET[:-1] + "B") == SECRET
    assert [file.name for file in tmp_path.iterdir()] == ["credentials"]


def test_a_key_that_cannot_be_kept_is_no_secret_known_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(SettingsError, match="cannot be written: no space left"):
            write_credentials(tmp_path / "credentials", SECRET)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be written"):
        write_credentials(tmp_path / "file" / "credentials", SECRET)


@pytest.mark.parametrize("content", [b"", b"\n", b"\x82\x83", b"mun_00", b"a b" * 20])
def test_a_file_without_a_key_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "credentials"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"{path} holds no key: remove it"):
        read_credentials(path)
    with pytest.raises(SettingsError, match="holds no key"):
        write_credentials(path, SECRET)
    path.chmod(0o644)
    with pytest.raises(SettingsError, match="chmod 600"):
        read_credentials(path)
