"""F10: events of a run on their way to the reader."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncGenerator
from datetime import date
from enum import Enum
from typing import Any

import pytest

from isthmus.harness import AgentDescriptor, ApprovalShim, DefaultAgent, PlanShim, RunEvent
from isthmus.harness.runevents import Mailbox, RunEventKind
from isthmus.models import OutputSchema
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


class Colour(Enum):
    """An answer that is no text."""

    RED = "red"


@pytest.mark.parametrize(
    ("form", "said", "plain"),
    [
        (Colour, "red", "red"),
        (date, "2020-01-31", "2020-01-31"),
        (set[int], [1], [1]),
        (bytes, "abc", "abc"),
        (dict[int, Colour], {"1": "red"}, {"1": "red"}),
        (list[date], ["2020-01-31"], ["2020-01-31"]),
    ],
)
async def test_an_answer_of_every_form_goes_through_json_as_the_form_writes_it(
    form: Any, said: Any, plain: Any
) -> None:
    """In the last event, in the result, and in what an agent answers that it worked for."""
    output = OutputSchema(form, strict_json_schema=False)
    text = json.dumps({"response": said} if "response" in output.json_schema().get("properties", ()) else said)
    asked = AgentDescriptor(name="kid", model=Turns(says(text)), output=output)
    async with DefaultAgent(descriptor=asked).run_events("go") as stream:
        events = [event async for event in stream]
        result = await stream.result()
    assert json.loads(events[-1].dumps())["payload"]["output"] == plain
    assert json.loads(json.dumps(result.to_dict()))["final_output"] == plain
    boss = AgentDescriptor(model=Turns(asks(call("kid")), says("done")), tools=[asked.as_tool()])
    answer = (await DefaultAgent(descriptor=boss).run("go")).messages[2]["content"]
    assert (answer if isinstance(plain, str) else json.loads(answer)) == plain
