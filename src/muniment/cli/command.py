"""What all commands share: the options that choose a database or a server, output, failures."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec
from urllib.parse import urlsplit

import typer

import muniment
from muniment.model.ids import is_id
from muniment.settings import Settings, database_address, load, read_credentials

P = ParamSpec("P")

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
        return load(url=url, api_key=self.key, database=database, **given)

    def client(self) -> "muniment.Client":
        """A client of the server or of the embedded database that the command line chooses."""
        settings = self.settings()
        # A key in the environment is for what the environment names, not for another database.
        key = self.key or ("" if self.db is not None else settings.api_key)
        if not settings.url:
            from muniment.main import open_client

            return open_client(settings.database_url, key=key or None)
        from muniment.client.sync import Client

        try:
            return Client(settings.url, key or self._local_key(settings))
        except ValueError as error:
            raise CommandError(str(error)) from None

    def _local_key(self, settings: Settings) -> str:
        """The local owner's key, for a server on this machine only: it goes nowhere else (R-05)."""
        host = urlsplit(settings.url).hostname
        key = read_credentials(settings.credentials) if host in LOOPBACK else None
        if key is None:
            raise CommandError(f"{settings.url} needs a key: give --key or set MUNIMENT_API_KEY")
        return key


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
        run.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        del run.__wrapped__  # or its signature would count
        group.command(name)(run)
        return run

    return register


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
