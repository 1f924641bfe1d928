"""The document surface: content by path, compare-and-swap by hash, no history (C-006 … C-008)."""

import hashlib
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muniment.model import tree
from muniment.model.access import Action, Actor
from muniment.model.documents import (
    Document,
    DocumentItem,
    Precondition,
    check_delete,
    check_match,
)
from muniment.model.errors import NotFound
from muniment.model.ids import ChangeId, StoreId
from muniment.model.paths import check_path, check_prefix
from muniment.model.revisions import CANONICAL
from muniment.model.stores import Ref, StoreRecord
from muniment.model.text import check_content
from muniment.service import guard
from muniment.service.app import App
from muniment.service.idempotency import Once, keep, replay
from muniment.service.paging import Page, Slice
from muniment.service.revisions import Edit, Target, apply, node_loader
from muniment.storage.base import Transaction


class PutResult(Struct, frozen=True):
    """The document a put left; `created` where its path was free before."""

    document: Document
    created: bool


class DocumentList(Struct, frozen=True):
    """A page of documents and the hash of the tree they come from."""

    page: Slice[DocumentItem]
    tree: bytes


async def get_document(app: App, actor: Actor, store: StoreId, path: str) -> Document:
    """The document with its content. NotFound where there is none; Malformed for a bad path."""
    check_path(path)

    async def use(tx: Transaction) -> Document:
        _, document = await guard.open_document(tx, actor, store, path, Action.READ, content=True)
        if document is None:
            raise NotFound(f"no document at {path}", path=path)
        return document

    return await app.storage.read(use, single=True)


async def put_document(
    app: App,
    actor: Actor,
    store: StoreId,
    path: str,
    content: str,
    *,
    precondition: Precondition,
    once: Once | None = None,
) -> PutResult:
    """Creates or replaces the document, one revision of canonical (R-10).

    The same content again makes no revision. Malformed for a bad path or content, Conflict for a
    missed precondition (C-205, C-210) or a path that is a folder.
    """
    check_path(path, write=True)
    body = check_content(content)
    blob = hashlib.sha256(body).digest()
    stamp = app.revision_stamp(1)

    async def use(tx: Transaction) -> PutResult:
        current = None
        if isinstance(precondition, bytes):
            record, current = await guard.open_document(tx, actor, store, path, Action.WRITE)
        else:
            # The tree refuses a path that is taken, so there is nothing to read first.
            record, _ = await guard.open_store(tx, actor, store, Action.WRITE)
        made = await replay(tx, actor, store, once)
        if made is not None:
            document = await _as_put(tx, actor, store, made)
            return PutResult(document, created=not isinstance(precondition, bytes))
        if isinstance(precondition, bytes):
            current = check_match(path, current, precondition)
        if current is not None and current.blob == blob:
            document = current
        else:
            target = Target(actor, record, await canonical(tx, actor, record))
            _, (document,) = await apply(app, tx, target, [Edit(path, body, blob, current)], stamp)
        names = {"change": document.change, "created_at": str(document.created_at)}
        keep(tx, actor, store, once, stamp.at, **names)
        return PutResult(document, created=current is None)

    return await app.storage.write(store, use)


async def _as_put(
    tx: Transaction, actor: Actor, store: StoreId, made: Mapping[str, str]
) -> Document:
    """The document as an earlier put left it, from the change that it made or found."""
    change = await tx.get_change(actor.workspace, store, ChangeId(made["change"]))
    if change is None or change.blob is None or change.size is None:
        raise NotFound("what this request made is gone")
    return Document(
        id=change.document,
        path=change.path,
        blob=change.blob,
        size=change.size,
        change=change.id,
        created_at=int(made["created_at"]),
        updated_at=change.created_at,
    )


async def delete_document(
    app: App,
    actor: Actor,
    store: StoreId,
    path: str,
    *,
    precondition: Precondition,
    once: Once | None = None,
) -> None:
    """Removes the document, one revision of canonical.

    NotFound on a free path; Conflict where the current hash is not sent or another one.
    """
    check_path(path)
    stamp = app.revision_stamp(1)

    async def use(tx: Transaction) -> None:
        record, current = await guard.open_document(tx, actor, store, path, Action.WRITE)
        if await replay(tx, actor, store, once) is not None:
            return
        check_delete(path, current, precondition)
        target = Target(actor, record, await canonical(tx, actor, record))
        await apply(app, tx, target, [Edit(path, None, None, current)], stamp)
        keep(tx, actor, store, once, stamp.at, change=stamp.changes[0])

    await app.storage.write(store, use)


async def list_documents(
    app: App, actor: Actor, store: StoreId, page: Page, *, prefix: str = "/"
) -> DocumentList:
    """A page of the documents below `prefix`, in the order of their paths' bytes.

    All pages of one list show the tree that its first page showed, whatever is written meanwhile
    (K15). Malformed for a bad prefix or cursor.
    """
    check_prefix(prefix)
    pins = (store, prefix)
    pin = None
    if page.cursor is not None:
        pin = app.cursors.open(actor.workspace, "documents", pins, page.cursor)

    async def use(tx: Transaction) -> tuple[list[DocumentItem], Ref | _Pin]:
        record, _ = await guard.open_store(tx, actor, store, Action.READ)
        ref = await canonical(tx, actor, record)
        if pin is None:
            items = await tx.list_documents(actor.workspace, store, prefix, None, page.limit + 1)
            return items, ref
        pinned = _Pin(*pin)
        if ref.tree == pinned.tree:
            items = await tx.list_documents(
                actor.workspace, store, prefix, pinned.after, page.limit + 1
            )
        else:
            items = await _list_pinned(tx, actor, record, pinned, (prefix, page.limit + 1))
        return items, pinned

    items, at = await app.storage.read(use, scan=True)
    next_page = None
    if len(items) > page.limit:
        items = items[: page.limit]
        position = (at.tree, at.version, items[-1].path)
        next_page = app.cursors.seal(actor.workspace, "documents", pins, position)
    return DocumentList(Slice(items, next_page), at.tree)


class _Pin(Struct, frozen=True):
    """Where a list goes on: the tree it shows, that tree's canonical position, the last path."""

    tree: bytes
    version: int
    after: str


async def _list_pinned(
    tx: Transaction, actor: Actor, store: StoreRecord, pin: _Pin, wanted: tuple[str, int]
) -> list[DocumentItem]:
    """The next items of a tree that canonical has left, from its immutable nodes."""
    prefix, limit = wanted
    entries: list[tree.Entry] = []
    load = node_loader(tx, actor, store)
    async for entry in tree.scan(tree.TreeHash(pin.tree), load, after=pin.after, prefix=prefix):
        entries.append(entry)
        if len(entries) == limit:
            break
    paths: Sequence[str] = [entry.path for entry in entries]
    times = await tx.changed_at(actor.workspace, store.id, paths, pin.version)
    return [DocumentItem(e.path, e.blob, e.size, times[e.path]) for e in entries]


async def canonical(tx: Transaction, actor: Actor, store: StoreRecord) -> Ref:
    """The store's canonical ref, which every store has from its creation to its deletion."""
    ref = await tx.get_ref(actor.workspace, store.id, CANONICAL)
    if ref is None:
        raise ValueError("a store that is not being deleted has a canonical ref")
    return ref
