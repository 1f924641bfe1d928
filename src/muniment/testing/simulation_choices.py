"""What a simulated step chooses from: names, paths, contents, and somebody or something known."""

from collections.abc import Mapping

from muniment.model.ids import PREFIXES
from muniment.testing.simulation_world import Actor, Dice, Store, World

STORES = "/v1/memory-stores"
ASSIGNMENTS = "/v1/permission-assignments"

IDEMPOTENCY_KEY = "Idempotency-Key"

NAMES = ("notes", "Notes", "größe", "plan", "", " ", "n" * 256, "a\x07b")
GOOD_NAMES = NAMES[:4]
FOLDERS = ("/a", "/b/c", "/é", "/n", "/notes..md")
PATHS = (
    *(f"/n/{n}.md" for n in range(24)),
    *(f"{folder}/{name}" for folder in FOLDERS for name in ("x", "Z.md", "é.md", "y/z.md")),
    *FOLDERS,
    "/ﬀ",
    "/\U0001f9fe",
    "/z z",
    "/CON",
    "/%41+b",
    "/" + "s" * 255,
    "/" + "/".join(["d"] * 58),
)
"""Folders that are documents too, so some puts meet a path that is taken; the last are long."""

BAD_PATHS = (
    "",
    "a.md",
    "/",
    "/a/",
    "/a//b",
    "/./a",
    "/a/../b",
    "/a\\b",
    "/ a",
    "/e\u0301",
    "/\u202ea",
    "/\u0378",
    "/a\u2028b",
    "/" + "s" * 256,
    "/" + "/".join(["d"] * 59),
    "/" + "/".join(["é" * 100] * 6),
)
CONTENTS = ("one", "two\n", "", "\ufeffthree\r\n", "é" * 400, "z" * 102_400)
BAD_CONTENTS = ("z" * 102_401, "bell\x07", "nul\x00", "lone \ud800", "\x7f")
PREFIXES_OF_PATHS = ("/", "/n", "/n/", "/n/1", "/a/", "/é", "/ﬀ", "/none", "none")
LIMITS = (1, 2, 3, 7, 200, None)
RIGHTS = (["read"], ["write"], ["read", "write"], ["read", "read"])
SUBJECT_KINDS = {
    "principal": "principals",
    "api_key": "keys",
    "agent_definition": "agents",
    "session": "sessions",
    "surface_scope": "scopes",
}
"""Each kind of subject that has an id, and where the world keeps those."""

ID_KINDS = {
    "principal": "principal",
    "api_key": "key",
    "agent_definition": "agent",
    "session": "session",
    "surface_scope": "scope",
}
HOT = 0.45
"""How often a step is about the largest store that can be written, so that one grows."""


def unknown_id(dice: Dice, kind: str) -> str:
    """A well-formed id of nothing."""
    return f"{PREFIXES[kind]}_{dice.randbytes(16).hex()}"


def anybody(world: World, dice: Dice) -> Actor:
    """Somebody: seldom one whose key is refused."""
    return dice.of(world.outcasts if dice.some(0.04) else world.actors)


def administrator(world: World, dice: Dice) -> Actor:
    """Mostly an administrator."""
    if dice.some(0.18):
        return anybody(world, dice)
    return dice.of({name: one for name, one in world.actors.items() if one.admin})


def keeper(world: World, dice: Dice, store: Store) -> Actor:
    """Mostly somebody that may use the store."""
    users = {name: world.actors[name] for name in store.users if name in world.actors}
    return dice.of(users) if users and dice.some(0.85) else anybody(world, dice)


def a_store(world: World, dice: Dice, *, writable: float = 0.6) -> Store:
    """A store, as often as `writable` says one that can be written; seldom one that never was."""
    if not world.stores or dice.some(0.02):
        return Store(unknown_id(dice, "store"), 1, {}, {}, {})
    open_ones = {name: store for name, store in world.stores.items() if store.writable}
    if open_ones and dice.some(HOT):
        return max(open_ones.values(), key=lambda store: (bool(store.users), len(store.hashes)))
    return dice.of(open_ones if open_ones and dice.some(writable) else world.stores)


def an_id(dice: Dice, known: Mapping[str, str], kind: str) -> str:
    """A known id of the kind, seldom an unknown one or none at all."""
    if not known or dice.some(0.05):
        return unknown_id(dice, kind) if dice.some(0.7) else f"{PREFIXES[kind]}_none"
    return dice.of(known)


def a_subject(world: World, dice: Dice, *, everybody: float = 0.25) -> dict[str, str]:
    """Somebody to whom an assignment can speak: as often as it says everybody, or a principal."""
    if dice.some(everybody):
        return {"kind": "workspace"}
    kind = "principal" if dice.some(0.6) else dice.choice(list(SUBJECT_KINDS))
    return {"kind": kind, kind: an_id(dice, getattr(world, SUBJECT_KINDS[kind]), ID_KINDS[kind])}


def a_name(dice: Dice) -> str:
    """A name, seldom a refused one."""
    return dice.choice(GOOD_NAMES if dice.some(0.94) else NAMES)


def a_path(dice: Dice, store: Store, *, held: float) -> str:
    """A path, as often as `held` says one where something is."""
    if dice.some(0.04):
        return dice.choice(BAD_PATHS)
    if store.hashes and dice.some(held):
        return dice.of({path: path for path in store.hashes})
    return dice.choice(PATHS)


def a_match(dice: Dice, store: Store, path: str) -> dict[str, str]:
    """A precondition: mostly one that holds, as far as is known."""
    held = store.hashes.get(path)
    if dice.some(0.75):
        if held is not None:
            return {"If-Match": f'"{held}"' if dice.some(0.5) else held}
        return {"If-None-Match": "*"} if dice.some(0.5) else {}
    stale = store.former.get(path, dice.randbytes(32).hex())
    choices: list[dict[str, str]] = [{}, {"If-None-Match": "*"}, {"If-Match": stale}]
    return dice.choice([*choices, {"If-Match": stale}, {"If-Match": "*"}])


def a_version(dice: Dice, store: Store) -> int:
    """The store's version, seldom another one."""
    return store.version if dice.some(0.85) else max(1, store.version + dice.choice((-1, 1)))


def grants(world: World, dice: Dice) -> list[dict[str, object]]:
    """Some grants for a new store, mostly none."""
    count = dice.choice((0, 0, 0, 1, 1, 2, 4))
    return [
        {"subject": a_subject(world, dice), "permissions": dice.choice(RIGHTS)}
        for _ in range(count)
    ]
