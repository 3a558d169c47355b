"""The plan tool: what a plan must be, where it is kept, and who sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.harness import (
    PLAN_STATE_KEY,
    AgentDescriptor,
    DefaultAgent,
    PlanShim,
    PlanStep,
    RunState,
    ToolNameCollisionError,
    plan_of,
)
from isthmus.models.enums import PlanStepState
from isthmus.models.internal import is_internal_message
from isthmus.models.tools import Tool, ToolExecutionContext
from support.attended import Attended
from support.turns import asks, call, says

READ = {"text": "Read", "status": "completed"}
WRITE = {"text": "Write", "status": "in_progress"}
SEND = {"text": "Send", "status": "pending"}


def plans(*steps: dict[str, Any], id: str = "c1") -> list[Any]:
    """A reply that writes a plan."""
    return asks(call("write_plan", id, steps=list(steps)))


async def test_a_plan_is_kept_with_the_conversation() -> None:
    """The model reads "Plan updated"; the state holds the steps in order, typed by `plan_of`, plain in JSON."""
    run = Attended(ScriptedAdapter([plans(READ, WRITE, SEND), "done"]), [PlanShim()])
    await run.say("go")
    assert [result.content for result in run.results] == ["Plan updated"]
    assert plan_of(run.shim_state) == (
        PlanStep("Read", "completed"),
        PlanStep("Write", "in_progress"),
        PlanStep("Send", "pending"),
    )
    assert plan_of(RunState(shim_state=run.shim_state).to_dict()["shim_state"]) == plan_of(run.shim_state)
    assert plan_of({}) == ()


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([], "at least one step"),
        ([READ, {"text": " \n", "status": "pending"}], "Step 2 says nothing"),
        ([WRITE, READ, WRITE], "Steps 1, 3 are in_progress: only one may be"),
        ([{"text": "x", "status": "later"}], "pending"),
        ([{"text": "x"}], "status"),
        ("Read", "steps"),
    ],
)
async def test_a_plan_that_is_none_is_refused_in_words(steps: Any, said: str) -> None:
    """The model reads what is wrong, the call counts as failed, the run goes on, and the plan before it stands."""
    run = Attended(ScriptedAdapter([plans(READ), asks(call("write_plan", "c2", steps=steps)), "done"]), [PlanShim()])
    assert await run.say("go") == "done"
    assert said in str(run.results[1].content)
    assert run.results[1].outcome != "ok"
    assert plan_of(run.shim_state) == (PlanStep("Read", "completed"),)


async def test_each_update_is_a_new_value() -> None:
    """Whoever watches the key sees a change by identity; what was read before stays as it was."""
    seen: list[Any] = []

    def look(context: ToolExecutionContext) -> None:
        assert context.run_state is not None
        seen.append(context.run_state.shim_state.get(PLAN_STATE_KEY))

    steps = [plans(WRITE), asks(call("look", "c2")), plans(READ, SEND, id="c3"), asks(call("look", "c4")), "done"]
    await Attended(ScriptedAdapter(steps), [PlanShim()], tools=[Tool.from_function(look)]).say("go")
    assert seen == [[WRITE], [READ, SEND]]
    assert seen[0] is not seen[1]


async def test_a_plan_that_was_summarised_is_told_anew_while_it_is_open() -> None:
    """Once and internally, where the transcript holds the plan no more; a plan that is done is not."""
    run = Attended(ScriptedAdapter(["a", "b"]), [PlanShim()], shim_state={PLAN_STATE_KEY: [READ, WRITE]})
    await run.say("go on")
    await run.say("and on")
    told = [message for message in run.history if is_internal_message(message, "plan")]
    assert [message["content"] for message in told] == [
        "The plan as it stands:\n- [completed] Read\n- [in_progress] Write"
    ]
    done = Attended(ScriptedAdapter(["a"]), [PlanShim()], shim_state={PLAN_STATE_KEY: [READ]})
    await done.say("go on")
    assert len(done.history) == 2


async def test_a_plan_that_was_refused_tells_nothing() -> None:
    """A call that changed nothing does not stand for the plan that is kept."""
    run = Attended(ScriptedAdapter([plans(), "a", "b"]), [PlanShim()])
    await run.say("go")
    run.shim_state = {PLAN_STATE_KEY: [WRITE]}
    await run.say("go on")
    assert sum(is_internal_message(message, "plan") for message in run.history) == 1


async def test_a_plan_in_the_transcript_is_not_told_twice() -> None:
    """The model's own call is enough."""
    run = Attended(ScriptedAdapter([plans(WRITE), "a", "b"]), [PlanShim()])
    await run.say("go")
    await run.say("go on")
    assert not any(map(is_internal_message, run.history))


async def test_two_runs_share_a_shim_and_no_plan() -> None:
    """Each of two runs at once keeps its own."""
    shim = PlanShim()
    runs = [Attended(ScriptedAdapter([[0.01, *plans(step)], "done"]), [shim]) for step in (READ, SEND)]
    await asyncio.gather(*(run.say("go") for run in runs))
    assert [plan_of(run.shim_state)[0].text for run in runs] == ["Read", "Send"]


async def test_a_tool_of_that_name_is_an_error() -> None:
    """An agent's own `write_plan` is neither replaced nor silently preferred."""

    def write_plan() -> None:
        pass

    with pytest.raises(ToolNameCollisionError, match="write_plan"):
        await Attended(ScriptedAdapter(["x"]), [PlanShim()], tools=[Tool.from_function(write_plan)]).say("hi")


async def test_a_cancelled_run_leaves_the_plan_as_it_was() -> None:
    """What it wrote is not committed, as nothing else of it is; the next run finds the plan of the last one."""
    model = ScriptedAdapter([plans(READ), "done", plans(SEND, id="c2"), [60, *says("late")]])
    agent = DefaultAgent(descriptor=AgentDescriptor(name="a", model=model, shims=[PlanShim()]))
    await agent.run("go")
    task = asyncio.create_task(agent.run("go on"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert agent.run_state is not None
    assert [step.text for step in plan_of(agent.run_state.shim_state)] == ["Read"]


async def test_the_tool_knows_every_status() -> None:
    """What the model may say is what `PlanStepState` has."""
    model = ScriptedAdapter(["x"])
    await Attended(model, [PlanShim()]).say("hi")
    steps = model.contexts[0].tools[0].parameters["properties"]["steps"]
    assert steps["items"]["properties"]["status"]["enum"] == [state.value for state in PlanStepState]


async def test_each_update_is_an_event_of_the_run() -> None:
    """After the end of the tool that wrote it, once an update, with the steps; a plan that was refused is none."""
    scripted = ScriptedAdapter(
        [
            asks(call("write_plan", "1", steps=[READ, WRITE])),
            asks(call("write_plan", "2", steps=[])),
            says("done"),
        ]
    )
    agent = DefaultAgent(descriptor=AgentDescriptor(model=scripted, shims=[PlanShim()]))
    events = [event async for event in agent.run_events("go")]
    kinds = [event.kind for event in events if event.kind in ("tool_end", "plan_updated")]
    assert kinds == ["tool_end", "plan_updated", "tool_end"]
    assert [event.detail for event in events if event.kind == "plan_updated"] == [{"steps": [READ, WRITE]}]
