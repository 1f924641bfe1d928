"""Nothing acknowledged is lost, whenever the server or the database is killed (C-013, C-032)."""

from pathlib import Path

import pytest

from muniment.testing.kills import Kills
from muniment.testing.postgres import PostgresServer

ROUNDS = 20
SEED = 20_260_829


@pytest.mark.slow
async def test_a_server_on_sqlite_killed_under_writers_loses_nothing_acknowledged_c013(
    tmp_path: Path,
) -> None:
    tally = await Kills(tmp_path / "home", SEED, say=print).run(ROUNDS)
    assert tally.acknowledged > 20 * ROUNDS
    assert tally.refused > ROUNDS


@pytest.mark.slow
@pytest.mark.postgres
async def test_a_server_and_its_postgresql_killed_under_writers_lose_nothing_acknowledged_c013(
    tmp_path: Path,
) -> None:
    with PostgresServer(durable=True) as postgres:
        tally = await Kills(tmp_path / "home", SEED, postgres=postgres, say=print).run(ROUNDS)
    assert tally.acknowledged > 20 * ROUNDS
    assert tally.refused > ROUNDS
