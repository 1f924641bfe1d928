"""What administrators see and do of jobs: the list, parked ones, trying again."""

import json

import pytest

from muniment import main
from muniment.model import jobs
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.model.jobs import ERASE_STORE
from muniment.service.app import App
from muniment.service.jobs import Lease, claim_next
from muniment.worker import HANDLERS, work_once
from wire import Wire, check_chain, error_of
from working import Clock, jobs_of, leave_job, leave_unknown_job, replaced


async def fails(app: App, lease: Lease) -> bool:
    raise RuntimeError("CANARY")


async def test_a_parked_job_is_seen_by_an_administrator_tried_again_and_done(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(wire.app.now())
    app = replaced(wire.app, now=clock)
    store = await leave_job(wire)
    with monkeypatch.context() as broken:
        broken.setitem(HANDLERS, ERASE_STORE, fails)
        while await work_once(app):
            clock.pass_by(jobs.PAUSE_SECONDS_MAX)
    listed = (await wire.operator.get("/v1/jobs")).json()
    (job,) = listed["items"]
    assert listed["next_page"] is None and "CANARY" not in json.dumps(listed)
    assert (job["kind"], job["subject"]) == ("erase_store", store)
    assert (job["attempts"], job["failure"]) == (12, "RuntimeError")
    assert job["parked_at"] is not None and job["lease_until"] is None
    assert set(job) == {
        *("id", "kind", "subject", "attempts", "run_at", "lease_until", "failure"),
        *("parked_at", "created_at"),
    }
    answer = await wire.owner.post(f"/v1/jobs/{job['id']}/retry")
    assert answer.status_code == 200
    again = answer.json()
    assert (again["attempts"], again["parked_at"], again["id"]) == (0, None, job["id"])
    assert (await wire.owner.get("/v1/jobs")).json()["items"] == [again]
    assert await work_once(wire.app)
    assert (await wire.owner.get("/v1/jobs")).json()["items"] == []
    assert error_of(await wire.owner.post(f"/v1/jobs/{job['id']}/retry"))[0] == 404
    events = await wire.events(DEFAULT_WORKSPACE)
    check_chain(DEFAULT_WORKSPACE, events)
    (told,) = [event for event in events if event.type == "job.retried"]
    data = json.loads(told.payload or b"")
    assert (data["job"], data["kind"]) == (job["id"], "erase_store")
    assert data["actor"]["principal"] == (await wire.actor()).principal


async def test_a_job_that_a_worker_has_is_not_taken_from_it(wire: Wire) -> None:
    await leave_job(wire)
    lease = await claim_next(wire.app, (ERASE_STORE,))
    assert lease is not None
    before = await jobs_of(wire)
    answer = await wire.owner.post(f"/v1/jobs/{lease.job.id}/retry")
    assert error_of(answer) == (409, "memory.conflict")
    (seen,) = (await wire.owner.get("/v1/jobs")).json()["items"]
    assert seen["lease_until"] == seen["run_at"]
    assert await jobs_of(wire) == before


async def test_a_job_whose_worker_is_dead_need_not_be_waited_for(wire: Wire) -> None:
    clock = Clock(wire.app.now() - 60_000_000)
    await leave_job(wire)
    lease = await claim_next(replaced(wire.app, now=clock), (ERASE_STORE,))
    assert lease is not None
    assert (await wire.owner.post(f"/v1/jobs/{lease.job.id}/retry")).status_code == 200
    (job,) = await jobs_of(wire)
    assert (job.attempts, job.lease_until) == (0, None)


async def test_r_41_jobs_are_for_administrators_of_their_workspace(wire: Wire) -> None:
    await leave_job(wire)
    (job,) = await jobs_of(wire)
    ada, eve = await wire.person(), await wire.other_workspace()
    for answer in (
        await ada.client.get("/v1/jobs"),
        await ada.client.post(f"/v1/jobs/{job.id}/retry"),
        await ada.client.post(f"/v1/jobs/{main.new_id('job')}/retry"),
    ):
        assert error_of(answer) == (403, "policy.denied")
    assert (await eve.client.get("/v1/jobs")).json()["items"] == []
    for identifier in (job.id, main.new_id("job"), "job_x", "x", main.new_id("store")):
        answer = await eve.client.post(f"/v1/jobs/{identifier}/retry")
        assert error_of(answer) == (404, "validation.not_found")
    assert await jobs_of(wire) == [job]


async def test_a_job_that_only_a_newer_program_knows_is_listed_and_can_be_retried(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = await leave_unknown_job(wire, monkeypatch)
    (job,) = (await wire.owner.get("/v1/jobs")).json()["items"]
    assert (job["id"], job["kind"]) == (unknown.id, "dream")
    assert job["subject"].endswith(unknown.subject[-32:])
    assert (await wire.owner.post(f"/v1/jobs/{job['id']}/retry")).json()["kind"] == "dream"
    assert not await work_once(wire.app)


async def test_k15_jobs_are_listed_page_by_page(wire: Wire) -> None:
    for _ in range(3):
        await leave_job(wire)
    first = (await wire.owner.get("/v1/jobs", params={"limit": 2})).json()
    second = (
        await wire.owner.get("/v1/jobs", params={"limit": 2, "page": first["next_page"]})
    ).json()
    found = [job["id"] for job in first["items"] + second["items"]]
    assert found == [job.id for job in await jobs_of(wire)] and second["next_page"] is None
