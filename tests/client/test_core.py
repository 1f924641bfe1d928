"""What the clients share: when a request is repeated, how pages are fetched, what errors say."""

import ast
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

import muniment
from muniment.client import errors
from muniment.client.calls import Answer
from muniment.client.errors import NoAnswer
from muniment.client.transport import Request
from muniment.model.errors import catalogue

PACKAGE = Path(muniment.__file__).parent
UNSENT = NoAnswer("no connection", sent=False)
LOST = NoAnswer("the connection broke", sent=True)
BUSY = Answer(
    503,
    {"retry-after": "0"},
    b'{"error": {"type": "memory.backend_unavailable", "message": "later", "more": "x"}}',
)
DOCUMENT = {
    "path": "/a",
    "content": "x",
    "sha256": "0" * 64,
    "size_bytes": 1,
    "created_at": "2026-11-30T12:00:00.000000Z",
    "updated_at": "2026-11-30T12:00:00.000000Z",
}
FOUND = Answer(200, {}, msgspec.json.encode(DOCUMENT))


class Scripted:
    """A transport that gives prepared outcomes and keeps the requests."""

    def __init__(self, outcomes: Sequence[Answer | NoAnswer]) -> None:
        self.outcomes = list(outcomes)
        self.requests: list[Request] = []

    def send(self, request: Request) -> Answer:
        self.requests.append(request)
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, NoAnswer):
            raise outcome
        return outcome

    def close(self) -> None:
        pass


def scripted(*outcomes: Answer | NoAnswer) -> tuple[muniment.Client, Scripted]:
    transport = Scripted(outcomes)
    return muniment.Client(key="k", transport=transport), transport


@pytest.mark.parametrize("outcome", [UNSENT, LOST, BUSY])
def test_a_read_is_repeated(outcome: Answer | NoAnswer) -> None:
    client, transport = scripted(outcome, outcome, FOUND)
    assert client.documents.get("s", "/a").content == "x"
    assert len(transport.requests) == 3


@pytest.mark.parametrize(
    ("outcome", "error"), [(LOST, muniment.NoAnswer), (BUSY, muniment.Unavailable)]
)
def test_a_write_whose_outcome_is_unknown_is_sent_once(
    outcome: Answer | NoAnswer, error: type[Exception]
) -> None:
    for write in ("put", "delete"):
        client, transport = scripted(outcome, FOUND)
        with pytest.raises(error):
            if write == "put":
                client.documents.put("s", "/a", "x")
            else:
                client.documents.delete("s", "/a", if_match="0" * 64)
        assert len(transport.requests) == 1


def test_a_write_that_was_never_sent_is_repeated() -> None:
    client, transport = scripted(UNSENT, FOUND)
    client.documents.put("s", "/a", "x")
    assert len(transport.requests) == 2


@pytest.mark.parametrize("outcome", [UNSENT, LOST, BUSY])
def test_a_write_under_an_idempotency_key_is_repeated_r47(outcome: Answer | NoAnswer) -> None:
    client, transport = scripted(outcome, outcome, FOUND, FOUND, FOUND)
    once = client.once("k-1")
    once.documents.put("s", "/a", "x")
    assert [request.headers["idempotency-key"] for request in transport.requests] == ["k-1"] * 3
    # Reads and the client that it came from have no key.
    once.documents.get("s", "/a")
    client.documents.put("s", "/a", "x")
    assert not any("idempotency-key" in request.headers for request in transport.requests[3:])


def test_repeating_is_bounded() -> None:
    client, transport = scripted(*[UNSENT] * 9)
    with pytest.raises(muniment.NoAnswer):
        client.whoami()
    assert len(transport.requests) == 3


def test_pages_are_fetched_when_they_are_reached() -> None:
    def page(number: int, following: str | None) -> Answer:
        item = {name: value for name, value in DOCUMENT.items() if name != "content"}
        body = {"items": [item] * 2, "next_page": following, "tree_digest": "0" * 64}
        return Answer(200, {}, msgspec.json.encode(body))

    client, transport = scripted(page(1, "a&b"), page(2, None))
    items = client.documents.list("s", "/x y", limit=2)
    assert transport.requests == []
    next(items), next(items)
    assert len(transport.requests) == 1
    next(items)
    assert [request.target for request in transport.requests] == [
        "/v1/memory-stores/s/documents?path_prefix=/x%20y&limit=2",
        "/v1/memory-stores/s/documents?path_prefix=/x%20y&limit=2&page=a%26b",
    ]
    assert len(list(items)) == 1


def test_an_answer_that_is_not_ours_is_said_to_be_so() -> None:
    for answer in (Answer(502, {}, b"<html>Bad gateway"), Answer(200, {}, b"<html>Hello")):
        client, _ = scripted(answer)
        with pytest.raises(muniment.UnexpectedAnswer, match="is the URL right"):
            client.whoami()


def test_an_unknown_error_type_still_has_its_parts() -> None:
    body = b'{"error": {"type": "new.kind", "message": "m", "more": "u", "detail": {"a": 1}}}'
    client, _ = scripted(Answer(418, {"muniment-request-id": "req_1"}, body))
    with pytest.raises(muniment.MunimentError) as raised:
        client.whoami()
    error = raised.value
    assert (error.type, error.message, error.more) == ("new.kind", "m", "u")
    assert (error.detail, error.status, error.request_id) == ({"a": 1}, 418, "req_1")


def test_every_failure_of_the_server_has_a_class() -> None:
    assert set(errors.BY_TYPE) == {failure.code for failure in catalogue()}
    for cls in errors.BY_TYPE.values():
        assert getattr(muniment, cls.__name__) is cls


def test_a_server_that_is_not_there_gives_no_answer() -> None:
    with muniment.Client("http://127.0.0.1:1", "k", retries=0) as client:
        with pytest.raises(muniment.NoAnswer, match=r"127\.0\.0\.1:1") as raised:
            client.whoami()
    assert not raised.value.sent


@pytest.mark.parametrize("url", ["", "example.com", "ftp://example.com", "http://"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        muniment.Client(url, "k")


def test_what_the_stub_declares_is_what_the_package_gives() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text("utf-8"))
    declared = {
        alias.asname
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname is not None
    } | {"open", "open_async"}
    assert declared == set(muniment.__all__)
    for name in muniment.__all__:
        assert getattr(muniment, name) is not None


def test_the_command_line_loads_what_a_command_needs_when_it_is_run() -> None:
    script = (
        "import sys; from muniment.cli import app;"
        "assert not {'msgspec', 'asyncio', 'httpx', 'apsw', 'rich'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_importing_is_cheap_and_an_embedded_client_needs_no_http_library() -> None:
    script = (
        "import sys, muniment; assert not {'msgspec', 'asyncio', 'httpx'} & set(sys.modules);"
        "muniment.open; assert 'httpx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


SURROGATE = "a\ud800b"


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("path", lambda c: c.documents.put("s", SURROGATE, "x")),
        ("content", lambda c: c.documents.put("s", "/a", SURROGATE)),
        ("store", lambda c: c.stores.get(SURROGATE)),
        ("name", lambda c: c.stores.create(SURROGATE)),
        ("name", lambda c: list(c.stores.list(name=SURROGATE))),
        ("subject", lambda c: c.assignments.create("s", f"principal:{SURROGATE}", ["read"])),
        ("key", lambda c: c.keys.revoke(SURROGATE)),
        ("path", lambda c: c.documents.edit("s", SURROGATE, lambda text: "x")),
    ],
)
def test_a_lone_surrogate_is_malformed_and_named(
    field: str, call: Callable[[muniment.Client], object]
) -> None:
    client, transport = scripted(FOUND)
    with pytest.raises(muniment.Malformed, match="lone surrogate U\\+D800") as raised:
        call(client)
    assert transport.requests == []
    assert raised.value.detail["rule"] == "surrogate"
    assert raised.value.detail["field"] == field
    assert field in str(raised.value)


@pytest.mark.parametrize("value", ["é", "a\r\nb: c", "\ud800", "\x00"])
def test_a_header_that_cannot_be_sent_is_malformed(value: str) -> None:
    client, transport = scripted(FOUND)
    with pytest.raises(muniment.Malformed, match="if-match"):
        client.documents.put("s", "/a", "x", if_match=value)
    with pytest.raises(muniment.Malformed, match="muniment-acted-as"):
        client.acting_as(value).whoami()
    assert transport.requests == []


async def test_the_awaited_client_refuses_the_same() -> None:
    async with muniment.AsyncClient("http://127.0.0.1:1", "k") as client:
        with pytest.raises(muniment.Malformed, match="content"):
            await client.documents.put("s", "/a", SURROGATE)
        with pytest.raises(muniment.Malformed, match="if-match"):
            await client.documents.delete("s", "/a", if_match="é")


def test_a_host_that_cannot_be_named_gives_no_answer() -> None:
    with muniment.Client(f"http://{'a' * 70}.example", "k", retries=0) as client:
        with pytest.raises(muniment.NoAnswer):
            client.whoami()


@pytest.mark.parametrize(
    ("field", "call"),
    [
        ("content", lambda c: c.documents.put("s", "/a", b"x")),
        ("content", lambda c: c.documents.put("s", "/a", bytearray(b"x"))),
        ("content", lambda c: c.documents.edit("s", "/a", lambda text: b"x")),
        ("path", lambda c: c.documents.put("s", b"/a", "x")),
        ("store", lambda c: c.documents.put(b"s", "/a", "x")),
        ("name", lambda c: c.stores.create(b"notes")),
        ("description", lambda c: c.stores.update("s", expected_version=1, description=b"x")),
        ("name", lambda c: list(c.stores.list(name=b"notes"))),
    ],
)
def test_bytes_are_never_stored_as_their_base64(
    field: str, call: Callable[[muniment.Client], object]
) -> None:
    client, transport = scripted(FOUND, FOUND)
    with pytest.raises(muniment.Malformed, match=f"{field} must be a str, this is byte"):
        call(client)
    assert all(request.method == "GET" for request in transport.requests)
