"""Resolves the development environment into `requirements.lock`; run by `make lock`.

The lock names, for every platform and every supported Python at once, one version a package and
the SHA-256 of each of its files. It holds no address, so a mirror serves as well as any index.
Programs that depend on Muniment do not use it: their bounds are those in `pyproject.toml`.
"""

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESOLVER = "uv==0.13.9"
EXTRAS = ("dev",)

# The build backend asks for this one while it builds an editable install.
EDITABLE = "editables"

HEADING = """\
# Made by `make lock` from pyproject.toml; do not edit. Installed with --require-hashes.
"""


def main() -> None:
    """Writes the lock, or leaves it as it was where the versions cannot be resolved."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resolver = install_resolver(folder / "venv")
        (folder / "build.in").write_text("\n".join([*build_requirements(), EDITABLE]) + "\n")
        locked = resolve(resolver, folder)
    (ROOT / "requirements.lock").write_text(HEADING + locked)
    versions = sum("==" in line for line in locked.splitlines())
    print(f"requirements.lock: {versions} packages")


def install_resolver(folder: Path) -> Path:
    """Installs the resolver into an environment of its own; the path of its command."""
    venv.create(folder, with_pip=True)
    binaries = folder / "bin"
    subprocess.run([binaries / "python", "-m", "pip", "install", "-q", RESOLVER], check=True)
    return binaries / "uv"


def build_requirements() -> list[str]:
    """What `pyproject.toml` asks for to build the package."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        requires: list[str] = tomllib.load(file)["build-system"]["requires"]
    return requires


def resolve(resolver: Path, folder: Path) -> str:
    """The locked requirements, sorted by name, without comments and addresses."""
    command: list[str | Path] = [
        resolver,
        "pip",
        "compile",
        ROOT / "pyproject.toml",
        folder / "build.in",
    ]
    options = ["--generate-hashes", "--universal", "--python-version", "3.11", "--upgrade"]
    quiet = ["--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links", "-q"]
    extras = [f"--extra={extra}" for extra in EXTRAS]
    target: list[str | Path] = ["--output-file", folder / "requirements.lock"]
    done = subprocess.run([*command, *options, *quiet, *extras, *target], cwd=folder)
    if done.returncode != 0:
        sys.exit("the requirements of pyproject.toml could not be resolved")
    locked = (folder / "requirements.lock").read_text()
    if "://" in locked:
        sys.exit("the lock would hold an address; it was not written")
    return locked


if __name__ == "__main__":
    main()
