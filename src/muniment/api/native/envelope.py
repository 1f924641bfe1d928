"""The native error table and envelope, and the version header (C-234 … C-236, R-02, R-03)."""

from collections.abc import Callable

from muniment.api.http import Call, Reply
from muniment.model import errors
from muniment.model.errors import Failure, Malformed, MethodNotAllowed, Unavailable

VERSIONS = ("2026-08-24", "2026-08-29")
RETRY_SECONDS = b"1"

STATUS: dict[type[Failure], int] = {
    errors.Malformed: 400,
    errors.TooLarge: 413,
    errors.MethodNotAllowed: 405,
    errors.InvalidKey: 401,
    errors.DisabledTenancy: 403,
    errors.Denied: 403,
    errors.ReadOnly: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.BudgetExceeded: 429,
    errors.Internal: 500,
    errors.Unavailable: 503,
}
"""A row for every failure; a test walks the catalogue."""


def slug(code: str) -> str:
    """The anchor of an error type on the documentation page (C-235)."""
    return code.replace(".", "-").replace("_", "-")


def renderer(base_url: str) -> Callable[[Failure], Reply]:
    """What turns a failure into `{"error": {type, message, more, detail?}}`."""

    def render(failure: Failure) -> Reply:
        error: dict[str, object] = {
            "type": failure.code,
            "message": failure.message,
            "more": f"{base_url}/docs/errors#{slug(failure.code)}",
        }
        detail = {name: value for name, value in failure.detail.items() if value is not None}
        if "current_sha256" in failure.detail:
            detail["current_sha256"] = failure.detail["current_sha256"]
        if detail:
            error["detail"] = detail
        headers: list[tuple[bytes, bytes]] = []
        if isinstance(failure, Unavailable):
            headers.append((b"retry-after", RETRY_SECONDS))
        if isinstance(failure, errors.InvalidKey):
            headers.append((b"www-authenticate", b"Bearer"))
        if isinstance(failure, MethodNotAllowed):
            allowed = failure.detail.get("allow", [])
            names = allowed if isinstance(allowed, list) else []
            headers.append((b"allow", ", ".join(names).encode()))
        return Reply(STATUS[type(failure)], {"error": error}, headers)

    return render


def check_version(call: Call) -> None:
    """Malformed for a dated version that we do not speak; a missing one is the newest."""
    for name in (b"muniment-version", b"checkfu-version"):
        version = call.header(name)
        if version is not None and version not in VERSIONS:
            raise Malformed(
                f"{name.decode().title()} must be one of {', '.join(VERSIONS)}",
                field=name.decode().title(),
            )
