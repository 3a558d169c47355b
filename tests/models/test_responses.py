"""The shapes of the model face."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.models.events import StepResult
from isthmus.models.responses import Choice, Message, ModelResponse, ModelStreamEvent, ModelStreamEventKind
from isthmus.models.steering import SteeringReceipt
from isthmus.wire.frame import Frame
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


FULL = {
    "id": "r1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "system_fingerprint": "fp",
    "choices": [
        {
            "index": 0,
            "finish_reason": "tool_calls",
            "logprobs": {"content": [{"token": "a", "logprob": -0.5}]},
            "provider": "x",
            "message": {
                "role": "assistant",
                "content": None,
                "annotations": [{"type": "url_citation"}],
                "tool_calls": [
                    {"id": "c", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{ }", "x": 1}}
                ],
            },
        }
    ],
    "usage": {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "cost": 0.5,
        "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 1, "accepted_prediction_tokens": 0},
    },
}


def test_strangers_keys_survive_at_any_depth() -> None:
    """From dict to shapes and back is the identity, and each unknown key reads like a field."""
    response = ModelResponse.from_dict(FULL)
    assert response.to_dict() == FULL
    assert (response.system_fingerprint, response.choices[0].provider) == ("fp", "x")
    assert response.choices[0].message.annotations == [{"type": "url_citation"}]
    assert response.usage is not None
    assert (response.usage.cost, response.usage.prompt_tokens_details.cached_tokens) == (0.5, 1)
    with pytest.raises(AttributeError, match="ModelResponse has neither a field nor an extra 'reasoning'"):
        response.reasoning  # noqa: B018


keys = st.text("abcxyz_", min_size=1, max_size=6).filter(lambda key: not key.startswith("_"))
extras = st.dictionaries(keys, st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers()), max_size=3)


@given(extras, extras, extras, st.text(max_size=5))
def test_any_extra_comes_back(top: Any, inner: Any, deep: Any, text: str) -> None:
    """Promise 2: whatever keys a reply, its message and its usage carry, `to_dict` gives them back, None too."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    message = {**inner, "role": "assistant", "content": text}
    data = {
        **top,
        "id": "a",
        "object": "chat.completion",
        "model": "",
        "choices": [{"message": message, "index": 0}],
        "usage": {**deep, **usage},
    }
    before = copy.deepcopy(data)
    response = ModelResponse.from_dict(data)
    assert response.to_dict() == data == before
    assert pickle.loads(pickle.dumps(response)) == copy.deepcopy(response) == response


def test_what_to_dict_hands_out_is_the_callers_own() -> None:
    """F22: changing it changes no response."""
    response = ModelResponse.from_dict(FULL)
    response.to_dict()["choices"][0]["message"]["annotations"].append(1)
    assert response.to_dict() == FULL


def test_a_reason_that_is_not_there_is_none() -> None:
    """A reply from elsewhere without a reason does not get the default, which is one."""
    response = ModelResponse.from_dict({"choices": [{"message": {"content": "x"}}]})
    assert response.choices[0].finish_reason is None
    assert response.id.startswith("isthmus-")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "required field `choices`"),
        ({"choices": [{}]}, r"required field `message` - at `\$.choices\[0\]`"),
        ({"choices": [{"message": {"content": 1}}]}, r"got `int` - at `\$.choices\[0\].message.content`"),
        ({"choices": "x"}, r"Expected `array`, got `str` - at `\$.choices`"),
        ([], "Expected `object`, got `array`"),
        ({"choices": [], "usage": {"prompt_tokens": "3"}}, r"\$.usage"),
    ],
)
def test_what_is_no_reply_names_its_place(data: Any, said: str) -> None:
    """A dict of another shape is refused with the place, what was expected and what is there."""
    with pytest.raises(ProtocolError, match="no ModelResponse in the shape of Chat Completions: .*" + said):
        ModelResponse.from_dict(data)


def test_the_defaults_of_an_event() -> None:
    """All fields but the kind are None or empty."""
    event = ModelStreamEvent(kind="provider")
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    assert values.pop("kind") == "provider"
    assert values.pop("required_tool_call_ids") == ()
    assert set(values.values()) == {None}
    assert list(values) == [
        *("raw", "provider_event_type", "item_index", "item_type", "text", "tool_call_id", "tool_call_index"),
        *("arguments_delta", "reasoning", "reasoning_signature", "response", "error", "continuation"),
        *("async_tool_call", "input_messages", "steering"),
    ]


def test_a_trace_of_an_event_is_plain_json() -> None:
    """None is left out, an empty delta stays, what has no JSON form is its text; `raw` stands in it on request."""
    event = ModelStreamEvent(
        kind="error",
        text="",
        raw=Frame(b"\xff{}", "x.y"),
        error=ValueError("no"),
        response=ModelResponse.from_dict(FULL),
        required_tool_call_ids=("a",),
        input_messages=[{"role": "user", "content": object}],
        steering=[SteeringReceipt("hi", "r1")],
    )
    shown = event.to_trace_dict()
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert (shown["text"], shown["error"], "raw" in shown) == ("", {"type": "ValueError", "message": "no"}, False)
    assert (shown["response"], shown["required_tool_call_ids"]) == (FULL, ["a"])
    assert shown["input_messages"][0]["content"] == "<class 'object'>"
    assert shown["steering"][0]["status"] == "submitted"
    assert event.to_trace_dict(include_raw=True)["raw"] == {"event": "x.y", "data": "\ufffd{}"}
    assert ModelStreamEvent(kind="provider", raw={"n": math.inf}).to_trace_dict(True)["raw"] == {"n": "inf"}
