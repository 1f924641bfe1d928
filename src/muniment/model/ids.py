"""Identifiers: a kind's prefix, an underscore and 32 lower-case hex digits (R-81, native.md 2.1).

An id travels as text everywhere above storage and as its 16 bytes inside it, so that every
database orders ids alike. New ids are made by `App.new_id`; nothing here reads a clock.
"""

import re
from typing import NewType

from muniment.model.errors import Malformed

WorkspaceId = NewType("WorkspaceId", str)
PrincipalId = NewType("PrincipalId", str)
KeyId = NewType("KeyId", str)
DelegationId = NewType("DelegationId", str)
AssignmentId = NewType("AssignmentId", str)
AgentId = NewType("AgentId", str)
SessionId = NewType("SessionId", str)
ScopeId = NewType("ScopeId", str)
StoreId = NewType("StoreId", str)
PoolId = NewType("PoolId", str)
RevisionId = NewType("RevisionId", str)
ChangeId = NewType("ChangeId", str)
DocumentId = NewType("DocumentId", str)
EventId = NewType("EventId", str)
JobId = NewType("JobId", str)

PREFIXES: dict[str, str] = {
    "workspace": "wsp",
    "principal": "prin",
    "key": "apikey",
    "delegation": "dlg",
    "assignment": "perm",
    "agent": "agent",
    "session": "sess",
    "scope": "scope",
    "store": "memstore",
    "pool": "pool",
    "revision": "memrev",
    "change": "memver",
    "document": "mem",
    "event": "evt",
    "job": "job",
}

DEFAULT_WORKSPACE = WorkspaceId("wsp_" + "0" * 31 + "1")
"""The workspace every deployment has; its id is fixed so that one credentials file fits all."""

OPERATOR_PRINCIPAL = PrincipalId("prin_" + "0" * 31 + "1")
OPERATOR_KEY = KeyId("apikey_" + "0" * 31 + "1")
"""The identity behind MUNIMENT_ADMIN_KEY (R-04, R-05); the secret itself is never stored."""

_HEX = re.compile(r"[0-9a-f]{32}", re.ASCII)


def to_bytes(identifier: str) -> bytes:
    """The 16 bytes of a well-formed id."""
    return bytes.fromhex(identifier[-32:])


def is_id(kind: str, text: str) -> bool:
    """Whether `text` is a well-formed id of `kind`."""
    prefix = PREFIXES[kind] + "_"
    return (
        len(text) == len(prefix) + 32
        and text.startswith(prefix)
        and _HEX.fullmatch(text, len(prefix)) is not None
    )


def check_id(kind: str, text: str, field: str) -> str:
    """`text` itself; Malformed naming `field` where it is not an id of `kind`."""
    if not is_id(kind, text):
        raise Malformed(
            f"{field} must be {PREFIXES[kind]}_ followed by 32 lower-case hexadecimal digits",
            field=field,
        )
    return text
