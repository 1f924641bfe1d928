"""Jobs: work to do, written in the transaction that causes it (house section 8).

A worker leases a job for a while and renews the lease as it goes on. One that fails is tried again
after a pause that doubles, and parked after ATTEMPTS_MAX, where it stays to be seen.
"""

from msgspec import Struct, structs

from muniment.model.ids import JobId

ERASE_STORE = "erase_store"

KINDS: dict[str, str] = {ERASE_STORE: "store"}
"""Every kind of job, and the kind of id that it is about."""

LEASE_SECONDS = 30
ATTEMPTS_MAX = 12
PAUSE_SECONDS_MAX = 600
CLAIMS_AT_ONCE = 20

_SECOND = 1_000_000


class Job(Struct, frozen=True):
    """A unit of work: its kind and the id it is about. Never holds content.

    `run_at` is when it is due; while it is leased, that is when the lease ends. `fence` counts the
    claims. `failure` names what the last attempt failed of, `parked_at` when it was given up.
    Where only a newer program knows the kind, `subject` is the id's digits without their prefix.
    """

    id: JobId
    kind: str
    subject: str
    created_at: int
    run_at: int
    attempts: int = 0
    fence: int = 0
    lease_until: int | None = None
    failure: str | None = None
    parked_at: int | None = None


def new_job(identifier: JobId, kind: str, subject: str, at: int) -> Job:
    """A job that is due at once."""
    return Job(identifier, kind, subject, at, at)


def leased(job: Job, at: int) -> Job:
    """The job as whoever makes it holds it, to work on it at once."""
    until = lease_end(at)
    return structs.replace(job, run_at=until, lease_until=until, attempts=1, fence=1)


def lease_end(at: int) -> int:
    """When a lease taken or renewed at `at` ends."""
    return at + LEASE_SECONDS * _SECOND


def failed(job: Job, failure: str, at: int) -> Job:
    """The job after an attempt that failed: due again after a pause, or parked for good."""
    parked = at if job.attempts >= ATTEMPTS_MAX else None
    pause = min(2 ** max(job.attempts - 1, 0), PAUSE_SECONDS_MAX)
    return structs.replace(
        job,
        run_at=at + pause * _SECOND,
        attempts=min(job.attempts, ATTEMPTS_MAX),
        lease_until=None,
        failure=failure,
        parked_at=parked,
    )


def postponed(job: Job, at: int, *, seconds: int = 0) -> Job:
    """The job given back without a failure, its attempt not counted, due after `seconds`."""
    return structs.replace(
        job, run_at=at + seconds * _SECOND, lease_until=None, attempts=max(job.attempts - 1, 0)
    )


def retried(job: Job, at: int) -> Job:
    """A parked or waiting job, due at once with all its attempts before it."""
    return structs.replace(job, run_at=at, lease_until=None, attempts=0, parked_at=None)
