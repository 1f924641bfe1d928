"""Every setting, its default and its environment name; the only reader of the environment."""

import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ADMIN_KEY_CHARACTERS_MIN = 32
ADMIN_KEY_CHARACTERS_MAX = 512
MASTER_KEY_BYTES = 32
CONNECTIONS_MIN = 2
"""One for a writer, who may have to wait for a lock, and one for the readers."""
WILDCARD_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Addresses that stand for all of this machine's, and one at which it then reaches itself."""


_REMADE = "the next `muniment serve` makes one"


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
        "An admin key of workspace `default`: 32 to 512 printable ASCII characters, no spaces.",
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
    worker: bool = _setting(
        True, "MUNIMENT_WORKER", "Whether `serve` and the embedded library do jobs themselves."
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
        if self.database_file is not None:
            return str(self.database_file)
        password = urlsplit(address).password
        return address if password is None else address.replace(f":{password}@", ":…@", 1)

    @property
    def database_file(self) -> Path | None:
        """Where an SQLite database lies; None for another one."""
        scheme, _, path = self.database_url.partition(":///")
        return Path(path or "muniment.db").expanduser() if scheme == "sqlite" else None

    @property
    def local_url(self) -> str:
        """How this machine reaches the server."""
        host = WILDCARD_HOSTS.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def public_url(self) -> str:
        """How clients reach the server, without a slash at the end."""
        return self.base_url.rstrip("/") or self.local_url

    @property
    def credentials(self) -> Path:
        """The file with the local owner's key (R-05)."""
        return self.home / "credentials"


def load(
    environment: Mapping[str, str] | None = None,
    *,
    called: Mapping[str, str] | None = None,
    **given: Any,
) -> Settings:
    """The settings of the environment, with `given` ones (not None) over them.

    SettingsError where a value cannot be. It names the variable, or for a given setting what
    `called` has for it, such as the option of a command.
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
    outranking = {name: value for name, value in given.items() if value is not None}
    settings = Settings(**(values | outranking))
    home = Path(settings.home).expanduser()
    object.__setattr__(settings, "home", home)
    names = {one.name: one.metadata["variable"] for one in fields(Settings)}
    names |= {name: (called or {}).get(name, name) for name in outranking}
    _check(settings, names)
    return settings


def database_address(text: str) -> str:
    """The address of a database that is given by its path or by its address."""
    if re.match(r"[a-z]{2,}:", text):
        return text
    return f"sqlite:///{Path(text).expanduser()}"


def read_credentials(path: Path) -> str | None:
    """The local owner's key, or None without a file.

    SettingsError if others may read the file, or it holds no key.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise SettingsError(f"{path} is no file: move it away, and {_REMADE}")
        if stat.S_IMODE(mode) & 0o077:
            raise SettingsError(f"{path} must be readable by its owner only: chmod 600 {path}")
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {_reason(error)}") from error
    secret = content.decode("ascii", "replace").strip()
    if not _is_secret(secret):
        raise SettingsError(f"{path} holds no key: remove it, and {_REMADE}")
    return secret


def write_credentials(path: Path, secret: str) -> str:
    """Keeps the local owner's key, unless another process was first; the key that stands there.

    It outlasts a power cut once this returns. SettingsError where the file cannot be written.
    """
    content = f"{secret}\n".encode()
    # Threads and machines that share a home write at once, so no draft has a name twice.
    draft = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_durably(draft, content)
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        except (OSError, NotImplementedError):  # a file system without hard links
            with suppress(FileExistsError):
                _write_durably(path, content)
        finally:
            draft.unlink()
        _sync_folder(path.parent)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {_reason(error)}") from error
    return read_credentials(path) or secret


def _write_durably(path: Path, content: bytes) -> None:
    """Makes the file. FileExistsError where there is one; nothing is left of one that failed."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _sync_folder(folder: Path) -> None:
    """Makes the names in a folder outlast a power cut, where the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_secret(text: str) -> bool:
    """Whether a request can bear it as its key (R-05)."""
    fits = ADMIN_KEY_CHARACTERS_MIN <= len(text) <= ADMIN_KEY_CHARACTERS_MAX
    return fits and text.isascii() and text.isprintable() and " " not in text


def _is_url(text: str) -> bool:
    try:
        parsed = urlsplit(text)
    except ValueError:
        return False
    return parsed.scheme in ("http", "https") and bool(parsed.hostname)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


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


def _check(settings: Settings, names: Mapping[str, str]) -> None:
    if settings.admin_key and not _is_secret(settings.admin_key):
        raise SettingsError(
            f"{names['admin_key']} must have {ADMIN_KEY_CHARACTERS_MIN} to"
            f" {ADMIN_KEY_CHARACTERS_MAX} printable ASCII characters, and no spaces"
        )
    if settings.master_key:
        try:
            right = len(bytes.fromhex(settings.master_key)) == MASTER_KEY_BYTES
        except ValueError:
            right = False
        if not right:
            raise SettingsError(f"{names['master_key']} must be 64 hexadecimal digits")
    if settings.connections_max < CONNECTIONS_MIN:
        raise SettingsError(f"{names['connections_max']} must be at least {CONNECTIONS_MIN}")
    if settings.port > 65_535:
        raise SettingsError(f"{names['port']} must be at most 65535")
    if settings.log_level not in ("debug", "info", "warning", "error", "critical"):
        raise SettingsError(f"{names['log_level']} must be debug, info, warning, error or critical")
    for name in ("url", "base_url"):
        address = getattr(settings, name)
        if address and not _is_url(address):
            raise SettingsError(
                f"{names[name]} must begin with http:// or https:// and name a host,"
                " such as http://127.0.0.1:8787"
            )
    if not re.match("sqlite:///|postgres(ql)?://|memory:", settings.database_url):
        raise SettingsError(
            f"{names['database']} must begin with sqlite:///, postgresql:// or memory:"
        )
