from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import ConfigError, ProtocolError, TransientError, UnavailableError
from isthmus.models.events import Call, CallDelta, Finish, Reasoning, StepResult, Text, Usage
from isthmus.models.script import items_of


def test_a_dict_is_a_step_as_json_writes_it() -> None:
    """Text, reasoning, calls, usage and a delay in a dict become the events that say so, in that order."""
    step = {
        "text": "Let me see.",
        "reasoning": "hm",
        "calls": [{"tool": "add", "input": {"a": 1}, "call_id": "c1"}],
        "usage": {"inputTokens": 3, "output_tokens": 4},
        "delay": 0.5,
    }
    items = list(items_of(step))
    assert items[:2] == [0.5, Reasoning("hm")]
    assert "".join(item.text for item in items if isinstance(item, Text)) == "Let me see."
    assert [item for item in items if isinstance(item, Call)] == [Call("add", {"a": 1}, "c1", '{"a":1}')]
    assert [item for item in items if isinstance(item, CallDelta)] == [CallDelta(0, "c1", "add", '{"a":1}')]
    assert items[-1] == Finish("tool-calls", Usage(input_tokens=3, output_tokens=4))


def test_an_error_in_a_dict_comes_after_its_text() -> None:
    """A dict's error is raised, classified, in the place of the finish; one without a text comes first."""
    *said, error = items_of({"text": "hel", "error": {"class": "unavailable", "message": "down", "status": 503}})
    assert said == [Text("hel")]
    assert isinstance(error, UnavailableError)
    assert (error.message, error.status) == ("down", 503)
    (alone,) = items_of({"error": {"class": "transient"}})
    assert isinstance(alone, TransientError)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"txt": "x"}, ConfigError),
        ({"text": "x", "finish": "never"}, ProtocolError),
        ({"finish": "tool-calls"}, ProtocolError),
        ({"error": {"class": "odd"}}, ValueError),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(step: dict[str, Any], error: type[Exception]) -> None:
    """A misspelt key, a finish or an error class that there is not, and a finish without its calls are errors."""
    with pytest.raises(error):
        list(items_of(step))


@settings(deadline=None)
@given(st.text())
def test_a_text_in_pieces_is_the_text(text: str) -> None:
    """However a text is cut into pieces, they join to it, none is empty, and one finish follows."""
    *pieces, finish = items_of(text)
    assert "".join(piece.text for piece in pieces) == text
    assert all(piece.text for piece in pieces)
    assert finish == Finish("stop")


def test_lists_and_single_items_stand_as_they_are() -> None:
    """A list is played item by item; an exception or an event alone is a list of one; an event's dict too."""
    error = TransientError("x")
    assert list(items_of([Text("a"), 0.1, error])) == [Text("a"), 0.1, error]
    assert list(items_of(error)) == [error]
    assert list(items_of(Finish("stop"))) == [Finish("stop")]
    assert list(items_of({"type": "text", "text": "a"})) == [{"type": "text", "text": "a"}]
    assert list(items_of(StepResult(finish="length"))) == [Finish("length")]
