"""The catalogue of failures: one class a documented error type (native.md section 3, C-236).

Below `api` nobody knows HTTP: a dialect's error table turns a code into a status and an envelope.
A class's docstring is what the public error page says of it.
"""

from collections.abc import Iterator
from typing import ClassVar


class Failure(Exception):
    """Base of every refusal a caller can cause or meet; never raised itself."""

    code: ClassVar[str]

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class Malformed(Failure):
    """The request breaks a written rule. The message names the field and the rule; nothing changed.

    `detail` may hold `field`, `path`, `segment`, `limit` or `position` for programs.
    """

    code = "validation.malformed"


class TooLarge(Malformed):
    """The request's body is over the limit."""


class MethodNotAllowed(Malformed):
    """The path exists, the method does not. The `Allow` header lists those that do."""


class InvalidKey(Failure):
    """The API key is missing, unknown, expired or revoked. Send `Authorization: Bearer <key>`."""

    code = "auth.invalid_key"


class DisabledTenancy(Failure):
    """The operator has disabled the key's workspace, with all its keys, and may enable it again."""

    code = "auth.disabled_tenancy"


class Denied(Failure):
    """The resource is visible to you but this use of it is not allowed.

    `GET /v1/memory-stores/{id}/access` explains the decision.
    """

    code = "policy.denied"


class ReadOnly(Failure):
    """This write cannot happen here.

    A store under proposals moves only by approval, an archived one not at all.
    """

    code = "memory.read_only"


class NotFound(Failure):
    """No such resource, or it is not visible to you."""

    code = "validation.not_found"


class Conflict(Failure):
    """A precondition failed: somebody else was first. Nothing changed.

    `detail` says what is there now: `current_sha256`, `current_version` or `current_revision`.
    Read again, decide again, and send the new value as the precondition.
    """

    code = "memory.conflict"


class BudgetExceeded(Failure):
    """A limit of this workspace is reached."""

    code = "budget.exceeded"


class Internal(Failure):
    """Something failed that should not have. It is a fault of the server: please report it."""

    code = "runtime.internal"


class Unavailable(Failure):
    """The database cannot be reached just now, or the surface is switched off. Retry later."""

    code = "memory.backend_unavailable"


def catalogue() -> Iterator[type[Failure]]:
    """Every failure class that has a code of its own, in the order of this file."""
    seen: set[str] = set()
    for cls in Failure.__subclasses__():
        if cls.code not in seen:
            seen.add(cls.code)
            yield cls
