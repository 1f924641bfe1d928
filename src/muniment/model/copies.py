"""What a database's copy holds, and who is told how far the copying is."""

from collections.abc import Callable
from dataclasses import dataclass

Tell = Callable[[str, float | None], None]
"""Told what is done at the moment, and how much of it where that is known: from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Contents:
    """What a database's file holds. `last_write` is in UTC microseconds, None in an empty one.

    `stores` are those that can be read, archived ones too; `sealed` is whether it needs its master
    key.
    """

    bytes: int
    schema: int
    workspaces: int
    stores: int
    documents: int
    last_write: int | None
    sealed: bool
