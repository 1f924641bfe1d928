"""Many requests at once: one winner, nothing lost, nothing left behind (C-205, C-210, K1, K15)."""

import asyncio
import hashlib
import itertools
import json
from collections import Counter
from typing import Any

import httpx

from muniment.model.documents import Absent
from muniment.model.ids import DEFAULT_WORKSPACE, StoreId
from muniment.service.documents import delete_document, put_document
from wire import Wire, check_chain, document_url, error_of, tree_hash


def statuses(answers: list[httpx.Response]) -> Counter[int]:
    return Counter(answer.status_code for answer in answers)


async def test_c_210_of_fifty_creates_of_one_path_one_wins(wire: Wire) -> None:
    store = await wire.store()
    answers = await asyncio.gather(
        *(
            wire.owner.put(
                document_url(store), params={"path": "/a.md"}, json={"content": f"writer {n}"}
            )
            for n in range(50)
        )
    )
    assert statuses(answers) == {201: 1, 409: 49}
    (winner,) = [answer.json() for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer.status_code == 409:
            assert error_of(answer) == (409, "memory.conflict")
            assert answer.json()["error"]["detail"]["current_sha256"] == winner["sha256"]
    found = await wire.owner.get(document_url(store), params={"path": "/a.md"})
    assert found.json()["sha256"] == winner["sha256"]
    assert len(await wire.events(store)) == 2


async def test_c_205_of_thirty_puts_on_one_hash_one_wins(wire: Wire) -> None:
    store = await wire.store()
    sha = await wire.put(store, "/a.md", "base")
    answers = await asyncio.gather(
        *(
            wire.owner.put(
                document_url(store),
                params={"path": "/a.md"},
                json={"content": f"writer {n}"},
                headers={"If-Match": sha},
            )
            for n in range(30)
        )
    )
    assert statuses(answers) == {200: 1, 409: 29}
    (winner,) = [answer.json()["sha256"] for answer in answers if answer.is_success]
    assert (await wire.documents(store))[0][0]["sha256"] == winner
    check_chain(store, await wire.events(store))


async def test_c_206_of_twenty_patches_of_one_version_one_wins(wire: Wire) -> None:
    store = await wire.store()
    answers = await asyncio.gather(
        *(
            wire.owner.patch(
                f"/v1/memory-stores/{store}", json={"expected_version": 1, "name": f"n{n}"}
            )
            for n in range(20)
        )
    )
    assert statuses(answers) == {200: 1, 409: 19}
    events = await wire.events(store)
    assert [event.type for event in events].count("memory.store_updated") == 1


async def test_k1_parallel_puts_to_distinct_paths_all_land(wire: Wire) -> None:
    stores = [await wire.store() for _ in range(2)]
    wanted = {f"/{n % 5}/{n}.md": f"writer {n}\n" for n in range(60)}
    answers = await asyncio.gather(
        *(
            wire.owner.put(document_url(store), params={"path": path}, json={"content": content})
            for path, content in wanted.items()
            for store in stores
        )
    )
    assert statuses(answers) == {201: 120}
    for store in stores:
        items, digest = await wire.documents(store, limit=200)
        assert digest == tree_hash({path: body.encode() for path, body in wanted.items()})
        assert len(items) == 60
        found = (await wire.owner.get(f"/v1/memory-stores/{store}")).json()
        assert found["document_count"] == 60
        assert found["total_bytes"] == sum(map(len, wanted.values()))
        events = await wire.events(store)
        assert len(events) == 61
        check_chain(store, events)
        parents = [json.loads(event.payload or b"") for event in events[1:]]
        for older, newer in itertools.pairwise(parents):
            assert newer["parent"] == older["revision"]
    reads = await asyncio.gather(
        *(wire.owner.get(document_url(stores[0]), params={"path": path}) for path in wanted)
    )
    assert [answer.json()["content"] for answer in reads] == list(wanted.values())


async def test_k1_a_log_grows_by_compare_and_swap_with_retry(wire: Wire) -> None:
    store = await wire.store()
    await wire.put(store, "/log.md", "")
    url, at = document_url(store), {"path": "/log.md"}
    lost = 0

    async def append(line: str) -> None:
        nonlocal lost
        while True:
            now = (await wire.owner.get(url, params=at)).json()
            answer = await wire.owner.put(
                url,
                params=at,
                json={"content": now["content"] + line},
                headers={"If-Match": now["sha256"]},
            )
            if answer.status_code == 200:
                return
            assert error_of(answer) == (409, "memory.conflict")
            assert answer.json()["error"]["detail"]["current_sha256"] != now["sha256"]
            lost += 1

    lines = [f"line {n}\n" for n in range(16)]
    await asyncio.gather(*map(append, lines))
    content = (await wire.owner.get(url, params=at)).json()["content"]
    assert sorted(content.splitlines(keepends=True)) == sorted(lines)


async def test_file_and_folder_racing_for_one_path_never_both_win(wire: Wire) -> None:
    store = await wire.store()
    answers = await asyncio.gather(
        *(
            wire.owner.put(document_url(store), params={"path": path}, json={"content": path})
            for n in range(10)
            for path in (f"/{n}", f"/{n}/x", f"/{n}/x/y")
        )
    )
    assert statuses(answers) == {201: 10, 409: 20}
    items, digest = await wire.documents(store)
    assert len(items) == 10
    assert digest == tree_hash({item["path"]: item["path"].encode() for item in items})


async def test_c_170_c_171_puts_racing_a_deletion_leave_nothing_behind(wire: Wire) -> None:
    store = await wire.store()
    await wire.put(store, "/first.md", "x")
    at = f"/v1/memory-stores/{store}"

    async def put(n: int) -> httpx.Response:
        await asyncio.sleep(0.0005 * n)
        return await wire.owner.put(
            document_url(store), params={"path": f"/{n}.md"}, json={"content": f"{n}"}
        )

    async def delete() -> httpx.Response:
        await asyncio.sleep(0.005)
        return await wire.owner.delete(at)

    answers = await asyncio.gather(*map(put, range(20)), delete(), delete(), *map(put, range(40)))
    puts = answers[:20] + answers[22:]
    assert set(statuses(puts)) <= {201, 404, 409}
    assert sorted(answer.status_code for answer in answers[20:22]) == [204, 404]
    for answer in puts:
        if answer.status_code == 404:
            assert answer.json()["error"]["message"] == "no such memory store"
    assert error_of(await wire.owner.get(at)) == (404, "validation.not_found")
    assert await wire.events(store) == []
    listed = (await wire.owner.get("/v1/memory-stores?include_deleted=true")).json()["items"]
    (tomb,) = [one for one in listed if one["id"] == store]
    assert (tomb["status"], tomb["document_count"], tomb["canonical_revision"]) == (
        "deleted",
        0,
        None,
    )
    await nothing_left(wire, store)


async def nothing_left(wire: Wire, store: str) -> None:
    """Asserts that only the row of the store itself is left of a deleted one."""
    workspace = DEFAULT_WORKSPACE

    async def use(tx: Any) -> list[object]:
        found = await tx.get_store(workspace, store, (workspace,))
        assert found is not None
        record = found[0]
        assert (record.name, record.description, record.status) == ("", None, "deleted")
        left: list[object] = [await tx.get_ref(workspace, store, "canonical")]
        left += await tx.list_documents(workspace, store, "/", None, 10)
        left += await tx.list_assignments(workspace, None, 10, store=store)
        left += await tx.list_events(workspace, store, 0, 10)
        left += await tx.list_changes(workspace, store, "/first.md", 2**40, 10)
        blob = hashlib.sha256(b"x").digest()
        left.append(await tx.get_blob(workspace, record.pool, blob))
        left += await tx.list_jobs(workspace, None, 10)
        return [one for one in left if one is not None]

    assert await wire.storage.read(use, scan=True) == []

    async def erase(tx: Any) -> int:
        await tx.lock_store(workspace, store)
        record = (await tx.get_store(workspace, store, (workspace,)))[0]
        return int(await tx.erase_store(workspace, store, record.pool, 1000))

    assert await wire.storage.write(store, erase) == 0


async def test_k15_a_list_shows_the_tree_it_began_with_whatever_is_written(wire: Wire) -> None:
    store = await wire.store()
    wanted = {f"/{n % 9}/{n:04}.md": f"document {n}\n" for n in range(1_000)}
    await wire.fill(store, wanted)
    paths = sorted(wanted)
    shas = {path: hashlib.sha256(body.encode()).hexdigest() for path, body in wanted.items()}
    found: list[dict[str, Any]] = []
    digests: set[str] = set()
    query: dict[str, Any] = {"limit": 100}
    for page_number in range(10):
        page = (await wire.owner.get(f"/v1/memory-stores/{store}/documents", params=query)).json()
        found += page["items"]
        digests.add(page["tree_digest"])
        query["page"] = page["next_page"]
        await asyncio.gather(
            *(change(wire, store, f"/{n}/new-{page_number}-{n}.md") for n in range(10)),
            *(change(wire, store, path, shas[path]) for path in paths[page_number::100]),
        )
    assert query["page"] is None
    assert [item["path"] for item in found] == paths
    assert {item["path"]: item["sha256"] for item in found} == shas
    assert digests == {tree_hash({path: body.encode() for path, body in wanted.items()})}
    items, digest = await wire.documents(store, limit=200)
    assert len(items) == 1_000
    kept = {path: body for path, body in wanted.items() if path not in removed(paths)}
    kept |= {f"/{n}/new-{page}-{n}.md": "new" for n in range(10) for page in range(10)}
    assert digest == tree_hash({path: body.encode() for path, body in kept.items()})


def removed(paths: list[str]) -> set[str]:
    """What the test above removes: from each page's remainder every hundredth path."""
    return {path for page in range(10) for path in paths[page::100]}


async def change(wire: Wire, store: str, path: str, sha: str | None = None) -> None:
    """Adds a document, or with its hash removes it."""
    actor, app = await wire.actor(), wire.app
    if sha is None:
        await put_document(app, actor, StoreId(store), path, "new", precondition=Absent.NONE)
    else:
        expected = bytes.fromhex(sha)
        await delete_document(app, actor, StoreId(store), path, precondition=expected)
