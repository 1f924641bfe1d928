"""Fixtures of every test: asynchronous tests run on asyncio, PostgreSQL starts when first asked."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from muniment.testing.postgres import PostgresServer
from wire import Wire, wired

FreshDatabase = Callable[..., str]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz-rounds",
        type=int,
        default=2,
        help="rounds of requests made from the OpenAPI document",
    )


@pytest.fixture(scope="session")
def anyio_backend() -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": False}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server a run. It forgets what a power cut would lose: crash tests start their own."""
    with PostgresServer(durable=False) as server:
        yield server


@pytest.fixture
def fresh_database(postgres_server: PostgresServer) -> Iterator[FreshDatabase]:
    """Makes databases for one test: `fresh_database()` is the address of a new, empty one.

    `fresh_database(template)` copies a template, made once a run by
    `postgres_server.template(name, initialize)`, which returns the name to give here.
    """
    made: list[str] = []

    def fresh(template: str | None = None) -> str:
        made.append(postgres_server.fresh_database(template))
        return postgres_server.dsn(made[-1])

    yield fresh
    if not postgres_server.running:
        postgres_server.start()
    for name in made:
        postgres_server.drop_database(name)


@pytest.fixture
def postgres_dsn(fresh_database: FreshDatabase) -> str:
    """The address of an empty database that only this test sees."""
    return fresh_database()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what names a PostgreSQL fixture.

    A parameter that stands for one carries the mark itself:
    `pytest.param("postgres", marks=pytest.mark.postgres)`.
    """
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database on each of the three storages."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    return str(request.getfixturevalue("postgres_dsn"))


@pytest.fixture
async def wire(database_url: str, tmp_path: Path) -> AsyncIterator[Wire]:
    """The whole application over each storage."""
    async with wired(tmp_path / "home", database_url) as made:
        yield made
