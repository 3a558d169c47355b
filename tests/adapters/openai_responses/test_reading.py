"""Calls that may run while a reply goes on: how they are asked for and told, over HTTP and over a WebSocket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.adapters.openai_responses.errors import failure_of
from isthmus.adapters.openai_responses.reading import response_error
from isthmus.conformance.live import Peer, live_server
from isthmus.errors import ErrorClass, RefusedError, TierError, TransientError
from isthmus.models import Tools, as_tool
from isthmus.models.dialects import legal_name
from isthmus.models.responses import ModelStreamEvent
from support.live_kit import USER, Talk, live_client, output
from support.loopback import LoopbackServer, stream
from support.responses_frames import call, frame, message, response, sse, streamed
from support.responses_server import answer_stream, client, sent

ASYNC = {"async": True}


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return str(x)


@as_tool(name="look it up")
async def look_up(x: int) -> str:
    """Look a number up."""
    return str(x)


async def told(events: AsyncIterator[ModelStreamEvent]) -> list[ModelStreamEvent]:
    """All events of a stream."""
    async with aclosing(events) as stream:  # type: ignore[type-var]
        return [event async for event in stream]


def calls(events: list[ModelStreamEvent]) -> list[tuple[str, str, str]]:
    """The calls that were told before the reply was whole."""
    found = [event.async_tool_call for event in events if event.async_tool_call is not None]
    return [(each.id, each.function.name, each.function.arguments) for each in found]


@pytest.mark.parametrize("names", [["look"], ("look", "other"), {"look"}])
async def test_named_functions_are_declared(names: Any) -> None:
    """By name, among those of the call; the rest is declared as ever, and no caller's object is changed."""
    async with LoopbackServer([answer_stream(response(message()))]) as server:
        model = client(server, async_tools=names)
        tools = Tools([look, look_up])
        await told(model.stream_response([USER], tools=tools))
        await told(model.stream_response([USER]))
        await model.aclose()
    declared = [[tool.get("async") for tool in sent(server, at).get("tools", ())] for at in (0, 1)]
    assert declared == [[True, None], []]
    assert (model.requires_streaming, client(server).requires_streaming) == (True, False)


async def test_a_whole_call_is_told_before_the_reply_is() -> None:
    """With the item that completes it; the whole reply has it as well, under the same id."""
    full = response(call("look", '{"x":1}', **ASYNC), message("Meanwhile"), call("look", '{"x":2}', "c2"))
    async with LoopbackServer([answer_stream(full)]) as server, client(server, async_tools=["look"]) as model:
        events = await told(model.stream_response([USER], tools=Tools([look])))
    at = next(place for place, event in enumerate(events) if event.async_tool_call)
    assert (events[at].kind, events[at].provider_event_type) == ("provider", "response.output_item.done")
    assert any(event.text for event in events[at:])
    assert calls(events) == [("call_1", "look", '{"x":1}')]
    reply = events[-1].response
    assert reply is not None
    assert [each.id for each in reply.choices[0].message.tool_calls or ()] == ["call_1", "c2"]
    assert [event.provider_event_type for event in events] == [each.event for each in streamed(full)]


async def test_a_call_with_a_name_that_had_to_be_changed_has_its_own() -> None:
    """It is declared under the legal name and told under the tool's."""
    full = response(call(legal_name("look it up", dialect="openai-strict"), "{}", **ASYNC))
    async with LoopbackServer([answer_stream(full)]) as server, client(server, async_tools=["look it up"]) as model:
        events = await told(model.stream_response([USER], tools=Tools([look_up])))
    assert sent(server)["tools"][0]["async"] is True
    assert calls(events) == [("call_1", "look it up", "{}")]


async def test_a_call_that_only_the_end_tells_is_told() -> None:
    """Some servers leave out the events of an item: it is told with the last one, and only once."""
    full = response(call("look", '{"x":1}', **ASYNC))
    end = [frame("response.created", response={**full, "output": []}), frame("response.completed", response=full)]
    async with LoopbackServer([stream(sse(end))]) as server, client(server, async_tools=["look"]) as model:
        events = await told(model.stream_response([USER], tools=Tools([look])))
    assert calls(events) == [("call_1", "look", '{"x":1}')]
    assert events[-1].kind == "completed"


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (call("other", "{}", **ASYNC), "other"),
        (call("look", "{}", **ASYNC, namespace="crm"), "crm"),
        (call("look", "{}", **ASYNC, caller={"type": "program", "caller_id": "p"}), "program"),
    ],
    ids=["undeclared", "namespaced", "of a program"],
)
@pytest.mark.parametrize("live", [False, True], ids=["http", "websocket"])
async def test_a_call_that_nobody_may_run_fails_the_reply(item: dict[str, Any], why: str, live: bool) -> None:
    """Undeclared, in a namespace, or a program's: an error that names it and keeps the item, and no call."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        fields = {name: value for name, value in item.items() if name in ("async", "namespace", "caller")}
        await peer.call(item["name"], "{}", call_id="call_1", **fields)
        await peer.gone()

    seen: list[ModelStreamEvent] = []

    async with AsyncExitStack() as stack:
        if live:
            server = await stack.enter_async_context(live_server(play))
            model = await stack.enter_async_context(live_client(server, async_tools=["look"]))
        else:
            http = await stack.enter_async_context(LoopbackServer([answer_stream(response(item, message()))]))
            model = await stack.enter_async_context(client(http, async_tools=["look"]))
        run = await stack.enter_async_context(model.open_run())

        async def read() -> None:
            async for event in run.stream_response([USER], tools=Tools([look])):
                seen.append(event)

        with pytest.raises(ResponseError, match=why) as caught:
            await read()
    assert caught.value.error_class is ErrorClass.PROTOCOL
    assert caught.value.response["name"] == item["name"]
    assert calls(seen) == []


@pytest.mark.parametrize("caller", [None, {"type": "direct"}])
async def test_a_direct_call_says_so_or_nothing(caller: Any) -> None:
    """Both are the model's own."""
    full = response(call("look", "{}", **ASYNC, caller=caller, namespace=None))
    async with LoopbackServer([answer_stream(full)]) as server, client(server, async_tools=["look"]) as model:
        assert len(calls(await told(model.stream_response([USER], tools=Tools([look]))))) == 1


async def test_results_are_sent_as_they_become_ready() -> None:
    """Over a WebSocket only what is new goes: an output may come turns after its call."""

    async def play(peer: Peer) -> None:
        request = await peer.hear()
        assert [tool.get("async") for tool in request["tools"]] == [True]
        await peer.begin("r1")
        await peer.call("look", '{"x": 1}', call_id="c1", **ASYNC)
        await peer.call("look", '{"x": 2}', call_id="c2", **ASYNC)
        await peer.text("Working")
        await peer.end()
        for number, (call_id, text) in enumerate((("c2", "two"), ("c1", "one")), 2):
            request = await peer.hear()
            assert request["input"] == [{"type": "function_call_output", "call_id": call_id, "output": text}]
            assert request["previous_response_id"] == f"r{number - 1}"
            await peer.begin(f"r{number}", f"r{number - 1}")
            await peer.text(f" {text}")
            await peer.end()

    async with (
        live_server(play) as server,
        live_client(server, async_tools=["look"]) as model,
        model.open_run() as run,
    ):
        talk = Talk(run, tools=Tools([look]))
        await talk.turn()
        assert [call_id for call_id, _, _ in calls(talk.events)] == ["c1", "c2"]
        for call_id, text in (("c2", "two"), ("c1", "one")):
            talk.add(output(call_id, text))
            await talk.turn()
    assert talk.text == "Working two one"


async def test_a_successor_inherits_the_declarations_of_its_predecessor() -> None:
    """Nothing is sent for it, so what was declared then is what counts."""

    async def play(peer: Peer) -> None:
        await peer.hear()
        await peer.begin("r1")
        await peer.hear("response.steer")
        await peer.accept("st1")
        await peer.end("steered")
        await peer.begin("r2", "r1")
        await peer.call("look", '{"x": 1}', call_id="c1", **ASYNC)
        await peer.end()

    async with (
        live_server(play) as server,
        live_client(server, async_tools=["look"]) as model,
        model.open_run() as run,
    ):
        talk = Talk(run)

        async def steer(event: ModelStreamEvent) -> None:
            if event.provider_event_type == "response.created":
                await run.steer("Focus")

        await talk.turn(steer, tools=Tools([look]))
        await talk.turn(tools=Tools([]))
    assert calls(talk.events) == [("c1", "look", '{"x": 1}')]


def test_a_response_error_is_of_the_class_that_it_stands_for() -> None:
    """It is a `TierError` with the class, status and code of the failure, and the native response."""
    native = {"status": "failed", "error": {"code": "server_error", "message": "x"}}
    error = response_error("x", native, of=failure_of(native["error"]))
    assert isinstance(error, ResponseError)
    assert isinstance(error, TierError)
    assert (error.error_class, error.status, error.code) == ("transient", 500, "server_error")
    assert error.response is native
    assert error.error == native["error"]
    assert response_error("x", None, of=RefusedError("no")).error_class == "refused"


def test_the_error_of_an_event_is_found_too() -> None:
    """An event holds its error in its response, or beside it."""
    inner = {"code": "c", "message": "m"}
    assert response_error("x", {"type": "error", "error": inner}).error == inner
    flat = {"type": "error", "code": "c", "message": "m"}
    assert response_error("x", flat).error == flat
    assert response_error("x", None, of=TransientError("cut")).error is None
