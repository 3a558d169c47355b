"""How handlers are called: in threads where they are plain, with as much as they ask for."""

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest

from isthmus.models.handlers import Arguments, handler_call, in_thread, is_async

VARIABLE = contextvars.ContextVar("VARIABLE", default=0)


def test_what_is_async() -> None:
    """Coroutine functions, partials of them and objects with an async `__call__` are."""

    async def func() -> None: ...

    class Caller:
        async def __call__(self) -> None: ...

    assert all(map(is_async, (func, functools.partial(func), Caller())))
    assert not any(map(is_async, (len, lambda: func(), functools.partial(len))))


@pytest.mark.parametrize(
    ("handler", "seen"),
    [
        (lambda args: (args,), ("a",)),
        (lambda args, one: (args, one), ("a", "t")),
        (lambda args, one, two: (args, one, two), ("a", "t", "c")),
        (lambda args, context: (args, context), ("a", "c")),
        (lambda args, context, cancellation_token: (context, cancellation_token), ("c", "t")),
        (lambda args, *, context: (args, context), ("a", "c")),
        (lambda args, other=7: (args, other), ("a", 7)),
        (lambda *args: args, ("a", "t", "c")),
        (dict, None),
    ],
)
def test_a_handler_gets_what_its_signature_takes(handler: Any, seen: Any) -> None:
    """Arguments come first, then token and context: by name, else in this order; what has a default keeps it."""
    assert handler_call(handler)("a" if seen else {"k": 1}, "t", "c") == (seen or {"k": 1})


async def test_a_thread_sees_context_variables_and_hands_back() -> None:
    """A plain handler runs elsewhere, with the caller's context variables; its result and its error come back."""
    VARIABLE.set(5)
    here = threading.get_ident()
    assert await in_thread(lambda: (VARIABLE.get(), threading.get_ident() != here), "t") == (5, True)
    with pytest.raises(ZeroDivisionError):
        await in_thread(lambda: 1 / 0, "t")


async def test_a_thread_is_left_behind() -> None:
    """F10: who waits for a thread can be cancelled at once; that it ends later disturbs nobody."""
    release, done = threading.Event(), threading.Event()

    def work() -> None:
        release.wait(10)
        done.set()

    waiting = asyncio.ensure_future(in_thread(work, "t"))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    release.set()
    assert done.wait(10)
    await asyncio.sleep(0.01)


def test_arguments_are_a_dict_with_attributes() -> None:
    """Changed copies are made as of any dict."""
    args = Arguments(topic="x")
    assert (args.topic, args["topic"], {**args, "limit": 1}) == ("x", "x", {"topic": "x", "limit": 1})
    with pytest.raises(AttributeError, match="no argument 'limit'; there are topic"):
        args.limit  # noqa: B018
