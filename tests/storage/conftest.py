import pytest

PARTS = (
    *("access", "contents", "crashes", "events", "failures", "inspection", "jobs", "machine"),
    *("races", "suite"),
)
pytest.register_assert_rewrite(*(f"muniment.testing.storage_{part}" for part in PARTS))
