"""The `muniment` command: its groups, and how a failure becomes one line and a status."""

import errno
import sys
from typing import Annotated, NoReturn

import typer

import muniment
from muniment import __version__
from muniment.cli import databases, doctor, documents, grants, identities, jobs, stores, workspaces
from muniment.cli.command import CommandError, Invocation, command
from muniment.cli.output import discard, note, prepare_streams
from muniment.model.errors import Failure
from muniment.settings import SettingsError

INTERRUPTED = 128 + 2
BROKEN_PIPE = 128 + 13
"""The statuses that shells give to a process that ends by SIGINT and by SIGPIPE."""

_WRITE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE)

UNWRITTEN = 74
"""What was asked is done, but the answer could not be written: EX_IOERR of sysexits.h."""

app = typer.Typer(
    name="muniment",
    help="Governed, versioned memory and context for AI agents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
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


@command(app, "worker", options=["db"])
def worker(
    invocation: Invocation,
    *,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning, error or critical.")
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="One line at the start, then warnings only.")
    ] = False,
) -> None:
    """Do jobs until it is stopped, and serve nothing."""
    from muniment.cli.worker import work

    level = log_level or ("warning" if quiet else None)
    work(invocation.database(log_level=level), quiet=quiet)


command(app, "migrate", options=["db", "json"])(databases.migrate)
command(app, "backup", options=["db", "json"])(databases.backup)
command(app, "restore", options=["db", "json"])(databases.restore)
app.add_typer(stores.group, name="store")
app.add_typer(documents.group, name="doc")
app.add_typer(grants.group, name="grant")
command(app, "access")(stores.access)
app.add_typer(identities.keys, name="key")
app.add_typer(identities.principals, name="principal")
app.add_typer(jobs.group, name="job")
app.add_typer(workspaces.group, name="workspace")
command(app, "whoami")(identities.whoami)
command(app, "doctor", options=["db", "json"])(doctor.doctor)
app.add_typer(doctor.group, name="audit")


def main() -> NoReturn:
    """Runs the command line; exits 0, 1 on a failure, 2 on a usage error, 74 where the answer could
    not be written, 130 on Ctrl-C."""
    prepare_streams()
    try:
        status = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has enough, as in `muniment doc ls notes | head -1`; nothing more is flushed.
        discard(sys.stdout)
        status = BROKEN_PIPE
    except OSError as error:
        discard(sys.stdout)
        reason = (error.strerror or str(error)).lower()
        note(f"error: cannot write the answer: {reason}")
        status = UNWRITTEN
    except KeyboardInterrupt:
        status = INTERRUPTED
    sys.exit(status)


def _run() -> int:
    try:
        return app(standalone_mode=False) or 0
    except Exception as error:
        if sys.flags.dev_mode or _is_of_output(error):
            raise
        return _fail(error)


def _is_of_output(error: Exception) -> bool:
    """Whether printing failed: where a file fails, the error names it."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _WRITE_ERRORS


def _fail(error: Exception) -> int:
    """Says on standard error what failed and what helps, in one line; the status."""
    status = 1
    if isinstance(error, typer.Abort):
        return INTERRUPTED
    if isinstance(error, typer.TyperException):
        message, status = _with_hint(error), error.exit_code
        if "\n" in message or not message:  # without a command, all that is said is the help page
            print(message)
            return status
    elif isinstance(error, CommandError):
        message, status = str(error), error.status
    elif isinstance(error, SettingsError | Failure | OSError):
        message = str(error)
    elif isinstance(error, muniment.MunimentError):
        message = f"{error}{_advice(error)}"
    else:
        message = (
            f"this is a fault of Muniment: {type(error).__name__}: {error}"
            " (python -X dev -m muniment … shows where)"
        )
    note(f"error: {' '.join(message.split())}")
    return status


def _advice(error: "muniment.MunimentError") -> str:
    """What helps against failures that the command line can mend."""
    if isinstance(error, muniment.NoAnswer):
        if "WRONG_VERSION_NUMBER" in str(error):
            return "; the server speaks no TLS: is its URL http://…?"
        return "" if error.sent else "; is the server running? (muniment serve)"
    if isinstance(error, muniment.NotFound) and error.message.startswith("no such route"):
        return "; is the URL right? It has nothing behind the host and the port"
    if isinstance(error, muniment.InvalidKey):
        return "; give another with --key or MUNIMENT_API_KEY"
    if isinstance(error, muniment.Internal | muniment.UnexpectedAnswer) and error.request_id:
        return f" (request {error.request_id})"
    return ""


def _with_hint(error: typer.TyperException) -> str:
    """The message of a bad command line, and which help says more; empty after a help page."""
    message = error.format_message().strip()
    context = getattr(error, "ctx", None)
    if context is None or "\n" in message or not message:
        return message
    return f"{message.rstrip('.')} (see {context.command_path} --help)"
