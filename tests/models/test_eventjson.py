"""Events as JSON: nothing is lost in silence, and what has no form is an error that says where."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import TransientError
from isthmus.harness import AgentDescriptor, DefaultAgent, RunEvent
from isthmus.models import (
    ImagePart,
    ModelStreamEvent,
    OutputSchema,
    PromptSpec,
    PromptTemplate,
    SteeringReceipt,
    as_tool,
    internal_message,
)
from isthmus.models.events import CallDelta, Native
from isthmus.models.responses import Choice, Message, ModelResponse
from isthmus.wire.frame import Frame
from support.turns import Turns, asks, call, says


class Weather(BaseModel):
    city: str
    degrees: float


@dataclass
class Place:
    name: str


def event(**fields: Any) -> ModelStreamEvent:
    """An event of the model face."""
    return ModelStreamEvent(**{"kind": "provider", **fields})


def test_the_form_is_a_type_and_a_payload_with_the_kind() -> None:
    """Fields that are None are left out; the text stands as it is, in compact JSON."""
    shown = event(kind="text_delta", text="naïve ✓", item_index=0)
    assert shown.to_dict() == {
        "type": "text_delta",
        "payload": {"kind": "text_delta", "text": "naïve ✓", "item_index": 0, "required_tool_call_ids": []},
    }
    assert "naïve ✓" in shown.dumps()
    assert ": " not in shown.dumps()
    assert json.loads(shown.dumps()) == shown.to_dict()


@pytest.mark.parametrize("name", ["text", "arguments_delta", "reasoning"])
def test_an_empty_delta_is_kept(name: str) -> None:
    """An empty piece is a piece."""
    assert event(**{name: ""}).to_dict()["payload"][name] == ""


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (Frame(b'{"a":1}', "delta"), {"event": "delta", "data": '{"a":1}'}),
        (Frame(b"\xff\x00"), {"event": "", "base64": "/wA="}),
        (Weather(city="Oslo", degrees=3), {"city": "Oslo", "degrees": 3.0}),
        (Place("Oslo"), {"name": "Oslo"}),
        (TransientError("gone"), {"type": "TransientError", "message": "gone"}),
        ({"nested": [ValueError("no")]}, {"nested": [{"type": "ValueError", "message": "no"}]}),
        (Native("d", "thinking", {"b": None}), {"provider": "d", "type": "thinking", "payload": {"b": None}}),
        (
            PromptSpec(PromptTemplate(user_template="{{ city }}"), {"city": "Oslo"}),
            {"messages": [{"role": "user", "content": "Oslo"}], "values": {"city": "Oslo"}},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_a_form_has_it_at_any_depth(raw: Any, form: Any) -> None:
    """Frames, models, dataclasses, errors, native blocks and prompts each in their own form."""
    assert event(raw=raw).to_dict()["payload"]["raw"] == form
    assert event(raw=[{"deep": raw}]).to_dict()["payload"]["raw"] == [{"deep": form}]


def test_a_prompt_with_a_form_says_it() -> None:
    """Its messages, its values and its response format."""
    template = PromptTemplate(user_template="hi", output_schema=OutputSchema(Weather))
    shown = event(raw=PromptSpec(template)).to_dict()["payload"]["raw"]
    assert shown["response_format"]["type"] == "json_schema"


class Colour(Enum):
    RED = 1


@pytest.mark.parametrize(
    "value",
    [b"x", {1, 2}, datetime.now(UTC), {1: 2}, object(), Colour.RED, PromptTemplate(user_template="x"), Weather],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_form_is_an_error_that_names_the_place(value: Any) -> None:
    """Nothing becomes its repr."""
    with pytest.raises(TypeError, match=r"payload\.raw\[0\]\.here"):
        event(raw=[{"here": value}]).to_dict()


def test_what_is_no_json_value_is_a_value_error() -> None:
    """A value that holds itself, and numbers that are none."""
    loop: list[Any] = []
    loop.append(loop)
    for value in (loop, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"payload\.raw"):
            event(raw=value).dumps()


def test_a_key_in_an_error_is_hidden() -> None:
    """Whatever an error repeats, a key stays out."""
    shown = event(error=ValueError("Authorization: Bearer sk-proj-abcdefghijklmnopqrstuvwxyz012345")).dumps()
    assert "abcdefghijklmnop" not in shown


def test_internal_messages_are_left_out_unless_asked_for() -> None:
    """In a model's event, in a run's event, and in its messages at any depth."""
    hidden = internal_message({"role": "user", "content": "files"}, origin="files")
    public = {"role": "user", "content": "hi"}
    shown = event(input_messages=[hidden, public])
    assert shown.to_dict()["payload"]["input_messages"] == [public]
    assert shown.to_dict(include_internal=True)["payload"]["input_messages"] == [hidden, public]
    started = RunEvent(kind="llm_start", agent="a", task_id="t", messages=(hidden, public), model_event=shown)
    payload = started.to_dict()["payload"]
    assert payload["messages"] == payload["model_event"]["input_messages"] == [public]
    assert "files" in started.dumps(include_internal=True)


def test_receipts_and_replies_stand_in_it_whole() -> None:
    """A copy of each receipt, and the reply in its own shape, extras beside its fields."""
    reply = ModelResponse(choices=[Choice(message=Message(content="hi"))], model_extra={"citations": ["u"]})
    shown = event(steering=[SteeringReceipt("go on", "r1")], response=reply).to_dict()["payload"]
    assert shown["steering"][0]["input"] == "go on"
    assert shown["response"]["citations"] == ["u"]
    assert ModelResponse.from_dict(shown["response"]) == reply


async def test_every_event_of_a_run_has_a_form() -> None:
    """A run with a tool, an image of a result and a typed answer: each event goes through JSON and back."""

    @as_tool
    async def look(city: str) -> ImagePart:
        """Look at it."""
        return ImagePart(base64_data="AAAA", media_type="image/png")

    model = Turns(
        [CallDelta(0, "a", "look", '{"city":"Oslo"}'), *asks(call("look", "a", city="Oslo"))],
        says('{"city":"Oslo","degrees":3}'),
    )
    described = AgentDescriptor(model=model, tools=[look], output=Weather)
    events = [each async for each in DefaultAgent(descriptor=described).run_events("hi")]
    forms = [json.loads(each.dumps()) for each in events]
    assert [form["type"] for form in forms] == [each.kind for each in events]
    assert forms[-1]["payload"]["output"] == {"city": "Oslo", "degrees": 3.0}
    ended = next(form["payload"] for form in forms if form["type"] == "tool_end")
    assert ended["call"] == {
        "type": "call",
        "tool": "look",
        "input": {"city": "Oslo"},
        "call_id": "a",
        "arguments": '{"city":"Oslo"}',
    }
    assert ended["result"]["content"][0]["type"] == "input_image"
