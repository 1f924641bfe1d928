"""What the rows share: folders, databases, a PostgreSQL that starts when first asked."""

import random
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.load import DOCUMENT_BYTES, MARK, Generator
from bench.report import Options
from bench.servers import Server
from muniment.testing.postgres import PostgresServer

_WORDS = (
    "agent memory store revision the a of and review approve deploy staging customer prefers short"
    " answers build fails when cache is cold run make check before merge note table index query"
)


class Workshop:
    """One run's temporary things, all gone at its end."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.options = options
        self.say = say
        self.skipped: list[str] = []
        """A line for each figure that cannot be measured yet."""
        self._stack = ExitStack()
        self._postgres: PostgresServer | None = None
        self._generator: Generator | None = None
        self._folders = 0

    def __enter__(self) -> Self:
        self._root = Path(tempfile.mkdtemp(prefix="muniment-bench-"))
        self._stack.callback(shutil.rmtree, self._root, ignore_errors=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def generator(self) -> Generator:
        """The load generator's process."""
        if self._generator is None:
            self._generator = self._stack.enter_context(Generator())
        return self._generator

    def folder(self) -> Path:
        """A new folder."""
        self._folders += 1
        made = self._root / str(self._folders)
        made.mkdir()
        return made

    def database(self, storage: str) -> str:
        """The address of a new, empty database of that storage."""
        if storage == "memory":
            return "memory:"
        if storage == "sqlite":
            return f"sqlite:///{self.folder() / 'muniment.db'}"
        if self._postgres is None:
            self.say("starting PostgreSQL")
            self._postgres = self._stack.enter_context(PostgresServer(durable=True))
        return self._postgres.dsn(self._postgres.fresh_database())

    @property
    def postgres_pid(self) -> int | None:
        """PostgreSQL's first process; None while it does not run."""
        if self._postgres is None:
            return None
        return int((self._postgres.data / "postmaster.pid").read_text("ascii").split()[0])

    def serve(self, kind: str, source: str, *, home: Path | None = None) -> Server:
        """A server process that ends with the run, or with `stop`."""
        server = Server(kind, home or self.folder(), source)
        self._stack.callback(server.stop)
        return server


def prose(size: int = DOCUMENT_BYTES) -> str:
    """Text of so many bytes that begins with MARK, which the generator makes different each time.

    It needs no escapes in JSON but for its line ends.
    """
    chance = random.Random(7)
    words = _WORDS.split()
    text = MARK.decode() + "\n"
    while len(text) < size:
        line = " ".join(chance.choice(words) for _ in range(12))
        text += line + "\n"
    return text[:size]
