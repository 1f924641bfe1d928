"""`change`: one change in a large store beside the same change in a small one, in this process."""

import gc
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import uvloop

from bench.report import Figure, Target, medians
from bench.workshop import Workshop, prose
from muniment import main, settings
from muniment.model.access import Action, Actor
from muniment.model.ids import StoreId
from muniment.service import guard
from muniment.service.app import App
from muniment.service.documents import canonical, put_document
from muniment.service.keys import authenticate
from muniment.service.revisions import Edit, apply
from muniment.service.revisions import Target as Place
from muniment.service.stores import NewStore, create_store
from muniment.storage.base import Transaction

BATCH = 1_000
FOLDER_DOCUMENTS = 100
STRIDE = 7_919  # a prime, so that changes fall all over the store
WARM = 20
STORAGES = ("memory", "sqlite")
TARGET = Target("≤", 1.5)


class Filled:
    """A store with its documents, and where the next change goes."""

    def __init__(self, app: App, actor: Actor, store: StoreId, documents: int) -> None:
        self._app = app
        self._actor = actor
        self.id = store
        self._documents = documents
        self._known: dict[int, bytes] = {}
        self._next = 0
        self._text = prose()

    async def fill(self) -> None:
        """Makes the documents, a thousand a revision, through the service's one way to do it."""
        gc.disable()  # looking through all that was made, again and again, triples the time
        try:
            for start in range(0, self._documents, BATCH):
                await self._fill(range(start, min(start + BATCH, self._documents)))
        finally:
            gc.enable()

    async def _fill(self, numbers: range) -> None:
        app, actor = self._app, self._actor
        bodies = [(path_of(n), first_content(n)) for n in numbers]
        edits = [Edit(path, body, digest(body), None) for path, body in bodies]
        stamp = app.revision_stamp(len(edits))

        async def use(tx: Transaction) -> None:
            record, _ = await guard.open_store(tx, actor, self.id, Action.WRITE)
            place = Place(actor, record, await canonical(tx, actor, record))
            await apply(app, tx, place, edits, stamp)

        await app.storage.write(self.id, use)

    async def change(self) -> None:
        """Replaces 4 KB at a path that has a document, by its hash."""
        self._next += 1
        n = self._next * STRIDE % self._documents
        content = f"{self._next:016d}{self._text[16:]}"
        expected = self._known.get(n) or digest(first_content(n))
        await put_document(
            self._app, self._actor, self.id, path_of(n), content, precondition=expected
        )
        self._known[n] = digest(content.encode())

    async def measure(self, changes: int) -> dict[str, float]:
        """Milliseconds of a change, one after the other, and its processor time."""
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(changes):
            await self.change()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return {"ms": wall / changes * 1000, "cpu_us": cpu / changes * 1e6}


def path_of(n: int) -> str:
    """The path of a document."""
    return f"/notes/{n // FOLDER_DOCUMENTS:04d}/{n:06d}.md"


def first_content(n: int) -> bytes:
    """What a document holds before its first change."""
    return f"note {n}: it was written to fill the store\n".encode()


def digest(content: bytes) -> bytes:
    """A blob's id."""
    return hashlib.sha256(content).digest()


@asynccontextmanager
async def filled(home: Path, database: str, documents: int) -> AsyncIterator[Filled]:
    """A fresh database with one store of so many documents, opened as `serve` opens it."""
    given = settings.load({}, home=home, database=database)
    storage = main.make_storage(given)
    await storage.start()
    try:
        app = await main.make_app(given, storage)
        actor = await authenticate(app, main.owner_secret(given))
        made = await create_store(app, actor, NewStore("bench"))
        store = Filled(app, actor, made.store.id, documents)
        await store.fill()
        yield store
    finally:
        await storage.stop()


def run_change(workshop: Workshop) -> list[Figure]:
    """One change in a store of many documents, beside one in a store of few."""
    figures: list[Figure] = []
    for storage in STORAGES:
        if storage in workshop.options.storages:
            figures += uvloop.run(compare(workshop, storage))
    return figures


async def compare(workshop: Workshop, storage: str) -> list[Figure]:
    """The two sizes in turn, round by round."""
    options = workshop.options
    sizes = (options.documents, options.many_documents)
    rounds: dict[int, list[Mapping[str, float]]] = {size: [] for size in sizes}
    stores: dict[int, Filled] = {}
    async with AsyncExitStack() as stack:
        for size in sizes:
            started = time.perf_counter()
            database = workshop.database(storage)
            stores[size] = await stack.enter_async_context(
                filled(workshop.folder(), database, size)
            )
            seconds = time.perf_counter() - started
            workshop.say(f"{storage}: {size:,} documents made in {seconds:.1f} s")
            for _ in range(min(WARM, options.changes)):
                await stores[size].change()
        for _ in range(options.rounds):
            for size in sizes:
                rounds[size].append(await stores[size].measure(options.changes))
    few, many = (medians(rounds[size]) for size in sizes)
    case = f"{storage}, {sizes[1]:,} v. {sizes[0]:,} documents"
    return [
        Figure("change", f"{case}, durable", "ms", many["ms"], few["ms"], TARGET),
        Figure("change", f"{case}, CPU", "µs", many["cpu_us"], few["cpu_us"], TARGET),
    ]
