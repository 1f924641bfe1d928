"""How a function that builds a call becomes a method of a client, blocking or not.

The method takes what the function takes and returns what its call reads; the docstring is the
function's. So both clients have the same methods, and each is written once.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from muniment.client.calls import Call
from muniment.client.records import Page

P = ParamSpec("P")
T = TypeVar("T")


class Sender(Protocol):
    """What sends calls and waits for what they read."""

    def send(self, call: Call[T]) -> T:
        """What the call's answer says."""


class AsyncSender(Protocol):
    """What sends calls without blocking."""

    async def send(self, call: Call[T]) -> T:
        """What the call's answer says."""


def method(build: Callable[P, Call[T]]) -> Callable[Concatenate[Any, P], T]:
    """A blocking method."""

    @wraps(build)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        sender: Sender = self.sender
        return sender.send(build(*args, **kwargs))

    return _described(call, build)


def async_method(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """A method to await."""

    @wraps(build)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        sender: AsyncSender = self.sender
        return await sender.send(build(*args, **kwargs))

    return _described(call, build)


def items(build: Callable[P, Call[Page[T]]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """A method that iterates over all pages of a list, fetching each when it is reached."""

    @wraps(build)
    def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        sender: Sender = self.sender
        call = build(*args, **kwargs)
        while True:
            page = sender.send(call)
            yield from page.items
            if page.next_page is None:
                return
            call = call.at(page.next_page)

    return _described(iterate, build)


def async_items(
    build: Callable[P, Call[Page[T]]],
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    """Like `items`, for `async for`."""

    @wraps(build)
    async def iterate(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        sender: AsyncSender = self.sender
        call = build(*args, **kwargs)
        while True:
            page = await sender.send(call)
            for item in page.items:
                yield item
            if page.next_page is None:
                return
            call = call.at(page.next_page)

    return _described(iterate, build)


F = TypeVar("F", bound=Callable[..., Any])


def _described(made: F, build: Callable[..., Any]) -> F:
    """The method with a signature that begins with `self`, for `help` and editors."""
    signature = inspect.signature(build)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    given = signature.return_annotation.__args__[0]
    made.__signature__ = signature.replace(  # type: ignore[attr-defined]  # read by inspect
        parameters=[this, *signature.parameters.values()], return_annotation=given
    )
    return made
