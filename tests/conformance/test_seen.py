"""What the kit makes of calls that take their time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from isthmus.conformance import conform, seen, watch
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text


async def test_after_a_call_that_hung_a_slow_one_still_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """F24: a call that never ended shortens the wait for the others, but not below what an honest one took."""
    monkeypatch.setattr(seen, "AFTER_CANCEL", 0.05)
    calls: list[Any] = []

    class Slow:
        id = "slow"

        async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
            calls.append(ctx)
            await asyncio.sleep(3600 if len(calls) == 2 else 0.12)
            yield Text("Hello")
            yield Finish("stop")

    report = await conform(Slow, patience=0.5)
    assert [finding.law for finding in report.findings] == ["answers"]
    assert not [law.id for law in report.laws if law.reason == "each call takes too long"]


_PATIENCE = 0.2
_STILL = [sys.executable, "-c", "import time; time.sleep(3)"]


class _Once:
    """Makes adapters of which one call alone does not go on: the nth, in one place."""

    id = "once"

    def __init__(self, place: str, nth: int) -> None:
        self.place, self.nth, self.calls, self.held = place, nth, count(1), 0.0

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        mine = self.place if next(self.calls) == self.nth else ""
        if mine not in ("", "the middle", "the end"):
            await self._hold(mine)
        try:
            yield Text("Hel")
            if mine == "the middle":
                await self._hold(mine)
            await asyncio.sleep(0)
            yield Text("lo")
            yield Finish("stop")
        finally:
            if mine == "the end":
                await self._hold(mine)

    async def _hold(self, how: str) -> None:
        started = time.monotonic()
        try:
            if how == "a blocked loop":
                time.sleep(3)
            if how == "a process":
                subprocess.run(_STILL, capture_output=True, check=False)
            await asyncio.sleep(3)
            while how == "a swallowed cancellation":
                await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            if how != "a swallowed cancellation":
                raise
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3)
        finally:
            self.held = time.monotonic() - started


@pytest.mark.parametrize(
    "place", ["the start", "the middle", "the end", "a swallowed cancellation", "a blocked loop", "a process"]
)
async def test_a_run_ends_in_time_whichever_call_hangs(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """F24: a run is bounded, and tells of the call that hung, be it the first or a later one."""
    for module in (seen, watch):
        monkeypatch.setattr(module, "AFTER_CANCEL", 0.05)
    nths = (2, 8) if place in ("a blocked loop", "a process") else range(1, 13)
    made = [_Once(place, nth) for nth in nths]
    reports = await asyncio.gather(*(conform(lambda one=one: one, patience=_PATIENCE) for one in made))
    assert max(report.seconds for report in reports) < 2.5
    quiet = [one.nth for one, report in zip(made, reports, strict=True) if report.ok and one.held >= _PATIENCE]
    assert not quiet
    assert not all(report.ok for report in reports)


class _Fills:
    """Takes its time for each token of its ceiling, as a small model that never ends by itself."""

    id = "fills"

    def __init__(self, *, max_tokens: int = 4096) -> None:
        self.max_tokens = max_tokens

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        await asyncio.sleep(0.0002 * (ctx.max_output_tokens or self.max_tokens))
        yield Text("la la la")
        yield Finish("length")


async def test_a_slow_model_is_asked_for_little() -> None:
    """A model that fills any ceiling is judged by every law that applies: its default would take all the time."""
    report = await conform(_Fills, patience=0.25)
    assert report.ok, report.table()
    assert not [law for law in report.laws if law.status == "skip"]
