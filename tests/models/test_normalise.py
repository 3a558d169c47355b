"""Everything an adapter may hand over becomes a struct, or an error that names the rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.models.events import Call, CallDelta, Finish, Native, Note, NoteCode, Reasoning, StepResult, Text, Usage
from isthmus.models.jsontext import WrittenFloat
from isthmus.models.normalise import make_call, parse_arguments, to_event, to_step_result, to_usage

RIGHT = {
    "text": ({"type": "text", "text": "a"}, Text("a")),
    "call of seed 001": (
        {"type": "call", "tool": "t", "input": {"x": 1}, "callId": "c"},
        Call("t", {"x": 1}, "c", '{"x":1}'),
    ),
    "call with argument text": (
        {"type": "call", "tool": "t", "arguments": '{"x": 1.0}', "call_id": "c"},
        Call("t", {"x": 1.0}, "c", '{"x": 1.0}'),
    ),
    "finish": (
        {"type": "finish", "finish": "stop", "usage": {"inputTokens": 1, "output_tokens": 2}, "rawReason": "end"},
        Finish("stop", Usage(input_tokens=1, output_tokens=2), "end"),
    ),
    "finish with notes": (
        {"type": "finish", "finish": "stop", "notes": [{"code": "no-end-mark"}]},
        Finish("stop", notes=(Note("no-end-mark"),)),
    ),
    "reasoning": ({"type": "reasoning", "text": "r"}, Reasoning("r")),
    "call-delta": ({"type": "call-delta", "index": 0, "argumentsDelta": "{"}, CallDelta(0, arguments_delta="{")),
    "native": ({"type": "native", "provider": "p", "eventType": "b", "payload": {"a": 1}}, Native("p", "b", {"a": 1})),
}


@pytest.mark.parametrize("name", RIGHT)
def test_dicts_in_either_spelling_become_structs(name: str) -> None:
    """Our spelling and the seed's are both taken."""
    value, event = RIGHT[name]
    assert to_event(value) == event


WRONG = {
    "no mapping": (3, "must yield events, not int"),
    "bare text": ("hello", "must yield events, not str"),
    "no type": ({"text": "a"}, "unknown event type None"),
    "unknown type": ({"type": "token"}, "unknown event type 'token'"),
    "unknown field": ({"type": "text", "text": "a", "txet": 1}, "unknown field 'txet'"),
    "text None": ({"type": "text", "text": None}, "'text' must be str, not NoneType"),
    "no tool": ({"type": "call", "input": {}}, "'tool' must be str"),
    "empty tool": ({"type": "call", "tool": "", "input": {}}, "'tool' is empty"),
    "unknown finish": ({"type": "finish", "finish": "done"}, "unknown finish 'done'"),
    "no finish": ({"type": "finish"}, "unknown finish None"),
    "negative usage": ({"type": "finish", "finish": "stop", "usage": {"inputTokens": -1}}, "whole number"),
    "usage of text": ({"type": "finish", "finish": "stop", "usage": "many"}, "usage: must be a Usage"),
    "delta without index": ({"type": "call-delta"}, "index"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_a_rule_is_protocol_and_named(name: str) -> None:
    """Each wrong shape is a ProtocolError that names the event, the field and the remedy."""
    value, said = WRONG[name]
    with pytest.raises(ProtocolError, match=said):
        to_event(value)


@pytest.mark.parametrize("arguments", [None, "", "  ", "null", {}])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    """F15: empty, blank, null and absent arguments mean none."""
    assert parse_arguments(arguments) == ({}, None)


@pytest.mark.parametrize("arguments", ['{"a":', "[1]", "3", '"{}"', "{x", 3, "[" * 100_000])
def test_arguments_that_are_no_object_are_kept_with_the_problem(arguments: Any) -> None:
    """F15: invalid arguments give no input, a problem, and stand as they came; nothing raises."""
    call = make_call("t", arguments, call_id="c")
    assert call.input is None
    assert call.problem
    if isinstance(arguments, str):
        assert call.arguments == arguments


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.booleans() | st.none(), max_size=4))
def test_arguments_given_as_an_object_parse_to_themselves(value: dict[str, Any]) -> None:
    """The text made of an object reads back as that object."""
    call = make_call("t", value, call_id="c")
    assert call.input == value
    assert parse_arguments(call.arguments) == (value, None)


BROKEN_STEPS = {
    "not a reply": (3, "must return a StepResult or a dict, not int"),
    "unknown field": ({"events": [], "finish": "stop", "text": "a"}, "unknown field 'text'"),
    "no finish": ({"events": []}, "unknown finish None"),
    "a side event": ({"events": [Reasoning("r")], "finish": "stop"}, "text and calls only"),
    "calls missing": ({"events": [], "finish": "tool-calls"}, "without a call"),
    "ids twice": (
        {"events": [Call("t", {}, "c"), Call("t", {}, "c")], "finish": "tool-calls"},
        "two calls with the id",
    ),
    "reasoning that is no text": ({"events": [], "finish": "stop", "reasoning": None}, "'reasoning' must be str"),
}


@pytest.mark.parametrize("name", BROKEN_STEPS)
def test_a_whole_reply_that_breaks_a_rule_is_protocol(name: str) -> None:
    """The rules of streams hold for whole replies."""
    value, said = BROKEN_STEPS[name]
    with pytest.raises(ProtocolError, match=said):
        to_step_result(value)


def test_a_whole_reply_as_a_dict_is_taken() -> None:
    """The sample of seed 001 is a StepResult."""
    step = to_step_result({"events": [{"type": "text", "text": "Hello from the local adapter."}], "finish": "stop"})
    assert step == StepResult(events=(Text("Hello from the local adapter."),), finish="stop")


def test_a_call_without_an_id_gets_one_that_stays() -> None:
    """The made id depends on the call and its place alone, and is noted."""
    first, again = (to_step_result({"events": [Call("t", {})], "finish": "stop"}) for _ in range(2))
    assert first == again
    assert [note.code for note in first.notes] == [NoteCode.CALL_ID_MADE, NoteCode.FINISH_CHANGED]


def test_usage_is_taken_as_it_is_or_from_a_dict() -> None:
    """None stays None; a Usage stays itself; zero is a count."""
    usage = Usage(input_tokens=0)
    assert to_usage(None) is None
    assert to_usage(usage) is usage
    assert to_usage({"inputTokens": 0}) == usage


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_json_has_no_words_for_are_no_arguments(word: str) -> None:
    """F15: a call with such a number has a problem and no input, so that no tool runs with it."""
    value, problem = parse_arguments(f'{{"deep": [{word}]}}')
    assert value is None
    assert problem is not None
    assert word in problem


@pytest.mark.parametrize("number", ["1e400", "-1E+999", "1" * 5000, f"1{'0' * 400}.0"])
def test_f30_a_number_that_nothing_holds_is_no_argument(number: str) -> None:
    """F30: it becomes no infinity: the call keeps its text, has no input, and says which number it was, in short."""
    text = f'{{"deep": [{{"n": {number}}}]}}'
    for arguments in (text, {"deep": [WrittenFloat(number)]}):
        call = make_call("f", arguments, call_id=None)
        assert call.input is None
        assert call.problem is not None
        assert number[:30] in call.problem
        assert len(call.problem) < 150
        assert number in (call.arguments or "")
    assert make_call("f", {"n": 10**400}, call_id=None).input == {"n": 10**400}
