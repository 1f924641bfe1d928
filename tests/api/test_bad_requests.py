"""Bad input beside paths: the documented type, a message that names the rule, and no change."""

import json

import httpx
import pytest

from wire import BASE, Wire, document_url, error_of

MALFORMED = (400, "validation.malformed")

BODIES: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "JSON"),
    "white space": (b"  \n", "JSON"),
    "no JSON": (b"hello", "JSON"),
    "single quotes": (b"{'content':'x'}", "JSON"),
    "trailing comma": (b'{"content":"x",}', "JSON"),
    "cut": (b'{"content":"x', "JSON"),
    "cut escape": (b'{"content":"\\u12', "JSON"),
    "bad escape": (b'{"content":"\\x41"}', "JSON"),
    "two values": (b'{"content":"x"}{"content":"y"}', "JSON"),
    "byte order mark": (b'\xef\xbb\xbf{"content":"x"}', "JSON"),
    "UTF-16": ('{"content":"x"}'.encode("utf-16"), "JSON"),
    "invalid byte": (b'{"content":"\xff"}', "UTF-8"),
    "overlong": (b'{"content":"\xc0\xaf"}', "UTF-8"),
    "surrogate in UTF-8": (b'{"content":"\xed\xa0\x80"}', "UTF-8"),
    "lone high surrogate": (b'{"content":"\\ud800"}', "surrogate"),
    "lone low surrogate": (b'{"content":"a\\udc00b"}', "surrogate"),
    "surrogates the wrong way round": (b'{"content":"\\udc00\\ud800"}', "surrogate"),
    "high surrogate and a letter": (b'{"content":"\\ud800a"}', "surrogate"),
    "raw NUL": (b'{"content":"a\x00b"}', "JSON"),
    "raw line feed": (b'{"content":"a\nb"}', "JSON"),
    "NUL": (b'{"content":"a\\u0000b"}', "content"),
    "list": (b'[{"content":"x"}]', "object"),
    "text": (b'"content"', "object"),
    "null": (b"null", "object"),
    "number": (b"7", "object"),
    "no field": (b"{}", "content"),
    "null field": (b'{"content":null}', "content"),
    "number field": (b'{"content":7}', "content"),
    "list field": (b'{"content":["x"]}', "content"),
    "object field": (b'{"content":{"x":1}}', "content"),
    "unknown field": (b'{"content":"x","sha256":"y"}', "sha256"),
    "unknown field in other case": (b'{"content":"x","Content":"y"}', "Content"),
    "repeated field": (b'{"content":"x","content":"y"}', "content"),
    "repeated field, escaped": (b'{"content":"x","\\u0063ontent":"y"}', "content"),
    "brackets": (b"[" * 100_000, "object"),
    "braces": (b'{"content":' * 100_000, "content"),
    "brackets in a field": (b'{"content":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "content"),
    "brackets in an unknown field": (b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "x"),
    "long unknown field": (b'{"' + b"k" * 100_000 + b'":1}', "kkkk"),
    "102,401 bytes": (json.dumps({"content": "x" * 102_401}).encode(), "content"),
    "102,402 bytes in 51,201 characters": (
        json.dumps({"content": "é" * 51_201}, ensure_ascii=False).encode(),
        "content",
    ),
    **{
        f"control U+{code:04X}": (json.dumps({"content": f"a{chr(code)}b"}).encode(), "content")
        for code in (0x01, 0x07, 0x08, 0x0B, 0x0C, 0x0E, 0x1B, 0x1F, 0x7F)
    },
}
"""Bodies of a document put: name to the bytes and a word of the message."""

NUMBERS = {
    "missing": "{}",
    "null": '{"expected_version":null}',
    "text": '{"expected_version":"1"}',
    "boolean": '{"expected_version":true}',
    "zero": '{"expected_version":0}',
    "negative": '{"expected_version":-1}',
    "fraction": '{"expected_version":1.5}',
    "beyond 64 bits": '{"expected_version":18446744073709551617}',
    "400 digits": '{"expected_version":1' + "0" * 400 + "}",
    "5,000 digits": '{"expected_version":1' + "0" * 5_000 + "}",
    "1e999": '{"expected_version":1e999}',
    "1e-999": '{"expected_version":1e-999}',
    "NaN": '{"expected_version":NaN}',
    "Infinity": '{"expected_version":Infinity}',
    "leading zero": '{"expected_version":01}',
    "plus": '{"expected_version":+1}',
    "hexadecimal": '{"expected_version":0x1}',
    "list": '{"expected_version":[1]}',
}

LIMITS = ("0", "201", "-1", "1.5", "", " 5", "5 ", "+5", "1e2", "0x10", "٣", "５", "five", "true",
          "9" * 16, "9" * 5_000, "null", "5,6")  # fmt: skip


@pytest.fixture
async def store(plain: Wire) -> str:
    """A store with one document."""
    made = await plain.store()
    await plain.put(made, "/a.md", "one")
    return made


def refused(answer: httpx.Response, word: str, status: int = 400) -> None:
    """The answer is `validation.malformed` and says the word in its message or detail."""
    assert error_of(answer) == (status, "validation.malformed")
    error = answer.json()["error"]
    assert word in error["message"] or word in str(error.get("detail")), error
    assert len(answer.text) < 8_000


@pytest.mark.parametrize("name", BODIES)
async def test_c_026_r_17_a_bad_body_of_a_put_is_refused_and_changes_nothing(
    plain: Wire, store: str, name: str
) -> None:
    body, word = BODIES[name]
    before = await plain.state()
    for path in ("/a.md", "/new.md"):
        answer = await plain.owner.put(document_url(store), params={"path": path}, content=body)
        refused(answer, word)
    assert await plain.state() == before


async def test_c_026_102_400_bytes_are_accepted_and_counted_in_utf_8(wire: Wire) -> None:
    store = await wire.store()
    for path, content in (("/ascii", "x" * 102_400), ("/two", "é" * 51_200), ("/empty", "")):
        sha = await wire.put(store, path, content)
        found = await wire.owner.get(document_url(store), params={"path": path})
        assert found.json()["content"] == content
        assert found.json()["size_bytes"] == len(content.encode())
        assert found.headers["etag"] == f'"{sha}"'


async def test_numbers_that_are_no_version_are_refused(plain: Wire, store: str) -> None:
    before = await plain.state()
    for name, body in NUMBERS.items():
        for method, path in (("PATCH", ""), ("POST", "/archive")):
            answer = await plain.owner.request(
                method, f"/v1/memory-stores/{store}{path}", content=body.encode()
            )
            assert error_of(answer) == MALFORMED, name
            refused(answer, "expected_version" if "JSON" not in answer.text else "JSON")
    for version in LIMITS[2:]:
        answer = await plain.owner.delete(
            f"/v1/memory-stores/{store}", params={"expected_version": version}
        )
        refused(answer, "expected_version")
    assert await plain.state() == before


@pytest.mark.parametrize(
    "path",
    [
        "/v1/memory-stores",
        "/v1/memory-stores/{store}/documents",
        "/v1/memory-stores/{store}/events",
        "/v1/events",
        "/v1/api-keys",
        "/v1/principals",
        "/v1/delegations",
        "/v1/permission-assignments",
        "/v1/agents",
        "/v1/sessions",
        "/v1/surface-scopes",
    ],
)
async def test_c_072_every_list_refuses_bad_limits_and_forged_cursors(
    plain: Wire, store: str, path: str
) -> None:
    url = path.format(store=store)
    for limit in LIMITS:
        answer = await plain.owner.get(url, params={"limit": limit})
        refused(answer, "limit")
        assert "200" in answer.json()["error"]["message"]
    for limit in ("1", "200"):
        assert (await plain.owner.get(url, params={"limit": limit})).status_code == 200
    for page in ("", "0", "1", "x", "AAAA", "A" * 60, "/", "é", "=", "A" * 9_000, "!" * 40):
        refused(await plain.owner.get(url, params={"page": page}), "page")


async def test_c_062_a_cursor_serves_only_the_list_it_was_made_for(plain: Wire) -> None:
    store, other = await plain.store(), await plain.store()
    for n in range(4):
        for one in (store, other):
            await plain.put(one, f"/folder/{n}.md", "x")
        for path in ("/v1/principals", "/v1/agents", "/v1/sessions"):
            assert (await plain.owner.post(path, json={"name": "x"})).status_code == 201
        await plain.person(f"p{n}")
    eve = await plain.other_workspace()
    lists = [
        f"/v1/memory-stores/{store}/documents?limit=2",
        f"/v1/memory-stores/{other}/documents?limit=2",
        f"/v1/memory-stores/{store}/documents?limit=2&path_prefix=/folder",
        f"/v1/memory-stores/{store}/events?limit=2",
        f"/v1/memory-stores/{other}/events?limit=2",
        "/v1/events?limit=2",
        "/v1/memory-stores?limit=1",
        "/v1/memory-stores?limit=1&include_archived=true",
        "/v1/memory-stores?limit=1&name=notes",
        "/v1/api-keys?limit=2",
        "/v1/principals?limit=2",
        "/v1/agents?limit=2",
        "/v1/sessions?limit=2",
        "/v1/permission-assignments?limit=1",
        f"/v1/permission-assignments?limit=1&subject=workspace:{'wsp_' + '0' * 31 + '1'}",
    ]
    cursors = {}
    for url in lists:
        answer = await plain.owner.get(url)
        assert answer.status_code == 200, answer.text
        if (cursor := answer.json()["next_page"]) is not None:
            cursors[url] = cursor
    assert len(cursors) >= 13
    for made_for, cursor in cursors.items():
        for url in lists:
            answer = await plain.owner.get(f"{url}&page={cursor}")
            if url == made_for:
                assert answer.status_code == 200, url
            else:
                assert error_of(answer) == MALFORMED, (made_for, url)
        if "memory-stores/" not in made_for:
            answer = await eve.client.get(f"{made_for}&page={cursor}")
            assert error_of(answer) in (MALFORMED, (404, "validation.not_found")), made_for


async def test_c_062_an_altered_cursor_is_refused(plain: Wire) -> None:
    store = await plain.store()
    for n in range(6):
        await plain.put(store, f"/{n}.md", "x")
    for url in (f"/v1/memory-stores/{store}/documents", "/v1/events"):
        cursor = (await plain.owner.get(url, params={"limit": 2})).json()["next_page"]
        flipped = "B" if cursor[-1] == "A" else "A"
        altered = {
            "cut": cursor[:-1],
            "cut by four": cursor[:-4],
            "doubled": cursor + cursor,
            "padded": cursor + "=",
            "padded fully": cursor + "====",
            "with a stop": cursor + "!!!!",
            "with a blank inside": cursor[:8] + "    " + cursor[8:],
            "with foreign characters inside": cursor[:8] + "!?" + cursor[8:],
            "other alphabet": cursor + "+/",
            "upper case": cursor.upper(),
            "first character": ("B" if cursor[0] == "A" else "A") + cursor[1:],
            "last character": cursor[:-1] + flipped,
        }
        for at in range(0, len(cursor), 5):
            other = "B" if cursor[at] == "A" else "A"
            altered[f"character {at}"] = cursor[:at] + other + cursor[at + 1 :]
        for name, page in altered.items():
            assert page != cursor
            answer = await plain.owner.get(url, params={"page": page})
            assert error_of(answer) == MALFORMED, name
            refused(answer, "page")


HEADERS: dict[str, tuple[list[tuple[str, str]], str]] = {
    "any": ([("If-Match", "*")], "If-Match"),
    "weak": ([("If-Match", 'W/"{sha}"')], "If-Match"),
    "list": ([("If-Match", '"{sha}", "{sha}"')], "If-Match"),
    "two lines": ([("If-Match", '"{sha}"'), ("If-Match", '"{sha}"')], "If-Match"),
    "two lines, the right one last": ([("If-Match", "0" * 64), ("If-Match", "{sha}")], "If-Match"),
    "empty": ([("If-Match", "")], "If-Match"),
    "quotes only": ([("If-Match", '""')], "If-Match"),
    "upper case": ([("If-Match", "{SHA}")], "If-Match"),
    "short": ([("If-Match", "{short}")], "If-Match"),
    "long": ([("If-Match", "{sha}0")], "If-Match"),
    "one quote before": ([("If-Match", '"{sha}')], "If-Match"),
    "one quote after": ([("If-Match", '{sha}"')], "If-Match"),
    "single quotes": ([("If-Match", "'{sha}'")], "If-Match"),
    "with a name": ([("If-Match", "sha256:{sha}")], "If-Match"),
    "no hexadecimal": ([("If-Match", "g" * 64)], "If-Match"),
    "huge": ([("If-Match", "0" * 50_000)], "If-Match"),
    "both": ([("If-Match", "{sha}"), ("If-None-Match", "*")], "If-Match"),
    "none match with a hash": ([("If-None-Match", '"{sha}"')], "If-None-Match"),
    "none match empty": ([("If-None-Match", "")], "If-None-Match"),
    "none match twice": ([("If-None-Match", "*"), ("If-None-Match", "*")], "If-None-Match"),
    "version unknown": ([("Muniment-Version", "2026-08-25")], "Version"),
    "version empty": ([("Muniment-Version", "")], "Version"),
    "version of the other name": ([("Checkfu-Version", "latest")], "Version"),
    "version twice": (
        [("Muniment-Version", "2026-08-24"), ("Muniment-Version", "2026-08-24")],
        "Version",
    ),
    "acting as nobody": ([("Muniment-Acted-As", "")], "Acted-As"),
    "acting as a name": ([("Muniment-Acted-As", "owner")], "Acted-As"),
    "acting as a key": ([("Muniment-Acted-As", "apikey_" + "0" * 32)], "Acted-As"),
    "acting as two": (
        [("Muniment-Acted-As", "prin_" + "0" * 32), ("Muniment-Acted-As", "prin_" + "0" * 32)],
        "Acted-As",
    ),
    "foreign host": ([("Host", "evil.example")], "ost"),
    "foreign host, our port": ([("Host", "evil.example:8787")], "ost"),
    "host with a tail": ([("Host", "127.0.0.1.evil.example")], "ost"),
    "host with letters for a port": ([("Host", "localhost:8787.evil.example")], "ost"),
    "empty host": ([("Host", "")], "ost"),
    "foreign origin": ([("Origin", "https://evil.example")], "rigin"),
    "no origin": ([("Origin", "null")], "rigin"),
    "origin with a tail": ([("Origin", "http://localhost.evil.example")], "rigin"),
    "origin with letters for a port": ([("Origin", "http://localhost:1.evil.example")], "rigin"),
}


@pytest.mark.parametrize("name", HEADERS)
async def test_r_19_r_48_odd_headers_are_refused_and_change_nothing(
    plain: Wire, store: str, name: str
) -> None:
    given, word = HEADERS[name]
    sha = (await plain.owner.get(document_url(store), params={"path": "/a.md"})).json()["sha256"]
    fill = {"sha": sha, "SHA": sha.upper(), "short": sha[:-1]}
    headers = [(key, value.format(**fill)) for key, value in given]
    before = await plain.state()
    answer = await plain.owner.put(
        document_url(store), params={"path": "/a.md"}, json={"content": "two"}, headers=headers
    )
    refused(answer, word)
    assert await plain.state() == before


async def test_r_02_r_19_the_good_headers_are_understood(plain: Wire, store: str) -> None:
    url, at = document_url(store), {"path": "/a.md"}
    for content, form in (("two", '"{}"'), ("three", "{}"), ("four", '  "{}"  ')):
        sha = (await plain.owner.get(url, params=at)).json()["sha256"]
        answer = await plain.owner.put(
            url, params=at, json={"content": content}, headers={"If-Match": form.format(sha)}
        )
        assert answer.status_code == 200
    for name in ("Muniment-Version", "Checkfu-Version", "checkfu-version"):
        for date in ("2026-08-24", "2026-08-29"):
            answer = await plain.owner.get("/v1/whoami", headers={name: date})
            assert answer.status_code == 200
    for host in ("localhost:8787", "127.0.0.1", "LOCALHOST", "[::1]:8787", "[::1]"):
        answer = await plain.owner.get("/v1/whoami", headers={"Host": host})
        assert answer.status_code == 200, host
    for origin in (BASE, "http://localhost:3000", "http://[::1]:8787"):
        answer = await plain.owner.get("/v1/whoami", headers={"Origin": origin})
        assert answer.status_code == 200, origin


QUERIES = {
    "unknown": ("?path=/a.md&colour=red", "colour"),
    "unknown in other case": ("?Path=/a.md", "Path"),
    "repeated": ("?path=/a.md&path=/a.md", "path"),
    "missing": ("", "path"),
    "without a name": ("?=/a.md", "''"),
    "too many": ("?path=/a.md&" + "&".join(f"x{n}=1" for n in range(100)), ""),
}


@pytest.mark.parametrize("name", QUERIES)
async def test_odd_queries_are_refused(plain: Wire, store: str, name: str) -> None:
    query, word = QUERIES[name]
    before = await plain.state()
    for method, body in (("GET", None), ("PUT", {"content": "x"}), ("DELETE", None)):
        answer = await plain.owner.request(method, document_url(store) + query, json=body)
        refused(answer, word)
    assert await plain.state() == before
