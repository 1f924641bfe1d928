"""Fixtures of the API tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from wire import Wire, wired


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[Wire]:
    """The application over the oracle, for what is decided before any storage is asked."""
    async with wired(tmp_path / "home", "memory:") as made:
        yield made
