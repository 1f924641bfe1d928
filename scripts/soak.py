"""`make soak`: the tests that chance makes different every time, for as long as asked.

Runs the parts below in turn, each with a seed of its own, until SECONDS are over; a part that runs
is finished. Ends with status 1 at the first failure, with what failed, its seed and the command
that repeats it.
"""

import argparse
import asyncio
import logging
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random, SystemRandom

from muniment.testing.kills import Kills
from muniment.testing.postgres import PostgresServer

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 10
SEED_MAX = 2**31
TAIL_LINES = 60


class PartFailed(Exception):
    """A part has found something; the message is what it said."""


@dataclass(frozen=True)
class Part:
    """One kind of test; `run` takes a seed and returns a line about what it did."""

    name: str
    about: str
    run: Callable[[int], str]


def kill_on_sqlite(seed: int) -> str:
    """Rounds of kills over one SQLite file."""
    with tempfile.TemporaryDirectory() as folder:
        kills = Kills(Path(folder, "home"), seed, say=show)
        return str(asyncio.run(kills.run(ROUNDS)))


def kill_on_postgres(seed: int) -> str:
    """Rounds of kills over one PostgreSQL database that is as durable as in production."""
    with tempfile.TemporaryDirectory() as folder, PostgresServer(durable=True) as postgres:
        kills = Kills(Path(folder, "home"), seed, postgres=postgres, say=show)
        return str(asyncio.run(kills.run(ROUNDS)))


def simulate(seed: int) -> str:
    """A random script of whole requests, equal on every storage."""
    command = [sys.executable, "-m", "muniment.testing.simulation", "--steps", "1000"]
    last_line([*command, "--seed", str(seed)])
    return "1000 steps, equal on every storage"


def tests(*arguments: str) -> Callable[[int], str]:
    """A part that is a selection of the tests, hypothesis seeded."""

    def run(seed: int) -> str:
        command = [sys.executable, "-m", "pytest", "-x", f"--hypothesis-seed={seed}", *arguments]
        return last_line(command)

    return run


def last_line(command: list[str]) -> str:
    """The last line that the command prints. PartFailed, with its last lines, where it fails."""
    done = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    said = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()
    if done.returncode:
        raise PartFailed("\n".join(said[-TAIL_LINES:]))
    return said[-1] if said else ""


PARTS = (
    Part("kills-sqlite", "a server is killed under writers, on SQLite", kill_on_sqlite),
    Part("kills-postgres", "a server and its PostgreSQL are killed", kill_on_postgres),
    Part(
        "storages",
        "every storage against the oracle, races, crashes",
        tests("tests/storage", "-m", "not slow"),
    ),
    Part(
        "processes",
        "many processes on one database",
        tests("tests/service/test_many_processes.py", "tests/service/test_two_nodes.py"),
    ),
    Part("simulation", "random scripts of requests, equal on every storage", simulate),
    Part(
        "fuzz",
        "requests made from the OpenAPI document",
        tests("tests/api/test_fuzz.py", "--fuzz-rounds=6"),
    ),
    Part("model", "the laws of trees, paths and differences", tests("tests/model")),
)


def show(line: str) -> None:
    """Prints at once, also into a file."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def planned(only: list[str], seed: int | None) -> Iterator[tuple[Part, int]]:
    """The parts in turn and a seed for each; a single part takes the given seed itself."""
    parts = [part for part in PARTS if not only or part.name in only]
    first = SystemRandom().randrange(SEED_MAX) if seed is None else seed
    chance = Random(first)
    if len(parts) == 1:
        yield parts[0], first
    for part in cycle(parts):
        yield part, chance.randrange(SEED_MAX)


def main() -> int:
    """Runs parts until the time is over; the exit status."""
    names = [part.name for part in PARTS]
    about = "\n".join(f"  {part.name:<16}{part.about}" for part in PARTS)
    parser = argparse.ArgumentParser(
        prog="make soak",
        description=__doc__,
        epilog=f"parts:\n{about}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (600)")
    parser.add_argument("--only", choices=names, action="append", default=[], metavar="PART")
    parser.add_argument("--seed", type=int, help="of the first part; the others follow from it")
    given = parser.parse_args()
    logging.getLogger("muniment").setLevel(logging.ERROR)
    began = time.monotonic()
    for done, (part, seed) in enumerate(planned(given.only, given.seed)):
        if done and time.monotonic() - began >= given.seconds:
            show(f"nothing failed in {done} parts, {time.monotonic() - began:.0f} s")
            break
        if not run(part, seed):
            return 1
    return 0


def run(part: Part, seed: int) -> bool:
    """Whether the part found nothing."""
    show(f"{part.name}, seed {seed}: begins")
    began = time.monotonic()
    try:
        said = part.run(seed)
    except Exception as error:
        reason = str(error) if isinstance(error, PartFailed) else traceback.format_exc()
        print(reason, flush=True)
        show(f"{part.name}, seed {seed}: FAILED after {time.monotonic() - began:.0f} s")
        show(f'again: make soak SECONDS=0 ARGS="--only {part.name} --seed {seed}"')
        return False
    show(f"{part.name}, seed {seed}: {said} ({time.monotonic() - began:.0f} s)")
    return True


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
