"""Streams of this dialect: frames, completeness, errors."""

from __future__ import annotations

import json

import pytest

from isthmus.adapters.anthropic.decode import MessagesDecoder
from isthmus.errors import (
    ContextOverflowError,
    InvalidRequestError,
    ProtocolError,
    TierError,
    TransientError,
    UnavailableError,
)
from isthmus.models.events import Finish, Native, Text
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support.anthropic_fold import codes, decode, delta, folded, head, result, sse, start, stop, tail, whole

HELLO = [
    head(),
    start(0, {"type": "text", "text": ""}),
    delta(0, "text_delta", text="Hel"),
    delta(0, "text_delta", text="lo"),
    stop(0),
    *tail(),
]


def test_text_arrives_piece_by_piece_with_the_frame_that_it_came_in():
    """Each text delta is one Text event whose raw is its frame; the finish comes last."""
    frames = sse(*HELLO)
    events = decode(frames)
    assert [event.text for event in events if isinstance(event, Text)] == ["Hel", "lo"]
    assert events[0].raw is frames[2]
    assert isinstance(events[-1], Finish)
    assert (events[-1].finish, events[-1].raw_reason) == ("stop", "end_turn")
    assert events[-1].native is None


def test_done_is_set_at_message_stop_and_what_follows_in_the_same_bytes_is_not_read():
    """After message_stop the decoder is done, and a frame that shared its chunk changes nothing (F01)."""
    decoder = MessagesDecoder(whole=False)
    for frame in sse(*HELLO[:-1]):
        decoder.feed(frame)
    assert not decoder.done
    decoder.feed(sse(HELLO[-1])[0])
    assert decoder.done
    assert list(decoder.feed(Frame(b"[DONE]"))) == []
    assert list(decoder.feed(sse(HELLO[2])[0])) == []
    assert folded([*decode(sse(*HELLO))]).text == "Hello"


@pytest.mark.parametrize("ended", list(Ended))
@pytest.mark.parametrize("kept", range(len(HELLO) - 2))
def test_a_stream_without_a_stop_reason_is_cut_however_it_ended(kept, ended):
    """F01: bytes that end before the stop reason are a transient error with the usage seen so far."""
    with pytest.raises(TransientError) as caught:
        decode(sse(*HELLO[:kept]), ended=ended)
    assert caught.value.usage is None if kept == 0 else caught.value.usage.input_tokens == 7


def test_a_stop_reason_and_a_framed_end_are_enough_and_noted():
    """F01: no message_stop, but a reason, no open block and a framed end: the whole reply, with a note."""
    step = result(*HELLO[:-1])
    assert (step.text, step.finish) == ("Hello", "stop")
    assert codes(step) == ["no-end-mark"]


@pytest.mark.parametrize("ended", [Ended.UNFRAMED, Ended.BROKEN])
def test_a_stop_reason_is_not_enough_where_a_reset_would_look_the_same(ended):
    """F01: without message_stop an unframed or broken end is a cut."""
    with pytest.raises(TransientError, match="cut"):
        result(*HELLO[:-1], ended=ended)


def test_an_open_block_and_a_framed_end_are_a_cut():
    """F01: a stop reason while a block is open does not make the reply complete without message_stop."""
    with pytest.raises(TransientError):
        result(*HELLO[:4], HELLO[5])


@pytest.mark.parametrize("mark", [b'{"type":"message_st', b'{"type": "message_stop"', b"{"])
def test_an_end_mark_that_was_cut_by_a_proxy_does_not_undo_a_finished_reply(mark):
    """F01 row 19: all events there, only the last frame cut: the reply stands, with a note."""
    frames = [*sse(*HELLO[:-1]), Frame(mark, "message_stop")]
    assert codes(folded(decode(frames))) == ["no-end-mark"]
    with pytest.raises(TransientError):
        decode(frames, ended=Ended.BROKEN)


def test_a_cut_frame_that_is_no_end_mark_is_a_cut_reply():
    """F01: a delta that stops inside its JSON at the end of the bytes is a transient cut."""
    with pytest.raises(TransientError):
        decode([*sse(*HELLO[:3]), Frame(b'{"type":"content_block_delta","index":0,"delta":{"type":"text_del')])


def test_a_cut_error_frame_is_an_error_even_after_the_reason():
    """F01: an error frame that was cut does not pass for a cut end mark."""
    with pytest.raises(TierError):
        decode([*sse(*HELLO[:-1]), Frame(b'{"type":"error","error":{"ty', "error")])


def test_a_malformed_frame_inside_a_stream_is_a_protocol_error():
    """F01: what is no JSON fails at once; what stops early fails when another frame follows."""
    with pytest.raises(ProtocolError, match="not a JSON object"):
        decode([*sse(*HELLO[:3]), Frame(b"<html>")])
    with pytest.raises(ProtocolError, match="malformed"):
        decode([*sse(*HELLO[:3]), Frame(b'{"type":"content_block'), *sse(HELLO[3])])


def test_an_error_event_is_classified_and_carries_the_usage():
    """F01 row 13: overloaded_error at status 200 is `unavailable`, with the tokens already spent."""
    error = {"type": "error", "error": {"details": None, "type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(UnavailableError) as caught:
        decode(sse(*HELLO[:3], error))
    assert (caught.value.code, caught.value.status) == ("overloaded_error", 529)
    assert caught.value.usage.input_tokens == 7


def test_an_error_after_the_stop_reason_fails_the_reply():
    """F01: the finish is made at the end, so an error after the reason still fails it."""
    with pytest.raises(TransientError):
        decode(sse(*HELLO[:-1], {"type": "error", "error": {"type": "api_error", "message": "boom"}}))


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (Frame(b'{"error":{"message":"x","type":"invalid_request_error"}}'), InvalidRequestError),
        (Frame(b"upstream gave up", "error"), TransientError),
        (Frame(b"", "error"), TransientError),
        (
            Frame(
                b'{"type":"error","error":{"message":"input length and `max_tokens` exceed context limit: 1 + 2 > 3"}}'
            ),
            ContextOverflowError,
        ),
    ],
)
def test_every_shape_of_an_error_in_a_stream_is_one_classified_error(frame, kind):
    """F01, F18: an error key without a type, a bare text, an empty error event, an overflow at 200."""
    with pytest.raises(kind):
        decode([*sse(head()), frame])


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([head(), delta(0, "text_delta", text="x")], "not open"),
        ([head(), stop(3)], "not open"),
        ([*HELLO[:5], stop(0)], "not open"),
        ([*HELLO[:5], delta(0, "text_delta", text="late")], "not open"),
        ([*HELLO[:2], start(0, {"type": "text", "text": ""})], "twice"),
        ([*HELLO[:3], head()], "twice"),
        ([head(), start(0, {"text": "no type"})], "no type"),
        ([head(), {"type": "content_block_start", "index": 0}], "no content_block"),
        ([*HELLO[:2], {"type": "content_block_delta", "index": 0}], "no delta"),
        ([head(), start("0", {"type": "text"})], "whole number"),
        ([head(), start(0, {"type": "tool_use", "id": "t", "name": ""})], "no tool"),
        ([*HELLO[:2], delta(0, "text_delta", text=5)], "not a string"),
        ([{"type": "message_stop"}], "without content"),
    ],
)
def test_events_out_of_order_or_of_another_form_are_protocol_errors(events, words):
    """F01: deltas for blocks that are not open, doubled starts and members of a wrong type fail, and say what."""
    with pytest.raises(ProtocolError, match=words):
        decode(sse(*events))


def test_a_repeated_message_start_before_any_block_is_let_pass():
    """A proxy that sends the head twice before the first block changes nothing."""
    assert result(HELLO[0], *HELLO).text == "Hello"


def test_a_call_as_a_local_server_sends_it():
    """No input at the start, no pings, usage without input tokens, ids of another family: accepted as it is."""
    events = [
        {"type": "message_start", "message": {"id": "chatcmpl-x", "type": "message", "content": []}},
        start(0, {"type": "tool_use", "id": "Ab3", "name": "get_weather"}),
        delta(0, "input_json_delta", partial_json='{"city":'),
        delta(0, "input_json_delta", partial_json=' "Rome"}'),
        stop(0),
        *tail("tool_use"),
    ]
    step = result(*events)
    assert [(call.tool, call.call_id, call.input) for call in step.calls] == [("get_weather", "Ab3", {"city": "Rome"})]
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (None, 9)


def test_text_that_stands_in_the_start_of_its_block_is_said():
    """A block start that carries text already gives that text."""
    assert result(head(), start(0, {"type": "text", "text": "Hi "}), *HELLO[2:]).text == "Hi Hello"


def test_indexes_may_be_missing():
    """Without an index a start opens the next block, and the rest goes to the newest open one."""
    bare = [{key: value for key, value in event.items() if key != "index"} for event in HELLO]
    assert result(*bare).text == "Hello"


def test_blocks_without_indexes_are_numbered_as_in_a_whole_reply():
    """An id that is made up for a call hangs on the number of its block: streamed and whole, it is the same."""
    block = {"type": "tool_use", "name": "f", "input": {"a": 1}}
    events = [{"type": "content_block_start", "content_block": block}, {"type": "content_block_stop"}]
    streamed, once = result(head(), *events, *events, *tail("tool_use")), whole([block, block], "tool_use")
    assert [call.call_id for call in streamed.calls] == [call.call_id for call in once.calls]
    assert len(once.calls) == 2


def test_pings_and_the_end_mark_of_another_dialect_are_no_events():
    """A ping, an empty frame and [DONE] give nothing."""
    decoder = MessagesDecoder(whole=False)
    for frame in (*sse({"type": "ping"}), Frame(b"", "ping"), Frame(b"[DONE]")):
        assert list(decoder.feed(frame)) == []


def test_an_event_of_an_unknown_type_is_kept():
    """F16: an event that no document names is handed on as it came, and disturbs nothing."""
    events = decode(sse(*HELLO[:4], {"type": "moon_phase", "n": 1e2}, *HELLO[4:]))
    assert [event for event in events if isinstance(event, Native)] == [
        Native("anthropic-messages", "moon_phase", {"type": "moon_phase", "n": 1e2})
    ]
    assert folded(events).text == "Hello"


def test_a_whole_message_as_the_one_event_of_a_stream_is_the_reply():
    """Vertex answers a stream request with one event of type message: the reply is that message."""
    message = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}
    step = folded(decode(sse(message)))
    assert (step.text, step.finish, codes(step)) == ("Hi", "stop", ["usage-missing"])


def test_a_whole_reply_that_was_cut_or_is_something_else_fails():
    """F01: a cut document is transient, or protocol where its bytes were complete; another document is protocol."""
    body = json.dumps({"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"})
    with pytest.raises(TransientError):
        decode([Frame(body[:-9].encode())], whole=True, ended=Ended.BROKEN)
    for wrong in (body[:-9], "<html>down</html>", "", "[]", '{"choices":[]}', '{"type":"completion","completion":"x"}'):
        with pytest.raises(ProtocolError):
            decode([Frame(wrong.encode())], whole=True)


def test_a_lone_surrogate_and_a_huge_number_are_read():
    """F30: what one JSON reader refuses and servers send is read by the other."""
    raw = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a\\ud83d"},"n":1e400}'
    frames = sse(*HELLO)
    assert folded(decode([*frames[:3], Frame(raw), *frames[3:]])).text == "Hela\ud83dlo"


def test_a_reply_without_a_reason_is_other_and_noted():
    """F12: content and message_stop, but no reason: `other`, with a note."""
    step = result(*HELLO[:-2], {"type": "message_stop"})
    assert (step.finish, step.raw_reason) == ("other", None)
    assert codes(step) == ["no-finish-reason", "usage-missing"]
