"""Calls that run while replies go on, in runs of agents: when they run, under which terms, and how their results go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.chain import define_chain
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ModelBehaviorError, TransientError
from isthmus.harness import (
    AgentDescriptor,
    AgentSnapshot,
    BoundShim,
    DefaultAgent,
    Limits,
    RunnerHooks,
    Shim,
    ToolResult,
)
from isthmus.harness.history import UNKNOWN
from isthmus.models import Tools, as_tool
from isthmus.models.aside import Aside
from isthmus.models.events import Finish, Text
from isthmus.models.responses import ModelStreamEvent, ToolCall, ToolCallFunction
from support.live_kit import live_client
from support.live_runs import ASYNC, WAYS, Told, live_agent, read
from support.loopback import LoopbackServer
from support.responses_frames import call as item
from support.responses_frames import message, response
from support.responses_server import answer_stream, client, sent
from support.turns import Turns, call, says, tasks


def asked(name: str = "look", call_id: str = "c1", arguments: str = "{}") -> Aside:
    """A whole call that may run at once, as a model tells of it."""
    made = ToolCall(id=call_id, function=ToolCallFunction(name, arguments))
    return Aside(ModelStreamEvent(kind="provider", async_tool_call=made))


def turn(*calls: Any, text: str = "") -> list[Any]:
    """A reply with asynchronous calls, each told of as soon as it was whole, and again at the end."""
    told = [asked(each.tool, each.call_id, each.arguments) for each in calls]
    return [*told, *([Text(text)] if text else []), *calls, Finish("tool-calls" if calls else "stop")]


class Desk:
    """Tools that end when they are told to, and what they saw."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.stopped: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.running = self.most = 0

    def gate(self, name: str) -> asyncio.Event:
        """What lets a call end."""
        return self.gates.setdefault(name, asyncio.Event())

    async def look(self, name: str = "a") -> str:
        """Look, until somebody opens the gate."""
        self.began.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate(name).wait()
        except asyncio.CancelledError:
            self.stopped.append(name)
            raise
        finally:
            self.running -= 1
        return f"seen {name}"

    def opened(self) -> Desk:
        """With every gate open."""
        for name in "abc":
            self.gate(name).set()
        return self


def described(model: Any, desk: Desk, **settings: Any) -> DefaultAgent:
    """An agent with the one tool."""
    policy = settings.pop("policy", {})
    shims = settings.pop("shims", ())
    made = AgentDescriptor(name="a", model=model, tools=Tools([desk.look], **policy), shims=shims)
    return DefaultAgent(descriptor=made, **settings)


def roles(messages: Any) -> list[str]:
    """Who says what, results by their call."""
    return [message.get("tool_call_id") or message["role"] for message in messages]


async def test_a_call_runs_before_the_reply_is_over() -> None:
    """It begins as soon as it is whole, two at a time, while text goes on; the reply repeats them and they run once."""
    desk, going_on = Desk(), asyncio.Event()
    first = [asked(call_id="c1", arguments='{"name":"a"}'), asked(call_id="c2", arguments='{"name":"b"}')]
    calls = [call("look", "c1", name="a"), call("look", "c2", name="b")]
    model = Turns([*first, Text("I "), going_on, Text("look"), *calls, Finish("tool-calls")], says("Done"))
    stream = described(model, desk).run_stream("go")
    seen = []
    async for event in stream:
        if event.text == "I ":
            await asyncio.sleep(0.01)
            assert desk.began == ["a", "b"]
            going_on.set()
            desk.opened()
        seen.append(event.text)
    assert "look" in seen
    assert (desk.began, desk.most) == (["a", "b"], 2)
    result = await stream.result()
    assert result.final_output == "Done"
    assert roles(model.seen[1].messages) == ["user", "assistant", "c1", "c2"]
    assert [message["content"] for message in model.seen[1].messages[2:]] == ["seen a", "seen b"]


async def test_results_go_as_they_become_ready() -> None:
    """With nothing to send the first result is waited for; the next goes with a later turn, in the order of ends."""
    desk = Desk()
    calls = [call("look", f"c{number}", name=name) for number, name in enumerate("abc", 1)]
    model = Turns(turn(*calls, text="one"), says("two"), says("three"), says("four"))
    stream = described(model, desk).run_stream("go")

    async def read_on() -> None:
        async for _ in stream:
            pass

    task = asyncio.ensure_future(read_on())
    for number, name in enumerate("cab", 1):
        await asyncio.sleep(0.02)
        assert len(model.seen) == number
        desk.gate(name).set()
    await task
    assert [roles(ctx.messages)[-1] for ctx in model.seen[1:]] == ["c3", "c1", "c2"]
    assert roles((await stream.result()).messages) == [
        "user",
        "assistant",
        "c3",
        "assistant",
        "c1",
        "assistant",
        "c2",
        "assistant",
    ]
    assert (await stream.result()).final_output == "four"


async def test_other_calls_do_not_wait_for_them() -> None:
    """The results of ordinary calls go with what else is ready; the rest follows."""
    desk = Desk()

    async def quick() -> str:
        """Answer."""
        return "quick"

    slow, other = call("look", "c1", name="a"), call("quick", "c2")
    model = Turns([asked("look", "c1", '{"name":"a"}'), slow, other, Finish("tool-calls")], says("two"), says("three"))
    made = AgentDescriptor(name="a", model=model, tools=Tools([desk.look, quick]))
    stream = DefaultAgent(descriptor=made).run_stream("go")
    async for event in stream:
        if event.text == "two":
            assert roles(model.seen[1].messages) == ["user", "assistant", "c2"]
            desk.opened()
    assert roles((await stream.result()).messages) == ["user", "assistant", "c2", "assistant", "c1", "assistant"]


async def test_a_repeated_call_runs_once() -> None:
    """Told of again in the same reply, or in a later one: one run, one call in the history, one result."""
    desk = Desk().opened()
    same = call("look", "c1", name="a")
    model = Turns([*turn(same)[:1], *turn(same)], turn(same, text="again"), says("Done"))
    result = await described(model, desk).run("go")
    assert desk.began == ["a"]
    assert roles(result.messages) == ["user", "assistant", "c1", "assistant"]
    assert result.final_output == "again"


async def test_a_repeated_call_with_other_arguments_fails_the_run() -> None:
    """One id stands for one call; what runs is stopped, and named on the error."""
    desk = Desk()
    model = Turns([*turn(call("look", "c1", name="a"))[:1], Text("x"), 0.01, *turn(call("look", "c1", name="b"))])
    with pytest.raises(ModelBehaviorError, match=r"^Repeated call ID changed its arguments\.") as caught:
        await described(model, desk).run("go")
    assert (desk.began, desk.stopped) == (["a"], ["a"])
    assert caught.value.__notes__ == ["asynchronous calls whose results were not delivered: c1"]
    assert not tasks()


@pytest.mark.parametrize(
    ("name", "policy", "limits"),
    [
        ("nothing", {}, {}),
        ("look", {"tool_choice": "none"}, {}),
        ("look", {"tool_call_limits": {"look": 1}}, {}),
        ("look", {}, {"max_calls": 1}),
        ("look", {"max_tool_round_trips": 0}, {}),
    ],
    ids=["no handler", "choice none", "limit of the tool", "limit of the run", "no round left"],
)
async def test_a_call_that_may_not_be_made_fails_the_run(name: str, policy: Any, limits: Any) -> None:
    """Budgets are taken as soon as a call begins, so that the second of two at once is one too many."""
    desk = Desk()
    calls = [call("look", "c1", name="a"), call("look", "c2", name="b")]
    two = "tool_call_limits" in policy or "max_calls" in limits
    model = Turns(turn(*calls) if two else turn(call(name, "c1")), says("never"))
    with pytest.raises(ModelBehaviorError, match=repr(name)):
        await described(model, desk, policy=policy, limits=Limits(**limits)).run("go")
    assert desk.began == []
    assert len(model.seen) == 1
    assert not tasks()


async def test_budgets_are_shared_with_ordinary_calls() -> None:
    """A tool whose calls are used up by one kind is not offered to the other."""
    desk = Desk().opened()
    ordinary = [call("look", "c2", name="b"), Finish("tool-calls")]
    model = Turns(turn(call("look", "c1", name="a")), ordinary, says("Done"))
    result = await described(model, desk, policy={"tool_call_limits": {"look": 1}}).run("go")
    assert desk.began == ["a"]
    assert model.seen[1].tools == ()
    assert "used up" in result.messages[-2]["content"]


async def test_a_call_that_never_came_to_its_handler_costs_nothing() -> None:
    """Arguments that do not fit are answered, and the tool is offered again."""
    desk = Desk().opened()
    model = Turns(turn(call("look", "c1", name=[])), turn(call("look", "c2", name="b")), says("Done"))
    result = await described(model, desk, policy={"tool_call_limits": {"look": 1}}).run("go")
    assert desk.began == ["b"]
    assert "Invalid arguments" in result.messages[2]["content"]


async def test_a_call_that_times_out_is_not_tried_again() -> None:
    """Its tool may still have had its effect; the model is told."""
    desk = Desk()
    policy = {"tool_call_timeout": 0.02, "tool_call_max_retries": 3}
    model = Turns(turn(call("look", "c1", name="a")), says("Done"))
    result = await described(model, desk, policy=policy).run("go")
    assert desk.began == ["a"]
    assert "timed out after 0.02s (1 attempts)" in result.messages[2]["content"]


class Diary(RunnerHooks):
    """Writes down what it is told, and fails where it is to."""

    def __init__(self, log: list[str], fails: str = "") -> None:
        self.log, self.fails = log, fails

    def on_tool_call_start(self, run: Any, call: Any) -> None:
        """A call begins."""
        self.log.append(f"start {call.call_id}")
        if self.fails == "start":
            raise KeyError("start")

    def on_tool_call_end(self, run: Any, call: Any, *, result: ToolResult) -> None:
        """A call is answered."""
        self.log.append(f"end {result.call_id} {result.outcome}")


class Leaving(Shim):
    """Writes down when a run ends for shims."""

    name = "leaving"

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def bind(self, run: Any) -> BoundShim:
        """What attends."""
        log = self.log

        class Bound(BoundShim):
            async def on_run_end(self, state: Any, transient_state: Any) -> None:
                log.append("shims end")

        return Bound()


async def test_hooks_and_events_tell_of_them() -> None:
    """Start and end of each, once; the start comes while the reply goes on."""
    log: list[str] = []
    desk, pause = Desk().opened(), 0.01
    model = Turns(
        [
            *turn(call("look", "c1", name="a"))[:1],
            pause,
            asked("look", "c1", '{"name":"a"}'),
            Text("x"),
            call("look", "c1", name="a"),
            Finish("tool-calls"),
        ],
        says("Done"),
    )
    stream = described(model, desk, hooks=Diary(log)).run_events("go")
    kinds = [event.kind if event.model_event is None else event.model_event.kind async for event in stream]
    assert log == ["start c1", "end c1 ok"]
    assert kinds.index("tool_start") < kinds.index("text_delta") < kinds.index("llm_end")
    assert (kinds.count("tool_start"), kinds.count("tool_end")) == (1, 1)
    assert kinds.count("state_snapshot") == 5


async def test_a_hook_that_fails_fails_the_run() -> None:
    """As for any other call."""
    desk = Desk().opened()
    model = Turns(turn(call("look", "c1", name="a")), says("Done"))
    with pytest.raises(KeyError, match="start"):
        await described(model, desk, hooks=Diary([], "start")).run("go")
    assert desk.began == []
    assert not tasks()


@pytest.mark.parametrize("how", ["cancelled", "closed", "closed while it waits"])
async def test_a_stop_ends_the_calls_before_the_shims(how: str) -> None:
    """They are cancelled and waited for; the error names them, and the transcript says that nobody knows."""
    log: list[str] = []
    desk = Desk()
    replies = turn(call("look", "c1", name="a"), text="x")
    model = Turns(replies if how == "closed while it waits" else [*replies[:1], Text("x"), asyncio.Event()])

    async def look(name: str = "a") -> str:
        """Look."""
        try:
            return await desk.look(name)
        finally:
            await asyncio.sleep(0.01)
            log.append("call ends")

    made = AgentDescriptor(name="a", model=model, tools=Tools([look]), shims=[Leaving(log)])
    stream = DefaultAgent(descriptor=made, hooks=Diary(log)).run_stream("go")

    async def go() -> None:
        async for _ in stream:
            pass

    task = asyncio.ensure_future(go())
    await asyncio.sleep(0.05)
    assert desk.began == ["a"]
    if how == "cancelled":
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert caught.value.__notes__ == ["asynchronous calls whose results were not delivered: c1"]
    else:
        await stream.aclose()
        await asyncio.gather(task, return_exceptions=True)
    assert log == ["start c1", "call ends", "end c1 unknown", "shims end"]
    assert stream.outcome is not None
    assert roles(stream.outcome.messages) == ["user", "assistant", "c1"]
    assert stream.outcome.messages[-1]["content"] == UNKNOWN
    assert [note.detail for note in stream.outcome.notes] == ["the result of 'c1' (look) was not awaited"]
    assert not tasks()


async def test_pending_calls_are_not_taken_up_again() -> None:
    """What a cut run leaves, also as a snapshot, says that their outcome is unknown; no later run awaits them."""
    desk = Desk()
    model = Turns([*turn(call("look", "c1", name="a"))[:1], Text("x"), 0.01, TransientError("lost")], says("Next"))
    agent = described(model, desk)
    first = await agent.run("go")
    assert first.outcome.reason == "stream-error"
    assert desk.stopped == ["a"]
    restored = AgentSnapshot.from_json(agent.snapshot().to_json())
    assert [message["content"] for message in restored.state["history"]] == ["go", "x", UNKNOWN]
    made = AgentDescriptor(name="a", model=model, tools=Tools([desk.look]))
    result = await DefaultAgent(descriptor=made, snapshot=restored).run("and now?")
    assert (result.final_output, desk.began) == ("Next", ["a"])
    assert roles(model.seen[1].messages) == ["user", "assistant", "c1", "user"]


async def test_a_chain_does_not_try_again_what_has_begun_to_run() -> None:
    """A tier that fails after it told of a call has begun its reply, whatever came of it: no other tier runs it too."""
    desk = Desk()
    first = Turns([*turn(call("look", "c1", name="a"))[:1], 0.01, TransientError("lost")], id="first")
    other = Turns(says("From the other"), id="other")
    first.handles_retries = False
    chain = define_chain(id="two", tiers=[first, other])
    result = await described(chain, desk).run("go")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", "stream-error")
    assert (desk.began, desk.stopped, other.seen) == (["a"], ["a"], [])
    assert result.outcome.error is not None
    assert result.outcome.error.__notes__ == ["asynchronous calls whose results were not delivered: c1"]
    assert roles(result.messages) == ["user", "assistant", "c1"]


async def test_a_structured_answer_waits_for_them() -> None:
    """What a model says meanwhile is no answer, and is neither judged nor repaired."""
    desk = Desk().opened()
    model = Turns(turn(call("look", "c1", name="a"), text="I look"), says("7"))
    made = AgentDescriptor(name="a", model=model, tools=Tools([desk.look]), output=int)
    result = await DefaultAgent(descriptor=made).run("go")
    assert result.final_output == 7
    assert roles(model.seen[1].messages)[:3] == ["user", "assistant", "c1"]
    assert len(model.seen) == 2


async def test_a_call_id_of_an_earlier_run_is_told_apart() -> None:
    """A provider that counts anew in each run: the second call runs, under an id of its own."""
    desk = Desk().opened()
    model = Turns(turn(call("look", "c1", name="a")), says("One"), turn(call("look", "c1", name="b")), says("Two"))
    agent = described(model, desk)
    await agent.run("go")
    result = await agent.run("again")
    assert desk.began == ["a", "b"]
    assert roles(result.messages)[4:] == ["user", "assistant", "c1_2", "assistant"]
    assert result.messages[6]["content"] == "seen b"


async def play(peer: Peer) -> None:
    """An asynchronous call over a WebSocket."""
    request = await peer.hear()
    assert request["tools"][0]["async"] is True
    await peer.begin("r1")
    await peer.call("look", '{"name": "a"}', call_id="c1", **ASYNC)
    await peer.text("I look.")
    await peer.end()
    request = await peer.hear()
    assert request["input"] == [{"type": "function_call_output", "call_id": "c1", "output": "seen a"}]
    await peer.begin("r2", "r1")
    await peer.text("Seen.")
    await peer.end()


@pytest.mark.parametrize("way", WAYS)
async def test_they_work_over_a_websocket(way: str) -> None:
    """Declared so, run while the reply goes on, answered once with what is new."""
    desk = Desk()

    async def act(event: ModelStreamEvent, stream: Any, told: Told) -> None:
        if event.text == "I look.":
            await asyncio.sleep(0.01)
            assert desk.began == ["a"]
            desk.opened()

    async with live_server(play) as server:
        agent = live_agent(server, tools=Tools([as_tool(desk.look)]), async_tools=["look"])
        told = await read(agent, act, way=way)
    assert told.result is not None
    assert told.result.final_output == "Seen."
    assert told.text == "I look.Seen."


async def test_a_plain_run_streams_such_a_model() -> None:
    """`run()` too: the model says that it must be streamed."""
    desk = Desk().opened()
    async with live_server(play) as server, live_client(server, async_tools=["look"]) as model:
        assert model.requires_streaming
        result = await described(model, desk).run("go")
    assert result.final_output == "Seen."


async def test_they_work_over_http() -> None:
    """Declared so, begun while the reply is streamed, answered with the next request."""
    desk = Desk().opened()
    flagged = {**item("look", '{"name": "a"}'), "async": True}
    script = [answer_stream(response(flagged)), answer_stream(response(message("Seen.")))]
    async with LoopbackServer(script) as server, client(server, async_tools=["look"]) as model:
        result = await described(model, desk).run("go")
        assert sent(server)["tools"][0]["async"] is True
        outputs = [each for each in sent(server, 1)["input"] if each.get("type") == "function_call_output"]
    assert [each["output"] for each in outputs] == ["seen a"]
    assert (result.final_output, desk.began) == ("Seen.", ["a"])
