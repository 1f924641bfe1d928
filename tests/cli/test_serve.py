"""`muniment serve`: starting, stopping, and failing in one line."""

import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pytest

import muniment
from muniment.testing.server import Server
from shell import Shell


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_gracefully(tmp_path: Path, number: signal.Signals) -> None:
    with Server(tmp_path / "home") as server:
        with muniment.Client(server.url, server.key) as client:
            client.whoami()  # the connection stays open
            assert server.stop(number) == 0
        assert server.log.count("\n") == 1


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


def test_it_does_not_start_where_it_cannot_serve(shell: Shell, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        assert f"127.0.0.1:{port}" in shell.refusal("serve", "--port", port)
    assert "no.such.host.invalid" in shell.refusal("serve", "--host", "no.such.host.invalid")
    (tmp_path / "text").write_text("no database at all, but a text" * 50)
    assert "text" in shell.refusal("serve", "--port", "0", "--db", str(tmp_path / "text"))
    shell.environment["MUNIMENT_ADMIN_KEY"] = "short"
    assert "MUNIMENT_ADMIN_KEY" in shell.refusal("serve", "--port", "0")
