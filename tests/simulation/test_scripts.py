"""Random scripts of whole requests get equal answers, byte by byte, on every storage (C-014)."""

import asyncio
from collections import Counter
from functools import cache
from inspect import getsource

import pytest

from muniment.api.native import dialect
from muniment.api.native.envelope import STATUS
from muniment.model.errors import Internal
from muniment.storage.base import Transaction
from muniment.testing import contents, invariants
from muniment.testing.simulation import BASE_URL, KINDS, Kind, Run, Script, command, simulate
from muniment.testing.simulation_deeds import DEEDS
from muniment.testing.simulation_steps import STEPS
from muniment.testing.simulation_world import DEED, Answer, Request

SEEDS = range(1, 7)
COUNT = 400
CALLING_SEEDS = range(1, 13)
"""More scripts, on the in-memory storage alone, to see what they call."""

CAUSED = {(each.code, status) for each, status in STATUS.items() if each is not Internal}
"""The failures that a request can cause or meet; what is left is a fault of the server."""


def ran(seed: int, kinds: dict[str, Kind], count: int = COUNT) -> Run:
    return asyncio.run(simulate(Script(seed, count), kinds))


@cache
def on_memory() -> tuple[Run, ...]:
    return tuple(ran(seed, {"memory": KINDS["memory"]}, 500) for seed in CALLING_SEEDS)


@pytest.mark.postgres
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_script_gets_equal_answers_on_every_storage_c014(
    every_kind: dict[str, Kind], seed: int
) -> None:
    ran(seed, every_kind)


@pytest.mark.parametrize("seed", range(101, 102))
def test_a_random_script_gets_equal_answers_sealed_or_not_c014(seed: int) -> None:
    ran(seed, dict(KINDS))


def test_the_scripts_call_every_route_and_have_it_succeed_and_refuse() -> None:
    called: Counter[tuple[str, int]] = sum((run.called() for run in on_memory()), Counter())
    succeeded = {route for route, status in called if status < 300}
    refused = {route for route, status in called if status >= 400}
    routes = {f"{route.method} {route.path}" for route in dialect(BASE_URL).routes}
    assert routes - succeeded == set()
    assert routes - refused == set()


def test_the_scripts_meet_every_failure_that_a_request_can_cause() -> None:
    met = {failure for run in on_memory() for failure in run.failures()}
    assert met == CAUSED


def test_the_scripts_take_every_step_and_do_every_deed() -> None:
    taken = [one for run in on_memory() for one in run.taken]
    assert {one.name for one in taken} == set(STEPS)
    assert {one.route for one in taken if one.request.method == DEED} == {
        f"{DEED} {name}" for name in DEEDS
    }


def test_the_scripts_send_requests_again_under_their_idempotency_keys_r47() -> None:
    replayed: Counter[str] = Counter()
    for run in on_memory():
        first: dict[Request, Answer] = {}
        for one in run.taken:
            if "Idempotency-Key" in dict(one.request.headers) and one.answer.status < 300:
                made = first.setdefault(one.request, one.answer)
                if made is not one.answer:
                    same = made.body == one.answer.body
                    replayed[f"{one.request.method} {same}"] += 1
    assert replayed["POST True"] > 5
    assert replayed["PUT True"] > 0


def test_a_worker_ends_deletions_that_the_database_interrupted_c171() -> None:
    turns = [one.answer.json() for run in on_memory() for one in run.taken if one.name == "work"]
    assert {"jobs": 1} in turns
    assert any("error" in turn for turn in turns)


def test_the_rows_compared_are_all_that_the_port_can_list() -> None:
    text = getsource(contents) + getsource(invariants)
    listing = [name for name in dir(Transaction) if name.startswith("list_")]
    assert [name for name in listing if f"tx.{name}(" not in text] == []


def test_what_a_script_asks_is_the_seeds_alone() -> None:
    kinds = {"memory": KINDS["memory"]}
    first, again, other = (ran(seed, kinds, 60) for seed in (1, 1, 2))
    assert first == again
    assert first.transcript() != other.transcript()


def test_a_step_asks_much_the_same_where_other_steps_are_left_out() -> None:
    whole = {one.number: one.request for one in on_memory()[0].taken}
    kept = tuple(number for number in whole if number % 10)
    found = asyncio.run(simulate(Script(1, kept=kept), {"memory": KINDS["memory"]}))
    same = [one for one in found.taken if whole[one.number] == one.request]
    assert len(same) > len(kept) * 0.6


def test_the_command_tells_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["--seed", "3-4", "--steps", "40", "--storage", "memory,sqlite"]) == 0
    told = capsys.readouterr().out
    assert "seed 3: 40 steps, equal on memory, sqlite" in told
    assert "seed 4: 40 steps" in told
    assert command(["--storage", "memory", "--keep", "1-3,9", "--transcript"]) == 0
    told = capsys.readouterr().out
    assert "seed 1: 4 steps" in told
    assert "# 9 " in told
