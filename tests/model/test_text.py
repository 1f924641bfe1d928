import pytest

from muniment.model.errors import Malformed
from muniment.model.text import (
    CONTENT_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    check_content,
    check_name,
    check_text,
)

CONTROLS = [chr(point) for point in [*range(0x20), 0x7F] if chr(point) not in "\t\n\r"]


def test_a_content_keeps_its_byte_order_mark_and_line_endings_k17() -> None:
    text = "\ufeff---\r\ntitle: a\r\n---\r\n\tb\n\rc"
    assert check_content(text) == b"\xef\xbb\xbf---\r\ntitle: a\r\n---\r\n\tb\n\rc"


@pytest.mark.parametrize("text", ["", "記憶", "\U0001f600", "\x80\x9f", "\u200b\u202e", "\ufdd0"])
def test_a_content_may_be_any_other_text_c026(text: str) -> None:
    assert check_content(text) == text.encode()


@pytest.mark.parametrize("character", CONTROLS)
def test_a_content_has_no_control_characters_but_three_c026(character: str) -> None:
    with pytest.raises(Malformed, match=r"^body\.text must not hold the control") as refused:
        check_content(f"né\n{character}", "body.text")
    assert refused.value.detail == {
        "field": "body.text",
        "rule": "control",
        "character": f"U+{ord(character):04X}",
        "position": 3,
    }


def test_a_content_has_no_lone_surrogate_c026() -> None:
    with pytest.raises(Malformed, match="lone surrogate U\\+DC80") as refused:
        check_content("ab\udc80\0")
    assert refused.value.detail["position"] == 2


@pytest.mark.parametrize("unit", ["a", "é", "記", "\U0001f600"])
def test_a_content_has_at_most_102400_bytes_c026(unit: str) -> None:
    width = len(unit.encode())
    most = unit * (CONTENT_BYTES_MAX // width) + "x" * (CONTENT_BYTES_MAX % width)
    assert len(check_content(most)) == CONTENT_BYTES_MAX == 102_400
    for text in (most + "x", most + "\ud800", most * 3):
        with pytest.raises(Malformed) as refused:
            check_content(text)
        assert refused.value.detail.get("limit", 102_400) == CONTENT_BYTES_MAX


@pytest.mark.parametrize("name", ["a", " a ", "Ä", "記憶", "x" * NAME_CHARACTERS_MAX, "\u200b"])
def test_a_name_is_kept_as_it_is(name: str) -> None:
    assert check_name(name, "name") is name


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("", "blank"),
        (" \t\u3000", "blank"),
        ("x" * 256, "characters"),
        ("a\0", "control"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("a\x85b", "control"),
        ("\ud800", "surrogate"),
    ],
)
def test_a_name_that_breaks_a_rule_is_refused(name: str, rule: str) -> None:
    with pytest.raises(Malformed, match=r"^title ") as refused:
        check_name(name, "title")
    assert (refused.value.detail["field"], refused.value.detail["rule"]) == ("title", rule)


def test_a_name_may_have_another_limit() -> None:
    assert check_name("x" * 300, "name", characters_max=300)
    with pytest.raises(Malformed) as refused:
        check_name("abc", "name", characters_max=2)
    assert refused.value.detail["limit"] == 2


def test_a_text_may_be_empty_and_have_lines() -> None:
    for text in ("", "a\n\tb\r\n", "é" * 10):
        assert check_text(text, "description", 10) is text


@pytest.mark.parametrize(
    ("text", "rule"), [("x" * 11, "characters"), ("a\0", "control"), ("\udfff", "surrogate")]
)
def test_a_text_that_breaks_a_rule_is_refused(text: str, rule: str) -> None:
    with pytest.raises(Malformed, match=r"^description ") as refused:
        check_text(text, "description", 10)
    assert refused.value.detail["rule"] == rule
