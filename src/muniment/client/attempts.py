"""When a request is sent again: only where a second one can do no harm."""

import time
from typing import Any

from muniment.client.calls import Answer, Call
from muniment.client.errors import Conflict, NoAnswer

PAUSE_SECONDS = 0.1
PAUSE_SECONDS_MAX = 5.0
CONTENDED_SECONDS = 0.002
CONTENDED_SECONDS_MAX = 0.25


def pause_after(
    call: Call[Any], outcome: Answer | NoAnswer, attempt: int, retries: int
) -> float | None:
    """Seconds to wait before sending once more, None to take the outcome as it is.

    `attempt` counts from 1. Sent again is what the server cannot have seen, and a read that got
    no answer or 503 with Retry-After. A write whose outcome is unknown is sent again only under an
    idempotency key.
    """
    if attempt > retries:
        return None
    if isinstance(outcome, NoAnswer):
        harmless = call.repeatable or not outcome.sent
        return _doubled(PAUSE_SECONDS, attempt, PAUSE_SECONDS_MAX) if harmless else None
    if outcome.status != 503 or not call.repeatable:
        return None
    wanted = outcome.headers.get("retry-after", "")
    if not (wanted.isascii() and wanted.isdigit()):
        return None
    return min(float(wanted), PAUSE_SECONDS_MAX) + _doubled(PAUSE_SECONDS, 1, PAUSE_SECONDS)


def pause_after_conflict(conflict: Conflict, attempt: int, attempts: int) -> float | None:
    """Seconds before an edit is tried once more; None where that is of no use."""
    if attempt >= attempts or "current_sha256" not in conflict.detail:
        return None
    return _doubled(CONTENDED_SECONDS, attempt, CONTENDED_SECONDS_MAX)


def _doubled(seconds: float, attempt: int, most: float) -> float:
    """Seconds that double with each attempt, spread so that clients do not return together."""
    # The clock's last digits are chance enough to spread clients.
    spread = 0.5 + (time.perf_counter_ns() // 100 % 1000) / 1000
    return min(seconds * 2.0 ** (attempt - 1), most) * spread
