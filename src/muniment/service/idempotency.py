"""Idempotency keys: a request that is sent again makes nothing and gets its answer (R-47).

A use case authorises first, then asks `replay` for what its key has made, then checks its
preconditions and writes, and hands what it made to `keep` in the same transaction. Of parallel
requests with one key the second waits for the first: on a lock they share, or on the receipt's row.
"""

import hashlib
import hmac
from collections.abc import Mapping

from msgspec import Struct

from muniment.model.access import Actor
from muniment.model.errors import Conflict, Malformed
from muniment.model.receipts import KEY_CHARACTERS_MAX, Receipt
from muniment.service.app import App
from muniment.storage.base import Transaction

FIELD = "Idempotency-Key"


class Once(Struct, frozen=True):
    """A request under an idempotency key: where it went, and a keyed digest of what it said."""

    route: str
    key: str
    fingerprint: bytes


def once(app: App, route: str, key: str, request: bytes) -> Once:
    """The request to `route`, a method and a path with its ids. Malformed for a key that is none.

    `request` is all that the request says, in one form whatever its spelling.
    """
    if not (1 <= len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()):
        raise Malformed(
            f"{FIELD} must be 1 to {KEY_CHARACTERS_MAX} printable ASCII characters",
            field=FIELD,
            limit=KEY_CHARACTERS_MAX,
        )
    # Keyed, because a plain hash of a short content would tell the content to who tries them all.
    return Once(route, key, hmac.digest(app.fingerprint_key, request, "sha256"))


async def replay(
    tx: Transaction, actor: Actor, subject: str, once: Once | None
) -> Mapping[str, str] | None:
    """The ids of what this request has made before, None where it is the first, or has no key.

    `subject` is the store that the receipt is about, or the workspace. Conflict where the key was
    sent with another request.
    """
    if once is None:
        return None
    found = await tx.get_receipt(actor.workspace, subject, _receipt_id(actor, once))
    if found is None:
        return None
    if found.fingerprint != once.fingerprint:
        raise Conflict(f"this {FIELD} was used for another request", field=FIELD)
    return found.ids


def keep(
    tx: Transaction, actor: Actor, subject: str, once: Once | None, at: int, **ids: str
) -> None:
    """Records, in the transaction that makes it, what the request has made."""
    if once is not None:
        receipt = Receipt(_receipt_id(actor, once), subject, once.fingerprint, ids, at)
        tx.put_receipt(actor.workspace, receipt)


def _receipt_id(actor: Actor, once: Once) -> bytes:
    """Names the receipt without the key itself, which a client may have made of anything."""
    scope = (actor.workspace, actor.principal, actor.delegate or "", once.route, once.key)
    return hashlib.sha256("\n".join(scope).encode()).digest()
