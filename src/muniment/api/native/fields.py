"""The types of single fields: what OpenAPI says of them, made from the model's own constants.

They describe and refuse nothing. What is refused, and in which words, the model decides; what no
schema can say (normalisation form C, bytes, the future) is in the descriptions alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Raw

from muniment.api.http import INTEGER_MAX
from muniment.model import text
from muniment.model.access import ORIGINS, SUBJECT_KINDS
from muniment.model.ids import PREFIXES
from muniment.model.owners import OWNER_ID_KINDS, SCOPE_KINDS
from muniment.model.paths import PATH_BYTES_MAX, PATH_WRITE_BYTES_MAX
from muniment.model.stores import (
    DESCRIPTION_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    OWNER_KINDS,
    POLICIES,
    STATUSES,
)
from muniment.service.identities import EXTERNAL_ID_CHARACTERS_MAX, PRINCIPAL_KINDS
from muniment.service.keys import ROLES
from muniment.service.paging import CURSOR_CHARACTERS_MAX

Schema = Mapping[str, object]

HASH = r"[0-9a-f]{64}"
_HEX = r"[0-9a-f]{32}"

SUBJECT_ID_KINDS: Mapping[str, str] = {
    "principal": "principal",
    **OWNER_ID_KINDS,
    "workspace": "workspace",
    "api_key": "key",
}
"""Kind of a subject to id kind (`ids.PREFIXES`). A key stands for its principal (R-40)."""


def id_schema(kind: str) -> Schema:
    """An id of a kind."""
    return {"type": "string", "pattern": f"^{PREFIXES[kind]}_{_HEX}$"}


def name_schema(characters_max: int = NAME_CHARACTERS_MAX) -> Schema:
    """A name: what `check_name` takes."""
    limits = {"minLength": 1, "maxLength": characters_max}
    return {"type": "string", **limits, "pattern": text.NAME_PATTERN}


def path_schema(bytes_max: int) -> Schema:
    """A path, as far as a pattern can say it."""
    return {
        "type": "string",
        "minLength": 2,
        "maxLength": bytes_max,
        "pattern": r"^(/[^/\\\x00-\x1f\x7f-\x9f]+)+$",
    }


def subject_schema() -> Schema:
    """A subject in a query: `<kind>:<id>`."""
    kinds = (f"{kind}:{PREFIXES[one]}_{_HEX}" for kind, one in SUBJECT_ID_KINDS.items())
    return {"type": "string", "pattern": f"^({'|'.join(kinds)})$"}


def tagged_union(kinds: Sequence[str], *, alone: Sequence[str] = ()) -> Schema:
    """`kind`, and the one field of that name; kinds of `alone` may go without it."""
    return {
        "maxProperties": 2,
        "oneOf": [
            {
                "properties": {
                    "kind": {"const": kind},
                    **{other: False for other in kinds if other != kind},
                },
                "required": ["kind"] if kind in alone else ["kind", kind],
            }
            for kind in kinds
        ],
    }


def kinds_of(kinds: Iterable[str]) -> Meta:
    """A subject of these kinds only."""
    return Meta(extra_json_schema={"properties": {"kind": {"enum": list(kinds)}}})


def _id(kind: str) -> Meta:
    return Meta(extra_json_schema=dict(id_schema(kind)))


def _enum(values: Sequence[str]) -> Meta:
    return Meta(extra_json_schema={"enum": list(values)})


WorkspaceIdText = Annotated[str, _id("workspace")]
PrincipalIdText = Annotated[str, _id("principal")]
KeyIdText = Annotated[str, _id("key")]
DelegationIdText = Annotated[str, _id("delegation")]
AssignmentIdText = Annotated[str, _id("assignment")]
AgentIdText = Annotated[str, _id("agent")]
SessionIdText = Annotated[str, _id("session")]
ScopeIdText = Annotated[str, _id("scope")]
StoreIdText = Annotated[str, _id("store")]
RevisionIdText = Annotated[str, _id("revision")]
JobIdText = Annotated[str, _id("job")]
EventIdText = Annotated[str, _id("event")]

NameText = Annotated[str, Meta(extra_json_schema=dict(name_schema()))]
ExternalIdText = Annotated[
    str, Meta(extra_json_schema=dict(name_schema(EXTERNAL_ID_CHARACTERS_MAX)))
]
DescriptionText = Annotated[
    str,
    Meta(extra_json_schema={"maxLength": DESCRIPTION_CHARACTERS_MAX, "pattern": text.TEXT_PATTERN}),
]
ContentText = Annotated[
    str,
    Meta(
        description=f"At most {text.CONTENT_BYTES_MAX} bytes in UTF-8.",
        extra_json_schema={"maxLength": text.CONTENT_BYTES_MAX, "pattern": text.TEXT_PATTERN},
    ),
]
PathText = Annotated[str, Meta(extra_json_schema=dict(path_schema(PATH_BYTES_MAX + 1)))]
HashText = Annotated[str, Meta(extra_json_schema={"pattern": f"^{HASH}$"})]
SaltText = Annotated[str, Meta(extra_json_schema={"pattern": f"^{_HEX}$"})]
TimeText = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
CursorText = Annotated[str, Meta(extra_json_schema={"maxLength": CURSOR_CHARACTERS_MAX})]
Number = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": INTEGER_MAX})]
JsonObject = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]

TEXT = Meta(extra_json_schema={"type": "string"})
"""Said of a Literal, which is text by its values alone."""

RoleText = Annotated[str, _enum(ROLES)]
PrincipalKindText = Annotated[str, _enum(PRINCIPAL_KINDS)]
ScopeKindText = Annotated[str, _enum(SCOPE_KINDS)]
SubjectKindText = Annotated[str, _enum(tuple(SUBJECT_ID_KINDS))]
PolicyText = Annotated[str, _enum(POLICIES)]
StatusText = Annotated[str, _enum(STATUSES)]
OriginText = Annotated[str, _enum(ORIGINS)]
ReadOnlyText = Annotated[str, _enum(("denied", "read_only"))]
ReadWriteText = Annotated[str, _enum(("denied", "read_only", "read_write"))]

OWNERS = kinds_of(OWNER_KINDS)
GRANTED = kinds_of((*SUBJECT_KINDS, "api_key"))
HOLDERS = kinds_of(SUBJECT_KINDS)
DELEGATES = kinds_of(("principal", "api_key"))
PRINCIPALS = kinds_of(("principal",))

READ_PATH = path_schema(PATH_BYTES_MAX + 1)
WRITTEN_PATH = path_schema(PATH_WRITE_BYTES_MAX)
PREFIX: Schema = {"type": "string", "maxLength": PATH_BYTES_MAX + 1, "pattern": r"^/[^\x00]*$"}
IF_MATCH: Schema = {"type": "string", "pattern": f'^({HASH}|"{HASH}")$'}
CURSOR: Schema = {"type": "string", "maxLength": CURSOR_CHARACTERS_MAX}
BOOLEAN: Schema = {"type": "boolean"}
STRONG_ETAG: Schema = {"type": "string", "pattern": f'^"{HASH}"$'}
