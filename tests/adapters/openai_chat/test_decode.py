"""Chat Completions: recorded and made-up replies, whole and streamed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_chat.decode import ChatDecoder
from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.models.events import Finish, Native, NoteCode, Reasoning, StepResult, Text
from isthmus.wire.call import Ended, WireReply
from isthmus.wire.frame import Frame
from support.chat_frames import chunk, decode, decode_whole, fold, sse, step, tc, whole
from support.chat_walk import walk
from support.corpus import REASON, Row, corpus_root, load, rows

needs_corpus = pytest.mark.skipif(corpus_root() is None, reason=REASON)

# Recordings where a plain walk must differ, and why.
CUT_CALLS = {
    "deepseek/chat-sse--rig-truncation-matrix-streaming-parallel-calls-keep-the-complete-one": 1,
    "llama-cpp/chat-sse--rig-truncation-matrix-streaming-tool-call-cut-mid-arguments": 1,
}
# The error came as an SSE field of its own name, so that the stream just stops.
STOPS = "gpustack/chat-sse--rubyllm-chat-with-extended-thinking-gpustack-qwen3-streams-thinking-content-wh"


def _reply(row: Row) -> StepResult:
    body = load(row).body
    return step([body]) if row.stream else whole(body)


def _ids(row: Row) -> str:
    return row.path


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("row", rows("openai-chat"), ids=_ids)
def test_recording_says_what_a_plain_walk_reads(row: Row) -> None:
    """Every recorded success gives the walk's text, reasoning, calls and tokens; every failure exactly one class."""
    recorded = load(row)
    if recorded.status != 200:
        error = ChatCodec("m").classify(WireReply(recorded.status, recorded.headers, recorded.body))
        assert error.error_class != "unclassified"
        assert error.status == recorded.status
        return
    walked = walk(recorded.body, stream=row.stream)
    if walked.error or row.path == STOPS:
        with pytest.raises(TierError):
            _reply(row)
        return
    seen = _reply(row)
    assert seen.reasoning == walked.reasoning
    cut = CUT_CALLS.get(row.path, 0)
    assert [(call.tool, call.input) for call in seen.calls] == walked.calls[: len(walked.calls) - cut]
    assert sum(note.code == NoteCode.CALL_CUT for note in seen.notes) == cut
    assert (None if seen.usage is None else seen.usage.output_tokens) == walked.output
    assert seen.raw_reason == (walked.finish or None)
    if walked.text.startswith("{"):
        assert json.loads(seen.text) == json.loads(walked.text) if _is_json(walked.text) else seen.text == walked.text
    else:
        assert seen.text == walked.text


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_plain_text_takes_the_fast_path_and_loses_nothing() -> None:
    """A text chunk decoded by the strict path gives the same events and reply as one with a field that it declines."""
    plain = sse(chunk({"role": "assistant", "content": ""}), chunk({"content": "Hi"}), chunk(finish="stop"))
    odd = sse(chunk({"role": "assistant", "content": ""}), chunk({"content": "Hi", "x": None}), chunk(finish="stop"))
    assert decode([plain]) == decode([odd])
    assert step([plain]).text == "Hi"


def test_events_carry_their_frame() -> None:
    """Each event holds the undecoded frame that it came from."""
    events = decode([sse(chunk({"content": "a"}), chunk({"reasoning_content": "b"}), chunk(finish="stop"))])
    assert [type(event) for event in events] == [Text, Reasoning, Finish]
    assert all(event.raw is not None and b"chatcmpl-1" in event.raw.data for event in events)
    assert b'"finish_reason": "stop"' in events[-1].raw.data
    assert all(event.raw is not None for event in decode([sse(chunk({"content": "a"}))]))


@pytest.mark.parametrize(
    ("ended", "done", "finish", "says"),
    [
        (Ended.FRAMED, True, "stop", "stop"),
        (Ended.BROKEN, True, "stop", "stop"),
        (Ended.FRAMED, False, "stop", NoteCode.NO_END_MARK),
        (Ended.UNFRAMED, False, "stop", TransientError),
        (Ended.BROKEN, False, "stop", TransientError),
        (Ended.FRAMED, False, None, TransientError),
        (Ended.FRAMED, True, None, NoteCode.NO_FINISH_REASON),
    ],
)
def test_when_a_stream_is_complete(ended: Ended, done: bool, finish: str | None, says: object) -> None:
    """F01: complete is [DONE], or a finish reason and a framed end; all else is a cut."""
    body = sse(chunk({"content": "Hi"}), chunk(finish=finish), done=done)
    if says is TransientError:
        with pytest.raises(TransientError):
            step([body], ended=ended)
        return
    seen = step([body], ended=ended)
    codes = [note.code for note in seen.notes if note.code != NoteCode.USAGE_MISSING]
    assert seen.text == "Hi"
    assert seen.finish == ("other" if finish is None else "stop")
    assert codes == ([] if says == "stop" else [says])


@pytest.mark.parametrize("body", [b"", b"data: [DONE]\n\n", b": ping\n\n", sse(chunk({"reasoning": "hm"}))])
def test_a_stream_without_content_and_reason_is_an_error(body: bytes) -> None:
    """F01: an end mark without content or reason, and an empty stream, are no answers."""
    with pytest.raises(TransientError):
        step([body])


def test_done_without_reason_runs_a_whole_call() -> None:
    """[DONE] without a finish reason is "tool-calls" where there is a whole call, and noted."""
    seen = step([sse(chunk({"tool_calls": [tc(0, "a", "f", "{}")]}))])
    assert seen.finish == "tool-calls"
    assert NoteCode.NO_FINISH_REASON in [note.code for note in seen.notes]


def test_a_frame_cut_in_the_middle_is_a_cut() -> None:
    """A stream whose last frame is half there is "transient", not "protocol", where the connection dropped."""
    body = sse(chunk({"content": "Hi"}))[:-40]
    with pytest.raises(TransientError):
        step([body], ended=Ended.BROKEN)
    with pytest.raises(ProtocolError, match="malformed"):
        step([body], ended=Ended.FRAMED)


def test_half_an_end_mark_after_the_reason_is_no_end_mark() -> None:
    """F01: a finished message whose end mark was clipped is complete when the end is framed."""
    body = sse(chunk({"content": "Hi"}), chunk(finish="stop"), done=False) + b"data: [DO"
    assert step([body]).text == "Hi"
    with pytest.raises(TransientError):
        step([body], ended=Ended.UNFRAMED)


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b'data: {"error":{"message":"x"}}\n\n', "transient"),
        (b'data: {"error":{"message":"x","code":502},"choices":[]}\n\n', "transient"),
        (b'data: {"error":{"message":"Overloaded","type":"overloaded_error"}}\n\n', "unavailable"),
        (b'data: {"error":"no credit: insufficient_quota"}\n\n', "credentials"),
        (
            b'event: error\ndata: {"message":"This model\'s maximum context length is 8192 tokens","code":400}\n\n',
            "overflow",
        ),
        (b"event: error\ndata: it broke\n\n", "transient"),
        (b"event: error\ndata:\n\n", "transient"),
        (b'data: {"object":"error","message":"bad","type":"BadRequestError","code":400}\n\n', "invalid"),
        (b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"error"}]}\n\n', "transient"),
        (b'data: {"choices":[{"index":0,"delta":{},"error":{"code":429,"message":"slow down"}}]}\n\n', "transient"),
        (
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"insufficient_system_resource"}]}\n\n',
            "unavailable",
        ),
        (b"data: {nonsense}\n\n", "protocol"),
        (b"data: [1]\n\n", "protocol"),
        (b'data: {"choices":[7]}\n\n', "protocol"),
        (b'data: {"choices":{}}\n\n', "protocol"),
    ],
)
@pytest.mark.parametrize("before", [None, "stop"])
def test_an_error_frame_fails_the_reply(frame: bytes, kind: str, before: str | None) -> None:
    """F01, F04, F18: an error anywhere in a stream, even after the finish reason, is an error with the usage."""
    counts = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    start = sse(chunk({"content": "Hi"}), chunk(finish=before, usage=counts), done=False)
    with pytest.raises(TierError) as caught:
        step([start + frame + b"data: [DONE]\n\n"])
    assert caught.value.error_class == kind
    assert caught.value.usage is not None
    assert caught.value.usage.output_tokens == 1


def test_a_malformed_frame_is_quoted() -> None:
    """A malformed frame in the middle is "protocol", with an excerpt."""
    with pytest.raises(ProtocolError, match="nonsense"):
        step([sse(chunk({"content": "Hi"}), b"{nonsense}", chunk(finish="stop"))])


def test_nothing_after_the_end_mark_counts() -> None:
    """Frames after [DONE] change nothing, so that the outcome can't hang on how the bytes were split."""
    body = sse(chunk({"content": "Hi"}, "stop"))
    assert decode([body + sse(chunk({"content": "more"}))]) == decode([body])
    decoder = ChatDecoder(whole=False)
    assert list(decoder.feed(Frame(b"[DONE]"))) == []
    assert decoder.done


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "protocol"),
        (b"<html>502</html>", "protocol"),
        (b"Internal error", "protocol"),
        (b"{}", "protocol"),
        (b"[]", "protocol"),
        (b'{"choices":[]}', "protocol"),
        (b'{"choices":[{}]}', "protocol"),
        (b'{"error":{"message":"x","type":"rate_limit_error"}}', "transient"),
        (b'{"detail":"Not authenticated","status_code":401}', "credentials"),
        (b'{"object":"error","message":"m","code":404}', "invalid"),
    ],
)
def test_a_whole_body_that_is_no_completion(body: bytes, kind: str) -> None:
    """F01, F18: a 200 that isn't a chat completion is a protocol error, or the error that it says it is."""
    with pytest.raises(TierError) as caught:
        whole(body)
    assert caught.value.error_class == kind


def test_a_whole_body_that_stops_short_is_a_cut() -> None:
    """Half a JSON document is "transient" where the bytes just ended."""
    with pytest.raises(TransientError):
        whole(b'{"choices":[{"index":0,"message":{"role":"assis', ended=Ended.BROKEN)
    with pytest.raises(TransientError):
        whole(b"", ended=Ended.UNFRAMED)


def test_a_whole_reply_without_a_reason_is_other() -> None:
    """F12: a whole reply without a finish reason, or an empty one, finishes as "other" and says so."""
    for reason in ({}, {"finish_reason": None}, {"finish_reason": ""}):
        seen = whole({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, **reason}]})
        assert (seen.text, seen.finish, seen.raw_reason) == ("Hi", "other", None)
        assert NoteCode.NO_FINISH_REASON in [note.code for note in seen.notes]


def test_a_filtered_choice_may_lack_its_message() -> None:
    """F20: a choice that was filtered before it said anything is a filtered reply."""
    seen = whole(
        {
            "choices": [
                {"index": 0, "finish_reason": "content_filter", "content_filter_results": {"hate": {"filtered": True}}}
            ]
        }
    )
    assert (seen.events, seen.finish) == ((), "content-filter")
    assert [item.event_type for item in seen.native] == ["content_filter_results"]


@pytest.mark.parametrize(
    ("raw", "finish"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("STOP", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content-filter"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("something_new", "other"),
        ("tool_calls", "other"),
    ],
)
def test_finish_reasons(raw: str, finish: str) -> None:
    """F12, F20: each reason has its name, unknown ones are "other"; the raw one is kept; whole and stream agree."""
    streamed = step([sse(chunk({"content": "Hi"}), chunk(finish=raw))])
    complete = whole({"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": raw}]})
    assert (streamed.finish, streamed.raw_reason) == (complete.finish, complete.raw_reason) == (finish, raw)


def test_the_last_reason_counts() -> None:
    """F12: a reason on every chunk, or an early one, is kept but decides nothing before the end."""
    body = sse(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop"), chunk({"content": "c"}, "length"))
    assert (step([body]).text, step([body]).finish) == ("abc", "length")


def test_a_whole_call_runs_whatever_the_reason() -> None:
    """F12: a reply with a whole call finishes as "tool-calls", its raw reason kept and the change noted."""
    for reason in ("stop", "length", "content_filter", "weird"):
        seen = step([sse(chunk({"tool_calls": [tc(0, "a", "f", "{}")]}), chunk(finish=reason))])
        assert (seen.finish, seen.raw_reason) == ("tool-calls", reason)
        assert NoteCode.FINISH_CHANGED in [note.code for note in seen.notes]


def test_other_choices_are_kept_as_native_blocks() -> None:
    """The first choice is the reply; the others are native, noted, and the same in stream and whole."""
    top = {"id": "x", "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    complete = whole(
        {
            "choices": [
                {"index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "stop"},
                {"index": 0, "message": {"role": "assistant", "content": "one"}, "finish_reason": "stop"},
            ],
            **top,
        }
    )
    pieces = [
        {"choices": [{"index": 1, "delta": {"content": "tw"}}, {"index": 0, "delta": {"content": "on"}}]},
        {"choices": [{"index": 0, "delta": {"content": "e"}, "finish_reason": "stop"}]},
        {"choices": [{"index": 1, "delta": {"content": "o"}, "finish_reason": "stop"}], **top},
    ]
    assert step([sse(*pieces)]) == complete
    assert complete.text == "one"
    assert [item.payload["message"]["content"] for item in complete.native] == ["two"]
    assert NoteCode.EXTRA_CHOICES in [note.code for note in complete.notes]


def test_the_lowest_choice_is_the_reply_where_none_is_first() -> None:
    """A reply whose only choice has another index than 0 is that choice."""
    seen = step([sse({"choices": [{"index": 2, "delta": {"content": "Hi"}, "finish_reason": "stop"}]})])
    assert (seen.text, seen.finish, seen.native) == ("Hi", "stop", ())


@pytest.mark.parametrize(
    "extra",
    [
        {"choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        {"choices": []},
        {"choices": None},
        {"object": "control"},
    ],
)
def test_chunks_without_choices_are_legal_anywhere(extra: dict[str, object]) -> None:
    """F04: a chunk without choices, first, in the middle or last, changes no content."""
    expected = step([sse(chunk({"content": "a"}), chunk({"content": "b"}), chunk(finish="stop"))])
    for at in range(4):
        chunks: list[object] = [chunk({"content": "a"}), chunk({"content": "b"}), chunk(finish="stop")]
        chunks.insert(at, extra)
        seen = step([sse(*chunks)])
        assert (seen.events, seen.finish) == (expected.events, expected.finish)


def test_what_comes_beside_the_message_is_kept_once() -> None:
    """Citations, log probabilities and other unknown fields become one native block each, with number texts as sent."""
    first = b'{"choices":[{"index":0,"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":-0.10}]}}],'
    first += b'"citations":["u"],"score":1e400}'
    second = b'{"choices":[{"index":0,"delta":{"content":"b"},"logprobs":{"content":[{"token":"b","logprob":-2.50}]},'
    second += b'"finish_reason":"stop"}],"citations":["u","v"]}'
    seen = {item.event_type: item.json for item in step([sse(first, second)]).native}
    assert seen == {
        "logprobs": b'{"content":[{"token":"a","logprob":-0.10},{"token":"b","logprob":-2.50}]}',
        "citations": b'["u","v"]',
        "score": b"1e400",
    }


def test_a_plain_reply_has_no_native_blocks() -> None:
    """A reply of text and calls alone needs no native form: the neutral one says it all."""
    body = sse(
        chunk({"content": "Hi"}), chunk({"tool_calls": [tc(0, "a", "f", '{"x":1}')]}), chunk(finish="tool_calls")
    )
    assert step([body]).native == ()


def test_lone_surrogates_and_odd_numbers_do_not_break_a_stream() -> None:
    """F06, F30: what the strict JSON decoder refuses and servers send is decoded all the same."""
    body = sse(b'{"choices":[{"index":0,"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}],"x":NaN}')
    seen = step([body])
    assert seen.text == "a\ud83d"
    assert seen.native == (Native("openai-chat", "x", json=b"NaN"),)


def test_one_finish_and_nothing_after() -> None:
    """Every complete reply ends with exactly one finish."""
    events = decode([sse(chunk({"content": "a"}), chunk(finish="stop"))])
    assert [isinstance(event, Finish) for event in events] == [False, True]
    assert fold(events).finish == "stop"


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, width=16)
    | st.sampled_from(["", "x", "null", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["id", "type", "text", "index"]), inner, max_size=3)
    ),
    max_leaves=6,
)
PARTS = {"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}
CHUNKS = (
    chunk({"role": "assistant", "content": "a", "refusal": None, "reasoning_content": "b"}),
    chunk(
        {
            "content": [PARTS],
            "reasoning_details": [{"type": "reasoning.text", "text": "c", "index": 0}],
            "reasoning": {"text": "d"},
        }
    ),
    chunk({"tool_calls": [tc(0, "i", "f", '{"x"'), tc(1, "j", "g", "")], "audio": {"id": "u", "data": "v"}}),
    chunk({"tool_calls": [tc(0, "i", "f", ":1}")], "function_call": {"name": "h", "arguments": "{}"}, "new": ["n"]}),
    chunk(
        {},
        "tool_calls",
        usage={"prompt_tokens": 3, "completion_tokens": 2, "completion_tokens_details": {"reasoning_tokens": 1}},
    ),
    {"choices": [], "x_own": {"usage": {"prompt_tokens": 3}}, "citations": ["q"], "error": None},
)


def _places(value: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *[place for key, item in inner for place in _places(item, (*path, key))]]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_no_form_of_any_field_breaks_the_decoder(data: st.DataObject) -> None:
    """A reply with any of its fields in any form is a reply or a classified error, the same each time."""
    chunks = json.loads(json.dumps(CHUNKS))
    for _ in range(data.draw(st.integers(1, 3))):
        *path, last = data.draw(st.sampled_from([place for place in _places(chunks) if place]))
        holder = chunks
        for key in path:
            holder = holder[key]
        holder[last] = data.draw(JSON)
    pieces = [sse(*chunks)]
    message = {"choices": [{"message": delta, "finish_reason": "stop"} for delta in _deltas(chunks)]}

    def outcomes() -> list[object]:
        found: list[object] = []
        for read in (lambda: step(pieces), lambda: whole(message)):
            try:
                found.append(read().to_dict())
            except TierError as error:
                found.append((error.error_class, error.message))
        return found

    assert outcomes() == outcomes()


def _deltas(chunks: list[object]) -> list[object]:
    choices = [item.get("choices") for item in chunks if isinstance(item, dict)]
    first = [choice[0] for choice in choices if isinstance(choice, list) and choice and isinstance(choice[0], dict)]
    return [choice.get("delta") for choice in first]


def test_an_error_keeps_the_beginning_of_what_was_said() -> None:
    """The body of an error is for a person to read, whatever its length."""
    with pytest.raises(TierError) as caught:
        step([sse({"error": {"message": "x" * 3000}})])
    assert caught.value.body == ("{'error': {'message': '" + "x" * 3000)[:2000]


def test_an_empty_text_is_no_event() -> None:
    """What says nothing is not told, in the first chunk or later."""
    texts = ["", "a", "", "b"]
    events = decode([sse(*[chunk({"content": text}) for text in texts], chunk(finish="stop"))])
    assert [event.text for event in events if isinstance(event, Text)] == ["a", "b"]
    usage = {"prompt_tokens": 9, "completion_tokens": 0, "total_tokens": 9}
    body = {"choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}], "usage": usage}
    assert [type(event) for event in decode_whole(json.dumps(body).encode())] == [Finish]
