"""A thread with a loop of its own for a stranger's adapter, and a second one that sees when that loop stands still."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

BEAT = 0.004
TICK = 0.005
LATE = 0.03
"""Seconds for which the loop has not moved, before it counts as blocked."""
_LOOKS = 2
"""Looks in a row that must have found it so: one alone may be the machine's own doing."""
AFTER_CANCEL = 1.0
"""Seconds that a call may take to end once it was cancelled."""
T = TypeVar("T")


class Left(BaseException):
    """Something tried to end this process without a word."""


class Hangs(TimeoutError):
    """A call took longer than it may; it was cancelled, and left where it went on."""


class CancelsItself(Exception):
    """A call ended as if somebody had cancelled it."""


async def within(work: Awaitable[T], seconds: float) -> T:
    """What a stranger's call gives, in bounded time even where it swallows its cancellation.

    Args:
        work: the call.
        seconds: how long it may take.

    Raises:
        Hangs: it took longer.
        CancelsItself: it ended with a cancellation that nobody asked for.
        BaseException: what it raised.
    """
    task = asyncio.ensure_future(_contained(work))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if task.cancelled():
            raise CancelsItself("cancelled by itself")
        if task.done():
            value, error = task.result()
            if error is not None:
                raise error
            return value[0]
    finally:
        task.cancel()
    await asyncio.wait({task}, timeout=AFTER_CANCEL)
    raise Hangs(f"no end within {seconds:.1f} s")


async def _contained(work: Awaitable[T]) -> tuple[list[T], BaseException | None]:
    try:
        return [await work], None
    except (KeyboardInterrupt, SystemExit) as error:
        # A loop hands these to whoever runs it, past everybody who waits.
        return [], error


class _Door:
    """Keeps `os._exit` shut while anybody wants it so."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.leave = os._exit
        self.process = 0

    def shut(self, status: int) -> Any:
        if os.getpid() != self.process:
            # A child that the adapter forked ends as it likes.
            self.leave(status)
        raise Left(f"os._exit({status}) would have ended the whole program")


_DOOR = _Door()


@contextmanager
def staying() -> Iterator[None]:
    """Raise `Left` where somebody calls `os._exit`: a program that is gone with status 0 would pass for a success."""
    with _DOOR.lock:
        if not _DOOR.count:
            _DOOR.leave, _DOOR.process = os._exit, os.getpid()
            os._exit = _DOOR.shut
        _DOOR.count += 1
    try:
        yield
    finally:
        with _DOOR.lock:
            _DOOR.count -= 1
            if not _DOOR.count:
                os._exit = _DOOR.leave


class Heart:
    """Tells whether a loop moves: it beats by itself, and somebody in another thread looks."""

    def __init__(self) -> None:
        self.beats = 0
        self.longest = 0.0
        self.where = ""
        self.still_since: float | None = None
        self._thread = 0
        self._over = threading.Event()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Beat in this loop, which runs in the calling thread."""
        self._thread = threading.get_ident()

        def beat() -> None:
            self.beats += 1
            if not self._over.is_set():
                loop.call_later(BEAT, beat)

        beat()
        threading.Thread(target=self._look, name="isthmus-conformance-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop beating and looking."""
        self._over.set()

    def reset(self) -> None:
        """Forget what was seen so far."""
        self.longest = 0.0
        self.where = ""

    def _look(self) -> None:
        last, moved, looks = -1, time.monotonic(), 0
        while not self._over.wait(TICK):
            now, place = time.monotonic(), "" if self.beats != last else self._place()
            if not place:
                last, moved, looks, self.still_since = self.beats, now, 0, None
                continue
            looks += 1
            self.still_since = self.still_since or now
            if looks >= _LOOKS and now - moved > self.longest:
                self.longest, self.where = now - moved, place

    def _place(self) -> str:
        """Where the loop's thread stands; "" while it waits in its selector, as it should."""
        frame = sys._current_frames().get(self._thread)
        if frame is None or _waits(frame):
            return ""
        return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"


def _waits(frame: FrameType) -> bool:
    """Whether the loop itself stands here; a stranger's call may wait in a selector of its own."""
    own, back = frame.f_code.co_filename, frame.f_back
    if own.endswith("selectors.py") and back is not None:
        own = back.f_code.co_filename
    return own.endswith("base_events.py")


async def elsewhere(work: Callable[[Heart], Awaitable[Any]], *, patience: float) -> bool:
    """Run work in a daemon thread with its own loop; False where that loop stood still for too long and was left.

    Args:
        work: what to run there; gets the heart of its loop.
        patience: seconds for which the loop may stand still.

    Raises:
        Exception: what the work raised.
    """
    heart = Heart()
    over = threading.Event()
    failed: list[BaseException] = []

    def run() -> None:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda _, context: None)
        asyncio.set_event_loop(loop)
        try:
            loop.call_soon(heart.start, loop)
            loop.run_until_complete(work(heart))
            loop.run_until_complete(_settled(loop))
        except BaseException as error:
            failed.append(error)
        finally:
            heart.stop()
            asyncio.set_event_loop(None)
            loop.close()
            over.set()

    threading.Thread(target=run, name="isthmus-conformance", daemon=True).start()
    while not over.is_set():
        await asyncio.sleep(TICK)
        still = heart.still_since
        if still is not None and time.monotonic() - still > patience:
            heart.stop()
            return False
    if failed:
        raise failed[0]
    return True


async def _settled(loop: asyncio.AbstractEventLoop) -> None:
    """Give what was left running a moment to end; what does not is left."""
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in left:
        task.cancel()
    if left:
        _, stuck = await asyncio.wait(left, timeout=0.2)
        if stuck:
            # Whoever collects them runs their code once more, and that code may not end.
            threading.Thread(target=_hold, args=(stuck,), name="isthmus-conformance-left", daemon=True).start()
    closing = asyncio.ensure_future(loop.shutdown_asyncgens())
    await asyncio.wait({closing}, timeout=0.5)


def _hold(things: Any) -> None:
    """Keep things alive as long as the program is."""
    threading.Event().wait()
