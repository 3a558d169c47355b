"""Converse's frames to events."""

from __future__ import annotations

import json

import pytest

from isthmus.errors import ErrorClass, ProtocolError, TierError, TransientError
from isthmus.models.events import Call, CallDelta, Finish, Native, Reasoning, Text
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support.bedrock_kit import (
    codes,
    decode,
    delta,
    document,
    frames,
    read_whole,
    result,
    start,
    stop,
    tail,
    text,
    tool,
)

SIGNED = [delta(0, reasoningContent={"text": "so"}), delta(0, reasoningContent={"signature": "c2ln"}), stop(0)]
BEGIN = ("messageStart", {"role": "assistant"})


def test_a_stream_of_text():
    """Pieces of text are events as they come, and the finish has the reason and the disjoint usage of metadata."""
    events = decode(frames(BEGIN, text("Hel"), text("lo"), stop(), *tail()))
    assert events[:2] == [Text("Hel"), Text("lo")]
    end = events[-1]
    assert isinstance(end, Finish)
    assert (end.finish, end.raw_reason, end.usage.input_tokens, end.usage.output_tokens) == ("stop", "end_turn", 7, 9)
    assert (end.native, end.notes) == (None, ())
    assert all(event.raw is not None for event in events)


def test_a_call_is_previewed_and_then_whole():
    """The previews of a call joined are its arguments, and the finish is tool-calls."""
    events = decode(frames(BEGIN, *tool(0, '{"a"', ": 1}"), *tail("tool_use")))
    previews = [event for event in events if isinstance(event, CallDelta)]
    (call,) = [event for event in events if isinstance(event, Call)]
    assert "".join(each.arguments_delta for each in previews) == call.arguments == '{"a": 1}'
    assert (call.tool, call.call_id, call.input, events[-1].finish) == ("f", "t1", {"a": 1}, "tool-calls")


def test_calls_whose_pieces_interleave_are_told_apart():
    """F02: pieces go to the block that they name."""
    begun = [start(index, toolUse={"toolUseId": f"t{index}", "name": "f"}) for index in (0, 1)]
    pieces = [delta(0, toolUse={"input": '{"x":'}), delta(1, toolUse={"input": '{"y":2}'})]
    step = result(*begun, *pieces, delta(0, toolUse={"input": "1}"}), stop(0), stop(1), *tail("tool_use"))
    assert {call.call_id: call.input for call in step.calls} == {"t0": {"x": 1}, "t1": {"y": 2}}


def test_reasoning_keeps_its_signature_and_goes_back_verbatim():
    """F03: signed and redacted reasoning stand in the native form as a whole reply has them."""
    redacted = [delta(1, reasoningContent={"redactedContent": "AAEC"}), stop(1)]
    events = decode(frames(*SIGNED, *redacted, text("hi", 2), stop(2), *tail()))
    assert [event for event in events if isinstance(event, Reasoning)] == [
        Reasoning("so"),
        Reasoning(signature="c2ln"),
        Reasoning(encrypted="AAEC"),
    ]
    assert events[-1].native.payload == [
        {"reasoningContent": {"reasoningText": {"text": "so", "signature": "c2ln"}}},
        {"reasoningContent": {"redactedContent": "AAEC"}},
        {"text": "hi"},
    ]


CITED = {"title": "t", "location": {"web": {"url": "https://a.example"}}}
SERVER = {"toolUseId": "s1", "name": "nova_grounding", "type": "server_tool_use"}
CASES = {
    "text and call": (
        [text("a"), stop(0), *tool(1, '{"n": 1.50}'), *tail("tool_use")],
        document([{"text": "a"}, {"toolUse": {"toolUseId": "t1", "name": "f", "input": {"n": 1.50}}}], "tool_use"),
    ),
    "reasoning": (
        [*SIGNED, text("b", 1), stop(1), *tail()],
        document([{"reasoningContent": {"reasoningText": {"text": "so", "signature": "c2ln"}}}, {"text": "b"}]),
    ),
    "citations": (
        [text("c"), delta(0, citation=CITED), stop(0), *tail()],
        document([{"citationsContent": {"content": [{"text": "c"}], "citations": [CITED]}}]),
    ),
    "a server's tool": (
        [
            start(0, toolUse=SERVER),
            delta(0, toolUse={"input": "{}"}),
            stop(0),
            start(1, toolResult={"toolUseId": "s1", "status": "success"}),
            delta(1, toolResult=[{"json": {"x": 1}}]),
            stop(1),
            text("d", 2),
            stop(2),
            *tail(),
        ],
        document(
            [
                {"toolUse": {**SERVER, "input": {}}},
                {"toolResult": {"toolUseId": "s1", "status": "success", "content": [{"json": {"x": 1}}]}},
                {"text": "d"},
            ]
        ),
    ),
    "a block of a kind to come": (
        [start(0, hologram={"a": 1}), delta(0, hologram={"b": 2}), stop(0), text("e", 1), stop(1), *tail()],
        document([{"hologram": {"a": 1, "b": 2}}, {"text": "e"}]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_whole_and_streamed_are_the_same_reply(name):
    """Promise 3: each kind of block gives the same result streamed and whole, native blocks and all."""
    streamed, whole = result(*CASES[name][0]), read_whole(CASES[name][1])
    assert (streamed.text, streamed.finish, streamed.usage) == (whole.text, whole.finish, whole.usage)
    assert [(call.tool, call.call_id, call.input) for call in streamed.calls] == [
        (call.tool, call.call_id, call.input) for call in whole.calls
    ]
    assert (streamed.native, streamed.reasoning, streamed.notes) == (whole.native, whole.reasoning, whole.notes)


def test_a_tool_that_the_server_runs_is_no_call():
    """A toolUse of type server_tool_use is native and never runs here."""
    step = read_whole(CASES["a server's tool"][1])
    assert (step.calls, step.finish) == ((), "stop")
    assert [item.event_type for item in step.native][:2] == ["server_tool_use", "toolResult"]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("guardrail_intervened", "content-filter"),
        ("content_filtered", "content-filter"),
        ("some_reason_to_come", "other"),
    ],
)
def test_each_stop_reason_has_its_finish(reason, finish):
    """F12, F20: the finish of each stop reason is the same streamed and whole, and its own word is kept."""
    for step in (result(text("x"), stop(), *tail(reason)), read_whole(document([{"text": "x"}], reason))):
        assert (step.finish, step.raw_reason, step.text) == (finish, reason, "x")


@pytest.mark.parametrize("reason", ["malformed_model_output", "malformed_tool_use"])
def test_malformed_output_is_no_answer(reason):
    """F01: a model whose output could not be read has failed, with the tokens that it cost."""
    for read in (lambda: result(text("x"), stop(), *tail(reason)), lambda: read_whole(document([], reason))):
        with pytest.raises(ProtocolError, match=reason) as caught:
            read()
        assert caught.value.usage.output_tokens == 9


def test_usage_has_disjoint_buckets():
    """Cache reads and writes are apart from the input, and an hour's writes are counted among the writes."""
    usage = {
        "inputTokens": 3,
        "outputTokens": 5,
        "cacheReadInputTokens": 10,
        "cacheWriteInputTokens": 20,
        "cacheDetails": [{"ttl": "1h", "inputTokens": 15}, {"ttl": "5m", "inputTokens": 5}],
    }
    found = read_whole(document([{"text": "x"}], usage=usage)).usage
    assert (found.input_tokens, found.cache_read_tokens, found.cache_write_tokens) == (3, 10, 20)
    assert (found.cache_write_1h_tokens, found.output_tokens, found.prompt_tokens) == (15, 5, 33)


def test_a_guardrails_trace_is_told():
    """F20: what the guardrail says is a note, streamed and whole: it comes after the end mark."""
    trace = {"guardrail": {"actionReason": "blocked"}}
    for step in (
        result(text("no"), stop(), *tail("guardrail_intervened", trace=trace)),
        read_whole(document([{"text": "no"}], "guardrail_intervened", trace=trace)),
    ):
        assert [json.loads(note.detail) for note in step.notes if note.code == "metadata"] == [{"trace": trace}]
        assert step.native == ()


def test_further_fields_of_the_model_survive():
    """What was asked for of the model's own reply is native, streamed and whole."""
    more = {"additionalModelResponseFields": {"stop_sequence": "END"}}
    streamed = result(text("x"), stop(), ("messageStop", {"stopReason": "end_turn", **more}), tail()[1])
    for step in (streamed, read_whole(document([{"text": "x"}], **more))):
        assert [item.payload for item in step.native] == [{"stop_sequence": "END"}]


def test_a_cut_before_message_stop_is_transient():
    """F01: bytes that end before messageStop are an error, however they end."""
    for ended in Ended:
        with pytest.raises(TransientError, match="cut"):
            result(BEGIN, text("Hel"), ended=ended)


def test_message_stop_is_the_end_and_missing_usage_is_noted():
    """A reply without its metadata is whole, and says that the usage is missing."""
    for ended in Ended:
        step = result(text("x"), stop(), tail()[0], ended=ended)
        assert (step.text, step.usage, codes(step)) == ("x", None, ["usage-missing"])


def test_a_call_that_was_cut_never_runs():
    """F01: a call whose block did not end, or that the limit cut, is native with a note."""
    open_call = [start(0, toolUse={"toolUseId": "t1", "name": "f"}), delta(0, toolUse={"input": '{"a"'})]
    for events in ([*open_call, *tail("max_tokens")], [*open_call, stop(0), *tail("max_tokens")]):
        step = result(*events)
        assert (step.calls, step.finish, codes(step)) == ((), "length", ["call-cut"])
        assert step.native[0].payload == {"toolUse": {"toolUseId": "t1", "name": "f", "input": '{"a"'}}


def test_a_whole_call_runs_whatever_the_reason():
    """Seed 000: a whole call makes the finish tool-calls, with a note, and the reason stays."""
    step = result(*tool(0, '{"a": 1}'), *tail("max_tokens"))
    assert (step.finish, step.raw_reason, codes(step)) == ("tool-calls", "max_tokens", ["finish-changed"])


def test_ids_that_stand_twice_are_told_apart_and_sent_so():
    """F02: the second call of one id gets its own, in the call and in the native form."""
    content = [{"toolUse": {"toolUseId": "t", "name": "f", "input": {"n": n}}} for n in (1, 2)]
    step = read_whole(document([{"reasoningContent": {"redactedContent": "AA=="}}, *content], "tool_use"))
    ids = [call.call_id for call in step.calls]
    assert len(set(ids)) == 2
    assert [block["toolUse"]["toolUseId"] for block in step.message.payload[1:]] == ids
    assert "call-id-changed" in codes(step)


def test_a_whole_call_goes_back_as_it_came():
    """F03: members that a later version adds beside a call are not lost."""
    content = [{"text": "a"}, {"text": "b"}, {"toolUse": {"toolUseId": "t", "name": "f", "input": {}}, "signed": "s"}]
    assert read_whole(document(content, "tool_use")).message.payload == content


EXCEPTIONS = {
    "throttlingException": ErrorClass.TRANSIENT,
    "modelStreamErrorException": ErrorClass.TRANSIENT,
    "internalServerException": ErrorClass.TRANSIENT,
    "modelTimeoutException": ErrorClass.TRANSIENT,
    "serviceUnavailableException": ErrorClass.UNAVAILABLE,
    "validationException": ErrorClass.INVALID,
}


@pytest.mark.parametrize("name", EXCEPTIONS)
def test_exceptions_inside_a_stream_have_their_class(name):
    """F01, F18: an exception as the first frame, after content or after the reason fails the reply, in its class."""
    failure = Frame(json.dumps({"message": "no luck"}).encode(), f"!{name}")
    said = frames(text("x"), stop(), tail()[0])
    for before in ([], said[:1], said):
        with pytest.raises(TierError, match="no luck") as caught:
            decode([*before, failure])
        assert (caught.value.error_class, caught.value.code) == (EXCEPTIONS[name], name)


def test_an_error_frame_fails_the_reply():
    """F01: a frame of message type error is an error too."""
    with pytest.raises(TierError, match="gone wrong"):
        decode([*frames(text("x")), Frame(b'{"message": "gone wrong"}', "!InternalError")])


def test_an_event_to_come_is_kept():
    """An event of an unknown type is native, and changes nothing else."""
    step = result(text("x"), stop(), ("hologram", {"a": 1}), *tail())
    assert (step.text, step.native) == ("x", (Native("bedrock-converse", "hologram", {"a": 1}),))
    alike = ("hologramDelta", {"contentBlockIndex": 0, "delta": {"text": "y"}})
    assert result(text("x"), alike, stop(), *tail()).text == "x"


@pytest.mark.parametrize(
    "events",
    [
        [text("x"), ("messageStart", {})],
        [start(0, toolUse={"toolUseId": "t", "name": "f"}), start(0, toolUse={"toolUseId": "t", "name": "f"})],
        [delta(0, toolUse={"input": "{}"})],
        [text("x"), delta(0, toolUse={"input": "{}"})],
        [text("x"), stop(), text("y")],
        [text("x"), stop(), tail()[0], text("y", 1)],
        [("contentBlockDelta", {"contentBlockIndex": "0", "delta": {"text": "x"}})],
        [("contentBlockDelta", {"contentBlockIndex": 0})],
        [("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": 7}})],
        [start(0, toolUse={"toolUseId": "t"})],
    ],
)
def test_frames_that_contradict_each_other_are_protocol_errors(events):
    """A stream that breaks its own rules fails, and nothing of it passes for an answer."""
    with pytest.raises(ProtocolError):
        result(*events, *tail())


@pytest.mark.parametrize("value", [{"output": {}}, {"output": {"message": {}}}, {"embedding": [1]}, [], "x"])
def test_a_document_that_is_no_reply_is_a_protocol_error(value):
    """F01: a JSON document without a message is no empty success."""
    with pytest.raises(ProtocolError):
        read_whole(value)


def test_a_block_without_content_is_nothing():
    """A block that ends without start or delta gives nothing."""
    assert result(stop(0), text("x", 1), stop(1), *tail()).text == "x"
