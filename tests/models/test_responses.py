"""The shapes of the model face."""

from __future__ import annotations

import json

import msgspec

from isthmus.models.events import StepResult
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent, ModelStreamEventKind
from support.face_kit import model_response


def test_a_response_is_plain_json_of_the_chat_completions_shape() -> None:
    """Its JSON has the fields of a ChatCompletion and nothing of ours."""
    shown = json.loads(json.dumps(model_response().to_dict()))
    assert shown["choices"][0]["message"]["tool_calls"][0] == {
        "id": "c1",
        "function": {"name": "look", "arguments": '{"q":"x"}'},
        "type": "function",
    }
    assert shown["usage"]["total_tokens"] == 12
    assert shown["object"] == "chat.completion"


def test_the_reply_behind_a_response_is_hidden() -> None:
    """`step` is no part of equality, repr or JSON; each response has its own `model_extra`."""
    first, second = (ModelResponse(id="a", choices=[Choice(message=Message(content="x"))]) for _ in range(2))
    first._step = StepResult()
    assert first.step == StepResult()
    assert second.step is None
    assert first == second
    assert msgspec.json.encode(first) == msgspec.json.encode(second)
    first.model_extra["a"] = 1
    assert second.model_extra == {}


def test_the_kinds_are_six_strings() -> None:
    """The enum's members are the strings that events carry."""
    assert {str(kind) for kind in ModelStreamEventKind} == {
        "text_delta",
        "tool_call_arguments_delta",
        "reasoning",
        "completed",
        "error",
        "provider",
    }
    assert ModelStreamEvent(kind="text_delta").kind == ModelStreamEventKind.TEXT_DELTA
