"""What contents, names and descriptions may be (R-17, C-026): refused, never repaired."""

import re
from typing import Never

from muniment.model.errors import Malformed
from muniment.model.unicode import WHITE_SPACE

CONTENT_BYTES_MAX = 102_400
NAME_CHARACTERS_MAX = 255

_CONTROLS = bytes([*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F])
"""C0 but tab, line feed and carriage return; and DEL. No UTF-8 sequence has one of these bytes."""

_TEXT_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f"
_NAME_CONTROLS = r"\x00-\x1f\x7f-\x9f"
_NOT_IN_TEXT = re.compile(rf"[{_TEXT_CONTROLS}\ud800-\udfff]")
_NOT_IN_NAMES = re.compile(rf"[{_NAME_CONTROLS}\ud800-\udfff]")
_WHITE_SPACE = "".join(sorted(WHITE_SPACE))
_BLANKS = "".join(f"\\u{ord(character):04x}" for character in _WHITE_SPACE)

TEXT_PATTERN = rf"^[^{_TEXT_CONTROLS}]*$"
NAME_PATTERN = rf"^[^{_NAME_CONTROLS}]*[^{_NAME_CONTROLS}{_BLANKS}][^{_NAME_CONTROLS}]*$"
"""What `check_text` and `check_name` take, lengths and surrogates apart, as patterns for others."""


def check_content(text: str, field: str = "content") -> bytes:
    """The UTF-8 bytes of a document's new content, a BOM and line endings as they are (K17).

    Malformed where they are over CONTENT_BYTES_MAX, or hold a lone surrogate, DEL or a C0 control
    but tab, line feed and carriage return. `detail` has `field`, `rule`, and `limit` or
    `position`, in characters from 0.
    """
    if len(text) > CONTENT_BYTES_MAX:
        _refuse_bytes(field)
    try:
        content = text.encode()
    except UnicodeEncodeError:
        _refuse_character(text, field, _NOT_IN_TEXT)
    if len(content) > CONTENT_BYTES_MAX:
        _refuse_bytes(field)
    if len(content.translate(None, _CONTROLS)) != len(content):
        _refuse_character(text, field, _NOT_IN_TEXT)
    return content


def check_name(text: str, field: str, *, characters_max: int = NAME_CHARACTERS_MAX) -> str:
    """`text` itself, where it is a name: 1 to `characters_max` characters, not only white space,
    no control character and no lone surrogate. Malformed with `field` and `rule` otherwise.
    """
    if not text.strip(_WHITE_SPACE):
        message = f"{field} must not be {'only white space' if text else 'empty'}"
        raise Malformed(message, field=field, rule="blank")
    _check_characters(text, field, characters_max)
    if _NOT_IN_NAMES.search(text) is not None:
        _refuse_character(text, field, _NOT_IN_NAMES)
    return text


def check_text(text: str, field: str, characters_max: int) -> str:
    """`text` itself, where it is at most `characters_max` characters, perhaps none, and has no
    lone surrogate, DEL or C0 control but tab, line feed and carriage return; Malformed otherwise.
    """
    _check_characters(text, field, characters_max)
    if _NOT_IN_TEXT.search(text) is not None:
        _refuse_character(text, field, _NOT_IN_TEXT)
    return text


def _check_characters(text: str, field: str, limit: int) -> None:
    if len(text) > limit:
        message = f"{field} may have at most {limit:,} characters, this has {len(text):,}"
        raise Malformed(message, field=field, rule="characters", limit=limit)


def _refuse_bytes(field: str) -> Never:
    raise Malformed(
        f"{field} may have at most {CONTENT_BYTES_MAX:,} bytes in UTF-8",
        field=field,
        rule="bytes",
        limit=CONTENT_BYTES_MAX,
    )


def _refuse_character(text: str, field: str, refused: re.Pattern[str]) -> Never:
    """Malformed for the first character of `text` that matches; there is one."""
    found = refused.search(text)
    assert found is not None
    character = f"U+{ord(found[0]):04X}"
    if found[0] >= "\ud800":
        rule, message = "surrogate", f"must be Unicode text, it has the lone surrogate {character}"
    else:
        rule, message = "control", f"must not hold the control character {character}"
    raise Malformed(
        f"{field} {message}, at character {found.start()}",
        field=field,
        rule=rule,
        character=character,
        position=found.start(),
    )
