"""`muniment whoami`, `key` and `principal`: who there is and what they hold."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from muniment.cli.command import Invocation, command, usage_error
from muniment.cli.output import note, show_json, show_json_items, show_record, show_table
from muniment.cli.stores import PAGE_ITEMS

keys = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make and revoke API keys; for administrators.",
)
principals = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="People and services; for administrators."
)


def whoami(invocation: Invocation) -> None:
    """Show as whom your commands act, and where."""
    with invocation.client() as client:
        found = client.whoami()
    if invocation.json:
        show_json(found)
        return
    settings = invocation.settings()
    show_record(
        {
            "principal": f"{found.principal.name} ({found.principal.kind})",
            "principal id": found.principal.id,
            "key": f"{found.api_key.name} ({found.api_key.role})",
            "key id": found.api_key.id,
            "workspace": found.workspace.name,
            "at": settings.url or settings.shown_database,
        }
    )


@command(keys, "create")
def create_key(
    invocation: Invocation,
    *,
    name: Annotated[str, typer.Argument(help="What the key is for.")],
    admin: Annotated[
        bool, typer.Option("--admin", help="An administrator's; otherwise a member's.")
    ] = False,
    principal: Annotated[
        str | None, typer.Option(help="Whose it is: an id; a new service's by default.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option(help="When it ends, such as 2027-01-31 or 2027-01-31T12:00Z.")
    ] = None,
) -> None:
    """Make a key and print its secret, which is shown this once."""
    with invocation.client() as client:
        made = client.keys.create(
            name,
            role="admin" if admin else "member",
            principal=principal,
            expires_at=None if expires is None else read_time(expires),
        )
    if invocation.json:
        show_json(made)
        return
    note(f"made {made.role} key {made.id} of {made.principal}")
    note("Its secret is shown only now; keep it where secrets are kept:")
    print(made.secret)


@command(keys, "list")
def list_keys(invocation: Invocation) -> None:
    """List the workspace's keys, without their secrets."""
    with invocation.client() as client:
        found = client.keys.list(limit=PAGE_ITEMS)
        if invocation.json:
            show_json_items(found)
            return
        rows = ((key.name, key.id, key.role, key.expires_at, key.revoked_at) for key in found)
        show_table(["NAME", "ID", "ROLE", "EXPIRES", "REVOKED"], rows, empty="no keys")


@command(keys, "revoke")
def revoke_key(
    invocation: Invocation,
    *,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")],
) -> None:
    """End a key at once and for good."""
    with invocation.client() as client:
        client.keys.revoke(identifier)
    if invocation.json:
        show_json({"revoked": identifier})
    else:
        note(f"revoked {identifier}")


@command(principals, "create")
def create_principal(
    invocation: Invocation,
    *,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    person: Annotated[
        bool, typer.Option("--person", help="A person; otherwise a service.")
    ] = False,
    external_id: Annotated[
        str | None, typer.Option(help="Its id elsewhere; unique in the workspace.")
    ] = None,
) -> None:
    """Make a principal and print its id."""
    with invocation.client() as client:
        kind = "person" if person else "service"
        made = client.principals.create(name, kind=kind, external_id=external_id)
    if invocation.json:
        show_json(made)
        return
    note(f"made {made.kind} {made.name}")
    print(made.id)


@command(principals, "list")
def list_principals(invocation: Invocation) -> None:
    """List the workspace's principals."""
    with invocation.client() as client:
        found = client.principals.list(limit=PAGE_ITEMS)
        if invocation.json:
            show_json_items(found)
            return
        rows = ((one.name, one.id, one.kind, one.external_id) for one in found)
        show_table(["NAME", "ID", "KIND", "EXTERNAL ID"], rows, empty="no principals")


def read_time(text: str) -> datetime:
    """A time of the command line; without an offset it is UTC. A usage error for anything else."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise usage_error(f"{text!r} is not a time such as 2027-01-31T12:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
