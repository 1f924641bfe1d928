"""Hostile and unusual paths through `?path=` (R-18, C-025, K5, K6): refused, never repaired."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from wire import Wire, document_url, error_of

MALFORMED = (400, "validation.malformed")

REFUSED = {
    "nothing": ("", "absolute"),
    "relative": ("a.md", "absolute"),
    "relative with a dot": ("./a.md", "absolute"),
    "white space before the slash": (" /a.md", "absolute"),
    "scheme": ("file:///a.md", "absolute"),
    "drive": ("C:\\a.md", "absolute"),
    "root": ("/", "root"),
    "slash at the end": ("/a/", "trailing_slash"),
    "empty segment": ("/a//b", "empty_segment"),
    "empty first segment": ("//a", "empty_segment"),
    "dot": ("/a/./b", "dot_segment"),
    "two dots": ("/a/../b", "dot_segment"),
    "two dots alone": ("/..", "dot_segment"),
    "two dots at the end": ("/a/..", "dot_segment"),
    "backslash": ("/a\\b", "backslash"),
    "climbing by backslash": ("/..\\..\\b", "backslash"),
    "leading space": ("/ a", "white_space"),
    "trailing space": ("/a /b", "white_space"),
    "only a space": ("/ ", "white_space"),
    "no-break space": ("/\u00a0a", "white_space"),
    "ideographic space": ("/a\u3000", "white_space"),
    "tab": ("/a\tb", "control"),
    "line feed": ("/a\nb", "control"),
    "line feed at the end": ("/a.md\n", "control"),
    "carriage return": ("/a\rb", "control"),
    "escape": ("/a\x1b[31m", "control"),
    "DEL": ("/a\x7f", "control"),
    "C1": ("/a\x85b", "control"),
    "right-to-left override": ("/a\u202eb", "format"),
    "zero-width space": ("/a\u200bb", "format"),
    "zero-width joiner": ("/a\u200db", "format"),
    "soft hyphen": ("/a\u00adb", "format"),
    "byte order mark": ("/\ufeffa", "format"),
    "language tag": ("/a\U000e0041", "format"),
    "line separator": ("/a\u2028b", "line_separator"),
    "paragraph separator": ("/a\u2029b", "line_separator"),
    "unassigned": ("/a\u0378", "unassigned"),
    "non-character": ("/a\uffff", "unassigned"),
    "decomposed": ("/notes/cafe\u0301.md", "nfc"),
    "decomposed Hangul": ("/\u110f\u1169\u1103\u1175\u11bc", "nfc"),
    "angstrom sign": ("/\u212b", "nfc"),
    "marks out of order": ("/a\u0301\u0323", "nfc"),
    "segment of 256 bytes": ("/" + "s" * 256, "segment_bytes"),
    "segment of 256 bytes in 128 characters": ("/" + "é" * 128, "segment_bytes"),
    "59 segments": ("/s" * 59, "segments"),
    "thousands of segments": ("/s" * 4_000, "path_bytes"),
    "1,025 bytes": ("/" + "/".join(["s" * 203] * 5) + "/ssss", "path_bytes"),
    "1,026 bytes": ("/" + "/".join(["s" * 203] * 5) + "/sssss", "path_bytes"),
}
"""Name to the path and the rule it breaks."""

READABLE = {"1,025 bytes"}
"""What can be read and deleted, though not written (R-18)."""

RAW = {
    "NUL": "/a%00b",
    "NUL alone": "%00",
    "invalid byte": "/a%ff",
    "overlong slash": "/a%c0%afb",
    "overlong NUL": "/a%c0%80",
    "surrogate in UTF-8": "/a%ed%a0%80",
    "beyond Unicode": "/a%f4%90%80%80",
    "cut sequence": "/a%e2%82",
    "continuation alone": "/a%80",
    "invalid escape": "/a%zz",
    "short escape": "/a%4",
    "escape at the end": "/a%",
}
"""Percent-encoded bytes that are no text at all."""

ACCEPTED = (
    "/notes..md", "/.hidden", "/CON", "/nul.txt", "/$x", "/...", "/..a", "/a..", "/-rf",
    "/a b", "/a\u00a0b", "/%2e%2e/%2f", "/100%", "/a+b", "/a&b=c", "/a;b", "/a?b#c", "/a:b|c",
    "/a*", "/~", "/'; DROP TABLE documents; --", '/"', "/<b>", "/{a}", "/notes/café.md",
    "/코딩", "/日本/語.md", "/Å", "/🦊.md", "/Note.md", "/note.md", "/a_b", "/axb", "/t%",
    "/" + "s" * 255, "/s" * 58, "/" + "é" * 127 + "s",
    "/" + "/".join(["s" * 203] * 5) + "/sss",
)  # fmt: skip


async def send_all(client: httpx.AsyncClient, store: str, query: str) -> dict[str, httpx.Response]:
    """A read, a write and a removal at the path of this query string."""
    url = f"{document_url(store)}?path={query}"
    return {
        "GET": await client.get(url),
        "PUT": await client.put(url, json={"content": "x"}),
        "DELETE": await client.delete(url, headers={"If-Match": "0" * 64}),
    }


@pytest.mark.parametrize("name", REFUSED)
async def test_c_025_k6_r_18_a_hostile_path_is_refused_by_the_rule_it_breaks(
    plain: Wire, name: str
) -> None:
    path, rule = REFUSED[name]
    store = await plain.store()
    before = await plain.state()
    for method, answer in (await send_all(plain.owner, store, quote(path, safe=""))).items():
        if name in READABLE and method != "PUT":
            assert error_of(answer) == (404, "validation.not_found")
            continue
        assert error_of(answer) == MALFORMED, method
        error = answer.json()["error"]
        assert error["message"].startswith("path ")
        assert (error["detail"]["field"], error["detail"]["rule"]) == ("path", rule), method
        assert len(answer.text) < 8_000
    assert await plain.state() == before


@pytest.mark.parametrize("name", RAW)
async def test_k6_a_path_that_is_no_text_is_refused(plain: Wire, name: str) -> None:
    store = await plain.store()
    before = await plain.state()
    for method, answer in (await send_all(plain.owner, store, RAW[name])).items():
        assert error_of(answer) == MALFORMED, method
        message = answer.json()["error"]["message"]
        assert "UTF-8" in message or "NUL" in message
    listed = await plain.owner.get(f"/v1/memory-stores/{store}/documents?path_prefix={RAW[name]}")
    assert error_of(listed) == MALFORMED
    assert await plain.state() == before


async def test_k6_odd_but_good_paths_are_stored_as_they_are_in_the_order_of_their_bytes(
    wire: Wire,
) -> None:
    store = await wire.store()
    for n, path in enumerate(ACCEPTED):
        answer = await wire.owner.put(
            document_url(store), params={"path": path}, json={"content": f"{n}\n"}
        )
        assert answer.status_code == 201, (path, answer.text)
        assert answer.json()["path"] == path
        found = await wire.owner.get(document_url(store), params={"path": path})
        assert (found.json()["path"], found.json()["content"]) == (path, f"{n}\n")
    items, _ = await wire.documents(store, limit=7)
    assert [item["path"] for item in items] == sorted(ACCEPTED, key=str.encode)


async def test_c_025_k5_the_refusal_of_a_decomposed_path_shows_the_composed_one(wire: Wire) -> None:
    store = await wire.store()
    await wire.put(store, "/notes/café.md", "composed")
    for given, composed in (
        ("/notes/cafe\u0301.md", "/notes/café.md"),
        ("/\u110f\u1169\u1103\u1175\u11bc", "/코딩"),
        ("/\u212b", "/Å"),
    ):
        answer = await wire.owner.put(
            document_url(store), params={"path": given}, json={"content": "x"}
        )
        assert error_of(answer) == MALFORMED
        error = answer.json()["error"]
        assert error["detail"]["nfc"] == composed
        assert composed in error["message"]
    items, _ = await wire.documents(store)
    assert [item["path"] for item in items] == ["/notes/café.md"]


async def test_k6_a_document_and_a_folder_never_share_a_path(wire: Wire) -> None:
    store = await wire.store()
    await wire.put(store, "/a/b", "x")
    await wire.put(store, "/c", "x")
    await wire.put(store, "/ab", "x")
    before = await wire.state()
    for path in ("/a", "/c/d", "/c/d/e", "/a/b/c"):
        for headers in ({}, {"If-None-Match": "*"}):
            answer = await wire.owner.put(
                document_url(store), params={"path": path}, json={"content": "y"}, headers=headers
            )
            assert error_of(answer) == (409, "memory.conflict"), path
            assert path in answer.json()["error"]["message"]
    for path in ("/a", "/c/d"):
        answer = await wire.owner.get(document_url(store), params={"path": path})
        assert error_of(answer) == (404, "validation.not_found")
    assert await wire.state() == before
    present = (await wire.documents(store))[0]
    gone = await wire.owner.delete(
        document_url(store), params={"path": "/a/b"}, headers={"If-Match": present[0]["sha256"]}
    )
    assert gone.status_code == 204
    await wire.put(store, "/a", "now a document")


async def test_k6_case_twins_are_two_documents_and_a_recreated_path_is_a_new_one(
    wire: Wire,
) -> None:
    store = await wire.store()
    upper = await wire.put(store, "/Note.md", "same")
    lower = await wire.put(store, "/note.md", "same")
    assert upper == lower
    first = await document_id(wire, store, "/note.md")
    assert first != await document_id(wire, store, "/Note.md")
    gone = await wire.owner.delete(
        document_url(store), params={"path": "/note.md"}, headers={"If-Match": lower}
    )
    assert gone.status_code == 204
    await wire.put(store, "/note.md", "same")
    assert await document_id(wire, store, "/note.md") != first


async def document_id(wire: Wire, store: str, path: str) -> str:
    """The stable id behind a path, which the native surface does not show."""
    actor = (await wire.owner.get("/v1/whoami")).json()
    subjects = (actor["principal"]["id"],)

    async def use(tx: Any) -> Any:
        return await tx.open_document(actor["workspace"]["id"], store, subjects, path)

    return str((await wire.storage.read(use))[2].id)
