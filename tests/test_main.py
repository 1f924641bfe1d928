"""The edges where clock and chance come in."""

import time

import pytest

from muniment import main
from muniment.api.native.shapes import time_text
from muniment.model.ids import is_id


@pytest.mark.parametrize(
    ("clock", "told"),
    [(-(10**18), "1970-01-01T00:00:00.000000Z"), (10**21, "9999-12-31T23:59:59.999999Z")],
)
def test_a_clock_that_is_out_of_its_mind_makes_no_time_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, clock: int, told: str
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: clock)
    assert time_text(main.now()) == told
    assert is_id("store", main.new_id("store"))
