"""The client over the real SDK, streamed: events, ends, errors, and what is never made twice."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import openai
import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.chain import define_chain
from isthmus.errors import CallCancelledError, TierError
from isthmus.models import CancellationToken, ReasoningPhase, get_reasoning_phase
from isthmus.models.contract import GenerateContext
from isthmus.models.fold import classify, consume_stream
from isthmus.models.responses import ModelStreamEvent
from isthmus.wire.frame import Frame
from support.loopback import CLOSE, HOLD, RESET, LoopbackServer, stream
from support.responses_frames import call, frame, message, reasoning, response, sse, streamed
from support.responses_server import USER, answer, answer_stream, client, failed, sent

FULL = response(reasoning(), message("Let me see.", phase="commentary"), call("look", '{"x": 2}'))


async def events_of(model: Any, **arguments: Any) -> list[ModelStreamEvent]:
    """All events of a stream."""
    async with aclosing(model.stream_response([USER], **arguments)) as events:
        return [event async for event in events]


async def failing(model: Any) -> tuple[list[ModelStreamEvent], BaseException]:
    """The events of a stream that fails, and what it raised."""
    seen: list[ModelStreamEvent] = []
    try:
        async with aclosing(model.stream_response([USER])) as events:
            async for event in events:
                seen.append(event)
    except Exception as error:
        return seen, error
    raise AssertionError("it did not fail")


async def test_every_event_of_the_provider_is_shown_once() -> None:
    """In order, with its type and its frame; the last one is "completed" with the whole reply."""
    async with LoopbackServer([answer_stream(FULL)]) as server, client(server) as model:
        events = await events_of(model)
    assert sent(server)["stream"] is True
    assert [event.provider_event_type for event in events] == [each.event for each in streamed(FULL)]
    for event, each in zip(events, streamed(FULL), strict=True):
        assert isinstance(event.raw, Frame)
        assert json.loads(event.raw.data) == json.loads(each.data)
    assert events[-1].kind == "completed"


async def test_the_normalised_fields() -> None:
    """Text, arguments and reasoning stand in their fields, with place and type of the item; the rest is "provider"."""
    async with LoopbackServer([answer_stream(FULL)]) as server, client(server) as model:
        events = await events_of(model)
    texts = [event for event in events if event.kind == "text_delta"]
    assert "".join(event.text or "" for event in texts) == "Let me see."
    assert {(event.item_index, event.item_type) for event in texts} == {(1, "message")}
    pieces = [event for event in events if event.kind == "tool_call_arguments_delta"]
    assert "".join(event.arguments_delta or "" for event in pieces) == '{"x": 2}'
    assert {(event.tool_call_id, event.tool_call_index, event.item_index) for event in pieces} == {("call_1", 0, 2)}
    thoughts = [event for event in events if event.kind == "reasoning"]
    assert "".join(event.reasoning or "" for event in thoughts) == "Hm."
    assert {event.kind for event in events} == {
        "text_delta",
        "tool_call_arguments_delta",
        "reasoning",
        "provider",
        "completed",
    }


async def test_the_phase_of_a_message_is_read_off_its_event() -> None:
    """The typed accessor reads the raw frame of the event that adds the item."""
    async with LoopbackServer([answer_stream(FULL)]) as server, client(server) as model:
        phases = [get_reasoning_phase(event) for event in await events_of(model)]
    assert [phase for phase in phases if phase] == [ReasoningPhase.COMMENTARY] * 2


async def test_streamed_and_whole_are_the_same_reply() -> None:
    """The completed response is what `get_response` gives for the same reply."""
    async with LoopbackServer([answer_stream(FULL), answer(FULL)]) as server, client(server) as model:
        *_, last = await events_of(model)
        whole = await model.get_response([USER])
    assert last.response is not None
    assert last.response.to_dict() | {"created": 0} == whole.to_dict() | {"created": 0}


async def test_a_stream_is_tried_again_only_while_it_is_set_up() -> None:
    """Statuses before the stream are retried; a failure inside it is reported, and the call made once (F09)."""
    script = [failed(503, retry_after="0"), [RESET], answer_stream(FULL)]
    async with LoopbackServer(script) as server, client(server) as model:
        assert (await events_of(model))[-1].kind == "completed"
        assert len(server.requests) == 3
    error = {"code": "server_error", "message": "x"}
    broken = frame("response.failed", response=response(status="failed", error=error))
    script = [stream(sse([*streamed(FULL)[:6], broken])), answer_stream(FULL)]
    async with LoopbackServer(script) as server, client(server) as model:
        seen, caught = await failing(model)
        assert len(server.requests) == 1
    assert seen[-1].kind == "error"
    assert seen[-1].error is caught
    assert isinstance(caught, ResponseError)
    assert caught.response["error"] == error
    assert caught.partial.reasoning == "Hm."


@pytest.mark.parametrize(
    "last",
    [
        frame("error", code="server_error", message="oops", param=None),
        frame("response.failed", response=response(status="failed", error={"code": "server_error", "message": "oops"})),
        frame("response.incomplete", response=response(status="incomplete", incomplete_details={"reason": "steered"})),
    ],
    ids=lambda each: each.event,
)
async def test_a_failure_is_an_error_event_and_is_raised(last: Frame) -> None:
    """Its native response or event is kept, and nothing is "completed" (F01)."""
    async with LoopbackServer([stream(sse([*streamed(FULL)[:4], last]))]) as server, client(server) as model:
        seen, error = await failing(model)
    assert isinstance(error, ResponseError)
    native = json.loads(last.data)
    assert error.response == native.get("response", native)
    assert [event.kind for event in seen if event.kind in ("completed", "error")] == ["error"]


@pytest.mark.parametrize("end", [CLOSE, RESET])
async def test_a_stream_that_breaks_off_is_no_reply(end: Any) -> None:
    """Without its last event, however the bytes end, a stream raises a transient error (F01)."""
    for broken in (True, False):
        cut = stream(sse(streamed(FULL)[:-1]), last=not broken)
        async with LoopbackServer([[*cut, end] if broken else cut]) as server, client(server) as model:
            seen, error = await failing(model)
        assert seen[-1].kind == "error"
        kind = error.error_class if isinstance(error, TierError) else classify(error).error_class
        assert kind == "transient"


async def test_errors_of_the_sdk_are_shown_and_raised_as_they_are() -> None:
    """The event holds the very exception that is raised."""
    async with LoopbackServer([failed(400)]) as server, client(server) as model:
        seen, error = await failing(model)
    assert isinstance(error, openai.BadRequestError)
    assert [event.kind for event in seen] == ["error"]
    assert seen[0].error is error


async def test_a_server_may_answer_a_stream_whole() -> None:
    """A document where events were asked for is the reply too."""
    async with LoopbackServer([answer(FULL)]) as server, client(server) as model:
        events = await events_of(model)
    assert events[-1].response is not None
    assert events[-1].response.choices[0].message.content == "Let me see."
    assert "".join(event.text or "" for event in events) == "Let me see."


async def test_leaving_a_stream_closes_its_connection() -> None:
    """A break, and a cancelled task, leave no connection open."""
    script = [[*stream(sse(streamed(FULL)[:5]), last=False), HOLD]]
    async with LoopbackServer(script) as server, client(server) as model:
        async with aclosing(model.stream_response([USER])) as events:
            async for event in events:
                if event.kind == "provider":
                    break
        await server.until(lambda: server.open == 0)

        async def read() -> None:
            async for _ in model.stream_response([USER]):
                pass

        task = asyncio.create_task(read())
        await server.until(lambda: server.open == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: server.open == 0)


async def test_a_token_stops_a_stream() -> None:
    """A silent stream is given up as soon as its token is cancelled."""
    token = CancellationToken()
    frames = streamed(FULL)
    script = [[*stream(sse(frames[:4]), last=False), HOLD]]
    async with LoopbackServer(script) as server, client(server) as model:
        seen = []
        with pytest.raises(CallCancelledError):  # noqa: PT012
            async with aclosing(model.stream_response([USER], cancellation_token=token)) as events:
                async for event in events:
                    seen.append(event)
                    if len(seen) == 4:
                        asyncio.get_running_loop().call_later(0.05, token.cancel)
        assert [event.kind for event in seen[4:]] == ["error"]
        assert isinstance(seen[-1].error, CallCancelledError)


async def test_as_a_tier_it_falls_back_by_what_its_errors_mean() -> None:
    """A chain gives it one attempt and reads the class of the SDK's error: here it goes on to the next tier."""
    async with LoopbackServer([failed(503, retry_after="0")]) as busy, LoopbackServer([answer_stream(FULL)]) as free:
        async with client(busy, max_retries=2) as first, client(free, model="n") as second:
            chain = define_chain(id="c", tiers=[first, second])
            step = await consume_stream(chain.stream(GenerateContext(messages=(USER,))))
        assert len(busy.requests) == 2
    assert step.text == "Let me see."
    assert [made.tool for made in step.calls] == ["look"]
    assert step.message is not None
    assert step.message.payload == FULL["output"]
