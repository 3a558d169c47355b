"""A fair semaphore for tasks of any event loop and thread."""

from __future__ import annotations

import threading
from asyncio import AbstractEventLoop, CancelledError, Future, get_running_loop
from collections import deque
from contextlib import suppress


class Slots:
    """A number of places, given out in the order in which they were asked for.

    Unlike `asyncio.Semaphore` it may be shared by event loops in different threads: whoever gives a place back wakes
    the one who waited longest, in that one's own loop. Who is cancelled while waiting leaves no place taken.

    Args:
        count: how many there are.
    """

    __slots__ = ("_count", "_free", "_lock", "_waiting")

    def __init__(self, count: int) -> None:
        self._free = self._count = count
        # Reentrant: a waiter that is thrown away gives its place back from wherever the garbage collector runs.
        self._lock = threading.RLock()
        self._waiting: deque[tuple[AbstractEventLoop, Future[None]]] = deque()

    def take_free(self) -> bool:
        """Take a place that nobody waits for, if there is one; whether there was."""
        with self._lock:
            free = self._free > 0 and not self._waiting
            self._free -= free
            return free

    async def take(self) -> None:
        """Wait for a place."""
        with self._lock:
            if self.take_free():
                return
            loop = get_running_loop()
            mine = (loop, loop.create_future())
            self._waiting.append(mine)
        try:
            await mine[1]
        except (CancelledError, GeneratorExit):
            with self._lock:
                waited = mine in self._waiting
                if waited:
                    self._waiting.remove(mine)
            if not waited:
                # It had been handed over already.
                self.give()
            raise

    def give(self) -> None:
        """Give a place back; from any thread.

        Raises:
            RuntimeError: none is taken.
        """
        with self._lock:
            if self._free >= self._count:
                raise RuntimeError("a place was given back that nobody had taken: release once for each acquire")
            while self._waiting:
                loop, future = self._waiting.popleft()
                # A loop that is closed has nobody waiting in it any more.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_wake, future)
                    return
            self._free += 1


def _wake(future: Future[None]) -> None:
    if not future.done():
        future.set_result(None)
