"""`muniment workspace`: the operator's commands, and what a disabled workspace says (R-49)."""

import json
import signal
import subprocess

import pytest

import muniment
from muniment.model.ids import DEFAULT_WORKSPACE
from muniment.testing.server import Server
from shell import Shell


def fields(text: str) -> dict[str, str]:
    """What a command prints as names and values."""
    return dict(line.split(maxsplit=1) for line in text.splitlines())


def test_the_operator_makes_lists_disables_and_enables_a_workspace_r49(shell: Shell) -> None:
    shell.answer("migrate")
    run = shell.run("workspace", "create", "acme")
    assert run.returncode == 0, run.stderr
    made = fields(run.stdout.decode())
    assert set(made) == {"workspace", "key"}
    assert made["key"] not in run.stderr.decode() and b"only now" in run.stderr
    me = json.loads(shell.answer("whoami", "--json", "--key", made["key"]))
    assert (me["workspace"]["id"], me["principal"]["name"]) == (made["workspace"], "owner")
    other = json.loads(shell.answer("workspace", "create", "acme", "--principal", "Ada", "--json"))
    assert other["principal"]["name"] == "Ada" and other["api_key"]["role"] == "admin"
    assert other["workspace"]["status"] == "active"
    shell.answer("whoami", "--key", other["api_key"]["secret"])
    listed = shell.answer("workspace", "list").splitlines()
    assert listed[0].split() == ["NAME", "ID", "STATUS", "CREATED"]
    assert [line.split()[0] for line in listed[1:]] == ["default", "acme", "acme"]
    for _ in range(2):
        assert shell.answer("workspace", "disable", made["workspace"]) == ""
    said = shell.refusal("whoami", "--key", made["key"])
    assert "disabled" in said and f"muniment workspace enable {made['workspace']}" in said
    shell.answer("whoami", "--key", other["api_key"]["secret"])
    found = json.loads(shell.answer("workspace", "list", "--json"))
    states = {one["id"]: one["status"] for one in found}
    assert states[made["workspace"]] == "disabled" and list(states.values()).count("active") == 2
    assert (
        json.loads(shell.answer("workspace", "enable", made["workspace"], "--json"))["status"]
        == "active"
    )
    shell.answer("whoami", "--key", made["key"])


def test_a_server_and_its_clients_see_it_at_once_r49(shell: Shell) -> None:
    with Server(shell.home) as server:
        made = fields(shell.answer("workspace", "create", "acme"))
        with muniment.Client(server.url, made["key"]) as client:
            store = client.stores.create("notes").id
            shell.answer("workspace", "disable", made["workspace"])
            with pytest.raises(muniment.DisabledTenancy, match="workspace enable") as raised:
                client.documents.put(store, "/a.md", "x")
            assert (raised.value.status, raised.value.type) == (403, "auth.disabled_tenancy")
            shell.answer("workspace", "enable", made["workspace"])
            client.documents.put(store, "/a.md", "x")
        shell.answer("workspace", "disable", made["workspace"])
        database = shell.home / "muniment.db"
        with (
            muniment.open(database, key=made["key"]) as embedded,
            pytest.raises(muniment.DisabledTenancy),
        ):
            embedded.whoami()


def test_workspaces_are_no_business_of_a_servers_r49(server: Server, shell: Shell) -> None:
    shell.answer("migrate")
    for command in (("create", "acme"), ("list",), ("disable", "x"), ("enable", "x")):
        said = shell.refusal("workspace", *command, "--url", server.url)
        assert "on the database itself" in said and "--db" in said
    shell.environment["MUNIMENT_URL"] = server.url
    assert "MUNIMENT_URL" in shell.refusal("workspace", "list")
    database = str(shell.home / "muniment.db")
    shell.answer("workspace", "create", "acme", "--db", database)
    assert "acme" in shell.answer("workspace", "list", "--db", database)


def test_what_is_no_workspace_or_no_database_is_refused_r49(shell: Shell) -> None:
    said = shell.refusal("workspace", "create", "acme")
    assert f"no database at {shell.home / 'muniment.db'}" in said
    assert not shell.home.exists()
    assert "memory:" in shell.refusal("workspace", "create", "acme", "--db", "memory:")
    shell.answer("migrate")
    # A database that no server has started yet: the operator's commands make no owner.
    shell.answer("workspace", "create", "acme")
    assert not (shell.home / "credentials").exists()
    assert "no such workspace" in shell.refusal("workspace", "disable", "wsp_" + "f" * 32)
    assert "wsp_" in shell.refusal("workspace", "enable", "acme")
    assert "white space" in shell.refusal("workspace", "create", " ")
    shell.refusal("workspace", "create", status=2)


def test_a_disabled_default_workspace_says_how_it_is_enabled_again_r49(shell: Shell) -> None:
    shell.answer("store", "create", "notes")
    shell.answer("workspace", "disable", DEFAULT_WORKSPACE)
    again = f"muniment workspace enable {DEFAULT_WORKSPACE}"
    assert again in shell.refusal("store", "list")
    process = shell.start("serve", "--port", "0", stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = ""
    while "Ctrl-C" not in said:
        line = process.stderr.readline().decode()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    process.stderr.close()
    assert again in said and "holds the owner's" not in said and "none of this database" not in said
    shell.answer("workspace", "enable", DEFAULT_WORKSPACE)
    assert "notes" in shell.answer("store", "list")


def test_on_postgresql_a_workspace_is_made_without_a_warning_r49(
    shell: Shell, postgres_dsn: str
) -> None:
    shell.answer("migrate", "--db", postgres_dsn)
    run = shell.run("workspace", "create", "acme", "--db", postgres_dsn, "--json")
    assert (run.returncode, run.stderr) == (0, b"")
    made = json.loads(run.stdout)
    secret = made["api_key"]["secret"]
    assert "acme" in shell.answer("whoami", "--db", postgres_dsn, "--key", secret)
    shell.answer("workspace", "disable", made["workspace"]["id"], "--db", postgres_dsn)
    assert "disabled" in shell.refusal("whoami", "--db", postgres_dsn, "--key", secret)
