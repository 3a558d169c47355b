"""Agents that work for an agent: what they are told, what comes back, what bounds them, and who sees it."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.chain import Budget, define_chain
from isthmus.errors import InvalidRequestError, UnavailableError
from isthmus.harness import (
    AgentDescriptor,
    BoundShim,
    DefaultAgent,
    DefaultAgentTool,
    Limits,
    RunEvent,
    Runner,
    RunnerHooks,
    Shim,
)
from isthmus.harness.crew import Crew
from isthmus.harness.delegation import Lead
from isthmus.harness.run import Run
from isthmus.models import Tools, as_tool
from isthmus.models.events import Usage
from support.turns import Turns, asks, call, says, tasks


class City(BaseModel):
    """Which city."""

    city: str


@as_tool
async def echo(n: int) -> int:
    """Give it back."""
    return n


def scout(model: Any, **more: Any) -> AgentDescriptor:
    """An agent that others send."""
    return AgentDescriptor(**{"name": "Scout One", "model": model, "instructions": "Look around.", **more})


def boss(model: Any, *tools: Any, parallel: bool = False, **more: Any) -> DefaultAgent:
    """An agent that sends others."""
    made = AgentDescriptor(
        name="boss", model=model, tools=Tools(tools, parallel_tool_calls=parallel), instructions="Ask."
    )
    return DefaultAgent(descriptor=made, **more)


def answers(result: Any) -> list[str]:
    """What the tools of a run answered."""
    return [message["content"] for message in result.messages if message["role"] == "tool"]


async def test_an_agent_as_a_tool_is_told_its_arguments_alone_and_its_answer_comes_back() -> None:
    """The child reads the arguments as JSON under its own instructions; the parent goes on with its answer."""
    child, parent = Turns(says("rainy")), Turns(asks(call("weather", "a", city="Rome")), says("Take a coat."))
    tool = scout(child).as_tool(name="weather", description="Knows the weather.", args_model=City)
    result = await boss(parent, tool).run("What to wear in Rome?")
    assert result.text == "Take a coat."
    assert answers(result) == ["rainy"]
    assert [dict(message) for message in child.seen[0].messages] == [{"role": "user", "content": '{"city":"Rome"}'}]
    assert child.seen[0].brief == "Look around."
    (offered,) = parent.seen[0].tools
    assert (offered.name, offered.description) == ("weather", "Knows the weather.")
    assert offered.parameters["required"] == ["city"]


async def test_without_more_words_the_tool_is_named_after_the_agent_and_takes_nothing() -> None:
    """Lower case, "_" for what is no letter or digit, and an empty object."""
    child, parent = Turns(says("sunny")), Turns(asks(call("scout_one", "a")), says("done"))
    result = await boss(parent, scout(child).as_tool()).run("go")
    (offered,) = parent.seen[0].tools
    assert (offered.name, offered.parameters) == ("scout_one", {"type": "object", "properties": {}})
    assert [message["content"] for message in child.seen[0].messages] == ["{}"]
    assert answers(result) == ["sunny"]


async def test_wrong_arguments_are_answered_and_nobody_is_sent() -> None:
    """As for any tool: the model reads what is wrong and may try again."""
    child = Turns(says("rainy"))
    parent = Turns(asks(call("weather", "a", town="Rome")), asks(call("weather", "b", city="Rome")), says("done"))
    result = await boss(parent, scout(child).as_tool(name="weather", args_model=City)).run("go")
    first, second = answers(result)
    assert "Invalid arguments for weather: city: it is required" in first
    assert second == "rainy"
    assert len(child.seen) == 1


async def test_an_answer_with_a_form_comes_back_as_json() -> None:
    """The child's typed answer is what the parent reads, not how it was spelled."""
    child = Turns(says('Here: {"city": "Rome"}'))
    child.supports = frozenset({*child.supports, "output-schema"})
    parent = Turns(asks(call("scout_one", "a")), says("done"))
    result = await boss(parent, scout(child, output=City).as_tool()).run("go")
    assert answers(result) == ['{"city":"Rome"}']


@pytest.mark.parametrize(
    ("turn", "limits", "text"),
    [
        ([UnavailableError("the house is down")], None, "unavailable: the house is down"),
        (says("half an ans", finish="content-filter"), None, "was cut, refused: the provider withheld the rest"),
        (asks(call("echo", "x", n=1)), Limits(max_steps=1), "was cut, budget-steps: max_steps=1"),
    ],
)
async def test_a_child_that_fails_is_answered_with_why(turn: Any, limits: Limits | None, text: str) -> None:
    """The parent goes on, and reads that the call failed, of which kind, and what was said before."""
    results: list[Any] = []

    class Told(RunnerHooks):
        def on_tool_call_end(self, run: Any, call: Any, *, result: Any) -> None:
            results.append((run.agent, result.outcome))

    parent = Turns(asks(call("scout_one", "a")), says("done"))
    child = DefaultAgent(descriptor=scout(Turns(turn), tools=[echo]), limits=limits)
    result = await boss(parent, child.as_tool(), hooks=Told()).run("go")
    (answer,) = answers(result)
    assert answer.startswith("Error: delegated agent call failed. Scout One")
    assert text in answer
    assert ("half an ans" in answer) == ("refused" in text)
    assert ("boss", "error") in results
    assert result.text == "done"


async def test_a_child_whose_model_takes_no_tools_fails_alone() -> None:
    """What is wrong with it is answered to the parent."""
    child = Turns(says("never"))
    child.supports = frozenset()
    parent = Turns(asks(call("scout_one", "a")), says("done"))
    result = await boss(parent, scout(child).as_tool(), echo).run("go")
    assert "tools" in answers(result)[0]
    assert not child.seen
    with pytest.raises(InvalidRequestError, match="tools"):
        DefaultAgent(descriptor=scout(child, tools=[echo]))


async def test_the_events_of_a_child_stand_between_those_of_its_call() -> None:
    """All of them, live, with the lineage: its name, its run, whose run that works for, and how deep."""
    child, parent = Turns(says("rai", "ny")), Turns(asks(call("scout_one", "a")), says("done"))
    events = [event async for event in boss(parent, scout(child).as_tool()).run_events("go")]
    start, end = (
        next(place for place, event in enumerate(events) if event.kind == kind) for kind in ("tool_start", "tool_end")
    )
    inner = events[start + 1 : end]
    assert [named(event) for event in inner] == [
        "agent_start",
        "snap:run_start",
        "snap:turn_prepared",
        "llm_start",
        "text_delta",
        "text_delta",
        "completed",
        "llm_end",
        "snap:run_end",
        "agent_end",
    ]
    root = events[0]
    assert {(event.agent, event.parent_task_id, event.depth) for event in inner} == {("Scout One", root.task_id, 1)}
    assert len({event.task_id for event in inner} | {root.task_id}) == 2
    assert all(event.agent == "boss" and event.is_root for event in (*events[: start + 1], *events[end:]))
    assert events[start].is_delegation
    assert events[end].is_delegation
    assert inner[-1].output == "rainy"


def named(event: RunEvent) -> str:
    """An event by what it is."""
    if event.model_event is not None:
        return event.model_event.kind
    return event.kind if event.state is None else f"snap:{event.state.boundary}"


async def test_an_ordinary_tool_is_no_delegation() -> None:
    """The mark is for agents alone."""
    parent = Turns(asks(call("echo", "a", n=1)), says("done"))
    events = [event async for event in boss(parent, echo, scout(Turns(says("x"))).as_tool()).run_events("go")]
    assert [event.is_delegation for event in events if event.kind.startswith("tool")] == [False, False]


async def test_a_slow_reader_slows_the_child_down() -> None:
    """A child is not read ahead of whoever reads the parent: no more than a few hundred events wait."""
    made: list[int] = []

    class Flood(Turns):
        async def stream(self, ctx: Any) -> Any:
            for number in range(2000):
                made.append(number)
                yield says(f"{number} ")[0]
            yield says()[0]

    parent = Turns(asks(call("scout_one", "a")), says("done"))
    async with boss(parent, scout(Flood()).as_tool()).run_events("go") as stream:
        seen = 0
        async for event in stream:
            seen += event.model_event is not None
            if seen == 10:
                await asyncio.sleep(0.05)
                assert len(made) < 1000
        assert len(made) == 2000
    assert not tasks()


async def test_the_hooks_of_the_application_are_told_of_children_those_of_shims_are_not() -> None:
    """One place to watch or to meter a whole team; what belongs to one agent stays with it."""
    told: list[str] = []

    class Hooks(RunnerHooks):
        def __init__(self, name: str) -> None:
            self.name = name

        def on_agent_start(self, run: Any) -> None:
            told.append(f"{self.name}:{run.agent}:{run.depth}:{run.metadata}")

    class Bound(BoundShim):
        runner_hooks = Hooks("shim")

    class Adds(Shim):
        async def bind(self, run: Any) -> BoundShim:
            return Bound()

    child = DefaultAgent(descriptor=scout(Turns(says("x"))), hooks=Hooks("own"))
    parent = AgentDescriptor(
        name="boss", model=Turns(asks(call("scout_one", "a")), says("done")), tools=[child.as_tool()], shims=[Adds()]
    )
    await DefaultAgent(descriptor=parent, hooks=Hooks("app")).run("go", metadata={"user": 7})
    metadata = {"user": 7}
    assert told == [
        f"app:boss:0:{metadata}",
        f"shim:boss:0:{metadata}",
        f"app:Scout One:1:{metadata}",
        f"own:Scout One:1:{metadata}",
    ]


async def test_a_tool_of_a_child_is_told_of_the_childs_run() -> None:
    """Its context names the child and the child's run, with the application's metadata."""
    seen: list[Any] = []

    @as_tool
    async def where(context: Any) -> str:
        """Look."""
        seen.append(context)
        return "here"

    child = Turns(asks(call("where", "x")), says("there"))
    parent = Turns(asks(call("where", "w"), call("scout_one", "a")), says("done"))
    await boss(parent, where, scout(child, tools=[where]).as_tool()).run("go", metadata={"user": 7})
    outer, inner = seen
    assert (outer.agent_name, inner.agent_name) == ("boss", "Scout One")
    assert outer.run_id != inner.run_id == str(inner.run_state.task_id)
    assert outer.metadata == inner.metadata == {"user": 7}


async def test_a_child_without_a_model_calls_the_parents_with_the_parents_arguments() -> None:
    """Its instructions and its tools are its own; a model of its own comes without foreign arguments."""
    shared = Turns(asks(call("scout_one", "a"), call("other", "b")), says("one"), says("two"), says("done"))
    own = Turns(says("x"))
    parent = AgentDescriptor(
        name="boss",
        model=shared,
        model_args={"top_k": 3},
        tools=[scout(None).as_tool(), scout(own, name="other").as_tool()],
    )
    result = await DefaultAgent(descriptor=parent).run("go")
    assert answers(result) == ["one", "x"]
    assert [ctx.options for ctx in shared.seen] == [{"top_k": 3}] * 3
    assert shared.seen[1].brief == "Look around."
    assert own.seen[0].options == {}


async def test_a_child_has_no_ephemeral_or_other_word_of_the_conversation() -> None:
    """Nothing but the arguments, whatever the parent was told."""
    from isthmus.models import internal_message

    child, parent = Turns(says("x")), Turns(asks(call("scout_one", "a")), says("done"))
    secret = internal_message({"role": "user", "content": "screen: x"}, origin="ui", ephemeral=True)
    await boss(parent, scout(child).as_tool()).run([secret, {"role": "user", "content": "go"}])
    assert [message["content"] for message in child.seen[0].messages] == ["{}"]


async def test_the_tokens_and_the_tries_of_children_are_in_the_parents_account() -> None:
    """What a run costs is what all of it costs; its steps and its replies are the parent's own."""
    child = Turns(says("x", usage=Usage(input_tokens=10, output_tokens=1)), id="child")
    used = Usage(input_tokens=100, output_tokens=5)
    parent = Turns(asks(call("scout_one", "a"), usage=used), says("done", usage=used), id="parent")
    result = await boss(parent, scout(child).as_tool()).run("go")
    assert result.usage is not None
    assert (result.usage.input_tokens, result.usage.output_tokens) == (210, 11)
    assert [each.tier for each in result.attempts] == ["parent", "child", "parent"]
    assert (result.outcome.steps, len(result.replies), result.outcome.usage_missing) == (2, 2, False)


async def test_the_hooks_see_the_result_with_its_tries() -> None:
    """What the end of an agent is told is what the caller gets."""
    results: list[Any] = []

    class Told(RunnerHooks):
        def on_agent_end(self, run: Any, result: Any) -> None:
            results.append(result)

    result = await DefaultAgent(model=Turns(says("x")), hooks=Told()).run("go")
    assert results == [result]
    assert len(result.attempts) == 1


async def test_children_that_call_the_parents_chain_spend_its_budget() -> None:
    """A budget is of the whole run: a child ends what is left of it, and the parent is cut."""
    used = Usage(input_tokens=30, output_tokens=30)
    model = Turns(asks(call("scout_one", "a"), usage=used), says("x", usage=used), says("never", usage=used))
    chain = define_chain(id="house", tiers=[model], budget=Budget(tokens=200))
    result = await boss(chain, scout(None).as_tool()).run("go")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", "budget-tokens")
    assert answers(result) == ["x"]
    assert len(model.seen) == 2


# Helpers that a model starts.


async def test_a_helper_is_told_its_task_alone_and_has_the_parents_tools() -> None:
    """The tool is `agent(name, task)`; the helper has instructions of its own, and the tool too."""
    model = Turns(
        asks(call("agent", "a", name="Finder", task="Find n.")), asks(call("echo", "x", n=4)), says("4"), says("done")
    )
    events = [event async for event in boss(model, echo, DefaultAgentTool()).run_events("Go and ask.")]
    first, helper, *_ = model.seen
    (tool,) = [tool for tool in first.tools if tool.name == "agent"]
    assert tool.parameters["required"] == ["name", "task"]
    assert [message["content"] for message in helper.messages] == ["Find n."]
    assert helper.brief != first.brief != ""
    assert [tool.name for tool in helper.tools] == ["echo", "agent"]
    assert {event.agent for event in events if not event.is_root} == {"Finder"}
    assert [event.is_delegation for event in events if event.kind == "tool_end" and event.is_root] == [True]


@pytest.mark.parametrize("arguments", [{"name": "two words", "task": "x"}, {"name": "One", "task": " "}, {"task": "x"}])
async def test_a_helper_needs_a_name_of_one_word_and_a_task(arguments: Any) -> None:
    """Anything else is answered as wrong arguments."""
    model = Turns(asks(call("agent", "a", **arguments)), says("done"))
    result = await boss(model, DefaultAgentTool()).run("go")
    assert answers(result)[0].startswith("Invalid arguments for agent:")
    assert len(model.seen) == 2


async def test_helpers_have_the_shims_of_the_agent_that_starts_them() -> None:
    """What the shims add to the agent they add to the helper, each bound to its own run."""
    bound: list[tuple[str, int]] = []

    class Bound(BoundShim):
        async def prepare_turn(self, turn: Any) -> None:
            turn.append_system_instruction("Shimmed.")

    class Adds(Shim):
        async def bind(self, run: Any) -> BoundShim:
            bound.append((run.agent, run.depth))
            return Bound()

    model = Turns(asks(call("agent", "a", name="One", task="x")), says("x"), says("done"))
    made = AgentDescriptor(name="boss", model=model, tools=[DefaultAgentTool(instructions="Help.")], shims=[Adds()])
    await DefaultAgent(descriptor=made).run("go")
    assert bound == [("boss", 0), ("One", 1)]
    assert model.seen[1].brief == "Help.\n\nShimmed."


async def test_agents_are_nested_only_so_deep() -> None:
    """The agent at the last level is told to do its task itself, always in the same words."""
    deeper = asks(call("agent", "a", name="Next", task="Go on."))
    model = Turns(deeper, deeper, deeper, says("alone"), says("b"), says("c"))
    events = [
        event async for event in boss(model, DefaultAgentTool(), runner=Runner(agent_max_depth=2)).run_events("go")
    ]
    assert max(event.depth for event in events) == 2
    refused = [event.result for event in events if event.kind == "tool_end" and event.depth == 2]
    assert [(result.text, result.outcome) for result in refused if result] == [
        ("No agent was started: agents are nested as deeply as they may be. Do the task yourself.", "error")
    ]
    assert events[-1].output == "c"


async def test_only_so_many_agents_work_for_a_run_at_once_on_all_levels_together() -> None:
    """Two of three are at work, each wants one more: one gets it, one is refused, and later there is room again."""

    refused = "No agent was started: as many agents are at work as there may be. Do the task yourself."
    full = asyncio.Event()

    class Outer(Turns):
        async def stream(self, ctx: Any) -> Any:
            last = ctx.messages[-1]
            if last["content"] == refused:
                full.set()
            for event in says("outer done") if last["role"] == "tool" else asks(call("inner", "i")):
                yield event

    inner = AgentDescriptor(name="inner", model=Turns([full, *says("inner done")]), tools=None)
    outer = AgentDescriptor(name="outer", model=Outer(), tools=[inner.as_tool()])
    twice = asks(call("outer", "c1"), call("outer", "c2"))
    agent = boss(
        Turns(twice, asks(call("outer", "c3")), says("done")),
        outer.as_tool(),
        parallel=True,
        runner=Runner(agent_max_threads=3),
    )
    async with asyncio.timeout(10):
        events = [event async for event in agent.run_events("go")]
    inside = [event.result.text for event in events if event.result is not None and event.depth == 1]
    assert sorted(inside) == [refused, "inner done", "inner done"]
    assert inside[-1] == "inner done"
    assert [event.result.text for event in events if event.result is not None and event.is_root] == ["outer done"] * 3


async def test_agents_that_fail_or_are_stopped_make_room_for_others() -> None:
    """F10: with room for two, round after round of two that fail, hang or are cut refuses nobody."""

    class Unlucky(Turns):
        async def stream(self, ctx: Any) -> Any:
            self.seen.append(ctx)
            if len(self.seen) % 3 == 0:
                raise UnavailableError("down")
            if len(self.seen) % 3 == 1:
                await asyncio.Event().wait()
            yield says("half")[0]
            raise UnavailableError("lost")

    child = Unlucky()
    rounds = [asks(call("scout_one", f"a{n}"), call("scout_one", f"b{n}")) for n in range(6)]
    tools = Tools([scout(child).as_tool()], parallel_tool_calls=True, tool_call_timeout=0.05)
    made = AgentDescriptor(name="boss", model=Turns(*rounds, says("done")), tools=tools)
    result = await DefaultAgent(descriptor=made, runner=Runner(agent_max_threads=2)).run("go")
    assert result.text == "done"
    assert len(child.seen) == 12
    assert not [each for each in answers(result) if "No agent was started" in each]
    assert not tasks()


async def test_a_tool_that_starts_helpers_can_be_copied_and_wrapped() -> None:
    """`replace` changes what its helpers are; `with_handler` wraps how they are started."""
    started: list[str] = []

    def watching(handler: Any) -> Any:
        async def watched(args: Any, cancellation_token: Any, context: Any) -> Any:
            started.append(args["name"])
            return await handler(args, cancellation_token, context)

        return watched

    model = Turns(asks(call("helper", "a", name="One", task="x")), says("x"), says("done"))
    tool = DefaultAgentTool().replace(name="helper", instructions="Terse.").with_handler(watching)
    await boss(model, tool).run("go")
    assert started == ["One"]
    assert model.seen[1].brief == "Terse."


async def test_outside_of_a_run_an_agent_tool_says_what_to_do() -> None:
    """A tool that is an agent has nobody to work for there."""
    from isthmus.models import CancellationToken

    with pytest.raises(RuntimeError, match="runs for another agent"):
        await scout(Turns(says("x"))).as_tool().run({}, CancellationToken())


async def test_a_tool_time_out_ends_a_child_once_and_for_all() -> None:
    """The child is stopped and not started anew: what it did it has done."""
    child = Turns([asyncio.Event()])
    parent = Turns(asks(call("scout_one", "a")), says("done"))
    made = AgentDescriptor(name="boss", model=parent, tools=Tools([scout(child).as_tool()], tool_call_timeout=0.05))
    result = await DefaultAgent(descriptor=made).run("go")
    assert "timed out after 0.05s (1 attempts)" in answers(result)[0]
    assert (len(child.seen), child.open) == (1, 0)
    assert not tasks()


def runs() -> int:
    """How many runs, and agents at work in them, are alive."""
    gc.collect()
    return sum(isinstance(each, Run | Lead | Crew) for each in gc.get_objects())


@pytest.mark.parametrize("watched", [False, True])
async def test_two_hundred_teams_that_are_stopped_leave_nothing(watched: bool) -> None:
    """F10: each with two agents under way: no task is left, every stream is closed, each start has its end."""
    before = runs()
    ends: list[tuple[str, Any]] = []
    starts: list[str] = []
    models: list[Turns] = []

    class Told(RunnerHooks):
        def on_agent_start(self, run: Any) -> None:
            starts.append(run.task_id)

        def on_agent_end(self, run: Any, result: Any) -> None:
            ends.append((run.task_id, result))

    def team(number: int) -> Any:
        child = Turns([*says("x")[:1], asyncio.Event()])
        models.append(child)
        parent = Turns(asks(call("scout_one", "a"), call("agent", "b", name="Two", task="x")), [asyncio.Event()])
        models.append(parent)
        tools = (scout(child).as_tool(), DefaultAgentTool(model=child))
        made = boss(parent, *tools, parallel=True, hooks=Told())
        return made.run_events("go") if watched else made.run_stream("go")

    async def read(stream: Any) -> None:
        async for _ in stream:
            pass

    streams = [team(number) for number in range(200)]
    readers = [asyncio.create_task(read(stream)) for stream in streams]
    async with asyncio.timeout(60):
        while sum(model.open for model in models) < 400:
            await asyncio.sleep(0.01)
        for number, (reader, stream) in enumerate(zip(readers, streams, strict=True)):
            if number % 2:
                reader.cancel()
            else:
                await stream.aclose()
        await asyncio.wait(readers)
    assert not tasks()
    assert [model.open for model in models] == [0] * 400
    assert sorted(starts) == sorted(task_id for task_id, _ in ends)
    assert {result for _, result in ends} == {None}
    del streams, readers, reader, stream
    assert runs() <= before
