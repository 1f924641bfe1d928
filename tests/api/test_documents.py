"""The document surface over HTTP, on every storage."""

from wire import Wire, document_url, error_of


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
