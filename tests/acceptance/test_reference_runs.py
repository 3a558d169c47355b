"""Runs, streams and events as the reference describes them: the rows that no other test holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from isthmus.chain import Budget, define_chain
from isthmus.errors import ChainExhausted, ModelsException, TransientError, UnavailableError
from isthmus.harness import AgentDescriptor, BoundShim, DefaultAgent, RunEvent, RunnerHooks, RunState, Shim
from isthmus.models import Tools, internal_message, is_ephemeral_message, is_internal_message
from isthmus.models.events import Text
from isthmus.models.responses import ModelResponse
from support.turns import Turns, asks, call, says, tasks

FILES = internal_message({"role": "user", "content": "files: a.csv"}, origin="files")
VIEW = internal_message({"role": "user", "content": "sees a.csv"}, origin="ui", ephemeral=True)


def described(model: Any, **more: Any) -> DefaultAgent:
    """An agent that keeps its conversation."""
    hooks = more.pop("hooks", ())
    return DefaultAgent(descriptor=AgentDescriptor(name="scout", model=model, **more), hooks=hooks)


async def look() -> str:
    """Look."""
    return "seen"


class Diary(RunnerHooks):
    """Writes down what it is told."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_agent_end(self, run: Any, result: Any) -> None:
        self.log.append("on_agent_end")


class Scoped(Turns):
    """A model whose scope of a run is seen."""

    def __init__(self, log: list[str], *turns: Any) -> None:
        super().__init__(*turns)
        self.log = log

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[Any]:
        self.log.append("model opens")
        try:
            yield self
        finally:
            self.log.append("model closes")


class Ends(Shim):
    """Says when it ends, and keeps something."""

    name = "ends"

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def bind(self, run: Any) -> BoundShim:
        log = self.log

        class Bound(BoundShim):
            async def prepare_turn(self, turn: Any) -> None:
                turn.run_state.shim_state["kept"] = [
                    *turn.run_state.shim_state.get("kept", ()),
                    turn.run_state.turn_count,
                ]

            async def on_run_end(self, state: Any, transient_state: Any) -> None:
                log.append("on_run_end")

        return Bound()


@pytest.mark.parametrize("turn", [says("a"), [TransientError("down")]], ids=["well", "failed"])
async def test_a_run_is_left_in_this_order(turn: Any) -> None:
    """The model's scope, then the shims, then the snapshot of the end, then who is told of the agent's end."""
    log: list[str] = []
    agent = described(Scoped(log, turn), shims=[Ends(log)], hooks=Diary(log))
    try:
        async for event in agent.run_events("go"):
            if event.kind in ("agent_end", "state_snapshot") and "on_run_end" in log:
                log.append(event.kind)
    except ModelsException:
        pass
    told = [entry for entry in log if entry not in ("state_snapshot", "agent_end")]
    assert told == ["model opens", "model closes", "on_run_end", "on_agent_end"]
    assert log[-2:] == ["state_snapshot", "agent_end"]


async def test_snapshots_count_turns_messages_and_replies_and_copy_the_state() -> None:
    """At each of the four boundaries; what a shim keeps later changes no snapshot."""
    agent = described(Turns(asks(call("look")), says("done")), tools=[look], shims=[Ends([])])
    states = [event.state async for event in agent.run_events("go") if event.state is not None]
    assert [
        (each.boundary, each.turn_count, each.history_length, each.response_count, each.shim_state.get("kept"))
        for each in states
    ] == [
        ("run_start", 0, 1, 0, None),
        ("turn_prepared", 0, 1, 0, [1]),
        ("tool_round_end", 1, 3, 1, [1]),
        ("turn_prepared", 1, 3, 1, [1, 2]),
        ("run_end", 2, 4, 2, [1, 2]),
    ]


async def test_an_error_is_raised_to_the_reader_and_by_the_result() -> None:
    """Both get the same object, with how far the run had come."""
    agent = described(Turns(asks(call("look")), [TransientError("down")]), tools=[look])
    for stream in (agent.run_stream("go"), agent.run_events("go")):
        with pytest.raises(ChainExhausted) as read:
            async for _ in stream:
                pass
        with pytest.raises(ChainExhausted) as asked:
            await stream.result()
        assert asked.value is read.value
        assert read.value.run_data is not None
        response = read.value.run_data.raw_response
        assert isinstance(response, ModelResponse)
        assert response.choices[0].message.tool_calls[0].function.name == "look"  # type: ignore[index]
        agent.descriptor.model.seen.clear()  # type: ignore[union-attr]


async def test_before_any_reply_the_details_of_an_error_are_empty() -> None:
    """A run that failed at its first call had no reply."""
    with pytest.raises(ChainExhausted) as raised:
        await described(Turns([TransientError("down")])).run("go")
    assert raised.value.run_data is not None
    assert raised.value.run_data.raw_response is None


@pytest.mark.parametrize("way", ["run_stream", "run_events"])
async def test_nothing_is_read_before_it_is_asked_for(way: str) -> None:
    """No queue grows behind a slow reader: the model is never more than one event ahead of him."""
    given: list[int] = []

    class Counting(Turns):
        async def stream(self, ctx: Any) -> Any:
            for number in range(200):
                given.append(number)
                yield Text("x")
            for event in says("."):
                yield event

    read = 0
    async with getattr(described(Counting()), way)("go") as stream:
        async for event in stream:
            if isinstance(event, RunEvent) and event.kind != "model_stream":
                continue
            read += 1
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(given) <= read + 1
            if read == 50:
                break
    assert not tasks()


@pytest.mark.parametrize("parallel", [False, True])
async def test_a_raising_tool_is_answered_told_and_harms_no_other(parallel: bool) -> None:
    """Its end is an event with its outcome; the calls beside it, an unknown one among them, are answered too."""

    async def broken() -> None:
        """Break."""
        raise ZeroDivisionError("by nought")

    model = Turns(asks(call("broken", "a"), call("nobody", "b"), call("look", "c")), says("done"))
    agent = described(model, tools=Tools([broken, look], parallel_tool_calls=parallel))
    ends = []
    async with agent.run_events("go") as stream:
        async for event in stream:
            if event.kind == "tool_end":
                ends.append((event.result.call_id, event.result.outcome))  # type: ignore[union-attr]
        result = await stream.result()
    assert ends == [("a", "error"), ("b", "unknown-tool"), ("c", "ok")]
    assert result.final_output == "done"
    assert [message["tool_call_id"] for message in result.messages if message["role"] == "tool"] == ["a", "b", "c"]
    assert not tasks()


async def test_calls_without_any_tools_are_answered() -> None:
    """An agent that has none tells the model so, and goes on."""
    model = Turns(asks(call("look")), says("Then without."))
    result = await described(model).run("go")
    assert result.final_output == "Then without."
    assert "not registered" in result.messages[2]["content"]


async def test_hooks_and_events_see_the_marks_that_the_model_does_not() -> None:
    """Marks stand in hooks, events and history; an event's dict leaves internal messages out unless asked for them."""
    seen: list[list[dict[str, Any]]] = []

    class Reads(RunnerHooks):
        def on_llm_start(self, run: Any, messages: list[dict[str, Any]]) -> None:
            seen.append(messages)

    agent = described(Turns(says("a")), hooks=Reads())
    events = [event async for event in agent.run_events([FILES, VIEW, {"role": "user", "content": "go"}])]
    start = next(event for event in events if event.kind == "llm_start")
    for messages in (seen[0], start.messages):
        assert is_internal_message(messages[0], "files")  # type: ignore[index]
        assert is_ephemeral_message(messages[1], "ui")  # type: ignore[index]
    shown = start.to_dict()["payload"]["messages"]
    assert [message["content"] for message in shown] == ["go"]
    whole = start.to_dict(include_internal=True)["payload"]["messages"]
    assert [message["content"] for message in whole] == ["files: a.csv", "sees a.csv", "go"]
    assert '"files: a.csv"' not in start.dumps()


async def test_runs_and_streams_of_one_agent_follow_one_another() -> None:
    """A run, a stream and a stream of events that are begun at once never overlap, and each goes on from the last."""
    model = Turns([0.01, *says("a")])
    agent = described(model)
    inside: list[int] = []

    class Watched(Turns):
        async def stream(self, ctx: Any) -> Any:
            async for event in super().stream(ctx):
                inside.append(self.open)
                yield event

    agent = described(Watched([0.01, *says("a")]))

    async def read(stream: Any) -> int:
        async for _ in stream:
            pass
        return (await stream.result()).run_state.revision  # type: ignore[no-any-return]

    result, *others = await asyncio.gather(
        agent.run("one"), read(agent.run_stream("two")), read(agent.run_events("three"))
    )
    assert (result.run_state.revision, others) == (1, [2, 3])
    assert set(inside) == {1}


async def test_a_failed_state_leaves_the_conversation() -> None:
    """A run that was given a state in place of the conversation, and fails, replaces nothing."""
    model = Turns(says("a"), [TransientError("down")])
    agent = described(model)
    await agent.run("one")
    before = agent.run_state
    with pytest.raises(ChainExhausted):
        await agent.run(RunState(history=[{"role": "user", "content": "other"}]))
    assert agent.run_state == before


async def test_the_tries_of_a_chain_are_events_of_the_run() -> None:
    """The end of each model call lists its tries, of each tier, and what followed; in the event's JSON too."""
    first = Turns([UnavailableError("down")], says("never"), id="first")
    second = Turns(asks(call("look")), says("done"), id="second")
    agent = described(define_chain(id="c", tiers=[first, second]), tools=[look])
    events = [event async for event in agent.run_events("go") if event.kind == "llm_end"]
    told = [
        [(each.tier, each.error_class, each.next, each.finish) for each in event.attempts or ()] for event in events
    ]
    assert told == [
        [("first", "unavailable", "fallback", None), ("second", None, None, "tool-calls")],
        [("second", None, None, "stop")],
    ]
    shown = events[0].to_dict()["payload"]["attempts"]
    assert [(each["tier"], each.get("class")) for each in shown] == [("first", "unavailable"), ("second", None)]
    assert json.loads(events[0].dumps())["payload"]["attempts"] == shown


async def test_the_tries_of_a_call_that_fails_are_told_too() -> None:
    """Its end has no reply, and says what was tried."""
    ends: list[RunEvent] = []
    stream = described(Turns([UnavailableError("down")])).run_events("go")

    async def read() -> None:
        async for event in stream:
            if event.kind == "llm_end":
                ends.append(event)

    with pytest.raises(ChainExhausted):
        await read()
    assert [(each.error_class, each.next) for each in ends[0].attempts or ()] == [("unavailable", "fallback")]
    assert ends[0].response is None


async def test_a_budget_of_the_chain_ends_a_run_inside_it() -> None:
    """The steps of the chain's budget count in the run; what there was is returned, and the next run has them anew."""
    chain = define_chain(id="c", tiers=[Turns(asks(call("look")))], budget=Budget(steps=2))
    agent = described(chain, tools=[look])
    for _ in range(2):
        result = await agent.run("go")
        assert (result.outcome.outcome, result.outcome.reason, result.turn_count) == ("cut", "budget-steps", 2)


async def test_a_reply_that_was_cut_goes_on_inside_the_run() -> None:
    """Each part is a model call with its own events; what is read is joined, and the history has one answer."""
    agent = described(Turns(says("one two", finish="length"), says(" three")))
    texts, ends = [], 0
    async with agent.run_events("go") as stream:
        async for event in stream:
            ends += event.kind == "llm_end"
            if event.model_event is not None and event.model_event.text:
                texts.append(event.model_event.text)
        result = await stream.result()
    assert ("".join(texts), result.text, ends) == ("one two three", "one two three", 2)
    assert [message["content"] for message in result.run_state.history] == ["go", "one two three"]
