"""The native dialect, `/v1/…`: its routes and its error table (native.md sections 2 and 3)."""

from muniment.api.http import Dialect, Query
from muniment.api.native import documents, events, identities, jobs, permissions, stores
from muniment.api.native.envelope import STATUS, VERSIONS, check_version, renderer
from muniment.api.native.fields import id_schema
from muniment.model.errors import Denied, DisabledTenancy, InvalidKey, Malformed, Unavailable

PARAMS = {
    "id": Query("id", "The store's id.", id_schema("store")),
    "key": Query("key", "The key's id, not its secret.", id_schema("key")),
    "delegation": Query("delegation", "The delegation's id.", id_schema("delegation")),
    "assignment": Query("assignment", "The assignment's id.", id_schema("assignment")),
    "job": Query("job", "The job's id.", id_schema("job")),
}
"""The variable segments of the routes' paths."""

HEADERS = (
    Query(
        "Muniment-Acted-As",
        "The principal as whom the request acts; a delegation is needed.",
        id_schema("principal"),
    ),
    Query(
        "Muniment-Version",
        "The wire's version; the newest by default.",
        {"type": "string", "enum": list(VERSIONS)},
    ),
)

FAILS = (Malformed, InvalidKey, DisabledTenancy, Denied, Unavailable)
"""What every route may fail of, beside a fault of the server."""


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
    return Dialect(
        "native",
        "/v1",
        routes,
        check_version,
        renderer(base_url),
        statuses=STATUS,
        params=PARAMS,
        headers=HEADERS,
        fails=FAILS,
    )
