"""The structs of the contract: small, frozen, and with a hidden raw frame."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest

from isthmus.errors import TransientError
from isthmus.models.aside import Aside
from isthmus.models.events import (
    EVENT_TYPES,
    Call,
    CallDelta,
    Finish,
    FinishReason,
    Marker,
    Native,
    Note,
    Reasoning,
    Reset,
    StepResult,
    Text,
    Usage,
    event_to_dict,
    framed,
)
from isthmus.models.responses import ModelStreamEvent
from isthmus.wire.frame import Frame

EVENTS: list[Any] = [
    Text("a"),
    Call("t", {"x": 1}, "c", '{"x":1}'),
    Reasoning("r", signature="s"),
    CallDelta(0, "c", "t", "{"),
    Native("p", "b", {"a": 1}),
    Marker("m", 1, "<m>"),
    Finish("stop", Usage(input_tokens=1)),
    Reset(2),
    Aside(ModelStreamEvent(kind="provider", provider_event_type="response.created")),
]


def test_there_is_an_example_of_every_event() -> None:
    """The list above is complete."""
    assert {type(event) for event in EVENTS} == EVENT_TYPES


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_the_raw_frame_is_hidden(event: Any) -> None:
    """`raw` is always there, and no part of equality, repr, JSON or the fields."""
    twin = copy.deepcopy(event)
    assert event.raw is None
    frame = Frame(b"SECRET-BYTES", "e")
    assert framed(twin, frame).raw is frame
    assert twin == event
    assert "SECRET-BYTES" not in repr(twin)
    assert json.dumps(event_to_dict(twin)) == json.dumps(event_to_dict(event))
    assert event_to_dict(event)["type"] == event.type


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.type)
def test_events_are_frozen_and_survive_pickle(event: Any) -> None:
    """No field can be set, and a pickled event is equal."""
    with pytest.raises(AttributeError):
        event.type = "x"
    name = "provider" if isinstance(event, Native) else event.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(event, name, "x")
    assert pickle.loads(pickle.dumps(event)) == event


def test_native_blocks_are_equal_as_json_and_keep_their_text() -> None:
    """Promise 2: the JSON text stands as it came; equality is that of the values; decoding is lazy and once."""
    native = Native("p", "b", json=b'{"a": 1.0, "b": 2}')
    assert native.json == b'{"a": 1.0, "b": 2}'
    assert native == Native("p", "b", {"b": 2, "a": 1.0})
    assert native != Native("q", "b", {"b": 2, "a": 1.0})
    assert native.payload is native.payload
    broken = Native("p", "b", json=b"{")
    with pytest.raises(ValueError, match=r"\S"):
        _ = broken.payload


def test_prompt_tokens_join_the_disjoint_buckets() -> None:
    """F11: input, cache reads and writes together; unknown is None, never 0."""
    assert Usage(input_tokens=1, cache_read_tokens=2, cache_write_tokens=4).prompt_tokens == 7
    assert Usage(output_tokens=1).prompt_tokens is None
    assert Usage(input_tokens=0).prompt_tokens == 0


def test_a_step_result_shows_itself_as_plain_json() -> None:
    """`to_dict` has the documented keys and nothing that JSON can't say."""
    step = StepResult(
        events=(Text("a"), Call("t", {"x": 1}, "c", '{"x":1}'), Text("b")),
        finish="error-post",
        usage=Usage(input_tokens=1),
        native=(Native("p", "message", {"m": 1}),),
        notes=(Note("no-end-mark", "x"),),
        error=TransientError("cut", status=500),
    )
    shown = json.loads(json.dumps(step.to_dict()))
    assert set(shown) == {"text", "reasoning", "calls", "finish", "raw_reason", "usage", "error", "notes", "native"}
    assert shown["text"] == step.text == "ab"
    assert shown["calls"] == [{"tool": "t", "input": {"x": 1}, "call_id": "c", "arguments": '{"x":1}'}]
    assert shown["error"]["class"] == "transient"
    assert shown["native"] == [{"provider": "p", "type": "message", "payload": {"m": 1}}]
    assert step.message == step.native[0]


def test_finish_reasons_are_their_strings() -> None:
    """The enum's members are the plain strings."""
    assert FinishReason.TOOL_CALLS == "tool-calls"
    assert msgspec.json.encode(FinishReason.STOP) == b'"stop"'


def test_a_reply_made_of_lists_is_the_reply_made_of_tuples() -> None:
    """Events, native blocks and notes given as lists are kept as tuples, and are no longer the caller's."""
    events: Any = [Text("x")]
    step = StepResult(events=events, native=[], notes=[])  # type: ignore[arg-type]
    events.append(Text("y"))
    assert step == StepResult(events=(Text("x"),))
    assert (step.text, step.calls, step.to_dict()["text"]) == ("x", (), "x")
