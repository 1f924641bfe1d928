import pytest

PARTS = ("access", "contents", "events", "failures", "machine", "races", "suite")
pytest.register_assert_rewrite(*(f"muniment.testing.storage_{part}" for part in PARTS))
