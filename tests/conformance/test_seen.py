"""What the kit makes of calls that take their time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from isthmus.conformance import conform, seen
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text


async def test_after_a_call_that_hung_a_slow_one_still_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """F24: a call that never ended shortens the wait for the others, but not below what an honest one took."""
    monkeypatch.setattr(seen, "_AFTER_CANCEL", 0.05)
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
