"""The simulation: equal requests get equal answers, byte by byte, on all three storages (C-014).

A seed makes one random history of requests. Ids, times, cursors and the hashes of events, which
differ by chance, are named alike before the answers are compared.
"""

import json
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from wire import Person, Wire, document_url, wired

PATHS = ("/a.md", "/a", "/a/b.md", "/b/c/d.md", "/b/c", "/é.md", "/Z.md", "/z.md")
CONTENTS = ("one", "two", "", "\ufeffthree\r\n", "é" * 400)
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
ID = re.compile(r"[a-z]+_[0-9a-f]{32}")
STEPS = 220


class World:
    """One storage's side of the history: its people, its stores, and what their ids are called."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.people: list[Person] = []
        self.stores: list[str] = []
        self.grants: list[str] = []
        self.names: dict[str, str] = {}

    async def begin(self) -> None:
        for n, role in enumerate(("member", "member", "member", "admin")):
            self.people.append(await self.wire.person(f"p{n}", role))

    def call(self, kind: str, identifier: str) -> None:
        self.names[identifier] = f"{kind} {len(self.names)}"

    def normal(self, answer: httpx.Response) -> Any:
        """The answer without what differs by chance: ids, times, cursors, event hashes."""
        text = TIME.sub("time", answer.text)
        text = ID.sub(lambda found: self.names.get(found[0], "some id"), text)
        body = json.loads(text) if text else None
        if isinstance(body, dict):
            body["next_page"] = body.get("next_page") is not None
            body.pop("head", None)
            for item in body.get("items", []):
                for name in ("hash", "salt", "commitment"):
                    item.pop(name, None)
            if body.get("items") and "id" in body["items"][0] and "seq" not in body["items"][0]:
                body["items"].sort(key=json.dumps)
            if "assignments" in body:
                body["assignments"].sort()
        return answer.status_code, body, answer.headers.get("etag")


def choose(random: Random, world: World) -> tuple[str, dict[str, Any]]:
    """The next step, by indexes only, so that it means the same to every world."""
    kind = random.choices(
        ("put", "remove", "read", "list", "create", "grant", "revoke", "patch", "archive",
         "delete", "stores", "access", "events"),
        (40, 15, 10, 8, 4, 6, 3, 4, 1, 1, 3, 3, 2),
    )[0]  # fmt: skip
    if not world.stores:
        kind = "create"
    return kind, {
        "who": random.randrange(4),
        "whom": random.randrange(4),
        "store": random.randrange(max(1, len(world.stores))),
        "grant": random.randrange(max(1, len(world.grants))),
        "path": random.choice(PATHS),
        "content": random.choice(CONTENTS),
        "match": random.choice(("now", "now", "now", "none", "stale", "absent")),
        "version": random.choice((1, 1, 2, 3)),
        "limit": random.choice((1, 2, 50)),
        "flag": random.random() < 0.3,
        "rights": random.choice((["read"], ["write"], ["read", "write"])),
    }


async def take(world: World, kind: str, step: dict[str, Any]) -> Any:
    """One step in one world; its normalised answer."""
    client = world.people[step["who"]].client
    store = world.stores[step["store"]] if world.stores else ""
    at = f"/v1/memory-stores/{store}"
    path = {"path": step["path"]}
    if kind in ("put", "remove"):
        owner = await world.wire.owner.get(document_url(store), params=path)
        sha = owner.json().get("sha256", "0" * 64)
        headers = {
            "now": {"If-Match": sha},
            "none": {},
            "stale": {"If-Match": "1" * 64},
            "absent": {"If-None-Match": "*"},
        }[step["match"]]
        body = {"content": step["content"]} if kind == "put" else None
        method = "PUT" if kind == "put" else "DELETE"
        return world.normal(
            await client.request(
                method, document_url(store), params=path, json=body, headers=headers
            )
        )
    subject = {"kind": "principal", "principal": world.people[step["whom"]].principal}
    if step["flag"]:
        subject = {"kind": "workspace"}
    plain: dict[str, Callable[[], Any]] = {
        "read": lambda: client.get(document_url(store), params=path),
        "list": lambda: client.get(f"{at}/documents", params={"limit": step["limit"]}),
        "patch": lambda: client.patch(
            at, json={"expected_version": step["version"], "name": f"n{step['limit']}"}
        ),
        "archive": lambda: client.post(f"{at}/archive", json={"expected_version": step["version"]}),
        "delete": lambda: client.delete(at),
        "stores": lambda: client.get("/v1/memory-stores?limit=200"),
        "access": lambda: client.get(f"{at}/access"),
        "events": lambda: client.get(f"{at}/events?limit=200"),
        "revoke": lambda: client.delete(
            f"/v1/permission-assignments/{world.grants[step['grant']]}"
            if world.grants
            else "/v1/whoami"
        ),
    }
    if kind in plain:
        return world.normal(await plain[kind]())
    grant = {"subject": subject, "permissions": step["rights"]}
    if kind == "create":
        extra = {"grants": [grant]} if step["flag"] else {}
        me = world.wire.owner if step["match"] == "stale" else client
        answer = await me.post("/v1/memory-stores", json={"name": "n", **extra})
        if answer.is_success:
            world.call("store", answer.json()["id"])
            world.stores.append(answer.json()["id"])
    else:
        answer = await client.post(
            "/v1/permission-assignments", json={"memory_store": store, **grant}
        )
        if answer.is_success:
            world.call("grant", answer.json()["id"])
            world.grants.append(answer.json()["id"])
    return world.normal(answer)


@pytest.mark.postgres
@pytest.mark.parametrize("seed", [1, 2])
async def test_c_014_a_random_history_gets_equal_answers_on_every_storage(
    tmp_path: Path, postgres_dsn: str, seed: int
) -> None:
    urls = ("memory:", f"sqlite:///{tmp_path / 'test.db'}", postgres_dsn)
    async with AsyncExitStack() as stack:
        worlds = [
            World(await stack.enter_async_context(wired(tmp_path / f"home{n}", url)))
            for n, url in enumerate(urls)
        ]
        for world in worlds:
            await world.begin()
        random = Random(seed)
        seen: set[tuple[str, int]] = set()
        for number in range(STEPS):
            kind, step = choose(random, worlds[0])
            answers = [await take(world, kind, step) for world in worlds]
            seen.add((kind, answers[0][0]))
            assert answers[0][0] < 500, (number, kind, step, answers[0])
            for answer in answers[1:]:
                assert json.dumps(answer) == json.dumps(answers[0]), (number, kind, step)
        trees = [await digests(world) for world in worlds]
        assert trees[0] == trees[1] == trees[2]
        assert len(seen) > 25


async def digests(world: World) -> list[Any]:
    """Tree, totals, version and length of the stream of every store, in the order they came."""
    state: dict[str, Any] = await world.wire.state()
    found = []
    for store in world.stores:
        summary, head = state[store]
        ref = summary.canonical
        tree = None if ref is None else (ref.tree, ref.documents, ref.total_bytes, ref.version)
        found.append((tree, summary.store.version, summary.store.status, head.seq))
    return found
