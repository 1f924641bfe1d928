"""`muniment doc`: documents of a store, by path. No command overwrites what it has not read."""

import shutil
import sys
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

import muniment
from muniment.cli.command import CommandError, Invocation, command, find_store, usage_error
from muniment.cli.output import (
    note,
    short_hash,
    show_json,
    show_json_items,
    show_table,
    write_bytes,
)
from muniment.cli.stores import PAGE_ITEMS, StoreName

EDITORS = ("sensible-editor", "nano", "vi")

DocumentPath = Annotated[
    str, typer.Argument(metavar="PATH", help="The document's absolute path, such as /a/b.md.")
]
IfMatch = Annotated[
    str | None, typer.Option("--if-match", help="The SHA-256 that it must have now.")
]

group = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Read and write documents.")


@command(group, "get")
def get(invocation: Invocation, *, store: StoreName, path: DocumentPath) -> None:
    """Write a document to standard output, byte for byte."""
    with invocation.client() as client:
        found = client.documents.get(find_store(client, store), path)
    if invocation.json:
        show_json(found)
        return
    write_bytes(found.content.encode())


@command(group, "put")
def put(
    invocation: Invocation,
    *,
    store: StoreName,
    path: DocumentPath,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="A file; standard input by default.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="The content itself.")] = None,
    if_match: IfMatch = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace what is there now, unless somebody is faster."),
    ] = False,
) -> None:
    """Create a document, or replace one, and print its SHA-256."""
    if replace and if_match is not None:
        raise usage_error("give --replace or --if-match, not both")
    content = read_content(file, text)
    with invocation.client() as client:
        identifier = find_store(client, store)
        expected = current_hash(client, identifier, path) if replace else if_match
        try:
            left = client.documents.put(identifier, path, content, if_match=expected)
        except muniment.Conflict as conflict:
            raise conflicting(conflict, path, expected) from None
    if invocation.json:
        show_json(left)
        return
    note(f"{'created' if left.created else 'replaced'} {left.path}, {left.size_bytes:,} bytes")
    print(left.sha256)


@command(group, "rm")
def remove(
    invocation: Invocation, *, store: StoreName, path: DocumentPath, if_match: IfMatch = None
) -> None:
    """Delete the document that is there now, unless somebody changes it meanwhile."""
    with invocation.client() as client:
        identifier = find_store(client, store)
        expected = if_match or client.documents.get(identifier, path).sha256
        try:
            client.documents.delete(identifier, path, if_match=expected)
        except muniment.Conflict as conflict:
            raise conflicting(conflict, path, expected) from None
    if invocation.json:
        show_json({"deleted": path, "sha256": expected})
    else:
        note(f"deleted {path}")


@command(group, "ls")
def list_documents(
    invocation: Invocation,
    *,
    store: StoreName,
    prefix: Annotated[str, typer.Argument(help="Only paths that begin so.")] = "/",
    paths: Annotated[bool, typer.Option("--paths", "-1", help="Print paths alone.")] = False,
) -> None:
    """List a store's documents as they are now, in the order of their paths."""
    with invocation.client() as client:
        found = client.documents.list(find_store(client, store), prefix, limit=PAGE_ITEMS)
        if invocation.json:
            show_json_items(found)
        elif paths:
            for item in found:
                print(item.path)
        else:
            rows = (
                (item.path, item.size_bytes, item.updated_at, short_hash(item.sha256))
                for item in found
            )
            show_table(["PATH", "BYTES>", "UPDATED", "SHA-256"], rows, empty="no documents")


@command(group, "edit")
def edit(invocation: Invocation, *, store: StoreName, path: DocumentPath) -> None:
    """Open a document in your editor and put it back, unless somebody changed it meanwhile."""
    import tempfile

    editor = find_editor(invocation.settings().editor)
    with invocation.client() as client:
        identifier = find_store(client, store)
        current = current_document(client, identifier, path)
        before = b"" if current is None else current.content.encode()
        folder = Path(tempfile.mkdtemp(prefix="muniment-edit-"))
        copy = folder / (path.rpartition("/")[2] or "document")
        copy.write_bytes(before)
        try:
            run_editor(editor, copy)
            with copy.open("rb") as edited:
                after = read_at_most(edited)
            if after == before:
                note("nothing changed")
            else:
                expected = None if current is None else current.sha256
                left = client.documents.put(
                    identifier, path, decoded(after, "what you wrote"), if_match=expected
                )
                if invocation.json:
                    show_json(left)
                else:
                    note(f"{'created' if left.created else 'replaced'} {left.path}")
                    print(left.sha256)
        except (muniment.MunimentError, CommandError, OSError) as error:
            if copy.exists() and copy.read_bytes() != before:
                raise CommandError(
                    f"{explained(error, path)}; your text is kept in {copy}"
                ) from None
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def explained(error: Exception, path: str) -> str:
    """Why the edited text was not put."""
    if isinstance(error, muniment.Conflict):
        return f"somebody changed {path} while you edited it"
    return str(error)


def read_content(file: str | None, text: str | None) -> str:
    """The content that the command line names: a text, a file, or standard input."""
    if text is not None:
        if file is not None:
            raise usage_error("give FILE or --text, not both")
        return text
    name = "standard input" if file is None or file == "-" else file
    if name != file and sys.__stdin__ is None:
        raise usage_error("standard input is closed: give FILE or --text")
    if name != file and sys.stdin.isatty():
        note("reading the content from the terminal; end it with Ctrl-D")
    try:
        if name != file:
            return decoded(read_at_most(sys.stdin.buffer), name)
        with Path(file).open("rb") as source:
            return decoded(read_at_most(source), name)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"cannot read {name}: {reason}") from None


def read_at_most(source: BinaryIO) -> bytes:
    """What a document could hold, and no more than a byte of what it could not."""
    from muniment.model.text import CONTENT_BYTES_MAX

    return source.read(CONTENT_BYTES_MAX + 1)


def decoded(content: bytes, name: str) -> str:
    """The text of UTF-8 bytes. CommandError for others, and for more than a document may hold."""
    from muniment.model.text import CONTENT_BYTES_MAX

    if len(content) > CONTENT_BYTES_MAX:
        raise CommandError(
            f"{name} has more than the {CONTENT_BYTES_MAX:,} bytes that a document may have"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CommandError(f"{name} is not UTF-8 text: see byte {error.start}") from None


def current_document(
    client: "muniment.Client", store: str, path: str
) -> "muniment.Document | None":
    """The document at the path, None where it is free."""
    try:
        return client.documents.get(store, path)
    except muniment.NotFound as error:
        if "path" not in error.detail:
            raise
        return None


def current_hash(client: "muniment.Client", store: str, path: str) -> str | None:
    """The hash of the document at the path, None where it is free."""
    found = current_document(client, store, path)
    return None if found is None else found.sha256


def conflicting(conflict: "muniment.Conflict", path: str, expected: str | None) -> CommandError:
    """A lost precondition, and what to do about it."""
    current = conflict.current_sha256
    if "current_sha256" not in conflict.detail:
        return CommandError(str(conflict))
    if current is None:
        return CommandError(f"there is no document at {path} to match; leave --if-match out")
    if expected is None:
        return CommandError(
            f"{path} exists; --replace replaces what is there now, --if-match {current} only this"
        )
    return CommandError(f"somebody changed {path} meanwhile: it has {current}; nothing was written")


def find_editor(chosen: str) -> str:
    """The editor's command. CommandError where none is chosen, and none can be shown or found."""
    if chosen:
        return chosen
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandError("there is no terminal to edit in: set EDITOR, or use `muniment doc put`")
    found = next((name for name in EDITORS if shutil.which(name)), None)
    if found is None:
        raise CommandError("no editor was found: set EDITOR")
    return found


def run_editor(editor: str, file: Path) -> None:
    """Waits until the editor is closed. CommandError where it cannot be started, or fails."""
    import shlex
    import subprocess

    try:
        status = subprocess.run([*shlex.split(editor), str(file)], check=False).returncode
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(
            f"the editor {editor!r} cannot be started: {reason.lower()}; set EDITOR to another"
        ) from None
    if status != 0:
        raise CommandError(f"the editor {editor!r} ended with status {status}; nothing was written")
