"""What is hard on telemetry: odd values and failures, shims that ask models, threads, forks, the end of a process."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import subprocess
import sys
import threading
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import SpanProcessor

from isthmus import Agent, define_chain, observability
from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.errors import IsthmusError, TransientError
from isthmus.harness.descriptor import AgentDescriptor
from isthmus.harness.shims import BoundShim, PreparedTurn, Shim
from isthmus.models.batches import Batches
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, Text, Usage
from isthmus.models.tools import Tools, as_tool
from isthmus.observability.background import Background
from isthmus.observability.contents import View
from isthmus.secret import Secret
from support import responses_frames, responses_server
from support.loopback import LoopbackServer
from support.telemetry import traced

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))


class Setting(ModelAdapter):
    """Sets attributes in the middle of its reply."""

    model = "m"

    def __init__(self, **attributes: Any) -> None:
        self.attributes = attributes

    async def stream(self, ctx: Any) -> Any:
        observability.set_attributes(**self.attributes)
        yield Text("hi")
        yield Finish("stop")


async def read(stream: Any) -> list[Any]:
    """All of a stream."""
    return [event async for event in stream]


@pytest.mark.parametrize(
    "value", ["half \ud83d of a face", 2**70, [2**70, 1], ["\ud800"], float("inf"), [1, "a"], {"a": b"\xff"}]
)
async def test_a_value_that_cannot_be_encoded_does_not_lose_an_export(value: Any) -> None:
    """F23: half of a character, or a number that is too large, would lose all spans that leave with it."""
    with traced() as seen:
        adapter = Setting(**{"odd": value, "name\ud800": "x"})
        adapter.model = "m\ud800"
        await read(adapter.stream(ASK))
        encode_spans(seen.spans).SerializeToString()
        json.dumps(seen.one("chat"), allow_nan=False)
        assert "odd" in seen.one("chat")


@pytest.mark.parametrize(
    "value",
    [
        Secret("hunter2hunter2"),
        [Secret("hunter2hunter2")],
        {"Authorization": "Basic hunter2hunter2", "deep": [{"apiKey": "hunter2hunter2"}]},
    ],
)
async def test_a_key_is_hidden_in_whatever_holds_it(value: Any) -> None:
    """A key in use, and what a dict holds under the name of one, never leave."""
    with traced(capture_content=True) as seen:
        await read(Setting(held=value).stream(ASK))
        assert "hunter2" not in seen.text()
        assert "***" in str(seen.one("chat")["held"])


async def test_a_key_among_the_arguments_of_a_tool_is_hidden() -> None:
    """What a call, its result or a message holds under the name of a key does not leave, contents captured or not."""

    @as_tool
    def login(password: str) -> str:
        """Log in."""
        return json.dumps({"token": "hunter2hunter2"})

    call = Call("login", call_id="c1", arguments='{"password": "hunter2hunter2"}')
    with traced(capture_content=True) as seen:
        model = ScriptedAdapter([[call, Finish("tool-calls")], "done"])
        await Agent(model=model, tools=Tools([login])).run("hi")
        assert seen.one("execute_tool")["gen_ai.tool.call.arguments"] == '{"password": "***"}'
        assert "hunter2" not in seen.text()


def test_a_text_that_is_huge_is_cut_before_it_is_looked_at() -> None:
    """A text of many megabytes is not searched for keys to its end; a key at the limit is hidden whole."""
    view = View(capture=True, limit=50)
    out = view.sent({"gen_ai.tool.call.result": "x" * 40 + " sk-0123456789abcdef" + "y" * 10_000_000})
    assert len(out["gen_ai.tool.call.result"]) <= 50
    assert "sk-" not in out["gen_ai.tool.call.result"]
    assert len(str(view.sent({"many": ["abcdefgh"] * 100_000}))) < 10_000


class Rude(Exception):
    """Cannot be asked for anything."""

    @property
    def error_class(self) -> str:
        raise RuntimeError("payload-of-a-prompt")

    usage = status = error_class


class Posing(Exception):
    """Says what a prompt said where a class should stand."""

    error_class = "payload-of-a-prompt"
    status = "payload-of-a-prompt"


@pytest.mark.parametrize("error", [Rude("x"), Posing("x")])
async def test_a_strangers_failure_is_what_it_was_without_telemetry(error: Exception) -> None:
    """What a failure says of itself neither breaks the call nor leaves, unless it is one of the library's own."""

    class Fails(ModelAdapter):
        model = "m"

        async def generate(self, ctx: Any) -> Any:
            raise error

    with traced() as seen:
        with pytest.raises(type(error)):
            await Fails().generate(ASK)
        assert seen.one("chat")["error.type"] == type(error).__qualname__
        assert "payload" not in seen.text()
        seen.settled()


@pytest.mark.parametrize("wrong", [asyncio.CancelledError, SystemExit, ValueError])
async def test_a_hook_that_raises_anything_changes_nothing(wrong: type[BaseException]) -> None:
    """What a redaction hook raises is no cancellation of the run, and its text does not leave."""

    def hook(name: str, text: str) -> str:
        raise wrong

    with traced(redact=hook) as seen:
        assert (await Agent(model=Setting(x="secret-words")).run("hi")).text == "hi"
        assert "secret-words" not in seen.text()
        assert len(seen.named("chat")) == 1
        seen.settled()


async def test_a_hook_sees_names_of_spans_metrics_and_failures() -> None:
    """Whatever holds a text of somebody's goes through the hook: a span's name, a metric's attribute, a class."""
    words = ("agent-words", "tier-words", "chain-words")
    seen_by_hook: list[str] = []

    def hook(name: str, text: str) -> str | None:
        seen_by_hook.append(name)
        for each in words:
            text = text.replace(each, "-")
        return text

    failing = ScriptedAdapter([TransientError("no")] * 9, id="tier-words")
    chain = define_chain(id="chain-words", tiers=[failing, ScriptedAdapter(["fine"], id="b")])
    with traced(redact=hook) as seen:
        await Agent(name="agent-words", model=chain).run("hi")
        text = seen.text()
    assert not [each for each in words if each in text]
    assert {"name", "error.type"} <= set(seen_by_hook)


class Asking(Shim):
    """Asks a model before each turn, as one that sums up does."""

    id = "asking"

    async def bind(self, run: Any) -> BoundShim:
        class Bound(BoundShim):
            async def prepare_turn(self, turn: PreparedTurn) -> None:
                await ScriptedAdapter(["summary"]).generate(ASK)

        return Bound()


async def test_what_a_shim_asks_of_a_model_is_part_of_the_run() -> None:
    """A model call that a shim makes is below the run's span, in its trace and with its conversation."""
    with traced() as seen:
        made = AgentDescriptor(name="a", model=ScriptedAdapter(["hello"]), shims=[Asking()])
        await Agent(descriptor=made).run("hi")
        spans = seen.named("chat")
        assert len(spans) == 2
        (run,) = seen.named("invoke_agent")
        assert {span.context.trace_id for span in spans if span.context} == {run.context.trace_id if run.context else 0}
        assert len({dict(span.attributes or {})["gen_ai.conversation.id"] for span in spans}) == 1
        assert seen.parent(spans[0]) == run.name
        seen.settled()


async def test_a_captured_context_takes_the_whole_of_it_into_a_thread(tmp_path: Path) -> None:
    """In a thread of one's own a call has its parent, its conversation and its tokens as beside it, by any sink."""

    class Threaded(ModelAdapter):
        model = "outer"

        async def generate(self, ctx: Any) -> Any:
            captured = observability.capture_context()
            inner: list[Any] = []

            def work() -> None:
                with observability.reattach(captured):
                    observability.set_attributes(thread=True)
                    inner.append(asyncio.run(ScriptedAdapter(["deep"]).generate(ASK)))
                assert observability.capture_context().op is None

            worker = threading.Thread(target=work)
            worker.start()
            await asyncio.to_thread(worker.join)
            return inner[0]

    file = tmp_path / "trace"
    with traced(sinks=("otel", "jsonl"), file=str(file)) as seen:
        await Agent(model=Threaded()).run("hi")
        observability.flush()
        inner = next(span for span in seen.named("chat") if span.name != "chat outer")
        assert seen.parent(inner) == "chat outer"
        assert "gen_ai.conversation.id" in dict(inner.attributes or {})
        lines = {line["name"]: line for line in map(json.loads, file.read_text().splitlines())}
        assert lines[inner.name]["parent"] == lines["chat outer"]["span"]
        assert lines["chat outer"]["attributes"]["thread"] is True
        seen.settled()


async def test_events_that_came_together_are_heard_as_they_came() -> None:
    """Texts are handed on as one, the first content counts when it came, however slowly it is read."""

    class Together(ModelAdapter):
        model = "m"

        def stream(self, ctx: Any) -> Any:
            return Batches(self.made())

        stream._isthmus_bare = True  # type: ignore[attr-defined]

        async def made(self) -> Any:
            yield [Text(""), Text("a"), Text("b")]
            yield [Text("c"), Finish("stop")]

    with traced() as seen:
        batches = [list(batch) async for batch in Together().stream(ASK).batches()]
        assert [len(batch) for batch in batches] == [3, 1, 1]
        async for _ in Together().stream(ASK):
            await asyncio.sleep(0.03)
        for span in seen.named("chat"):
            said = dict(span.attributes or {})
            assert said["isthmus.outcome"] == "ok"
            assert said["gen_ai.response.time_to_first_chunk"] < 0.03
        seen.settled()


def test_a_task_dropped_with_its_loop_ends_in_silence(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """A call that waited when its loop was thrown away ends in another context, once, and with no complaint."""

    class Waits(ModelAdapter):
        model = "m"

        async def stream(self, ctx: Any) -> Any:
            yield Text("a")
            await asyncio.get_running_loop().create_future()

    file = tmp_path / "trace"
    with traced(sinks=("otel", "jsonl"), file=str(file)) as seen:
        loop = asyncio.new_event_loop()
        task = loop.create_task(read(Waits().stream(ASK)))
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        caplog.clear()
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        del task
        gc.collect()
        assert [line for line in caplog.messages if "ontext" in line] == []
        seen.settled()
        assert seen.one("chat")["isthmus.outcome"] in ("closed", "abandoned")
        observability.flush()
        assert len(file.read_text().splitlines()) == 1


def test_a_line_is_written_for_a_stream_that_nobody_closed(tmp_path: Path) -> None:
    """F23: where no loop is left to close it, the file too has its line."""
    file = tmp_path / "trace"
    with traced(sinks=("jsonl",), file=str(file)):
        loop = asyncio.new_event_loop()
        events = aiter(Setting().stream(ASK))
        loop.run_until_complete(anext(events))  # type: ignore[arg-type]
        loop.close()
        del events
        gc.collect()
        observability.flush()
        assert len(file.read_text().splitlines()) == 1


def _left_open() -> Any:
    """A stream under way whose loop is gone."""
    loop = asyncio.new_event_loop()
    events = aiter(Setting().stream(ASK))
    loop.run_until_complete(anext(events))  # type: ignore[arg-type]
    loop.close()
    return events


def test_what_the_garbage_collector_ends_takes_no_lock_that_is_held() -> None:
    """A dropped stream may be found while its own thread is inside an exporter, and then has to wait its turn."""
    lock, ended = threading.Lock(), []

    class Processor(SpanProcessor):
        def on_end(self, span: Any) -> None:
            free = lock.acquire(timeout=0.5)
            ended.append(free)
            gc.collect()
            if free:
                lock.release()

    with traced() as seen:
        seen.tracers.add_span_processor(Processor())
        gc.disable()
        try:
            held = [_left_open()]
            held.append(held)
            del held
            asyncio.run(read(Setting().stream(ASK)))
        finally:
            gc.enable()
        assert observability.flush()
        assert ended == [True, True]
        seen.settled()


def test_what_is_under_way_at_a_fork_is_ended_by_the_parent_alone(tmp_path: Path) -> None:
    """F23: a child has copies of the spans that its parent has begun, and sends none of them."""
    file = tmp_path / "trace"
    with traced(sinks=("otel", "jsonl"), file=str(file)) as seen:
        events = _left_open()
        child = os.fork()
        if child == 0:
            del events
            gc.collect()
            observability.flush(3.0)
            os._exit(len(seen.spans))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        del events
        gc.collect()
        assert observability.flush()
        assert len(file.read_text().splitlines()) == len(seen.spans) == 1


def test_a_child_process_goes_on_by_itself(tmp_path: Path) -> None:
    """After a fork the thread of a sink is there again, and traces of parent and child have names of their own."""
    file = tmp_path / "trace"
    with traced(sinks=("jsonl",), file=str(file)):
        asyncio.run(read(Setting().stream(ASK)))
        assert observability.flush()
        child = os.fork()
        if child == 0:
            asyncio.run(read(Setting().stream(ASK)))
            os._exit(0 if observability.flush(3.0) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({line["trace"] for line in lines}) == len(lines) == 2


def test_work_begun_while_a_lock_was_held_is_done_in_a_child() -> None:
    """A lock that a thread of the parent held at the fork holds up nobody in the child."""
    work = Background(print)
    held, go = threading.Event(), threading.Event()

    def hold() -> None:
        with work._change:
            held.set()
            go.wait(5)

    threading.Thread(target=hold, daemon=True).start()
    held.wait(5)
    child = os.fork()
    if child == 0:
        threading.Timer(3.0, os._exit, (1,)).start()
        work("x")
        os._exit(0)
    go.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    work.shutdown(1.0)


def test_a_process_that_may_begin_no_thread_still_sends_at_its_end(tmp_path: Path) -> None:
    """From Python 3.12 on no thread begins once a process ends: what waits leaves by one that is there."""
    code = """
import asyncio, threading, atexit
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from isthmus import observability
from isthmus.observability import export
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.models.contract import GenerateContext
class Shown(SpanExporter):
    def __init__(self, keyed): pass
    def export(self, spans):
        print(*[s.name for s in spans], flush=True)
        return SpanExportResult.SUCCESS
export._Spans = Shown
observability.start(observability.Telemetry(endpoint="http://127.0.0.1:9"))
asyncio.run(ScriptedAdapter(["x"]).generate(GenerateContext(messages=({"role": "user", "content": "x"},))))
def refuse(self):
    raise RuntimeError("can't start new thread at interpreter shutdown")
atexit.register(setattr, threading.Thread, "start", refuse)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "chat" in done.stdout, done.stderr


def test_a_sink_of_ones_own_gets_all_before_a_flush_and_before_the_end() -> None:
    """A slow one too, whether somebody waits for it or the process ends."""
    code = """
import asyncio, time
from isthmus import Agent, observability
from isthmus.adapters.scripted import ScriptedAdapter
seen = []
def slow(record):
    time.sleep(0.01)
    seen.append(type(record).__name__)
    if len(seen) == LAST:
        print(seen[-1], flush=True)
observability.add_sink(slow)
asyncio.run(Agent(model=ScriptedAdapter(["x"])).run("hi"))
if FLUSHED:
    assert observability.flush(), seen
    print(seen[-1], flush=True)
"""
    for flushed in (True, False):
        asked = code.replace("FLUSHED", str(flushed)).replace("LAST", "-1" if flushed else "11")
        done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout.strip() == "TurnEnded", done


def test_starting_from_many_threads_leaves_one_set_of_sinks() -> None:
    """Two that start at once do not leave the sinks of the first behind."""
    from isthmus.observability import hooks

    before = len(hooks._sinks)
    ready = threading.Barrier(8)

    def begin(number: int) -> None:
        ready.wait()
        observability.start(observability.Telemetry(sinks=("log",), max_content_chars=number))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(hooks._sinks) == before + 1
    ends = [threading.Thread(target=observability.shutdown) for _ in range(4)]
    for each in ends:
        each.start()
    for each in ends:
        each.join()
    assert len(hooks._sinks) == before
    assert not observability.enabled()


def test_a_start_that_fails_leaves_nothing_half_begun() -> None:
    """A wrong level is refused before anything is begun."""
    from isthmus.observability import hooks, scope

    with pytest.raises(ValueError, match="log_level"):
        observability.start(observability.Telemetry(sinks=("otel", "log"), log_level="loud"))
    assert (hooks._sinks, scope.carrier()) == ((), scope._NOBODY)


async def test_the_sink_log_repeats_nothing_that_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    """Without contents no line repeats a provider's message, nor a name that a model made up; with them, both."""
    for capture in (False, True):
        observability.start(observability.Telemetry(sinks=("log",), log_level="debug", capture_content=capture))
        made_up = Call("payload_tool", call_id="c1", arguments="{}")
        failing = ScriptedAdapter([TransientError("payload-message")] * 9)
        chain = define_chain(id="c", tiers=[failing, ScriptedAdapter([[made_up, Finish("tool-calls")], "x"], id="b")])
        with suppress(IsthmusError):
            await Agent(model=chain).run("hi")
        assert observability.flush()
        observability.shutdown()
        said = capsys.readouterr().err
        assert ("payload" in said) is capture, said
        assert "failed" in said


def test_an_attribute_of_what_has_ended_is_no_complaint(caplog: pytest.LogCaptureFixture) -> None:
    """A task that outlives its call, and still sets attributes, is not complained of."""
    with traced():

        class Leaves(Setting):
            async def stream(self, ctx: Any) -> Any:
                self.task = asyncio.ensure_future(self.later())
                yield Text("a")
                yield Finish("stop")

            async def later(self) -> None:
                await asyncio.sleep(0.02)
                observability.set_attributes(late=True)

        async def main() -> None:
            adapter = Leaves()
            await read(adapter.stream(ASK))
            await adapter.task

        asyncio.run(main())
    assert [each.message for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_contents_that_cannot_be_written_down_leave_the_rest() -> None:
    """A message that has no JSON form costs its own attribute and no span."""

    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

        __repr__ = __str__

    odd = GenerateContext(messages=({"role": "tool", "tool_call_id": Odd(), "content": "x"},))
    with traced(capture_content=True) as seen:
        await read(Setting().stream(odd))
        assert seen.one("chat")["isthmus.outcome"] == "ok"
        seen.settled()


async def test_an_adapter_that_asks_another_of_its_class_is_two_calls() -> None:
    """A wrapper has its span and what it wraps has another, of its class or not; `super()` and copies have none."""

    class Wrapping(ModelAdapter):
        effort = ""

        def __init__(self, model: str, inner: Any = None) -> None:
            self.model, self.inner = model, inner

        async def stream(self, ctx: Any) -> Any:
            if self.inner is not None:
                async for event in self.inner.stream(ctx):
                    yield event
                return
            yield Text("x")
            yield Finish("stop", Usage(input_tokens=3, output_tokens=2))

    class Chatting(Wrapping):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return await super().chat(messages, tools)

        stream = None

    with traced() as seen:
        await read(Wrapping("outer", Wrapping("inner")).stream(ASK))
        inner, outer = seen.named("chat")
        assert (inner.name, seen.parent(inner)) == ("chat inner", outer.name)
        assert "gen_ai.usage.input_tokens" in dict(inner.attributes or {})
        assert "gen_ai.usage.input_tokens" not in dict(outer.attributes or {})
        await Chatting("copied").generate(GenerateContext(messages=ASK.messages, effort="low"))
        assert len(seen.named("chat copied")) == 1


@pytest.mark.parametrize("runner", ["asyncio", "uvloop"])
def test_calls_in_many_loops_at_once_stay_apart(runner: str) -> None:
    """Runs in threads with a loop each, one way or another, are a trace each, and leave nothing behind."""
    run: Any = asyncio.run if runner == "asyncio" else pytest.importorskip("uvloop").run

    async def two() -> None:
        agent = Agent(model=Setting(a=1))
        await asyncio.gather(*(agent.run("hi") for _ in range(5)))

    with traced() as seen:
        threads = [threading.Thread(target=run, args=(two(),)) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len({span.context.trace_id for span in seen.named("chat") if span.context}) == 20
        seen.settled()


async def test_a_stream_may_be_read_by_any_task() -> None:
    """Each event read by another task than the one before, and closed by yet another: one span, in its own trace."""
    with traced() as seen:
        agent = Agent(model=ScriptedAdapter([[Text("a"), Text("b"), Text("c"), 60.0, Finish("stop")]]))
        stream = agent.run_stream("hi")
        events = aiter(stream)
        for _ in range(3):
            await asyncio.ensure_future(anext(events))  # type: ignore[arg-type]
        waiting = asyncio.ensure_future(anext(events))  # type: ignore[arg-type]
        await asyncio.sleep(0.01)
        await asyncio.ensure_future(stream.aclose())
        with suppress(BaseException):
            await waiting
        assert [len(seen.named(name)) for name in ("chat", "attempt", "chain", "invoke_agent")] == [1, 1, 1, 1]
        assert len({span.context.trace_id for span in seen.spans if span.context}) == 1
        seen.settled()


@pytest.mark.parametrize("door", ["whole", "stream", "break", "chain"])
async def test_the_client_of_the_responses_api_is_a_model_call_by_its_own_methods_too(door: str) -> None:
    """Asked directly, whole or streamed, it has its one span, as it has through a chain."""
    full = responses_frames.response(responses_frames.message("payload words"))
    streamed = door in ("stream", "break", "chain")
    reply = responses_server.answer_stream(full) if streamed else responses_server.answer(full)
    async with LoopbackServer([reply]) as server, responses_server.client(server) as model:
        with traced() as seen:
            if door == "whole":
                await model.get_response([responses_server.USER])
            elif door == "chain":
                await define_chain(id="c", tiers=[model]).generate(ASK)
            else:
                async with aclosing(model.stream_response([responses_server.USER])) as events:
                    async for event in events:
                        if door == "break" and event.text:
                            break
            said = seen.one("chat")
            assert said["isthmus.outcome"] == ("closed" if door == "break" else "ok")
            assert door == "break" or "gen_ai.usage.output_tokens" in said
            assert ("gen_ai.response.time_to_first_chunk" in said) is streamed
            assert "payload" not in seen.text()
            seen.settled()
