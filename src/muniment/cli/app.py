"""The `muniment` command: its groups, and how a failure becomes one line and a status."""

import os
import sys
from typing import Annotated, NoReturn

import typer

from muniment import __version__
from muniment.cli.command import CommandError, Invocation, command
from muniment.model.errors import Failure
from muniment.settings import SettingsError

app = typer.Typer(
    name="muniment",
    help="Governed, versioned memory and context for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"muniment {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Governed, versioned memory and context for AI agents."""


@command(app, "serve", options=["db"])
def serve(
    invocation: Invocation,
    *,
    host: Annotated[str | None, typer.Option(help="The address to listen on.")] = None,
    port: Annotated[
        int | None, typer.Option(help="The port; 0 takes a free one.", min=0, max=65_535)
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning, error or critical.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="One line at the start, then warnings only.")
    ] = False,
) -> None:
    """Serve the HTTP API until it is stopped."""
    from muniment.cli.serve import serve as run

    level = log_level or ("warning" if quiet else None)
    run(invocation.settings(host=host, port=port, log_level=level), quiet=quiet)


def main() -> NoReturn:
    """Runs the command line; exits 0, 1 on a failure, 2 on a usage error, 130 on Ctrl-C."""
    try:
        status = app(standalone_mode=False)
    except typer.Abort:
        status = 130
    except typer.TyperException as error:
        # Without a command the help is shown, and the failure has no words of its own.
        status = fail(_with_hint(error), error.exit_code) if error.message else error.exit_code
    except CommandError as error:
        status = fail(str(error), error.status)
    except (SettingsError, Failure) as error:
        status = fail(str(error))
    except BrokenPipeError:
        # The reader has enough, as in `muniment doc ls notes | head -1`; nothing more is flushed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    sys.exit(status or 0)


def _with_hint(error: typer.TyperException) -> str:
    """The message of a bad command line, and which help says more."""
    context = getattr(error, "ctx", None)
    hint = "" if context is None else f" (see {context.command_path} --help)"
    return error.format_message().rstrip(".") + hint


def fail(message: str, status: int = 1) -> int:
    """Says on standard error what failed, in one line; the status."""
    print("error:", " ".join(message.split()), file=sys.stderr)
    return status
