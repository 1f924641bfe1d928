import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muniment.model import unicode, unicode_tables
from muniment.model.errors import Malformed
from muniment.model.paths import (
    PATH_BYTES_MAX,
    SEGMENTS_MAX,
    ancestors,
    check_path,
    check_prefix,
    prefix_end,
)

LONG = "/" + "/".join(["a" * 255] * 4)

ACCEPTED = [
    *["/notes..md", "/.hidden", "/$x", "/CON", "/코딩", "/notes/café.md", "/Note.md", "/note.md"],
    *["/...", "/..a", "/a..", "/a b", "/~", "/%2e%2e", "/a:b", "/-", "/'\"`", "/日本/語.md"],
    *["/\U0001f600", "/\ue000", "/a\u0327", "/\u0301", LONG, "/é/a\u00a0b"],
    "/a" * SEGMENTS_MAX,
    "/" + "é" * 127,
]

REFUSED = [
    ("", "absolute"),
    ("a", "absolute"),
    ("a//b", "absolute"),
    ("\\a", "absolute"),
    ("/", "root"),
    ("//", "trailing_slash"),
    ("/a/", "trailing_slash"),
    ("/a//b", "empty_segment"),
    ("//a", "empty_segment"),
    ("/a/../b", "dot_segment"),
    ("/a/./b", "dot_segment"),
    ("/..", "dot_segment"),
    ("/é/..", "dot_segment"),
    ("/a\\b", "backslash"),
    ("/ a", "white_space"),
    ("/a /b", "white_space"),
    ("/a/ ", "white_space"),
    ("/\u00a0a", "white_space"),
    ("/a\u3000", "white_space"),
    ("/a\u1680/b", "white_space"),
    ("/a\0", "control"),
    ("/a\n", "control"),
    ("/a\tb", "control"),
    ("/a\x7f", "control"),
    ("/a\x85", "control"),
    ("/a\x9f", "control"),
    ("/a\u00ad", "format"),
    ("/\u200b", "format"),
    ("/a\u200d", "format"),
    ("/a\u202eb", "format"),
    ("/\ufeffa", "format"),
    ("/a\U000e0041", "format"),
    ("/a\u2028", "line_separator"),
    ("/a\u2029b", "line_separator"),
    ("/\u0378", "unassigned"),
    ("/\ufdd0", "unassigned"),
    ("/a\uffff", "unassigned"),
    ("/\U0010ffff", "unassigned"),
    ("/\U000e0080", "unassigned"),
    ("/a\ud800", "surrogate"),
    ("/\udfff", "surrogate"),
    ("/a" * 59, "segments"),
    ("/" + "a" * 256, "segment_bytes"),
    ("/" + "é" * 128, "segment_bytes"),
    (LONG + "b", "segment_bytes"),
    (LONG[:-1] + "/bc", "path_bytes"),
    ("/a" * 100_000, "path_bytes"),
    ("/" + "/".join(["é" * 100] * 6), "path_bytes"),
    ("/cafe\u0301", "nfc"),
    ("/\u212b", "nfc"),
    ("/\u1100\u1161", "nfc"),
    ("/a\u0301\u0327", "nfc"),
    ("/\u0344", "nfc"),
    ("/\uf900", "nfc"),
]


@pytest.mark.parametrize("path", ACCEPTED, ids=ascii)
def test_a_good_path_is_kept_as_it_is_c025_k6(path: str) -> None:
    assert check_path(path) is path


@pytest.mark.parametrize(("path", "rule"), REFUSED, ids=lambda text: ascii(text)[:40])
def test_a_hostile_path_breaks_one_written_rule_c025_k6(path: str, rule: str) -> None:
    with pytest.raises(Malformed) as refused:
        check_path(path, "target_path")
    failure = refused.value
    assert failure.message.startswith("target_path m")
    assert (failure.detail["field"], failure.detail["rule"]) == ("target_path", rule)
    # What is shown of it can be sent and read: no surrogates, nothing invisible in the message.
    for value in failure.detail.values():
        str(value).encode()
    assert unicode.first_refused(failure.message) is None


@pytest.mark.parametrize(
    ("path", "segment", "normal"),
    [
        ("/notes/cafe\u0301.md", "cafe\u0301.md", "/notes/café.md"),
        ("/a/\u212b/b", "\u212b", "/a/\u00c5/b"),
        ("/\u110f\u1169\u1103\u1175\u11bc", "\u110f\u1169\u1103\u1175\u11bc", "/코딩"),
    ],
)
def test_a_path_not_in_nfc_is_refused_with_its_nfc_form_k5(
    path: str, segment: str, normal: str
) -> None:
    with pytest.raises(Malformed) as refused:
        check_path(path)
    assert refused.value.detail == {
        "field": "path",
        "rule": "nfc",
        "segment": segment,
        "nfc": normal,
    }
    assert check_path(normal) == normal


def test_the_refused_segment_and_character_are_shown_k6() -> None:
    with pytest.raises(Malformed, match=r"path must not hold the format character U\+202E") as it:
        check_path("/ok/a\u202eb")
    assert (it.value.detail["segment"], it.value.detail["character"]) == ("a\u202eb", "U+202E")


def test_a_path_of_1025_bytes_is_read_but_not_written_k6() -> None:
    for path in (LONG, LONG[:-4] + "éé"):
        assert len(path.encode()) == 1024
        assert check_path(path, write=True) == path
    longer = LONG[:-1] + "/c"
    assert len(longer) == 1 + PATH_BYTES_MAX
    assert check_path(longer) == longer
    for path, write, limit in ((longer, True, 1024), (longer + "d", False, 1025)):
        with pytest.raises(Malformed) as refused:
            check_path(path, write=write)
        assert refused.value.detail["limit"] == limit


SEGMENT_TEXT = st.text(st.sampled_from("ab.~ \\/\0é\u0301\u200b"), max_size=12)


@given(SEGMENT_TEXT.map(lambda text: "/" + text))
def test_the_quick_way_agrees_with_the_written_rules_c025(path: str) -> None:
    segments = path.split("/")[1:]
    good = all(
        segment not in ("", ".", "..")
        and segment == segment.strip()
        and not set(segment) & set("\\\0\u200b")
        for segment in segments
    ) and unicodedata.is_normalized("NFC", path)
    try:
        assert check_path(path) == path
        assert good
    except Malformed:
        assert not good


@pytest.mark.parametrize("prefix", ["/", "/a", "/a/", "/a/.", "/tenant/acme-", "/e\u0301", "/ "])
def test_a_prefix_may_end_anywhere(prefix: str) -> None:
    assert check_prefix(prefix) is prefix


@pytest.mark.parametrize(
    ("prefix", "rule"),
    [
        ("", "absolute"),
        ("a", "absolute"),
        ("/\0", "control"),
        ("/\ud800", "surrogate"),
        ("/" + "a" * 1025, "path_bytes"),
        ("/" + "é" * 513, "path_bytes"),
    ],
)
def test_a_hostile_prefix_is_refused(prefix: str, rule: str) -> None:
    with pytest.raises(Malformed, match=r"^path_prefix m") as refused:
        check_prefix(prefix)
    assert (refused.value.detail["field"], refused.value.detail["rule"]) == ("path_prefix", rule)


def test_the_ancestors_of_a_path_are_its_folders() -> None:
    assert ancestors("/a/b/c") == ["/a", "/a/b"]
    assert ancestors("/a") == []


@given(st.binary(max_size=4), st.binary(max_size=6))
def test_the_end_of_a_prefix_is_the_least_that_is_greater_than_all_below_it(
    prefix: bytes, other: bytes
) -> None:
    end = prefix_end(prefix)
    if end is None:
        assert prefix == b"\xff" * len(prefix)
        return
    assert (prefix <= other < end) == other.startswith(prefix)
    assert prefix_end(b"/a/") == b"/a0"


KINDS = {
    "Cc": "control",
    "Cf": "format",
    "Cn": "unassigned",
    "Cs": "surrogate",
    "Zl": "line separator",
    "Zp": "line separator",
}


# Planes 4 to 13 and the private ones are uniform: a sample of them will do.
POINTS = [*range(0x40000), *range(0xE0000, 0xE1000), *range(0x40000, sys.maxunicode + 1, 97)]

KNOWN_HERE = [
    character
    for character in map(chr, POINTS)
    if unicodedata.category(character) not in ("Cn", "Cs")
    and unicode.kind(character) != "unassigned"
]
"""The characters of which both the interpreter's Unicode and ours know."""


def test_the_frozen_tables_are_those_of_unicode_15_1_c025() -> None:
    assert unicode_tables.UNICODE_VERSION == "15.1.0"
    here = tuple(map(int, unicodedata.unidata_version.split(".")))
    for character in map(chr, POINTS):
        category = unicodedata.category(character)
        found = unicode.kind(character)
        assert (unicode.first_refused(character) == 0) == (found is not None)
        if category == "Cn":
            # What this interpreter does not know, ours may: but only where ours is the newer.
            assert found == "unassigned" or here < (15, 1, 0)
        elif found == "unassigned":
            assert here > (15, 1, 0)
        else:
            assert found == KINDS.get(category), ascii(character)
        assert (character in unicode.WHITE_SPACE) == character.isspace()


def test_normalisation_is_the_interpreters_for_every_character_k5() -> None:
    for character in KNOWN_HERE:
        assert unicode.nfc(character) == unicodedata.normalize("NFC", character)


TRICKY = [
    character
    for character in KNOWN_HERE
    if unicodedata.decomposition(character) or unicodedata.combining(character)
] + list("aeiouAEIOU=<\u1100\u1112\u1161\u1175\u11a7\u11a8\u11c2\uac00\uac01\ud7a3")


@given(st.lists(st.sampled_from(TRICKY), max_size=8).map("".join), st.sampled_from(["NFD", "NFC"]))
def test_normalisation_is_the_interpreters_for_every_text_k5(text: str, form: str) -> None:
    for variant in (text, unicodedata.normalize(form, text)):
        normal = unicodedata.normalize("NFC", variant)
        assert unicode.nfc(variant) == normal
        assert unicode.nfc(normal) == normal
