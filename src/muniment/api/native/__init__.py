"""The native dialect, `/v1/…`: its routes and its error table (native.md sections 2 and 3)."""

from muniment.api.http import Dialect
from muniment.api.native import documents, events, identities, jobs, permissions, stores
from muniment.api.native.envelope import check_version, renderer


def dialect(base_url: str) -> Dialect:
    """The native dialect; `base_url` is where its errors' documentation is linked (R-03)."""
    routes = (
        *identities.ROUTES,
        *permissions.ROUTES,
        *stores.ROUTES,
        *documents.ROUTES,
        *events.ROUTES,
        *jobs.ROUTES,
    )
    return Dialect("native", "/v1", routes, check_version, renderer(base_url))
