"""Recorded replies of twelve servers: the laws, an independent reading, the official SDK's parse, the native items."""

from __future__ import annotations

import json
from functools import partial

import pytest

from isthmus.conformance import replay
from isthmus.errors import ProtocolError
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame
from support import responses_walk, sdk_reading
from support.corpus import REASON, Row, corpus_root, load, rows
from support.corpus_reasons import reason_for
from support.corpus_report import check
from support.cuts import codec
from support.responses_walk import events_of

API = "openai-responses"
ROWS = rows(API)
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not ROWS, reason=REASON)]


def _sampled(step: int) -> list[Row]:
    return ROWS[::step]


def _whole(row: Row) -> list[dict[str, object]]:
    """The response of a stream, as its last event has it."""
    ends = ("response.completed", "response.incomplete")
    return [event["response"] for event in events_of(load(row).body) if event.get("type") in ends]


def test_every_reply_is_read_as_the_plain_walk_reads_it() -> None:
    """All of them: text, calls, output tokens and every output item, in order and equal as JSON; errors are errors."""
    root = corpus_root()
    assert root is not None
    read = 0
    for row in ROWS:
        recording = load(row)
        result = replay(root / row.path, adapter=API)
        try:
            walked = responses_walk.walk(recording.body, stream=row.stream)
        except (ValueError, KeyError):
            walked = None
        if recording.status != 200 or walked is None or walked.error:
            assert result.error is not None, row.path
            continue
        read += 1
        assert result.error is None, row.path
        assert result.text == walked.text, row.path
        assert [(made.tool, made.input) for made in result.calls] == walked.calls, row.path
        assert (result.usage.output_tokens if result.usage else None) == walked.output, row.path
        assert result.message is not None, row.path
        assert result.message.payload == walked.items, row.path
    assert read >= 230


@pytest.mark.parametrize("row", _sampled(9), ids=lambda row: row.path)
def test_a_sample_holds_the_laws(row: Row) -> None:
    """Any split gives the same events, no cut a smaller success, and the SDK's parse of the same bytes agrees."""
    checked = check(row, quick=True)
    assert [fault for fault in checked.faults if reason_for(row.path, fault) is None] == []


def test_a_stream_is_its_own_last_response() -> None:
    """Each recorded stream folds to what its last response says whole; items that it leaves out excepted."""
    compared = 0
    for row in [row for row in ROWS if row.stream and row.status == 200]:
        root = corpus_root()
        assert root is not None
        for response in _whole(row)[:1]:
            if not response["output"]:
                continue
            decoder, fold = codec(API).decoder(whole=True), Fold()
            fold.extend(decoder.feed(Frame(json.dumps(response).encode())))
            fold.extend(decoder.close(Ended.FRAMED))
            one, other = fold.result(), replay(root / row.path, adapter=API)
            compared += 1
            for name in ("text", "calls", "finish", "raw_reason", "reasoning", "usage"):
                assert getattr(one, name) == getattr(other, name), (row.path, name)
    assert compared >= 100


def test_every_error_reply_has_one_class() -> None:
    """Each recorded status other than 200 is classified, and its words are kept."""
    seen = set()
    for row in [row for row in ROWS if row.status != 200]:
        root = corpus_root()
        assert root is not None
        error = replay(root / row.path, adapter=API).error
        assert error is not None
        assert error.message
        seen.add((row.status, str(error.error_class)))
    assert seen == {
        (400, "credentials"),
        (400, "invalid"),
        (400, "overflow"),
        (400, "unavailable"),
        (401, "credentials"),
        (429, "credentials"),
    }


def test_the_sdk_reads_what_we_read() -> None:
    """The official SDK can parse every reply that we can, so that it is a judge of all of them."""
    unread = []
    for row in _sampled(5):
        recording = load(row)
        if recording.status != 200 or replay_fails(row):
            continue
        try:
            sdk_reading.read(API, recording, stream=row.stream)
        except sdk_reading.Unreadable as error:
            unread.append((row.path, str(error)))
    assert unread == []


def replay_fails(row: Row) -> bool:
    """Whether our own reading is an error."""
    root = corpus_root()
    assert root is not None
    return replay(root / row.path, adapter=API).error is not None


def test_a_deleted_response_is_no_reply() -> None:
    """The answer to another of the API's calls is "protocol"."""
    row = next(row for row in ROWS if row.path.endswith("responses-delete"))
    root = corpus_root()
    assert root is not None
    assert isinstance(partial(replay, adapter=API)(root / row.path).error, ProtocolError)
