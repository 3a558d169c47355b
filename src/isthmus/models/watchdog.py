"""The one watchdog of a stream: interrupts the task that has waited too long for what comes next."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncGenerator, Callable
from time import monotonic
from typing import Any

import msgspec

from isthmus.errors import TransientError
from isthmus.models.contract import Timeouts

# Asked once an event. On 3.11 `asyncio.current_task` is Python and takes longer than all else here, so the table behind
# it is read; from 3.12 on it is C.
if sys.version_info >= (3, 12):
    running_task: Callable[[Any], asyncio.Task[Any] | None] = asyncio.current_task
else:
    running_task = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]

UNTIMED = Timeouts(connect=None, first_content=None, idle=None, total=None)
"""Waits for ever."""
_IMPATIENT = 0.05


class Interruption(str):
    """Why a watchdog cancelled the task that waited: what its `CancelledError` says."""

    __slots__ = ()


CLOSED = Interruption("closed")
"""The consumer closed the stream from elsewhere."""
DEADLINE = "deadline"
"""The code of a time-out that no other try would mend."""


class Watchdog(msgspec.Struct, eq=False):
    """One timer a stream: interrupts the task that waits for the next event once that has taken too long.

    Counts only while somebody waits: a slow consumer never runs into it. The stream itself says whether that is so, and
    is asked only when the timer fires.
    """

    _timeouts: Timeouts
    _loop: asyncio.AbstractEventLoop | None = None
    _handle: asyncio.TimerHandle | None = None
    _pump: Callable[[], AsyncGenerator[Any, None] | None] | None = None
    _started: float = 0.0
    _until: float | None = None
    _home: asyncio.Task[Any] | None = None
    _baseline: int = 0
    _hit: str | None = None
    _patience: float = 0.0
    task: asyncio.Task[Any] | None = None
    since: float = 0.0
    closing: bool = False

    def guard(self, pump: AsyncGenerator[Any, None]) -> None:
        """Watch this generator; it may go away when nobody else holds it."""
        self._pump = weakref.ref(pump)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Arm the timer."""
        self._loop = loop
        self._started = self.since = monotonic()
        self.task = self._home = running_task(loop)
        self._baseline = self.task.cancelling() if self.task is not None else 0
        if self._timeouts is not UNTIMED:
            self._begin()

    @property
    def timed(self) -> bool:
        """Whether anything has been timed, so that a wait that is none of it needs a `restart`."""
        return self._handle is not None or self._timeouts is not UNTIMED

    def restart(self, timeouts: Timeouts, left: float | None = None) -> None:
        """Time something new from now on: another try within the same stream, or, without limits, nothing.

        Args:
            timeouts: the limits of what begins.
            left: in how many seconds all of it must be over, whatever `timeouts` allows; None for no such limit.
        """
        self._timeouts = timeouts
        self._started = self.since = monotonic()
        self._until = None if left is None else self._started + left
        self._begin(left)

    def heard(self) -> None:
        """Something came that the reader does not see yet."""
        self.since = monotonic()

    def _begin(self, left: float | None = None) -> None:
        """Look again as soon as any limit may be over: an event may come at once, and `idle` count from then on."""
        loop, handle, wait = self._loop, self._handle, self._timeouts.soonest
        if left is not None and (wait is None or left < wait):
            wait = left
        if wait is None or loop is None:
            return
        due = loop.time() + max(wait, 0.001)
        if handle is not None:
            if handle.when() <= due:
                # It looks again in time by itself, and knows then what to look for.
                return
            handle.cancel()
        self._handle = loop.call_at(due, self._tick)

    def stop(self) -> None:
        """Disarm it; an interruption that somebody else caught is taken back."""
        if self._hit is not None and self.task is not None:
            self.task.uncancel()
        self.task = self._hit = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def waiting(self) -> bool:
        """Whether a task waits for the next event at this moment."""
        pump: Any = None if self._pump is None else self._pump()
        return pump is not None and pump.ag_running

    def _limit(self) -> tuple[float, str] | None:
        """In how many seconds from now what expires next, and its name."""
        now, times = monotonic(), self._timeouts
        first = self.since == self._started
        patience, name = (times.first_content, "first content") if first else (times.idle, "idle")
        limit = None
        if patience is not None:
            limit = (self.since + patience - now, name)
        elif first and times.idle is not None:
            # Nothing limits the wait for the first event; look again when the next one may be due.
            limit = (times.idle, name)
        if times.total is not None:
            total = (self._started + times.total - now, "total")
            limit = total if limit is None else min(limit, total)
        if self._until is not None:
            until = (self._until - now, DEADLINE)
            limit = until if limit is None else min(limit, until)
        return limit

    def _why(self, name: str) -> str:
        times = self._timeouts
        if name == DEADLINE:
            return f"{DEADLINE}: the time for all tries is over"
        if name == "total":
            return f"total: {times.total:g} s are over"
        return f"{name}: no event for {times.idle if name == 'idle' else times.first_content:g} s"

    def _arm(self, limit: tuple[float, str] | None, least: float = 0.001) -> None:
        if limit is not None and self._loop is not None:
            # An event may come while the first one is awaited, and `idle` be over before that wait would have been.
            idle = self._timeouts.idle
            left = limit[0] if idle is None else min(limit[0], idle)
            self._handle = self._loop.call_later(max(left, least), self._tick)

    def _tick(self) -> None:
        self._handle = None
        limit = self._limit()
        if limit is None:
            return
        if not self.waiting():
            self._arm(limit, self._pause())
        elif limit[0] > 0:
            self._arm(limit)
        else:
            self.interrupt(self._why(limit[1]))

    def _pause(self) -> float:
        """How long to leave a stream alone whose consumer is busy."""
        return min(t for t in (self._timeouts.idle, self._timeouts.first_content, 1.0) if t)

    def interrupt(self, why: str) -> None:
        """Cancel the task that waits."""
        if self.task is not None and self._hit is None:
            self._hit = why
            if self.task is not self._home:
                self._home, self._baseline = self.task, self.task.cancelling()
            self.task.cancel(Interruption(why))

    async def end(self) -> None:
        """Disarm it; an interruption of this very task arrives here if it has not: it is to end nothing else."""
        try:
            if self._hit is not None and self.task is asyncio.current_task():
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            if self.claim() is None:
                raise
        finally:
            self.stop()

    async def respite(self) -> None:
        """Leave the task that was interrupted time to go: each time more, at the most 50 ms."""
        pause = self._patience
        self._patience = min(pause * 2 + 0.001, _IMPATIENT)
        await asyncio.sleep(pause)

    def claim(self) -> str | None:
        """Why a cancellation that was just caught is this watchdog's own; None if somebody else wants it too."""
        why, self._hit = self._hit, None
        if why is None or self.task is None:
            return None
        return why if self.task.uncancel() <= self._baseline else None

    def overdue(self) -> TransientError | None:
        """The time-out behind a cancellation that the source caught itself, which is taken back; None for any other."""
        why = None if self.closing else self.claim()
        if why is None:
            return None
        code = DEADLINE if why.startswith(DEADLINE) else None
        return TransientError(f"time-out: {why}", code=code)
