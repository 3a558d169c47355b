"""Runs as their reader sees them: exact orders, joined text, clean ends."""

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.chain import Budget, define_chain
from isthmus.conformance import scripted
from isthmus.errors import CutReason, ProtocolError, TierError, TransientError
from isthmus.harness import AgentDescriptor, BoundShim, RunIdentity, RunnerHooks, Shim
from isthmus.harness.agents import DefaultAgent
from isthmus.harness.history import NOT_EXECUTED, UNKNOWN
from isthmus.harness.limits import Limits
from isthmus.harness.loop import CUT_OFF
from isthmus.harness.pairing import paired
from isthmus.harness.runstream import RunStream
from isthmus.models.cancellation import CancellationToken
from isthmus.models.events import Call, CallDelta, Finish, Native, Reasoning, Reset, Text
from isthmus.models.executor import ToolResult
from isthmus.models.fold import chain_of_causes
from isthmus.models.tools import Tool, Tools, as_tool
from isthmus.observability import hooks
from support.turns import Turns, asks, call, says, tasks


async def echo(n: int) -> int:
    """Give it back."""
    return n


async def hang(n: int = 0) -> None:
    """Never end."""
    await asyncio.Event().wait()


async def read(stream: RunStream) -> list[Any]:
    """All events, tool results without their times."""
    events = [event async for event in stream]
    return [
        (event.call_id, event.content, event.outcome) if isinstance(event, ToolResult) else event for event in events
    ]


async def test_events_pass_in_order_through_a_round_of_tools() -> None:
    """Text, reasoning, previews and calls of a step, its results in call order, then the next step; no finish."""
    native = Native("d", "thinking", 1)
    first = [
        Reasoning("hm"),
        Text("let"),
        Text(" me"),
        native,
        CallDelta(0, "a", "echo", '{"n":1}'),
        call("echo", "a", n=1),
        call("echo", "b", n=2),
        Finish("tool-calls"),
    ]
    model = Turns(first, says("do", "ne"))
    stream = DefaultAgent(model=model, tools=[echo]).run_stream("go")
    assert await read(stream) == [
        *first[:-1],
        ("a", "1", "ok"),
        ("b", "2", "ok"),
        Text("do"),
        Text("ne"),
    ]
    assert stream.outcome is not None
    assert (stream.outcome.outcome, stream.outcome.text, stream.outcome.tier) == ("completed", "done", "turns")
    assert [message["role"] for message in model.seen[1].messages] == ["user", "assistant", "tool", "tool"]
    assert model.open == 0
    assert not tasks()


async def test_ordinary_text_passes_as_the_very_object() -> None:
    """A text event is handed on, not copied, empty ones too."""
    texts = [Text("a"), Text(""), Text("b")]
    got = await read(DefaultAgent(model=Turns([*texts, Finish("stop")])).run_stream("go"))
    assert all(ours is theirs for ours, theirs in zip(got, texts, strict=True))


async def test_a_continuation_is_joined_in_the_stream() -> None:
    """The consumer sees each word once, and after the last continuation the mark."""
    model = Turns(
        says("one two", finish="length"),
        says("tw", "o th", "ree", finish="length"),
        says("three", " fo", finish="length"),
    )
    stream = DefaultAgent(model=model, limits=Limits(max_continuations=2)).run_stream("go")
    events = await read(stream)
    text = "".join(event.text for event in events)
    assert text == f"one two three fo\n\n{CUT_OFF}"
    assert stream.outcome is not None
    assert (stream.outcome.reason, stream.outcome.text) == (CutReason.LENGTH, text)
    assert stream.outcome.messages[-1]["content"] == "one two three fo"
    assert len(model.seen) == 3


_words = st.lists(st.text("abcdefghij", min_size=4, max_size=6), min_size=3, max_size=8, unique=True)


@given(_words, st.data())
def test_a_cut_text_streams_whole_whatever_the_pieces(words: list[str], data: st.DataObject) -> None:
    """The streamed text, the outcome's and the transcript's are one, for any cut, resumption and split."""
    text = " ".join(words)
    starts = [0, *(index + 1 for index, char in enumerate(text) if char == " ")]
    cut = data.draw(st.integers(6, len(text)))
    rest = text[data.draw(st.sampled_from([start for start in starts if start <= cut - 5] or [0])) :]
    marks = sorted(data.draw(st.sets(st.integers(0, len(rest)), max_size=4)))
    pieces = [rest[a:b] for a, b in zip([0, *marks], [*marks, len(rest)], strict=True)]

    async def run() -> None:
        stream = DefaultAgent(model=Turns(says(text[:cut], finish="length"), says(*pieces))).run_stream("go")
        shown = "".join([event.text async for event in stream if isinstance(event, Text)])
        assert stream.outcome is not None
        assert shown == stream.outcome.text == stream.outcome.messages[-1]["content"] == text

    asyncio.run(run())


async def test_text_that_is_held_back_comes_before_a_call_and_before_a_failure() -> None:
    """What a continuation has said so far is shown before its calls, and before a failure cuts it."""
    model = Turns(
        says("one two", finish="length"), [Text("tw"), call("echo", "a", n=1), Finish("tool-calls")], says("end")
    )
    events = await read(DefaultAgent(model=model, tools=[echo]).run_stream("go"))
    assert [type(event) for event in events] == [Text, Text, Call, tuple, Text]
    stream = DefaultAgent(
        model=Turns(says("one two", finish="length"), [Text("tw"), TransientError("reset")])
    ).run_stream("go")
    assert await read(stream) == [Text("one two"), Text("tw")]
    assert stream.outcome is not None
    assert (stream.outcome.reason, stream.outcome.text) == (CutReason.STREAM_ERROR, "one twotw")


async def test_taken_ids_are_replaced_in_events_too() -> None:
    """F04: preview, call and result of a repeated id carry the new one, the same as the transcript."""
    turn = [CallDelta(0, "x", "echo", '{"n":1}'), call("echo", "x", n=1), Finish("tool-calls")]
    model = Turns(turn, turn, says("end"))
    events = await read(DefaultAgent(model=model, tools=[echo]).run_stream("go"))
    ids = [event[0] if isinstance(event, tuple) else getattr(event, "call_id", None) for event in events]
    assert ids == ["x", "x", "x", "x_2", "x_2", "x_2", None]
    assert [m["tool_call_id"] for m in model.seen[2].messages if m["role"] == "tool"] == ["x", "x_2"]


async def test_a_reset_passes() -> None:
    """A chain's `Reset` reaches the consumer."""
    model = Turns([Reset(2), Text("a"), Finish("stop")])
    assert await read(DefaultAgent(model=model).run_stream("go")) == [Reset(2), Text("a")]


async def test_nothing_runs_after_a_broken_stream() -> None:
    """F05: after a failure behind content the run is cut, its whole calls are never run, nothing is tried again."""
    ran: list[int] = []
    model = Turns([Text("par"), call("f", "a"), TransientError("reset")])
    stream = DefaultAgent(model=model, tools=[Tool(name="f", handler=ran.append)]).run_stream("go")
    assert await read(stream) == [Text("par"), call("f", "a")]
    assert stream.outcome is not None
    assert (stream.outcome.outcome, stream.outcome.reason) == ("cut", CutReason.STREAM_ERROR)
    assert str(stream.outcome.error) == "reset"
    assert (stream.outcome.messages[-1]["content"], ran, len(model.seen)) == (NOT_EXECUTED, [], 1)
    result = await stream.result()
    assert result.text == "par"


async def test_a_failure_before_content_is_raised_and_kept() -> None:
    """F01: a run that fails raises to its reader and to `result`, and `outcome` says failed with the error."""
    stream = DefaultAgent(model=Turns([TransientError("down")])).run_stream("go")
    with pytest.raises(TierError, match="down"):
        await read(stream)
    assert stream.outcome is not None
    assert (stream.outcome.outcome, stream.outcome.steps) == ("failed", 1)
    with pytest.raises(TierError, match="down"):
        await stream.result()


@pytest.mark.parametrize(
    ("turn", "rule"),
    [
        ([], "without a finish"),
        ([{"type": "text", "text": None}], "'text' must be str"),
        (["bare"], "must yield events"),
        ([{"type": "thinking"}], "unknown event type"),
        ([{"type": "call", "tool": ""}], "'tool' is empty"),
        ([{"type": "finish", "finish": "end_turn"}], "unknown finish"),
        ([Finish("tool-calls")], "without a call"),
    ],
    ids=str,
)
async def test_a_model_that_breaks_the_contract_before_content_fails_the_run(turn: list[Any], rule: str) -> None:
    """F01: each broken rule is a typed error that names it, never an empty answer."""
    with pytest.raises(TierError, match=rule) as caught:
        await DefaultAgent(model=Turns(turn)).run("go")
    assert any(isinstance(cause, ProtocolError) for cause in chain_of_causes(caught.value))


@pytest.mark.parametrize(
    ("turn", "rule"),
    [
        ([Text("a")], "without a finish"),
        ([Text("a"), ("text", "b")], "must yield events"),
        ([call("f", "x"), call("f", "x"), Finish("tool-calls")], "two calls with the id 'x'"),
        ([Text("a"), {"type": "finish"}], "unknown finish"),
    ],
    ids=str,
)
async def test_a_model_that_breaks_the_contract_after_content_cuts_the_run(turn: list[Any], rule: str) -> None:
    """F01: what had come is kept, the rule is named, no call of the reply runs."""
    outcome = (await DefaultAgent(model=Turns(turn)).run("go")).outcome
    assert (outcome.outcome, outcome.reason) == ("cut", CutReason.STREAM_ERROR)
    assert isinstance(outcome.error, ProtocolError)
    assert rule in str(outcome.error)


async def test_cancelling_the_reader_stops_everything() -> None:
    """F10: a cancelled reader gets its cancellation at once; stream and tools are closed, no task is left."""
    for model, tools in ((Turns([Text("a"), 3600]), ()), (Turns(asks(call("hang"))), (hang,))):
        stream = DefaultAgent(model=model, tools=tools).run_stream("go")
        task = asyncio.ensure_future(read(stream))
        await asyncio.sleep(0.01)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=0.05)
        assert done
        assert task.cancelled()
        assert stream.outcome is not None
        assert (stream.outcome.outcome, stream.outcome.reason) == ("cut", CutReason.ABORTED)
        assert model.open == 0
        assert not tasks()


async def test_a_plain_tool_does_not_hold_up_a_cancellation() -> None:
    """F10: a thread that is still at work is told and left behind."""
    begun, told = threading.Event(), threading.Event()

    def work(cancellation_token: CancellationToken) -> None:
        """Work until told."""
        begun.set()
        while not cancellation_token.cancelled:
            begun.wait(0.001)
        told.set()

    stream = DefaultAgent(model=Turns(asks(call("work", "a"))), tools=[work]).run_stream("go")
    task = asyncio.ensure_future(read(stream))
    while not begun.is_set():
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=0.05)
    assert done
    assert told.wait(5)
    assert stream.outcome is not None
    assert stream.outcome.messages[-1]["content"] == UNKNOWN
    assert not tasks()


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("events", range(1, 12))
async def test_leaving_after_any_event_leaves_a_valid_transcript(events: int, parallel: bool) -> None:
    """F07, F10: wherever the reader leaves, each call has one result, the model is closed and no task is left."""
    turn = [Reasoning("r"), Text("a"), call("echo", "a", n=1), call("echo", "b", n=2), Finish("tool-calls")]
    model = Turns(turn, turn, says("end"))
    agent = DefaultAgent(model=model, tools=Tools([echo], parallel_tool_calls=parallel))
    async with agent.run_stream("go") as stream:
        for _ in range(events):
            await anext(stream)
    assert stream.outcome is not None
    assert stream.outcome.reason == CutReason.ABORTED
    assert paired(stream.outcome.messages) == (stream.outcome.messages, ())
    assert model.open == 0
    assert not tasks()


@pytest.mark.parametrize("parallel", [False, True])
async def test_stopping_among_tools_leaves_a_valid_transcript(parallel: bool) -> None:
    """F07, F10: what ran keeps its result, what had begun is unknown, what had not was not executed."""
    model = Turns(asks(call("echo", "a", n=1), call("hang", "b"), call("echo", "c", n=3)))
    policy = Tools([echo, hang], parallel_tool_calls=parallel)
    stream = DefaultAgent(model=model, tools=policy).run_stream("go")
    task = asyncio.ensure_future(read(stream))
    await asyncio.sleep(0.01)
    await asyncio.wait_for(stream.aclose(), 1)
    assert (await task)[-1] == ("a", "1", "ok")
    assert stream.outcome is not None
    results = [message["content"] for message in stream.outcome.messages if message["role"] == "tool"]
    assert results == ["1", UNKNOWN, "3" if parallel else NOT_EXECUTED]
    assert not tasks()


async def test_breaking_out_of_the_block_closes_the_model() -> None:
    """F10: leaving the block after one event closes the model's stream; the outcome keeps what was seen."""
    model = Turns([Text("a"), Text("b"), 3600])
    async with DefaultAgent(model=model).run_stream("go") as stream:
        async for _ in stream:
            break
    assert model.open == 0
    assert stream.outcome is not None
    assert (stream.outcome.reason, stream.outcome.text) == (CutReason.ABORTED, "a")
    assert stream.outcome.messages[-1] == {"role": "assistant", "content": "a"}
    await stream.aclose()
    assert not tasks()


async def test_dropping_the_stream_closes_the_model() -> None:
    """F10: with the last reference gone the model's stream is closed, without help of the garbage collector."""
    model = Turns([Text("a"), 3600])
    gc.disable()
    try:
        stream = DefaultAgent(model=model).run_stream("go")
        async for _ in stream:
            break
        gone = weakref.ref(stream)
        del stream
        for _ in range(10):
            await asyncio.sleep(0)
        assert gone() is None
        assert model.open == 0
    finally:
        gc.enable()


async def test_closing_from_another_task_ends_the_reader() -> None:
    """F10: `aclose` elsewhere ends a reader that waits for the model, without an error or a cancelled task."""
    model = Turns([Text("a"), 3600])
    stream = DefaultAgent(model=model).run_stream("go")

    async def reader() -> Any:
        events = await read(stream)
        await asyncio.sleep(0)
        return events

    task = asyncio.ensure_future(reader())
    await asyncio.sleep(0.01)
    await asyncio.wait_for(stream.aclose(), 1)
    assert await task == [Text("a")]
    assert task.cancelling() == 0
    assert model.open == 0
    result = await stream.result()
    assert result.outcome.reason == CutReason.ABORTED


async def test_a_tool_may_stop_its_own_run() -> None:
    """A handler that closes the stream it serves ends the run instead of hanging it."""
    streams: list[RunStream] = []

    async def stop() -> None:
        """Stop."""
        await streams[0].aclose()
        await asyncio.Event().wait()

    streams.append(DefaultAgent(model=Turns(asks(call("stop"))), tools=[stop]).run_stream("go"))
    assert await asyncio.wait_for(read(streams[0]), 1) == [call("stop")]
    assert streams[0].outcome is not None
    assert streams[0].outcome.reason == CutReason.ABORTED


async def test_a_stream_that_nobody_began_can_be_closed() -> None:
    """Closing an unread stream calls no model and leaves the transcript as it was."""
    model = Turns(says("a"))
    stream = DefaultAgent(model=model).run_stream("go")
    assert stream.outcome is None
    await stream.aclose()
    assert stream.outcome is not None
    assert (stream.outcome.reason, stream.outcome.steps, model.seen) == (CutReason.ABORTED, 0, [])


async def test_awaiting_the_stream_gives_the_stream() -> None:
    """Both forms work: with and without `await`."""
    agent = DefaultAgent(model=Turns(says("a")))
    stream = await agent.run_stream("go")
    assert (await stream.result()).final_output == "a"


async def test_what_was_read_counts_in_the_result() -> None:
    """`result` after some events reads on to the end."""
    stream = DefaultAgent(model=Turns(says("a", "b"))).run_stream("go")
    assert await anext(stream) == Text("a")
    assert (await stream.result()).text == "ab"


async def test_a_result_that_is_asked_for_too_early_takes_nothing_from_the_reader() -> None:
    """While somebody waits for the next event, the result is refused, and he reads every event to the end."""
    gate = asyncio.Event()
    stream = DefaultAgent(model=Turns([Text("a"), gate, *says("b", "c")])).run_stream("go")
    reader = asyncio.ensure_future(read(stream))
    await asyncio.sleep(0.01)
    with pytest.raises(RuntimeError):
        await stream.result()
    gate.set()
    assert await reader == [Text("a"), Text("b"), Text("c")]
    assert (await stream.result()).text == "abc"


async def test_tool_ends_are_recorded() -> None:
    """Each answered call emits one record with tool, id, time and outcome."""
    seen: list[Any] = []
    with hooks.sink(seen.append):
        model = Turns(asks(call("echo", "a", n=1), call("nope", "b")), says("x"))
        await DefaultAgent(model=model, tools=[echo]).run("go")
    ends = [record for record in seen if isinstance(record, hooks.ToolEnded)]
    assert [(end.tool, end.call_id, end.outcome) for end in ends] == [
        ("echo", "a", "ok"),
        ("nope", "b", "unknown-tool"),
    ]
    assert ends[0].seconds >= 0


async def test_runs_side_by_side_share_nothing() -> None:
    """Two runs of one agent at once keep their own transcripts."""
    agent = DefaultAgent(
        model=Turns(asks(call("echo", n=1)), says("a"), asks(call("echo", n=1)), says("a")), tools=[echo]
    )
    results = await asyncio.gather(agent.run("one"), agent.run("two"))
    assert [result.messages[0]["content"] for result in results] == ["one", "two"]


async def test_a_call_that_a_budget_forbids_is_no_step() -> None:
    """`outcome.steps` counts how often a model was called: what is cut before anybody is called is not among them."""
    large = {"role": "user", "content": "word " * 4000}
    tier = scripted(["never"], id="t")
    outcome = (
        await DefaultAgent(model=define_chain(id="c", tiers=[tier], budget=Budget(tokens=500))).run(large)
    ).outcome
    assert (outcome.outcome, outcome.reason) == ("cut", "budget-tokens")
    assert (outcome.steps, len(outcome.attempts), tier.contexts) == (0, 0, [])


async def test_a_hook_that_fails_at_the_end_lets_the_next_run_in() -> None:
    """A conversation is free again whatever those who attend a run do at its end."""

    class Falling(RunnerHooks):
        def on_agent_end(self, run: RunIdentity, result: Any) -> None:
            raise ValueError("fell")

    descriptor = AgentDescriptor(name="scout", model=Turns(says("A")))
    agent = DefaultAgent(descriptor=descriptor, hooks=Falling())
    for _ in range(2):
        with pytest.raises(ExceptionGroup):
            async with asyncio.timeout(5):
                await agent.run("x")


class Ends(BoundShim):
    """Fails at the end."""

    async def on_run_end(self, state: Any, transient_state: Any) -> None:
        raise LookupError("end")


class EndsShim(Shim):
    """Attends with it."""

    name = "ends"

    async def bind(self, run: Any) -> BoundShim:
        return Ends()


class Scope(Turns):
    """Fails when its run is closed."""

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[Any]:
        yield self
        raise LookupError("scope")


class EndHook(RunnerHooks):
    """Fails at the end."""

    def on_agent_end(self, run: Any, result: Any) -> None:
        raise LookupError("hook")


@pytest.mark.parametrize(
    "made",
    [
        lambda: DefaultAgent(descriptor=AgentDescriptor(model=Turns(says("done")), shims=[EndsShim()])),
        lambda: DefaultAgent(model=Turns(says("done")), hooks=EndHook()),
        lambda: DefaultAgent(descriptor=AgentDescriptor(model=Turns(says("done"))), hooks=EndHook()),
        lambda: DefaultAgent(descriptor=AgentDescriptor(model=Scope(says("done")))),
    ],
    ids=["shim", "hook", "hook of a conversation", "scope of the model"],
)
@pytest.mark.parametrize("how", ["run_stream", "run_events"])
async def test_a_failure_at_the_end_is_raised_to_the_reader_and_again_by_the_result(made: Any, how: str) -> None:
    """The very same object, each time."""
    stream = getattr(made(), how)("go")
    raised = []
    with pytest.raises((LookupError, ExceptionGroup)) as caught:
        await read(stream)
    raised.append(caught.value)
    for _ in range(2):
        with pytest.raises((LookupError, ExceptionGroup)) as again:
            await stream.result()
        raised.append(again.value)
    assert all(each is raised[0] for each in raised)


class Outcomes(RunnerHooks):
    """Keeps how each call ended."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}

    async def on_tool_call_end(self, run: Any, call: Any, *, result: Any) -> None:
        self.ended[call.call_id] = result.outcome


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("way", ["close", "token"])
async def test_a_run_that_is_stopped_knows_each_call_that_had_ended(way: str, hooked: bool) -> None:
    """Beside one that still runs, a call that has ended has its result, whichever came first in the reply."""
    told, token, ended = Outcomes(), CancellationToken(), asyncio.Event()

    async def quick() -> str:
        asyncio.get_running_loop().call_soon(ended.set)
        return "paid"

    tools = Tools([hang, Tool.from_function(quick)], parallel_tool_calls=True)
    agent = DefaultAgent(
        model=Turns(asks(call("hang", "a"), call("quick", "b"))), tools=tools, hooks=told if hooked else ()
    )
    stream = agent.run_stream("go")
    run = asyncio.create_task(agent.run("go", cancellation_token=token) if way == "token" else stream.result())
    await ended.wait()
    await asyncio.sleep(0)
    token.cancel()
    await stream.aclose()
    result = await run
    assert [message["content"] for message in result.messages[2:]] == [UNKNOWN, "paid"]
    assert told.ended == ({"a": "unknown", "b": "ok"} if hooked else {})
    assert not tasks()


@pytest.mark.parametrize("where", ["on_llm_start", "on_llm_end", "on_tool_call_start", "on_agent_end", "tool"])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("how", ["run_stream", "run_events"])
async def test_who_closes_a_run_from_within_cancels_nobody_afterwards(where: str, fails: bool, how: str) -> None:
    """A hook or a tool that closes the stream and returns at once ends the run; what the reader awaits next goes on."""

    async def close(*_: Any, **__: Any) -> None:
        await stream.aclose()
        if fails:
            raise LookupError("and it fails")

    @as_tool(name="echo")
    async def closing(n: int) -> None:
        await close()

    hooks = RunnerHooks()
    if where != "tool":
        setattr(hooks, where, close)
    model, tools = Turns(asks(call("echo", "a", n=1)), says("A")), [closing if where == "tool" else echo]
    stream = getattr(DefaultAgent(model=model, tools=tools, hooks=hooks), how)("go")
    with suppress(LookupError, ExceptionGroup):
        async with asyncio.timeout(2):
            await read(stream)
    await asyncio.sleep(0)
    await asyncio.sleep(0.001)
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    assert stream.outcome is not None


@pytest.mark.parametrize("kept", [False, True])
async def test_an_agent_that_runs_because_of_an_error_does_not_fail_with_it(kept: bool) -> None:
    """What its caller handles is none of its own."""
    ended: list[Any] = []

    class Heard(RunnerHooks):
        def on_agent_end(self, run: RunIdentity, result: Any) -> None:
            ended.append(result and result.text)

    told: Any = {"model": Turns(asks(call("echo", n=1)), says("Sorry.")), "tools": [echo]}
    agent = DefaultAgent(**({"descriptor": AgentDescriptor(**told)} if kept else told), hooks=Heard())
    try:
        raise LookupError("not ours")
    except LookupError:
        result = await agent.run("What went wrong?")
    assert (result.text, result.outcome.outcome, ended) == ("Sorry.", "completed", ["Sorry."])
    assert agent.run_state is None or len(agent.run_state.history) == 4
