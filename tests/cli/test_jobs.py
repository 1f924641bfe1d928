"""`muniment job`: what is not finished, and having it tried again."""

import asyncio
import json
from pathlib import Path

from muniment.model.jobs import Job
from shell import Shell
from wire import wired
from working import leave_parked_job


def parked(home: Path) -> Job:
    """A job in the home's database that was given up."""

    async def leave() -> Job:
        async with wired(home, f"sqlite:///{home / 'muniment.db'}") as wire:
            return await leave_parked_job(wire)

    return asyncio.run(leave())


def test_a_parked_job_is_shown_and_tried_again(shell: Shell) -> None:
    job = parked(shell.home)
    shell.environment["MUNIMENT_WORKER"] = "false"
    head, row = shell.answer("job", "list").splitlines()
    assert head.split() == ["KIND", "ID", "SUBJECT", "STATE", "ATTEMPTS", "AT", "FAILURE"]
    assert row.split()[:5] == ["erase_store", job.id, job.subject, "parked", "12"]
    assert row.endswith("Unavailable")
    (seen,) = json.loads(shell.answer("job", "list", "--json"))
    assert (seen["id"], seen["failure"]) == (job.id, "Unavailable")
    run = shell.run("job", "retry", job.id)
    assert (run.returncode, run.stdout) == (0, b"")
    assert job.id in run.stderr.decode()
    assert shell.answer("job", "list").splitlines()[1].split()[3] == "waiting"
    assert json.loads(shell.answer("job", "retry", job.id, "--json"))["attempts"] == 0


def test_jobs_are_for_administrators_and_absent_ones_are_refused(shell: Shell) -> None:
    shell.answer("store", "create", "notes")
    quiet = shell.run("job", "list")
    assert (quiet.returncode, quiet.stdout) == (0, b"") and b"no jobs" in quiet.stderr
    secret = shell.answer("key", "create", "ci")
    assert "administrator" in shell.refusal("job", "list", "--key", secret)
    assert "no such job" in shell.refusal("job", "retry", "job_" + "0" * 32)
    shell.refusal("job", "retry", status=2)
