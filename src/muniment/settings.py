"""Every setting, its default and its environment name; the only reader of the environment."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ADMIN_KEY_CHARACTERS_MIN = 32
MASTER_KEY_BYTES = 32


class SettingsError(ValueError):
    """A setting has a value that it cannot have. The message names it and the rule."""


def _setting(default: Any, variable: str, description: str) -> Any:
    return field(default=default, metadata={"variable": variable, "description": description})


@dataclass(frozen=True, slots=True)
class Settings:
    """What a process is started with; `load` reads it once."""

    home: Path = _setting(
        Path("~/.muniment"), "MUNIMENT_HOME", "Where the data and the credentials file lie."
    )
    database: str = _setting(
        "",
        "MUNIMENT_DATABASE_URL",
        "`sqlite:///path`, `postgresql://…` or `memory:`; empty: `muniment.db` in the home.",
    )
    host: str = _setting("127.0.0.1", "MUNIMENT_HOST", "The address `serve` listens on.")
    port: int = _setting(8787, "MUNIMENT_PORT", "The port `serve` listens on; 0 takes a free one.")
    base_url: str = _setting(
        "", "MUNIMENT_BASE_URL", "How clients reach the server; empty: host and port."
    )
    allowed_hosts: str = _setting(
        "",
        "MUNIMENT_ALLOWED_HOSTS",
        "Host names served beside the loopback ones and those above, by commas; `*` for all.",
    )
    admin_key: str = _setting(
        "",
        "MUNIMENT_ADMIN_KEY",
        "A secret of at least 32 characters that is an admin key of workspace `default`.",
    )
    master_key: str = _setting(
        "",
        "MUNIMENT_MASTER_KEY",
        "32 bytes in hexadecimal that wrap the data keys of sealed bodies; turns sealing on.",
    )
    versioned_surface: bool = _setting(
        True, "MUNIMENT_VERSIONED_SURFACE", "Whether the versioned surface answers."
    )
    documents_max: int = _setting(
        1_000_000, "MUNIMENT_DOCUMENTS_MAX", "How many documents a store may hold."
    )
    connections_max: int = _setting(
        10, "MUNIMENT_CONNECTIONS_MAX", "PostgreSQL connections of one process."
    )
    log_level: str = _setting(
        "info", "MUNIMENT_LOG_LEVEL", "debug, info, warning, error or critical."
    )
    url: str = _setting("", "MUNIMENT_URL", "The server that commands speak to; empty: embedded.")
    api_key: str = _setting("", "MUNIMENT_API_KEY", "The key that commands send.")
    editor: str = _setting("", "EDITOR", "The editor of `muniment doc edit`; `VISUAL` outranks it.")

    @property
    def database_url(self) -> str:
        """The database, the default one filled in."""
        return self.database or f"sqlite:///{self.home / 'muniment.db'}"

    @property
    def shown_database(self) -> str:
        """The database as people may see it: a file's path, or an address without its password."""
        address = self.database_url
        if address.startswith("sqlite:///"):
            return address.removeprefix("sqlite:///")
        password = urlsplit(address).password
        return address if password is None else address.replace(f":{password}@", ":…@", 1)

    @property
    def public_url(self) -> str:
        """How clients reach the server, without a slash at the end."""
        return self.base_url.rstrip("/") or f"http://{self.host}:{self.port}"

    @property
    def credentials(self) -> Path:
        """The file with the local owner's key (R-05)."""
        return self.home / "credentials"


def load(environment: Mapping[str, str] | None = None, **given: Any) -> Settings:
    """The settings of the environment, with `given` ones (not None) over them.

    SettingsError where a value cannot be.
    """
    source = os.environ if environment is None else environment
    values: dict[str, Any] = {}
    for one in fields(Settings):
        text = source.get(one.metadata["variable"])
        if one.name == "versioned_surface":
            text = source.get("MEMORY_VERSIONED_SURFACE", text) if text is None else text
        if one.name == "editor":
            text = source.get("VISUAL") or text
        if text is not None and text != "":
            values[one.name] = _read(one.metadata["variable"], text, type(one.default))
    values |= {name: value for name, value in given.items() if value is not None}
    settings = Settings(**values)
    home = Path(settings.home).expanduser()
    object.__setattr__(settings, "home", home)
    _check(settings)
    return settings


def database_address(text: str) -> str:
    """The address of a database that is given by its path or by its address."""
    if re.match(r"[a-z]{2,}:", text):
        return text
    return f"sqlite:///{Path(text).expanduser()}"


def read_credentials(path: Path) -> str | None:
    """The local owner's key, or None without a file. SettingsError if others may read it."""
    try:
        mode = path.stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise SettingsError(f"{path} must be readable by its owner only: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def write_credentials(path: Path, secret: str) -> str:
    """Keeps the local owner's key, unless another process was first; the key that stands there."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(secret + "\n")
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return read_credentials(path) or secret


def _read(variable: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise SettingsError(f"{variable} must be true or false")
        return text.lower() in ("true", "1")
    if kind is int:
        if not (text.isascii() and text.isdigit() and len(text) < 12):
            raise SettingsError(f"{variable} must be a whole number")
        return int(text)
    return Path(text) if issubclass(kind, Path) else text


def _check(settings: Settings) -> None:
    if settings.admin_key and len(settings.admin_key) < ADMIN_KEY_CHARACTERS_MIN:
        raise SettingsError(
            f"MUNIMENT_ADMIN_KEY must have at least {ADMIN_KEY_CHARACTERS_MIN} characters"
        )
    if settings.master_key:
        try:
            right = len(bytes.fromhex(settings.master_key)) == MASTER_KEY_BYTES
        except ValueError:
            right = False
        if not right:
            raise SettingsError("MUNIMENT_MASTER_KEY must be 64 hexadecimal digits")
    if settings.port > 65_535:
        raise SettingsError("MUNIMENT_PORT must be at most 65535")
    if settings.log_level not in ("debug", "info", "warning", "error", "critical"):
        raise SettingsError("MUNIMENT_LOG_LEVEL must be debug, info, warning, error or critical")
    scheme = settings.database_url.partition(":")[0]
    if scheme not in ("sqlite", "postgresql", "postgres", "memory"):
        raise SettingsError(
            "MUNIMENT_DATABASE_URL must begin with sqlite:///, postgresql:// or memory:"
        )
