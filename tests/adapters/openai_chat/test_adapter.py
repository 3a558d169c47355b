"""The adapter over real sockets: requests as sent, replies as they end."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Any

import pytest

from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.openai_chat.adapter import ChatServer
from isthmus.errors import (
    ContextOverflowError,
    CredentialsError,
    InvalidRequestError,
    ProtocolError,
    TransientError,
)
from isthmus.models.contract import GenerateContext
from isthmus.models.events import NoteCode, StepResult
from isthmus.models.fold import consume_stream
from isthmus.models.messages import assistant_message, tool_message
from isthmus.observability import hooks
from support.chat_frames import chunk, sse, tc
from support.loopback import CLOSE, RESET, LoopbackServer, head, stream, whole

KEY = "sk-canary-0123456789"
CTX = GenerateContext(messages=({"role": "user", "content": "Hi"},))
HELLO = sse(
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk(finish="stop"),
)
MESSAGE = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
}


def _adapter(server: LoopbackServer, **settings: Any) -> OpenAIChatAdapter:
    return OpenAIChatAdapter("m", **{"api_key": KEY, "base_url": f"{server.url}/v1", **settings})


async def _streamed(adapter: OpenAIChatAdapter, ctx: GenerateContext = CTX) -> StepResult:
    async with aclosing(adapter):
        return await consume_stream(adapter.stream(ctx))


async def _whole(adapter: OpenAIChatAdapter, ctx: GenerateContext = CTX) -> StepResult:
    async with aclosing(adapter):
        step: StepResult = await adapter.generate(ctx)
        return step


async def test_streamed_and_whole_over_sockets() -> None:
    """Both ways of calling reach the endpoint with the key, and give the same reply."""
    async with LoopbackServer([stream(HELLO[:70], HELLO[70:]), [whole(json.dumps(MESSAGE).encode())]]) as server:
        adapter = _adapter(server, headers={"X-Team": "t"})
        async with aclosing(adapter):
            streamed = await consume_stream(adapter.stream(CTX))
            complete = await adapter.generate(CTX)
        first, second = server.requests
    assert streamed == complete
    assert streamed.text == "Hello"
    assert (first.method, first.path) == ("POST", "/v1/chat/completions")
    assert (first.headers["authorization"], first.headers["x-team"]) == (f"Bearer {KEY}", "t")
    assert (first.headers["content-type"], first.headers["accept"]) == ("application/json", "text/event-stream")
    assert json.loads(first.body) == {
        **json.loads(second.body),
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_whole_reply_where_a_stream_was_asked_for() -> None:
    """A server that answers a streamed request with one JSON document is read as a whole reply."""
    async with LoopbackServer([[whole(json.dumps(MESSAGE).encode())]]) as server:
        assert (await _streamed(_adapter(server))).text == "Hello"


@pytest.mark.parametrize("end", [CLOSE, RESET])
async def test_a_cut_stream_is_an_error_after_content(end: Any) -> None:
    """F01: a connection that drops before the end mark gives an "error-post" reply with what had arrived."""
    cut = HELLO[: HELLO.index(b"data: [DONE]")]
    async with LoopbackServer([[*stream(cut, last=False), end]]) as server:
        seen = await _streamed(_adapter(server))
    assert (seen.finish, seen.text) == ("error-post", "Hello")
    assert isinstance(seen.error, TransientError)


async def test_a_framed_end_after_the_reason_is_complete() -> None:
    """F01: a stream without end mark is complete where the last chunk of the body arrived, and that is noted."""
    cut = HELLO[: HELLO.index(b"data: [DONE]")]
    async with LoopbackServer([stream(cut)]) as server:
        seen = await _streamed(_adapter(server))
    assert seen.finish == "stop"
    assert NoteCode.NO_END_MARK in [note.code for note in seen.notes]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (
            401,
            {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}},
            CredentialsError,
        ),
        (429, {"error": {"message": "Rate limit", "type": "requests"}}, TransientError),
        (400, {"error": {"message": "too long", "code": "context_length_exceeded"}}, ContextOverflowError),
    ],
)
async def test_error_replies_are_classified_without_the_key(status: int, body: Any, kind: type[Exception]) -> None:
    """F18, F29: an error status is its class on both ways of calling; a key that it repeats is taken out."""
    async with LoopbackServer([[whole(json.dumps(body).encode(), status)]]) as server:
        for call in (_streamed, _whole):
            with pytest.raises(kind) as caught:
                await call(_adapter(server))
            assert KEY not in f"{caught.value!r} {caught.value} {vars(caught.value)}"


async def test_a_page_is_no_reply() -> None:
    """F18: a success that is HTML is a protocol error that says so."""
    page = [head(content_type="text/html", content_length="15"), b"<html>Hi</html>"]
    async with LoopbackServer([page]) as server:
        for call in (_streamed, _whole):
            with pytest.raises(ProtocolError):
                await call(_adapter(server))


async def test_the_second_request_carries_what_the_first_reply_held() -> None:
    """F03: reasoning and its signature stand in the request that follows a tool turn, as they came."""
    details = [{"type": "reasoning.text", "text": "hm", "signature": "S+/=", "index": 0}]
    called = sse(
        chunk({"reasoning_details": details}),
        chunk({"tool_calls": [tc(0, "a", "f", '{"x": 1}')]}),
        chunk(finish="tool_calls"),
    )
    async with LoopbackServer([stream(called), stream(HELLO)]) as server:
        adapter = _adapter(server)
        async with aclosing(adapter):
            first = await consume_stream(adapter.stream(CTX))
            history = (*CTX.messages, assistant_message(first), tool_message("a", "done"))
            await consume_stream(adapter.stream(GenerateContext(messages=history)))
        sent = json.loads(server.requests[1].body)
    assert b"_isthmus" not in server.requests[1].body
    assert sent["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
            "reasoning_details": details,
        },
        {"role": "tool", "tool_call_id": "a", "content": "done"},
    ]


async def test_no_key_is_shown() -> None:
    """F29: neither the adapter's repr nor a record of the wire shows the key or a further header's value."""
    seen: list[Any] = []
    async with LoopbackServer([stream(HELLO)]) as server:
        adapter = _adapter(server, headers={"x-own": "canary-header"})
        with hooks.sink(seen.append):
            await _streamed(adapter)
    assert seen
    shown = f"{adapter!r} {adapter.keys!r} {seen!r}"
    assert KEY not in shown
    assert "canary-header" not in shown


async def test_the_variables_key_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the environment is not sent to another host, which needs none, unless its address is trusted."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with LoopbackServer([stream(HELLO), stream(HELLO)]) as server:
        await _streamed(_adapter(server, api_key=None))
        await _streamed(_adapter(server, api_key=None, base_url_trusted=True))
        untrusted, trusted = server.requests
    assert "authorization" not in untrusted.headers
    assert trusted.headers["authorization"] == f"Bearer {KEY}"


async def test_another_server_is_a_row_of_data() -> None:
    """A server that differs in name, ceiling key, key and usage is described, not programmed."""
    async with LoopbackServer([stream(HELLO)]) as server:
        row = ChatServer(provider="near", base_url=server.url, key_required=False, stream_usage=False)
        adapter = OpenAIChatAdapter("m", server=row, max_tokens=100)
        assert adapter.provider == "near"
        assert (await _streamed(adapter)).text == "Hello"
        (seen,) = server.requests
    assert (seen.path, "authorization" in seen.headers) == ("/chat/completions", False)
    assert json.loads(seen.body) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 100,
        "stream": True,
    }


def test_settings_are_what_they_say() -> None:
    """The adapter shows its provider, model and ceiling; a falsy ceiling is 8192."""
    adapter = OpenAIChatAdapter("m", max_tokens=0, system="s", effort="low")
    assert (adapter.provider, adapter.model, adapter.max_tokens) == ("openai", "m", 8192)
    assert (adapter.system, adapter.effort) == ("s", "low")
    assert adapter.supports >= {"tools", "parallel-tools", "images", "output-schema"}
    assert adapter.base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize("deep", [True, False], ids=["nested 3000 deep", "an object"])
@pytest.mark.parametrize("streamed", [True, False])
async def test_a_request_without_a_json_form_is_invalid_before_any_io(deep: bool, streamed: bool) -> None:
    """What cannot be written as JSON is the caller's mistake, told as one: no other tier is tried with it."""
    odd: Any = object()
    for _ in range(3000 if deep else 0):
        odd = {"a": odd}
    ctx = GenerateContext(messages=({"role": "user", "content": "x", "odd": odd},))
    async with OpenAIChatAdapter("m", api_key="k", base_url="http://127.0.0.1:9") as adapter:
        with pytest.raises(InvalidRequestError, match=r"the request has no JSON form .*plain values"):
            await (adapter.stream(ctx).result() if streamed else adapter.generate(ctx))
