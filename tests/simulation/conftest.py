"""Fixtures of the simulation: the storages it runs on."""

import pytest

from muniment.testing.postgres import PostgresServer
from muniment.testing.simulation import KINDS, Kind, postgres


@pytest.fixture(scope="session")
def every_kind(postgres_server: PostgresServer) -> dict[str, Kind]:
    """All three storages, the oracle first."""
    return {
        "memory": KINDS["memory"],
        "sqlite": KINDS["sqlite"],
        "postgres": postgres(postgres_server),
    }
