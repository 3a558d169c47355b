"""Work that Ctrl-C stops."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


class Interrupted(Exception):
    """Ctrl-C stopped the work."""


async def interruptible(work: Awaitable[_T]) -> _T:
    """Await something that Ctrl-C stops, however quiet the loop is.

    Not left to the loop's runner: a signal that arrives just before the loop waits for its sockets does not end the
    wait, and only a handler of the loop's own wakes it.

    Raises:
        Interrupted: it was stopped so. No `KeyboardInterrupt`, which would leave the loop at once, with the closing of
            sockets still to be done.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    pressed = False

    def stop() -> None:
        nonlocal pressed
        pressed = True
        if task is not None:
            task.cancel()

    try:
        loop.add_signal_handler(signal.SIGINT, stop)
    except (NotImplementedError, ValueError, RuntimeError):
        # No such signals here, or not the main thread: the runner's own handling is all there is.
        return await work
    try:
        return await work
    except asyncio.CancelledError:
        if pressed:
            raise Interrupted from None
        raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
