"""The documentation says what there is, and its examples run.

A ```console block is run as it stands: `$ ` begins a command, `> ` goes on with it, all else is
what it prints, `…` standing for anything (a line of it alone for any lines). A block after
`<!-- file: NAME -->` is first written to that file. Other blocks are shown only.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import typer.main

from muniment.api import native, site
from muniment.api.native.envelope import STATUS
from muniment.cli.app import app as command_line
from muniment.model import events
from muniment.settings import Settings
from muniment.storage.sqlite import WORDS
from muniment.storage.statements import load_tables
from muniment.testing.server import Server

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SHOWN_URL = "http://127.0.0.1:8787"
PAGE_SECONDS_MAX = 180
ARCHITECTURE_LINES_MAX = 250


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("muniment_docs", ROOT / "scripts" / "docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


script = load_script()


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


def missing(names: Iterator[str] | list[str], text: str) -> list[str]:
    return [name for name in names if name not in text]


# What there is stands in its page


def test_generated_tables_are_what_the_code_says() -> None:
    stale = [path.relative_to(ROOT).as_posix() for path, _ in script.stale()]
    assert not stale, f"run python scripts/docs.py: {', '.join(stale)}"


def test_every_table_is_generated_into_a_page() -> None:
    every = "".join(path.read_text("utf-8") for path in script.pages())
    assert not missing([f"<!-- generated: {name} -->" for name in script.BLOCKS], every)


def test_every_route_stands_in_the_page_of_its_dialect() -> None:
    dialect = native.dialect(SHOWN_URL)
    routes = (*dialect.routes, *site.dialect(SHOWN_URL, dialect).routes)
    names = [f"`{route.method} {route.path}`" for route in routes]
    assert not missing(names, page("api/native.md"))


def test_every_error_type_and_status_stands_in_errors() -> None:
    names = [f"`{failure.code}` | {status} |" for failure, status in STATUS.items()]
    assert not missing(names, page("errors.md"))


def test_every_event_type_stands_in_events() -> None:
    assert not missing([f"`{name}`" for name in events.TYPES], page("events.md"))


def test_every_setting_stands_in_settings() -> None:
    names = [f"`{f.metadata['variable']}`" for f in Settings.__dataclass_fields__.values()]
    assert not missing(names, page("settings.md"))


def test_no_page_speaks_of_a_setting_that_is_not_there() -> None:
    known = {f.metadata["variable"] for f in Settings.__dataclass_fields__.values()}
    known |= {"MEMORY_VERSIONED_SURFACE"}
    for path in script.pages():
        named = set(re.findall(r"\b(?:MUNIMENT|MEMORY)_[A-Z_]+\b", path.read_text("utf-8")))
        assert named <= known, f"{path.name}: {', '.join(sorted(named - known))}"


def test_every_limit_that_a_caller_meets_says_what_it_bounds() -> None:
    untold = [name for name, limit in script.known_limits().items() if not limit.meaning]
    assert not untold, f"say in the source, or in scripts/docs.py: {', '.join(untold)}"


def test_a_limit_is_found_with_what_its_source_says() -> None:
    source = 'A_MAX = 1\n"""Things\nat once."""\nB_MIN = 2  # bytes\n# Above.\nC_MAX = 3\nD = 4\n'
    assert [*script.constants(source)] == [
        ("A_MAX", "Things at once"),
        ("B_MIN", "bytes"),
        ("C_MAX", "Above"),
    ]


def commands() -> Iterator[str]:
    """Every command of the command line, as it is typed."""

    def walk(command: object, words: tuple[str, ...]) -> Iterator[str]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield " ".join(words)
            return
        for name, one in inner.items():
            yield from walk(one, (*words, name))

    yield from walk(typer.main.get_command(command_line), ("muniment",))


@pytest.mark.skipif(not (DOCS / "cli.md").exists(), reason="there is no docs/cli.md")
def test_every_command_stands_in_cli() -> None:
    assert not missing(commands(), page("cli.md"))


def test_no_page_speaks_of_a_command_that_is_not_there() -> None:
    known = {tuple(command.split()[1:]) for command in commands()}
    groups = {words[0] for words in known if len(words) > 1}
    pattern = re.compile(r"(?:^|\$ |\$\(|\| |&& |`)muniment ([a-z]+(?: [a-z]+)?)", re.M)
    for path in script.pages():
        for line in pattern.findall(path.read_text("utf-8")):
            words = tuple(line.split())
            right = words in known if words[0] in groups else words[:1] in known
            assert right or words in {(group,) for group in groups}, f"{path.name}: muniment {line}"


def test_every_table_of_the_schema_stands_in_architecture() -> None:
    assert not missing([f"`{name}`" for name in load_tables(WORDS)], page("architecture.md"))


def test_c_020_the_concepts_say_which_surface_is_for_what() -> None:
    text = page("concepts.md")
    section = text.partition("### Which surface\n")[2].partition("\n## ")[0]
    rows = {row[0]: row[1] for row in re.findall(r"^\| (.+?) \| (.+?) \|$", section, re.M)}

    def surface_for(wanted: str) -> str:
        (surface,) = [rows[row] for row in rows if wanted in row]
        return surface

    assert "document surface" in surface_for("one document at a path")
    for wanted in ("history", "review", "Session's own branch"):
        assert "versioned surface" in surface_for(wanted), wanted


def gen(count: int) -> dict[str, bytes]:
    """The documents that the page of the tree calls gen(n)."""
    return {f"/notes/{i % 37:02}/topic-{i:05}.md": f"note {i}\n".encode() for i in range(count)}


def test_c_029_the_lines_that_verify_a_tree_give_its_documented_vectors() -> None:
    edited = gen(1000) | {"/notes/05/topic-00005.md": b"changed\n", "/added.md": b"added\n"}
    del edited["/notes/00/topic-00000.md"]
    vectors: list[dict[str, bytes]] = [
        {},
        {"/a.md": b"hello\n"},
        {"/a.md": b"1", "/b/c.md": b"2", "/b/d.md": b"3"},
        {"/é.md": "café".encode(), "/日本/語.md": "記憶".encode(), "/z.md": b""},
        gen(100),
        gen(1000),
        edited,
        gen(10_000),
    ]
    (code,) = [step.text for step in steps(DOCS / "tree.md") if step.file == "tree_hash.py"]
    names: dict[str, Any] = {}
    exec(compile(code, "tree.md", "exec"), names)
    found = []
    for documents in vectors:
        ordered = sorted(documents.items(), key=lambda item: item[0].encode())
        rows = [(path, sha256(body).digest(), len(body)) for path, body in ordered]
        found.append(names["tree_hash"](rows))
    assert found == re.findall(r"\| `([0-9a-f]{64})` \|$", page("tree.md"), re.M)


def test_architecture_is_short() -> None:
    assert page("architecture.md").count("\n") <= ARCHITECTURE_LINES_MAX


# Links


def markdown() -> list[Path]:
    folders = [path for name in ("docs", "changes") for path in (ROOT / name).rglob("*.md")]
    return sorted([*ROOT.glob("*.md"), *folders])


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.M))


def anchors(path: Path) -> set[str]:
    """The names that headings can be linked by."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.DOTALL | re.M)
    found = set()
    for heading in re.findall(r"^#{1,6} (.+)$", text, re.M):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


@pytest.mark.parametrize("path", markdown(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(path: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(path.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = path if not name else (path.parent / name).resolve()
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken, f"{path.relative_to(ROOT)}: {', '.join(broken)}"


# Examples


class Step(NamedTuple):
    """A command with what it prints, or a file to write (then `file` is its name)."""

    line: int
    text: str
    output: tuple[str, ...] = ()
    file: str = ""


def steps(path: Path) -> list[Step]:
    """What a page's blocks ask to be done, in order."""
    found: list[Step] = []
    pattern = re.compile(r"(?:<!-- file: (\S+) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.M)
    text = path.read_text("utf-8")
    for block in pattern.finditer(text):
        line = text.count("\n", 0, block.start(3)) + 1
        if block[1]:
            found.append(Step(line, block[3], file=block[1]))
        elif block[2] == "console":
            found += console(block[3], line)
    return found


def console(block: str, line: int) -> Iterator[Step]:
    """The commands of a ```console block."""
    command, at = "", line
    output: list[str] = []
    for number, text in enumerate(block.splitlines(), start=line):
        if text.startswith("$ "):
            if command:
                yield Step(at, command, tuple(output))
            command, output, at = text[2:], [], number
        elif text.startswith("> ") and not output:
            command += "\n" + text[2:]
        else:
            assert command, f"line {number}: a console block begins with `$ `"
            output.append(text)
    if command:
        yield Step(at, command, tuple(output))


def run_steps(page: Path, folder: Path) -> None:
    """Runs a page's commands in one shell, against a server of their own.

    The shell's home is `folder`, so that `~/.muniment` is the server's.
    """
    todo = steps(page)
    commands = [step for step in todo if not step.file]
    for step in todo:
        if step.file:
            (folder / step.file).write_text(step.text, "utf-8")
    with Server(folder / ".muniment") as server:
        lines = ["exec 2>&1"]
        for number, step in enumerate(commands):
            lines += [step.text.replace(SHOWN_URL, server.url), f"printf '\\n=={number}==\\n'"]
        environment = {
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
            "LC_ALL": "C.UTF-8",
        }
        done = subprocess.run(
            ["sh", "-c", "\n".join(lines)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PAGE_SECONDS_MAX,
            check=False,
        )
        said = done.stdout.replace(server.url, SHOWN_URL)
    wrong = []
    for number, step in enumerate(commands):
        printed, mark, said = said.partition(f"\n=={number}==\n")
        if not mark or not fits(step.output, printed):
            expected = "\n".join(step.output)
            wrong.append(f"{page.name}:{step.line}: {step.text}\n{printed}\n-- not --\n{expected}")
    assert not wrong, "\n\n".join(wrong)


def fits(output: tuple[str, ...], printed: str) -> bool:
    """Whether what was printed is what the page shows."""
    pattern = ""
    for line in output:
        if line.strip() == "…":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n"
    text = printed if printed.endswith("\n") or not printed else printed + "\n"
    return re.fullmatch(pattern, text) is not None


EXAMPLES = [
    path
    for path in script.pages()
    if "\n```console\n" in path.read_text("utf-8") and path.name != "cli.md"
]
"""Pages whose examples run; those of cli.md start servers and editors and are shown only."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Path, Future[None]]]:
    """The runs of all pages, two at a time."""
    with ThreadPoolExecutor(2) as pool:
        folders = {path: tmp_path_factory.mktemp(path.stem) for path in EXAMPLES}
        longest_first = sorted(EXAMPLES, key=lambda path: -len(steps(path)))
        yield {path: pool.submit(run_steps, path, folders[path]) for path in longest_first}


@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_examples_run_and_print_what_the_page_shows(
    path: Path, runs: dict[Path, Future[None]]
) -> None:
    runs[path].result()


def test_the_pages_for_a_newcomer_have_examples() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in EXAMPLES}
    assert {"README.md", "docs/quickstart.md", "docs/api/native.md", "docs/tree.md"} <= names


def test_every_page_is_reached_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    reached = {DOCS / "decisions" / "README.md"}
    wanted = {path for path in DOCS.rglob("*.md") if path.parent.name != "decisions"}
    for target in re.findall(r"\]\((docs/[^)#\s]+)", text):
        reached.add(ROOT / target)
    assert wanted <= reached, sorted(p.name for p in wanted - reached)
