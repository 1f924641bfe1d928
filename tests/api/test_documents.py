"""The document surface over HTTP, on every storage (C-005 … C-008, C-205, C-210, K3, K17)."""

import hashlib
from pathlib import Path

import pytest

from muniment.model.errors import Unavailable
from muniment.settings import SettingsError, load
from wire import Wire, document_url, error_of, tree_hash, wired

STALE = (409, "memory.conflict")
ABSENT = (404, "validation.not_found")


async def test_c_205_a_put_with_a_stale_hash_is_refused_and_changes_nothing(wire: Wire) -> None:
    store = await wire.store()
    first = await wire.put(store, "/a.md", "one")
    url, at = document_url(store), {"path": "/a.md"}
    second = await wire.owner.put(
        url, params=at, json={"content": "two"}, headers={"If-Match": f'"{first}"'}
    )
    assert second.status_code == 200
    stale = await wire.owner.put(
        url, params=at, json={"content": "three"}, headers={"If-Match": first}
    )
    assert error_of(stale) == (409, "memory.conflict")
    assert stale.json()["error"]["detail"]["current_sha256"] == second.json()["sha256"]
    bare = await wire.owner.put(url, params=at, json={"content": "three"})
    assert error_of(bare) == (409, "memory.conflict")
    assert (await wire.owner.get(url, params=at)).json()["content"] == "two"


async def test_k3_c_209_c_210_no_missed_precondition_overwrites_or_removes(wire: Wire) -> None:
    store = await wire.store()
    current = await wire.put(store, "/a.md", "one")
    url, at, free = document_url(store), {"path": "/a.md"}, {"path": "/free.md"}
    other = hashlib.sha256(b"two").hexdigest()
    before = await wire.state()
    for method in ("PUT", "DELETE"):
        for headers in ({}, {"If-None-Match": "*"}, {"If-Match": other}, {"If-Match": "0" * 64}):
            answer = await wire.owner.request(
                method, url, params=at, json={"content": "two"}, headers=headers
            )
            assert error_of(answer) == STALE, (method, headers)
            detail = answer.json()["error"]["detail"]
            assert detail == {"path": "/a.md", "current_sha256": current}
    answer = await wire.owner.put(
        url, params=free, json={"content": "two"}, headers={"If-Match": other}
    )
    assert error_of(answer) == STALE
    assert answer.json()["error"]["detail"] == {"path": "/free.md", "current_sha256": None}
    for headers in ({}, {"If-Match": other}):
        assert error_of(await wire.owner.delete(url, params=free, headers=headers)) == ABSENT
    assert await wire.state() == before


async def test_c_006_c_007_c_008_a_document_lives_from_put_to_delete_by_its_hash(
    wire: Wire,
) -> None:
    store = await wire.store()
    url, at = document_url(store), {"path": "/notes/a.md"}
    made = await wire.owner.put(
        url, params=at, json={"content": "one"}, headers={"If-None-Match": "*"}
    )
    sha = hashlib.sha256(b"one").hexdigest()
    assert made.status_code == 201
    assert made.headers["etag"] == f'"{sha}"'
    meta = made.json()
    assert set(meta) == {"path", "sha256", "size_bytes", "created_at", "updated_at"}
    assert (meta["path"], meta["sha256"], meta["size_bytes"]) == ("/notes/a.md", sha, 3)
    found = await wire.owner.get(url, params=at)
    assert found.json() == {**meta, "content": "one"}
    assert found.headers["etag"] == f'"{sha}"'
    for tag, status in (
        (f'"{sha}"', 304),
        (f'W/"{sha}"', 304),
        (f'"{"0" * 64}", "{sha}"', 304),
        ("*", 304),
        (f'"{"0" * 64}"', 200),
    ):
        answer = await wire.owner.get(url, params=at, headers={"If-None-Match": tag})
        assert answer.status_code == status, tag
        assert answer.headers["etag"] == f'"{sha}"'
        assert status == 200 or answer.content == b""
    changed = await wire.owner.put(
        url, params=at, json={"content": "two"}, headers={"If-Match": sha}
    )
    assert changed.status_code == 200
    assert changed.json()["created_at"] == meta["created_at"]
    assert changed.json()["updated_at"] > meta["updated_at"]
    items, digest = await wire.documents(store)
    assert digest == tree_hash({"/notes/a.md": b"two"})
    assert items == [{k: changed.json()[k] for k in ("path", "sha256", "size_bytes", "updated_at")}]
    gone = await wire.owner.delete(url, params=at, headers={"If-Match": changed.headers["etag"]})
    assert (gone.status_code, gone.content) == (204, b"")
    assert error_of(await wire.owner.get(url, params=at)) == ABSENT
    assert (await wire.documents(store))[1] == tree_hash({})


async def test_r_20_the_same_content_again_makes_no_revision(wire: Wire) -> None:
    store = await wire.store()
    sha = await wire.put(store, "/a.md", "one")
    before = await wire.state()
    again = await wire.owner.put(
        document_url(store),
        params={"path": "/a.md"},
        json={"content": "one"},
        headers={"If-Match": sha},
    )
    assert (again.status_code, again.json()["sha256"]) == (200, sha)
    assert await wire.state() == before


async def test_c_005_c_019_the_documents_answer_with_the_versioned_surface_off(
    database_url: str, tmp_path: Path
) -> None:
    off = load({"MUNIMENT_VERSIONED_SURFACE": "false"}).versioned_surface
    async with wired(tmp_path / "home", database_url, versioned_surface=off) as wire:
        assert wire.app.policy.versioned_surface is False
        store = await wire.store()
        at = document_url(store)
        sha = await wire.put(store, "/a.md", "one")
        put = await wire.owner.put(
            at, params={"path": "/a.md"}, json={"content": "two"}, headers={"If-Match": sha}
        )
        assert (put.status_code, put.json()["sha256"]) == (200, hashlib.sha256(b"two").hexdigest())
        stale = await wire.owner.put(
            at, params={"path": "/a.md"}, json={"content": "three"}, headers={"If-Match": sha}
        )
        assert error_of(stale) == (409, "memory.conflict")
        found = await wire.owner.get(at, params={"path": "/a.md"})
        assert (found.status_code, found.json()["content"]) == (200, "two")
        items, digest = await wire.documents(store)
        assert digest == tree_hash({"/a.md": b"two"})
        assert [item["path"] for item in items] == ["/a.md"]
        gone = await wire.owner.delete(
            at, params={"path": "/a.md"}, headers={"If-Match": put.json()["sha256"]}
        )
        assert gone.status_code == 204
        for path in ("", "/documents", "/access", "/events"):
            assert (await wire.owner.get(f"/v1/memory-stores/{store}{path}")).status_code == 200
        # History goes on, so that switching it on again finds it complete.
        events = await wire.events(store)
        assert [event.type for event in events].count("revision.created") == 3


async def test_k17_bytes_are_kept_whatever_they_look_like(wire: Wire) -> None:
    store = await wire.store()
    front = "---\ntitle: x\n---\n"
    contents = [
        "\ufeff" + front + "body\n",
        "\ufeff" + front.replace("\n", "\r\n") + "body\r\n",
        front + "body",
        "mixed\r\nline\rends\n\n\n",
        "\ufeff\ufeff",
        " \t trailing \t \n\n ",
        "cafe\u0301 caf\u00e9 \u212b \u00c5",
        "\u202e\u200b\u2028\u2029\u0085\u00a0\ufffd\uffff",
        "\U0001f98a\U0010ffff",
        '\\u0000 %00 &amp; "quoted" </script>',
        "",
        "\n",
    ]
    current = ""
    for content in contents:
        answer = await wire.owner.put(
            document_url(store),
            params={"path": "/a.md"},
            json={"content": content},
            headers={"If-Match": current} if current else {},
        )
        assert answer.is_success, (content, answer.text)
        current = hashlib.sha256(content.encode()).hexdigest()
        assert answer.json()["sha256"] == current
        found = await wire.owner.get(document_url(store), params={"path": "/a.md"})
        assert found.json()["content"] == content
        assert found.json()["size_bytes"] == len(content.encode())
    for n, content in enumerate(contents):
        await wire.put(store, f"/{n}.md", content)
    for n, content in enumerate(contents):
        found = await wire.owner.get(document_url(store), params={"path": f"/{n}.md"})
        assert found.json()["content"] == content


async def test_c_029_equal_trees_have_one_hash_on_every_storage(wire: Wire) -> None:
    store = await wire.store()
    contents = {f"/notes/{n % 7:02}/topic-{n:05}.md": f"note {n}\n" for n in range(120)}
    contents |= {"/é.md": "café", "/日本/語.md": "記憶", "/z.md": ""}
    one_by_one = [*list(contents)[:20], *list(contents)[-5:]]
    await wire.fill(store, {path: contents[path] for path in contents if path not in one_by_one})
    for path in reversed(one_by_one):
        await wire.put(store, path, contents[path])
    removed = [path for n, path in enumerate(contents) if n % 5 == 0]
    for path in removed:
        sha = hashlib.sha256(contents.pop(path).encode()).hexdigest()
        gone = await wire.owner.delete(
            document_url(store), params={"path": path}, headers={"If-Match": sha}
        )
        assert gone.status_code == 204
    wanted = {path: content.encode() for path, content in contents.items()}
    items, digest = await wire.documents(store, limit=17)
    assert digest == tree_hash(wanted)
    assert digest == "9921572ca75085f302c48d1315f3b8797d4e18bdecd0112914bccbded5e2fa03"
    assert [item["path"] for item in items] == sorted(wanted, key=str.encode)
    assert {item["path"]: item["sha256"] for item in items} == {
        path: hashlib.sha256(body).hexdigest() for path, body in wanted.items()
    }
    found = (await wire.owner.get(f"/v1/memory-stores/{store}")).json()
    assert found["document_count"] == len(wanted)
    assert found["total_bytes"] == sum(map(len, wanted.values()))


async def test_a_prefix_is_plain_text_and_no_pattern(wire: Wire) -> None:
    store = await wire.store()
    paths = [
        "/a_b/x",
        "/axb/x",
        "/t%/x",
        "/tenant/acme/x",
        "/tenant/acme-corp/x",
        "/tenant2",
        "/é/x",
    ]
    for path in paths:
        await wire.put(store, path, "x")
    for prefix, wanted in (
        ("/", paths),
        ("/a_", ["/a_b/x"]),
        ("/t%", ["/t%/x"]),
        ("/tenant/acme", ["/tenant/acme/x", "/tenant/acme-corp/x"]),
        ("/tenant/acme/", ["/tenant/acme/x"]),
        ("/tenant", ["/tenant/acme/x", "/tenant/acme-corp/x", "/tenant2"]),
        ("/é", ["/é/x"]),
        ("/A", []),
        ("/tenant2/", []),
    ):
        items, digest = await wire.documents(store, path_prefix=prefix, limit=2)
        assert [item["path"] for item in items] == sorted(wanted, key=str.encode), prefix
        assert digest == tree_hash(dict.fromkeys(paths, b"x"))
    for prefix in ("a", "notes/", "*"):
        answer = await wire.owner.get(
            f"/v1/memory-stores/{store}/documents", params={"path_prefix": prefix}
        )
        assert error_of(answer) == (400, "validation.malformed")


async def test_a_full_store_takes_no_new_document_and_lets_go_of_old_ones(wire: Wire) -> None:
    store = await wire.store()
    first = await wire.put(store, "/0.md", "x")
    await wire.put(store, "/1.md", "x")
    object.__setattr__(wire.app.policy, "documents_max", 2)
    before = await wire.state()
    full = await wire.owner.put(
        document_url(store), params={"path": "/2.md"}, json={"content": "x"}
    )
    assert error_of(full) == (429, "budget.exceeded")
    assert full.json()["error"]["detail"] == {"limit": 2}
    assert await wire.state() == before
    match = {"params": {"path": "/0.md"}, "headers": {"If-Match": first}}
    replaced = await wire.owner.put(document_url(store), json={"content": "y"}, **match)
    assert replaced.status_code == 200
    match["headers"] = {"If-Match": replaced.json()["sha256"]}
    assert (await wire.owner.delete(document_url(store), **match)).status_code == 204
    await wire.put(store, "/2.md", "x")


async def test_r_82_a_sealed_file_shows_no_content_and_opens_with_its_key_only(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    key = {"master_key": "ab" * 32}
    async with wired(tmp_path / "home", url, **key) as wire:
        store = await wire.store()
        await wire.put(store, "/a.md", "CANARY " * 1_000)
        assert not files_with(tmp_path, b"CANARY")
    async with wired(tmp_path / "home", url, **key) as wire:
        found = await wire.owner.get(document_url(store), params={"path": "/a.md"})
        assert found.json()["content"] == "CANARY " * 1_000
        assert (await wire.owner.delete(f"/v1/memory-stores/{store}")).status_code == 204


@pytest.mark.parametrize("other", ["cd" * 32, None])
async def test_r_82_another_master_key_is_noticed_and_is_never_a_500(
    tmp_path: Path, other: str | None
) -> None:
    url = f"sqlite:///{tmp_path / 'test.db'}"
    async with wired(tmp_path / "home", url, master_key="ab" * 32) as wire:
        store = await wire.store()
        await wire.put(store, "/a.md", "x")
    try:
        async with wired(tmp_path / "home", url, master_key=other) as wire:
            answer = await wire.owner.get(document_url(store), params={"path": "/a.md"})
            assert error_of(answer) == (503, "memory.backend_unavailable")
    except (SettingsError, Unavailable) as refused:
        assert "MUNIMENT_MASTER_KEY" in str(refused)


def files_with(folder: Path, word: bytes) -> list[str]:
    """The database's files in which the word stands."""
    return [file.name for file in folder.glob("test.db*") if word in file.read_bytes()]
