"""Requests of this dialect: settings, tools, output, thinking, and golden bodies."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.anthropic.encode import Target
from isthmus.errors import InvalidRequestError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.wire.frame import Frame
from support.anthropic_fold import answer, call, calls, codes, request, user

GOLDEN = Path(__file__).with_name("golden")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec(name="get_weather", description="Current weather.", parameters_schema=SCHEMA)


class Form:
    """An output form, as an adapter reads it."""

    def __init__(self, schema: dict[str, Any], text: bool = False) -> None:
        self._schema, self._text = schema, text

    def name(self) -> str:
        """A name."""
        return "form"

    def json_schema(self) -> dict[str, Any]:
        """The schema."""
        return self._schema

    def response_format(self) -> dict[str, Any] | None:
        """Not this dialect's, but None asks for text."""
        return None if self._text else {"type": "json_schema"}


def able(*, adaptive: bool = True, default_on: bool = False, disable: bool = True) -> ModelCapabilities:
    """What a model can do, in the words of these tests."""
    return ModelCapabilities(adaptive_thinking=adaptive, thinking_default_on=default_on, thinking_disable=disable)


def codec(**known: Any) -> MessagesCodec:
    """A codec that knows this of its model."""
    return MessagesCodec("m", Target(**known))


def adapter(**own: Any) -> Any:
    """What encodes as an adapter with settings of its own does."""
    return SimpleNamespace(encode=AnthropicAdapter(model="m", api_key="k", cache_markers=False, **own)._encode)


NATIVE = {
    "role": "assistant",
    "content": "Let me look.",
    "tool_calls": [call("toolu_1", "get_weather", '{"city": "Rome", "n": 1.0}')],
    "_isthmus": {
        "native": {
            "dialect": "anthropic-messages",
            "of": "870c0a5e8d42c89471c930ee",
            "json": '[{"type":"thinking","thinking":"Hm","signature":"S=="},{"type":"text","text":"Let me look."},'
            '{"type":"tool_use","id":"toolu_1","name":"get_weather","input":{"city": "Rome", "n": 1.0}}]',
        }
    },
}

CONTEXTS = {
    "plain": GenerateContext(brief="Be brief.", messages=(user("Hello"),)),
    "tools": GenerateContext(
        brief="Be brief.",
        messages=(
            user("Rome and Oslo?"),
            calls(
                call("a", "get_weather", '{"city": "Rome"}'), call("b", "get_weather", '{"city":"Oslo"}'), text="Yes."
            ),
            answer("b", "5 C"),
            answer("a", "24 C"),
            user("And now?"),
        ),
        tools=(WEATHER,),
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0.2,
        stop=("END",),
        max_output_tokens=100,
    ),
    "native": GenerateContext(
        messages=(user("Rome?"), NATIVE, answer("toolu_1", "24 C")),
        tools=(WEATHER,),
        effort="medium",
        output=Form({"type": "object", "properties": {"t": {"type": "integer"}}}),
        options={"metadata": {"user_id": "u"}},
    ),
    "parts": GenerateContext(
        messages=(
            user(
                [
                    {"type": "text", "text": "What is this?", "cache_control": {"type": "ephemeral"}},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {
                        "type": "file",
                        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
                    },
                ]
            ),
        ),
    ),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_the_request_equals_its_golden_file_and_repeats_byte_for_byte(name):
    """The body for a context is pinned to the byte, the same each time, and leaves the context as it was (F22)."""
    ctx = CONTEXTS[name]
    before = copy.deepcopy((ctx.messages, dict(ctx.options)))
    first = MessagesCodec("claude-test").encode(ctx, stream=True).call
    again = MessagesCodec("claude-test").encode(ctx, stream=True).call
    assert first.body == again.body
    assert first.body + b"\n" == (GOLDEN / f"{name}.json").read_bytes()
    assert (ctx.messages, dict(ctx.options)) == before
    assert b"_isthmus" not in first.body


def test_the_call_names_path_version_and_betas():
    """The call goes to /v1/messages with the API's version, and with the betas that were asked for."""
    made = MessagesCodec("m", betas=("a-1", "b-2")).encode(GenerateContext(messages=(user(),)), stream=True).call
    assert (made.path, made.method, made.stream, made.framing) == ("/v1/messages", "POST", True, "sse")
    assert dict(made.headers) == {"anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2"}
    assert json.loads(made.body)["stream"] is True
    assert "stream" not in request(user())[0]


@pytest.mark.parametrize(
    ("own", "asked", "sent"), [(None, None, 8192), (0, None, 8192), (0, 0, 8192), (100, None, 100), (100, 50, 50)]
)
def test_max_tokens_is_the_contexts_else_the_adapters_else_8192(own, asked, sent):
    """A ceiling is always sent: falsy means the next in line."""
    assert request(user(), codec=adapter(max_tokens=own), max_output_tokens=asked)[0]["max_tokens"] == sent


def test_the_brief_stands_before_leading_system_messages():
    """Brief and leading system or developer messages are the system text, in order, each a block of its own."""
    body, made = request({"role": "system", "content": "B"}, {"role": "developer", "content": "C"}, user(), brief="A")
    assert [block["text"] for block in body["system"]] == ["A", "B", "C"]
    assert body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    assert made.notes == ()
    assert request(user(), codec=adapter(system="mine"))[0]["system"] == "mine"
    assert request(user(), codec=adapter(system="mine"), brief="yours")[0]["system"] == "yours"


def test_options_are_merged_last_and_an_override_is_noted():
    """Native options pass through as they are; one that replaces what was made is noted."""
    body, made = request(user(), options={"service_tier": "auto", "max_tokens": 5})
    assert (body["service_tier"], body["max_tokens"]) == ("auto", 5)
    assert codes(made) == ["parameter-changed"]


def test_nothing_to_send_is_refused():
    """A context without a message that says anything is refused before any request."""
    with pytest.raises(InvalidRequestError, match="nothing to send"):
        request(user("  "))


@pytest.mark.parametrize(
    ("choice", "parallel", "sent"),
    [
        (None, True, None),
        ("auto", True, {"type": "auto"}),
        ("required", True, {"type": "any"}),
        ("none", False, {"type": "none"}),
        ("get_weather", True, {"type": "tool", "name": "get_weather"}),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
    ],
)
def test_tool_choice_in_each_of_its_forms(choice, parallel, sent):
    """Each tool choice has one form here, and parallel calls are switched off inside it."""
    body, made = request(user(), tools=(WEATHER,), tool_choice=choice, parallel_tool_calls=parallel)
    assert body.get("tool_choice") == sent
    assert made.notes == ()


def test_a_tool_choice_without_tools_is_left_out_with_a_note_or_refused():
    """Nothing can be forced where there is nothing to choose from; an unknown name is an error."""
    body, made = request(user(), tool_choice="required", parallel_tool_calls=False)
    assert "tool_choice" not in body
    assert codes(made) == ["parameter-dropped"]
    with pytest.raises(InvalidRequestError, match="get_weather"):
        request(user(), tools=(WEATHER,), tool_choice="other")


def test_tool_schemas_and_strict_are_sent_unchanged():
    """A schema is sent as it is and strict only where that was said, which closes one that nobody wrote."""
    body, _ = request(user(), tools=(WEATHER, ToolSpec(name="g", strict=True)))
    assert body["tools"] == [
        {"name": "get_weather", "description": "Current weather.", "input_schema": SCHEMA},
        {
            "name": "g",
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
            "strict": True,
        },
    ]


def test_illegal_tool_names_go_and_come_back():
    """F26: a name that this API refuses is sent under a legal one, and calls come back under its own."""
    name = "files.read/" + "x" * 150
    made = MessagesCodec("m")
    body, sent = request(user(), calls(call("a", name)), answer("a"), codec=made, tools=(ToolSpec(name=name),))
    legal = body["tools"][0]["name"]
    assert legal.replace("_", "").replace("-", "").isalnum()
    assert len(legal) <= 128
    assert body["messages"][1]["content"][0]["name"] == legal
    assert "parameter-changed" in codes(sent)
    decoder = made.decoder(whole=True)
    reply = {"type": "message", "content": [{"type": "tool_use", "id": "t", "name": legal, "input": {"a": 1}}]}
    assert {event.tool for event in decoder.feed(Frame(json.dumps(reply).encode()))} == {name}


def test_two_tools_of_one_name_are_refused():
    """F26: two tools that would be called the same are refused, by name."""
    with pytest.raises(InvalidRequestError, match="get_weather"):
        request(user(), tools=(WEATHER, WEATHER))


def test_a_history_with_calls_declares_their_tools():
    """F14: without tools, those of the history are declared and none may be used, with a note."""
    body, made = request(user(), calls(call("a", "f")), answer("a"), tool_choice="none")
    assert body["tools"] == [{"name": "f", "input_schema": {"type": "object"}}]
    assert body["tool_choice"] == {"type": "none"}
    assert codes(made) == ["history-changed"]


def test_an_output_form_is_sent_closed_beside_the_effort():
    """F17: the schema goes into output_config beside the effort; open objects are closed, with a note."""
    schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "null"}}}}}
    body, made = request(user(), output=Form(schema), effort="low")
    assert body["output_config"]["effort"] == "low"
    sent = body["output_config"]["format"]["schema"]
    assert (sent["additionalProperties"], sent["properties"]["a"]["additionalProperties"]) == (False, False)
    assert "additionalProperties" not in schema
    assert codes(made) == ["parameter-changed"]
    assert request(user(), output=Form(sent))[1].notes == ()
    assert "output_config" not in request(user(), output=Form(schema, text=True))[0]


def test_a_form_that_the_api_would_refuse_is_asked_for_in_words():
    """F08: an object with keys of any name fails no request: its schema joins the instructions, with a note."""
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    body, made = request(user(), brief="Be brief.", output=Form(schema), effort="low")
    assert body["output_config"] == {"effort": "low"}
    assert body["system"].startswith("Be brief.")
    assert body["system"].endswith('{"type":"object","additionalProperties":{"type":"integer"}}')
    assert codes(made) == ["parameter-changed", "output-strategy"]


def test_a_property_called_like_a_keyword_is_no_schema_of_its_own():
    """Closing the objects of a schema reads keywords as keywords and the names of properties as names."""
    schema = {
        "type": "object",
        "properties": {"properties": {"type": "string", "enum": ["object"]}, "items": {"type": "null"}},
    }
    sent = request(user(), output=Form(schema))[0]["output_config"]["format"]["schema"]
    assert sent == {**schema, "additionalProperties": False}


@pytest.mark.parametrize("effort", ["low", "medium", "high", "xhigh", "max"])
def test_an_effort_is_adaptive_thinking_at_that_level(effort):
    """Seed 000: a named level is adaptive thinking plus output_config.effort; max_tokens is left alone."""
    body, made = request(user(), effort=effort)
    assert body["thinking"] == {"type": "adaptive"}
    assert body["output_config"] == {"effort": effort}
    assert body["max_tokens"] == 8192
    assert made.notes == ()


@pytest.mark.parametrize(
    ("capabilities", "thinking", "effort"),
    [
        (None, None, None),
        (able(), None, None),
        (able(default_on=True), {"type": "disabled"}, None),
        (able(default_on=True, disable=False), {"type": "adaptive"}, "low"),
        (able(adaptive=False, default_on=True), None, None),
    ],
)
def test_off_is_what_the_model_needs_to_be_off(capabilities, thinking, effort):
    """Seed 000: off sends nothing, an explicit disabled, or the lowest effort, as the capabilities say."""
    body, _ = request(user(), codec=codec(capabilities=capabilities), effort="off")
    assert body.get("thinking") == thinking
    assert body.get("output_config", {}).get("effort") == effort


def test_an_endpoint_without_adaptive_thinking_gets_no_thinking_field():
    """Seed 000: adaptive_thinking = false sends no field, and the level that was left out is noted or refused."""
    made = codec(capabilities=able(adaptive=False))
    body, sent = request(user(), codec=made, effort="high")
    assert "thinking" not in body
    assert "output_config" not in body
    assert codes(sent) == ["parameter-dropped"]
    with pytest.raises(InvalidRequestError, match="effort"):
        request(user(), codec=made, effort="high", on_unsupported="error")


@pytest.mark.parametrize("thinking", [{"effort": "low"}, {"options": {"thinking": {"type": "enabled"}}}])
def test_a_call_is_never_forced_while_thinking(thinking):
    """F17: a forced tool choice becomes auto with a note while thinking is on, however it was switched on."""
    for choice in ("required", "get_weather"):
        body, made = request(user(), tools=(WEATHER,), tool_choice=choice, **thinking)
        assert body["tool_choice"] == {"type": "auto"}
        assert codes(made) == ["parameter-changed"]


def test_sampling_that_thinking_refuses_is_left_out_with_a_note():
    """F21: temperature below 1 and top_p below 0.95 go while thinking is on; what is allowed stays."""
    body, made = request(user(), effort="low", temperature=0.5, top_p=0.5)
    assert not {"temperature", "top_p"} & body.keys()
    assert codes(made) == ["parameter-dropped", "parameter-dropped"]
    body, made = request(user(), effort="low", temperature=1.0, top_p=0.99)
    assert (body["temperature"], body["top_p"], made.notes) == (1.0, 0.99, ())
    body, made = request(user(), temperature=0, top_p=0.5)
    assert (body["temperature"], body["top_p"], made.notes) == (0, 0.5, ())


def test_a_seed_is_noted_or_refused():
    """F21: this API has no seed: a note, or an error where the context asks for one."""
    body, made = request(user(), seed=7)
    assert "seed" not in body
    assert codes(made) == ["parameter-dropped"]
    with pytest.raises(InvalidRequestError, match="seed 7"):
        request(user(), seed=7, on_unsupported="error")


def test_stop_strings_are_sent_and_blank_ones_left_out():
    """Stop strings become stop_sequences; white space alone, which this API refuses, is noted."""
    body, made = request(user(), stop=("END", "\n"))
    assert body["stop_sequences"] == ["END"]
    assert codes(made) == ["parameter-dropped"]


class Arguments:
    """Arguments whose schema nobody wrote."""

    def __init__(self, **properties):
        self.schema = {"type": "object", "properties": properties}

    def model_json_schema(self):
        """The schema."""
        return self.schema


def test_strict_tools_are_sent_in_the_dialect():
    """F08: a strict tool's inferred schema is closed and loses its bounds; one that cannot be said is not strict."""
    body, sent = request(
        user(),
        tools=(
            ToolSpec(name="a", args_model=Arguments(n={"type": "integer", "minimum": 1}), strict=True),
            ToolSpec(name="b", args_model=Arguments(n={"type": "object"}), strict=True),
        ),
    )
    closed = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    assert body["tools"] == [
        {"name": "a", "input_schema": closed, "strict": True},
        {"name": "b", "input_schema": Arguments(n={"type": "object"}).schema, "strict": False},
    ]
    assert codes(sent).count("parameter-changed") == 2


def test_an_output_loses_what_the_api_refuses():
    """F08: an output's schema is closed and loses bounds and formats that the API refuses, with a note."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 3}, "u": {"type": "string", "format": "regex"}},
        "required": ["n"],
    }
    body, sent = request(user(), output=Form(schema))
    assert body["output_config"]["format"]["schema"] == {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "u": {"type": "string"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    assert "parameter-changed" in codes(sent)
