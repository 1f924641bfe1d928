"""Commands on an embedded database, and a server for those that are sent to one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from muniment.testing.server import Server
from shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Commands on an embedded database."""
    return Shell(tmp_path / "home")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for the commands that are sent to one."""
    with Server(tmp_path_factory.mktemp("server")) as running:
        yield running
