"""Telemetry where other rooms meet it: tools of MCP servers, runs over a WebSocket, runs that wait for an approval."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from isthmus import observability
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import TierError
from isthmus.harness import AgentDescriptor, ApprovalShim, DefaultAgent, HttpServer, McpShim
from isthmus.models import as_tool
from isthmus.models.events import Call, StepResult
from support.live_kit import KEY, USER, live_client, steered
from support.live_runs import at, live_agent, read
from support.mcp_runs import odd
from support.mcp_web import web_server
from support.telemetry import traced


def parent_of(traceparent: str) -> SpanContext:
    """The span that a W3C header names."""
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(int(flags, 16)))


async def call(server: Any, *calls: Call, **config: Any) -> Any:
    """A run that makes these calls, and what telemetry saw."""
    model = ScriptedAdapter([StepResult(list(calls), "tool-calls"), "done"])
    agent = AgentDescriptor(name="x", model=model, shims=[McpShim(server)])
    with traced(**config) as seen:
        async with DefaultAgent(descriptor=agent) as running:
            await running.run("hi")
        seen.settled()
    return seen, model.contexts[1].messages[-len(calls) :]


async def test_the_span_of_a_tool_says_what_the_conventions_ask_of_an_mcp_call() -> None:
    """One span for tool and call, which the server gets as its parent; a failed one is `tool_error`, in metrics too."""
    calls = Call("p_pid", {}, "c1"), Call("p_fail", {}, "c2"), Call("p_trace", {}, "c3")
    seen, answers = await call(odd("traced", prefix="p_"), *calls)
    spans = {span.name.rpartition("_")[2]: span for span in seen.named("execute_tool")}
    fine, failed = dict(spans["pid"].attributes), dict(spans["fail"].attributes)
    assert fine.pop("mcp.protocol.version")[:2] == "20"
    assert int(fine.pop("jsonrpc.request.id")) != int(failed["jsonrpc.request.id"])
    assert fine.pop("gen_ai.conversation.id")
    assert fine == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "p_pid",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.type": "function",
        "mcp.method.name": "tools/call",
        "network.transport": "pipe",
        "isthmus.outcome": "ok",
    }
    assert failed["error.type"] == "tool_error"
    kinds = [point.attributes.get("error.type") for point in seen.points("gen_ai.client.operation.duration")]
    assert "tool_error" in kinds
    assert parent_of(json.loads(answers[-1]["content"])["traceparent"]) == spans["trace"].context


async def test_an_error_of_the_protocol_is_its_code() -> None:
    """`error.type` is the code of the answer; its message, which may say anything, is not sent."""
    seen, _ = await call(odd(env={"API_TOKEN": "payload"}), Call("refuse", {}, "c1"))
    said = seen.one("execute_tool")
    assert (said["error.type"], said["rpc.response.status_code"]) == ("-32602", "-32602")
    assert "payload" not in seen.text()


async def test_a_server_over_http_gets_the_context_of_the_trace() -> None:
    """In `_meta` of the request, not of a header; the span has the server's address, without the key in its URL."""
    async with web_server() as (web, url):
        seen, _ = await call(HttpServer("web", f"{url}?api_key=hunter2hunter2"), Call("work", {}, "c1"))
    (span,) = seen.named("execute_tool")
    (asked,) = [body for body in web.bodies if body["method"] == "tools/call"]
    assert parent_of(asked["params"]["_meta"]["traceparent"]) == span.context
    said = seen.one("execute_tool")
    assert (said["network.transport"], said["network.protocol.name"]) == ("tcp", "http")
    assert (said["server.address"], said["server.port"]) == ("127.0.0.1", urlsplit(url).port)
    assert said["jsonrpc.request.id"] == str(asked["id"])
    assert "hunter2" not in seen.text()


async def test_each_response_of_a_run_over_a_websocket_is_a_model_call() -> None:
    """It has its id, model, tokens and time to the first content; what became of steered input is told."""
    with traced() as seen:
        async with live_server(steered) as server:
            told = await read(live_agent(server, async_tools=()), at("response.output_text.delta", "payload-steered"))
        assert told.text == "Batteries storeAt home"
        first, second = seen.named("chat")
        seen.settled()
    port = urlsplit(server.url).port
    for span, response_id, reason in ((first, "r1", "steered"), (second, "r2", "completed")):
        said = dict(span.attributes or {})
        assert (said["gen_ai.response.id"], said["gen_ai.response.model"]) == (response_id, "scripted")
        assert (said["server.address"], said["server.port"]) == ("127.0.0.1", port)
        assert (said["gen_ai.usage.input_tokens"], said["gen_ai.usage.output_tokens"]) == (10, 6)
        assert said["gen_ai.response.finish_reasons"] == (reason,)
        assert said["gen_ai.response.time_to_first_chunk"] > 0
    events = [(event.name, dict(event.attributes or {})) for span in (first, second) for event in span.events]
    assert events == [("isthmus.steering", {"isthmus.status": status}) for status in ("accepted", "applied")]
    (point,) = seen.points("gen_ai.client.operation.time_to_first_chunk")
    assert point.count == 2
    assert "payload" not in seen.text()
    assert KEY not in seen.text()


@pytest.mark.parametrize("way", ["break", "drop", "error"])
async def test_a_response_over_a_websocket_that_is_left_or_lost_is_one_ended_span(way: str) -> None:
    """Left by its reader, cut off by the other side, or failed: one span, its outcome, and no word of the error."""

    async def script(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.text("Batteries")
        if way == "drop":
            peer.drop()
        elif way == "error":
            await peer.say("error", status=500, error={"type": "server_error", "code": "x", "message": "payload"})

    with traced() as seen:
        async with live_server(script) as server, live_client(server).open_run() as run:
            with suppress(TierError):
                async with aclosing(run.stream_response([USER])) as events:
                    async for event in events:
                        if way == "break" and event.text:
                            break
        said = seen.one("chat")
        assert said["isthmus.outcome"] == {"break": "closed"}.get(way, "error")
        assert ("error.type" in said) is (way != "break")
        assert said["gen_ai.response.id"] == "r1"
        assert "payload" not in seen.text()
        seen.settled()


async def test_a_run_that_waits_and_goes_on_is_one_conversation() -> None:
    """What ran before and after an approval are two traces, found by one id; the tool runs in the second."""

    @as_tool
    def pay(amount: int) -> str:
        """Pay."""
        return "payload"

    model = ScriptedAdapter([StepResult([Call("pay", {"amount": 3}, "c1")], "tool-calls"), "done"])
    shims = [ApprovalShim({"pay": "ask"})]
    with traced() as seen:
        async with DefaultAgent(descriptor=AgentDescriptor(name="p", model=model, tools=[pay], shims=shims)) as agent:
            asked = await agent.run("payload")
            await agent.resume(decisions=[asked.pending[0].approve()])
        first, second = seen.named("invoke_agent")
        (tool,) = seen.named("execute_tool")
        seen.settled()
    assert first.attributes["gen_ai.conversation.id"] == second.attributes["gen_ai.conversation.id"]
    assert (first.attributes["isthmus.reason"], second.attributes["isthmus.outcome"]) == ("approval", "completed")
    assert first.context.trace_id != second.context.trace_id == tool.context.trace_id
    assert "payload" not in seen.text()


@pytest.mark.parametrize("capture", [False, True])
async def test_the_sink_log_does_not_repeat_what_a_server_says(
    capture: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its error stream, and why it went away, may hold what a tool was given: they are written where contents are."""
    server = odd("talker", name="talker")
    calls = StepResult([Call("die", {}, "c1")], "tool-calls"), StepResult([Call("pid", {}, "c2")], "tool-calls"), "done"
    observability.start(observability.Telemetry(sinks=("log",), log_level="debug", capture_content=capture))
    agent = AgentDescriptor(name="x", model=ScriptedAdapter(list(calls)), shims=[McpShim(server)])
    async with DefaultAgent(descriptor=agent) as running:
        await running.run("hi")
    await asyncio.to_thread(observability.flush)
    observability.shutdown()
    said = capsys.readouterr().err
    assert "talker" in said
    assert "started again" in said
    assert ("payload" in said) is capture, said
