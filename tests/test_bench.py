"""Every row of the benchmark runs, at its smallest; no figure is judged here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROWS = {"get", "put", "contended", "grouped", "change", "start", "memory", "cli", "embedded"}
RUN_SECONDS_MAX = 300


def run(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, list[dict[str, object]]]]:
    """What a tiny run prints, and its JSON."""
    file = tmp_path / "figures.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--tiny", "--json", str(file), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout, json.loads(file.read_text("utf-8"))


@pytest.mark.slow
def test_every_row_prints_a_figure_or_why_it_has_none(tmp_path: Path) -> None:
    printed, found = run(tmp_path, "--storage", "memory", "--storage", "sqlite")
    figures = {str(one["row"]) for one in found["figures"]}
    skipped = {str(line).partition(":")[0] for line in found["skipped"]}
    assert figures | skipped == ROWS
    for one in found["figures"]:
        assert isinstance(one["ours"], float)
        assert one["ours"] > 0
        assert str(one["row"]) in printed
        assert (one["target"] is None) == (one["met"] is None)


@pytest.mark.slow
@pytest.mark.postgres
def test_documents_through_http_are_measured_on_postgresql(tmp_path: Path) -> None:
    _, found = run(tmp_path, "get", "put", "--storage", "postgres")
    assert {str(one["row"]) for one in found["figures"]} == {"get", "put"}


def test_an_unknown_row_is_refused_with_the_known_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "gets"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 2
    assert "no row 'gets'; there are get, put" in done.stderr
