"""Figures, and how they are shown: a table for people, JSON for programs."""

import json
import operator
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"≥": operator.ge, "≤": operator.le}


@dataclass(frozen=True, slots=True)
class Target:
    """What a figure must reach; `of` says which of a figure's numbers: ratio or ours."""

    sense: str
    bound: float
    of: str = "ratio"

    def __str__(self) -> str:
        return f"{self.sense} {self.bound:g}{' ×' if self.of == 'ratio' else ''}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: what was measured, raw beside ours, and whether the target is met.

    `raw` is None where nothing stands beside the figure. `more` holds what explains it, such as
    processor time a request.
    """

    row: str
    case: str
    unit: str
    ours: float
    raw: float | None = None
    target: Target | None = None
    more: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        """Ours over raw."""
        return self.ours / self.raw if self.raw else None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        if self.target is None:
            return None
        value = self.ratio if self.target.of == "ratio" else self.ours
        return value is not None and _COMPARE[self.target.sense](value, self.target.bound)


@dataclass(frozen=True, slots=True)
class Options:
    """How large and how long: `quick` is for a look, `tiny` for the smoke test."""

    rounds: int = 5
    seconds: float = 1.5
    documents: int = 1_000
    many_documents: int = 100_000
    changes: int = 100
    starts: int = 5
    storages: tuple[str, ...] = ("memory", "sqlite", "postgres")

    @classmethod
    def quick(cls, storages: tuple[str, ...]) -> "Options":
        """Smaller and shorter by about five."""
        return cls(3, 0.7, 1_000, 20_000, 40, 3, storages)

    @classmethod
    def tiny(cls, storages: tuple[str, ...]) -> "Options":
        """As little as makes every row run."""
        return cls(1, 0.1, 8, 40, 3, 1, storages)


def median(values: Sequence[float]) -> float:
    """The middle value."""
    return statistics.median(values)


def medians(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every number over the rounds."""
    return {name: median([one[name] for one in rounds]) for name in rounds[0]}


def print_table(figures: Sequence[Figure], console: Console) -> None:
    """A line a figure."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("row", "case", "unit"):
        table.add_column(name)
    for name in ("raw", "ours", "ratio", "target", "met"):
        table.add_column(name, justify="right")
    table.add_column("beside it", overflow="fold")
    for one in figures:
        ratio = "" if one.ratio is None else f"{one.ratio:.3f} ×"
        met = {None: "", True: "yes", False: "[red]NO[/red]"}[one.met]
        beside = ", ".join(f"{name} {_number(value)}" for name, value in one.more.items())
        target = "" if one.target is None else str(one.target)
        raw, ours = _number(one.raw), _number(one.ours)
        table.add_row(one.row, one.case, one.unit, raw, ours, ratio, target, met, beside)
    console.print(table)
    console.print(
        f"{os.cpu_count()} processors, shared by server and generator; load"
        f" {os.getloadavg()[0]:.1f}; Python {platform.python_version()}. Where others use the"
        " machine too, the processor time beside a figure is the steadier one.",
        style="dim",
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def write_json(figures: Sequence[Figure], skipped: Sequence[str], path: Path) -> None:
    """Everything that the table says, with the machine it was measured on."""
    found = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "processors": os.cpu_count(),
            "load_average": os.getloadavg()[0],
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "figures": [asdict(one) | {"ratio": one.ratio, "met": one.met} for one in figures],
        "skipped": list(skipped),
    }
    path.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", "utf-8")
