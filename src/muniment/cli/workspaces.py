"""`muniment workspace`: the operator's commands, which work on the database itself (R-49)."""

import logging
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from muniment.cli.command import CommandError, Invocation, command
from muniment.cli.output import note, show_json, show_record, show_table
from muniment.settings import Settings

group = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Workspaces; for the operator, on the database itself.",
)

OPTIONS = ("url", "db", "json")
"""`--url` is among them so that it can be refused with a reason."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDENTIFIER = typer.Argument(metavar="ID", help="The workspace's id.")


@command(group, "create", options=OPTIONS)
def create_workspace(
    invocation: Invocation,
    *,
    name: Annotated[str, typer.Argument(help="What it is called; need not be unique.")],
    principal: Annotated[
        str, typer.Option(help="What its first person is called, an administrator.")
    ] = "owner",
) -> None:
    """Make a workspace; print its id and an administrator's key, which is shown this once."""
    import asyncio

    from muniment import main

    made = asyncio.run(main.create_workspace(settings_of(invocation), name, principal))
    if invocation.json:
        who, key = made.principal, made.key
        show_json(
            {
                "workspace": fields_of(made.workspace),
                "principal": {"id": who.id, "kind": who.kind, "name": who.name},
                "api_key": {"id": key.id, "role": key.role, "secret": made.secret},
            }
        )
        return
    note(f"made workspace {name}, and a key of its first person, {principal}")
    note("The key is shown only now; keep it where secrets are kept:")
    show_record({"workspace": made.workspace.id, "key": made.secret})


@command(group, "list", options=OPTIONS)
def list_workspaces(invocation: Invocation) -> None:
    """List all workspaces of the database, disabled ones too."""
    import asyncio

    from muniment import main

    found = asyncio.run(main.list_workspaces(settings_of(invocation)))
    if invocation.json:
        show_json([fields_of(one) for one in found])
        return
    rows = ((one.name, one.id, one.status, time_of(one.created_at)) for one in found)
    show_table(["NAME", "ID", "STATUS", "CREATED"], rows, empty="no workspaces")


@command(group, "disable", options=OPTIONS)
def disable_workspace(invocation: Invocation, *, identifier: Annotated[str, _IDENTIFIER]) -> None:
    """Refuse every key of a workspace from now on; nothing of it is lost."""
    import asyncio

    from muniment import main

    left = asyncio.run(main.disable_workspace(settings_of(invocation), identifier))
    if invocation.json:
        show_json(fields_of(left))
    else:
        note(f"workspace {left.name} is disabled: its keys are refused")


@command(group, "enable", options=OPTIONS)
def enable_workspace(invocation: Invocation, *, identifier: Annotated[str, _IDENTIFIER]) -> None:
    """Let a disabled workspace's keys in again."""
    import asyncio

    from muniment import main

    left = asyncio.run(main.enable_workspace(settings_of(invocation), identifier))
    if invocation.json:
        show_json(fields_of(left))
    else:
        note(f"workspace {left.name} is active")


def settings_of(invocation: Invocation) -> Settings:
    """The settings, with a database to work on. CommandError where they lead to a server."""
    if invocation.settings().url:
        raise CommandError(
            "a server's keys are each of one workspace, so workspaces are made and disabled on the"
            " database itself: run this where it is, with --db in place of --url and MUNIMENT_URL"
        )
    # Warnings are for whoever runs a server; a command says one line, and only if it fails.
    logging.getLogger().setLevel(logging.ERROR)
    return invocation.database()


def fields_of(workspace: Any) -> dict[str, object]:
    """A workspace for programs."""
    return {
        "id": workspace.id,
        "name": workspace.name,
        "status": workspace.status,
        "created_at": time_of(workspace.created_at),
    }


def time_of(at: int) -> datetime:
    """A time from UTC microseconds."""
    return _EPOCH + timedelta(microseconds=at)
