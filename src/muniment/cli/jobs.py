"""`muniment job`: work that is not finished; for administrators."""

from typing import Annotated

import typer

from muniment.cli.command import Invocation, command
from muniment.cli.output import note, show_json, show_json_items, show_table
from muniment.cli.stores import PAGE_ITEMS

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Work that is not finished; for administrators.",
)


@command(group, "list")
def list_jobs(invocation: Invocation) -> None:
    """List jobs that are not finished; parked ones are tried again only when you say so."""
    with invocation.client() as client:
        found = client.jobs.list(limit=PAGE_ITEMS)
        if invocation.json:
            show_json_items(found)
            return
        rows = (
            (
                job.kind,
                job.id,
                job.subject,
                state_of(job.parked_at is not None, job.lease_until is not None),
                job.attempts,
                job.parked_at or job.lease_until or job.run_at,
                job.failure,
            )
            for job in found
        )
        columns = ["KIND", "ID", "SUBJECT", "STATE", "ATTEMPTS>", "AT", "FAILURE"]
        show_table(columns, rows, empty="no jobs: all is done")


def state_of(parked: bool, leased: bool) -> str:
    """What is with a job: it waits until it is due, a worker has it, or it was given up."""
    return "parked" if parked else "leased" if leased else "waiting"


@command(group, "retry")
def retry_job(
    invocation: Invocation,
    *,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The job's id.")],
) -> None:
    """Have a job tried again at once, with all its attempts before it."""
    with invocation.client() as client:
        job = client.jobs.retry(identifier)
    if invocation.json:
        show_json(job)
    else:
        note(f"{job.id} is due now; a worker takes it up")
