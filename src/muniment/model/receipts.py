"""Receipts: what an idempotency key has produced, so that a repetition makes nothing (R-47)."""

from collections.abc import Mapping

from msgspec import Struct

KEY_CHARACTERS_MAX = 255


class Receipt(Struct, frozen=True):
    """The outcome of one request under an idempotency key: ids only, never content or secrets.

    `id` is a SHA-256 over who sent the key, to which route, and the key; `subject` the store whose
    erasure takes the receipt along, or the workspace. `fingerprint` is a keyed digest of the
    decoded request, so that it tells nothing of a short content. `ids` name what was made.
    """

    id: bytes
    subject: str
    fingerprint: bytes
    ids: Mapping[str, str]
    created_at: int
