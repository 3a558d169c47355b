"""What the fields of deltas and messages amount to, whole and streamed alike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.errors import ProtocolError
from isthmus.models.events import NoteCode, Reasoning, StepResult
from isthmus.models.messages import assistant_message
from support.chat_frames import chunk, decode, sse, step, tc, whole


def _whole(message: dict[str, Any], finish: str | None = "stop", **top: Any) -> StepResult:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return whole({"id": "chatcmpl-1", "choices": [choice], **top})


def _streamed(*deltas: dict[str, Any], finish: str | None = "stop") -> StepResult:
    return step([sse(*[chunk(delta) for delta in deltas], chunk(finish=finish))])


def _message(seen: StepResult) -> dict[str, Any]:
    assert seen.message is not None
    payload: dict[str, Any] = seen.message.payload
    return payload


def test_content_null_and_empty_are_no_text() -> None:
    """Null and empty content say nothing and need no native form."""
    seen = _streamed({"role": "assistant", "content": None}, {"content": ""}, {"content": "Hi"}, {"content": None})
    assert (seen.text, seen.native) == ("Hi", ())
    assert _whole({"content": None}).events == ()
    assert _whole({"content": ""}).events == ()


def test_content_parts_are_text_and_reasoning() -> None:
    """A list of parts gives its text and its thinking; the list itself goes back as it came, pieces joined."""
    think = [{"type": "thinking", "thinking": [{"type": "text", "text": piece}]} for piece in ("O", "k")]
    streamed = _streamed({"content": [think[0]]}, {"content": [think[1]]}, {"content": "H"}, {"content": "i"})
    joined = [{"type": "thinking", "thinking": [{"type": "text", "text": "Ok"}]}, {"type": "text", "text": "Hi"}]
    complete = _whole({"content": joined})
    assert streamed == complete
    assert (complete.text, complete.reasoning) == ("Hi", "Ok")
    assert _message(complete) == {"role": "assistant", "content": joined}


def test_plain_text_parts_need_no_native_form() -> None:
    """A list of plain text parts is text, and nothing else."""
    seen = _whole({"content": [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}]})
    assert (seen.text, seen.native) == ("Hi", ())


def test_unknown_content_parts_are_kept() -> None:
    """A part that nobody knows stays where it was in the native message."""
    parts = [
        {"type": "text", "text": "see "},
        {"type": "reference", "reference_ids": [1, 2]},
        {"type": "text", "text": "it"},
    ]
    seen = _whole({"content": parts})
    assert seen.text == "see it"
    assert _message(seen)["content"] == parts
    assert _streamed(*[{"content": [part]} for part in parts]) == seen


def test_content_as_an_object_is_its_json() -> None:
    """Content that is an object is its JSON as text, number texts kept, and noted."""
    seen = whole(b'{"choices":[{"index":0,"message":{"content":{"a":1.0,"b":[2]}},"finish_reason":"stop"}]}')
    assert seen.text == '{"a":1.0,"b":[2]}'
    assert NoteCode.UNKNOWN_CONTENT in [note.code for note in seen.notes]


def test_content_that_makes_no_sense_is_an_error() -> None:
    """A content part that is no object is a protocol error that quotes it."""
    with pytest.raises(ProtocolError, match="part"):
        _whole({"content": [7]})


def test_refusal_is_text_and_a_finish() -> None:
    """F20: a refusal finishes as "refusal", its words are text, and the native message keeps the field."""
    streamed = _streamed({"role": "assistant", "content": None, "refusal": ""}, {"refusal": "I "}, {"refusal": "can't"})
    complete = _whole({"content": None, "refusal": "I can't"})
    assert streamed == complete
    assert (complete.finish, complete.raw_reason, complete.text) == ("refusal", "stop", "I can't")
    assert _message(complete) == {"role": "assistant", "content": None, "refusal": "I can't"}


def test_a_filtered_reply_stays_filtered() -> None:
    """F20: a content filter is the finish, with or without content, beside a refusal too."""
    for message in ({"content": None}, {"content": "So"}, {"content": None, "refusal": "No"}):
        assert _whole(message, "content_filter").finish == "content-filter"


REASONED = [
    ([{"reasoning_content": "Let"}, {"reasoning_content": " me"}], {"reasoning_content": "Let me"}),
    ([{"reasoning": "Let"}, {"reasoning": " me"}], {"reasoning": "Let me"}),
    ([{"thinking": "Let"}, {"thinking": " me"}], {"thinking": "Let me"}),
    ([{"reasoning": {"text": "Let"}}, {"reasoning": {"text": " me"}}], {"reasoning": {"text": "Let me"}}),
    (
        [{"reasoning": "Let", "reasoning_content": "Let"}, {"reasoning": " me", "reasoning_content": " me"}],
        {"reasoning": "Let me", "reasoning_content": "Let me"},
    ),
    (
        [
            {"reasoning": "Let", "reasoning_details": [{"type": "reasoning.text", "text": "Let", "index": 0}]},
            {"reasoning": " me", "reasoning_details": [{"type": "reasoning.text", "text": " me", "index": 0}]},
            {"reasoning": None, "reasoning_details": [{"type": "reasoning.text", "signature": "Et+/=", "index": 0}]},
        ],
        {
            "reasoning": "Let me",
            "reasoning_details": [{"type": "reasoning.text", "text": "Let me", "index": 0, "signature": "Et+/="}],
        },
    ),
    (
        [
            {"reasoning_details": [{"type": "reasoning.summary", "summary": "Let", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.summary", "summary": " me", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 0}]},
        ],
        {
            "reasoning_details": [
                {"type": "reasoning.summary", "summary": "Let me", "index": 0},
                {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 0},
            ]
        },
    ),
]


@pytest.mark.parametrize(("deltas", "fields"), REASONED)
def test_reasoning_in_every_spelling(deltas: list[dict[str, Any]], fields: dict[str, Any]) -> None:
    """F03, F16: reasoning is read once, streamed as whole, and its fields go back in the native message."""
    streamed = _streamed(*deltas, {"content": "Hi"})
    complete = _whole({"content": "Hi", **fields})
    assert streamed == complete
    assert (complete.text, complete.reasoning) == ("Hi", "Let me")
    assert _message(complete) == {"role": "assistant", "content": "Hi", **fields}


def test_opaque_reasoning_is_an_event() -> None:
    """F03: signatures and encrypted payloads are events of their own, kept to the letter even without text."""
    details = [
        {"type": "reasoning.text", "text": "", "signature": "S+/=", "index": 0},
        {"type": "reasoning.encrypted", "data": "gAAA==", "index": 1},
    ]
    events = decode([sse(chunk({"reasoning_details": details}), chunk({"content": "Hi"}), chunk(finish="stop"))])
    opaque = [(item.signature, item.encrypted) for item in events if isinstance(item, Reasoning)]
    assert opaque == [("S+/=", None), (None, "gAAA==")]
    assert _message(_streamed({"reasoning_details": details}))["reasoning_details"] == details


def test_signed_blocks_are_not_joined() -> None:
    """F03: a reasoning block that was signed is closed; what follows is a block of its own."""
    first = {"type": "reasoning.text", "text": "a", "signature": "S", "index": 0}
    second = {"type": "reasoning.text", "text": "b", "signature": "T", "index": 0}
    assert _message(_streamed({"reasoning_details": [first]}, {"reasoning_details": [second]}))[
        "reasoning_details"
    ] == [
        first,
        second,
    ]


def test_think_tags_stay_text() -> None:
    """Reasoning between tags in the content is text, as the model wrote it."""
    seen = _streamed({"content": "<think>hm"}, {"content": "</think>Hi"})
    assert (seen.text, seen.reasoning, seen.native) == ("<think>hm</think>Hi", "", ())


def test_unknown_fields_survive() -> None:
    """F16: delta fields that nobody knows are joined and kept in the native message, number texts as they came."""
    deltas = (
        b'{"choices":[{"index":0,"delta":{"content":"H","annotations":[{"n":1.50}],"new":{"t":"a","f":1}}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"i","annotations":[{"n":2.0}],"new":{"t":"b","f":2}}}]}',
        b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
    )
    seen = step([sse(*deltas)])
    assert seen.message is not None
    expected = b'{"role":"assistant","content":"Hi","annotations":[{"n":1.50},{"n":2.0}],"new":{"t":"ab","f":2}}'
    assert seen.message.json == expected


def test_audio_goes_back_by_its_id() -> None:
    """Audio is kept whole beside the message, in which only its id goes back."""
    deltas = [{"audio": {"id": "audio_1"}}, {"audio": {"data": "AA"}}, {"audio": {"data": "BB", "transcript": "Hi"}}]
    streamed = _streamed(*deltas)
    audio = {"id": "audio_1", "data": "AABB", "transcript": "Hi"}
    assert streamed == _whole({"content": None, "audio": audio})
    assert _message(streamed)["audio"] == {"id": "audio_1"}
    assert [item.payload for item in streamed.native if item.event_type == "audio"] == [audio]


def test_hollow_fields_are_nothing() -> None:
    """Empty objects in the shape of audio, function calls and the like need no native form."""
    message = {
        "content": "Hi",
        "audio": {"data": "", "expires_at": 0, "id": "", "transcript": ""},
        "function_call": {"name": "", "arguments": ""},
        "annotations": None,
        "refusal": "",
        "tool_calls": [],
    }
    assert (_whole(message).text, _whole(message).native) == ("Hi", ())


def test_message_beside_delta() -> None:
    """Where a choice has both, a stream reads the delta and a whole reply the message."""
    pieces = [
        {"choices": [{"index": 0, "delta": {"content": "H"}, "message": {"content": "H"}}]},
        {"choices": [{"index": 0, "delta": {"content": "i"}, "message": {"content": "Hi"}}]},
        {"choices": [{"index": 0, "delta": {"content": ""}, "message": {"content": "Hi"}, "finish_reason": "stop"}]},
    ]
    assert step([sse(*pieces)]).text == "Hi"
    both = {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "message": {"content": "Hi"},
        "finish_reason": "stop",
    }
    assert whole({"choices": [both]}).text == "Hi"
    silent = {**both, "message": {"role": "assistant", "content": None}, "delta": {"content": "Hi"}}
    assert whole({"choices": [silent]}).text == "Hi"


def test_a_message_as_one_event_of_a_stream() -> None:
    """A stream whose one event is a whole message is that message; a closing one adds only what is new."""
    message = {"role": "assistant", "content": "Hi", "tool_calls": [tc(0, "a", "f", '{"x":1}')]}
    closing = {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    alone = step([sse(closing)])
    after = step([sse(chunk({"content": "H"}), chunk({"tool_calls": message["tool_calls"]}), closing)])
    assert alone == after
    assert (alone.text, [call.input for call in alone.calls]) == ("Hi", [{"x": 1}])
    beside = {"choices": [{"index": 0, "delta": {}, "message": message, "finish_reason": "tool_calls"}]}
    assert step([sse(beside)]) == alone


def test_the_native_form_fits_the_history_entry() -> None:
    """The native message of a reply is the one that its history entry carries, beside its text and calls."""
    seen = _streamed({"reasoning_content": "hm"}, {"content": "Hi"}, {"tool_calls": [tc(0, "a", "f", '{"x": 1}')]})
    entry = assistant_message(seen)
    held = json.loads(entry["_isthmus"]["native"]["json"])
    assert held == {
        "role": "assistant",
        "content": "Hi",
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}],
        "reasoning_content": "hm",
    }


WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
MESSAGES = st.fixed_dictionaries(
    {"content": st.none() | WORDS},
    optional={
        "reasoning_content": WORDS,
        "refusal": WORDS,
        "annotations": st.lists(st.fixed_dictionaries({"n": st.integers()}), max_size=3),
        "tool_calls": st.lists(
            st.tuples(
                WORDS.filter(lambda name: name not in ("", "null")), st.dictionaries(WORDS, st.integers(), max_size=2)
            ),
            min_size=1,
            max_size=3,
        ),
    },
)


def _cut(text: str, data: st.DataObject) -> list[str]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _deltas(message: dict[str, Any], data: st.DataObject) -> list[dict[str, Any]]:
    """The message in pieces: each field in its own order, fields one after the other or mixed."""
    queues: list[list[dict[str, Any]]] = []
    for key in ("reasoning_content", "content"):
        if message.get(key) is not None:
            queues.append([{key: piece} for piece in _cut(message[key], data)])
    if "annotations" in message:
        queues.append([{"annotations": [item]} for item in message["annotations"]])
    opened, rest = [], []
    for at, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        opened.append({"index": at, **call, "function": {"name": function["name"], "arguments": ""}})
        rest.append([{"index": at, "function": {"arguments": piece}} for piece in _cut(function["arguments"], data)])
    while any(rest):
        opened.append(data.draw(st.sampled_from([pieces for pieces in rest if pieces])).pop(0))
    queues.append([{"tool_calls": [entry]} for entry in opened])
    deltas: list[dict[str, Any]] = []
    while any(queues):
        deltas.append(data.draw(st.sampled_from([queue for queue in queues if queue])).pop(0))
    # A refusal comes last here, as it does in a message: the order of two kinds of text is the order of the text.
    return [*deltas, *[{"refusal": piece} for piece in _cut(message.get("refusal") or "", data)]]


@settings(max_examples=150)
@given(message=MESSAGES, finish=st.sampled_from(["stop", "length", "content_filter", "new", None]), data=st.data())
def test_stream_and_whole_are_the_same_reply(message: dict[str, Any], finish: str | None, data: st.DataObject) -> None:
    """F16: a message rendered whole, or in any chunking, folds to the same reply, native forms and notes included."""
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": json.dumps(value)}}
        for at, (name, value) in enumerate(message.get("tool_calls", ()))
    ]
    message = {**message, **({"tool_calls": calls} if calls else {})}
    says = bool(message["content"] or message.get("refusal") or calls)
    if not says and finish is None:
        finish = "stop"
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    complete = _whole(message, finish, usage=usage)
    chunks = [chunk(delta) for delta in _deltas(message, data)]
    assert step([sse(*chunks, chunk(finish=finish), chunk(usage=usage, choices=[]))]) == complete


def test_what_stands_beside_the_text_of_reasoning_is_told() -> None:
    """F03: signatures and ciphers have an event of their own, as texts only; a part that says nothing has none."""
    deltas = [
        {"reasoning_details": [{"type": "reasoning.text", "text": "h", "signature": "S"}, "odd", {"signature": 7}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "D"}, {"signature": "", "data": ""}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "m", "signature": "I"}, "!"]}]},
        {"content": [{"type": "thinking", "thinking": "n", "signature": "O"}, {"type": "thinking", "thinking": []}]},
        {"content": [{"type": "thinking", "thinking": [{"signature": 7}, {"signature": ""}], "signature": "P"}]},
        {"content": [{"type": "reasoning", "summary": [{"text": "s", "signature": "Q"}]}]},
        {"content": [{"type": "thinking", "thinking": [{"signature": 7}, {"signature": ""}, {"signature": "R"}]}]},
    ]
    events = decode([sse(*map(chunk, deltas), chunk(finish="stop"))])
    assert [(each.text, each.signature, each.encrypted) for each in events if isinstance(each, Reasoning)] == [
        *(("hodd", None, None), ("", "S", None), ("", None, "D"), ("m!", "I", None), ("n", "O", None)),
        *(("", "P", None), ("s", "Q", None), ("", "R", None)),
    ]
