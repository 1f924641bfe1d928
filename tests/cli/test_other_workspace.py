"""Commands with the keys of a second workspace: none reaches what is in the first one (K12).

The commands are found by looking; what they are called with follows from their parameters, so a new
command is tried as it comes, and a new parameter has to be given a value here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from muniment.cli.app import app
from muniment.cli.command import SHARED_OPTIONS
from muniment.client.portal import Portal
from neighbours import neighbours, victim
from shell import Shell
from wire import wired

IDENTIFIERS = {"grant rm": "assignment", "key revoke": "key", "job retry": "job"}
"""What a bare ID of a command is the id of."""

NAMING = {"store": "id", "owner": "principal", "principal": "principal", "subject": "principal"}
"""Parameters that name something of the first workspace, by the name that `victim` has for it."""

PLAIN = {
    "name": ["CANARY-NAME"],
    "path": ["/a.md"],
    "file": ["-"],
    "if_match": ["--if-match", "0" * 64],
    "replace": ["--replace"],
    "read": ["--read"],
    "write": ["--write"],
    "yes": ["--yes"],
    "description": ["--description", "taken"],
}
"""What a parameter that names nobody is given."""

LEFT_OUT = {
    *("help", "shared", "policy", "reviewer", "default", "archived", "deleted", "text", "prefix"),
    *("paths", "admin", "expires", "person", "external_id", "head"),
}


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command below a group, with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part, one in inner.items():
        yield from commands(f"{name} {part}".strip(), one)


def arguments(name: str, command: Any, ids: dict[str, str], store: str) -> tuple[list[str], bool]:
    """The command line after the command's name, and whether it names what is foreign."""
    line: list[str] = []
    foreign = False
    for parameter in command.params:
        option = [] if parameter.param_type_name == "argument" else [parameter.opts[0]]
        if parameter.name in SHARED_OPTIONS or parameter.name in LEFT_OUT:
            continue
        if parameter.name == "identifier" or parameter.name in NAMING:
            bare = parameter.name == "identifier"
            value = ids[IDENTIFIERS[name] if bare else NAMING[parameter.name]]
            line += [*option, store if parameter.name == "store" else value]
            foreign = True
            continue
        assert parameter.name in PLAIN, f"say what {parameter.name} of `{name}` is given"
        if parameter.name == "if_match" and name == "doc put":
            continue  # not beside --replace
        if option and parameter.name == "name":
            line += ["--name", "taken"] if name == "store update" else []
        else:
            line += PLAIN[parameter.name]
    return line, foreign


@pytest.fixture
def border(tmp_path: Path) -> Iterator[tuple[Shell, dict[str, str], dict[str, list[str]]]]:
    """A shell, the first workspace's ids, and the options by which each neighbour calls.

    Afterwards the first workspace is as it was.
    """
    portal, home = Portal(), tmp_path / "first"
    url = f"sqlite:///{tmp_path / 'shared.db'}"

    async def prepared() -> tuple[dict[str, str], dict[str, list[str]], dict[str, object]]:
        async with wired(home, url) as wire:
            _, ids = await victim(wire)
            others = await neighbours(wire, name="notes")
            keys = {"admin": others.admin.secret, "member": others.member.secret}
            options = {role: ["--db", url, "--key", key] for role, key in keys.items()}
            return ids, options, await wire.state()

    async def state() -> dict[str, object]:
        async with wired(home, url) as wire:
            return await wire.state()

    ids, options, before = portal.run(prepared())
    # In the same home: another one would get an owner's key of its own.
    shell = Shell(home)
    # A worker would rightly finish the job that `victim` has left.
    shell.environment |= {"MUNIMENT_WORKER": "false", "EDITOR": "true"}
    yield shell, ids, options
    assert portal.run(state()) == before
    portal.close()


@pytest.mark.parametrize("role", ["admin", "member"])
def test_no_command_reaches_into_another_workspace_k12(
    border: tuple[Shell, dict[str, str], dict[str, list[str]]], role: str
) -> None:
    shell, ids, options = border
    refused = 0
    for name, command in commands("", get_command(app)):
        if not any(parameter.name == "key" for parameter in command.params):
            continue  # the operator's, on a database or a machine: it sends no key
        for store in (ids["id"], "CANARY-NAME")[: 2 if role == "admin" else 1]:
            line, foreign = arguments(name, command, ids, store)
            if store == "CANARY-NAME" and store not in line:
                continue
            given = [*name.split(), *line, *options[role]]
            ran = shell.run(*given, input=b"taken")
            told = (ran.stdout + ran.stderr).decode()
            assert "CANARY-CONTENT" not in told and "CANARY-ada" not in told, given
            assert "fault of Muniment" not in told and "Traceback" not in told, (given, told)
            if foreign:
                assert (ran.returncode, ran.stdout) == (1, b""), (given, told)
                assert told.startswith("error: "), (given, told)
                refused += 1
            elif ran.returncode == 0:
                assert not any(one in told for one in ids.values()), (given, told)
    assert refused >= (20 if role == "admin" else 12)


def test_a_name_that_both_workspaces_have_is_the_own_one_k12(
    border: tuple[Shell, dict[str, str], dict[str, list[str]]],
) -> None:
    shell, ids, options = border
    assert shell.answer("doc", "get", "notes", "/a.md", *options["member"]) == "OWN"
    listed = shell.answer("store", "list", *options["admin"])
    assert "notes" in listed and ids["id"] not in listed and "CANARY" not in listed
    own = shell.answer("store", "create", "CANARY-NAME", *options["admin"])
    shell.answer("doc", "put", "CANARY-NAME", "/a.md", "--text", "own", *options["admin"])
    assert shell.answer("doc", "get", own, "/a.md", *options["admin"]) == "own"
    shell.answer("store", "delete", "CANARY-NAME", "--yes", *options["admin"])
