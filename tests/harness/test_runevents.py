"""F10: events of a run on their way to the reader."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from isthmus.harness import AgentDescriptor, ApprovalShim, DefaultAgent, PlanShim, RunEvent
from isthmus.harness.runevents import Mailbox, RunEventKind
from support.turns import Turns, asks, call, says


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


def pay(n: int) -> str:
    """Pay."""
    return "paid"


async def test_every_kind_of_event_happens_and_goes_through_json() -> None:
    """A team that plans, sends an agent, hands over and waits: the text of each event is its dict, marks or none."""
    child = AgentDescriptor(name="kid", model=Turns(says("k")))
    desk = AgentDescriptor(
        name="desk", model=Turns(asks(call("pay", n=1))), tools=[pay], shims=[ApprovalShim({"pay": "ask"})]
    )
    steps = [{"text": "look", "status": "pending"}]
    model = Turns(
        asks(call("write_plan", "w", steps=steps)), asks(call("kid", "k"), call("none", "n")), asks(call("desk", "h"))
    )
    boss = AgentDescriptor(name="boss", model=model, tools=[child.as_tool()], shims=[PlanShim()], handoffs=[desk])
    async with DefaultAgent(descriptor=boss).run_events("go") as stream:
        events = [event async for event in stream]
        result = await stream.result()
    assert result.pending
    assert {event.kind for event in events} == {kind.value for kind in RunEventKind}
    for event in events:
        for internal in (False, True):
            form = event.to_dict(include_internal=internal)
            assert json.loads(event.dumps(include_internal=internal)) == form
            assert (form["type"], form["payload"]["kind"]) == (event.kind, event.kind)
