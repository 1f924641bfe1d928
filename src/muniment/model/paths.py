"""What a document's path may be (R-18, C-025): refused, never repaired."""

import re
from typing import Never

from muniment.model.errors import Malformed
from muniment.model.unicode import WHITE_SPACE, first_refused, kind, nfc

PATH_BYTES_MAX = 1024
"""After the leading slash, in UTF-8."""

PATH_WRITE_BYTES_MAX = 1024
"""With the leading slash: what the native and the Anthropic API write; all read one byte more."""

SEGMENT_BYTES_MAX = 255
SEGMENTS_MAX = 58

_SEGMENT = rf"/(?!\.\.?(?:/|\Z))(?! )[ -.0-\[\]-~]{{1,{SEGMENT_BYTES_MAX}}}+(?<! )"
_PLAIN = re.compile(rf"(?:{_SEGMENT}){{1,{SEGMENTS_MAX}}}\Z")
"""A good path of ASCII characters, but for its length."""


def check_path(text: str, field: str = "path", *, write: bool = False) -> str:
    """`text` itself, where it is a path; Malformed otherwise.

    With `write`, the leading slash counts towards the 1,024 bytes, as the native and the
    Anthropic API have it for paths they write; a path of one byte more can be read, listed and
    deleted. The message names the field and the rule. `detail` has `field`, `rule`, and where one
    segment is at fault `segment`; `limit` in bytes or segments; `nfc`, the path in normalisation
    form C, where that is the rule; `character` (`U+202E`) where one is refused.
    """
    limit = PATH_WRITE_BYTES_MAX if write else PATH_BYTES_MAX + 1
    if len(text) <= limit and _PLAIN.match(text) is not None:
        return text
    _check_shape(text, field, limit)
    segments = text.split("/")[1:]
    if len(segments) > SEGMENTS_MAX:
        message = f"may have at most {SEGMENTS_MAX} segments, this one has {len(segments)}"
        _refuse(field, "segments", message, limit=SEGMENTS_MAX)
    for segment in segments:
        _check_segment(segment, field)
    _check_bytes(text, field, limit)
    normal = nfc(text)
    if normal != text:
        pairs = zip(segments, normal.split("/")[1:], strict=True)
        segment = next(given for given, wanted in pairs if given != wanted)
        message = f"must be in Unicode normalisation form C, which is {normal}"
        _refuse(field, "nfc", message, segment=segment, nfc=normal)
    return text


def check_prefix(text: str, field: str = "path_prefix") -> str:
    """`text` itself, where it may be the beginning of paths: it begins with a slash and may end
    anywhere, also within a segment. Malformed with `field` and `rule` otherwise.
    """
    if not text.startswith("/"):
        _refuse(field, "absolute", "must begin with /")
    if "\0" in text:
        _refuse(field, "control", "must not hold the control character U+0000")
    if len(text) > PATH_BYTES_MAX + 1:
        _refuse_bytes(field, PATH_BYTES_MAX + 1)
    _check_bytes(text, field, PATH_BYTES_MAX + 1)
    return text


def ancestors(path: str) -> list[str]:
    """The folders above a path, outermost first: `/a/b/c` has `/a` and `/a/b`."""
    found = []
    at = path.find("/", 1)
    while at > 0:
        found.append(path[:at])
        at = path.find("/", at + 1)
    return found


def prefix_end(prefix: bytes) -> bytes | None:
    """The least bytes greater than all that begin with `prefix`; None where nothing is."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _refuse(field: str, rule: str, message: str, **detail: object) -> Never:
    raise Malformed(f"{field} {message}", field=field, rule=rule, **detail)


def _check_shape(text: str, field: str, limit: int) -> None:
    """The rules about the path as a whole, its normalisation apart."""
    if not text.startswith("/"):
        _refuse(field, "absolute", "must begin with /" if text else "must not be empty")
    if text == "/":
        _refuse(field, "root", "must name a document, / is none")
    if len(text) > limit:
        _refuse_bytes(field, limit)
    if text.endswith("/"):
        _refuse(field, "trailing_slash", "must not end with /")


def _check_segment(segment: str, field: str) -> None:
    """The rules about one segment."""
    if segment == "":
        _refuse(field, "empty_segment", "must not have an empty segment (//)", segment=segment)
    if segment in (".", ".."):
        _refuse(field, "dot_segment", f"must not have the segment {segment}", segment=segment)
    at = first_refused(segment)
    if at is not None:
        word = kind(segment[at])
        shown = segment.encode("utf-8", "backslashreplace").decode()
        character = f"U+{ord(segment[at]):04X}"
        message = f"must not hold the {word} character {character}"
        if word == "surrogate":
            message = f"must be Unicode text, it has the lone surrogate {character}"
        elif word == "line separator":
            message = f"must not hold the {word} {character}"
        rule = str(word).replace(" ", "_")
        _refuse(field, rule, message, segment=shown, character=character)
    if "\\" in segment:
        _refuse(field, "backslash", "must not hold a backslash", segment=segment)
    if segment[0] in WHITE_SPACE or segment[-1] in WHITE_SPACE:
        message = "must not have a segment that begins or ends with white space"
        _refuse(field, "white_space", message, segment=segment)
    if len(segment.encode()) > SEGMENT_BYTES_MAX:
        message = f"must not have a segment of more than {SEGMENT_BYTES_MAX} bytes in UTF-8"
        _refuse(field, "segment_bytes", message, segment=segment, limit=SEGMENT_BYTES_MAX)


def _check_bytes(text: str, field: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        character = f"U+{ord(text[error.start]):04X}"
        message = f"must be Unicode text, it has the lone surrogate {character}"
        _refuse(field, "surrogate", message, character=character)
    if size > limit:
        _refuse_bytes(field, limit)


def _refuse_bytes(field: str, limit: int) -> Never:
    message = f"may have at most {limit:,} bytes in UTF-8, the leading / among them"
    _refuse(field, "path_bytes", message, limit=limit)
