"""The SDK with the keys of a second workspace: no method reaches what is in the first one (K12).

The methods are found by looking, and what they are called with follows from the names of their
parameters: a new method is tried as it comes, and a new parameter has to be given a value here.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import muniment
from muniment.client.asynchronous import AsyncClient
from muniment.client.portal import Portal
from muniment.client.sync import Client
from neighbours import neighbours, victim
from wire import wired

Method = tuple[str, Callable[..., Any]]

OWN = {
    "name": "CANARY-NAME",
    "kind": "public",
    "path": "/a.md",
    "content": "taken",
    "permissions": ["read", "write"],
    "expected_version": 1,
    "function": lambda text: "taken",
    "delegate": "principal:prin_" + "0" * 32,
}
"""What a parameter that names nobody is given."""

OPTIONS = {
    *("limit", "page", "after", "attempts", "role", "expires_at", "external_id", "default"),
    *("description", "promotion_policy", "require_distinct_reviewer", "grants", "name", "kind"),
    *("include_archived", "include_deleted", "prefix", "expected_version"),
}
"""Parameters that name nobody and are left out where they may be."""

NOT_CALLS = {"aclose", "close", "send", "acting_as", "once"}
"""Methods of a client that ask the server nothing, or are tried apart."""


@dataclass
class Border:
    """A database with two workspaces, the ids of the first, the secrets of the second's keys."""

    database: Path
    ids: dict[str, str]
    secrets: dict[str, str]
    before: dict[str, object]

    def foreign(self) -> dict[str, Any]:
        """What a parameter that names somebody or something is given."""
        return {
            "store": self.ids["id"],
            "key": self.ids["key"],
            "principal": self.ids["principal"],
            "delegation": self.ids["delegation"],
            "assignment": self.ids["assignment"],
            "job": self.ids["job"],
            "if_match": self.ids["sha256"],
            "subject": f"principal:{self.ids['principal']}",
            "owner": f"principal:{self.ids['principal']}",
        }


async def prepared(home: Path, database: Path) -> Border:
    """Two workspaces in one file."""
    async with wired(home, f"sqlite:///{database}") as wire:
        _, ids = await victim(wire)
        others = await neighbours(wire)
        secrets = {"admin": others.admin.secret, "member": others.member.secret}
        return Border(database, ids, secrets, await wire.state())


async def state_of(home: Path, database: Path) -> dict[str, object]:
    async with wired(home, f"sqlite:///{database}") as wire:
        return await wire.state()


@pytest.fixture
def border(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Border]:
    """Two workspaces; afterwards the first one is as it was."""
    # A worker would rightly finish the job that `victim` has left.
    monkeypatch.setenv("MUNIMENT_WORKER", "false")
    portal, database = Portal(), tmp_path / "shared.db"
    border = portal.run(prepared(home, database))
    yield border
    assert portal.run(state_of(home, database)) == border.before
    portal.close()


def methods(client: Client | AsyncClient) -> Iterator[Method]:
    """Every method of the client and of its nouns that asks the server, by name."""
    nouns = {name: noun for name, noun in vars(client).items() if hasattr(noun, "sender")}
    for noun, holder in {"": client, **nouns}.items():
        for name, function in inspect.getmembers(holder, callable):
            if not name.startswith("_") and name not in NOT_CALLS | {"sender"} | nouns.keys():
                yield f"{noun}.{name}".lstrip("."), function


def arguments(name: str, function: Callable[..., Any], foreign: dict[str, Any]) -> dict[str, Any]:
    """What the method is called with: foreign ids wherever it takes one."""
    given = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in foreign:
            given[parameter.name] = foreign[parameter.name]
        elif parameter.default is inspect.Parameter.empty:
            assert parameter.name in OWN, f"say what {parameter.name} of {name} is given"
            given[parameter.name] = OWN[parameter.name]
        else:
            assert parameter.name in OPTIONS, f"may {parameter.name} of {name} be left out here?"
    return given


def check(name: str, given: dict[str, Any], outcome: Any, border: Border, role: str) -> None:
    """A call with a foreign id is refused; another one shows nothing of the first workspace."""
    foreign = set(border.foreign()) - {"if_match"}
    if isinstance(outcome, Exception):
        assert isinstance(outcome, muniment.NotFound | muniment.Denied), (name, outcome)
        told = f"{outcome} {outcome.detail}"
    else:
        assert not foreign & given.keys(), (name, given, outcome)
        told = repr(outcome)
    if role == "admin" and foreign & given.keys():
        assert isinstance(outcome, muniment.NotFound), (name, outcome)
    assert "CANARY-CONTENT" not in told and "CANARY-ada" not in told, name
    assert not any(one in told for one in border.ids.values()), (name, told)


@pytest.mark.parametrize("role", ["admin", "member"])
def test_no_method_reaches_into_another_workspace_k12(border: Border, role: str) -> None:
    tried = {}
    with muniment.open(border.database, key=border.secrets[role]) as client:
        for name, method in methods(client):
            given = arguments(name, method, border.foreign())
            outcome: Any
            try:
                outcome = method(**given)
                if inspect.isgenerator(outcome):
                    outcome = list(outcome)
            except muniment.MunimentError as error:
                outcome = error
            check(name, given, outcome, border, role)
            tried[name] = given
        with pytest.raises(muniment.Denied):
            client.acting_as(border.ids["principal"]).whoami()
    assert sum(bool(border.foreign().keys() & given.keys()) for given in tried.values()) >= 16


@pytest.mark.parametrize("role", ["admin", "member"])
async def test_no_method_to_await_reaches_into_another_workspace_k12(
    border: Border, role: str
) -> None:
    async with muniment.open_async(border.database, key=border.secrets[role]) as client:
        with muniment.open(border.database) as blocking:
            names = [name for name, _ in methods(blocking)]
        tried = []
        for name, method in methods(client):
            given = arguments(name, method, border.foreign())
            outcome: Any
            try:
                outcome = method(**given)
                if inspect.isasyncgen(outcome):
                    outcome = [item async for item in outcome]
                else:
                    outcome = await outcome
            except muniment.MunimentError as error:
                outcome = error
            check(name, given, outcome, border, role)
            tried.append(name)
        assert tried == names
        with pytest.raises(muniment.Denied):
            await client.acting_as(border.ids["principal"]).whoami()
