"""Clients of an embedded database and of a real server, blocking and to await."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import muniment
from muniment.testing.server import Server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests of a run: each makes stores of its own."""
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home that embedded clients use, with nothing else in the environment."""
    for name in ("MUNIMENT_URL", "MUNIMENT_API_KEY", "MUNIMENT_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUNIMENT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(params=["embedded", "server"])
def client(request: pytest.FixtureRequest, home: Path) -> Iterator[muniment.Client]:
    """A client with the local owner's key."""
    if request.param == "embedded":
        made = muniment.open(home / "memory.db")
    else:
        server: Server = request.getfixturevalue("server")
        made = muniment.Client(server.url, server.key)
    with made:
        yield made


@pytest.fixture(params=["embedded", "server"])
async def async_client(
    request: pytest.FixtureRequest, home: Path
) -> AsyncIterator[muniment.AsyncClient]:
    """The same, for asyncio."""
    if request.param == "embedded":
        made = muniment.open_async(home / "memory.db")
    else:
        server: Server = request.getfixturevalue("server")
        made = muniment.AsyncClient(server.url, server.key)
    async with made:
        yield made


@pytest.fixture
def store(client: muniment.Client) -> str:
    """The id of an empty store."""
    return client.stores.create("notes").id
