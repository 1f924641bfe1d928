"""What all commands share: the options that choose a database or a server, output, failures."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from muniment.settings import Settings, database_address, load

P = ParamSpec("P")


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


_PANEL = "Where and as whom"
_OPTIONS = {
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
    group: typer.Typer, name: str, *, options: Sequence[str] = tuple(_OPTIONS)
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
            for option, annotation in _OPTIONS.items()
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
