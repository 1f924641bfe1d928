"""The load generator: a lean HTTP/1.1 client over raw sockets, in a process of its own.

It reads one JSON job a line on standard input and answers one JSON line each. Requests are built
from bytes made beforehand, one waits for its answer on each connection, and a connection is kept
alive, so that the generator takes a small and equal part of the processors for every server.
"""

import asyncio
import contextlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import uvloop

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT_BYTES = 4096
MARK = b"@" * 16
STRIDE = 97
ANSWER_SECONDS_MAX = 10.0
_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Plan:
    """What each connection asks for, from a job's `targets`, `method`, `headers` and `body`.

    Connections begin at different targets and go round. Where a job has `fresh`, `{n}` in a target
    becomes a number that no other request of the run has, counted from there. The first MARK of a
    body becomes such a number too, so that no two contents are equal.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        self._targets: list[str] = job["targets"]
        self._method: str = job["method"]
        self._fresh: int | None = job.get("fresh")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in job["headers"].items())
        self._body: str = job.get("body", "")
        if self._body:
            self._headers += f"content-length: {len(self._body.encode())}\r\n"
        self._numbers = itertools.count(self._fresh or time.time_ns() % 10**15)

    def requests(self, connection: int) -> Callable[[], bytes]:
        """Makes the connection's next request."""
        offset = connection * STRIDE % len(self._targets)
        targets = self._targets[offset:] + self._targets[:offset]
        if self._fresh is not None:
            return self._with_paths(targets[0])
        heads = itertools.cycle([self._head(target) for target in targets])
        if not self._body:
            return heads.__next__
        before, _, after = self._body.encode().partition(MARK)
        numbers = self._numbers
        return lambda: b"%b%b%016d%b" % (next(heads), before, next(numbers), after)

    def _with_paths(self, target: str) -> Callable[[], bytes]:
        start, _, end = self._head(target).partition(b"{n}")
        before, _, after = (end + self._body.encode()).partition(MARK)
        numbers = self._numbers

        def make() -> bytes:
            number = next(numbers)
            return b"%b%d%b%016d%b" % (start, number, before, number, after)

        return make

    def _head(self, target: str) -> bytes:
        return f"{self._method} {target} HTTP/1.1\r\n{self._headers}\r\n".encode()


class Client(asyncio.Protocol):
    """One connection: sends, waits for the whole answer, sends again until told to stop."""

    def __init__(self, run: "Run", make: Callable[[], bytes]) -> None:
        self._run = run
        self._make = make
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self._sent = 0.0
        self._finished = False
        self.closed = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass

    def send(self) -> None:
        assert self._transport is not None
        self._sent = time.perf_counter()
        self._transport.write(self._make())

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        end = buffer.find(_HEAD_END)
        if end < 0:
            self._buffer = buffer
            return
        at = buffer.find(_LENGTH, 0, end)
        size = int(buffer[at + len(_LENGTH) : buffer.find(b"\r", at)]) if at >= 0 else 0
        if len(buffer) < end + len(_HEAD_END) + size:
            self._buffer = buffer
            return
        self._buffer = b""
        self._run.answered(time.perf_counter() - self._sent, buffer)
        if self._run.going():
            self.send()
        elif self._transport is not None:
            self._finished = True
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._finished:
            self._run.refused(f"the connection was lost: {exc}")
        self.closed.set_result(None)


class Run:
    """The counts of one job, over the window that its warm-up leaves."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._count: int | None = job.get("count")
        self._ending = False
        self._sent = job["connections"]
        self._refused = 0
        self._refusal = ""
        self.latencies: list[float] = []
        self.first = asyncio.Event()
        self.measuring = self._count is not None

    def going(self) -> bool:
        """Whether a connection goes on with another request."""
        if self._count is not None and self._sent >= self._count:
            return False
        self._sent += 1
        return not self._ending

    def answered(self, seconds: float, answer: bytes) -> None:
        """Counts an answer."""
        if not 200 <= int(answer[9:12]) < 300:
            self.refused(answer[:2000].decode("utf-8", "replace"))
        if self.measuring:
            self.latencies.append(seconds)
            if len(self.latencies) == 1:
                self.first.set()

    def refused(self, reason: str) -> None:
        """Counts what was not answered as it should be."""
        self._refused += 1
        self._refusal = reason

    def end(self) -> None:
        """Lets every connection end after its answer."""
        self.measuring = False
        self._ending = True

    def check(self) -> None:
        """Fails where the server refused anything: such a figure says nothing."""
        if self._refused:
            raise RuntimeError(f"{self._refused} requests failed, one so: {self._refusal}")


async def perform(job: dict[str, Any]) -> dict[str, float]:
    """One job's figures: answers a second, latencies, and processor time of server and client."""
    run, plan = Run(job), Plan(job)
    loop = asyncio.get_running_loop()
    clients: list[Client] = []
    ports, database = job["ports"], job.get("database")
    for connection in range(job["connections"]):
        make = plan.requests(connection)
        _, client = await loop.create_connection(
            lambda make=make: Client(run, make),  # type: ignore[misc]  # one closure a connection
            "127.0.0.1",
            ports[connection % len(ports)],
        )
        clients.append(client)
    for client in clients:
        client.send()
    if not run.measuring:
        await asyncio.sleep(job["warm"])
        run.measuring = True
    started, before = time.perf_counter(), processor_times(job["pids"], database)
    if job.get("count") is None:
        await asyncio.sleep(job["seconds"])
        if not run.latencies:  # a window that is too short for this server
            await asyncio.wait_for(run.first.wait(), ANSWER_SECONDS_MAX)
        run.end()
    else:
        await asyncio.gather(*[client.closed for client in clients])
    seconds = time.perf_counter() - started
    after = processor_times(job["pids"], database)
    await asyncio.gather(*[client.closed for client in clients])
    run.check()
    answers = len(run.latencies)
    ordered = sorted(run.latencies)
    figures = {
        "answers": answers,
        "per_second": answers / seconds,
        "p50_ms": ordered[answers // 2] * 1000,
        "p99_ms": ordered[answers * 99 // 100] * 1000,
    }
    return figures | {
        f"{name}_cpu_us": (after[name] - before[name]) / answers * 1e6 for name in after
    }


def processor_times(servers: list[int], database: int | None) -> dict[str, float]:
    """Seconds of processor time so far: the servers', the database's where it is named, ours."""
    times = {"server": sum(map(cpu_seconds, servers)), "client": time.process_time()}
    if database is not None:
        times["database"] = family_cpu_seconds(database)
    return times


def family_cpu_seconds(pid: int) -> float:
    """Processor time of a process and of its children, those that have ended too."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    ended = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    total = cpu_seconds(pid) + ended
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            total += cpu_seconds(int(child))
    return total


def cpu_seconds(pid: int) -> float:
    """Processor time of all threads of a process, in user and kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Generator:
    """The generator's process, seen from the benchmark."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(10)

    def perform(self, job: dict[str, Any]) -> dict[str, float]:
        """Runs a job and waits for its figures."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the load generator has ended")
        figures: dict[str, Any] = json.loads(answer)
        if "error" in figures:
            raise RuntimeError(figures["error"])
        return figures


def main() -> None:
    """Performs the jobs of standard input."""
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = uvloop.run(perform(json.loads(line)))
        except (OSError, RuntimeError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
