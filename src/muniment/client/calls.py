"""Every operation as a value: what to send, and how to read the answer. No input or output here.

A function of this module builds the `Call` of one operation; `Client` and `AsyncClient` send the
same calls. The functions' docstrings are those of the clients' methods.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType

from muniment.client.errors import Malformed, NoAnswer, error_of, unexpected
from muniment.client.records import (
    Access,
    Assignment,
    Delegation,
    Document,
    DocumentItem,
    DocumentMeta,
    Event,
    Grant,
    Job,
    Key,
    Owner,
    Page,
    Principal,
    Store,
    Subject,
    WhoAmI,
)

T = TypeVar("T")

ACTED_AS = "muniment-acted-as"
IDEMPOTENCY_KEY = "idempotency-key"
WIRE_VERSION = "2026-08-29"
_ENCODER = msgspec.json.Encoder()
_STORES = "/v1/memory-stores"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One operation. Of `query` only what is not None is sent; `json` None sends no body."""

    read: Callable[[Answer], T]
    method: str
    path: str
    query: Mapping[str, str | int | bool | None]
    headers: Mapping[str, str]
    json: object
    keyed: bool = True
    """Whether an idempotency key gives a second sending the first one's answer."""

    @property
    def target(self) -> str:
        """Path and query as they stand in a request. Malformed where one is no Unicode text."""
        pairs = [
            f"{name}={_quoted(_text(value, name), name, safe='/')}"
            for name, value in self.query.items()
            if value is not None
        ]
        return f"{self.path}?{'&'.join(pairs)}" if pairs else self.path

    @property
    def body(self) -> bytes:
        """The request's body. Malformed where a text in it is no Unicode text, or is bytes."""
        for name, value in self.json.items() if isinstance(self.json, Mapping) else ():
            _refuse_bytes(value, str(name))
        try:
            return b"" if self.json is None else _ENCODER.encode(self.json)
        except UnicodeEncodeError as error:
            raise _surrogate(error, _field_of(self.json)) from None

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice is as good as once."""
        return self.method == "GET" or IDEMPOTENCY_KEY in self.headers

    def under(self, key: str | None) -> "Call[T]":
        """The call under an idempotency key, where there is one and the call writes."""
        if key is None or self.method == "GET" or not self.keyed:
            return self
        return replace(self, headers={**self.headers, IDEMPOTENCY_KEY: key})

    def at(self, page: str) -> "Call[T]":
        """The same list from another page on."""
        # A page says where it goes on, so it replaces a start.
        return replace(self, query={**self.query, "after": None, "page": page})


def headers_of(key: str) -> dict[str, str]:
    """The headers that all requests of a client have. ValueError for what cannot be a key."""
    if not (key.isascii() and key.isprintable()):
        raise ValueError("a key has printable ASCII characters only")
    return {
        "authorization": f"Bearer {key}",
        "content-type": "application/json",
        "muniment-version": WIRE_VERSION,
    }


def check_headers(headers: Mapping[str, str]) -> None:
    """Malformed for a header that cannot be sent, such as an `if_match` with a line end."""
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise Malformed(
                f"{name} must have printable ASCII characters only",
                detail={"field": name, "rule": "header"},
            )


def read_answer(call: Call[T], answer: Answer | NoAnswer) -> T:
    """What the answer says; a MunimentError where it says that the call failed."""
    if isinstance(answer, NoAnswer):
        raise answer
    if not 200 <= answer.status < 300:
        raise error_of(answer.status, answer.headers, answer.body)
    try:
        return call.read(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise unexpected(answer.status, answer.headers, answer.body) from None


def _text(value: str | int | bool, field: str) -> str:
    _refuse_bytes(value, field)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_bytes(value: object, field: str) -> None:
    """Malformed for bytes: JSON would hold them in base64, and that would be stored."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise Malformed(
            f"{field} must be a str, this is {type(value).__name__}: decode it first",
            detail={"field": field, "rule": "type"},
        )


def _quoted(text: str, field: str, *, safe: str = "") -> str:
    _refuse_bytes(text, field)
    try:
        return quote(text, safe=safe)
    except UnicodeEncodeError as error:
        raise _surrogate(error, field) from None


def _field_of(body: object) -> str:
    """The first field of a body that cannot be encoded."""
    for name, value in body.items() if isinstance(body, Mapping) else ():
        try:
            _ENCODER.encode(value)
        except UnicodeEncodeError:
            return str(name)
    return "the body"


def _surrogate(error: UnicodeEncodeError, field: str) -> Malformed:
    """What the server says to a lone surrogate, which no request can bear."""
    character = f"U+{ord(error.object[error.start]):04X}"
    detail = {
        "field": field,
        "rule": "surrogate",
        "character": character,
        "position": error.start,
    }
    return Malformed(
        f"{field} must be Unicode text, it has the lone surrogate {character},"
        f" at character {error.start}",
        detail=detail,
    )


@cache
def _decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgspec.json.Decoder(kind).decode


def _call(
    kind: type[T],
    method: str,
    path: str,
    *,
    query: Mapping[str, str | int | bool | None] | None = None,
    headers: Mapping[str, str] | None = None,
    json: object = None,
) -> Call[T]:
    decode: Callable[[bytes], T] = _decoder(cast(Any, kind))
    return Call(lambda a: decode(a.body), method, path, query or {}, headers or {}, json)


def _nothing(
    path: str,
    *,
    query: Mapping[str, str | int | bool | None] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Call[None]:
    return Call(lambda answer: None, "DELETE", path, query or {}, headers or {}, None)


def _given(**fields: object) -> dict[str, object]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value is not None}


def _store(identifier: str) -> str:
    return f"{_STORES}/{_quoted(identifier, 'store')}"


def _grants(grants: Sequence[Grant]) -> list[Grant] | None:
    return list(grants) or None


# Stores


def create_store(
    name: str,
    *,
    description: str | None = None,
    owner: str | Subject | None = None,
    promotion_policy: str | None = None,
    require_distinct_reviewer: bool | None = None,
    default: bool | None = None,
    grants: Sequence[Grant] = (),
) -> Call[Store]:
    """Makes a store, owned by the caller's principal unless `owner` (`kind:id`) says otherwise.

    `promotion_policy` is `direct` or `proposal`; by default it follows from the owner: a shared
    store is under proposals. `grants` come in the same transaction. Malformed for a bad field,
    NotFound for an unknown owner or subject, Denied where the caller may not make it.
    """
    body = _given(
        name=name,
        description=description,
        owner=None if owner is None else Subject.of(owner),
        promotion_policy=promotion_policy,
        require_distinct_reviewer=require_distinct_reviewer,
        default=default,
        grants=_grants(grants),
    )
    return _call(Store, "POST", _STORES, json=body)


def get_store(store: str) -> Call[Store]:
    """The store with this id. NotFound where there is none, or it is not visible."""
    return _call(Store, "GET", _store(store))


def list_stores(
    *,
    name: str | None = None,
    include_archived: bool = False,
    include_deleted: bool = False,
    limit: int | None = None,
    page: str | None = None,
) -> Call[Page[Store]]:
    """The stores that the caller may see, in order of id; `name` is an exact one.

    Deleted stores are shown to administrators only. `limit` is a page's length, at most 200.
    """
    query = {
        "name": name,
        "include_archived": include_archived or None,
        "include_deleted": include_deleted or None,
        "limit": limit,
        "page": page,
    }
    return _call(Page[Store], "GET", _STORES, query=query)


def update_store(
    store: str,
    *,
    expected_version: int,
    name: str | UnsetType = UNSET,
    description: str | None | UnsetType = UNSET,
    promotion_policy: str | UnsetType = UNSET,
    require_distinct_reviewer: bool | UnsetType = UNSET,
    default: bool | UnsetType = UNSET,
) -> Call[Store]:
    """Changes the fields that are given, if the store still has `expected_version`.

    Conflict, with `current_version`, where it has another; Denied unless the caller administers
    it; ReadOnly where it is archived.
    """
    fields = {
        "expected_version": expected_version,
        "name": name,
        "description": description,
        "promotion_policy": promotion_policy,
        "require_distinct_reviewer": require_distinct_reviewer,
        "default": default,
    }
    body = {field: value for field, value in fields.items() if value is not UNSET}
    return _call(Store, "PATCH", _store(store), json=body)


def archive_store(store: str, *, expected_version: int) -> Call[Store]:
    """Makes the store read-only for good, if it still has `expected_version`."""
    body = {"expected_version": expected_version}
    return _call(Store, "POST", f"{_store(store)}/archive", json=body)


def delete_store(store: str, *, expected_version: int | None = None) -> Call[None]:
    """Deletes the store and erases all that it holds; only a tombstone stays.

    Conflict where `expected_version` is given and the store has another one.
    """
    # A second deletion finds no store, so it is not for a key to repeat it.
    gone = _nothing(_store(store), query={"expected_version": expected_version})
    return replace(gone, keyed=False)


def store_access(store: str, *, subject: str | Subject | None = None) -> Call[Access]:
    """What the caller, or `subject` (`kind:id`), may do with the store, and why."""
    query = {"subject": None if subject is None else str(subject)}
    return _call(Access, "GET", f"{_store(store)}/access", query=query)


def store_events(
    store: str, *, after: int | None = None, limit: int | None = None, page: str | None = None
) -> Call[Page[Event]]:
    """The store's events numbered above `after`, in order."""
    query = {"after": after, "limit": limit, "page": page}
    return _call(Page[Event], "GET", f"{_store(store)}/events", query=query)


# Documents


def get_document(store: str, path: str) -> Call[Document]:
    """The document with its content. NotFound where the path is free."""
    return _call(Document, "GET", f"{_store(store)}/document", query={"path": path})


def put_document(
    store: str, path: str, content: str, *, if_match: str | None = None
) -> Call[DocumentMeta]:
    """Creates the document; with `if_match`, replaces the one that has this `sha256`.

    Conflict, with `current_sha256`, where something else stands there (C-205, C-210); ReadOnly
    where the store moves by proposals only or is archived; Malformed for a path or a content that
    breaks a rule. A content has at most 102,400 bytes in UTF-8.
    """
    decode = _decoder(DocumentMeta)

    def read(answer: Answer) -> DocumentMeta:
        meta: DocumentMeta = decode(answer.body)
        return msgspec.structs.replace(meta, created=answer.status == 201)

    headers = {} if if_match is None else {"if-match": f'"{if_match}"'}
    body = {"content": content}
    return Call(read, "PUT", f"{_store(store)}/document", {"path": path}, headers, body)


def delete_document(store: str, path: str, *, if_match: str) -> Call[None]:
    """Deletes the document that has this `sha256`.

    Conflict, with `current_sha256`, where it has another; NotFound where the path is free.
    """
    headers = {"if-match": f'"{if_match}"'}
    return _nothing(f"{_store(store)}/document", query={"path": path}, headers=headers)


def list_documents(
    store: str, prefix: str | None = None, *, limit: int | None = None, page: str | None = None
) -> Call[Page[DocumentItem]]:
    """The documents whose paths begin with `prefix`, in the order of their paths' bytes.

    All pages of one list show the tree that its first page showed, whatever is written meanwhile.
    """
    query = {"path_prefix": prefix, "limit": limit, "page": page}
    return _call(Page[DocumentItem], "GET", f"{_store(store)}/documents", query=query)


# Keys, principals, delegations, assignments


def create_key(
    name: str,
    *,
    role: str = "member",
    principal: str | None = None,
    expires_at: datetime | None = None,
) -> Call[Key]:
    """Makes a key of `principal`, or of a new service principal of the key's name.

    `role` is `member` or `admin`; `expires_at` is an aware datetime. Only this answer has the
    `secret`. Administrators only.
    """
    body = _given(name=name, role=role, principal=principal, expires_at=expires_at)
    return _call(Key, "POST", "/v1/api-keys", json=body)


def list_keys(*, limit: int | None = None, page: str | None = None) -> Call[Page[Key]]:
    """The workspace's keys, revoked ones too. Administrators only."""
    return _call(Page[Key], "GET", "/v1/api-keys", query={"limit": limit, "page": page})


def revoke_key(key: str) -> Call[None]:
    """Ends the key with this id at once and for good. Administrators only."""
    return _nothing(f"/v1/api-keys/{_quoted(key, 'key')}")


def create_principal(
    name: str, *, kind: str = "service", external_id: str | None = None
) -> Call[Principal]:
    """Makes a `person` or a `service`; Conflict where `external_id` is taken.

    Administrators only.
    """
    body = _given(name=name, kind=kind, external_id=external_id)
    return _call(Principal, "POST", "/v1/principals", json=body)


def list_principals(*, limit: int | None = None, page: str | None = None) -> Call[Page[Principal]]:
    """The workspace's principals. Administrators only."""
    return _call(Page[Principal], "GET", "/v1/principals", query={"limit": limit, "page": page})


def create_delegation(principal: str, delegate: str | Subject) -> Call[Delegation]:
    """Lets `delegate` (`principal:…` or `api_key:…`) act as `principal`, an id.

    Administrators and the principal itself; Conflict where it may already.
    """
    body = {"principal": principal, "delegate": Subject.of(delegate)}
    return _call(Delegation, "POST", "/v1/delegations", json=body)


def list_delegations(
    *, limit: int | None = None, page: str | None = None
) -> Call[Page[Delegation]]:
    """The workspace's delegations. Administrators only."""
    return _call(Page[Delegation], "GET", "/v1/delegations", query={"limit": limit, "page": page})


def delete_delegation(delegation: str) -> Call[None]:
    """Ends the delegation with this id at once."""
    return _nothing(f"/v1/delegations/{_quoted(delegation, 'delegation')}")


def create_assignment(
    store: str, subject: str | Subject, permissions: Sequence[str]
) -> Call[Assignment]:
    """Gives `subject` (`kind:id`) permissions, of `read` and `write`, on the store.

    Administrators and the owning principal.
    """
    body = {
        "memory_store": store,
        "subject": Subject.of(subject),
        "permissions": list(permissions),
    }
    return _call(Assignment, "POST", "/v1/permission-assignments", json=body)


def list_assignments(
    *,
    store: str | None = None,
    subject: str | Subject | None = None,
    limit: int | None = None,
    page: str | None = None,
) -> Call[Page[Assignment]]:
    """Assignments of a store, of a subject (`kind:id`), or of both.

    Administrators see all, others those of a store they administer, and their own.
    """
    query = {
        "memory_store": store,
        "subject": None if subject is None else str(subject),
        "limit": limit,
        "page": page,
    }
    return _call(Page[Assignment], "GET", "/v1/permission-assignments", query=query)


def delete_assignment(assignment: str) -> Call[None]:
    """Ends the assignment with this id at once."""
    return _nothing(f"/v1/permission-assignments/{_quoted(assignment, 'assignment')}")


# Agents, Sessions, surface scopes; jobs; the caller; the workspace


def create_agent(name: str) -> Call[Owner]:
    """Registers an agent. Administrators only."""
    return _call(Owner, "POST", "/v1/agents", json={"name": name})


def list_agents(*, limit: int | None = None, page: str | None = None) -> Call[Page[Owner]]:
    """The workspace's agents. Administrators only."""
    return _call(Page[Owner], "GET", "/v1/agents", query={"limit": limit, "page": page})


def create_session(name: str) -> Call[Owner]:
    """Registers a Session of the caller's principal."""
    return _call(Owner, "POST", "/v1/sessions", json={"name": name})


def list_sessions(*, limit: int | None = None, page: str | None = None) -> Call[Page[Owner]]:
    """The workspace's Sessions. Administrators only."""
    return _call(Page[Owner], "GET", "/v1/sessions", query={"limit": limit, "page": page})


def create_scope(name: str, *, kind: str) -> Call[Owner]:
    """Registers a surface scope: `public`, `private` or `personal`. Administrators only."""
    return _call(Owner, "POST", "/v1/surface-scopes", json={"name": name, "kind": kind})


def list_scopes(*, limit: int | None = None, page: str | None = None) -> Call[Page[Owner]]:
    """The workspace's surface scopes. Administrators only."""
    return _call(Page[Owner], "GET", "/v1/surface-scopes", query={"limit": limit, "page": page})


def list_jobs(*, limit: int | None = None, page: str | None = None) -> Call[Page[Job]]:
    """The workspace's unfinished jobs, parked ones too. Administrators only."""
    return _call(Page[Job], "GET", "/v1/jobs", query={"limit": limit, "page": page})


def retry_job(job: str) -> Call[Job]:
    """Has the job with this id tried again at once, with all its attempts before it.

    Conflict while a worker has it, NotFound where it is finished. Administrators only.
    """
    return _call(Job, "POST", f"/v1/jobs/{_quoted(job, 'job')}/retry")


def whoami() -> Call[WhoAmI]:
    """Workspace, key and principal of the client's requests."""
    return _call(WhoAmI, "GET", "/v1/whoami")


def list_events(
    *, after: int | None = None, limit: int | None = None, page: str | None = None
) -> Call[Page[Event]]:
    """The workspace's own events numbered above `after`, in order.

    Administrators see all, others those that concern their principal.
    """
    query = {"after": after, "limit": limit, "page": page}
    return _call(Page[Event], "GET", "/v1/events", query=query)
