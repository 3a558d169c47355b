"""Cache points of Converse, and cache markers of InvokeModel."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import NoteCode
from isthmus.models.jsontext import loads

MODEL = "anthropic.claude-sonnet-4-6"
TOOL = ToolSpec(name="look", description="Looks.", parameters_schema={"type": "object", "properties": {}})
POINT = {"cachePoint": {"type": "default"}}


def asked(ctx: GenerateContext, **settings: Any) -> tuple[dict[str, Any], list[Any]]:
    """The body that would be sent, and its notes."""
    adapter = BedrockAdapter(**{"model": MODEL, "api_key": "k", "aws_region": "us-east-1", **settings})
    request = adapter._encode(ctx, stream=False)
    return loads(request.call.body), list(request.notes)


def context(*content: Any, brief: str = "Be brief.") -> GenerateContext:
    """A request of some user messages with an answer between each two."""
    turns = [({"role": "user", "content": each}, {"role": "assistant", "content": "ok"}) for each in content or ("hi",)]
    messages = tuple(message for turn in turns for message in turn)[:-1]
    return GenerateContext(brief=brief, messages=messages, tools=(TOOL,))


def test_f25_points_stand_behind_tools_system_and_the_last_message() -> None:
    """F25: by Converse an Anthropic model's prompt is kept behind its tools, its system text and its last message."""
    body, notes = asked(context("a", "b"), api="converse")
    assert [body["toolConfig"]["tools"][-1], body["system"][-1]] == [POINT, POINT]
    assert body["messages"][-1]["content"][-1] == POINT
    assert POINT not in body["messages"][0]["content"]
    assert not notes


def test_f25_markers_by_invoke_are_those_of_the_messages_dialect() -> None:
    """F25: by InvokeModel the last tool, the system text and the last block carry a marker of the life asked for."""
    body, _ = asked(context(), cache_ttl="1h")
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert body["tools"][-1]["cache_control"] == mark
    assert body["system"][-1]["cache_control"] == mark
    assert body["messages"][-1]["content"][-1]["cache_control"] == mark


@pytest.mark.parametrize("api", ["converse", "invoke"])
@pytest.mark.parametrize("off", [{"cache_markers": False}, {"model_limits": {"claude": {"cache_markers": False}}}])
def test_nothing_is_marked_where_it_is_off_or_not_honoured(api: str, off: dict[str, Any]) -> None:
    """Markers are left out when the setting, or what is known of the model, says so."""
    body, _ = asked(context(), api=api, **off)
    assert "cache" not in repr(body)


def test_other_vendors_models_get_no_points() -> None:
    """A model that may refuse cache points is sent none."""
    body, _ = asked(context(), model="amazon.nova-lite-v1:0")
    assert "cachePoint" not in repr(body)


def test_the_callers_own_points_count() -> None:
    """F25: at most four points a request: those of the caller first, and a note for what was left out."""
    mark = {"cache_control": {"type": "ephemeral"}}
    parts = [{"type": "text", "text": str(number), **mark} for number in range(3)]
    body, notes = asked(context(parts, "last"), api="converse")
    assert repr(body).count("cachePoint") == 4
    assert {note.code for note in notes} == {NoteCode.PARAMETER_DROPPED}
    assert len(notes) == 2


def test_tools_go_by_name() -> None:
    """The order in which tools were found changes nothing in the prompt."""
    other = ToolSpec(name="ask", description="Asks.", parameters_schema={"type": "object", "properties": {}})
    ctx = GenerateContext(messages=({"role": "user", "content": "hi"},), tools=(TOOL, other))
    body, _ = asked(ctx, api="converse")
    assert [tool["toolSpec"]["name"] for tool in body["toolConfig"]["tools"][:-1]] == ["ask", "look"]


def test_an_empty_prompt_part_gets_no_point() -> None:
    """Without instructions and tools only the message is marked."""
    ctx = GenerateContext(messages=({"role": "user", "content": "hi"},))
    body, _ = asked(ctx, api="converse")
    assert repr(body).count("cachePoint") == 1


def test_a_life_that_cannot_be_is_refused() -> None:
    """A time to live other than the API's is an error that names the key."""
    with pytest.raises(ConfigError, match="cache_ttl"):
        asked(context(), cache_ttl="2h")
