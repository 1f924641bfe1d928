"""The event loop in a thread: closing it while others use it ends their waiting."""

import asyncio
import threading
import time

import pytest

from muniment.client.portal import Portal, PortalClosed

ROUNDS = 200


async def answer() -> int:
    return 1


def test_a_close_beside_a_call_leaves_nobody_waiting() -> None:
    for _ in range(ROUNDS):
        portal = Portal()
        outcomes: list[object] = []

        def call(portal: Portal = portal, outcomes: list[object] = outcomes) -> None:
            try:
                while True:
                    outcomes.append(portal.run(answer()))
            except PortalClosed as error:
                outcomes.append(error)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        while not outcomes:
            time.sleep(0)
        portal.close()
        thread.join(10)
        assert not thread.is_alive()
        assert isinstance(outcomes[-1], PortalClosed)


def test_what_is_scheduled_while_it_closes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    portal = Portal()
    schedule = asyncio.run_coroutine_threadsafe
    closing = threading.Thread(target=portal.close)

    def late(*given):
        closing.start()
        closing.join(0.3)  # it would have closed, if it had not to wait
        return schedule(*given)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
    outcome: list[object] = []

    def call() -> None:
        try:
            outcome.append(portal.run(answer()))
        except PortalClosed as error:
            outcome.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    caller.join(10)
    assert not caller.is_alive() and len(outcome) == 1
    closing.join(10)


def test_a_call_that_runs_when_it_closes_says_so() -> None:
    portal = Portal()
    began = threading.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(60)

    failures: list[Exception] = []

    def call() -> None:
        try:
            portal.run(long())
        except Exception as error:
            failures.append(error)

    caller = threading.Thread(target=call, daemon=True)
    caller.start()
    began.wait(10)
    portal.close()
    caller.join(10)
    assert [type(failure) for failure in failures] == [PortalClosed]


def test_generators_are_closed_with_it() -> None:
    portal = Portal()
    ended = threading.Event()

    async def numbers():
        try:
            yield 1
            yield 2
        finally:
            ended.set()

    kept = numbers()

    async def first() -> int:
        return await anext(kept)

    assert portal.run(first()) == 1
    portal.close()
    assert ended.is_set()
