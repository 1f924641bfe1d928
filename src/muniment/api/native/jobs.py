"""Routes of jobs: what is to be done still, and what was given up (wire.md Administration)."""

from muniment.api.http import Call, Reply, Route
from muniment.api.native import shapes
from muniment.model.errors import Conflict, NotFound
from muniment.service import jobs
from muniment.service.app import App


async def list_jobs(app: App, call: Call) -> Reply:
    """The workspace's unfinished jobs."""
    page = await jobs.list_jobs(app, call.who(), call.page())
    return Reply(200, shapes.page_shape(page, shapes.job_shape))


async def retry_job(app: App, call: Call) -> Reply:
    """The job, due at once."""
    again = await jobs.retry_job(app, call.who(), call.params["job"], once=call.once(app))
    return Reply(200, shapes.job_shape(again))


ROUTES = (
    Route(
        "GET",
        "/v1/jobs",
        list_jobs,
        "List unfinished jobs",
        query=shapes.PAGING,
        gives=shapes.JobPage,
    ),
    Route(
        "POST",
        "/v1/jobs/{job}/retry",
        retry_job,
        "Have a job tried again at once",
        gives=shapes.JobShape,
        fails=(NotFound, Conflict),
    ),
)
