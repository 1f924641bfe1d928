"""The journal of writers sees what a database lost, made up or put in another order."""

import pytest

from muniment.testing.journal import Attempt, Journal

PLACE = ("store", "/a.md")


def attempt(journal: Journal, content: str | None, expected: Attempt | None) -> Attempt:
    return journal.begin(PLACE, content, expected and expected.left, "somebody")


def faults(journal: Journal, *found: Attempt | None) -> list[str]:
    return list(journal.faults(PLACE, [each and each.left for each in found]))


def test_what_was_acknowledged_and_is_there_in_order_is_no_fault() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.acknowledge(first)
    second = attempt(journal, "second", first)
    journal.acknowledge(second)
    gone = attempt(journal, None, second)
    journal.acknowledge(gone)
    journal.show(PLACE, first.left)
    assert faults(journal, first, second, gone) == []


@pytest.mark.parametrize("there", [True, False])
def test_what_nobody_has_an_answer_of_may_be_there_or_not(there: bool) -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.acknowledge(first)
    second = attempt(journal, "second", first)
    assert faults(journal, first, *([second] if there else [])) == []


def test_a_lost_put_and_a_lost_removal_are_named() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.acknowledge(first)
    journal.acknowledge(attempt(journal, None, first))
    assert faults(journal, first) == ["acknowledged and lost: somebody, nothing"]
    assert "acknowledged and lost" in faults(journal)[0]


def test_of_two_acknowledged_puts_on_one_hash_one_is_lost_c033() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.acknowledge(first)
    for content in ("mine", "yours"):
        journal.acknowledge(attempt(journal, content, first))
    mine = Attempt("mine", None, "", 0)
    assert len(faults(journal, first)) == 2
    mine.left = journal.begin(PLACE, "mine", None, "").left
    assert len(faults(journal, first, mine)) == 1


def test_what_was_refused_must_not_be_there() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.refuse(first)
    assert "or it was refused" in faults(journal, first)[0]


def test_what_skips_an_expected_content_is_a_fault() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    second = attempt(journal, "second", first)
    third = attempt(journal, "third", second)
    assert "nobody put" in faults(journal, first, third)[0]


def test_what_ended_before_another_began_comes_before_it() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.acknowledge(first)
    gone = attempt(journal, None, first)
    journal.acknowledge(gone)
    later = attempt(journal, "later", None)
    journal.acknowledge(later)
    back = attempt(journal, None, later)
    journal.acknowledge(back)
    assert faults(journal, first, gone, later, back) == []
    assert "landed before it" in faults(journal, later, back, first, gone)[0]


def test_what_was_shown_must_have_been_there() -> None:
    journal = Journal()
    first = attempt(journal, "first", None)
    journal.show(PLACE, first.left)
    assert "shown and not there" in faults(journal)[0]
    assert faults(journal, first) == []
