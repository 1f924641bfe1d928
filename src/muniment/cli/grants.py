"""`muniment grant`: who may read and write which store."""

from typing import Annotated

import typer

from muniment.cli.command import Invocation, command, find_store, read_subject, usage_error
from muniment.cli.output import note, show_json, show_json_items, show_table
from muniment.cli.stores import PAGE_ITEMS, StoreName

group = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Give and take access to stores."
)


@command(group, "add")
def add(
    invocation: Invocation,
    *,
    store: StoreName,
    subject: Annotated[
        str, typer.Argument(help="Who: the id of a principal, key, agent …; or `workspace`.")
    ],
    read: Annotated[bool, typer.Option("--read", help="May read, and propose.")] = False,
    write: Annotated[bool, typer.Option("--write", help="May write, or approve.")] = False,
) -> None:
    """Let somebody read or write a store, and print the assignment's id."""
    permissions = [name for name, given in (("read", read), ("write", write)) if given]
    if not permissions:
        raise usage_error("say what is granted: --read, --write or both")
    who = read_subject(subject)
    with invocation.client() as client:
        made = client.assignments.create(find_store(client, store), who, permissions)
    if invocation.json:
        show_json(made)
        return
    note(f"granted {' and '.join(made.permissions)} to {made.subject}")
    print(made.id)


@command(group, "list")
def list_grants(
    invocation: Invocation,
    *,
    store: Annotated[
        str | None, typer.Argument(metavar="[STORE]", help="Only of this store: an id or a name.")
    ] = None,
    subject: Annotated[str | None, typer.Option(help="Only to this one: an id.")] = None,
) -> None:
    """List who may do what."""
    about = None if subject is None else read_subject(subject)
    with invocation.client() as client:
        of = None if store is None else find_store(client, store)
        found = client.assignments.list(store=of, subject=about, limit=PAGE_ITEMS)
        if invocation.json:
            show_json_items(found)
            return
        columns = ["WHO", "MAY", "ORIGIN", "ID", "STORE"]
        rows = (
            (one.subject, ",".join(one.permissions), one.origin, one.id, one.resource.id)
            for one in found
        )
        width = len(columns) if of is None else len(columns) - 1
        show_table(columns[:width], (row[:width] for row in rows), empty="no grants")


@command(group, "rm")
def remove(
    invocation: Invocation,
    *,
    identifier: Annotated[
        str, typer.Argument(metavar="ID", help="The assignment's id, from `grant list`.")
    ],
) -> None:
    """Take a grant back, at once."""
    with invocation.client() as client:
        client.assignments.delete(identifier)
    if invocation.json:
        show_json({"deleted": identifier})
    else:
        note(f"ended {identifier}")
