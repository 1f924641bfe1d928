"""`docs/cli.md` names every command and every option of its own."""

from pathlib import Path

from typer.main import get_command

from muniment.cli.app import app
from muniment.cli.command import SHARED_OPTIONS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_every_command_and_option_is_on_the_page() -> None:
    page = PAGE.read_text("utf-8")
    missing = []
    for name, command in commands("muniment", get_command(app)):
        if f"{name} " not in page and f"{name}\n" not in page and f"{name}`" not in page:
            missing.append(name)
        for parameter in command.params:
            options = [option for option in parameter.opts if option.startswith("--")]
            if parameter.name not in SHARED_OPTIONS and options and options[0] not in page:
                missing.append(f"{name} {options[0]}")
    assert not missing, missing


def commands(name, command):
    """Every command below a group, with its full name."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for part, one in inner.items():
        yield from commands(f"{name} {part}", one)
