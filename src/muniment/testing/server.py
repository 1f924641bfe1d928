"""A real `muniment serve` for tests: a process with a home of its own, on a free port."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.01

_READY = re.compile(r"ready at (http://\S+)")


class ServerError(RuntimeError):
    """The server did not start or stop; the message ends with what it said."""


class Server:
    """A server process with its home in `home`; the data stays there when it stops.

    `settings` are further environment variables, `database` is the address of another database.
    The environment of the tests' own process counts for nothing.
    """

    def __init__(
        self,
        home: Path,
        *,
        database: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.home = home
        self.url = ""
        self.environment = {
            "PATH": os.defpath,
            "LC_ALL": "C.UTF-8",
            "MUNIMENT_HOME": str(home),
            **({} if database is None else {"MUNIMENT_DATABASE_URL": database}),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def key(self) -> str:
        """The local owner's key."""
        return (self.home / "credentials").read_text("utf-8").strip()

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All that the server has said since its last start."""
        return self._log_path.read_text("utf-8", "replace")

    def start(self) -> None:
        """Starts the server on a free port and waits until it is ready."""
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Waits until the launched server is ready, and learns its address."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while (ready := _READY.search(self.log)) is None:
            if not self.alive or time.monotonic() > deadline:
                self.kill()
                raise ServerError(f"the server did not start\n{self.log}")
            time.sleep(POLL_SECONDS)
        self.url = ready[1]

    def launch(self) -> None:
        """Starts the server's process and waits for nothing."""
        self.home.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "muniment", "serve", "--port", "0", "--quiet"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Asks the server to stop and waits for it; its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        try:
            status = self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerError(f"the server did not stop\n{self.log}") from None
        self._process = None
        return status

    def kill(self) -> None:
        """Ends the server by SIGKILL, as a crash does; nothing where it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)
            self._process = None

    @property
    def _log_path(self) -> Path:
        return self.home / "serve.log"
