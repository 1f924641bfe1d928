"""Writes src/muniment/model/unicode_tables.py from the `unicodedata` of this interpreter.

Run with a Python 3.13, whose Unicode is VERSION: `python3.13 scripts/unicode_tables.py`. A newer
version accepts more paths and never fewer, since neither an assignment nor a canonical form of an
assigned character is ever taken back; older servers then refuse what newer ones accepted.
"""

import sys
import textwrap
import unicodedata
from collections.abc import Iterable
from pathlib import Path

VERSION = "15.1.0"
TARGET = Path(__file__).parents[1] / "src/muniment/model/unicode_tables.py"
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)

HEAD = '''"""Unicode {version}, as far as paths need it; written by scripts/unicode_tables.py.

Numbers are hexadecimal code points, `a-b` a range with both ends.
"""

UNICODE_VERSION = "{version}"
'''

PARTS = {
    "FORMAT": "The characters of category Cf.",
    "UNASSIGNED": "The code points of category Cn, noncharacters among them.",
    "COMBINING": "Canonical combining classes other than 0 (decimal), each with its characters.",
    "DECOMPOSITIONS": (
        "Canonical decompositions, one step, Hangul syllables left out; `!` where the character\n"
        "is never composed again."
    ),
}


def ranges(points: Iterable[int]) -> str:
    """The ascending code points as hexadecimal ranges."""
    found: list[list[int]] = []
    for point in points:
        if found and found[-1][1] == point - 1:
            found[-1][1] = point
        else:
            found.append([point, point])
    return " ".join(f"{a:x}" if a == b else f"{a:x}-{b:x}" for a, b in found)


def combining() -> str:
    """Each combining class, a colon, and its characters."""
    classes: dict[int, list[int]] = {}
    for point in range(sys.maxunicode + 1):
        number = unicodedata.combining(chr(point))
        if number:
            classes.setdefault(number, []).append(point)
    return " ".join(f"{number}: {ranges(classes[number])}" for number in sorted(classes))


def decompositions() -> str:
    """Each character that has one, `=` or `=!`, and its one or two characters."""
    found = []
    for point in range(sys.maxunicode + 1):
        parts = unicodedata.decomposition(chr(point)).lower().split()
        if not parts or parts[0].startswith("<") or point in HANGUL_SYLLABLES:
            continue
        excluded = unicodedata.normalize("NFC", chr(point)) != chr(point)
        letters = "+".join(f"{int(part, 16):x}" for part in parts)
        found.append(f"{point:x}={'!' if excluded else ''}{letters}")
    return " ".join(found)


def category(name: str) -> str:
    """The code points of a general category."""
    return ranges(p for p in range(sys.maxunicode + 1) if unicodedata.category(chr(p)) == name)


def main() -> None:
    """Writes the file, or stops where the interpreter has another Unicode."""
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"Unicode {VERSION} is wanted, this Python has {unicodedata.unidata_version}")
    data = {
        "FORMAT": category("Cf"),
        "UNASSIGNED": category("Cn"),
        "COMBINING": combining(),
        "DECOMPOSITIONS": decompositions(),
    }
    text = HEAD.format(version=VERSION)
    for name, meaning in PARTS.items():
        lines = "\n".join(textwrap.wrap(data[name], 98, break_on_hyphens=False))
        text += f'\n{name} = """\n{lines}\n"""\n"""{meaning}"""\n'
    TARGET.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
