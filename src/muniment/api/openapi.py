"""The OpenAPI 3.1 document, made from the route tables."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

import muniment
from muniment.api.http import REQUEST_ID, Answer, Dialect, Query, Route
from muniment.model.errors import Failure, InvalidKey, TooLarge, Unavailable, catalogue

_ERROR = {
    "type": "object",
    "description": "What went wrong: `type` is for programs, `message` for people.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message", "more"],
            "properties": {
                "type": {"type": "string", "enum": [failure.code for failure in catalogue()]},
                "message": {"type": "string"},
                "more": {"type": "string", "format": "uri"},
                "detail": {"type": "object"},
            },
        }
    },
}
_ERROR_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
_REQUEST_ID = Query(REQUEST_ID.decode().title(), "The request's id, for the log.", required=True)
_SENT_WITH = {
    InvalidKey: Query("WWW-Authenticate", "Which scheme to use.", required=True),
    Unavailable: Query("Retry-After", "Seconds to wait.", {"type": "integer"}, required=True),
}


def document(base_url: str, dialect: Dialect) -> bytes:
    """The dialect's OpenAPI document as JSON."""
    schemas, components = _shapes(dialect)
    paths: dict[str, dict[str, Any]] = {}
    for route in dialect.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(dialect, route, schemas)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Muniment",
                "version": muniment.__version__,
                "description": "Governed, versioned memory and context for AI agents.",
                "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
            },
            "servers": [{"url": base_url}],
            "security": [{"key": []}],
            "paths": paths,
            "components": {
                "schemas": {**components, "Error": _ERROR},
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        },
        order="sorted",
    )


def _shapes(dialect: Dialect) -> tuple[dict[Any, Any], dict[str, Any]]:
    """The schema of each shape that the routes name, and those that they refer to.

    What a shape says of its fields together stands in its `SCHEMA`.
    """
    shapes: dict[Any, None] = {}
    for route in dialect.routes:
        for kind in (route.takes, *(answer.gives for answer in _successes(route))):
            if kind is not None:
                shapes[kind] = None
    ordered = sorted(shapes, key=lambda kind: str(kind.__name__))
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    for kind in _within(ordered):
        components[kind.__name__].update(getattr(kind, "SCHEMA", {}))
    return dict(zip(ordered, schemas, strict=True)), components


def _within(kinds: Iterable[Any]) -> set[Any]:
    """The shapes, and all that lie within them."""
    found: set[Any] = set()
    waiting = [msgspec.inspect.type_info(kind) for kind in kinds]
    while waiting:
        info = waiting.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls not in found:
                found.add(info.cls)
                waiting += [field.type for field in info.fields]
        elif isinstance(info, msgspec.inspect.UnionType):
            waiting += info.types
        elif isinstance(info, msgspec.inspect.ListType):
            waiting.append(info.item_type)
        elif isinstance(info, msgspec.inspect.Metadata):
            waiting.append(info.type)
    return found


def _operation(dialect: Dialect, route: Route, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "tags": [route.path.removeprefix(dialect.prefix).split("/")[1]],
        "responses": {
            **{
                str(one.status): _success(route, one, schemas.get(one.gives))
                for one in _successes(route)
            },
            **_failures(dialect, route),
        },
        "parameters": [
            *(
                _parameter(dialect.params[part[1:-1]], "path")
                for part in route.path.split("/")
                if part[:1] == "{"
            ),
            *(_parameter(query, "query") for query in route.query),
            *(_parameter(header, "header") for header in (*route.headers, *dialect.headers)),
        ],
    }
    if route.takes is not None:
        content = {"application/json": {"schema": schemas[route.takes]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _successes(route: Route) -> tuple[Answer, ...]:
    return (Answer(route.status, route.summary, route.gives), *route.others)


def _success(route: Route, answer: Answer, schema: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": answer.description,
        "headers": _headers(*route.sends, _REQUEST_ID),
    }
    if answer.gives is not None:
        found["content"] = {"application/json": {"schema": schema}}
    return found


def _failures(dialect: Dialect, route: Route) -> dict[str, Any]:
    """The refusals by status; `x-error-types` lists the types that each may have."""
    kinds = [*dialect.fails, *route.fails]
    if route.takes is not None:
        kinds.append(TooLarge)
    found: dict[str, Any] = {}
    by_status: dict[int, list[type[Failure]]] = {}
    for kind in kinds:
        by_status.setdefault(dialect.statuses[kind], []).append(kind)
    for status, failures in sorted(by_status.items()):
        types = sorted({failure.code for failure in failures})
        sent = [_SENT_WITH[failure] for failure in failures if failure in _SENT_WITH]
        found[str(status)] = _failure(", ".join(f"`{one}`" for one in types), *sent)
        found[str(status)]["x-error-types"] = types
    found["default"] = _failure("Any other failure, such as a fault of the server")
    return found


def _failure(description: str, *sent: Query) -> dict[str, Any]:
    return {
        "description": description,
        "headers": _headers(*sent, _REQUEST_ID),
        "content": _ERROR_CONTENT,
    }


def _headers(*sent: Query) -> dict[str, Any]:
    return {
        one.name: {
            "description": one.description,
            "required": one.required,
            "schema": dict(one.schema),
        }
        for one in sent
    }


def _parameter(query: Query, place: str) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": place,
        "required": query.required or place == "path",
        "description": query.description,
        "schema": dict(query.schema),
    }
