"""An event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")


class _Jumping(selectors.SelectSelector):
    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing will ever happen: no timer, no I/O, nothing to run")
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs timers in order, without waiting."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)
        self._clock_resolution = 1e-9
        self._asked = 0

    def time(self) -> float:
        return self._jumping.now

    def stall(self, seconds: float) -> None:
        """Let time pass at once, as when something blocks the loop."""
        self._jumping.now += seconds

    def monotonic(self) -> float:
        """The same, but never twice the same: no two moments of a real clock are equal."""
        self._asked += 1
        return self._jumping.now + self._asked * 1e-9


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time; the watchdogs of streams run on it too. No task may be left over."""
    loop = VirtualLoop()

    async def checked() -> T:
        result = await main
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        return result

    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        patch("isthmus.models.stream.monotonic", loop.monotonic),
        patch("isthmus.models.watchdog.monotonic", loop.monotonic),
    ):
        return runner.run(checked())
