"""Servers in processes of their own: `muniment serve` and the raw ones.

Run as a module it is `muniment serve` with the stand-in of `bench.vectors` in its storage.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.load import ROOT
from bench.vectors import add_vectors
from muniment import main as muniment
from muniment import settings
from muniment.cli.serve import serve

COMMAND = str(Path(sys.executable).with_name("muniment"))
READY_SECONDS_MAX = 60.0
POLL_SECONDS = 0.005
PYTHON = (sys.executable, "-m")


class Server:
    """A server process, from its start until `stop`; `port` and `pid` are for the generator.

    `kind` is `serve` (the command as people start it), `vectors` (the same with the stand-in) or
    the name of a raw server's module; `source` is its database, or the file of its answer.
    """

    def __init__(self, kind: str, home: Path, source: str) -> None:
        self.port = free_port()
        self._home = home
        with (home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command(kind, self.port, source),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment(home, source),
            )
        self.pid = self._process.pid
        try:
            self._await_ready()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process as `serve` is ended, and waits for it."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def headers(self) -> dict[str, str]:
        """What a client sends with each request: the local owner's key. Raw servers ignore it."""
        key = settings.read_credentials(self._home / "credentials") or "mun_" + "0" * 76
        return {
            "host": f"127.0.0.1:{self.port}",
            "authorization": f"Bearer {key}",
            "content-type": "application/json",
        }

    @property
    def rss_bytes(self) -> int:
        """The memory of the process that is resident."""
        pages = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def request(self, method: str, target: str, body: object = None) -> bytes:
        """One request of the benchmark's own; fails unless it is answered with success."""
        sent = None if body is None else json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, target, sent, self.headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {target}: {answer.status} {content.decode()}")
        return content

    def make_store(self, name: str) -> str:
        """A new store's id."""
        answer = self.request("POST", "/v1/memory-stores", {"name": name})
        made: Mapping[str, Any] = json.loads(answer)
        return str(made["id"])

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                log = (self._home / "log").read_text("utf-8", "replace")
                raise RuntimeError(f"the server ended at its start:\n{log[-2000:]}")
            if is_ready(self.port):
                return
            time.sleep(POLL_SECONDS)
        raise RuntimeError("the server was not ready in time")


def is_ready(port: int) -> bool:
    """Whether `/readyz` answers 200."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def command(kind: str, port: int, source: str) -> list[str]:
    """The command line of a kind of server."""
    if kind == "serve":
        return [COMMAND, "serve", "--port", str(port)]
    if kind == "vectors":
        return [*PYTHON, "bench.servers", str(port)]
    return [*PYTHON, f"bench.raw.{kind}", str(port), source]


def environment(home: Path, source: str = "") -> dict[str, str]:
    """Ours without anything that the user has set for Muniment."""
    kept = {name: value for name, value in os.environ.items() if "MUNIMENT" not in name}
    return kept | {"MUNIMENT_HOME": str(home), "MUNIMENT_DATABASE_URL": source}


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def main(port: int) -> None:
    """`muniment serve`, with a row of a term vector's size in every change."""
    make_storage = muniment.make_storage
    muniment.make_storage = lambda settings: add_vectors(make_storage(settings))
    serve(settings.load(port=port), quiet=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
