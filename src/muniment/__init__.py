"""Governed, versioned memory and context for AI agents.

`muniment.open("memory.db")` is a store without a server; `muniment.Client(url, key)` speaks to one.
What this module offers is loaded when it is first used.
"""

from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "muniment.main": {"open": "open_client", "open_async": "open_async_client"},
    "muniment.client.sync": {"Client": "Client"},
    "muniment.client.asynchronous": {"AsyncClient": "AsyncClient"},
    "muniment.client.transport": {"Limits": "Limits"},
    "muniment.client.records": {name: name for name in ("Document", "Grant", "Store", "Subject")},
    "muniment.client.errors": {
        name: name
        for name in (
            "BudgetExceeded",
            "Conflict",
            "Denied",
            "DisabledTenancy",
            "Internal",
            "InvalidKey",
            "Malformed",
            "MunimentError",
            "NoAnswer",
            "NotFound",
            "ReadOnly",
            "Unavailable",
            "UnexpectedAnswer",
        )
    },
}
"""Where a name of this module comes from, and what it is called there."""

__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            found: object = getattr(import_module(module), names[name])
            globals()[name] = found
            return found
    raise AttributeError(f"module 'muniment' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
