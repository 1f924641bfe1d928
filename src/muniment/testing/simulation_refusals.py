"""How a good request is spoiled: each way makes one thing wrong that the API has to refuse."""

from collections.abc import Callable
from urllib.parse import quote

from msgspec import structs

from muniment.model.ids import PREFIXES
from muniment.testing.simulation_world import Dice, Request, World, encode_body

Spoil = Callable[[World, Dice, Request], Request]

MALFORMED_BODIES = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b'{"nme": "x"}',
    b'{"name": "x", "name": "y"}',
    b'{"name": "\\u0000"}',
    b'{"name": 5}',
    b'{"content": "\xff"}',
    b'{"content": "x"} ',
    b'{"content": null}',
    b'{"expected_version": 0}',
    b'{"expected_version": "1"}',
    b'{"expected_version": 9007199254740993}',
    b'{"subject": {"kind": "nobody"}, "permissions": ["read"], "memory_store": "x"}',
    b'{"subject": {"kind": "workspace"}, "permissions": ["rule"]}',
)
QUERIES = (
    "unknown=1",
    "limit=0",
    "limit=201",
    "limit=one",
    "limit=1&limit=2",
    "page=",
    "page=AAAA",
    "page=" + "A" * 9000,
    "path=%zz",
    "path=%ff",
    "path=/a%00b",
    "include_deleted=yes",
    "after=-1",
    "after=1&page=AAAA",
    "subject=nobody:x",
    "subject=principal:",
    "expected_version=0",
    "memory_store=memstore_1",
    "&".join(f"q{n}=1" for n in range(40)),
)
HEADERS = (
    ("Muniment-Version", "2020-01-01"),
    ("Checkfu-Version", "soon"),
    ("Muniment-Version", "2026-08-24"),
    ("Muniment-Acted-As", "somebody"),
    ("If-Match", "*"),
    ("If-Match", "abc"),
    ("If-None-Match", '"abc"'),
    ("Content-Encoding", "gzip"),
    ("Content-Length", "4194305"),
    ("Content-Length", "99999999999"),
    ("Host", "elsewhere.example"),
    ("Origin", "http://elsewhere.example"),
    ("Authorization", "Basic abc"),
    ("Idempotency-Key", ""),
    ("Idempotency-Key", "k" * 256),
    ("Idempotency-Key", "é"),
)
PATHS = ("/v1/nothing", "/v1", "/", "/v1/memory-stores/", "/v1/memory_stores", "/v1/whoami/%ff")
METHODS = ("PATCH", "POST", "PUT", "DELETE", "GET", "OPTIONS", "TRACE")


def spoiled(world: World, dice: Dice, request: Request) -> Request:
    """The request with one thing wrong about it."""
    return dice.choice(WAYS)(world, dice, request)


def body(world: World, dice: Dice, request: Request) -> Request:
    """Another body."""
    return structs.replace(request, body=dice.choice(MALFORMED_BODIES))


def extra_field(world: World, dice: Dice, request: Request) -> Request:
    """A field more than there is."""
    sent = request.body[:-1] + b', "extra": 1}' if len(request.body) > 2 else b'{"extra": 1}'
    return structs.replace(request, body=sent)


def deep_body(world: World, dice: Dice, request: Request) -> Request:
    """A body that nests deeper than anybody reads."""
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    return structs.replace(request, body=encode_body({"name": deep}))


def query(world: World, dice: Dice, request: Request) -> Request:
    """A parameter more."""
    mark = "&" if "?" in request.target else "?"
    return structs.replace(request, target=f"{request.target}{mark}{dice.choice(QUERIES)}")


def no_query(world: World, dice: Dice, request: Request) -> Request:
    """No parameters, where some may be required."""
    return structs.replace(request, target=request.path)


def header(world: World, dice: Dice, request: Request) -> Request:
    """A header more, perhaps one that is there."""
    return structs.replace(request, headers=(*request.headers, dice.choice(HEADERS)))


def another_header(world: World, dice: Dice, request: Request) -> Request:
    """A header in the place of the one that is there."""
    name, value = dice.choice(HEADERS)
    kept = [each for each in request.headers if each[0] != name]
    return structs.replace(request, headers=(*kept, (name, value)))


def path(world: World, dice: Dice, request: Request) -> Request:
    """A path where nothing is."""
    return structs.replace(request, target=dice.choice(PATHS))


def method(world: World, dice: Dice, request: Request) -> Request:
    """Another method."""
    return structs.replace(request, method=dice.choice(METHODS))


def identifier(world: World, dice: Dice, request: Request) -> Request:
    """Another id in the path: unknown, of another kind, or none."""
    parts = request.target.split("/")
    if len(parts) < 4:
        return path(world, dice, request)
    rest = parts[3].partition("?")[1:]
    kind = dice.choice(list(PREFIXES.values()))
    other = f"{kind}_{dice.randbytes(16).hex()}"
    parts[3] = dice.choice((other, f"{kind}_1", "x", quote("é"), "%00")) + "".join(rest)
    return structs.replace(request, target="/".join(parts))


def borrowed(world: World, dice: Dice, request: Request) -> Request:
    """The place of somebody for whom it cannot act."""
    if not world.principals:
        return header(world, dice, request)
    other = dice.of(world.principals)
    kept = [each for each in request.headers if each[0] != "Muniment-Acted-As"]
    return structs.replace(request, headers=(*kept, ("Muniment-Acted-As", other)))


def key(world: World, dice: Dice, request: Request) -> Request:
    """Somebody whose key is refused."""
    actor = dice.of(world.outcasts)
    kept = [each for each in request.headers if each[0] != "Authorization"]
    if actor.secret is not None:
        kept.insert(0, ("Authorization", f"Bearer {actor.secret}"))
    return structs.replace(request, actor=actor.name, headers=tuple(kept))


WAYS: tuple[Spoil, ...] = (
    body,
    body,
    extra_field,
    deep_body,
    query,
    query,
    no_query,
    header,
    another_header,
    path,
    method,
    identifier,
    identifier,
    borrowed,
    key,
)
"""Every way, the ones with many variants twice."""
