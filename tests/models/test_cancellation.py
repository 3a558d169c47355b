"""The token by which work learns that nobody waits for it."""

import asyncio
import threading

import pytest

from isthmus.models.cancellation import CancellationToken


async def test_a_token_wakes_those_who_wait_from_any_thread() -> None:
    """`cancel` in another thread ends `wait`, sets the flag and makes `raise_if_cancelled` raise."""
    token = CancellationToken()
    token.raise_if_cancelled()
    assert repr(token) == "CancellationToken(cancelled=False)"
    waiting = asyncio.ensure_future(token.wait())
    await asyncio.sleep(0)
    threading.Thread(target=token.cancel).start()
    await asyncio.wait_for(waiting, 5)
    await token.wait()
    assert token.cancelled
    with pytest.raises(InterruptedError):
        token.raise_if_cancelled()


def test_callbacks_are_called_once() -> None:
    """A callback hears of the first `cancel` alone, of one that was before at once, of none once it is taken off."""
    token, heard = CancellationToken(), list[str]()
    token.on_cancel(lambda: heard.append("kept"))
    forget = token.on_cancel(lambda: heard.append("taken off"))
    forget()
    forget()
    token.cancel()
    token.cancel()
    token.on_cancel(lambda: heard.append("late"))
    assert heard == ["kept", "late"]


async def test_waiting_leaves_nothing_behind() -> None:
    """Who stops waiting is forgotten by the token."""
    token = CancellationToken()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(token.wait(), 0.001)
    assert token._callbacks == []


def test_a_callback_that_raises_keeps_none_of_the_others_from_their_call() -> None:
    """All are called, in the order in which they came; then `cancel` raises what one of them raised."""
    token, called = CancellationToken(), []

    def fail() -> None:
        called.append("b")
        raise LookupError("mine")

    token.on_cancel(lambda: called.append("a"))
    token.on_cancel(fail)
    token.on_cancel(lambda: called.append("c"))
    with pytest.raises(LookupError, match="mine"):
        token.cancel()
    assert (called, token.cancelled) == (["a", "b", "c"], True)
    token.cancel()
