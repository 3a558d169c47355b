"""F02 and F15: whose fragment is it, and what do its arguments amount to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.adapters.openai_chat.calls import Calls
from isthmus.errors import ProtocolError
from isthmus.models.events import Call, CallDelta, NoteCode, StepResult
from isthmus.wire.frame import Frame
from support.chat_frames import ABSENT as NO
from support.chat_frames import call_stream, chunk, decode, sse, step, tc, whole

Rows = list[Any]


def _codes(seen: StepResult) -> list[str]:
    return [note.code for note in seen.notes if note.code != NoteCode.USAGE_MISSING]


def _read(seen: StepResult) -> list[tuple[str | None, str, Any]]:
    return [(call.call_id, call.tool, call.input) for call in seen.calls]


X, Y = {"x": 1}, {"y": 2}

TABLE: dict[str, tuple[Rows, list[tuple[str | None, str, Any]]]] = {
    "parallel, interleaved": (
        [tc(0, "a", "add", ""), tc(1, "b", "mul", ""), tc(0, NO, NO, '{"x":1}'), tc(1, NO, NO, '{"y":2}')],
        [("a", "add", X), ("b", "mul", Y)],
    ),
    "parallel, interleaved piece by piece": (
        [
            *(tc(0, "a", "add", '{"x'), tc(1, "b", "mul", '{"y')),
            *(tc(0, NO, NO, '":1'), tc(1, NO, NO, '":2'), tc(0, NO, NO, "}"), tc(1, NO, NO, "}")),
        ],
        [("a", "add", X), ("b", "mul", Y)],
    ),
    "same index, other id": ([tc(0, "a", "f", "{}"), tc(0, "b", "g", "{}")], [("a", "f", {}), ("b", "g", {})]),
    "same index, other id, pieces": (
        [tc(0, "a", "f", ""), tc(0, NO, NO, '{"x":1}'), tc(0, "b", "g", ""), tc(0, NO, NO, '{"y":2}')],
        [("a", "f", X), ("b", "g", Y)],
    ),
    "same index, back to the first id": (
        [tc(0, "a", "f", ""), tc(0, "b", "g", ""), tc(0, "a", NO, '{"x":1}'), tc(0, "b", NO, '{"y":2}')],
        [("a", "f", X), ("b", "g", Y)],
    ),
    "null index": ([tc(None, "a", "f", '{"x"'), tc(None, "", "", ":1}")], [("a", "f", X)]),
    "no index": ([tc(NO, "a", "f", '{"x"'), tc(NO, NO, NO, ":1}")], [("a", "f", X)]),
    "no index, two calls": (
        [tc(NO, "a", "f", '{"x"'), tc(NO, NO, NO, ":1}"), tc(NO, "b", "g", ""), tc(NO, NO, NO, '{"y":2}')],
        [("a", "f", X), ("b", "g", Y)],
    ),
    "string index": (
        [tc("0", "a", "f", ""), tc("1", "b", "g", ""), tc(0, NO, NO, '{"x":1}'), tc("1", NO, NO, '{"y":2}')],
        [("a", "f", X), ("b", "g", Y)],
    ),
    "gap": (
        [tc(3, "a", "f", ""), tc(7, "b", "g", ""), tc(3, NO, NO, '{"x":1}'), tc(7, NO, NO, '{"y":2}')],
        [("a", "f", X), ("b", "g", Y)],
    ),
    "first index is 1": ([tc(1, "a", "f", ""), tc(1, NO, NO, '{"x":1}')], [("a", "f", X)]),
    "index of the continuation was never seen": ([tc(1, "a", "f", ""), tc(0, NO, NO, '{"x":1}')], [("a", "f", X)]),
    "twice in one delta": ([[tc(0, "a", "f", ""), tc(0, NO, NO, '{"x":1}')]], [("a", "f", X)]),
    "two whole calls in one delta, one index": (
        [[tc(0, "a", "f", '{"x":1}'), tc(0, "b", "f", '{"y":2}')]],
        [("a", "f", X), ("b", "f", Y)],
    ),
    "id null as text": ([tc(1, "a", "f", ""), tc(1, "null", "", "{}")], [("a", "f", {})]),
    "empty id and name": ([tc(0, "a", "f", '{"x"'), tc(0, "", "", ":1}")], [("a", "f", X)]),
    "name comes late": ([tc(0, "a", "", ""), tc(0, NO, "f", "{}")], [("a", "f", {})]),
    "name comes after the arguments": ([tc(0, "a", NO, '{"x":1}'), tc(0, NO, "f", NO)], [("a", "f", X)]),
    "id comes late": ([tc(0, NO, "f", '{"x"'), tc(0, "a", NO, ":1}")], [("a", "f", X)]),
    "name in every fragment": ([tc(0, "a", "f", '{"x"'), tc(0, "a", "f", ":1}")], [("a", "f", X)]),
    "name in every fragment, the last one empty": ([tc(0, "a", "f", '{"x":1}'), tc(0, "a", "f", "")], [("a", "f", X)]),
    "a whole call sent twice": ([tc(0, "a", "f", '{"x":1}'), tc(0, "a", "f", '{"x":1}')], [("a", "f", X)]),
    "another id in every fragment": ([tc(0, "a", "f", '{"x"'), tc(0, "b", NO, ":1}")], [("a", "f", X)]),
    "first fragment is empty": ([tc(0, NO, NO, ""), tc(0, "a", "f", "{}")], [("a", "f", {})]),
    "a phantom between calls": (
        [tc(0, "a", "f", "{}"), {"index": 1}, tc(2, "b", "g", "{}")],
        [("a", "f", {}), ("b", "g", {})],
    ),
    "arguments null": ([tc(0, "a", "f", None)], [("a", "f", {})]),
    "arguments absent": ([tc(0, "a", "f", NO)], [("a", "f", {})]),
    "arguments empty": ([tc(0, "a", "f", "")], [("a", "f", {})]),
    "arguments null as text": ([tc(0, "a", "f", "null")], [("a", "f", {})]),
    "arguments null as text, then real ones": ([tc(0, "a", "f", "null"), tc(0, NO, NO, '{"x":1}')], [("a", "f", X)]),
    "arguments as an object": ([tc(0, "a", "f", {"x": 1})], [("a", "f", X)]),
    "null in the middle of arguments": (
        [tc(0, "a", "f", '{"x":'), tc(0, NO, NO, "null"), tc(0, NO, NO, "}")],
        [("a", "f", {"x": None})],
    ),
    "null entry": ([[None, tc(0, "a", "f", "{}")]], [("a", "f", {})]),
}


@pytest.mark.parametrize("name", TABLE)
def test_identity_of_fragments(name: str) -> None:
    """F02, F15: each fragment reaches its call whatever its labels are; arguments in any form become an object."""
    fragments, expected = TABLE[name]
    seen = step([call_stream(*fragments)])
    assert _read(seen) == expected
    assert seen.finish == "tool-calls"


@pytest.mark.parametrize("name", TABLE)
def test_previews_join_to_the_arguments(name: str) -> None:
    """The previews of a call, joined, are its arguments, and its index counts the calls in order of arrival."""
    events = decode([call_stream(*TABLE[name][0])])
    calls = [event for event in events if isinstance(event, Call)]
    previews = [event for event in events if isinstance(event, CallDelta)]
    for at, call in enumerate(calls):
        assert "".join(item.arguments_delta for item in previews if item.index == at) == call.arguments
        assert {item.call_id for item in previews if item.index == at} <= {None, call.call_id}


@pytest.mark.parametrize(
    ("fragments", "tools"),
    [
        ([tc(0, NO, "f", '{"x":1}'), tc(0, NO, "g", '{"y":2}')], ["f", "g"]),
        ([tc(NO, NO, "f", '{"x":1}'), tc(NO, NO, "f", '{"y":2}')], ["f", "f"]),
        ([tc(0, NO, "f", ""), tc(1, NO, "g", ""), tc(0, NO, NO, '{"x":1}'), tc(1, NO, NO, '{"y":2}')], ["f", "g"]),
        ([tc(0, NO, "f", '{"x":1}'), tc(0, NO, "f", ""), tc(0, NO, NO, '{"y":2}')], ["f", "f"]),
        ([tc(0, "", "f", '{"x"'), tc(0, "null", NO, ":1}"), tc(1, None, "g", '{"y":2}')], ["f", "g"]),
    ],
)
def test_a_missing_id_is_made_up_and_noted(fragments: Rows, tools: list[str]) -> None:
    """F02: calls without ids get different ones that stay the same from one decoding to the next, with a note each."""
    seen = step([call_stream(*fragments)])
    assert [(call.tool, call.input) for call in seen.calls] == list(zip(tools, (X, Y), strict=True))
    assert len({call.call_id for call in seen.calls}) == 2
    assert _codes(seen).count(NoteCode.CALL_ID_MADE) == 2
    assert step([call_stream(*fragments)]) == seen


@pytest.mark.parametrize(
    "fragments",
    [
        [tc(0, "x", "f", "{}"), tc(1, "x", "g", "{}")],
        [tc(0, "x", "f", ""), tc(1, "x", "g", ""), tc(0, NO, NO, "{}"), tc(1, NO, NO, "{}")],
        [tc(0, "x", "f", "{}"), tc(0, "x", "g", "{}")],
        [[tc(NO, "x", "f", "{}"), tc(NO, "x", "g", "{}")]],
    ],
)
def test_a_reused_id_is_replaced_and_noted(fragments: Rows) -> None:
    """F02: the second call with an id that was used gets another one, and a note."""
    seen = step([call_stream(*fragments)])
    first, second = seen.calls
    assert [first.tool, second.tool] == ["f", "g"]
    assert first.call_id == "x"
    assert second.call_id not in (None, "", "x")
    assert NoteCode.CALL_ID_CHANGED in _codes(seen)


def test_the_same_call_twice_with_other_arguments_is_two_calls() -> None:
    """F02: same index, id and name with other complete arguments is another call."""
    seen = step([call_stream(tc(0, "x", "f", '{"x":1}'), tc(0, "x", "f", '{"y":2}'))])
    assert [call.input for call in seen.calls] == [X, Y]
    assert len({call.call_id for call in seen.calls}) == 2


@pytest.mark.parametrize(
    "fragments",
    [
        [tc(0, NO, "f", '{"x"'), tc(0, NO, "g", '{"y"')],
        [tc(NO, "a", "f", '{"x"'), tc(NO, NO, "g", ":1}")],
        [tc(0, NO, NO, '{"x":1}')],
        ["nonsense"],
    ],
)
def test_what_is_truly_ambiguous_is_an_error(fragments: Rows) -> None:
    """F02: fragments that nothing tells apart are a protocol error that quotes them, never a guess."""
    with pytest.raises(ProtocolError, match="tool_calls"):
        step([call_stream(*fragments)])


def test_a_name_without_content_is_left_out() -> None:
    """F02: an entry with an id and neither name nor arguments is no call; it is noted."""
    seen = step([call_stream(tc(0, "a", "f", "{}"), tc(1, "b", "", ""))])
    assert [call.tool for call in seen.calls] == ["f"]
    assert NoteCode.CALL_CUT in _codes(seen)


@pytest.mark.parametrize("arguments", ['{"a":', "{'a': 1}", "[1]", "7", '{"a":1}}'])
def test_bad_arguments_are_a_call_with_a_problem(arguments: str) -> None:
    """F15: arguments that are no JSON object stay as they came, with what is wrong; the call is not lost."""
    streamed = step([call_stream(tc(0, "a", "f", arguments))])
    complete = whole(
        {"choices": [{"index": 0, "message": {"tool_calls": [tc(0, "a", "f", arguments)]}, "finish_reason": "stop"}]}
    )
    for seen in (streamed, complete):
        (call,) = seen.calls
        assert (call.input, call.arguments) == (None, arguments)
        assert call.problem
        assert NoteCode.CALL_ARGUMENTS_INVALID in _codes(seen)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
@pytest.mark.parametrize("arguments", ['{"a":', '{"a":"b', "", "{"])
def test_a_call_that_was_cut_never_runs(reason: str, arguments: str) -> None:
    """F01, F15: arguments cut by the limit make no call: native, noted, beside the whole ones."""
    alone = step([call_stream(tc(0, "a", "f", arguments), finish=reason)])
    assert alone.calls == ()
    assert alone.finish == {"length": "length", "content_filter": "content-filter"}[reason]
    assert NoteCode.CALL_CUT in _codes(alone)
    (kept,) = alone.native
    assert kept.payload["function"] == {"name": "f", "arguments": arguments}
    beside = step([call_stream(tc(0, "a", "f", "{}"), tc(1, "b", "g", arguments), finish=reason)])
    assert [call.tool for call in beside.calls] == ["f"]
    assert beside.finish == "tool-calls"


def test_a_cut_call_is_no_part_of_the_native_message() -> None:
    """A reply whose message must be sent back verbatim leaves the call that was cut out of it."""
    body = sse(
        chunk({"reasoning_content": "hm"}),
        chunk({"tool_calls": [tc(0, "a", "f", "{}"), tc(1, "b", "g", '{"x')]}),
        chunk(finish="length"),
    )
    message = step([body]).message
    assert message is not None
    assert [call["id"] for call in message.payload["tool_calls"]] == ["a"]


def test_argument_text_is_kept_to_the_letter() -> None:
    """F30: numbers, spaces and escapes of the arguments stay as they came, big integers exact."""
    text = '{ "id": 2512292042121000001, "f": 1.0, "e": 1.0e+300, "s": "\\u00e9" }'
    seen = step([call_stream(*[tc(0, "a" if at == 0 else NO, "f" if at == 0 else NO, c) for at, c in enumerate(text)])])
    (call,) = seen.calls
    assert call.arguments == text
    assert call.input is not None
    assert call.input["id"] == 2512292042121000001
    as_object = step(
        [
            sse(
                b'{"choices":[{"index":0,"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":1.0}}}]},"finish_reason":"stop"}]}'
            )
        ]
    )
    assert as_object.calls[0].arguments == '{"x":1.0}'


@pytest.mark.parametrize("empty", [{}, {"name": "", "arguments": ""}, None])
def test_legacy_function_calls(empty: Any) -> None:
    """The legacy `function_call`, streamed in pieces or whole, is a call; an empty one is nothing."""
    pieces = [
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"x":1}'}}),
    ]
    streamed = step([sse(*pieces, chunk(finish="function_call"))])
    message = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"x":1}'}}
    complete = whole(
        {"id": "chatcmpl-1", "choices": [{"index": 0, "message": message, "finish_reason": "function_call"}]}
    )
    assert streamed == complete
    assert [(call.tool, call.input) for call in streamed.calls] == [("f", X)]
    nothing = {"choices": [{"index": 0, "message": {"content": "Hi", "function_call": empty}, "finish_reason": "stop"}]}
    assert (whole(nothing).calls, whole(nothing).native) == ((), ())


def test_whole_messages_name_each_call() -> None:
    """In a whole message every entry is a call of its own, whatever its labels."""
    entries = [tc(NO, "", "f", ""), tc(NO, "", "f", ""), tc(0, "a", "g", "{}"), tc(0, "b", "g", "{}")]
    seen = whole({"choices": [{"index": 0, "message": {"tool_calls": entries}, "finish_reason": "tool_calls"}]})
    assert [call.tool for call in seen.calls] == ["f", "f", "g", "g"]
    assert len({call.call_id for call in seen.calls}) == 4


def test_custom_tool_calls_are_kept_as_they_came() -> None:
    """A call that takes free text is no call of this contract: native, noted, and part of the native message."""
    entry = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "code", "input": ""}}
    body = call_stream(entry, {"index": 0, "custom": {"input": "print"}}, {"index": 0, "custom": {"input": "(1)"}})
    seen = step([body])
    call = {"id": "a", "type": "custom", "custom": {"name": "code", "input": "print(1)"}}
    assert (seen.calls, seen.finish) == ((), "other")
    assert [item.payload for item in seen.native if item.event_type == "tool_call"] == [call]
    assert seen.message is not None
    assert seen.message.payload["tool_calls"] == [call]


def test_fields_of_a_call_survive() -> None:
    """F03: what a server hangs on a call, a thought signature for instance, goes back with it."""
    extra = {"google": {"thought_signature": "AVSo+/=="}}
    entry = {**tc(0, "a", "f", ""), "extra_content": extra}
    seen = step([call_stream(entry, tc(0, NO, NO, '{"x":1}'))])
    assert seen.message is not None
    assert seen.message.payload["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}, "extra_content": extra}
    ]


CALLS = st.lists(
    st.tuples(
        st.text(st.characters(categories=("L",)), min_size=1, max_size=6).filter(lambda name: name != "null"),
        st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8) | st.none(), max_size=3),
    ),
    min_size=1,
    max_size=4,
)


@given(calls=CALLS, data=st.data())
def test_any_interleaving_gives_the_same_calls(calls: list[tuple[str, dict[str, Any]]], data: st.DataObject) -> None:
    """F02: parallel calls cut and interleaved in any way are the calls of the whole message."""
    queues: list[list[dict[str, Any]]] = []
    for at, (name, given_input) in enumerate(calls):
        text = json.dumps(given_input)
        cut = data.draw(st.integers(0, len(text)))
        label = data.draw(st.sampled_from([at, str(at)]))
        queues.append([tc(label, f"id{at}", name, ""), tc(label, NO, NO, text[:cut]), tc(at, "", "", text[cut:])])
    entries = [queue.pop(0) for queue in queues]
    while any(queues):
        entries.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    message = {"tool_calls": [tc(NO, f"id{at}", name, json.dumps(value)) for at, (name, value) in enumerate(calls)]}
    complete = whole({"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]})
    assert step([call_stream(*entries)]) == complete


def test_each_fragment_is_previewed_with_what_is_known_by_then() -> None:
    """F02: id and name come as soon as they are known; a fragment without news, and a call of free text, have none."""
    rows = [
        *(tc(0, "a", NO, NO), tc(0, NO, "add", NO), tc(0, NO, NO, "{"), tc(0, NO, NO, ""), tc(0, NO, NO, "}")),
        *(tc(1, "a", "mul", "{}"), tc(1, "a", "mul", "{}")),
        {"index": 2, "id": "c", "type": "custom", "custom": {"name": "run", "input": "ls"}},
    ]
    events = decode([sse(*[chunk({"tool_calls": [row]}) for row in rows], chunk(finish="tool_calls"))])
    told = [
        (each.index, each.call_id, each.tool, each.arguments_delta) for each in events if isinstance(each, CallDelta)
    ]
    first = [(0, "a", None, ""), (0, "a", "add", ""), (0, "a", "add", "{"), (0, "a", "add", "}")]
    assert told == [*first, (1, None, "mul", "{}")]


def test_previews_and_calls_have_the_tools_own_names() -> None:
    """F26: a name that was sent otherwise comes back as it was, in either."""
    calls = Calls("x", {"look_up": "look up"})
    shown = calls.add(tc(0, "a", "look_up", "{}"), Frame(b""), whole=False)
    assert shown == CallDelta(0, "a", "look up", "{}")
    assert calls.settle(cut=False, doubtful=False, seed="").calls[0].tool == "look up"
