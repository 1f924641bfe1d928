"""The house rules that a program can check (CONTRIBUTING.md); each failure names file and line.

What ruff, mypy and import-linter check is not repeated here. After TigerBeetle's tidy test.
"""

import ast
import io
import re
import tokenize
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "muniment"
CODE = ("src", "tests", "bench", "scripts")
PROSE = ("docs", "changes", "deploy", ".ci")

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
POSITIONAL_MAX = 5
COLUMNS_MAX = 100

SHAPELESS = {"utils", "util", "helpers", "helper", "common", "core", "misc"}

# Words the glossary gives another name to, where no wire and no library brings them in.
SYNONYMS = {
    "account": "workspace",
    "acl": "assignment",
    "branch": "working ref",
    "bucket": "store",
    "draft": "working ref",
    "org": "workspace",
    "purge": "redaction",
    "tenant": "workspace",
}
OUR_WORDS = ("model", "storage", "service")

# The clock, chance and the environment enter in these two files only.
EDGES = {"main.py", "settings.py"}
AMBIENT_MODULES = {"random", "secrets", "uuid"}
AMBIENT_NAMES = {
    ("os", "environ"),
    ("os", "getenv"),
    ("os", "urandom"),
    ("datetime", "now"),
    ("datetime", "today"),
    ("datetime", "utcnow"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
}

# Files that may import inside a function, so that what is not used is not loaded at the start:
# the package's own names, and the drivers of the storages that are not in use.
LATE_IMPORTS = {"__init__.py", "main.py"}

# Spelled in parts, so that this file does not break its own rules.
REGISTRY_HOSTS = ("pypi" + ".org", "python" + "hosted", "npm" + "js.org", "unpkg" + ".com")
PERSONAL_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|home|Users)" + r"/\w")

POSTGRES_ONLY = re.compile(
    r"\b(?:advisory_\w+|pg_\w*advisory\w*|LISTEN|NOTIFY|pg_notify|(?:BIG|SMALL)?SERIAL|nextval"
    r"|CREATE\s+(?:EXTENSION|SEQUENCE))\b"
)
IGNORED_TYPE = re.compile(r"#\s*type:\s*ignore(?:\[[\w, -]+\])?(?P<reason>.*)")
IGNORED_LINT = re.compile(
    r"#\s*(?:ruff:\s*)?noqa(?::\s*[A-Z]+[0-9]+(?:,\s*[A-Z]+[0-9]+)*)?(?P<reason>.*)"
)


class Source(NamedTuple):
    """A Python file, read and parsed."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def within(self) -> str:
        """The path within the package, or nothing where it lies outside."""
        inside = self.path.is_relative_to(PACKAGE)
        return self.path.relative_to(PACKAGE).as_posix() if inside else ""


Found = Iterator[tuple[int, str]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources() -> tuple[Source, ...]:
    found = []
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text("utf-8")
            found.append(Source(path, text, ast.parse(text, str(path))))
    return tuple(found)


@cache
def nodes(source: Source) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(source.tree))


def texts() -> Iterator[tuple[str, str]]:
    """Every file of ours that is text, by its name."""
    for source in sources():
        yield source.name, source.text
    kinds = {".md", ".sql", ".toml", ".yml", ".yaml", ".lock", ".html", ".css", ".js", ".json", ""}
    files = [path for path in ROOT.iterdir() if path.name not in (".git", ".coverage")]
    for folder in (*CODE, *PROSE):
        files += sorted((ROOT / folder).rglob("*"))
    for path in files:
        if path.is_file() and path.suffix in kinds and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8", "replace")


def check(rule: Callable[[Source], Found], within: str = "") -> None:
    """Fails with every line that breaks the rule, in the files whose names begin with `within`."""
    broken = [
        f"{source.name}:{line}: {message}"
        for source in sources()
        if source.name.startswith(within)
        for line, message in rule(source)
    ]
    assert not broken, "\n" + "\n".join(broken)


def functions(source: Source) -> Iterator[Function]:
    for node in nodes(source):
        if isinstance(node, Function):
            yield node


def test_files_are_short() -> None:
    def rule(source: Source) -> Found:
        lines = source.text.count("\n")
        if lines > FILE_LINES_MAX:
            yield lines, f"a file has at most {FILE_LINES_MAX} lines; split it along its nouns"

    check(rule)


def test_functions_are_short() -> None:
    def rule(source: Source) -> Found:
        for function in functions(source):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield (
                    function.lineno,
                    f"{function.name} has {lines} lines, not {FUNCTION_LINES_MAX}",
                )

    check(rule)


def test_functions_take_few_positional_parameters() -> None:
    def rule(source: Source) -> Found:
        for function in functions(source):
            parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
            count = len(parameters) - (parameters[:1] in (["self"], ["cls"]))
            is_test = function.name.startswith("test_")  # its parameters are fixtures
            if count > POSITIONAL_MAX and not is_test:
                yield function.lineno, f"{function.name} takes {count} positional parameters"

    check(rule)


def test_lines_of_sql_are_narrow() -> None:
    broken = [
        f"{name}:{number}: a line has at most {COLUMNS_MAX} columns"
        for name, text in texts()
        if name.endswith(".sql")
        for number, line in enumerate(text.splitlines(), start=1)
        if len(line) > COLUMNS_MAX
    ]
    assert not broken, "\n" + "\n".join(broken)


def test_no_module_is_named_after_nothing() -> None:
    def rule(source: Source) -> Found:
        for part in (*source.path.relative_to(ROOT).parts[:-1], source.path.stem):
            if part.lstrip("_") in SHAPELESS:
                yield 1, f"{part} says nothing of what is in it"

    check(rule)


def test_identifiers_use_the_words_of_the_glossary() -> None:
    def rule(source: Source) -> Found:
        if not source.within.startswith(OUR_WORDS):
            return
        for node, name in identifiers(source):
            for word in re.findall(r"[A-Z]?[a-z]+", name):
                if better := SYNONYMS.get(word.lower()):
                    yield node.lineno, f"{name}: the glossary says {better}, not {word.lower()}"

    check(rule)


def identifiers(source: Source) -> Iterator[tuple[ast.stmt | ast.expr | ast.arg, str]]:
    """The names that a file gives."""
    for node in nodes(source):
        if isinstance(node, Function | ast.ClassDef):
            yield node, node.name
        elif isinstance(node, ast.arg):
            yield node, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node, node.id


def test_time_chance_and_environment_enter_at_the_edges_only() -> None:
    def rule(source: Source) -> Found:
        if source.within in EDGES:
            return
        for line, module, name in ambient(source):
            seeded = module == "random" and source.within.startswith("testing/")
            if not seeded:
                yield line, f"{module}{name and '.'}{name} belongs in main.py or settings.py"

    check(rule, within="src/")


def ambient(source: Source) -> Iterator[tuple[int, str, str]]:
    """Each line, module and name by which a file reaches clock, chance or environment."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in AMBIENT_MODULES:
                    yield node.lineno, alias.name, ""
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            for alias in node.names:
                if module in AMBIENT_MODULES or (module, alias.name) in AMBIENT_NAMES:
                    yield node.lineno, module, alias.name
        elif isinstance(node, ast.Attribute):
            owner = node.value
            before = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if (before, node.attr) in AMBIENT_NAMES:
                yield node.lineno, before, node.attr


def test_imports_stand_at_the_top() -> None:
    def rule(source: Source) -> Found:
        if source.within.startswith("cli/") or source.within in LATE_IMPORTS:
            return
        for function in functions(source):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    yield node.lineno, f"{function.name} imports inside a function"

    check(rule, within="src/")


def test_no_import_is_for_the_type_checker_alone() -> None:
    def rule(source: Source) -> Found:
        for node in nodes(source):
            if isinstance(node, ast.Name | ast.Attribute | ast.alias):
                name = getattr(node, "id", getattr(node, "attr", getattr(node, "name", "")))
                if name == "TYPE_CHECKING":
                    yield node.lineno, "TYPE_CHECKING hides an import cycle"

    check(rule)


def test_what_is_silenced_says_why() -> None:
    def rule(source: Source) -> Found:
        if "noqa" not in source.text and "ignore" not in source.text:
            return
        for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
            if token.type != tokenize.COMMENT:
                continue
            for silenced in (IGNORED_TYPE, IGNORED_LINT):
                match = silenced.search(token.string)
                if match and len(match["reason"].strip(" #()")) < 5:
                    yield token.start[0], "a silenced check gives its reason behind it"

    check(rule)


def test_sql_is_portable() -> None:
    broken = []
    for path in sorted((PACKAGE / "storage").rglob("*.sql")):
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if match := POSTGRES_ONLY.search(line.partition("--")[0]):
                name = path.relative_to(ROOT).as_posix()
                broken.append(f"{name}:{number}: {match[0]} is PostgreSQL's alone")
    assert not broken, "\n" + "\n".join(broken)


def test_sql_within_python_is_portable() -> None:
    def rule(source: Source) -> Found:
        prose = {id(node.value) for node in nodes(source) if isinstance(node, ast.Expr)}
        for node in nodes(source):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                match = POSTGRES_ONLY.search(node.value)
                if match and id(node) not in prose:
                    yield node.lineno, f"{match[0]} is PostgreSQL's alone"

    check(rule, within="src/muniment/storage/")


def test_no_file_knows_a_registry_or_a_developers_machine() -> None:
    broken = []
    for name, text in texts():
        for number, line in enumerate(text.splitlines(), start=1):
            if any(host in line for host in REGISTRY_HOSTS):
                broken.append(f"{name}:{number}: names the host of a package registry")
            if match := PERSONAL_PATH.search(line):
                broken.append(f"{name}:{number}: {match[0]}… is a path of somebody's machine")
    assert not broken, "\n" + "\n".join(broken)


def test_the_lock_holds_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["dev"],
        *project["build-system"]["requires"],
    ]
    text = (ROOT / "requirements.lock").read_text("utf-8")
    locked = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+)", text, re.MULTILINE))
    for line in wanted:
        requirement = Requirement(line)
        version = locked.get(canonicalize_name(requirement.name), "")
        fits = version and requirement.specifier.contains(version, prereleases=True)
        assert fits, f"requirements.lock:1: has no {line}; run make lock"
