"""`muniment store`: make, show, change, archive and delete stores; `muniment access`."""

import sys
from typing import Annotated, Any

import typer

import muniment
from muniment.cli.command import (
    CommandError,
    Invocation,
    command,
    find_store,
    read_subject,
    usage_error,
)
from muniment.cli.output import note, show_json, show_json_items, show_record, show_table

PAGE_ITEMS = 200

StoreName = Annotated[str, typer.Argument(metavar="STORE", help="A store's id or name.")]
Policy = Annotated[
    str | None, typer.Option("--policy", help="direct, or proposal for changes by approval.")
]
Reviewer = Annotated[
    bool | None,
    typer.Option(
        "--distinct-reviewer/--any-reviewer", help="Whether an author may answer its proposal."
    ),
]
Default = Annotated[
    bool | None, typer.Option("--default/--no-default", help="The owner's default store.")
]

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Make and keep stores.")


@command(group, "create")
def create(
    invocation: Invocation,
    *,
    name: Annotated[str, typer.Argument(help="What it is called; need not be unique.")],
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Owned by the workspace, under proposals; you may read it."),
    ] = False,
    owner: Annotated[str | None, typer.Option(help="Whose it is: an id; yours by default.")] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    policy: Policy = None,
    reviewer: Reviewer = None,
    default: Default = None,
) -> None:
    """Make a store and print its id."""
    if shared and owner is not None:
        raise usage_error("give --shared or --owner, not both")
    whose = "workspace" if shared else None if owner is None else read_subject(owner)
    with invocation.client(makes=True) as client:
        grants = []
        if whose is not None:
            # Nothing is minted for the caller of a store that is not the caller's own.
            me = client.whoami().principal.id
            grants = [muniment.Grant.of(f"principal:{me}", "read", "write")]
        made = client.stores.create(
            name,
            description=description,
            owner=whose,
            promotion_policy=policy,
            require_distinct_reviewer=reviewer,
            default=default,
            grants=grants,
        )
    if invocation.json:
        show_json(made)
        return
    moves = "by approved proposals" if made.promotion_policy == "proposal" else "by direct writes"
    note(f"made store {made.name}, which changes {moves}")
    print(made.id)


@command(group, "list")
def list_stores(
    invocation: Invocation,
    *,
    name: Annotated[str | None, typer.Option(help="Only those of exactly this name.")] = None,
    archived: Annotated[bool, typer.Option("--archived", help="Archived ones too.")] = False,
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Tombstones too; for administrators.")
    ] = False,
) -> None:
    """List the stores that you may see."""
    with invocation.client() as client:
        found = client.stores.list(
            name=name, include_archived=archived, include_deleted=deleted, limit=PAGE_ITEMS
        )
        if invocation.json:
            show_json_items(found)
            return
        columns = ["NAME", "ID", "OWNER", "DOCUMENTS>", "STATUS"]
        rows = (
            (store.name, store.id, store.owner.kind, store.document_count, store.status)
            for store in found
        )
        show_table(columns, rows, empty="no stores; make one with `muniment store create NAME`")


@command(group, "show")
def show(invocation: Invocation, *, store: StoreName) -> None:
    """Show what is known of a store."""
    with invocation.client() as client:
        found = client.stores.get(find_store(client, store))
    if invocation.json:
        show_json(found)
        return
    show_record(
        {
            "name": found.name,
            "id": found.id,
            "description": found.description,
            "owner": found.owner,
            "status": found.status,
            "changes by": "proposals" if found.promotion_policy == "proposal" else "direct writes",
            "distinct reviewer": found.require_distinct_reviewer,
            "default": found.default,
            "documents": found.document_count,
            "bytes": found.total_bytes,
            "revision": found.canonical_revision,
            "version": found.version,
            "created": found.created_at,
            "updated": found.updated_at,
        }
    )


@command(group, "update")
def update(
    invocation: Invocation,
    *,
    store: StoreName,
    name: Annotated[str | None, typer.Option(help="A new name.")] = None,
    description: Annotated[str | None, typer.Option(help="A new description; '' for none.")] = None,
    policy: Policy = None,
    reviewer: Reviewer = None,
    default: Default = None,
) -> None:
    """Change a store's own fields; documents are changed by `muniment doc`."""
    given = {
        "name": name,
        "promotion_policy": policy,
        "require_distinct_reviewer": reviewer,
        "default": default,
    }
    fields: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if description is not None:
        fields["description"] = description or None
    if not fields:
        raise usage_error("nothing to change; `muniment store update --help` shows what can be")
    with invocation.client() as client:
        found = client.stores.get(find_store(client, store))
        changed = client.stores.update(found.id, expected_version=found.version, **fields)
    if invocation.json:
        show_json(changed)
    else:
        note(f"updated store {changed.name} ({changed.id})")


@command(group, "archive")
def archive(invocation: Invocation, *, store: StoreName) -> None:
    """Make a store read-only, for good."""
    with invocation.client() as client:
        found = client.stores.get(find_store(client, store))
        changed = client.stores.archive(found.id, expected_version=found.version)
    if invocation.json:
        show_json(changed)
    else:
        note(f"archived store {changed.name} ({changed.id}): it can be read but not written")


@command(group, "delete")
def delete(
    invocation: Invocation,
    *,
    store: StoreName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a store and erase all that it holds."""
    with invocation.client() as client:
        found = client.stores.get(find_store(client, store))
        if not yes:
            held = f"{found.document_count:,} document{'' if found.document_count == 1 else 's'}"
            what = f"store {found.name} ({found.id}) with {held}"
            confirm(f"Delete {what} and their history? This cannot be undone.")
        client.stores.delete(found.id, expected_version=found.version)
    if invocation.json:
        show_json({"deleted": found.id})
    else:
        note(f"deleted store {found.name} ({found.id})")


def access(
    invocation: Invocation,
    *,
    store: StoreName,
    subject: Annotated[str | None, typer.Option(help="Who: an id; you by default.")] = None,
) -> None:
    """Explain what you, or somebody else, may do with a store."""
    about = None if subject is None else read_subject(subject)
    with invocation.client() as client:
        found = client.stores.access(find_store(client, store), subject=about)
    if invocation.json:
        show_json(found)
        return
    show_record(
        {
            "read": found.read,
            "write": found.write,
            **{f"mount as {mode}": given for mode, given in found.mount.items()},
            **({"because": found.reasons} if found.reasons else {}),
            "assignments": found.assignments,
        }
    )


def confirm(question: str) -> None:
    """Returns where somebody says yes. CommandError where nobody does, or can."""
    if not sys.stdin.isatty():
        raise usage_error("nobody can be asked here: add --yes to delete it")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was deleted")
