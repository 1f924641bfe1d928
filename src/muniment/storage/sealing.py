"""Sealing of bodies: AES-256-GCM under a data key of its own for each body (R-82).

The data key lies in the key table, wrapped by the deployment's master key where one is set. To
destroy that small row is to destroy the body, wherever copies of the ciphertext lie.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from muniment.model.errors import Unavailable

KEY_BYTES = 32
NONCE_BYTES = 12
_CHECK = b"muniment master key"
_BODY_NONCE = bytes(NONCE_BYTES)
"""A data key seals exactly one body, so its nonce may be constant."""


class Sealed(Struct, frozen=True):
    """A body's ciphertext and its data key; `wrapping` 0 means that the key lies unwrapped."""

    body: bytes
    wrapping: int
    data_key: bytes


def has_master_key(sealer: "Sealer | None", check: bytes | None) -> bool:
    """Whether the sealer has the master key under which the kept check was made."""
    return check is None or (sealer is not None and sealer.agree(check))


def check_master_key(sealer: "Sealer | None", check: bytes | None) -> bytes | None:
    """The check to keep, where there is a master key and none is kept yet.

    Unavailable where the kept one was made under a master key that we do not have: reads would
    fail, and new bodies would be sealed under another one.
    """
    if not has_master_key(sealer, check):
        raise Unavailable(
            "this database is sealed under another master key: set MUNIMENT_MASTER_KEY to it"
        )
    return sealer.check() if check is None and sealer is not None and sealer.wraps else None


class Sealer:
    """Seals and opens bodies. `master_keys` are 32 bytes by number; `current` wraps new keys."""

    def __init__(
        self,
        random_bytes: Callable[[int], bytes],
        master_keys: Mapping[int, bytes] | None = None,
        current: int = 0,
    ) -> None:
        self._random_bytes = random_bytes
        self._masters = {n: AESGCM(key) for n, key in (master_keys or {}).items()}
        self._current = current

    @property
    def wraps(self) -> bool:
        """Whether new data keys are wrapped by a master key."""
        return self._current != 0

    def check(self) -> bytes:
        """Bytes by which `agree` tells later whether it has the master key of now."""
        nonce = self._random_bytes(NONCE_BYTES)
        return nonce + self._masters[self._current].encrypt(nonce, _CHECK, None)

    def agree(self, check: bytes) -> bool:
        """Whether one of the master keys made the check."""
        for master in self._masters.values():
            with suppress(InvalidTag):
                return master.decrypt(check[:NONCE_BYTES], check[NONCE_BYTES:], None) == _CHECK
        return False

    def seal(self, content: bytes, context: bytes) -> Sealed:
        """The sealed body; `context` (workspace, pool and blob id) is bound to it."""
        key = self._random_bytes(KEY_BYTES)
        body = AESGCM(key).encrypt(_BODY_NONCE, content, context)
        if self._current:
            nonce = self._random_bytes(NONCE_BYTES)
            key = nonce + self._masters[self._current].encrypt(nonce, key, context)
        return Sealed(body, self._current, key)

    def open(self, sealed: Sealed, context: bytes) -> bytes:
        """The content. ValueError where the master key is not ours or the bytes were altered."""
        key = sealed.data_key
        try:
            if sealed.wrapping:
                master = self._masters.get(sealed.wrapping)
                if master is None:
                    raise ValueError(f"master key {sealed.wrapping} is not configured")
                key = master.decrypt(key[:NONCE_BYTES], key[NONCE_BYTES:], context)
            return AESGCM(key).decrypt(_BODY_NONCE, sealed.body, context)
        except InvalidTag:
            raise ValueError("a sealed body does not open with its key") from None
