"""The adapter over real sockets: requests as sent, replies as they end, all three faces."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from isthmus import connect
from isthmus.adapters.openai_responses import OpenAIResponsesAdapter
from isthmus.errors import CredentialsError, ProtocolError, TransientError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.fold import consume_stream
from isthmus.models.messages import assistant_message, tool_message
from support.loopback import CLOSE, RESET, LoopbackServer, stream, whole
from support.responses_frames import call, message, reasoning, response, sse, streamed
from support.responses_server import KEY, answer, answer_stream, failed, sent

USER = {"role": "user", "content": "Hi"}
LOOK = ToolSpec(name="look", strict=False)
CTX = GenerateContext(messages=(USER,), tools=(LOOK,))
FULL = response(reasoning(), message("Let me see."), call())


def adapter_for(server: LoopbackServer, **settings: Any) -> OpenAIResponsesAdapter:
    """An adapter of the server."""
    return OpenAIResponsesAdapter("m", **{"api_key": KEY, "base_url": f"{server.url}/v1", **settings})


async def test_streamed_and_whole_over_sockets() -> None:
    """Both ways of calling reach the endpoint with the key, and give the same reply."""
    async with LoopbackServer([answer_stream(FULL), answer(FULL)]) as server:
        async with aclosing(adapter_for(server, headers={"X-Team": "t"})) as adapter:
            one = await consume_stream(adapter.stream(CTX))
            other = await adapter.generate(CTX)
        for request in server.requests:
            assert (request.method, request.path) == ("POST", "/v1/responses")
            assert request.headers["authorization"] == f"Bearer {KEY}"
            assert request.headers["x-team"] == "t"
    assert one == other
    assert KEY not in repr(vars(adapter))


async def test_a_tool_turn_holds_the_items_of_the_reply() -> None:
    """Native items of turn 1 stand in the request of turn 2, then the result (F03)."""
    script = [answer_stream(FULL), answer_stream(response(message("4")))]
    async with LoopbackServer(script) as server, aclosing(adapter_for(server)) as adapter:
        first = await consume_stream(adapter.stream(CTX))
        history = (USER, assistant_message(first), tool_message("call_1", "4"))
        second = await consume_stream(adapter.stream(GenerateContext(messages=history, tools=(LOOK,))))
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    assert sent(server)["input"] == [USER, *FULL["output"], result]
    assert second.text == "4"


async def test_all_faces_agree() -> None:
    """The chat and the model face show the same reply; the message of the latter has the native items."""
    async with LoopbackServer([answer(FULL)]) as server, aclosing(adapter_for(server)) as adapter:
        chat = await adapter.chat([USER], [{"name": "look", "description": "", "input_schema": {"type": "object"}}])
        reply = await adapter.get_response([USER])
    assert (chat.text, chat.stop_reason) == ("Let me see.", "tool_use")
    assert [(each.id, each.name, each.input) for each in chat.tool_calls] == [("call_1", "look", {"x": 1})]
    assert reply.choices[0].message.content == "Let me see."
    assert reply.choices[0].message.model_extra["openai_responses_input"] == FULL["output"]


@pytest.mark.parametrize(
    ("script", "kind"),
    [
        (failed(401, "invalid_api_key", f"Incorrect API key provided: {KEY}"), CredentialsError),
        (failed(429, "rate_limit_exceeded", retry_after="7"), TransientError),
        ([*stream(sse(streamed(FULL)[:-1]), last=False), CLOSE], TransientError),
        ([*stream(sse(streamed(FULL)[:-1]), last=False), RESET], TransientError),
        (stream(sse(streamed(FULL)[:-1])), TransientError),
        (stream(b"event: x\ndata: {oops\n\n", sse(streamed(FULL))), ProtocolError),
        ([whole(b"<html>", content_type="text/html")], ProtocolError),
    ],
)
async def test_failures_are_classified_and_hold_no_key(script: Any, kind: type[Exception]) -> None:
    """Statuses, cuts and malformed replies, streamed (F01, F09, F18)."""
    async with LoopbackServer([script]) as server, aclosing(adapter_for(server)) as adapter:
        with pytest.raises(kind) as caught:
            async for _ in adapter.stream(CTX):
                pass
    assert KEY not in f"{caught.value!r} {caught.value} {getattr(caught.value, 'body', '')}"
    if b"429" in script[0]:
        assert caught.value.retry_after == 7


async def test_breaking_off_closes_the_connection() -> None:
    """Who leaves the stream leaves no socket."""
    async with LoopbackServer([answer_stream(FULL)]) as server:
        async with aclosing(adapter_for(server)) as adapter:
            stream_ = adapter.stream(CTX)
            async with aclosing(stream_):
                async for _ in stream_:
                    break
        await server.until(lambda: server.open == 0)


async def test_the_environments_key_goes_to_its_own_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server of one's own gets no key that was not given for it."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with LoopbackServer([answer(FULL)]) as server:
        async with aclosing(adapter_for(server, api_key=None)) as adapter:
            await adapter.generate(CTX)
        assert "authorization" not in server.requests[0].headers
    assert dict(await OpenAIResponsesAdapter("m").keys.headers())["authorization"] == f"Bearer {KEY}"
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(CredentialsError, match="OPENAI_API_KEY"):
        await OpenAIResponsesAdapter("m").keys.headers()


def test_it_is_reached_by_its_name() -> None:
    """`connect` takes provider and model, and settings by name."""
    adapter = connect("openai-responses:gpt-9", api_key="k", max_tokens=5)
    assert isinstance(adapter, OpenAIResponsesAdapter)
    assert (adapter.id, adapter.max_tokens) == ("openai-responses:gpt-9", 5)
    assert adapter.supports == {"tools", "parallel-tools", "images", "documents", "output-schema"}


async def test_a_configured_ceiling_is_sent() -> None:
    """The adapter's own where the request has none, else 8192."""
    async with LoopbackServer([answer(FULL)]) as server:
        for ceiling, expected in ((0, 8192), (77, 77)):
            async with aclosing(adapter_for(server, max_tokens=ceiling)) as adapter:
                await adapter.generate(CTX)
            assert json.loads(server.requests[-1].body)["max_output_tokens"] == expected


@pytest.mark.parametrize("wanted", [None, 64000])
async def test_the_models_ceiling_and_its_thinking_are_followed_at_each_turn(wanted: int | None) -> None:
    """`max_output_tokens` lowers the default too, `adaptive_thinking = false` leaves the effort out, both noted."""
    limits = {"": {"max_output_tokens": 5000, "adaptive_thinking": False}}
    async with LoopbackServer([answer(response(message()))]) as server:
        adapter = OpenAIResponsesAdapter(
            "m", base_url=server.url, max_tokens=wanted, effort="high", model_limits=limits
        )
        step = await adapter.generate(GenerateContext(messages=(USER,)))
        await adapter.aclose()
        assert sent(server) == {"model": "m", "input": [USER], "max_output_tokens": 5000}
    assert [str(note.code) for note in step.notes] == ["parameter-changed", "parameter-dropped"]


@pytest.mark.parametrize(
    ("model", "asked", "reasoning", "codes"),
    [
        ("gpt-5.2", "off", {"effort": "none"}, []),
        ("gpt-5-mini", "off", {"effort": "low"}, ["parameter-changed"]),
        ("o3", "off", {"effort": "low"}, ["parameter-changed"]),
        ("gpt-4.1", "off", None, []),
        ("gpt-5.2", None, None, []),
        ("gpt-5.2", "minimal", {"effort": "minimal"}, []),
    ],
)
async def test_effort_off_is_what_the_model_needs_to_be_off(
    model: str, asked: str | None, reasoning: dict[str, str] | None, codes: list[str]
) -> None:
    """Nothing where leaving it out is off, "none" where the model reasons by itself, "low" where it takes no "none"."""
    async with LoopbackServer([answer(response(message()))]) as server:
        async with aclosing(OpenAIResponsesAdapter(model, base_url=server.url, effort=asked)) as adapter:
            step = await adapter.generate(CTX)
        assert sent(server).get("reasoning") == reasoning
    assert [str(note.code) for note in step.notes if "effort" in note.detail] == codes


async def test_the_callers_own_effort_goes_before_off() -> None:
    """What the options say of the effort stands, and nothing is noted of the adapter's own."""
    options = {"reasoning": {"effort": "high", "summary": "auto"}}
    async with LoopbackServer([answer(response(message()))]) as server:
        async with aclosing(OpenAIResponsesAdapter("o3", base_url=server.url, effort="off")) as adapter:
            step = await adapter.generate(GenerateContext(messages=(USER,), options=options))
        assert sent(server)["reasoning"] == options["reasoning"]
    assert not [note for note in step.notes if "effort" in note.detail]
