"""Routes of the document surface (C-006 … C-008, R-19)."""

import re
from dataclasses import replace

from muniment.api.http import Answer, Call, Query, Reply, Route
from muniment.api.native import fields, shapes
from muniment.api.native.stores import store_id
from muniment.model.documents import Absent, Document, Precondition
from muniment.model.errors import BudgetExceeded, Conflict, Malformed, NotFound, ReadOnly
from muniment.service import documents
from muniment.service.app import App

_PATH = Query("path", "The document's absolute path.", fields.READ_PATH, required=True)
_WRITTEN_PATH = replace(_PATH, schema=fields.WRITTEN_PATH)
_IF_MATCH = Query("If-Match", "The SHA-256 that the document must have now.", fields.IF_MATCH)
_IF_NONE_MATCH = Query(
    "If-None-Match", "`*`: the path must be free.", {"type": "string", "enum": ["*"]}
)
_HASH = re.compile(rf'({fields.HASH})|"({fields.HASH})"', re.ASCII)


async def get_document(app: App, call: Call) -> Reply:
    """200 with an ETag, or 304 where If-None-Match names the current hash."""
    path = call.required("path")
    document = await documents.get_document(app, call.who(), store_id(call), path)
    tag = etag(document)
    known = call.header(b"if-none-match")
    if known is not None and (known == "*" or document.blob.hex() in _tags(known)):
        return Reply(304, headers=[tag])
    return Reply(200, shapes.document_shape(document), [tag])


async def put_document(app: App, call: Call) -> Reply:
    """201 where the path was free, 200 otherwise."""
    path = call.required("path")
    result = await documents.put_document(
        app,
        call.who(),
        store_id(call),
        path,
        call.json(shapes.DocumentPut).content,
        precondition=precondition(call),
        once=call.once(app),
    )
    status = 201 if result.created else 200
    return Reply(status, shapes.document_meta(result.document), [etag(result.document)])


async def delete_document(app: App, call: Call) -> Reply:
    """204."""
    path = call.required("path")
    await documents.delete_document(
        app,
        call.who(),
        store_id(call),
        path,
        precondition=precondition(call),
        once=call.once(app),
    )
    return Reply(204)


async def list_documents(app: App, call: Call) -> Reply:
    """A page of documents; all pages of one list show one tree."""
    found = await documents.list_documents(
        app, call.who(), store_id(call), call.page(), prefix=call.text("path_prefix") or "/"
    )
    body = shapes.page_shape(found.page, shapes.item_shape)
    return Reply(200, {**body, "tree_digest": found.tree.hex()})


def precondition(call: Call) -> Precondition:
    """What If-Match and If-None-Match ask for. Malformed where they make no sense."""
    match = call.header(b"if-match")
    none_match = call.header(b"if-none-match")
    if match is not None and none_match is not None:
        raise Malformed("send If-Match or If-None-Match, not both", field="If-Match")
    if match is not None:
        found = _HASH.fullmatch(match)
        if found is None:
            raise Malformed(
                "If-Match must be one SHA-256 in lower-case hexadecimal; * is not accepted",
                field="If-Match",
            )
        return bytes.fromhex(found[1] or found[2])
    if none_match is not None and none_match != "*":
        raise Malformed("If-None-Match must be * on a write", field="If-None-Match")
    return Absent.NONE if none_match is None else Absent.MUST_NOT_EXIST


def etag(document: Document) -> tuple[bytes, bytes]:
    """The document's strong ETag: its hash."""
    return (b"etag", f'"{document.blob.hex()}"'.encode())


def _tags(header: str) -> set[str]:
    return {tag.strip().removeprefix("W/").strip('"') for tag in header.split(",")}


_STORE = "/v1/memory-stores/{id}"
_ETAG = Query("ETag", "The document's hash, quoted.", fields.STRONG_ETAG, required=True)
_WRITES = (NotFound, ReadOnly, Conflict)

ROUTES = (
    Route(
        "GET",
        f"{_STORE}/document",
        get_document,
        "Read a document",
        query=(_PATH,),
        gives=shapes.DocumentShape,
        headers=(Query("If-None-Match", "Answer 304 where this is the current hash."),),
        others=(Answer(304, "The document has the hash that If-None-Match names"),),
        sends=(_ETAG,),
        fails=(NotFound,),
    ),
    Route(
        "PUT",
        f"{_STORE}/document",
        put_document,
        "Create or replace a document",
        query=(_WRITTEN_PATH,),
        takes=shapes.DocumentPut,
        gives=shapes.DocumentMeta,
        headers=(_IF_MATCH, _IF_NONE_MATCH),
        others=(Answer(201, "The path was free", shapes.DocumentMeta),),
        sends=(_ETAG,),
        fails=(*_WRITES, BudgetExceeded),
    ),
    Route(
        "DELETE",
        f"{_STORE}/document",
        delete_document,
        "Delete a document",
        204,
        query=(_PATH,),
        headers=(_IF_MATCH,),
        fails=_WRITES,
    ),
    Route(
        "GET",
        f"{_STORE}/documents",
        list_documents,
        "List documents",
        query=(Query("path_prefix", "Only paths that begin so.", fields.PREFIX), *shapes.PAGING),
        gives=shapes.DocumentPage,
        fails=(NotFound,),
    ),
)
