"""What reaches a collector: spans and metrics by the conventions, and nothing that must not leave."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.semconv._incubating.attributes import (
    aws_attributes,
    azure_attributes,
    error_attributes,
    gen_ai_attributes,
    http_attributes,
    jsonrpc_attributes,
    mcp_attributes,
    network_attributes,
    openai_attributes,
    rpc_attributes,
    server_attributes,
)
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics, mcp_metrics

from isthmus import Agent, define_chain, observability, run_sync
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ChatResponse
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.chain import RetryPolicy, Tier
from isthmus.conformance import Play, serve
from isthmus.errors import InvalidRequestError, IsthmusError, RefusedError, TransientError, UnavailableError
from isthmus.models import Tools
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, Reasoning, StepResult, Text, Usage
from isthmus.observability import Telemetry, catalogue, hooks
from isthmus.observability.log import LogSink, TraceIds
from support.telemetry import Traced, traced

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))


def _names(module: Any, *starts: str) -> set[str]:
    """The names of a module of the conventions."""
    return {value for value in vars(module).values() if isinstance(value, str) and value.startswith(starts)}


# `gen_ai.openai.*` and the like: what was one provider's has other names now.
FORMER = tuple(f"gen_ai.{name}." for name in ("openai", "azure", "az"))
NAMES = {name for name in _names(gen_ai_attributes, "gen_ai.") if not name.startswith(FORMER)}
NAMES |= _names(mcp_attributes, "mcp.") | _names(openai_attributes, "openai.") | _names(aws_attributes, "aws.bedrock.")
NAMES |= _names(azure_attributes, "azure.resource_provider.")
METRICS = _names(gen_ai_metrics, "gen_ai.") | _names(mcp_metrics, "mcp.")
OTHERS = (
    _names(jsonrpc_attributes, "jsonrpc.") | _names(network_attributes, "network.") | _names(rpc_attributes, "rpc.")
)
OTHERS |= _names(server_attributes, "server.") | _names(error_attributes, "error.") | _names(http_attributes, "http.")


class Collector:
    """What a collector has received."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.url = server.url

    def spans(self) -> list[Any]:
        """All spans, with the resource of each."""
        found = []
        for request in self._server.requests:
            if request.path == "/v1/traces":
                held = ExportTraceServiceRequest.FromString(request.body)
                found += [
                    (resource, span)
                    for resource in held.resource_spans
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
        return found

    def metrics(self) -> dict[str, Any]:
        """The last state of each metric, by name."""
        found = {}
        for request in self._server.requests:
            if request.path == "/v1/metrics":
                held = ExportMetricsServiceRequest.FromString(request.body)
                for resource in held.resource_metrics:
                    found |= {metric.name: metric for scope in resource.scope_metrics for metric in scope.metrics}
        return found

    @property
    def headers(self) -> list[dict[str, str]]:
        """The headers of each export."""
        return [dict(request.headers) for request in self._server.requests]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector that listens."""
    with serve(lambda request: Play.whole(b"", headers={"content-type": "application/x-protobuf"})) as server:
        yield Collector(server)
        observability.shutdown()


def attributes(thing: Any) -> dict[str, Any]:
    """The attributes of a span, a point or a resource, as Python has them."""
    return {pair.key: _value(pair.value) for pair in thing.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    held = getattr(value, kind)
    return [_value(each) for each in held.values] if kind == "array_value" else held


REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "model-2",
    "content": [{"type": "text", "text": "Hello."}],
    "stop_reason": "end_turn",
    "usage": {
        "input_tokens": 10,
        "output_tokens": 5,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
    },
}


def test_a_run_reaches_a_collector_as_the_conventions_have_it(collector: Collector) -> None:
    """F23, reports 238, 239, 241: each attribute of each span, and each metric, over OTLP; usage counts once."""
    conventions = gen_ai_attributes
    observability.start(Telemetry(endpoint=collector.url, service_name="shop", headers={"x-tenant": "t"}))

    async def work() -> str:
        busy = Play.whole(json.dumps({"error": {"message": "busy"}}), status=503)
        async with serve(busy, repeat=True) as down, serve(Play.whole(json.dumps(REPLY)), repeat=True) as up:
            first = OpenAIChatAdapter(model="model-0", api_key="k", base_url=down.url)
            second = AnthropicAdapter(model="model-1", api_key="k", base_url=up.url, max_tokens=64)
            async with define_chain(id="pair", tiers=[first, second]) as chain:
                await Agent(model=chain, name="shop-agent").run("hello")
            return str(up.url)

    url = run_sync(work)
    assert observability.flush()
    found = collector.spans()
    by_name = {span.name: span for _, span in found}
    assert sorted(span.name for _, span in found) == [
        *("attempt anthropic:model-1", "attempt openai:model-0", "chain pair"),
        *("chat model-0", "chat model-1", "invoke_agent shop-agent"),
    ]
    above = {span.span_id: span.name for _, span in found}
    tree = {span.name: above.get(span.parent_span_id) for _, span in found}
    assert tree == {
        "invoke_agent shop-agent": None,
        "chain pair": "invoke_agent shop-agent",
        "attempt openai:model-0": "chain pair",
        "chat model-0": "attempt openai:model-0",
        "attempt anthropic:model-1": "chain pair",
        "chat model-1": "attempt anthropic:model-1",
    }
    assert attributes(found[0][0].resource)["service.name"] == "shop"
    said = attributes(by_name["chat model-1"])
    run = said[conventions.GEN_AI_CONVERSATION_ID]
    port = int(url.rpartition(":")[2])
    assert 0 < said.pop(conventions.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK) < 30
    assert said == {
        conventions.GEN_AI_OPERATION_NAME: conventions.GenAiOperationNameValues.CHAT.value,
        conventions.GEN_AI_PROVIDER_NAME: conventions.GenAiProviderNameValues.ANTHROPIC.value,
        conventions.GEN_AI_REQUEST_MODEL: "model-1",
        conventions.GEN_AI_REQUEST_MAX_TOKENS: 64,
        conventions.GEN_AI_REQUEST_STREAM: True,
        conventions.GEN_AI_CONVERSATION_ID: run,
        conventions.GEN_AI_RESPONSE_ID: "msg_1",
        conventions.GEN_AI_RESPONSE_MODEL: "model-2",
        conventions.GEN_AI_RESPONSE_FINISH_REASONS: ["end_turn"],
        conventions.GEN_AI_USAGE_INPUT_TOKENS: 130,
        conventions.GEN_AI_USAGE_OUTPUT_TOKENS: 5,
        conventions.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 100,
        conventions.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS: 20,
        "server.address": "127.0.0.1",
        "server.port": port,
        "isthmus.effort": "off",
        "isthmus.outcome": "ok",
        "isthmus.finish": "stop",
    }
    failed = attributes(by_name["chat model-0"])
    assert (failed["error.type"], failed["http.response.status_code"]) == ("unavailable", 503)
    assert by_name["chat model-0"].status.code == 2
    assert by_name["chat model-0"].kind == 3
    assert attributes(by_name["attempt openai:model-0"])["isthmus.next"] == "fallback"
    assert [event.name for event in by_name["chain pair"].events] == ["isthmus.tier.fallback"]
    assert attributes(by_name["invoke_agent shop-agent"]) == {
        conventions.GEN_AI_OPERATION_NAME: conventions.GenAiOperationNameValues.INVOKE_AGENT.value,
        conventions.GEN_AI_AGENT_NAME: "shop-agent",
        conventions.GEN_AI_CONVERSATION_ID: run,
        "isthmus.outcome": "completed",
        "isthmus.steps": 1,
        "isthmus.tier": "anthropic:model-1",
        "isthmus.input_tokens": 130,
        "isthmus.output_tokens": 5,
    }
    metrics = collector.metrics()
    tokens = {
        attributes(point)["gen_ai.token.type"]: point
        for point in metrics[gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE].histogram.data_points
    }
    assert {kind: point.sum for kind, point in tokens.items()} == {"input": 130, "output": 5}
    assert metrics[gen_ai_metrics.GEN_AI_CLIENT_TOKEN_USAGE].unit == "{token}"
    durations = metrics[gen_ai_metrics.GEN_AI_CLIENT_OPERATION_DURATION]
    assert durations.unit == "s"
    assert list(durations.histogram.data_points[0].explicit_bounds)[:2] == [0.01, 0.02]
    errors = [attributes(point).get("error.type") for point in durations.histogram.data_points]
    assert sorted(str(each) for each in errors) == ["None", "None", "unavailable"]
    assert sum(point.as_int for point in metrics["isthmus.chain.attempts"].sum.data_points) == 2
    assert sum(point.as_int for point in metrics["isthmus.chain.fallbacks"].sum.data_points) == 1
    assert all(headers["x-tenant"] == "t" for headers in collector.headers)


async def test_a_request_says_how_it_asks() -> None:
    """Sampling, stops, the form and the effort are those of the request, by the conventions' names."""
    ask = GenerateContext(
        messages=ASK.messages, temperature=0.5, top_p=0.9, seed=7, stop=("END",), effort="low", max_output_tokens=9
    )
    with traced() as seen:
        await ScriptedAdapter(["x"]).generate(ask)
        said = seen.one("chat")
    conventions = gen_ai_attributes
    expected = {
        conventions.GEN_AI_REQUEST_TEMPERATURE: 0.5,
        conventions.GEN_AI_REQUEST_TOP_P: 0.9,
        conventions.GEN_AI_REQUEST_SEED: 7,
        conventions.GEN_AI_REQUEST_STOP_SEQUENCES: ("END",),
        conventions.GEN_AI_REQUEST_MAX_TOKENS: 9,
        conventions.GEN_AI_REQUEST_STREAM: False,
        "isthmus.effort": "low",
    }
    assert {name: said[name] for name in expected} == expected


def test_the_catalogue_is_the_conventions_name_by_name() -> None:
    """Each name sent is ours or the published package's; what that names for us is sent, or the reason is given."""
    sent = {row.name for row in catalogue.ATTRIBUTES} | {name for row in catalogue.METRICS for name in row.where}
    measured = {row.name for row in catalogue.METRICS}
    sent, measured = ({name for name in each if not name.startswith("isthmus.")} for each in (sent, measured))
    assert sent <= NAMES | OTHERS
    assert measured <= METRICS
    assert (sent - OTHERS) | measured | set(catalogue.NOT_SENT) == NAMES | METRICS
    assert not (sent | measured) & set(catalogue.NOT_SENT)


KINDS = {"invoke_agent": "agent", "chain": "chain", "attempt": "attempt", "chat": "model", "execute_tool": "tool"}
CANARY = "sk-CANARY-0123456789abcdef"
WORDS = ("payload-brief", "payload-prompt", "payload-reply", "payload-thought", "payload-argument", "payload-result",
         "payload-error", "payload-header", CANARY)  # fmt: skip


def _step(luck: random.Random) -> Any:
    said = Text(f"payload-reply {CANARY}")
    usage = Usage(input_tokens=3, output_tokens=4)
    made: list[Any] = [
        [said, Finish("stop", usage)],
        [Reasoning("payload-thought"), said, Finish("length", usage)],
        [Call("_look", {"q": f"payload-argument {CANARY}"}), Finish("tool-calls", usage)],
        [Call("_fail", {"q": "payload-argument"}), Call("_look", {"q": "payload-argument"}), Finish("tool-calls")],
        [Call("payload-argument", {"q": "x"}), Finish("tool-calls")],
        [Call("_look", {"nonsense": "payload-argument"}), Finish("tool-calls")],
        [said, TransientError(f"payload-error {CANARY}", usage=usage)],
        [TransientError(f"payload-error {CANARY}")],
        [UnavailableError("payload-error", status=503)],
        [RefusedError("payload-error")],
        [InvalidRequestError(f"payload-error {CANARY}")],
        [RuntimeError(f"payload-error {CANARY}")],
        [said],
        [said, 5.0, Finish("stop")],
    ]
    return luck.choice(made)


async def _look(q: str) -> str:
    """Look payload-result."""
    return f"payload-result {CANARY}"


def _fail(q: str) -> str:
    """Fail."""
    raise ValueError(f"payload-error {CANARY}")


async def _one(luck: random.Random) -> None:
    tiers = [
        ScriptedAdapter(
            [_step(luck) for _ in range(12)], id=f"scripted:{place}", window_tokens=9000, max_output_tokens=99
        )
        for place in range(luck.randint(1, 2))
    ]
    chain: Any = define_chain(id="c", tiers=tiers, retry=RetryPolicy(max_retries=1, base=0.001, cap=0.002))
    if luck.random() < 0.3:
        chain = define_chain(id="outer", tiers=[chain], retry=RetryPolicy(max_retries=0))
    agent = Agent(model=chain, instructions="payload-brief", tools=Tools([_look, _fail]))
    run = agent.run_stream(f"payload-prompt {CANARY}")
    way, after = luck.choice(["read", "break", "close", "cancel"]), luck.randint(1, 3)
    with suppress(IsthmusError, asyncio.CancelledError):
        if way == "cancel":
            task = asyncio.ensure_future(run.result())
            await asyncio.sleep(luck.random() * 0.01)
            task.cancel()
            await task
        elif way == "read":
            async with asyncio.timeout(0.3):
                await run.result()
        else:
            async for _ in run:
                after -= 1
                if not after:
                    break
            if way == "close":
                await run.aclose()


async def test_five_hundred_runs_leave_no_span_and_no_payload() -> None:
    """F23: whatever 500 runs meet, each span ends once, no context stays, and no text and no key was sent."""
    luck = random.Random(7)
    with traced() as seen:
        for _ in range(5):
            await asyncio.gather(*(_one(luck) for _ in range(100)), return_exceptions=True)
        for _ in range(20):
            await asyncio.sleep(0.01)
        seen.settled()
        assert len(seen.named("invoke_agent")) == 500
        text = seen.text()
        assert not [word for word in WORDS if word in text]
        assert {span.name.split()[0] for span in seen.spans} == set(KINDS)
        _catalogued(seen)


def _catalogued(seen: Traced) -> None:
    """Each attribute stands in the catalogue, at a span of that kind."""
    rows = {row.name: row.where for row in catalogue.ATTRIBUTES}
    for span in seen.spans:
        kind = KINDS[span.name.split()[0]]
        for name in span.attributes or {}:
            assert kind in rows[name], (name, kind)
        for event in span.events:
            assert event.name in {row.name for row in catalogue.EVENTS}


async def test_contents_are_sent_where_they_are_captured_and_never_a_key() -> None:
    """Prompts, replies, arguments and results are there in the conventions' form; anything like a key is not."""
    adapter = ScriptedAdapter([[Call("_look", {"q": f"why {CANARY}"}), Finish("tool-calls")], f"because {CANARY}"])
    with traced(capture_content=True) as seen:
        await Agent(model=adapter, instructions="Be brief.", tools=[_look]).run(f"tell {CANARY}")
        first, second = [dict(span.attributes or {}) for span in seen.named("chat")]
        tool = seen.one("execute_tool")
        text = seen.text()
    assert CANARY not in text
    assert json.loads(first["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    asked = [{"role": "user", "parts": [{"type": "text", "content": "tell ***"}]}]
    assert json.loads(first["gen_ai.input.messages"]) == asked
    (said,) = json.loads(first["gen_ai.output.messages"])
    assert said["finish_reason"] == "tool_call"
    assert said["parts"][0]["name"] == "_look"
    assert json.loads(first["gen_ai.tool.definitions"])[0]["name"] == "_look"
    assert tool["gen_ai.tool.call.arguments"] == '{"q": "why ***"}'
    assert tool["gen_ai.tool.call.result"] == "payload-result ***"
    assert "because ***" in second["gen_ai.output.messages"]


async def test_a_limit_and_a_hook_come_before_anything_leaves() -> None:
    """A text is cut to the limit; the hook changes or drops any attribute, and one that fails drops it."""

    def hook(name: str, text: str) -> str | None:
        if name == "gen_ai.input.messages":
            return None
        if name == "gen_ai.system_instructions":
            raise ValueError(text)
        return text.replace("secret", "…")

    with traced(capture_content=True, max_content_chars=200, redact=hook) as seen:
        await Agent(model=ScriptedAdapter(["secret " * 1000]), instructions="x").run("hello")
        said = seen.one("chat")
    assert "gen_ai.input.messages" not in said
    assert "gen_ai.system_instructions" not in said
    assert len(said["gen_ai.output.messages"]) <= 200
    assert json.loads(said["gen_ai.output.messages"])[0]["role"] == "assistant"
    assert "secret" not in said["gen_ai.output.messages"]


async def test_a_span_is_current_inside_and_never_outside() -> None:
    """F23: inside a stranger's stream the model's span is current at every await, in its consumer never."""
    inside: list[str] = []

    class Mine(ScriptedAdapter):
        async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
            try:
                for piece in ("one", "two"):
                    inside.append(_name())
                    await asyncio.sleep(0)
                    inside.append(_name())
                    yield "text", piece
                yield "done", ChatResponse("onetwo", [], "end_turn", None)
            finally:
                inside.append(_name())

        stream = generate = None  # type: ignore[assignment]

    outside = []
    with traced() as seen:
        async with Agent(model=Mine()).run_stream("hello") as run:
            async for _ in run:
                outside.append(_name())
                await asyncio.sleep(0)
                outside.append(_name())
        seen.settled()
    assert set(inside) == {"chat script"}
    assert len(inside) == 5
    assert set(outside) == {""}


def _name() -> str:
    return getattr(trace.get_current_span(), "name", "")


async def test_context_goes_through_tools_threads_and_agents_within() -> None:
    """F23: a sync tool's thread, an async tool and an agent inside a tool are all below the tool's span."""
    seen_in: dict[str, str] = {}
    inner = Agent(model=ScriptedAdapter(["inner"]), name="inner")

    def threaded() -> str:
        """Run in a thread."""
        seen_in["thread"] = _name()
        return "x"

    async def nested() -> str:
        """Ask another agent."""
        seen_in["task"] = _name()
        return (await inner.run("hello")).text

    calls = [Call("threaded", {}), Call("nested", {}), Finish("tool-calls")]
    with traced() as seen:
        with seen.tracers.get_tracer("app").start_as_current_span("request"):
            await Agent(model=ScriptedAdapter([calls, "done"]), name="outer", tools=[threaded, nested]).run("hello")
        assert seen_in == {"thread": "execute_tool threaded", "task": "execute_tool nested"}
        (within,) = seen.named("invoke_agent inner")
        (around,) = seen.named("invoke_agent outer")
        assert seen.parent(within) == "execute_tool nested"
        assert seen.parent(around) == "request"
        assert {span.context.trace_id for span in seen.spans if span.context} == {around.context.trace_id}  # type: ignore[union-attr]


async def test_a_wrapper_does_not_count_tokens_twice() -> None:
    """F23: an adapter that asks another one has a span of its own, and the tokens are the other one's."""
    usage = Usage(input_tokens=7, output_tokens=1)

    class Wrapper(ScriptedAdapter):
        async def stream(self, ctx: Any) -> Any:
            async for event in inner.stream(ctx):
                yield event

    inner = ScriptedAdapter([[Text("a"), Finish("stop", usage)]])
    with traced() as seen:
        await Wrapper().generate(ASK)
        await asyncio.sleep(0.01)
        chats = [dict(span.attributes or {}) for span in seen.named("chat")]
        points = seen.points("gen_ai.client.token.usage")
    assert ["gen_ai.usage.input_tokens" in said for said in chats] == [False, True]
    assert sorted(point.sum for point in points) == [1, 7]


async def test_a_plain_function_as_a_tier_is_a_model_call_too() -> None:
    """A tier of functions has the span of its call current, and of a sampled-out trace nothing is sent."""
    inside = []

    def generate(ctx: Any) -> StepResult:
        inside.append(_name())
        return StepResult((Text("x"),))

    with traced() as seen:
        tier = Tier(id="house:model-9", window_tokens=100, max_output_tokens=10, generate=generate)
        await define_chain(id="c", tiers=[tier]).generate(ASK)
        said = seen.one("chat")
    assert inside == ["chat model-9"]
    assert (said["gen_ai.provider.name"], said["gen_ai.request.model"]) == ("house", "model-9")


async def test_a_sink_that_fails_or_blocks_changes_nothing(collector: Collector) -> None:
    """A collector that is not there, a sink that raises anything and one that blocks neither change nor delay a run."""
    loop = asyncio.get_running_loop()
    blocked = asyncio.Event()

    def block(record: Any) -> None:
        loop.call_soon_threadsafe(blocked.set)
        time.sleep(2)

    def fail(record: Any) -> None:
        raise asyncio.CancelledError

    stop = observability.add_sink(block)
    observability.start(Telemetry(endpoint="http://127.0.0.1:9"))
    try:
        with hooks.sink(fail):
            began = loop.time()
            result = await Agent(model=ScriptedAdapter(["fine"])).run("hello")
            assert result.text == "fine"
            assert loop.time() - began < 1
        await asyncio.wait_for(blocked.wait(), 2)
    finally:
        began = loop.time()
        observability.shutdown(timeout=0.2)
        stop(timeout=0)
        assert loop.time() - began < 3


async def test_log_records_carry_the_ids_of_their_trace(caplog: pytest.LogCaptureFixture) -> None:
    """What the library logs of a run, and what an adapter logs inside it, has the ids of the spans."""
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(TraceIds())

    class Talking(ScriptedAdapter):
        async def stream(self, ctx: Any) -> Any:
            logging.getLogger("mycorp").info("inside")
            yield Text("x")
            yield Finish("stop")

    with traced() as seen:
        remove = hooks.add_sink(LogSink())
        await Agent(model=Talking()).run("hello")
        remove()
        logging.getLogger("mycorp").info("outside")
        spans = {trace.format_span_id(span.context.span_id): span.name for span in seen.spans if span.context}
    by_text = {record.getMessage(): record for record in caplog.records}
    assert spans[by_text["inside"].__dict__["span_id"]] == "chat script"
    assert by_text["outside"].__dict__["trace_id"] == ""
    ours = [record for record in caplog.records if record.name in ("isthmus.chain", "isthmus.turn")]
    assert ours
    assert all(spans[record.__dict__["span_id"]] for record in ours)
