"""The only way to reach a store: who acts, may they, is it there (R-40 … R-44, C-024).

Every use case about a store begins with `open_store` or `open_document`; both decide from the
assignments as they stand in this very transaction.
"""

from muniment.model.access import Action, Actor, Rights, check
from muniment.model.documents import Document
from muniment.model.errors import NotFound
from muniment.model.ids import StoreId
from muniment.model.stores import StoreRecord
from muniment.storage.base import Transaction

_CHANGING = (Action.WRITE, Action.ADMINISTER, Action.GRANT)


def subjects_of(actor: Actor) -> tuple[str, ...]:
    """The subject ids whose assignments speak for this actor: itself, and everybody."""
    return (actor.principal, actor.workspace)


async def open_store(
    tx: Transaction, actor: Actor, store: StoreId, action: Action
) -> tuple[StoreRecord, Rights]:
    """The store and the actor's rights; locked for its other writers where the action changes it.

    NotFound if absent or invisible; ReadOnly or Denied where the action is not allowed.
    """
    if action in _CHANGING:
        await tx.lock_store(actor.workspace, store)
    found = await tx.get_store(actor.workspace, store, subjects_of(actor))
    record, rights = found if found is not None else (None, Rights())
    return check(actor, record, rights, action), rights


async def open_document(
    tx: Transaction,
    actor: Actor,
    store: StoreId,
    path: str,
    action: Action,
    *,
    content: bool = False,
) -> tuple[StoreRecord, Document | None]:
    """The store and the document at `path`, in one statement; fails like `open_store`."""
    if action in _CHANGING:
        await tx.lock_store(actor.workspace, store)
    found = await tx.open_document(
        actor.workspace, store, subjects_of(actor), path, content=content
    )
    if found is None:
        raise NotFound("no such memory store")
    record, rights, document = found
    return check(actor, record, rights, action), document
