"""The simulation: from a seed, a random script of whole requests against the whole application.

It runs over several storages side by side, and every byte of their answers must be equal, for the
clock ticks, ids count and chance is drawn alike on all of them (house section 6). At its end their
rows are equal, too, and each agrees with itself. A failure prints the seed, the step, both answers
and the shortest script that was found to fail, in a form that can be run again.
"""

import argparse
import asyncio
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, structs

from muniment import main
from muniment.api.http import HttpApp, Routes
from muniment.api.native import dialect
from muniment.model.access import ApiKey, Principal
from muniment.model.ids import DEFAULT_WORKSPACE, KeyId, PrincipalId, WorkspaceId
from muniment.model.stores import Workspace
from muniment.service.app import App
from muniment.service.keys import new_secret, secret_hash
from muniment.settings import load, write_credentials
from muniment.storage.base import Storage, Transaction
from muniment.storage.inmemory import InMemoryStorage
from muniment.storage.postgres import PostgresStorage
from muniment.storage.sealing import Sealer
from muniment.storage.sqlite import SqliteStorage
from muniment.testing.contents import contents
from muniment.testing.invariants import check_invariants
from muniment.testing.postgres import PostgresServer
from muniment.testing.simulation_deeds import Interruptible, done, interruptible
from muniment.testing.simulation_steps import choose
from muniment.testing.simulation_world import (
    DEED,
    Actor,
    Answer,
    Chance,
    Clockwork,
    Dice,
    Request,
    World,
    learn,
    send,
)

STEPS_DEFAULT = 300
SHRINK_SECONDS = 20.0
DOCUMENTS_MAX = (10, 40)
"""How many documents a store may hold, by seed: so few that the limit is met, or not so few."""

OPERATOR_SECRET = "operator-secret-operator-secret-0123"
OWNER_SECRET = new_secret(DEFAULT_WORKSPACE, hashlib.sha256(b"owner").digest())
OTHERS = (("eve", "active"), ("banned", "disabled"))
"""An administrator each of two further workspaces, and the status of that workspace."""

BASE_URL = "http://127.0.0.1:8787"

RandomBytes = Callable[[int], bytes]
Kind = Callable[[RandomBytes], AbstractContextManager[Storage]]
"""How a kind of storage is made, empty and not started; what is left of it goes at the exit."""


class Script(Struct, frozen=True):
    """Which steps to take: `count` of them, or of those only the `kept` ones."""

    seed: int
    count: int = STEPS_DEFAULT
    kept: tuple[int, ...] | None = None

    def numbers(self) -> Sequence[int]:
        """The steps' numbers in order, from 1."""
        return range(1, self.count + 1) if self.kept is None else self.kept

    def __str__(self) -> str:
        """How the script is run again."""
        if self.kept is None:
            return f'make simulate SEED={self.seed} ARGS="--steps {self.count}"'
        return f'make simulate SEED={self.seed} ARGS="--keep {spans(self.kept)}"'


class Taken(Struct, frozen=True):
    """A step that was taken, and what every storage answered."""

    number: int
    name: str
    route: str
    request: Request
    answer: Answer

    def line(self) -> str:
        """The step in one line."""
        outcome = f"{self.answer.status} {self.answer.failure or ''}".rstrip()
        asked = f"{self.request.method} {self.request.target}"
        who = f"{self.request.actor}{self.request.outage}"
        return f"{self.number:>5}  {self.name}: {asked} as {who} → {outcome}"

    def text(self) -> str:
        """The step in full."""
        asked, answered = self.request.text(), self.answer.text()
        return f"# {self.number} {self.name}\n{asked}\n→ {answered}\n"


class Differs(AssertionError):
    """The storages, or one of them and the contract, do not agree; the message shows how."""

    def __init__(
        self, sort: str, taken: Sequence[Taken], message: str, names: tuple[str, ...]
    ) -> None:
        super().__init__(message)
        self.sort = sort
        """What differs: an `answer`, which may be a `fault` on all sides, or the `end`."""

        self.taken = tuple(taken)
        """The steps up to the one that differs, which is the last; all where the end does."""

        self.names = names
        """The storages that it takes to see it."""


class Run(Struct, frozen=True):
    """A script that ran: its transcript, and the rows that it left."""

    script: Script
    taken: list[Taken]
    rows: list[str]

    def transcript(self) -> str:
        """Every request and its answer."""
        return "\n".join(one.text() for one in self.taken)

    def called(self) -> Counter[tuple[str, int]]:
        """How often each route answered with each status."""
        return Counter((one.route, one.answer.status) for one in self.taken)

    def failures(self) -> Counter[tuple[str, int]]:
        """How often each type of failure came with each status."""
        return Counter(
            (one.answer.failure, one.answer.status) for one in self.taken if one.answer.failure
        )


# Running


async def simulate(
    script: Script, kinds: Mapping[str, Kind], *, shrink_seconds: float = SHRINK_SECONDS
) -> Run:
    """Runs the script on all these storages at once.

    Differs, with the shortest script that was found within `shrink_seconds` to fail, where an
    answer or a row of one is not that of the first, an answer is a fault of the server, or what
    one holds does not agree with itself.
    """
    try:
        return await run(script, kinds)
    except Differs as first:
        with unlogged():
            found = await shrink(script, first, kinds, seconds=shrink_seconds)
        raise Differs(found.sort, found.taken, report(script, first, found), found.names) from None


async def run(script: Script, kinds: Mapping[str, Kind], *, to_the_end: bool = True) -> Run:
    """Runs the script once; Differs as `simulate`, without shrinking.

    Rows are compared `to_the_end` only; without it there are none.
    """
    routes = Routes((dialect(BASE_URL),))
    taken: list[Taken] = []
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(TemporaryDirectory()))
        sides = {
            name: await stack.enter_async_context(opened(kind, home, script.seed))
            for name, kind in kinds.items()
        }
        world = first_world()
        for number in script.numbers():
            world.step = number
            name, request = choose(world, Dice(script.seed, number))
            asked = (each.ask(number, request) for each in sides.values())
            answers = dict(zip(sides, await asyncio.gather(*asked), strict=True))
            answer = next(iter(answers.values()))
            route = route_of(routes, request)
            taken.append(Taken(number, name, route, request, answer))
            compare(taken, answers)
            learn(world, route, request, answer)
        rows = await compare_ends(taken, sides) if to_the_end else []
    return Run(script, taken, rows)


def compare(taken: Sequence[Taken], answers: Mapping[str, Answer]) -> None:
    """Differs unless all answers to the last step are equal, and no fault of the server."""
    last = taken[-1]
    (first, expected), *others = answers.items()
    asked = f"step {last.number}, {last.name}"
    for name, answer in others:
        if answer != expected:
            shown = f"{first}: {expected.text()}\n\n{name}: {answer.text()}"
            message = f"{asked}: {name} answers otherwise than {first}"
            raise Differs(
                "answer", taken, f"{message}\n\n{last.request.text()}\n\n{shown}", (first, name)
            )
    gone = expected.status == 503 and last.request.database_answers is not None
    if expected.status >= 500 and not gone:
        shown = f"{last.request.text()}\n\n{first}: {expected.text()}"
        raise Differs("fault", taken, f"{asked}: a fault of the server\n\n{shown}", (first,))


async def compare_ends(taken: Sequence[Taken], sides: Mapping[str, "Side"]) -> list[str]:
    """The rows that all of them hold; Differs where they do not, or one disagrees with itself."""
    held: dict[str, list[str]] = {}
    for name, side in sides.items():
        try:
            held[name] = await contents(side.storage)
            for workspace in await side.storage.read(lambda tx: tx.list_workspaces()):
                # The other workspace is made below the use cases, and so without an event.
                told = workspace == DEFAULT_WORKSPACE
                await check_invariants(side.storage, workspace, told=told)
        except Exception as error:
            message = f"the end: {name} disagrees with itself: {error!r}"
            raise Differs("end", taken, message, (name,)) from error
    (first, expected), *others = held.items()
    for name, rows in others:
        for ours, theirs in zip_longest(expected, rows):
            if ours != theirs:
                shown = f"{first}: {ours}\n\n{name}: {theirs}"
                message = f"the end: {name} holds other rows than {first}"
                raise Differs("end", taken, f"{message}\n\n{shown}", (first, name))
    return expected


def route_of(routes: Routes, request: Request) -> str:
    """The native route that a request meets, as `METHOD /path/{id}`; empty where none does.

    Of a deed its name.
    """
    if request.method == DEED:
        return f"{DEED} {request.target.partition(' ')[0]}"
    found = routes.find(request.path)[0].get(request.method)
    return f"{request.method} {found[1].path}" if found is not None else ""


# The application over one storage


class Side(Struct, frozen=True):
    """The application over one storage, with a clockwork of its own."""

    storage: Storage
    app: App
    http: HttpApp
    clockwork: Clockwork
    database: Interruptible

    async def ask(self, step: int, request: Request) -> Answer:
        """The answer to the request, sent in this step."""
        self.clockwork.begin(step)
        self.database.answer(request.database_answers, returns=request.database_returns)
        try:
            if request.method == DEED:
                return await done(self.app, request)
            return await send(self.http, request)
        finally:
            self.database.answer(None)


@asynccontextmanager
async def opened(kind: Kind, home: Path, seed: int) -> AsyncIterator[Side]:
    """The application over an empty storage of the kind, as a script of the seed has it."""
    clockwork = Clockwork()
    settings = load(
        {},
        home=home,
        database="memory:",
        admin_key=OPERATOR_SECRET,
        documents_max=DOCUMENTS_MAX[seed % 2],
    )
    if not settings.credentials.exists():
        write_credentials(settings.credentials, OWNER_SECRET)
    with kind(Chance("storage")) as storage:
        await storage.start()
        try:
            interrupted, database = interruptible(storage)
            ambient = main.Ambient(clockwork.now, clockwork.new_id, clockwork.chance)
            app = await main.make_app(settings, interrupted, ambient)
            await add_others(storage)
            yield Side(storage, app, main.make_http(settings, app), clockwork, database)
        finally:
            await storage.stop()


async def add_others(storage: Storage) -> None:
    """Makes the further workspaces, each with one administrator."""

    async def use(tx: Transaction) -> None:
        for number, (name, status) in enumerate(OTHERS, start=2):
            workspace, secret = other(name)
            principal = PrincipalId(f"prin_{number:032x}")
            key = ApiKey(KeyId(f"apikey_{number:032x}"), name, "admin", principal, 1)
            tx.put_workspace(Workspace(workspace, name, status, False, None, 1))
            tx.put_principal(workspace, Principal(principal, "person", name, None, 1))
            tx.put_key(workspace, key, secret_hash(secret))

    await storage.write(None, use)


def other(name: str) -> tuple[WorkspaceId, str]:
    """The id of a further workspace, and its administrator's secret."""
    digest = hashlib.sha256(name.encode())
    workspace = WorkspaceId(f"wsp_{digest.hexdigest()[:32]}")
    return workspace, new_secret(workspace, digest.digest())


def first_world() -> World:
    """Who there is before the first step."""
    unknown = new_secret(DEFAULT_WORKSPACE, bytes(32))
    world = World(workspaces={other(name)[0]: status for name, status in OTHERS})
    for actor in (
        Actor("owner", OWNER_SECRET, admin=True),
        Actor("operator", OPERATOR_SECRET, admin=True),
        Actor("eve", other("eve")[1], admin=True),
    ):
        world.actors[actor.name] = actor
    for actor in (
        Actor("nobody", None),
        Actor("unknown", unknown),
        Actor("nonsense", "no-key-of-ours"),
        Actor("banned", other("banned")[1]),
    ):
        world.outcasts[actor.name] = actor
    return world


# The kinds of storages


@contextmanager
def memory(random_bytes: RandomBytes) -> Iterator[Storage]:
    """The oracle."""
    yield InMemoryStorage(random_bytes(32))


@contextmanager
def sqlite(random_bytes: RandomBytes, *, sealed: bool = False) -> Iterator[Storage]:
    """An SQLite file of its own; `sealed` as with a master key."""
    sealer = Sealer(Chance("sealer"), {1: bytes(32)}, 1) if sealed else None
    with TemporaryDirectory() as folder:
        yield SqliteStorage(Path(folder) / "simulation.db", random_bytes, sealer)


def postgres(server: PostgresServer) -> Kind:
    """A database of its own on the server, each time. Not for calling within an event loop."""
    template = server.template("simulation", _migrate)

    @contextmanager
    def kind(random_bytes: RandomBytes) -> Iterator[Storage]:
        name = server.fresh_database(template)
        try:
            yield PostgresStorage(server.dsn(name), random_bytes, Sealer(Chance("sealer")))
        finally:
            server.drop_database(name)

    return kind


def _migrate(dsn: str) -> None:
    """Brings an empty database to the schema, with the cursor key that every storage has here."""

    async def migrate() -> None:
        storage = PostgresStorage(dsn, Chance("storage"), Sealer(Chance("sealer")))
        await storage.start()
        await storage.migrate(1)
        await storage.stop()

    asyncio.run(migrate())


# Failures


async def shrink(
    script: Script, failure: Differs, kinds: Mapping[str, Kind], *, seconds: float
) -> Differs:
    """The same sort of failure of the shortest script found in so many seconds.

    Steps are left out, half of them at once, then a quarter, down to single ones.
    """
    deadline = time.monotonic() + seconds
    chosen = {name: kinds[name] for name in failure.names}
    best, kept = failure, [one.number for one in failure.taken]
    size = max(1, len(kept) // 2)
    while size:
        at, before = 0, len(kept)
        while at < len(kept) and time.monotonic() < deadline:
            trial = structs.replace(script, kept=(*kept[:at], *kept[at + size :]))
            found = await failing(trial, chosen, to_the_end=failure.sort == "end")
            if found is not None and found.sort == failure.sort:
                best, kept = found, [one.number for one in found.taken]
            else:
                at += size
        # Single steps are left out again and again, as long as that leads to less.
        if size > 1 or len(kept) == before or time.monotonic() >= deadline:
            size //= 2
    return best


@contextmanager
def unlogged() -> Iterator[None]:
    """The application logs nothing meanwhile: what failed first is what its log should show."""
    log = logging.getLogger("muniment")
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(level)


async def failing(script: Script, kinds: Mapping[str, Kind], *, to_the_end: bool) -> Differs | None:
    """The failure of the script, None where it runs."""
    try:
        await run(script, kinds, to_the_end=to_the_end)
    except Differs as found:
        return found
    return None


def report(script: Script, first: Differs, found: Differs) -> str:
    """What a failure prints: the shortest script's, how to run it, and how to run the whole."""
    last = first.taken[-1].number if first.taken else 0
    shortest = structs.replace(script, kept=tuple(one.number for one in found.taken))
    return "\n".join(
        [
            f"seed {script.seed}, {found}",
            "",
            f"the script up to there, {len(found.taken)} steps of {len(first.taken)}:",
            "",
            *(one.line() for one in found.taken),
            "",
            f"again:     {shortest}",
            f"unshrunk:  {structs.replace(script, count=last) if script.kept is None else script}",
        ]
    )


def spans(numbers: Sequence[int]) -> str:
    """`1-3,7` for 1, 2, 3 and 7."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in found)


def numbers_of(text: str) -> tuple[int, ...]:
    """The numbers of `1-3,7`."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return tuple(found)


# The command


def summary(run: Run, names: Sequence[str], seconds: float) -> str:
    """What a run did, in a few lines."""
    statuses = Counter(str(one.answer.status) for one in run.taken)
    failures = Counter(f"{kind} {status}" for kind, status in run.failures().elements())
    routes = {route for route, _ in run.called() if route}
    rows = Counter(row.partition("(")[0] for row in run.rows if row[0] != "(")
    return "\n".join(
        [
            f"seed {run.script.seed}: {len(run.taken)} steps, equal on {', '.join(names)},"
            f" in {seconds:.1f} s",
            f"  answers   {_counted(statuses)}",
            f"  failures  {_counted(failures)}",
            f"  routes    {len(routes)}",
            f"  rows      {_counted(rows)}",
        ]
    )


def _counted(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command's options."""
    parser = argparse.ArgumentParser(
        prog="python -m muniment.testing.simulation", description=__doc__
    )
    add = parser.add_argument
    add("--seed", default="1", help="a seed, or several as in 1-20")
    add("--steps", type=int, default=STEPS_DEFAULT, help="how long a script is")
    add("--keep", help="only these steps of the script, as in 1-3,17")
    add("--storage", default="memory,sqlite,postgres", help="which storages, the first to go by")
    add("--transcript", action="store_true", help="print every request and its answer")
    add("--shrink-seconds", type=float, default=SHRINK_SECONDS, help="how long to look for less")
    given = parser.parse_args(arguments)
    for name in given.storage.split(","):
        if name not in (*KINDS, "postgres"):
            parser.error(f"there is no storage {name}: name some of {', '.join(KINDS)}, postgres")
    return given


def command(arguments: Sequence[str] | None = None) -> int:
    """Runs scripts as the arguments say, and prints what they did; 1 where one failed."""
    given = read_arguments(arguments)
    # That a job fails while the database is gone is what the script wants.
    logging.getLogger("muniment.worker").setLevel(logging.ERROR)
    kept = None if given.keep is None else numbers_of(given.keep)
    with ExitStack() as stack:
        kinds: dict[str, Kind] = {}
        for name in given.storage.split(","):
            if name == "postgres":
                server = stack.enter_context(PostgresServer(durable=False))
                kinds[name] = postgres(server)
            else:
                kinds[name] = KINDS[name]
        for seed in numbers_of(given.seed):
            began = time.monotonic()
            script = Script(seed, given.steps, kept)
            try:
                done = asyncio.run(simulate(script, kinds, shrink_seconds=given.shrink_seconds))
            except Differs as failure:
                sys.stdout.write(f"{failure}\n")
                return 1
            if given.transcript:
                sys.stdout.write(f"{done.transcript()}\n")
            sys.stdout.write(f"{summary(done, list(kinds), time.monotonic() - began)}\n")
            sys.stdout.flush()
    return 0


KINDS: Mapping[str, Kind] = {
    "memory": memory,
    "sqlite": sqlite,
    "sealed": partial(sqlite, sealed=True),
}
"""The storages that need no server, by the name that the command knows them by."""

if __name__ == "__main__":
    raise SystemExit(command())
