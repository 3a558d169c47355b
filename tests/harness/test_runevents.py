"""F10: events of a run on their way to the reader."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from isthmus.harness import RunEvent
from isthmus.harness.runevents import Mailbox


@pytest.mark.parametrize("ends", ["at its end", "with an error"])
async def test_a_reader_who_leaves_at_the_last_event_leaves_no_error_behind(ends: str) -> None:
    """The loop reports nothing as lost, whether the source was at its end or failed while the events were read."""
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    box = Mailbox()
    told = RunEvent(kind="tool_end", agent="a", task_id="1")

    async def source() -> AsyncGenerator[int, None]:
        yield 1
        box.put(told)
        if ends == "with an error":
            raise ValueError("broken")

    events = box.beside(source())
    async for event in events:
        if event is told:
            break
    await events.aclose()
    del events
    gc.collect()
    await asyncio.sleep(0)
    assert reported == []
