"""F21 and F22: the request body, to the byte."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_chat.server import OPENAI
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.dialects import legal_name
from isthmus.models.events import Call, NoteCode
from isthmus.models.jsontext import dumps, loads
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

SCHEMA = {"type": "object", "properties": {"x": {"type": "integer", "maximum": 1e16}}, "$defs": {}}
TOOL = ToolSpec(name="f", description="Does f", parameters_schema=SCHEMA)
OTHER = ToolSpec(name="g", strict=True)
NEAR = replace(OPENAI, ceiling_key="max_tokens")
USER = ({"role": "user", "content": "Hi"},)


class Form:
    """An output form."""

    def name(self) -> str:
        """Its name."""
        return "out"

    def json_schema(self) -> dict[str, Any]:
        """Its schema."""
        return {"type": "object"}

    def response_format(self) -> dict[str, Any] | None:
        """Its request."""
        return {"type": "json_schema", "json_schema": {"name": "out", "schema": {"type": "object"}}}


def _body(ctx: GenerateContext, *, stream: bool = False, **settings: Any) -> dict[str, Any]:
    adapter = OpenAIChatAdapter("m", api_key="k", **settings)
    body: dict[str, Any] = loads(adapter._encode(ctx, stream=stream).call.body)
    return body


def test_the_least_request_to_the_byte() -> None:
    """A question alone is the model, the message and the ceiling of 8192 tokens."""
    request = ChatCodec("m").encode(GenerateContext(messages=USER), stream=False)
    assert request.call.body == (
        b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"max_completion_tokens":8192}'
    )
    assert (request.call.path, request.call.method, request.call.stream) == ("/chat/completions", "POST", False)
    assert request.notes == ()


def test_the_fullest_request_to_the_byte() -> None:
    """Every setting has its one place; equal input gives equal bytes."""
    ctx = GenerateContext(
        brief="Be brief",
        messages=USER,
        tools=(TOOL, OTHER),
        tool_choice="f",
        parallel_tool_calls=False,
        output=Form(),
        max_output_tokens=100,
        effort="high",
        temperature=0.0,
        top_p=0.5,
        stop=("END",),
        seed=0,
        options={"logprobs": True, "temperature": 1.0, "metadata": {"k": "v"}},
    )
    first = ChatCodec("m").encode(ctx, stream=True).call.body
    assert first == (
        b'{"model":"m","messages":[{"role":"system","content":"Be brief"},{"role":"user","content":"Hi"}],'
        b'"tools":[{"type":"function","function":{"name":"f","description":"Does f","parameters":{"type":"object",'
        b'"properties":{"x":{"type":"integer","maximum":1e16}},"$defs":{}}}},{"type":"function","function":{"name":"g",'
        b'"parameters":{"type":"object","properties":{},"required":[],"additionalProperties":false},"strict":true}}],'
        b'"tool_choice":{"type":"function","function":{"name":"f"}},"parallel_tool_calls":false,'
        b'"max_completion_tokens":100,'
        b'"response_format":{"type":"json_schema","json_schema":{"name":"out","schema":{"type":"object"}}},'
        b'"reasoning_effort":"high","temperature":1.0,"top_p":0.5,"stop":["END"],"seed":0,'
        b'"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"metadata":{"k":"v"}}'
    )
    assert ChatCodec("m").encode(ctx, stream=True).call.body == first


@pytest.mark.parametrize(
    ("settings", "asked", "options", "expected"),
    [
        ({}, None, {}, {"max_completion_tokens": 8192}),
        ({"max_tokens": 0}, None, {}, {"max_completion_tokens": 8192}),
        ({"max_tokens": 500}, None, {}, {"max_completion_tokens": 500}),
        ({"max_tokens": 500}, 0, {}, {"max_completion_tokens": 500}),
        ({"max_tokens": 500}, 20, {}, {"max_completion_tokens": 20}),
        ({"max_tokens": 500, "server": NEAR}, None, {}, {"max_tokens": 500}),
        ({}, 20, {"max_tokens": 7}, {"max_tokens": 7}),
        ({"server": NEAR}, 20, {"max_completion_tokens": 7}, {"max_completion_tokens": 7}),
    ],
)
def test_a_ceiling_is_always_sent_once(settings: Any, asked: Any, options: Any, expected: dict[str, int]) -> None:
    """F21: the caller's ceiling, else the adapter's, else 8192 is sent, under one key."""
    body = _body(GenerateContext(messages=USER, max_output_tokens=asked, options=options), **settings)
    assert {key: value for key, value in body.items() if key.startswith("max_")} == expected


def test_whole_and_streamed_requests_differ_in_the_stream_alone() -> None:
    """F16: one builder serves both ways of calling; the usage request can be left out."""
    ctx = GenerateContext(brief="b", messages=USER, tools=(TOOL,), temperature=0.1)
    whole, streamed = _body(ctx), _body(ctx, stream=True)
    assert streamed == {**whole, "stream": True, "stream_options": {"include_usage": True}}
    assert _body(ctx, stream=True, server=replace(OPENAI, stream_usage=False)) == {**whole, "stream": True}


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
def test_tool_choice_words(choice: str) -> None:
    """The words pass as they are."""
    assert _body(GenerateContext(messages=USER, tools=(TOOL,), tool_choice=choice))["tool_choice"] == choice


def test_tool_choice_must_name_a_tool() -> None:
    """A choice that names no tool of the request is an error that names those that are."""
    with pytest.raises(InvalidRequestError, match=r"'h'.*f, g"):
        _body(GenerateContext(messages=USER, tools=(TOOL, OTHER), tool_choice="h"))


def test_tool_settings_without_tools_are_not_sent() -> None:
    """F21: without tools, neither choice nor parallelism is sent; a choice that was meant is noted."""
    ctx = GenerateContext(messages=USER, tool_choice="required", parallel_tool_calls=False)
    request = ChatCodec("m").encode(ctx, stream=False)
    assert set(loads(request.call.body)) == {"model", "messages", "max_completion_tokens"}
    assert [note.code for note in request.notes] == [NoteCode.PARAMETER_DROPPED]


@pytest.mark.parametrize(
    ("own", "asked", "sent"),
    [
        (None, None, None),
        (None, "off", None),
        (None, "", None),
        (None, "high", "high"),
        (None, "xhigh", "xhigh"),
        ("low", None, "low"),
        ("low", "off", None),
        ("low", "max", "max"),
    ],
)
def test_effort(own: str | None, asked: str | None, sent: str | None) -> None:
    """A level passes as it is, off and nothing send nothing, the caller's stands before the adapter's own."""
    assert _body(GenerateContext(messages=USER, effort=asked), effort=own).get("reasoning_effort") == sent


def test_own_settings_fill_what_the_context_leaves_open() -> None:
    """The adapter's own brief and temperature apply where the context has none, and only there."""
    own = {"system": "own", "temperature": 0.3}
    bare = _body(GenerateContext(messages=USER), **own)
    assert (bare["messages"][0], bare["temperature"]) == ({"role": "system", "content": "own"}, 0.3)
    asked = _body(GenerateContext(brief="b", messages=USER, temperature=0.0), **own)
    assert (asked["messages"][0]["content"], asked["temperature"]) == ("b", 0.0)


def test_options_go_last_but_never_change_the_way_of_calling() -> None:
    """The caller's options win over everything, `stream` excepted; both are noted."""
    ctx = GenerateContext(messages=USER, options={"model": "n", "stream": True, "temperature": None})
    request = ChatCodec("m").encode(ctx, stream=False)
    body = loads(request.call.body)
    assert (body["model"], body["temperature"]) == ("n", None)
    assert "stream" not in body
    assert [note.code for note in request.notes] == [NoteCode.PARAMETER_CHANGED, NoteCode.PARAMETER_DROPPED]


def test_nothing_of_the_caller_is_changed() -> None:
    """F22: messages, schemas and options are the same after encoding; read-only mappings are fine."""
    messages = ({"role": "assistant", "content": None, "tool_calls": []}, *USER)
    options = {"metadata": {"k": "v"}, "stream_options": {"include_usage": False}}
    ctx = GenerateContext(messages=messages, tools=(TOOL,), options=options)
    before = copy.deepcopy((messages, options, SCHEMA))
    _body(ctx, stream=True)
    assert (messages, options, SCHEMA) == before
    frozen = GenerateContext(
        messages=(MappingProxyType({"role": "user", "content": "Hi"}),),
        tools=(ToolSpec(name="f", parameters_schema=MappingProxyType({"type": "object"})),),
        options=MappingProxyType({"metadata": MappingProxyType({"k": "v"})}),
    )
    body = _body(frozen)
    assert (body["messages"], body["metadata"]) == ([{"role": "user", "content": "Hi"}], {"k": "v"})


def test_lone_surrogates_reach_the_wire_escaped() -> None:
    """Text that is no valid UTF-8 is sent as an escape, not refused."""
    body = (
        ChatCodec("m")
        .encode(GenerateContext(messages=({"role": "user", "content": "\ud83d"},)), stream=False)
        .call.body
    )
    assert b'"\\ud83d"' in body


class Inferred:
    """Arguments whose schema nobody wrote."""

    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        """The schema."""
        return {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}, "required": ["a"]}


class Open:
    """Arguments of any name."""

    @staticmethod
    def model_json_schema() -> dict[str, Any]:
        """The schema."""
        return {"type": "object", "properties": {"a": {"type": "object", "additionalProperties": True}}}


def _functions(*tools: ToolSpec) -> tuple[list[dict[str, Any]], list[str]]:
    request = ChatCodec("m").encode(GenerateContext(messages=USER, tools=tools), stream=False)
    notes = [note.detail for note in request.notes if note.code == NoteCode.PARAMETER_CHANGED]
    return [tool["function"] for tool in loads(request.call.body)["tools"]], notes


def test_strict_tools_are_sent_in_the_dialect() -> None:
    """F08: a strict tool's inferred schema is closed and all required; one that cannot be is sent not strict."""
    (tight, loose, plain), notes = _functions(
        ToolSpec(name="tight", args_model=Inferred, strict=True),
        ToolSpec(name="loose", args_model=Open, strict=True),
        ToolSpec(name="plain", args_model=Inferred),
    )
    assert tight["strict"] is True
    assert tight["parameters"]["required"] == ["a", "b"]
    assert tight["parameters"]["properties"]["b"] == {"type": ["string", "null"]}
    assert tight["parameters"]["additionalProperties"] is False
    assert (loose["strict"], loose["parameters"]) == (False, Open.model_json_schema())
    assert plain == {"name": "plain", "parameters": Inferred.model_json_schema()}
    assert [note.partition(":")[2].split()[0] for note in notes] == ["'tight'", "'loose'"]


def test_illegal_tool_names_go_and_come_back() -> None:
    """F26: a name that this API refuses is sent under a legal one everywhere, and calls come back under its own."""
    name = "files.read/" + "x" * 80
    codec = ChatCodec("m")
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": "{}"}}
    history = (
        *USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    )
    ctx = GenerateContext(messages=history, tools=(ToolSpec(name=name),), tool_choice=name)
    request = codec.encode(ctx, stream=False)
    body = loads(request.call.body)
    legal = body["tools"][0]["function"]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", legal)
    assert body["messages"][1]["tool_calls"][0]["function"]["name"] == legal
    assert body["tool_choice"]["function"]["name"] == legal
    assert any(name in note.detail and legal in note.detail for note in request.notes)
    assert call["function"] == {"name": name, "arguments": "{}"}
    reply = {"choices": [{"message": {"tool_calls": [{**call, "function": {"name": legal, "arguments": "{}"}}]}}]}
    decoder = codec.decoder(whole=True)
    decoder.feed(Frame(dumps(reply)))
    assert [event.tool for event in decoder.close(Ended.FRAMED) if isinstance(event, Call)] == [name]


def test_two_tools_that_would_be_sent_alike_are_refused() -> None:
    """F26: a tool that has the name that another is sent under is refused before anything is sent."""
    taken = legal_name("a b", dialect="openai-strict")
    with pytest.raises(InvalidRequestError, match="rename one"):
        _functions(ToolSpec(name="a b"), ToolSpec(name=taken))


class StrictForm(Form):
    """An output form that asks to be enforced."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema

    def response_format(self) -> dict[str, Any] | None:
        """Its request."""
        return {"type": "json_schema", "json_schema": {"name": "out", "schema": self._schema, "strict": True}}


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {}, "required": [], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {"type": "object"}}}, False),
    ],
)
def test_an_output_that_cannot_be_enforced_is_not_strict(schema: dict[str, Any], strict: bool) -> None:
    """F17: an output schema is sent as its author wrote it, strict only where the dialect takes it so."""
    ctx = GenerateContext(messages=USER, output=StrictForm(schema))
    request = ChatCodec("m").encode(ctx, stream=False)
    form = loads(request.call.body)["response_format"]["json_schema"]
    assert form == {"name": "out", "schema": schema, "strict": strict}
    assert (not request.notes) is strict
