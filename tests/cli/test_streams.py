"""Standard streams and arguments that are not as one hopes: closed, full, not UTF-8, endless."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from shell import Shell

PATH = "/many/日本 1.md"


def sh(shell: Shell, script: str, *arguments: str | bytes) -> "subprocess.CompletedProcess[bytes]":
    """A script whose `m` is the command; `$1`, `$2` … are the arguments."""
    return subprocess.run(
        ["sh", "-c", f'm() {{ "{sys.executable}" -m muniment "$@"; }}; {script}', "sh", *arguments],
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def notes(shell: Shell) -> Shell:
    """Commands on a database with a store that has a document."""
    shell.answer("store", "create", "notes")
    shell.answer("doc", "put", "notes", PATH, "--text", "x")
    return shell


def test_closed_streams_are_no_fault_of_muniment(notes: Shell) -> None:
    closed = sh(notes, "m doc put notes /x <&-")
    assert (closed.returncode, closed.stdout) == (2, b"")
    assert closed.stderr == b"error: standard input is closed: give FILE or --text\n"
    for script in ('m doc get notes "$1" >&-', 'm doc get notes "$1" >&- 2>&- <&-'):
        done = sh(notes, script, PATH)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    done = sh(notes, "m doc put notes /y --text y 2>&-")
    assert (done.returncode, len(done.stdout)) == (0, 65)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_an_answer_that_cannot_be_written_is_told_from_a_failure(notes: Shell) -> None:
    for command in ("m doc put notes /z --text z", 'm doc get notes "$1"', "m doc ls notes"):
        full = sh(notes, f"{command} > /dev/full", PATH)
        assert full.returncode == 74, full
        assert full.stderr.endswith(b"error: cannot write the answer: no space left on device\n")
        assert b"Traceback" not in full.stderr and b"Errno" not in full.stderr
    assert notes.answer("doc", "get", "notes", "/z") == "z"
    unheard = sh(notes, "m doc put notes /w --text w 2> /dev/full")
    assert (unheard.returncode, len(unheard.stdout)) == (0, 65)


@pytest.mark.parametrize(
    "environment",
    [
        {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
        {"PYTHONIOENCODING": "latin-1"},
        {"PYTHONIOENCODING": "ascii"},
    ],
)
def test_any_locale_shows_any_path(notes: Shell, environment: dict[str, str]) -> None:
    notes.environment.update(environment)
    listed = sh(notes, "m doc ls notes --paths")
    assert (listed.returncode, listed.stdout.decode()) == (0, f"{PATH}\n")
    shown = sh(notes, 'm doc get notes "$1" --json', PATH)
    assert json.loads(shown.stdout)["path"] == PATH
    missing = sh(notes, "m doc get notes /none/é")
    assert missing.stderr.decode() == "error: no document at /none/é\n"


def test_arguments_that_are_not_utf_8_are_refused(notes: Shell, tmp_path: Path) -> None:
    for script, called in (
        ("m doc put notes /full --text $1", "--text"),
        ("m doc put notes $1 --text x", "PATH"),
        ("m doc get $1 /x", "STORE"),
        ("m doc rm notes /x --if-match $1", "--if-match"),
        ("m store create $1", "NAME"),
        ("m whoami --db $1", "--db"),
        ("m whoami --url $1", "--url"),
        ("m whoami --key $1", "--key"),
        ("m grant rm $1", "ID"),
    ):
        refused = sh(notes, script, b"/a\xe9b")
        said = refused.stderr.decode()
        assert (refused.returncode, said) == (2, f"error: {called} is not UTF-8 text\n")
    file = os.fsencode(tmp_path) + b"/caf\xe9"
    Path(os.fsdecode(file)).write_text("from a file")
    assert sh(notes, "m doc put notes /file $1", file).returncode == 0
    assert notes.answer("doc", "get", "notes", "/file") == "from a file"


def test_what_is_too_long_is_not_read_to_its_end(notes: Shell) -> None:
    for script in ("m doc put notes /big /dev/zero", "yes | m doc put notes /big"):
        refused = sh(notes, script)
        assert refused.returncode == 1
        assert b"102,400 bytes" in refused.stderr
    exact = notes.answer("doc", "put", "notes", "/exact", input=b"x" * 102_400)
    assert len(exact) == 64
    assert "102,400" in notes.refusal("doc", "put", "notes", "/big", input=b"x" * 102_401)
    assert "is a directory" in notes.refusal("doc", "put", "notes", "/big", "/")
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 1_000_000
