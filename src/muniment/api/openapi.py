"""The OpenAPI 3.1 document, made from the route tables."""

from typing import Any

import msgspec

import muniment
from muniment.api.http import Dialect, Query, Route

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["type", "message", "more"],
            "properties": {
                "type": {"type": "string"},
                "message": {"type": "string"},
                "more": {"type": "string"},
                "detail": {"type": "object"},
            },
        }
    },
}


def document(base_url: str, dialect: Dialect) -> bytes:
    """The dialect's OpenAPI document as JSON."""
    shapes = {kind for route in dialect.routes for kind in (route.takes, route.gives) if kind}
    ordered = sorted(shapes, key=lambda kind: kind.__name__)
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    refs = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in dialect.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, refs)
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


def _operation(route: Route, refs: dict[Any, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.gives is not None:
        answer["content"] = {"application/json": {"schema": refs[route.gives]}}
    answers = {str(route.status): answer}
    if route.method == "PUT":
        answers["201"] = {**answer, "description": "Created"}
    if any(header.name == "If-None-Match" for header in route.headers) and route.method == "GET":
        answers["304"] = {"description": "Not modified"}
    answers["default"] = {
        "description": "A documented failure",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "responses": answers,
        "parameters": [
            *(_path_parameter(part[1:-1]) for part in route.path.split("/") if part[:1] == "{"),
            *(_parameter(query, "query") for query in route.query),
            *(_parameter(header, "header") for header in route.headers),
        ],
    }
    if route.takes is not None:
        content = {"application/json": {"schema": refs[route.takes]}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _parameter(query: Query, place: str) -> dict[str, Any]:
    return {
        "name": query.name,
        "in": place,
        "required": query.required,
        "description": query.description,
        "schema": dict(query.schema),
    }
