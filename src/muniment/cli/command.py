"""What all commands share: the options that choose a database or a server, output, failures."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec
from urllib.parse import urlsplit

import typer

import muniment
from muniment.cli.output import note
from muniment.model.ids import is_id
from muniment.settings import Settings, database_address, load, read_credentials

P = ParamSpec("P")

_ESCAPED = re.compile(r"[\ud800-\udfff]")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class CommandError(Exception):
    """What a command cannot do. The message is the one line that people see."""

    def __init__(self, message: str, *, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def usage_error(message: str) -> CommandError:
    """A command line that asks for nothing that makes sense: status 2."""
    return CommandError(message, status=2)


@dataclass(frozen=True, slots=True)
class Invocation:
    """One command as it was called: where to, as whom, and for whom the answer is."""

    url: str | None = None
    key: str | None = None
    db: str | None = None
    json: bool = False

    def settings(self, **given: Any) -> Settings:
        """The settings of the environment under this command line."""
        if self.url is not None and self.db is not None:
            raise usage_error("give --url or --db, not both")
        database = None if self.db is None else database_address(self.db)
        # A database on the command line outranks a server in the environment.
        url = "" if self.db is not None else self.url
        return load(called=_CALLED, url=url, api_key=self.key, database=database, **given)

    def database(self, **given: Any) -> Settings:
        """The settings of a command that works on the database itself, not through a server.

        CommandError where there is no such database, or it is of one process alone.
        """
        settings = self.settings(**given)
        if settings.database_url.startswith("memory:"):
            raise CommandError(
                "memory: is a process's own: name a database with --db or MUNIMENT_DATABASE_URL"
            )
        _check_there(settings, "`muniment serve` and `muniment migrate` make one")
        return settings

    def client(self, *, makes: bool = False) -> "muniment.Client":
        """A client of the server or of the embedded database that the command line chooses.

        CommandError where there is no such database, unless the command `makes` one: a mistyped
        path is then a failure, not a new and empty database.
        """
        settings = self.settings()
        # A key in the environment is for what the environment names, not for another database.
        key = self.key or ("" if self.db is not None else settings.api_key)
        if not settings.url:
            return self._embedded(settings, key, makes=makes)
        from muniment.client.sync import Client

        try:
            return Client(settings.url, key or self._local_key(settings))
        except ValueError as error:
            raise CommandError(str(error)) from None

    def _embedded(self, settings: Settings, key: str, *, makes: bool) -> "muniment.Client":
        file = settings.database_file
        absent = file is not None and not file.exists()
        if not makes:
            _check_there(settings, "start with `muniment store create NAME`")
        from logging import ERROR, getLogger

        from muniment.main import open_client

        # Warnings are for whoever runs a server; a command says one line, and only if it fails.
        getLogger().setLevel(ERROR)
        client = open_client(settings.database_url, key=key or None)
        if absent:
            note(f"made a new database at {file}")
        return client

    def _local_key(self, settings: Settings) -> str:
        """The local owner's key, for a server on this machine only: it goes nowhere else (R-05)."""
        if urlsplit(settings.url).hostname not in LOOPBACK:
            raise CommandError(f"{settings.url} needs a key: give --key or set MUNIMENT_API_KEY")
        key = read_credentials(settings.credentials)
        if key is None:
            raise CommandError(
                f"{settings.url} needs a key, and there is no {settings.credentials}: the first"
                " `muniment serve` makes it; or give --key or set MUNIMENT_API_KEY"
            )
        return key


def _check_there(settings: Settings, advice: str) -> None:
    """CommandError with the advice where the settings name a file that is not there."""
    file = settings.database_file
    if file is not None and not file.exists():
        raise CommandError(f"there is no database at {file}: {advice}")


_CALLED = {
    "url": "--url",
    "api_key": "--key",
    "database": "--db",
    "host": "--host",
    "port": "--port",
    "log_level": "--log-level",
}
"""How the command line calls the settings that it gives."""

_PANEL = "Where and as whom"
SHARED_OPTIONS = {
    "url": Annotated[
        str | None,
        typer.Option("--url", help="The server to ask [MUNIMENT_URL].", rich_help_panel=_PANEL),
    ],
    "key": Annotated[
        str | None,
        typer.Option("--key", help="The key to send [MUNIMENT_API_KEY].", rich_help_panel=_PANEL),
    ],
    "db": Annotated[
        str | None,
        typer.Option(
            "--db",
            help="The database to open without a server: a path or an address"
            " [MUNIMENT_DATABASE_URL].",
            rich_help_panel=_PANEL,
        ),
    ],
    "json": Annotated[
        bool, typer.Option("--json", help="Print JSON for programs.", rich_help_panel=_PANEL)
    ],
}


def command(
    group: typer.Typer, name: str, *, options: Sequence[str] = tuple(SHARED_OPTIONS)
) -> Callable[[Callable[Concatenate[Invocation, P], None]], Callable[..., None]]:
    """Adds a function to a group of commands, with the options that every command has.

    `options` are fewer of them for a command that asks no server.
    """

    def register(function: Callable[Concatenate[Invocation, P], None]) -> Callable[..., None]:
        invoke: Callable[..., None] = function

        @wraps(function)
        def run(**given: Any) -> None:
            given = {name: _unicode(named, name, value) for name, value in given.items()}
            shared = {option: given.pop(option) for option in options}
            invoke(Invocation(**shared), **given)

        own = list(inspect.signature(function).parameters.values())[1:]
        shared = [
            inspect.Parameter(
                option,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if option == "json" else None,
                annotation=annotation,
            )
            for option, annotation in SHARED_OPTIONS.items()
            if option in options
        ]
        signature = inspect.Signature(
            [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + shared
        )
        run.__signature__ = signature  # type: ignore[attr-defined]  # what typer reads
        named = {p.name: p.annotation for p in signature.parameters.values()}
        run.__annotations__ = named
        del run.__wrapped__  # or its signature would count
        # The whole first sentence: typer would cut it in a list of commands.
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
        group.command(name, short_help=" ".join(summary.split()))(run)
        return run

    return register


def _unicode(named: Mapping[str, Any], name: str, value: object) -> object:
    """An argument as text. A usage error for bytes that are not UTF-8, except in a file's name."""
    if not isinstance(value, str) or name == "file" or value.isascii():
        return value
    try:
        # The bytes as they were given: a locale that is not UTF-8 has hidden them.
        return os.fsencode(value).decode() if _ESCAPED.search(value) else value
    except UnicodeError:
        (info,) = named[name].__metadata__
        called = f"--{name.replace('_', '-')}"
        if isinstance(info, typer.models.ArgumentInfo):
            called = (info.metavar or name.upper()).strip("[]")
        raise usage_error(f"{called} is not UTF-8 text") from None


def find_store(client: "muniment.Client", text: str) -> str:
    """The id of the store that is named by its id or its name (R-06).

    CommandError where no store has the name, or where several have, with their ids.
    """
    if is_id("store", text):
        return text
    found = list(client.stores.list(name=text, include_archived=True))
    active = [store for store in found if store.status == "active"]
    candidates = active or found
    if not candidates:
        raise CommandError(f"no store is named {text!r}; `muniment store list` shows what there is")
    if len(candidates) > 1:
        ids = ", ".join(store.id for store in candidates)
        raise CommandError(
            f"{len(candidates)} stores are named {text!r}; say which by its id: {ids}"
        )
    return candidates[0].id


_SUBJECTS = {
    "principal": "principal",
    "key": "api_key",
    "agent": "agent_definition",
    "session": "session",
    "scope": "surface_scope",
}


def read_subject(text: str) -> str:
    """The `kind:id` of a subject that is given so, by its id alone, or as `workspace`.

    CommandError, a usage error, for anything else.
    """
    if text == "workspace":
        return text
    for name, kind in _SUBJECTS.items():
        if is_id(name, text.removeprefix(f"{kind}:")):
            return f"{kind}:{text.removeprefix(f'{kind}:')}"
    raise usage_error(
        f"{text!r} is no principal, key, agent, Session or surface scope: give an id such as"
        " prin_…, or `workspace` for everybody"
    )
