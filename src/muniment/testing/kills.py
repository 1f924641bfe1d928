"""A real server is killed at random moments under concurrent writers, and nothing is lost.

`Kills` starts `muniment serve` over one database, lets writers put, replace and remove documents of
one shared store and of several others (and make and delete whole stores), ends the server by
SIGKILL at a moment of the seed's choosing, starts it again, and opens the database from outside to
hold it against what every writer was told. What had an idempotency key and no answer is sent again.
Over a PostgreSQL of its own it also kills that one's processes. A failure says the seed, the round
and what is wrong.

The machine goes on, so what a process had handed to the system before it died is not lost: whether
the system hands it to the disk in time is another matter, that of `fsync`.
"""

import asyncio
import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

from msgspec import Struct

from muniment import main
from muniment.client.asynchronous import AsyncClient
from muniment.client.errors import Conflict, NoAnswer, NotFound, Unavailable
from muniment.model.ids import DEFAULT_WORKSPACE, PoolId, StoreId
from muniment.model.revisions import CANONICAL
from muniment.model.stores import Ref
from muniment.settings import load
from muniment.storage.base import Transaction
from muniment.testing.invariants import all_events, check_invariants
from muniment.testing.journal import Attempt, Journal, Place, check_journal
from muniment.testing.postgres import PostgresServer
from muniment.testing.server import Server

WRITERS = 16
STORES = 4
SHARED_PATHS = 12
OWN_PATHS = 2
WRITES = (10, 100)
WRITE_SECONDS_MAX = 30.0
WHOLE_EVERY = 4
SETTLED_MAX = 64
RECOVERY_SECONDS_MAX = 20.0
PAUSE_SECONDS = 0.02
FREE = None


class Way(Struct, frozen=True):
    """How a round's server, and perhaps the database under it, comes to its end."""

    name: str
    server_starts_twice: bool = False
    server_is_stopping: bool = False
    database: str = ""


SERVER_WAYS = (
    Way("the server is killed"),
    Way("the server is killed, and before it another while it started", server_starts_twice=True),
    Way("the server is killed while it stops", server_is_stopping=True),
)
DATABASE_WAYS = (
    Way("a process of the database is killed, later the server", database="process"),
    Way("the database is killed and started, later the server is killed", database="restart"),
    Way("the database and the server are killed at once", database="both"),
)


class Tally(Struct, frozen=True):
    """How many attempts writers made, by outcome, and how many revisions there are."""

    acknowledged: int
    refused: int
    unknown: int
    revisions: int

    def __str__(self) -> str:
        return (
            f"{self.acknowledged} acknowledged, {self.refused} refused, {self.unknown} unknown,"
            f" {self.revisions} revisions"
        )


class Kills:
    """One database and its server through any number of rounds; everything follows from `seed`.

    The data lies in `home`, or in `database` of the PostgreSQL server `postgres`, whose processes
    are killed too. `say` gets a line a round.
    """

    def __init__(
        self,
        home: Path,
        seed: int,
        *,
        postgres: PostgresServer | None = None,
        database: str = "postgres",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.seed = seed
        self.journal = Journal()
        self._say = say
        self._chance = Random(seed)
        self._postgres = postgres
        address = None if postgres is None else postgres.dsn(database)
        self._settings = load({}, home=home, database=address)
        self._server = Server(home, database=address)
        self._deck: list[Way] = []
        self._unanswered: list[Sent] = []
        self._wanted = 0
        self._enough = asyncio.Event()
        self._numbers = count(1)
        self._rounds = count(1)
        self._stores: list[str] = []
        self._pools: dict[str, PoolId] = {}
        self._passing: dict[str, bool] = {}
        """Stores that were to be deleted, and whether it was acknowledged."""
        self._known: dict[Place, str | None] = {}
        self._over = asyncio.Event()
        self._answered = asyncio.Event()
        self._unavailable = asyncio.Event()

    async def run(self, rounds: int) -> Tally:
        """So many rounds more; how many attempts there were. AssertionError says what is lost."""
        try:
            for left in reversed(range(rounds)):
                number = next(self._rounds)
                tally = await self._round(number, whole=left == 0 or number % WHOLE_EVERY == 0)
            return tally
        finally:
            self._server.kill()

    async def _round(self, number: int, *, whole: bool) -> Tally:
        way = self._draw_way()
        title = f"seed {self.seed}, round {number}: {way.name}"
        try:
            await self._start(way)
            await self._write_until_the_end(way)
            if self._chance.random() < 0.5:
                # Every other time the server has recovered the database before we look.
                await asyncio.to_thread(self._server.start)
            tally = await self._check(whole=whole)
        except BaseException as error:
            error.add_note(f"{title}\nthe server said: {self._server.log[-2000:]}")
            raise
        self._say(f"{title}: {tally}")
        return tally

    def _draw_way(self) -> Way:
        """The next way of a shuffled deck, so that a few rounds have every one."""
        if not self._deck:
            self._deck = [*SERVER_WAYS, *(DATABASE_WAYS + SERVER_WAYS if self._postgres else ())]
            self._chance.shuffle(self._deck)
        return self._deck.pop()

    async def _start(self, way: Way) -> None:
        if way.server_starts_twice:
            self._server.kill()
            await asyncio.to_thread(self._server.launch)
            await asyncio.sleep(self._chance.uniform(0.0, 0.7))
            self._server.kill()
        if not self._server.alive:
            await asyncio.to_thread(self._server.start)

    async def _write_until_the_end(self, way: Way) -> None:
        self._over.clear()
        async with AsyncClient(self._server.url, self._server.key, retries=0) as client:
            while len(self._stores) < STORES:
                self._stores.append((await client.stores.create(f"store {len(self._stores)}")).id)
            await self._settle(client)
            seeds = [self._chance.random() for _ in range(WRITERS)]
            writers = [
                asyncio.create_task(Writer(self, client, n, Random(seed)).run())
                for n, seed in enumerate(seeds)
            ]
            try:
                ending = asyncio.create_task(self._end(way))
                done, _ = await asyncio.wait(
                    {ending, *writers}, return_when=asyncio.FIRST_EXCEPTION
                )
                for task in done:
                    task.result()
            finally:
                self._over.set()
                self._server.kill()
                await asyncio.gather(ending, *writers, return_exceptions=True)

    async def _settle(self, client: AsyncClient) -> None:
        """Sends again what had an idempotency key and no answer: it is carried out once (R-47)."""
        unanswered, self._unanswered = self._unanswered[:SETTLED_MAX], []
        for at in range(0, len(unanswered), WRITERS):
            sending = unanswered[at : at + WRITERS]
            await asyncio.gather(*(send(self, client, each) for each in sending))

    async def _end(self, way: Way) -> None:
        await self._write_on()
        if way.database:
            await self._strike(way.database)
        if way.database != "both":
            self._over.set()
            if way.server_is_stopping:
                os.kill(self._server.pid, signal.SIGTERM)
                await asyncio.sleep(self._chance.uniform(0.0, 0.05))
            self._server.kill()

    async def _write_on(self) -> None:
        """Lets writers write, so many writes and a moment more."""
        self._wanted = self._chance.randint(*WRITES)
        self._enough.clear()
        async with asyncio.timeout(WRITE_SECONDS_MAX):
            await self._enough.wait()
        await asyncio.sleep(self._chance.uniform(0.0, 0.02))

    async def _strike(self, database: str) -> None:
        """Kills processes of PostgreSQL; what follows unless the server dies with them."""
        postgres = self._postgres
        assert postgres is not None
        self._unavailable.clear()
        if database == "process":
            # Whoever it is, the others go with it, and PostgreSQL recovers by itself.
            os.kill(self._chance.choice(postgres.processes()[1:]), signal.SIGKILL)
        else:
            if database == "both":
                self._over.set()
                self._server.kill()
            postgres.kill()
            await asyncio.to_thread(postgres.start)
        if database != "both":
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await self._unavailable.wait()
                self._answered.clear()
                await self._answered.wait()
            await self._write_on()

    async def _check(self, *, whole: bool) -> Tally:
        """Opens the database from outside and holds it against all that was told.

        With `whole` also against itself: each revision with its tree, each event, each content.
        """
        storage = main.make_storage(self._settings)
        await storage.start()
        try:
            if whole:
                await check_invariants(storage, DEFAULT_WORKSPACE, told=True)
            return await storage.read(partial(self._compare, whole=whole), scan=True)
        finally:
            await storage.stop()

    async def _compare(self, tx: Transaction, *, whole: bool) -> Tally:
        revisions = 0
        for store in {place[0] for place in self.journal.places()} | set(self._stores):
            found = await tx.get_store(DEFAULT_WORKSPACE, StoreId(store), (DEFAULT_WORKSPACE,))
            assert found is not None and found[0].status == "active", f"store {store} is lost"
            self._pools[store] = found[0].pool
            at = await tx.get_ref(DEFAULT_WORKSPACE, StoreId(store), CANONICAL)
            assert at is not None, f"store {store} has lost its history"
            revisions += at.version - 1
            if whole:
                await check_revisions_told(tx, store, at)
        for store, acknowledged in self._passing.items():
            found = await tx.get_store(DEFAULT_WORKSPACE, StoreId(store), (DEFAULT_WORKSPACE,))
            assert found is not None, f"store {store} is lost"
            deleted = found[0].status in ("deleting", "deleted")
            assert deleted or not acknowledged, f"the deletion of store {store} is lost"
        pools = self._pools if whole else None
        await check_journal(tx, DEFAULT_WORKSPACE, self.journal, pools)
        told = self.journal.count
        return Tally(told("acknowledged"), told("refused"), told("unknown"), revisions)

    # What writers use

    def unique(self, who: str) -> str:
        """A content that nobody has put."""
        number = next(self._numbers)
        return f"{who}, content {number} of seed {self.seed}\n" * (1 + number % 7)

    def draw_place(self, writer: int, chance: Random) -> Place:
        """A place of the shared store, most of the time, or of one of the others."""
        store = self._stores[0 if chance.random() < 0.5 else chance.randrange(1, STORES)]
        if chance.random() < 0.6:
            return store, f"/shared/{chance.randrange(SHARED_PATHS):02}.md"
        return store, f"/{writer:02}/{chance.randrange(OWN_PATHS)}.md"

    def look(self, place: Place) -> str | None:
        """The hash that somebody saw there last; None for a free path."""
        return self._known.get(place)

    def saw(self, place: Place, current: str | None) -> None:
        """Somebody was told this hash."""
        self._known[place] = current
        self.journal.show(place, current)

    def acknowledged(self, place: Place, attempt: Attempt) -> None:
        """The server has said that it is done."""
        self._answered.set()
        self._wanted -= 1
        if self._wanted == 0:
            self._enough.set()
        self.saw(place, attempt.left)

    def unanswered(self, sent: "Sent") -> None:
        """Nobody knows what became of the request."""
        if sent.key is not None:
            self._unanswered.append(sent)

    def unavailable(self) -> None:
        """The server has said that its database is not there."""
        self._unavailable.set()

    @property
    def over(self) -> bool:
        """Whether the server is being ended, so that no answer is no wonder."""
        return self._over.is_set()

    def delete(self, store: str, *, acknowledged: bool) -> None:
        """The store was to be deleted; nothing is asked of what it held."""
        self._passing[store] = acknowledged
        self._unanswered = [sent for sent in self._unanswered if sent.place[0] != store]
        self.journal.forget(store)


async def check_revisions_told(tx: Transaction, store: str, at: Ref) -> None:
    """The store's events tell each revision from the first to the ref's once, in their order."""
    chain: list[str] = []
    revision = await tx.get_revision(DEFAULT_WORKSPACE, StoreId(store), at.revision)
    while revision is not None and revision.parent is not None:
        chain.append(revision.id)
        revision = await tx.get_revision(DEFAULT_WORKSPACE, StoreId(store), revision.parent)
    assert revision is not None, f"{store}: the chain of revisions ends in nothing"
    assert len(chain) == at.version - 1, (
        f"{store}: {at.version - 1} revisions, {len(chain)} chained"
    )
    events = await all_events(tx, DEFAULT_WORKSPACE, store)
    told = [json.loads(e.payload or b"{}") for e in events if e.type == "revision.created"]
    assert [fields["revision"] for fields in told] == chain[::-1], f"{store}: untold revisions"


class Sent(Struct, frozen=True):
    """A request: what it is about, the attempt that it is, its idempotency key if it has one."""

    place: Place
    content: str | None
    attempt: Attempt
    key: str | None


async def send(kills: Kills, client: AsyncClient, sent: Sent) -> None:
    """Sends the request and notes its outcome. NoAnswer or Unavailable where it has none."""
    documents = (client if sent.key is None else client.once(sent.key)).documents
    place, attempt = sent.place, sent.attempt
    try:
        if sent.content is None:
            await documents.delete(*place, if_match=attempt.expected or "")
        else:
            made = await documents.put(*place, sent.content, if_match=attempt.expected)
            assert made.sha256 == attempt.left, f"{made.sha256} is not the hash of what was put"
    except Conflict as conflict:
        current = conflict.current_sha256
        assert current != attempt.expected, f"refused for what is there: {place}"
        kills.journal.refuse(attempt)
        kills.saw(place, current)
    except NotFound:
        assert sent.content is None, f"the store of {place} is lost"
        kills.journal.refuse(attempt)
        kills.saw(place, FREE)
    except (NoAnswer, Unavailable):
        kills.unanswered(sent)
        raise
    else:
        kills.journal.acknowledge(attempt)
        kills.acknowledged(place, attempt)


class Writer:
    """One of many who write at once, until the server is ended."""

    def __init__(self, kills: Kills, client: AsyncClient, number: int, chance: Random) -> None:
        self._kills = kills
        self._client = client
        self._number = number
        self._chance = chance

    async def run(self) -> None:
        """Writes on. NoAnswer where the server is gone and nobody has ended it."""
        while not self._kills.over:
            try:
                if self._number == 0 and self._chance.random() < 0.1:
                    await self._make_and_delete_a_store()
                else:
                    await self._step(self._kills.draw_place(self._number, self._chance))
            except NoAnswer:
                if not self._kills.over:
                    raise
            except Unavailable:
                # Whether it was carried out is as unknown as without an answer.
                self._kills.unavailable()
                await asyncio.sleep(PAUSE_SECONDS)

    async def _step(self, place: Place) -> None:
        kills, chance = self._kills, self._chance
        current = kills.look(place)
        choice = chance.random()
        if choice < 0.1:
            with suppress(NotFound):
                kills.saw(place, (await self._client.documents.get(*place)).sha256)
        elif choice < 0.2 or current is None:
            # Where there is a document, this is one that is to be refused.
            await self._put(place, FREE)
        elif choice < 0.35:
            await self._remove(place, current)
        else:
            await self._put(place, current)

    async def _put(self, place: Place, expected: str | None) -> None:
        await self._send(place, self._kills.unique(f"writer {self._number}"), expected)

    async def _remove(self, place: Place, expected: str) -> None:
        await self._send(place, None, expected)

    async def _send(self, place: Place, content: str | None, expected: str | None) -> None:
        attempt = self._kills.journal.begin(place, content, expected, f"writer {self._number}")
        key = f"{attempt.started}" if self._chance.random() < 0.5 else None
        await send(self._kills, self._client, Sent(place, content, attempt, key))

    async def _make_and_delete_a_store(self) -> None:
        store = (await self._client.stores.create("passing")).id
        for n in range(3):
            await self._put((store, f"/{n}.md"), FREE)
        self._kills.delete(store, acknowledged=False)
        await self._client.stores.delete(store)
        self._kills.delete(store, acknowledged=True)
