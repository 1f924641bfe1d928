"""Routes that need no key: health, readiness, the OpenAPI document and the error page."""

import html
import re
from functools import cache
from time import monotonic

from muniment.api.http import Call, Dialect, Reply, Route
from muniment.api.native.envelope import STATUS, renderer, slug
from muniment.api.openapi import document
from muniment.model.errors import catalogue
from muniment.service.app import App

READY_SECONDS = 1.0
"""How long a good answer of the readiness probe is good for everybody: each probe is a write."""

_HTML = b"text/html; charset=utf-8"


async def health(app: App, call: Call) -> Reply:
    """200 while the process answers."""
    return Reply(200, {"status": "ok"})


async def error_page(app: App, call: Call) -> Reply:
    """The error catalogue for people; every error's `more` leads here (R-03)."""
    return Reply(200, _ERROR_PAGE, media_type=_HTML)


def dialect(base_url: str, native: Dialect) -> Dialect:
    """The key-less routes, answering in the native envelope."""

    ready_until = 0.0

    async def ready(app: App, call: Call) -> Reply:
        """200 when the database answers, its schema is the newest and a write works; else 503."""
        nonlocal ready_until
        if monotonic() > ready_until:
            await app.storage.check_ready()
            ready_until = monotonic() + READY_SECONDS
        return Reply(200, {"status": "ready"})

    @cache
    def spec() -> bytes:
        return document(base_url, native)

    async def openapi(app: App, call: Call) -> Reply:
        return Reply(200, spec(), media_type=b"application/json")

    routes = (
        Route("GET", "/healthz", health, "Liveness", authenticated=False),
        Route("GET", "/readyz", ready, "Readiness", authenticated=False),
        Route("GET", "/openapi.json", openapi, "This API", authenticated=False),
        Route("GET", "/docs/errors", error_page, "Error types", authenticated=False),
    )
    return Dialect("site", "", routes, lambda call: None, renderer(base_url))


def _render_errors() -> bytes:
    sections = []
    for failure in catalogue():
        text = html.escape(" ".join((failure.__doc__ or "").split()))
        text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
        sections.append(
            f'<section id="{slug(failure.code)}"><h2><code>{failure.code}</code>'
            f" <small>{STATUS[failure]}</small></h2><p>{text}</p></section>"
        )
    style = (
        ":root{color-scheme:light dark}"
        "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem;"
        "color:light-dark(#1c1917,#e7e5e4);background:light-dark(#fff,#1c1917)}"
        "h2{font-size:1.1rem;margin:2rem 0 .3rem}small{color:#78716c;font-weight:400}"
        "code{background:light-dark(#f5f5f4,#292524);padding:.1em .3em;border-radius:4px}"
        "section:target h2 code{background:light-dark(#fde68a,#78350f)}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<title>Errors · Muniment</title>"
        f"<style>{style}</style><h1>Error types</h1><p>Every refusal is JSON:"
        ' <code>{"error": {"type", "message", "more", "detail"?}}</code>. The message says what to'
        " do; <code>detail</code> is for programs.</p>" + "".join(sections) + "</html>"
    ).encode()


_ERROR_PAGE = _render_errors()
