"""Hooks in order: who was told a start is told its end, once, and nobody an end that he was told no start of."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.harness import RunnerHooks
from isthmus.harness.audience import Audience


async def test_who_was_told_a_start_is_told_its_end_whoever_raises() -> None:
    """The one that raises was told; the one behind it was not; what is left is settled, and what fails there kept."""
    first, second, _ = everybody = RunnerHooks(), RunnerHooks(), RunnerHooks()
    audience, told = Audience(everybody), []

    def start(hooks: RunnerHooks) -> Any:
        told.append(("start", hooks))
        if hooks is second:
            raise LookupError("start")

    def end(hooks: RunnerHooks) -> Any:
        told.append(("end", hooks))
        if hooks is first:
            raise LookupError("end")

    with pytest.raises(LookupError, match="start"):
        await audience.starts("a", start, end=end)
    assert audience.owed("a")
    assert [str(each) for each in await audience.settle()] == ["end"]
    assert told == [("start", first), ("start", second), ("end", first), ("end", second)]
    assert not audience.owed("a")
    assert await audience.settle() == []


async def test_an_end_that_is_broken_off_is_settled_as_it_was_told() -> None:
    """Those behind one that raises are told the same end; what is excepted waits."""
    everybody = RunnerHooks(), RunnerHooks()
    audience, told = Audience(everybody), []

    def end(hooks: RunnerHooks) -> Any:
        told.append(hooks)
        if len(told) == 1:
            raise LookupError("end")

    await audience.starts("a", lambda _: None, end=lambda _: told.append(None))
    with pytest.raises(LookupError):
        await audience.ends("a", end)
    await audience.settle("a")
    assert told == [everybody[0]]
    await audience.settle()
    assert told == list(everybody)


async def test_an_end_alone_is_told_to_everybody_that_it_is_owed_to() -> None:
    """A call that never began has its end all the same; without being owed, an end is told to nobody."""
    everybody = RunnerHooks(), RunnerHooks()
    audience: Audience = Audience(everybody)
    told: list[Any] = []
    await audience.ends("a", told.append)
    assert told == []
    audience.owe("a", told.append)
    await audience.ends("a", told.append)
    assert told == list(everybody)
