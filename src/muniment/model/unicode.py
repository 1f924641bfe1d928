"""Unicode, frozen: what a character is and which form a text has, alike on every interpreter.

Nothing here asks `unicodedata`, whose answers change with the Python that runs (R-18). The tables
are read when the first text comes that is not ASCII.
"""

from bisect import bisect_right
from functools import cache
from typing import NamedTuple

from muniment.model import unicode_tables

WHITE_SPACE = frozenset(
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

# The Hangul syllables are composed by arithmetic: chapter 3.12 of the Unicode standard.
_SYLLABLE, _LEADING, _VOWEL, _TRAILING = 0xAC00, 0x1100, 0x1161, 0x11A7
_LEADINGS, _VOWELS, _TRAILINGS = 19, 21, 28
_SYLLABLES = _LEADINGS * _VOWELS * _TRAILINGS


def kind(character: str) -> str | None:
    """What kind of character no path may hold this is, in words; None where it is fine.

    `control` (Cc), `format` (Cf), `unassigned` (Cn), `surrogate` (Cs), `line separator` (Zl, Zp).
    """
    point = ord(character)
    if point < 0x20 or 0x7F <= point < 0xA0:
        return "control"
    if 0xD800 <= point < 0xE000:
        return "surrogate"
    if point in (0x2028, 0x2029):
        return "line separator"
    if point < 0x7F or not bisect_right(_refused(), point) & 1:
        return None
    return "format" if bisect_right(_format(), point) & 1 else "unassigned"


def first_refused(text: str) -> int | None:
    """The index of the first character that has a `kind`, or None."""
    bounds = _refused()
    for at, character in enumerate(text):
        if bisect_right(bounds, ord(character)) & 1:
            return at
    return None


def nfc(text: str) -> str:
    """The text in Unicode normalisation form C; the text itself where it is in that form.

    For text of assigned characters, that is: an unassigned one is taken as a letter.
    """
    if text.isascii():
        return text
    tables = _normalisation()
    if tables.suspects.isdisjoint(text):
        return text
    return "".join(_composed(_ordered(_decomposed(text, tables), tables), tables))


class _Normalisation(NamedTuple):
    classes: dict[str, int]
    """The combining class of each character that has one other than 0."""
    decompositions: dict[str, str]
    """Full canonical decompositions."""
    pairs: dict[tuple[str, str], str]
    """What two neighbours compose to."""
    suspects: frozenset[str]
    """A text with none of these is in form C."""


def _ranges(text: str) -> list[tuple[int, int]]:
    """`a-b` and `a` as first and last."""
    found = []
    for word in text.split():
        first, _, last = word.partition("-")
        found.append((int(first, 16), int(last or first, 16)))
    return found


@cache
def _format() -> list[int]:
    return _flat(_ranges(unicode_tables.FORMAT))


@cache
def _refused() -> list[int]:
    """The bounds of every character with a `kind`."""
    ranges = [(0, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF), (0x2028, 0x2029)]
    ranges += _ranges(unicode_tables.FORMAT) + _ranges(unicode_tables.UNASSIGNED)
    return _flat(sorted(ranges))


def _flat(ranges: list[tuple[int, int]]) -> list[int]:
    """Where each range begins and ends: a code point in one has an odd insertion point."""
    return [bound for first, last in ranges for bound in (first, last + 1)]


@cache
def _normalisation() -> _Normalisation:
    classes: dict[str, int] = {}
    number = 0
    for word in unicode_tables.COMBINING.split():
        if word.endswith(":"):
            number = int(word[:-1])
            continue
        for first, last in _ranges(word):
            classes.update({chr(point): number for point in range(first, last + 1)})
    steps: dict[str, str] = {}
    pairs: dict[tuple[str, str], str] = {}
    suspects = set(classes)
    for word in unicode_tables.DECOMPOSITIONS.split():
        point, _, parts = word.partition("=")
        character = chr(int(point, 16))
        letters = [chr(int(part, 16)) for part in parts.removeprefix("!").split("+")]
        steps[character] = "".join(letters)
        if parts.startswith("!"):
            suspects.add(character)
        else:
            pairs[letters[0], letters[1]] = character
            suspects.add(letters[1])
    # A step's first letter may have a step of its own; the others never have.
    full: dict[str, str] = {}
    for character, letters_of in steps.items():
        expanded = letters_of
        while expanded[0] in steps:
            expanded = steps[expanded[0]] + expanded[1:]
        full[character] = expanded
    suspects.update(chr(_VOWEL + at) for at in range(_VOWELS))
    suspects.update(chr(_TRAILING + at) for at in range(1, _TRAILINGS))
    return _Normalisation(classes, full, pairs, frozenset(suspects))


def _decomposed(text: str, tables: _Normalisation) -> list[str]:
    letters: list[str] = []
    for character in text:
        at = ord(character) - _SYLLABLE
        if 0 <= at < _SYLLABLES:
            leading, rest = divmod(at, _VOWELS * _TRAILINGS)
            vowel, trailing = divmod(rest, _TRAILINGS)
            letters += (chr(_LEADING + leading), chr(_VOWEL + vowel))
            if trailing:
                letters.append(chr(_TRAILING + trailing))
        else:
            letters += tables.decompositions.get(character, character)
    return letters


def _ordered(letters: list[str], tables: _Normalisation) -> list[str]:
    """The letters with each run of combining ones sorted by class, equals as they were."""
    ordered: list[str] = []
    run: list[str] = []
    for letter in letters:
        if letter in tables.classes:
            run.append(letter)
            continue
        if run:
            ordered += sorted(run, key=tables.classes.__getitem__)
            run.clear()
        ordered.append(letter)
    return ordered + sorted(run, key=tables.classes.__getitem__)


def _composed(letters: list[str], tables: _Normalisation) -> list[str]:
    """The letters with each one joined to the last starter before it, if nothing blocks it."""
    composed: list[str] = []
    starter = -1
    last = 0
    for letter in letters:
        number = tables.classes.get(letter, 0)
        if starter >= 0 and (last < number or starter == len(composed) - 1):
            joined = _pair(composed[starter], letter, tables)
            if joined is not None:
                composed[starter] = joined
                continue
        if number == 0:
            starter = len(composed)
        last = number
        composed.append(letter)
    return composed


def _pair(first: str, second: str, tables: _Normalisation) -> str | None:
    joined = tables.pairs.get((first, second))
    if joined is not None:
        return joined
    leading, vowel = ord(first) - _LEADING, ord(second) - _VOWEL
    if 0 <= leading < _LEADINGS and 0 <= vowel < _VOWELS:
        return chr(_SYLLABLE + (leading * _VOWELS + vowel) * _TRAILINGS)
    syllable, trailing = ord(first) - _SYLLABLE, ord(second) - _TRAILING
    if 0 <= syllable < _SYLLABLES and syllable % _TRAILINGS == 0 and 0 < trailing < _TRAILINGS:
        return chr(ord(first) + trailing)
    return None
