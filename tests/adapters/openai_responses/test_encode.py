"""The request body: what a context becomes, and what is noted on the way."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.adapters.openai_responses.encode import request_body
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import NoteCode
from isthmus.models.messages import sendable

USER = {"role": "user", "content": "Hi"}


class Form:
    """A form of the reply, as its author wrote it."""

    def __init__(self, schema: dict[str, Any], strict: bool = True) -> None:
        self.schema, self.strict = schema, strict

    def name(self) -> str:
        return "answer"

    def json_schema(self) -> dict[str, Any]:
        return self.schema

    def response_format(self) -> dict[str, Any]:
        inner = {"name": "answer", "schema": self.schema, "strict": self.strict}
        return {"type": "json_schema", "json_schema": inner}


FORM = Form(
    {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
)


def sent(ceiling: int | None = 8192, **settings: Any) -> tuple[dict[str, Any], list[str]]:
    """The body as it goes out, and the notes' codes."""
    ctx = GenerateContext(**{"messages": (USER,), **settings})
    body, notes = request_body(ctx, model="m", ceiling=ceiling)
    return json.loads(sendable(body)), [note.code for note in notes]


def test_the_golden_request() -> None:
    """A request of every portable setting, byte for byte."""
    look = ToolSpec(name="look", description="Looks.", parameters_schema={"type": "object", "properties": {}})
    ctx = GenerateContext(
        brief="Be brief.",
        messages=(USER,),
        tools=(look,),
        tool_choice="required",
        output=FORM,
        max_output_tokens=100,
        effort="low",
        temperature=0.5,
        top_p=0.9,
        options={"store": False, "metadata": {"k": "v"}},
    )
    body, _ = request_body(ctx, model="m", ceiling=8192)
    assert sendable(body).decode() == (
        '{"model":"m","instructions":"Be brief.","input":[{"role":"user","content":"Hi"}],'
        '"tools":[{"type":"function","name":"look","description":"Looks.",'
        '"parameters":{"type":"object","properties":{}},"strict":false}],'
        '"parallel_tool_calls":true,"tool_choice":"required","max_output_tokens":100,"reasoning":{"effort":"low"},'
        '"text":{"format":{"type":"json_schema","name":"answer","schema":{"type":"object",'
        '"properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false},"strict":true}},'
        '"temperature":0.5,"top_p":0.9,"include":["reasoning.encrypted_content"],"store":false,"metadata":{"k":"v"}}'
    )


def test_the_ceiling_is_the_contexts_then_the_options_then_the_adapters() -> None:
    """A client without a ceiling of its own sends none."""
    assert sent(max_output_tokens=5)[0]["max_output_tokens"] == 5
    assert sent(options={"max_tokens": 7})[0] == {"model": "m", "input": [USER], "max_output_tokens": 7}
    assert sent(options={"max_output_tokens": 9})[0]["max_output_tokens"] == 9
    assert sent()[0]["max_output_tokens"] == 8192
    assert "max_output_tokens" not in sent(ceiling=None)[0]


@pytest.mark.parametrize("effort", [None, "", "off", "OFF", "none"])
def test_no_effort_sends_nothing(effort: str | None) -> None:
    """Off is the provider's default."""
    assert "reasoning" not in sent(effort=effort)[0]


def test_the_effort_joins_the_callers_reasoning_settings() -> None:
    """Other members stay; what the caller wrote for the effort itself stands."""
    assert sent(effort="high", options={"reasoning": {"summary": "auto"}})[0]["reasoning"] == {
        "summary": "auto",
        "effort": "high",
    }
    assert sent(effort="high", options={"reasoning": {"effort": "low"}})[0]["reasoning"] == {"effort": "low"}
    assert sent(options={"reasoning_effort": "low", "reasoning": {"summary": "auto"}})[0]["reasoning"] == {
        "summary": "auto",
        "effort": "low",
    }


def test_the_form_of_the_reply_joins_the_callers_text_settings() -> None:
    """The verbosity stays, a format of the caller's own gives way with a note, and nothing of his is changed."""
    text = {"verbosity": "low"}
    body, _ = sent(output=FORM, options={"text": text})
    assert body["text"]["verbosity"] == "low"
    assert body["text"]["format"]["name"] == "answer"
    assert text == {"verbosity": "low"}
    assert sent(options={"verbosity": "high"})[0]["text"] == {"verbosity": "high"}
    _, notes = sent(output=FORM, options={"text": {"format": {"type": "text"}}})
    assert notes == [NoteCode.PARAMETER_CHANGED]


def test_a_form_that_no_server_could_enforce_is_not_strict() -> None:
    """An open object is sent as its author wrote it, with strict off and a note (F17)."""
    body, notes = sent(output=Form({"type": "object"}))
    assert body["text"]["format"]["strict"] is False
    assert body["text"]["format"]["schema"] == {"type": "object"}
    assert notes == [NoteCode.PARAMETER_CHANGED]


def test_the_form_of_the_reply_stands_beside_tools_and_reasoning() -> None:
    """A schema is native here: no tool is forced for it, and tools and effort go along (F17)."""
    body, _ = sent(output=FORM, effort="high", tools=(ToolSpec(name="look"),))
    assert "tool_choice" not in body
    assert body["reasoning"] == {"effort": "high"}
    assert body["text"]["format"]["type"] == "json_schema"


def test_what_this_api_lacks_is_noted_or_an_error() -> None:
    """Stop strings and a seed have no place here."""
    body, notes = sent(stop=("END",), seed=3)
    assert body == sent()[0]
    assert notes == [NoteCode.PARAMETER_DROPPED] * 2
    with pytest.raises(InvalidRequestError, match="stop"):
        sent(stop=("END",), on_unsupported="error")


def test_reasoning_is_asked_for_encrypted_where_nothing_is_stored() -> None:
    """With `store` off the encrypted content is included, unless the caller says what to include (F03)."""
    assert sent(options={"store": False})[0]["include"] == ["reasoning.encrypted_content"]
    assert sent(options={"store": False, "include": []})[0]["include"] == []
    assert "include" not in sent(options={"store": True})[0]
    assert "include" not in sent()[0]


def test_unknown_options_pass_and_the_way_of_calling_does_not() -> None:
    """An option that nothing here knows is sent; `stream` is noted and left out."""
    body, notes = sent(options={"prompt_cache_key": "k", "stream": True})
    assert body["prompt_cache_key"] == "k"
    assert "stream" not in body
    assert notes == [NoteCode.PARAMETER_DROPPED]


@pytest.mark.parametrize("name", ["text", "reasoning"])
def test_a_setting_that_cannot_be_merged_is_named(name: str) -> None:
    """Settings that others join must be dicts."""
    with pytest.raises(InvalidRequestError, match=f"options.{name}"):
        sent(options={name: "low"})


def test_the_context_and_its_options_are_not_changed() -> None:
    """Messages, tools and options are the caller's."""
    options: dict[str, Any] = {"text": {"verbosity": "low"}, "reasoning": {"summary": "auto"}, "tools": []}
    copy = json.loads(json.dumps(options))
    ctx = GenerateContext(messages=({**USER},), output=FORM, effort="low", options=options)
    request_body(ctx, model="m", ceiling=1)
    assert options == copy
    assert ctx.messages == (USER,)
