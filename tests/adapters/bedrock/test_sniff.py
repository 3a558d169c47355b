"""Which dialect a reply is in, and the chunks of InvokeModel."""

from __future__ import annotations

import json

import pytest

from isthmus.errors import ProtocolError, TierError, TransientError
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support.anthropic_fold import delta as piece
from support.anthropic_fold import head, start, stop, tail
from support.bedrock_kit import codes, decode, document, folded, read_body, read_whole
from support.bedrock_reading import chunk, message

METRICS = {"amazon-bedrock-invocationMetrics": {"inputTokenCount": 3, "outputTokenCount": 4}}
MESSAGE = [head(), start(0, {"type": "text", "text": ""}), piece(0, "text_delta", text="hi"), stop(0), *tail()]


def streamed(*values, ended=Ended.FRAMED):
    """The reply that chunks of these documents amount to."""
    return read_body(b"".join(map(chunk, values)), ended=ended)


def test_chunks_of_messages():
    """The Messages dialect inside chunks is decoded as at its own endpoint, whatever else the last one holds."""
    step = streamed(*MESSAGE[:-1], {**MESSAGE[-1], **METRICS})
    assert (step.text, step.finish, step.usage.output_tokens, step.notes) == ("hi", "stop", 9, ())


def test_chunks_of_converses_events():
    """Converse's events inside chunks, each under its name, are decoded as Converse's own."""
    step = streamed(
        {"messageStart": {"role": "assistant"}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "hi"}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        {"messageStop": {"stopReason": "end_turn"}},
        {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2}}, **METRICS},
    )
    assert (step.text, step.usage.output_tokens, step.native) == ("hi", 2, ())


def test_chunks_of_chat_completions():
    """Chat Completions inside chunks ends with its reason, and Bedrock's metrics are no part of it."""
    said = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    step = streamed(said, end, METRICS)
    assert (step.text, step.finish, step.native) == ("hi", "stop", ())


FORMS = {
    "outputText": {"outputText": "hi", "completionReason": "FINISH", "totalOutputTextTokenCount": 4.0},
    "results": {"results": [{"outputText": "hi", "completionReason": "FINISH"}], "inputTextTokenCount": 3},
    "generation": {"generation": "hi", "stop_reason": "stop", "generation_token_count": 4},
    "generations": {"generations": [{"text": "hi", "finish_reason": "COMPLETE"}, {"text": "ho"}]},
    "outputs": {"outputs": [{"text": "hi", "stop_reason": "stop"}]},
    "completion": {"completion": "hi", "stop_reason": "stop_sequence"},
    "completions": {"completions": [{"data": {"text": "hi"}, "finishReason": {"reason": "endoftext"}}]},
    "choices": {"choices": [{"text": "hi", "finish_reason": "stop"}]},
    "text": {"text": "hi", "finish_reason": "COMPLETE"},
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_completed_text(form):
    """Every form of completed text is read, streamed and whole, with its reason."""
    whole, stream = read_whole(FORMS[form]), streamed({**FORMS[form], **METRICS})
    assert (whole.text, whole.finish) == (stream.text, stream.finish) == ("hi", "stop")
    assert stream.usage.output_tokens == 4


def test_text_of_several_generations_is_the_first():
    """Other generations of one prompt are left out with a note."""
    pieces = [{"index": n % 2, "is_finished": False, "text": f"{n}"} for n in range(4)]
    step = streamed(*pieces, {"finish_reason": "MAX_TOKENS", "is_finished": True, **METRICS})
    assert (step.text, step.finish, codes(step)) == ("02", "length", ["extra-choices"])


def test_a_guardrail_on_completed_text_is_a_content_filter():
    """F20: a blocked prompt has neither reason nor metrics: a framed end completes it, any other cuts it."""
    blocked = {"outputText": "Input blocked", "amazon-bedrock-guardrailAction": "INTERVENED"}
    assert streamed(blocked).finish == "content-filter"
    with pytest.raises(TransientError):
        streamed(blocked, ended=Ended.BROKEN)


def test_completed_text_that_was_cut():
    """F01: text without a reason and without metrics is cut, however it ended."""
    for ended in Ended:
        with pytest.raises(TransientError, match="cut"):
            streamed({"generation": "hi", "stop_reason": None}, ended=ended)


@pytest.mark.parametrize("value", [{"embedding": [0.1]}, {"results": []}, {"outputs": [{"image": "x"}]}])
def test_a_reply_without_text_is_a_protocol_error(value):
    """F01: what holds no reply, as an embedding, is no empty success."""
    with pytest.raises(ProtocolError):
        read_whole(value)


def test_an_exception_among_chunks_keeps_the_usage():
    """F01: an exception after content fails the reply, and carries the tokens known so far."""
    body = b"".join(map(chunk, MESSAGE[:3])) + message("throttlingException", {"message": "slow"}, "exception")
    with pytest.raises(TierError, match="slow") as caught:
        read_body(body)
    assert (str(caught.value.error_class), caught.value.usage.input_tokens) == ("transient", 7)


@pytest.mark.parametrize("data", [b"", b"{}", b'{"bytes": 1}', b'{"bytes": "%"}', b"no json"])
def test_a_chunk_that_cannot_be_unwrapped_is_a_protocol_error(data):
    """F01: a chunk without base64 is malformed, never skipped."""
    with pytest.raises(ProtocolError):
        decode([Frame(data, "chunk")])


def test_nothing_at_all_is_a_cut():
    """F01: a stream without a frame is cut, never an empty reply."""
    with pytest.raises(TransientError, match="nothing came"):
        read_body(b"")


def test_what_a_reply_is_decides_how_it_is_read():
    """Either codec reads either dialect, streamed or whole."""
    message_value = {"type": "message", "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn"}
    for value in (document([{"text": "hi"}]), message_value):
        assert folded(decode([Frame(json.dumps(value).encode())], whole=True)).text == "hi"


@pytest.mark.parametrize(("reason", "finish"), [("length", "length"), ("stop", "stop"), (None, "other")])
def test_a_reason_by_its_other_name_is_one(reason, finish):
    """`stop_reason` in the choices of chat and of completed texts is their finish: a cut is never a stop (F12)."""
    chat = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "stop_reason": reason}]}
    texts = {"choices": [{"text": "hi", "stop_reason": reason}]}
    for value in (chat, texts):
        assert (read_whole(value).text, read_whole(value).finish) == ("hi", finish)
    chunks = [{"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": None, "stop_reason": None}]}]
    chunks += [{"choices": [{"index": 0, "delta": {}, "stop_reason": reason}], **METRICS}]
    if reason:
        step = streamed(*chunks)
        assert (step.text, step.finish, step.raw_reason) == ("hi", finish, reason)
