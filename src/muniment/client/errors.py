"""What a call can raise: one class an error type of the server, and one for no answer at all.

Every class has `type`, `message`, `more` (a page about it), `detail` (facts for programs),
`status` and `request_id` (for a report to the operator); the last four may be None or empty.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from muniment.model.errors import Failure

REQUEST_ID = "muniment-request-id"
EXCERPT_CHARACTERS = 200


class MunimentError(Exception):
    """Base of everything that a call raises; itself raised for an error type we do not know."""

    type: str = "unknown"

    def __init__(
        self,
        message: str,
        *,
        type: str | None = None,
        more: str | None = None,
        detail: Mapping[str, Any] | None = None,
        status: int | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.more = more
        self.detail: dict[str, Any] = dict(detail or {})
        self.status = status
        self.request_id = request_id
        if type is not None:
            self.type = type


class Malformed(MunimentError):
    """The request breaks a written rule; `detail` may name `field`, `path`, `limit`, `position`."""

    type = "validation.malformed"


class InvalidKey(MunimentError):
    """The key is missing, unknown, expired or revoked."""

    type = "auth.invalid_key"


class DisabledTenancy(MunimentError):
    """The operator has disabled the key's workspace."""

    type = "auth.disabled_tenancy"


class Denied(MunimentError):
    """The thing is visible to the caller, but this use of it is not allowed."""

    type = "policy.denied"


class ReadOnly(MunimentError):
    """The store moves only by approved proposals, or is archived."""

    type = "memory.read_only"


class NotFound(MunimentError):
    """There is no such thing, or it is not visible to the caller."""

    type = "validation.not_found"


class Conflict(MunimentError):
    """A precondition failed and nothing changed: read again and decide again."""

    type = "memory.conflict"

    @property
    def current_sha256(self) -> str | None:
        """The hash that the document has, None where its path is free."""
        return self._text("current_sha256")

    @property
    def current_version(self) -> int | None:
        """The version that the store has."""
        version = self.detail.get("current_version")
        return version if isinstance(version, int) else None

    @property
    def current_revision(self) -> str | None:
        """The revision that the ref has."""
        return self._text("current_revision")

    def _text(self, name: str) -> str | None:
        value = self.detail.get(name)
        return value if isinstance(value, str) else None


class BudgetExceeded(MunimentError):
    """A limit of the workspace is reached."""

    type = "budget.exceeded"


class Internal(MunimentError):
    """A fault of the server; report it with `request_id`."""

    type = "runtime.internal"


class Unavailable(MunimentError):
    """The database does not answer, or the surface is switched off: try again later."""

    type = "memory.backend_unavailable"


class NoAnswer(MunimentError):
    """The server did not answer. `sent` is false where it cannot have seen the request.

    Where `sent` is true a write may have happened: read before you write again.
    """

    type = "client.no_answer"

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class UnexpectedAnswer(MunimentError):
    """The answer is not one of Muniment's: perhaps the URL is another server's."""

    type = "client.unexpected_answer"


BY_TYPE: Mapping[str, type[MunimentError]] = {
    cls.type: cls
    for cls in (
        Malformed,
        InvalidKey,
        DisabledTenancy,
        Denied,
        ReadOnly,
        NotFound,
        Conflict,
        BudgetExceeded,
        Internal,
        Unavailable,
    )
}
"""A class for every error type that the server documents."""


class _Envelope(msgspec.Struct):
    type: str
    message: str
    more: str | None = None
    detail: dict[str, Any] = {}


class _Body(msgspec.Struct):
    error: _Envelope


_DECODER = msgspec.json.Decoder(_Body)


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> MunimentError:
    """The error that an answer with this status says."""
    request_id = headers.get(REQUEST_ID)
    try:
        said = _DECODER.decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return unexpected(status, headers, body)
    return BY_TYPE.get(said.type, MunimentError)(
        said.message,
        type=said.type,
        more=said.more,
        detail=said.detail,
        status=status,
        request_id=request_id,
    )


def unexpected(status: int, headers: Mapping[str, str], body: bytes) -> UnexpectedAnswer:
    """The error for an answer that is none of ours."""
    excerpt = " ".join(body[:EXCERPT_CHARACTERS].decode("utf-8", "replace").split())
    return UnexpectedAnswer(
        f"the answer ({status}) is not Muniment's; is the URL right? It begins: {excerpt!r}",
        status=status,
        request_id=headers.get(REQUEST_ID),
    )


def error_of_failure(failure: Failure) -> MunimentError:
    """The error for a failure of the embedded library, met before a request could be made."""
    detail = {name: value for name, value in failure.detail.items() if value is not None}
    return BY_TYPE.get(failure.code, MunimentError)(
        failure.message, type=failure.code, detail=detail
    )
