"""The one way a ref moves forward: `apply` (R-10). Puts, deletes and moves are its callers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from muniment.model import tree
from muniment.model.access import Actor
from muniment.model.documents import Document
from muniment.model.errors import BudgetExceeded
from muniment.model.events import Fact
from muniment.model.ids import RevisionId
from muniment.model.revisions import CANONICAL, Change, Revision, pack_actor
from muniment.model.stores import Ref, StoreRecord
from muniment.service.app import App, RevisionStamp
from muniment.storage.base import Transaction


class Edit(Struct, frozen=True):
    """One path's change: `content` None removes it. `current` is the document there now."""

    path: str
    content: bytes | None
    blob: bytes | None
    current: Document | None


class Target(NamedTuple):
    """The place a revision is applied to."""

    actor: Actor
    store: StoreRecord
    ref: Ref


def node_loader(
    tx: Transaction, actor: Actor, store: StoreRecord
) -> Callable[[bytes], Awaitable[bytes]]:
    """Loads nodes of the store's pool for the pure tree functions."""

    async def load(node: bytes) -> bytes:
        return await tx.get_node(actor.workspace, store.pool, node)

    return load


async def apply(
    app: App, tx: Transaction, target: Target, edits: Sequence[Edit], stamp: RevisionStamp
) -> tuple[Revision, list[Document]]:
    """One revision of the target's ref that holds the edits, and the documents they left, in order.

    The edits' preconditions have been decided by the caller; this records blobs, nodes, changes,
    the revision, the moved ref, the event, and on canonical the documents projection with the
    changes' positions. Conflict where a document
    and a folder would share a path; BudgetExceeded over the store's limit of documents.
    """
    actor, store, ref = target
    workspace = actor.workspace
    applied = await tree.apply(
        tree.TreeHash(ref.tree),
        [_tree_change(edit) for edit in edits],
        node_loader(tx, actor, store),
    )
    documents, total_bytes = applied.documents, applied.size
    if documents > app.policy.documents_max and documents > ref.documents:
        raise BudgetExceeded(
            f"a store holds at most {app.policy.documents_max} documents",
            limit=app.policy.documents_max,
        )
    revision = Revision(
        id=stamp.revision,
        parent=ref.revision,
        tree=applied.root,
        documents=documents,
        total_bytes=total_bytes,
        kind="changes",
        actor=pack_actor(actor),
        created_at=stamp.at,
    )
    for edit in edits:
        if edit.content is not None and edit.blob is not None:
            tx.put_blob(workspace, store.pool, edit.blob, edit.content)
    for digest, body in applied.nodes.items():
        tx.put_node(workspace, store.pool, digest, body)
    left = _record(tx, target, edits, revision, stamp)
    await tx.append(workspace, store.id, _fact(target, edits, revision, stamp))
    return revision, left


def _record(
    tx: Transaction,
    target: Target,
    edits: Sequence[Edit],
    revision: Revision,
    stamp: RevisionStamp,
) -> list[Document]:
    """Writes the revision, its changes, the documents projection and the moved ref."""
    actor, store, ref = target
    workspace = actor.workspace
    moved = Ref(
        name=ref.name,
        revision=revision.id,
        tree=revision.tree,
        documents=revision.documents,
        total_bytes=revision.total_bytes,
        version=ref.version + 1,
        updated_at=stamp.at,
    )
    left = []
    for n, edit in enumerate(edits):
        seq = moved.version if ref.name == CANONICAL else None
        change = _change(edit, n, stamp, seq, revision.actor)
        tx.put_change(workspace, store.id, change)
        document = _document(edit, change)
        if document is not None:
            left.append(document)
        if ref.name == CANONICAL:
            _project(tx, target, edit, document)
    tx.put_revision(workspace, store.id, revision)
    tx.move_ref(workspace, store.id, moved, ref)
    return left


def _project(tx: Transaction, target: Target, edit: Edit, document: Document | None) -> None:
    """Keeps the documents projection at what canonical holds."""
    workspace, store = target.actor.workspace, target.store.id
    if document is None:
        tx.remove_document(workspace, store, edit.path)
    else:
        tx.put_document(workspace, store, document)


def _fact(target: Target, edits: Sequence[Edit], revision: Revision, stamp: RevisionStamp) -> Fact:
    return stamp.event.fact(
        store=target.store.id,
        ref=target.ref.name,
        revision=revision.id,
        parent=revision.parent,
        kind=revision.kind,
        tree_hash=revision.tree.hex(),
        documents=revision.documents,
        changes=[{"path": edit.path, "operation": _operation(edit)} for edit in edits],
        actor=actor_fields(target.actor),
    )


def actor_fields(actor: Actor) -> dict[str, object]:
    """Who acted, as events say it: ids only."""
    fields: dict[str, object] = {"principal": actor.principal, "api_key": actor.key}
    if actor.session is not None:
        fields["session"] = actor.session
    if actor.delegate is not None:
        fields["delegate"] = actor.delegate
    return fields


def _operation(edit: Edit) -> str:
    return "delete" if edit.blob is None else "put"


def _tree_change(edit: Edit) -> tree.Change:
    expected = None if edit.current is None else edit.current.blob
    if edit.blob is not None and edit.content is not None:
        return tree.Put(edit.path, edit.blob, len(edit.content), expected)
    if expected is None:
        raise ValueError("there is nothing to remove")
    return tree.Remove(edit.path, expected)


def _change(edit: Edit, n: int, stamp: RevisionStamp, seq: int | None, author: bytes) -> Change:
    current = edit.current
    return Change(
        id=stamp.changes[n],
        revision=RevisionId(stamp.revision),
        path=edit.path,
        n=0,
        document=stamp.documents[n] if current is None else current.id,
        operation=_operation(edit),
        moved_from=None,
        blob=edit.blob,
        size=None if edit.content is None else len(edit.content),
        seq=seq,
        actor=author,
        created_at=stamp.at,
    )


def _document(edit: Edit, change: Change) -> Document | None:
    """The document's row after the change, None where it is removed."""
    if change.blob is None or change.size is None:
        return None
    return Document(
        id=change.document,
        path=edit.path,
        blob=change.blob,
        size=change.size,
        change=change.id,
        created_at=change.created_at if edit.current is None else edit.current.created_at,
        updated_at=change.created_at,
    )
