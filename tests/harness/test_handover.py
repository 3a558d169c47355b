"""Handoffs: one agent gives the conversation away, another goes on with the same run, stream and conversation."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.chain import Budget, define_chain
from isthmus.errors import InvalidRequestError, ModelBehaviorError, ToolDefinitionError, UnavailableError
from isthmus.harness import (
    AgentDescriptor,
    BoundShim,
    DefaultAgent,
    DefaultAgentTool,
    DefaultHandoff,
    Limits,
    RunEvent,
    Runner,
    RunnerHooks,
    RunState,
    Shim,
)
from isthmus.models import OutputSchema, PromptSpec, PromptTemplate, Tools, as_tool, internal_message
from isthmus.models.events import Text, Usage
from isthmus.models.executor import ToolResult
from support.turns import Turns, asks, call, says, tasks

TAKE_OVER = "The conversation so far was handed over to you. Go on with it from here."


class Refund(BaseModel):
    """What is paid back."""

    amount: int


@as_tool
async def echo(n: int) -> int:
    """Give it back."""
    return n


def billing(model: Any, **more: Any) -> AgentDescriptor:
    """An agent that takes over."""
    return AgentDescriptor(
        **{"name": "Billing Desk", "model": model, "instructions": "You bill.", "tools": None, **more}
    )


def triage(model: Any, *handoffs: AgentDescriptor, tools: Any = (), shims: Any = (), **more: Any) -> DefaultAgent:
    """An agent that hands over."""
    made = AgentDescriptor(
        name="triage", model=model, instructions="You sort.", tools=tools, shims=shims, handoffs=handoffs
    )
    return DefaultAgent(descriptor=made, **more)


def heard(model: Turns, turn: int = 0) -> list[tuple[str, Any]]:
    """What a model was sent."""
    return [(message["role"], message.get("content")) for message in model.seen[turn].messages]


async def test_the_other_agent_goes_on_with_the_whole_conversation() -> None:
    """It reads the history, the call, its answer and the task; instructions, tools and model are its own."""
    first, second = Turns(asks(call("billing_desk", "h", task="Refund 5."))), Turns(says("Done."))
    agent = triage(first, billing(second, tools=[echo], model_args={"top_k": 1}))
    result = await agent.run("I paid twice.")
    assert heard(second) == [
        ("user", "I paid twice."),
        ("assistant", None),
        ("tool", "Handoff accepted by billing_desk. Control transfers now."),
        ("user", "Refund 5."),
    ]
    assert second.seen[0].messages[1]["tool_calls"][0]["id"] == second.seen[0].messages[2]["tool_call_id"] == "h"
    assert (second.seen[0].brief, second.seen[0].options) == ("You bill.", {"top_k": 1})
    assert [tool.name for tool in second.seen[0].tools] == ["echo"]
    assert [tool.name for tool in first.seen[0].tools] == ["billing_desk"]
    assert (result.text, result.outcome.outcome, result.outcome.steps) == ("Done.", "completed", 2)
    assert agent.run_state == result.run_state
    assert [message["role"] for message in result.run_state.history] == [
        *("user", "assistant", "tool", "user", "assistant")
    ]


@pytest.mark.parametrize("task", [{}, {"task": None}, {"task": ""}, {"task": " \n"}])
async def test_without_a_task_the_other_agent_is_told_to_go_on(task: dict[str, Any]) -> None:
    """A sentence of ours stands in its place; in what the public reads there is none."""
    first, second = Turns(asks(call("billing_desk", "h", **task))), Turns(says("Done."))
    result = await triage(first, billing(second)).run("go")
    assert heard(second)[-1] == ("user", TAKE_OVER)
    shown = [message["content"] for message in result.to_dict()["messages"] if message["role"] == "user"]
    assert shown == ["go"]


async def test_the_next_run_is_the_first_agents_with_all_that_was_said() -> None:
    """The conversation is the agent's; who it was handed to does not keep it, and no instructions are mixed up."""
    first = Turns(asks(call("billing_desk", "h")), says("Hello again."))
    agent = triage(first, billing(Turns(says("Done."))))
    done = await agent.run("go")
    await agent.run("and now?")
    assert first.seen[1].brief == "You sort."
    assert [content for _, content in heard(first, 1)][-2:] == ["Done.", "and now?"]
    assert done.run_state.instructions == "You sort."
    assert done.run_state.turn_count == 2
    assert len(done.run_state.responses) == 2


async def test_the_stream_goes_on() -> None:
    """In its plain form: the call, its answer, and the other agent's text; as model events: one end for each call."""
    made = AgentDescriptor(
        name="triage", model=Turns(asks(call("billing_desk", "h"))), handoffs=[billing(Turns(says("Do", "ne.")))]
    )
    plain = DefaultAgent(descriptor=made)
    kinds = [event.kind async for event in plain.run_stream("go")]
    assert kinds == ["completed", "text_delta", "text_delta", "completed"]
    events = [event async for event in DefaultAgent(descriptor=made).run_events("go")]
    assert [event.model_event.text for event in events if event.model_event and event.model_event.text] == ["Do", "ne."]


async def test_a_team_leaves_the_same_however_it_is_read() -> None:
    """F16: whole, as model events or as run events, the result of a handoff and of an errand is one and the same."""

    def team() -> DefaultAgent:
        child = AgentDescriptor(name="child", model=Turns(says("a", "b")), tools=None)
        desk = billing(Turns(asks(call("child", "b")), says("Do", "ne.")), tools=[child.as_tool()])
        return triage(Turns(asks(call("child", "a")), asks(call("billing_desk", "h"))), desk, tools=[child.as_tool()])

    whole = await team().run("go")
    for way in ("run_stream", "run_events"):
        async with getattr(team(), way)("go") as stream:
            streamed = await stream.result()
        assert streamed.messages == whole.messages
        assert (streamed.final_output, streamed.outcome.steps) == (whole.final_output, whole.outcome.steps)
        assert [each.finish for each in streamed.attempts] == [each.finish for each in whole.attempts]
        assert [reply.to_dict() for reply in streamed.replies] == [reply.to_dict() for reply in whole.replies]
    assert len(whole.attempts) == 6


async def test_the_events_of_a_handoff_come_in_this_order() -> None:
    """Asked for, the first agent's end, the other one's beginning, through; all of one run, by the names of both."""
    first, second = Turns(asks(call("billing_desk", "h", task="x"))), Turns(says("Done."))
    events = [event async for event in triage(first, billing(second)).run_events("go")]
    assert [(event.agent, named(event)) for event in events] == [
        ("triage", "agent_start"),
        ("triage", "snap:run_start"),
        ("triage", "snap:turn_prepared"),
        ("triage", "llm_start"),
        ("triage", "completed"),
        ("triage", "llm_end"),
        ("triage", "handoff_start"),
        ("triage", "snap:run_end"),
        ("triage", "agent_end"),
        ("Billing Desk", "agent_start"),
        ("Billing Desk", "snap:run_start"),
        ("Billing Desk", "handoff_end"),
        ("Billing Desk", "snap:turn_prepared"),
        ("Billing Desk", "llm_start"),
        ("Billing Desk", "text_delta"),
        ("Billing Desk", "completed"),
        ("Billing Desk", "llm_end"),
        ("Billing Desk", "snap:run_end"),
        ("Billing Desk", "agent_end"),
    ]
    assert len({event.task_id for event in events}) == 1
    assert all(event.is_root and event.depth == 0 for event in events)
    start, end = (event for event in events if event.kind.startswith("handoff"))
    about = {"from": "triage", "to": "Billing Desk", "tool": "billing_desk"}
    assert start.detail == end.detail == about
    assert start.call == end.call is not None
    assert [event.output for event in events if event.kind == "agent_end"] == [None, "Done."]
    lengths = [event.state.history_length for event in events if event.state is not None]
    assert lengths == [1, 1, 4, 4, 4, 5]


def named(event: RunEvent) -> str:
    """An event by what it is."""
    if event.model_event is not None:
        return event.model_event.kind
    return event.kind if event.state is None else f"snap:{event.state.boundary}"


class Logs(RunnerHooks):
    """Writes down what it is told."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log
        self.results: list[Any] = []

    def on_agent_start(self, run: Any) -> None:
        self.log.append(f"{self.name}.agent_start:{run.agent}")

    def on_agent_end(self, run: Any, result: Any) -> None:
        self.results.append(result)
        self.log.append(f"{self.name}.agent_end:{run.agent}")

    def on_tool_call_start(self, run: Any, call: Any) -> None:
        self.log.append(f"{self.name}.call:{call.tool}")

    def on_tool_call_end(self, run: Any, call: Any, *, result: Any) -> None:
        self.log.append(f"{self.name}.answer:{result.outcome}")


class Steps(Shim):
    """Writes down when it begins and ends, and counts in what is kept."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    async def bind(self, run: Any) -> BoundShim:
        bound = BoundShim()

        async def start(state: Any, transient_state: Any) -> None:
            state.shim_state["seen"] = [*state.shim_state.get("seen", []), self.name]
            self.log.append(f"{self.name}.begins:{run.agent}")

        async def end(state: Any, transient_state: Any) -> None:
            self.log.append(f"{self.name}.ends:{run.agent}")

        bound.on_run_start, bound.on_run_end = start, end  # type: ignore[method-assign]
        bound.runner_hooks = Logs(self.name, self.log)
        return bound


async def test_shims_and_hooks_of_the_first_agent_end_before_those_of_the_other_begin() -> None:
    """Last shim first; the application's hooks hear of both; what shims keep goes over; the result says why."""
    log: list[str] = []
    hooks = Logs("app", log)
    child = billing(Turns(says("Done.")), shims=[Steps("three", log)])
    agent = triage(
        Turns(asks(call("billing_desk", "h"))), child, shims=[Steps("one", log), Steps("two", log)], hooks=hooks
    )
    result = await agent.run("go")
    assert log == [
        *("one.begins:triage", "two.begins:triage"),
        *("app.agent_start:triage", "one.agent_start:triage", "two.agent_start:triage"),
        *("app.call:billing_desk", "one.call:billing_desk", "two.call:billing_desk"),
        *("app.answer:ok", "one.answer:ok", "two.answer:ok"),
        *("two.ends:triage", "one.ends:triage"),
        *("app.agent_end:triage", "one.agent_end:triage", "two.agent_end:triage"),
        "three.begins:Billing Desk",
        *("app.agent_start:Billing Desk", "three.agent_start:Billing Desk"),
        "three.ends:Billing Desk",
        *("app.agent_end:Billing Desk", "three.agent_end:Billing Desk"),
    ]
    assert result.run_state.shim_state == {"seen": ["one", "two", "three"]}
    handed, done = hooks.results
    assert (handed.outcome.outcome, handed.outcome.reason, handed.final_output) == ("completed", "handoff", None)
    assert done == result


async def test_what_is_counted_goes_on_counting() -> None:
    """Steps, tokens and tries are those of the whole run."""
    used = Usage(input_tokens=10, output_tokens=1)
    first = Turns(asks(call("echo", "a", n=1), usage=used), asks(call("billing_desk", "h"), usage=used), id="first")
    second = Turns(asks(call("echo", "b", n=1), usage=used), says("Done.", usage=used), id="second")
    result = await triage(first, billing(second, tools=[echo]), tools=[echo]).run("go")
    assert result.usage is not None
    assert (result.usage.input_tokens, result.outcome.steps, len(result.replies)) == (40, 4, 4)
    assert [each.tier for each in result.attempts] == ["first", "first", "second", "second"]
    assert result.outcome.tier == "second"


async def test_steps_and_the_guard_of_turns_end_agents_that_hand_over_for_ever() -> None:
    """F07: two that send the user to each other are cut as one agent is, and each of their calls has its answer."""
    back: list[AgentDescriptor] = []
    model = Turns([Text("Wait."), *asks(call("pong", "h1"))], [Text("Wait."), *asks(call("ping", "h2"))])
    model.turns = [*model.turns] * 20
    pong = AgentDescriptor(name="pong", model=model, tools=None, handoffs=back)
    ping = AgentDescriptor(name="ping", model=model, tools=None, handoffs=[pong])
    back.append(ping)
    for bounds in ({"limits": Limits(max_steps=5)}, {"runner": Runner(max_turns=5)}):
        model.seen.clear()
        result = await DefaultAgent(descriptor=ping, **bounds).run("go")
        assert (result.outcome.outcome, result.outcome.reason) == ("cut", "budget-steps")
        assert len(model.seen) == 5
        assert result.text == "Wait."
    ids = [call["id"] for message in result.messages for call in message.get("tool_calls") or ()]
    assert len(ids) == len(set(ids)) == 5
    assert ids == [message["tool_call_id"] for message in result.messages if message["role"] == "tool"]


async def test_an_agent_that_gets_the_run_back_goes_on_with_its_budget() -> None:
    """Of one chain there is one run, whoever calls it: what it spent before counts."""
    used = Usage(input_tokens=2450, output_tokens=2450)
    back: list[AgentDescriptor] = []
    house = Turns(asks(call("desk", "h1"), usage=used), says("never", usage=used))
    chain = define_chain(id="house", tiers=[house], budget=Budget(tokens=5000))
    desk = billing(Turns(asks(call("front", "h2"))), name="desk", handoffs=back)
    front = AgentDescriptor(name="front", model=chain, handoffs=[desk])
    back.append(front)
    result = await DefaultAgent(descriptor=front).run("go")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", "budget-tokens")
    assert len(house.seen) == 1


async def test_without_a_model_of_its_own_the_other_agent_calls_the_same_one() -> None:
    """In the same run of it, with its arguments."""
    model = Turns(asks(call("billing_desk", "h")), says("Done."))
    made = AgentDescriptor(name="triage", model=model, model_args={"top_k": 2}, handoffs=[billing(None)])
    result = await DefaultAgent(descriptor=made).run("go")
    assert [(ctx.brief, ctx.options) for ctx in model.seen] == [("", {"top_k": 2}), ("You bill.", {"top_k": 2})]
    assert len(result.attempts) == 2


async def test_a_handoff_among_other_calls_fails_the_run() -> None:
    """Nobody can say what should come first: nothing is done, nothing is kept."""
    ran: list[int] = []

    @as_tool
    async def note(n: int) -> str:
        """Note it."""
        ran.append(n)
        return "noted"

    for others in ([call("note", "a", n=1)], [call("billing_desk", "b")]):
        agent = triage(Turns(asks(*others, call("billing_desk", "h"))), billing(Turns(says("x"))), tools=[note])
        with pytest.raises(ModelBehaviorError, match="hands the conversation over and asks for more"):
            await agent.run("go")
        assert agent.run_state is not None
        assert agent.run_state.history == ()
    assert ran == []


@pytest.mark.parametrize("arguments", ['{"task": 5}', "{"])
async def test_a_handoff_with_wrong_arguments_is_answered(arguments: str) -> None:
    """The model reads what is wrong, as with any tool, and may try again; an empty task is none."""
    from isthmus.models.events import Finish
    from isthmus.models.normalise import make_call

    wrong = [make_call("billing_desk", arguments, call_id="a"), Finish("tool-calls")]
    first, second = Turns(wrong, asks(call("billing_desk", "b", task=None))), Turns(says("Done."))
    result = await triage(first, billing(second)).run("go")
    assert result.text == "Done."
    assert "Invalid arguments for billing_desk" in heard(first, 1)[-1][1]
    assert heard(second)[-1] == ("user", TAKE_OVER)


async def test_the_other_agent_may_fail() -> None:
    """Its error is the run's, with its type; the conversation is as it was, and what began has ended."""
    log: list[str] = []
    agent = triage(
        Turns(asks(call("billing_desk", "h"))),
        billing(Turns([UnavailableError("the desk is closed")]), shims=[Steps("three", log)]),
        hooks=Logs("app", log),
    )
    with pytest.raises(UnavailableError, match="the desk is closed"):
        await agent.run("go")
    assert agent.run_state is not None
    assert agent.run_state.history == ()
    assert log[-3:] == ["three.ends:Billing Desk", "app.agent_end:Billing Desk", "three.agent_end:Billing Desk"]


class Line(Turns):
    """A model with a connection for each run."""

    def __init__(self, log: list[str], *turns: Any) -> None:
        super().__init__(*turns)
        self.log = log

    @asynccontextmanager
    async def open_run(self) -> Any:
        self.log.append("line.opens")
        try:
            yield self
        finally:
            self.log.append("line.closes")


@pytest.mark.parametrize("ends", ["answers", "fails", "a hook raises"])
async def test_the_other_agents_model_is_closed_before_its_shims_end(ends: str) -> None:
    """F10: whether it answers or fails, or somebody else does."""

    class Raises(RunnerHooks):
        def on_llm_end(self, run: Any, response: Any) -> None:
            if ends == "a hook raises" and run.agent == "Billing Desk":
                raise LookupError(ends)

    log: list[str] = []
    turn = [UnavailableError("cut off")] if ends == "fails" else says("Done.")
    child = billing(Line(log, turn), shims=[Steps("three", log)])
    with suppress(UnavailableError, LookupError):
        await triage(Turns(asks(call("billing_desk", "h"))), child, hooks=Raises()).run("go")
    assert log[0] == "three.begins:Billing Desk"
    assert log[-4:] == ["line.opens", "line.closes", "three.ends:Billing Desk", "three.agent_end:Billing Desk"]


async def test_attempts_are_those_of_the_agent_that_calls() -> None:
    """A model that owns its retries gets one attempt, the other agent's, which does not, as many as the runner says."""
    second = Turns([UnavailableError("busy")], says("Done."))
    second.handles_retries = False
    agent = triage(Turns(asks(call("billing_desk", "h"))), billing(second), runner=Runner(max_attempts=2))
    assert (await agent.run("go")).text == "Done."


async def test_an_agent_that_cannot_begin_fails_the_run() -> None:
    """A shim of its that raises at the start: the handoff is through all the same, and no agent has begun twice."""

    class Broken(Shim):
        async def bind(self, run: Any) -> BoundShim:
            raise LookupError("no such account")

    agent = triage(Turns(asks(call("billing_desk", "h"))), billing(Turns(says("x")), shims=[Broken()]))
    kinds: list[str] = []

    async def read() -> None:
        async for event in agent.run_events("go"):
            kinds.append(named(event))

    with pytest.raises(LookupError, match="no such account"):
        await read()
    assert kinds[-4:] == ["handoff_start", "snap:run_end", "agent_end", "handoff_end"]
    assert kinds.count("agent_start") == kinds.count("agent_end") == 1
    assert (await DefaultAgent(descriptor=billing(Turns(says("y")))).run("go")).text == "y"


async def test_the_first_agents_shims_may_fail_to_end() -> None:
    """Then nobody takes over."""

    class Broken(Shim):
        async def bind(self, run: Any) -> BoundShim:
            bound = BoundShim()

            async def end(*_: Any) -> None:
                raise LookupError("lost")

            bound.on_run_end = end  # type: ignore[method-assign]
            return bound

    second = Turns(says("x"))
    with pytest.raises(ExceptionGroup) as caught:
        await triage(Turns(asks(call("billing_desk", "h"))), billing(second), shims=[Broken()]).run("go")
    assert isinstance(caught.value.exceptions[0], LookupError)
    assert not second.seen


async def test_a_model_that_takes_no_tools_cannot_take_over_with_some() -> None:
    """What is wrong is said when the agent is built, with the name of the other one, however far it is."""
    second = Turns(says("x"))
    second.supports = frozenset()
    wrong = billing(second, tools=[echo])
    with pytest.raises(InvalidRequestError, match=r"'Billing Desk', to which 'triage' may hand over: .*tools"):
        triage(Turns(), wrong)
    back: list[AgentDescriptor] = []
    between = AgentDescriptor(name="between", model=Turns(), handoffs=back)
    back += [between, wrong]
    with pytest.raises(InvalidRequestError, match="which 'between' may hand over"):
        triage(Turns(), between)
    triage(Turns(), billing(second))


@pytest.mark.parametrize("way", ["cancel", "close"])
async def test_a_run_that_is_stopped_in_the_other_agent_leaves_nothing(way: str) -> None:
    """F10: its shims end, its agent's end is told, its model's stream is closed; nothing is committed."""
    log: list[str] = []
    second = Turns([Text("half"), asyncio.Event()])
    agent = triage(
        Turns(asks(call("billing_desk", "h"))), billing(second, shims=[Steps("three", log)]), hooks=Logs("app", log)
    )
    stream = agent.run_stream("go")

    async def read() -> None:
        async for _ in stream:
            pass

    reader = asyncio.create_task(read())
    while not second.open:
        await asyncio.sleep(0)
    if way == "cancel":
        reader.cancel()
    else:
        await stream.aclose()
    await asyncio.wait((reader,))
    assert second.open == 0
    assert not tasks()
    assert log[-3:] == ["three.ends:Billing Desk", "app.agent_end:Billing Desk", "three.agent_end:Billing Desk"]
    assert agent.run_state is not None
    assert agent.run_state.history == ()
    agent.reset()


async def test_the_form_of_the_answer_is_the_other_agents() -> None:
    """Its own, where it has one; the one that the input asks for, where it has none."""
    form = PromptTemplate[Any, Refund](user_template="I paid twice.", output_schema=OutputSchema(Refund))
    for child in ({"output": Refund}, {}):
        second = Turns(says('{"amount": "many"}'), says('{"amount": 5}'))
        second.supports = frozenset({*second.supports, "output-schema"})
        agent = triage(Turns(asks(call("billing_desk", "h"))), billing(second, **child))
        result = await agent.run("I paid twice." if child else PromptSpec(form))
        assert result.final_output == Refund(amount=5)


async def test_ephemeral_context_goes_over_and_is_not_kept() -> None:
    """It is one run: both agents read it on every call, and nothing that the run leaves has it."""
    seen = internal_message({"role": "user", "content": "screen: x"}, origin="ui", ephemeral=True)
    first = Turns(asks(call("billing_desk", "h")))
    second = Turns(asks(call("echo", "a", n=1)), says("Done."))
    agent = triage(first, billing(second, tools=[echo]))
    result = await agent.run([seen, {"role": "user", "content": "go"}])
    for model, turn in ((first, 0), (second, 0), (second, 1)):
        assert ("user", "screen: x") in heard(model, turn)
    assert "screen: x" not in str(result.run_state.to_dict())
    assert "screen: x" not in agent.snapshot().to_json()


async def test_limits_of_tools_are_of_the_run_and_rounds_are_of_the_agent() -> None:
    """A tool that is used up stays so; rounds begin anew, and after the last one nothing is handed over."""
    first = Turns(asks(call("echo", "a", n=1)), asks(call("billing_desk", "h")))
    second = Turns(says("Done."))
    once = Tools([echo], tool_call_limits={"echo": 1}, max_tool_round_trips=2)
    await triage(first, billing(second, tools=once), tools=once).run("go")
    assert second.seen[0].tools == ()
    spent = Turns(asks(call("echo", "a", n=1)), asks(call("billing_desk", "h")), says("I stay."))
    result = await triage(spent, billing(Turns(says("never"))), tools=Tools([echo], max_tool_round_trips=1)).run("go")
    assert result.text == "I stay."
    assert "not registered" in heard(spent, 2)[-1][1]


async def test_a_default_handoff_is_to_a_fresh_agent_with_what_the_first_one_has() -> None:
    """The tool is `handoff`; tools, shims, model and arguments go over, instructions do not."""
    log: list[str] = []
    model = Turns(asks(call("handoff", "h", task="Finish it.")), says("Done."))
    made = AgentDescriptor(
        name="triage",
        model=model,
        instructions="You sort.",
        tools=[echo],
        shims=[Steps("one", log)],
        handoffs=[DefaultHandoff()],
    )
    result = await DefaultAgent(descriptor=made).run("go")
    first, second = model.seen
    assert [tool.name for tool in first.tools] == ["echo", "handoff"]
    assert [tool.name for tool in second.tools] == ["echo"]
    assert "You sort." not in second.brief != ""
    assert heard(model, 1)[-1] == ("user", "Finish it.")
    assert [line for line in log if "begins" in line] == ["one.begins:triage", "one.begins:handoff"]
    assert result.text == "Done."


async def test_two_agents_of_one_name_cannot_both_be_handed_to() -> None:
    """Nor one that has a tool's name; anything but a descriptor is refused."""
    one, two = billing(Turns(), name="Desk 1"), billing(Turns(), name="desk-1")
    with pytest.raises(ToolDefinitionError, match="'desk_1'"):
        triage(Turns(), one, two)
    with pytest.raises(ToolDefinitionError, match="'echo'"):
        triage(Turns(), billing(Turns(), name="Echo"), tools=[echo])
    stranger: Any = "billing"
    with pytest.raises(TypeError, match="'billing' is no AgentDescriptor"):
        triage(Turns(), stranger)
    with pytest.raises(TypeError, match="must be a list of descriptors"):
        AgentDescriptor(model=Turns(), handoffs=stranger_of(one))


def stranger_of(one: Any) -> Any:
    """A descriptor where a list should be."""
    return one


async def test_a_child_may_hand_its_errand_over() -> None:
    """A sub-agent's run is a run like any other: whoever it hands over to answers for it."""
    child = AgentDescriptor(
        name="child", model=Turns(asks(call("billing_desk", "h"))), tools=None, handoffs=[billing(Turns(says("paid")))]
    )
    parent = Turns(asks(call("child", "a")), says("done"))
    events = [event async for event in triage(parent, tools=[child.as_tool()]).run_events("go")]
    inner = {(event.agent, event.depth) for event in events if not event.is_root}
    assert inner == {("child", 1), ("Billing Desk", 1)}
    assert [event.result.text for event in events if event.kind == "tool_end" and event.result] == ["paid"]


async def test_who_took_over_may_start_helpers() -> None:
    """They work for it, one level below, and their tokens are the run's."""
    used = Usage(input_tokens=10, output_tokens=1)
    second = Turns(
        asks(call("agent", "a", name="One", task="x"), usage=used),
        says("helped", usage=used),
        says("Done.", usage=used),
    )
    agent = triage(Turns(asks(call("billing_desk", "h"), usage=used)), billing(second, tools=[DefaultAgentTool()]))
    events = [event async for event in agent.run_events("go")]
    assert {(event.agent, event.depth) for event in events} == {("triage", 0), ("Billing Desk", 0), ("One", 1)}
    again = triage(Turns(asks(call("billing_desk", "h"), usage=used)), billing(second, tools=[DefaultAgentTool()]))
    second.seen.clear()
    result = await again.run("go")
    assert result.usage is not None
    assert (result.usage.input_tokens, result.outcome.steps, len(result.attempts)) == (40, 3, 4)


async def test_a_run_without_a_kept_conversation_hands_over_too() -> None:
    """A state that is given to run is where the conversation begins; its identity holds for both."""
    seen: list[Any] = []

    @as_tool
    async def where(context: Any) -> str:
        """Look."""
        seen.append(context)
        return "here"

    first = Turns(asks(call("where", "a")), asks(call("billing_desk", "h")))
    second = Turns(asks(call("where", "b")), says("Done."))
    agent = triage(first, billing(second, tools=[where]), tools=[where])
    result = await agent.fork(RunState(history=[{"role": "user", "content": "go"}], task_id="t1"))
    assert result.text == "Done."
    assert [context.agent_name for context in seen] == ["triage", "Billing Desk"]
    assert len({context.run_id for context in seen}) == 1
    assert all(context.run_id == str(context.run_state.task_id) for context in seen)


async def test_the_plain_stream_answers_the_call() -> None:
    """Every call has its `ToolResult` there; this one says who accepted."""
    from isthmus.harness.recipe import Order, Recipe
    from isthmus.harness.runstream import RunStream

    made = AgentDescriptor(
        name="triage", model=Turns(asks(call("billing_desk", "h"))), handoffs=[billing(Turns(says("Done.")))]
    )
    recipe = Recipe(made, limits=None, runner=None, hooks=())
    order = Order(items=[{"role": "user", "content": "go"}])
    state = RunState()
    stream = RunStream(lambda state: recipe.begin(state, order), recipe.chain, before=state)
    results = [event async for event in stream if isinstance(event, ToolResult)]
    assert [(result.tool, result.outcome) for result in results] == [("billing_desk", "ok")]


async def test_agents_are_told_apart_by_letters_of_every_script() -> None:
    """The tool has the agent's letters; an adapter makes a name of them that its provider takes."""
    desks = [AgentDescriptor(name=name, model=Turns(says(name))) for name in ("退款", "簿记", "Bücher & Co")]
    model = Turns(asks(call("簿记", "a")))
    result = await triage(model, *desks).run("go")
    assert [tool.name for tool in model.seen[0].tools] == ["退款", "簿记", "bücher_co"]
    assert result.text == "簿记"
