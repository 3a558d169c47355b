"""A chat-face author's rules, each broken in turn: the runtime names the rule, whichever face is asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall
from isthmus.errors import ProtocolError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, NoteCode, Reasoning, Text
from support.face_kit import CTX, LOOK, TOOL_DICTS


def streaming(*pairs: Any) -> Any:
    """An adapter whose `stream_with_tools` yields these."""

    async def stream_with_tools(self: Any, messages: Any, tools: Any) -> Any:
        for pair in pairs:
            yield pair

    return type("Streaming", (ModelAdapter,), {"stream_with_tools": stream_with_tools})()


def chatting(reply: Any) -> Any:
    """An adapter whose `chat` returns this."""

    async def chat(self: Any, messages: Any, tools: Any) -> Any:
        return reply

    return type("Chatting", (ModelAdapter,), {"chat": chat})()


def call(**changes: Any) -> ToolCall:
    """A right call, but for the changes."""
    return ToolCall(**{"id": "c1", "name": "look", "input": {"q": "x"}, **changes})


DONE = ("done", ChatResponse(None, [], "end_turn"))

BROKEN_STREAMS = {
    "no done": ([("text", "a")], "without .'done'"),
    "done twice": ([DONE, DONE], "'done' after 'done'"),
    "text after done": ([DONE, ("text", "a")], "'text' after 'done'"),
    "text None": ([("text", None), DONE], "must be a str"),
    "a bare string": (["a", DONE], r"must yield \('text', str\)"),
    "an unknown event": ([("token", "a"), DONE], "'token'"),
    "a triple": ([("text", "a", 1), DONE], r"must yield \('text', str\)"),
    "thinking that is no text": ([("thinking", 3), DONE], "must be a str"),
    "a final text that was not streamed": ([("done", ChatResponse("all", [], "stop"))], "not what was streamed"),
    "a final text that differs": ([("text", "a"), ("done", ChatResponse("b", [], "stop"))], "not what was streamed"),
    "done without a reply": ([("done", None)], "ChatResponse"),
}


@pytest.mark.parametrize("rule", BROKEN_STREAMS)
async def test_a_broken_stream_is_protocol_and_says_why(rule: str) -> None:
    """Every breach of the streaming rules is a ProtocolError that names it, before content; after it, error-post."""
    pairs, said = BROKEN_STREAMS[rule]
    adapter = streaming(*pairs)
    with pytest.raises(ProtocolError, match=said):
        async for _ in adapter.stream(CTX):
            pass
    if pairs[0] == ("text", "a"):
        step = await adapter.generate(CTX)
        assert (step.finish, step.text) == ("error-post", "a")
        assert isinstance(step.error, ProtocolError)


BROKEN_REPLIES = {
    "string arguments": (ChatResponse(None, [call(input='{"q": "x"}')], "tool_use"), "json.loads it"),
    "no arguments": (ChatResponse(None, [call(input=None)], "tool_use"), "input must be the dict"),
    "duplicate ids": (ChatResponse(None, [call(), call()], "tool_use"), "'c1' is used twice"),
    "no name": (ChatResponse(None, [call(name="")], "tool_use"), "name must be a non-empty str"),
    "text of bytes": (ChatResponse(b"x", [], "stop"), "text must be a str"),  # type: ignore[arg-type]
    "calls of a string": (ChatResponse(None, "look", "tool_use"), "list of ToolCall"),  # type: ignore[arg-type]
    "tool_use without a call": (ChatResponse("x", [], "tool_use"), "tool_calls is empty"),
    "arguments cut away": (ChatResponse("x", [call(input={})], "MAX_TOKENS"), "required arguments"),
    "a dict": ({"text": "x"}, "must be a ChatResponse"),
    "nothing": (None, "must be a ChatResponse"),
}


@pytest.mark.parametrize("rule", BROKEN_REPLIES)
async def test_a_broken_reply_is_protocol_on_both_paths(rule: str) -> None:
    """F12, F15: whole and streamed, a reply that breaks a rule is a ProtocolError that names place and remedy."""
    reply, said = BROKEN_REPLIES[rule]
    with pytest.raises(ProtocolError, match=said):
        await chatting(reply).generate(CTX)
    text = getattr(reply, "text", None)
    pairs = [("text", text)] if isinstance(text, str) else []
    result = streaming(*pairs, ("done", reply)).stream(CTX)
    with pytest.raises(ProtocolError, match=said):
        async for _ in result:
            pass


TOLERATED = {
    "calls with another stop": (ChatResponse(None, [call()], "end_turn"), "tool-calls"),
    "calls in a cut reply that are whole": (ChatResponse(None, [call()], "max_tokens"), "tool-calls"),
    "a call without arguments in a cut reply": (
        ChatResponse(None, [call(name="other", input={})], "length"),
        "tool-calls",
    ),
    "no list of calls": (ChatResponse("x", None, "stop"), "stop"),  # type: ignore[arg-type]
    "no stop reason": (ChatResponse("x", [], ""), "other"),
    "an unknown stop reason": (ChatResponse("x", [], "tired"), "other"),
    "truncation in another case": (ChatResponse("x", [], "Length"), "length"),
    "refusal": (ChatResponse("x", [], "refusal"), "refusal"),
    "pause_turn": (ChatResponse("x", [], "pause_turn"), "pause"),
    "content_filter": (ChatResponse("x", [], "content_filter"), "content-filter"),
    "stop_sequence": (ChatResponse("x", [], "stop_sequence"), "stop"),
    "a reply of another class": (SimpleNamespace(text="x", tool_calls=[], stop_reason="end_turn"), "stop"),
}


@pytest.mark.parametrize("form", TOLERATED)
async def test_right_and_tolerated_replies_pass(form: str) -> None:
    """What is only untidy is taken, and the raw reason is kept."""
    reply, finish = TOLERATED[form]
    step = await chatting(reply).generate(CTX)
    assert step.finish == finish
    assert step.raw_reason == (reply.stop_reason or None)


async def test_a_sync_chat_is_taken() -> None:
    """The runtime takes a plain `chat` that the kit would report."""
    adapter = type("Sync", (ModelAdapter,), {"chat": lambda self, m, t: ChatResponse("x", [], "stop")})()
    assert (await adapter.generate(CTX)).text == "x"


async def test_streamed_text_stands_where_the_final_text_is_none() -> None:
    """Text, thinking and calls become events in order, the finish last."""
    adapter = streaming(
        ("thinking", "hm"), ("text", "a"), ("text", "b"), ("done", ChatResponse(None, [call()], "tool_use"))
    )
    events = [event async for event in adapter.stream(CTX)]
    assert events == [
        Reasoning("hm"),
        Text("a"),
        Text("b"),
        Call("look", {"q": "x"}, "c1", '{"q":"x"}'),
        Finish("tool-calls", raw_reason="tool_use"),
    ]


async def test_white_space_around_the_final_text_is_no_contradiction() -> None:
    """A final text that was stripped agrees with the streamed one, which stands."""
    adapter = streaming(("text", "a "), ("done", ChatResponse("a", [], "stop")))
    assert (await adapter.generate(CTX)).text == "a "


async def test_a_call_without_an_id_gets_one() -> None:
    """A missing id is made, the same whole and streamed, and noted."""
    reply = ChatResponse(None, [call(id="")], "tool_use")
    whole = await chatting(reply).generate(CTX)
    streamed = await streaming(("done", reply)).generate(CTX)
    assert whole.calls[0].call_id == streamed.calls[0].call_id
    assert whole.notes[0].code == NoteCode.CALL_ID_MADE


async def test_tools_come_in_anthropic_shape_and_are_the_authors_own() -> None:
    """F22: tools are {name, description, input_schema}; what an author does to them changes nothing of the caller's."""
    seen: list[Any] = []

    async def chat(self: Any, messages: Any, tools: Any) -> Any:
        seen.append([dict(tool) for tool in tools])
        tools[0]["input_schema"]["properties"]["more"] = {}
        messages[0]["content"][0]["text"] = "changed"
        messages.append({"role": "user", "content": "more"})
        return ChatResponse("x", [], "stop")

    parts = [{"type": "text", "text": "hi"}]
    ctx = GenerateContext(messages=({"role": "user", "content": parts},), tools=(LOOK,))
    await type("Chatting", (ModelAdapter,), {"chat": chat})().generate(ctx)
    assert set(seen[0][0]) == {"name", "description", "input_schema"}
    assert seen[0][0]["name"] == TOOL_DICTS[0]["name"]
    assert LOOK.parameters["properties"] == {"q": {"type": "string"}}
    assert parts == [{"type": "text", "text": "hi"}]
    assert len(ctx.messages) == 1
