"""Every recorded reply of this dialect, against a second reading of the same bytes."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.anthropic.decode import MessagesDecoder
from isthmus.errors import ProtocolError, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.messages import assistant_message
from isthmus.wire.call import Ended, WireReply
from isthmus.wire.frame import Frame
from isthmus.wire.sse import SSEParser
from support.anthropic_corpus import frames, is_document, load, need_rows
from support.anthropic_fold import decode, folded, user
from support.anthropic_walk import walk

pytestmark = pytest.mark.corpus

SPLICED = "messages-sse--ai-spliced-message-start"
"""A fixture with two replies run into one; it is no reply."""


def good_replies():
    """Path and body of each recorded reply that is one, those written by hand upstream too."""
    for row in (*need_rows(), *need_rows("_authored")):
        if row.status == 200 and not row.path.endswith(SPLICED):
            yield row.path, load(row).body


def read(body, ended=Ended.FRAMED):
    """The result of a body."""
    return folded(decode(frames(body), whole=is_document(body), ended=ended))


def read_each_way(body):
    """The results of a body that has ended in each way; an error is none. What fails before its end fails in each."""
    fed = frames(body)
    for ended in Ended:
        decoder = MessagesDecoder(whole=is_document(body))
        try:
            events = [event for frame in fed for event in decoder.feed(frame)]
        except TierError:
            return
        with suppress(TierError):
            yield folded([*events, *decoder.close(Ended.FRAMED if decoder.done else ended)])
        if decoder.done:
            return


def sent_back(step):
    """The assistant blocks of the request after a reply."""
    ctx = GenerateContext(messages=(user(), assistant_message(step), user("go on")))
    body = json.loads(MessagesCodec("m").encode(ctx, stream=False).call.body)
    return [block for turn in body["messages"] if turn["role"] == "assistant" for block in turn["content"]]


def test_each_recorded_reply_is_what_a_second_reading_says():
    """Text, reasoning, calls, finish and output tokens of each recording equal those of a plain JSON walk."""
    for path, body in good_replies():
        step, walked = read(body), walk(frames(body))
        assert step.text == walked.text, path
        assert step.reasoning == walked.reasoning, path
        assert [(call.tool, call.call_id, call.input) for call in step.calls] == walked.calls, path
        assert (step.raw_reason, step.finish) == (walked.stop_reason, walked.finish), path
        assert step.usage is not None
        assert step.usage.output_tokens == walked.output_tokens, path


def test_each_recorded_error_is_one_classified_error():
    """F18: each recorded status other than 200 has its class."""
    classes = {400: ("invalid", "overflow"), 401: ("credentials",), 404: ("unavailable",), 429: ("transient",)}
    for row in need_rows():
        if row.status != 200:
            reply = load(row)
            error = MessagesCodec("m").classify(WireReply(reply.status, reply.headers, reply.body))
            assert str(error.error_class) in classes[row.status], row.path
            assert error.message


def test_two_replies_run_into_one_are_a_protocol_error():
    """F01: a second message_start among the blocks of a first reply fails, and nothing of either passes."""
    (row,) = [row for row in need_rows("_authored") if row.path.endswith(SPLICED)]
    with pytest.raises(ProtocolError, match="twice"):
        read(load(row).body)


def test_native_forms_hold_the_content_of_the_whole_reply():
    """F03, F16: the native form of each recording equals its content blocks, rebuilt independently."""
    seen = 0
    for path, body in good_replies():
        step = read(body)
        if step.message is not None:
            seen += 1
            assert step.message.payload == walk(frames(body)).content, path
    assert seen > 80


def test_each_recorded_reply_goes_back_as_it_came():
    """F03: reply, history, next request: the assistant turn holds the reply's blocks, but for empty texts."""
    for path, body in good_replies():
        blocks = [b for b in walk(frames(body)).content if b["type"] != "text" or b["text"].strip()]
        assert sent_back(read(body)) == blocks, path


def test_a_cut_at_any_frame_or_byte_is_never_a_smaller_success():
    """F01: cut at every frame's end and at sampled bytes, ended in each way: an error or the whole result."""
    chance = random.Random(7)
    for path, body in good_replies():
        full = read(body)
        ends = [at + 2 for at in range(len(body)) if body.startswith(b"\n\n", at)]
        near = range(max(0, len(body) - 40), len(body))
        for at in {*ends[-25:], *ends[:5], *near, *chance.sample(range(len(body)), min(12, len(body)))}:
            for step in read_each_way(body[:at]):
                assert (step.text, step.calls, step.reasoning) == (full.text, full.calls, full.reasoning), (path, at)
                assert (step.native, step.finish) == (full.native, full.finish), (path, at)


def split_events(body, cuts):
    """The events of a streamed body that arrives in these pieces."""
    parser, found = SSEParser(), []
    for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
        found += parser.feed(body[start:end])
    return decode([*found, *parser.close()])


def test_any_split_of_the_bytes_gives_the_same_events():
    """F06: recorded network reads, single bytes and sampled splits give the same events as one piece."""
    chance = random.Random(11)
    for path, body in good_replies():
        if is_document(body) or len(body) > 60_000:
            continue
        once = split_events(body, [])
        plans = [sorted(chance.sample(range(len(body)), min(20, len(body) - 1))) for _ in range(3)]
        if len(body) < 4000:
            plans.append(list(range(1, len(body))))
        for plan in plans:
            assert split_events(body, plan) == once, path


def test_a_reply_of_one_frame_and_of_many_share_a_decoder():
    """Promise 3: a recorded whole reply, fed as the one event of a stream, gives the same events."""
    for path, body in good_replies():
        if is_document(body):
            assert decode([Frame(body, "message")]) == decode([Frame(body)], whole=True), path
