"""`muniment` commands for tests, each in a process and with a home of its own.

Most commands are run by processes that fork from one that has loaded the package, for a start costs
a second on a busy machine. `start` and `python` are for what only a real start shows.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WAIT_SECONDS = 60

PROCESSES = multiprocessing.get_context("forkserver")
"""Starts processes that have loaded the package already."""

_CHANGES = {"tempfile.mkstemp", "os.link", "os.rename", "os.remove", "os.mkdir", "os.chown"}
"""What Python tells of each change of a name or an owner, before it is made."""

# Every process imports the main module of the tests' own, so pytest is loaded beforehand too.
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "pydantic",
        "muniment.cli.app",
        "muniment.main",
        "muniment.storage.sqlite",
        "muniment.client.http",
    ]
)


class Shell:
    """Runs commands with one home; nothing else of the environment counts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            "PATH": os.environ["PATH"],
            "LC_ALL": "C.UTF-8",
            "MUNIMENT_HOME": str(home),
        }

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
        """A command that goes on, started as people start it."""
        command = [sys.executable, "-m", "muniment", *arguments]
        return subprocess.Popen(command, env=self.environment, **options)

    def run(
        self,
        *arguments: str,
        input: bytes = b"",
        seconds: float = WAIT_SECONDS,
        changes: int | None = None,
    ) -> "subprocess.CompletedProcess[bytes]":
        """A command run to its end, or killed: after so many seconds, or before it changes the
        name of a file once more than so many times. Then its status is -SIGKILL."""
        with tempfile.TemporaryDirectory() as folder:
            files = [str(Path(folder, name)) for name in ("in", "out", "err")]
            Path(files[0]).write_bytes(input)
            given = (arguments, self.environment, files, changes)
            process = PROCESSES.Process(target=_run, args=given)
            process.start()
            process.join(seconds)
            if process.exitcode is None:
                process.kill()
                process.join()
            out, err = (Path(name).read_bytes() for name in files[1:])
            return subprocess.CompletedProcess(arguments, process.exitcode or 0, out, err)

    def answer(self, *arguments: str, input: bytes = b"") -> str:
        """What a command that succeeds prints, without the last line's end."""
        run = self.run(*arguments, input=input)
        assert run.returncode == 0, run.stderr.decode()
        return run.stdout.decode().rstrip("\n")

    def refusal(self, *arguments: str, status: int = 1, input: bytes = b"") -> str:
        """The one line of a command that fails with this status and prints nothing else."""
        run = self.run(*arguments, input=input)
        assert run.returncode == status, (run.returncode, run.stderr.decode())
        assert run.stdout == b""
        error = run.stderr.decode()
        assert error.startswith("error: ") and error.count("\n") == 1, error
        return error.removeprefix("error: ").rstrip("\n")


def _run(
    arguments: tuple[str, ...],
    environment: dict[str, str],
    files: list[str],
    changes: int | None,
) -> None:
    """Becomes the command, in a process just forked."""
    from muniment.cli.app import main

    for number, (name, mode) in enumerate(zip(files, ("r", "w", "w"), strict=True)):
        flags = os.O_RDONLY if mode == "r" else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(name, flags, 0o600), number)
    sys.stdin = os.fdopen(0, "r", encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8")
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["muniment", *arguments]
    if changes is not None:
        _die_after(changes)
    main()


def _die_after(changes: int) -> None:
    """Kills this process before it makes, links, renames or removes one file more."""
    left = changes

    def watch(event: str, arguments: object) -> None:
        nonlocal left
        if event in _CHANGES:
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

    sys.addaudithook(watch)
