"""`muniment serve`: starting, stopping, and failing in one line."""

import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import muniment
from muniment import main
from muniment.settings import load
from muniment.testing.server import Server
from shell import Shell


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(tmp_path: Path, number: signal.Signals) -> None:
    with Server(tmp_path / "home") as server:
        with muniment.Client(server.url, server.key) as client:
            client.whoami()  # the connection stays open
            assert server.stop(number) == 0
        assert server.log.count("\n") == 1


def test_a_signal_that_comes_with_the_greeting_stops_it(tmp_path: Path) -> None:
    # Between the last line and the server's own handlers nothing may be lost.
    script = (
        "import os, signal, sys\n"
        "from muniment.cli import serve\n"
        "def note(text):\n"
        "    print(text, file=sys.stderr, flush=True)\n"
        "    if 'Ctrl-C' in text: os.kill(os.getpid(), signal.SIGINT)\n"
        "serve.note = note\n"
        "from muniment.settings import load\n"
        f"serve.serve(load({{}}, home={str(tmp_path)!r}, port=0), quiet=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=30)
    assert done.returncode == 0 and done.stderr.endswith(b"stopped\n")


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    with Server(tmp_path / "home") as server:
        with muniment.Client(server.url, server.key) as client:
            store = client.stores.create("notes").id
            left = client.documents.put(store, "/a", "x")
        server.kill()
        server.start()
        with muniment.Client(server.url, server.key) as client:
            assert client.documents.get(store, "/a").sha256 == left.sha256


def test_it_says_where_it_is_and_where_the_key_lies_r05(shell: Shell) -> None:
    process = shell.start("serve", "--port", "0", stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = ""
    while "Ctrl-C" not in said:
        line = process.stderr.readline().decode()
        assert line, said
        said += line
    url = re.search(r"http://127\.0\.0\.1:\d+", said)
    assert url is not None
    assert str(shell.home / "credentials") in said
    assert httpx.get(f"{url[0]}/readyz").json() == {"status": "ready"}
    more = httpx.get(f"{url[0]}/v1/whoami").json()["error"]["more"]
    assert more.startswith(url[0])
    process.terminate()
    assert process.wait(30) == 0
    process.stderr.close()


def test_it_promises_no_key_that_the_database_does_not_take_r05(shell: Shell) -> None:
    shell.answer("store", "create", "notes")
    revoked = json.loads(shell.answer("whoami", "--json"))["api_key"]["id"]
    shell.answer("key", "revoke", revoked)
    said = start(shell)
    assert "is none of this database" in said and "MUNIMENT_ADMIN_KEY" in said
    assert "holds the owner's" not in said and "export MUNIMENT_API_KEY=…" in said
    shell.environment["MUNIMENT_ADMIN_KEY"] = "x" * 32
    said = start(shell)
    assert "holds the owner's" not in said and "MUNIMENT_API_KEY=$MUNIMENT_ADMIN_KEY" in said


def start(shell: Shell) -> str:
    """What a server says until it is ready; it is then stopped."""
    process = shell.start("serve", "--port", "0", stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = ""
    while "Ctrl-C" not in said:
        line = process.stderr.readline().decode()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert process.stderr.read().splitlines()[-1] == b"stopped"
    process.stderr.close()
    return said


async def test_a_shared_database_takes_the_key_of_the_home_that_made_it(
    tmp_path: Path, postgres_dsn: str
) -> None:
    for home, accepted in (("first", True), ("fresh", False), ("first", True)):
        settings = load({}, home=tmp_path / home, database=postgres_dsn)
        async with main.opened_app(settings) as app:
            assert (await main.refusal_of_owner(settings, app) is None) is accepted


def test_what_libraries_log_is_json_too(tmp_path: Path) -> None:
    script = (
        "import asyncio, logging\n"
        "from muniment import main, settings\n"
        "main.configure_logging(settings.load({}, log_level='info'))\n"
        "logging.getLogger('muniment.x').info('ours', extra={'n': 1})\n"
        "logging.getLogger('asyncio').error('a task failed')\n"
        "logging.getLogger('uvicorn.error').info('not for us')\n"
        "logging.getLogger('asyncpg').error('said by the storage')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, cwd=tmp_path, check=True
    )
    lines = [json.loads(line) for line in run.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["ours", "a task failed"]
    assert (lines[0]["n"], lines[1]["level"]) == (1, "error")


def test_it_is_reached_over_ipv6(shell: Shell) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6 here")
    with Server(shell.home, settings={"MUNIMENT_HOST": "::1"}) as server:
        assert server.url.startswith("http://[::1]:")
        more = httpx.get(f"{server.url}/v1/whoami").json()["error"]["more"]
        assert more.startswith(server.url)


def test_it_does_not_start_where_it_cannot_serve(shell: Shell, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"127.0.0.1:{port}" in shell.refusal("serve", "--port", port)
    assert "no.such.host.invalid" in shell.refusal("serve", "--host", "no.such.host.invalid")
    (tmp_path / "text").write_text("no database at all, but a text" * 50)
    assert "text" in shell.refusal("serve", "--port", "0", "--db", str(tmp_path / "text"))
    shell.environment["MUNIMENT_ADMIN_KEY"] = "x" * 32 + " "
    assert "MUNIMENT_ADMIN_KEY" in shell.refusal("serve", "--port", "0")


def said_to(server: Server, data: bytes) -> tuple[bytes, dict[str, str]]:
    """The status line and the error that the server answers these bytes with."""
    host, _, port = server.url.removeprefix("http://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    error: dict[str, str] = json.loads(body)["error"]
    return head.split(b"\r\n")[0], error


def test_c_234_what_is_not_http_and_heads_without_end_are_refused_in_the_envelope(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "home") as server:
        status, error = said_to(server, "GET /日本 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert status == b"HTTP/1.1 400 Bad Request"
        assert error["type"] == "validation.malformed"
        assert error["more"] == f"{server.url}/docs/errors#validation-malformed"
        endless = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 70_000
        status, error = said_to(server, endless)
        assert status == b"HTTP/1.1 431 Request Header Fields Too Large"
        assert error["type"] == "validation.malformed"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
