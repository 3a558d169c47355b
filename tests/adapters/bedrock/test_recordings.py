"""Every recorded reply of Bedrock, against botocore's own parse and a plain walk of the same bytes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.conformance import conform, replay
from isthmus.errors import TierError
from isthmus.models.messages import assistant_message
from isthmus.wire.call import Ended
from isthmus.wire.eventstream import EventStreamParser
from support import bedrock_reading as reading
from support.anthropic_fold import user
from support.bedrock_kit import codes, decode, read_body, request
from support.corpus import Row, corpus_root, load, rows
from support.wirecorpus import needs_corpus

pytestmark = pytest.mark.corpus

APIS = tuple(reading.OPERATIONS)
NO_TEXT = ("rig-embeddings", "rubyllm-embedding")
FINISHES = {
    **dict.fromkeys(("end_turn", "stop_sequence", "stop", "complete", "finish", "endoftext"), "stop"),
    **dict.fromkeys(("max_tokens", "length"), "length"),
    **dict.fromkeys(("guardrail_intervened", "content_filtered"), "content-filter"),
}
OWN = Path(__file__).resolve().parents[2] / "recordings" / "bedrock"


def good() -> list[tuple[str, Row, bytes]]:
    """Api, row and body of each recorded reply that holds one."""
    found = [(api, row) for api in APIS for row in rows(api) if row.status == 200]
    return [(api, row, load(row).body) for api, row in found if not any(name in row.path for name in NO_TEXT)]


def said(row: Row):
    """What the library makes of a recording."""
    root = corpus_root()
    assert root is not None
    return replay(root / row.path)


@needs_corpus
def test_each_reply_is_what_botocore_and_a_plain_walk_say():
    """Text, calls, reasoning, finish and usage of each recording equal botocore's parse and a walk over plain JSON."""
    pytest.importorskip("botocore")
    for api, row, body in good():
        step = said(row)
        assert step.error is None, (row.path, step.error)
        for found in (reading.documents(body, stream=row.stream), reading.by_botocore(api, body)):
            other = reading.read(found)
            assert (step.text, step.reasoning) == (other.text, other.reasoning), row.path
            assert [(call.tool, call.input) for call in step.calls] == other.calls, row.path
            expected = "tool-calls" if other.calls else FINISHES.get((other.finish or "").lower(), "other")
            assert step.finish == expected, row.path
            usage = step.usage
            assert (usage.output_tokens if usage else None) == other.output, row.path
            if other.usage[0] is not None:
                buckets = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
                assert buckets == other.usage[:3], row.path


@needs_corpus
def test_each_recorded_error_has_its_class():
    """F18: every recorded status other than 200 is one classified error."""
    classes = {400: {"invalid", "unavailable", "overflow"}, 403: {"credentials"}, 404: {"unavailable"}}
    seen = Counter()
    for api in APIS:
        for row in rows(api):
            if row.status != 200:
                error = said(row).error
                assert error is not None, row.path
                assert str(error.error_class) in classes.get(row.status, {"unavailable"}), row.path
                seen[row.status] += 1
    assert seen == {400: 12, 403: 8, 404: 1, 503: 1}


@needs_corpus
def test_embeddings_and_damage_are_errors():
    """F01: a document without any reply, and a stream whose frame is damaged, never pass for an answer."""
    root = corpus_root()
    assert root is not None
    without = [row for api in APIS for row in rows(api) if any(name in row.path for name in NO_TEXT)]
    assert len(without) == 3
    assert all(said(row).error.error_class == "protocol" for row in without)
    (damaged,) = (root / "_authored" / "bedrock").iterdir()
    assert replay(damaged).error.error_class == "protocol"


@needs_corpus
def test_a_cut_at_any_byte_is_never_a_smaller_success():
    """F01: cut at sampled bytes and ended in each way: an error, or the whole result but for what came after it."""
    chance = random.Random(5)
    for _, row, body in good():
        if not row.stream or "titan-invoke-stream-guardrail" in row.path:
            continue
        full = said(row)
        for at in chance.sample(range(len(body)), min(10, len(body))):
            for ended in Ended:
                try:
                    step = read_body(body[:at], ended=ended)
                except TierError:
                    continue
                assert (step.text, step.calls, step.reasoning) == (full.text, full.calls, full.reasoning), (
                    row.path,
                    at,
                )
                assert (step.native, step.finish) == (full.native, full.finish), (row.path, at)


@needs_corpus
def test_any_split_of_the_bytes_gives_the_same_events():
    """F06: sampled splits give the same events as one piece."""
    chance = random.Random(6)
    for _, row, body in good():
        if not row.stream or len(body) > 60_000:
            continue
        once = decode(EventStreamParser().feed(body))
        cuts = sorted(chance.sample(range(len(body)), min(20, len(body))))
        parser, found = EventStreamParser(), []
        for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True):
            found += parser.feed(body[start:end])
        assert decode(found) == once, row.path


@needs_corpus
def test_each_native_form_goes_back_as_it_came():
    """F03: each Converse reply stands in the next request, but for blank texts and unsigned reasoning at its end."""
    seen = 0
    for api, row, body in good():
        if "converse" not in api:
            continue
        step = said(row)
        content = reading.read(reading.documents(body, stream=row.stream)).content
        if step.message is not None:
            seen += 1
            assert step.message.payload == content, row.path
        if not step.text and not step.calls:
            continue
        sent = request(user(), assistant_message(step), user("go on"))[0]["messages"][1]["content"]
        kept = [block for block in content if block.get("text", "x").strip()]
        if "reasoningContent" in kept[-1] and "signature" not in kept[-1]["reasoningContent"]["reasoningText"]:
            kept = kept[:-1]
        assert sent == kept, row.path
    assert seen > 25


@pytest.mark.parametrize("case", sorted(path.name for path in OWN.iterdir()))
def test_our_own_recordings(case):
    """The recordings in the checkout decode the same in one piece and byte by byte."""
    once, split = replay(OWN / case), replay(OWN / case, split=1)
    assert once.to_dict() == split.to_dict()
    assert (once.error is None) == (case not in ("busy", "exception"))
    assert codes(once) == []


def test_the_adapter_conforms():
    """The conformance kit finds nothing in the adapter, over our own recordings."""
    report = asyncio.run(conform(BedrockAdapter, recordings=OWN))
    assert report.ok, report.table()


@needs_corpus
def test_the_kit_finds_nothing_over_recorded_invoke_model():
    """F01, F03, F06, F16: each law holds over the 75 recorded replies of InvokeModel, of all families and statuses."""
    root = corpus_root()
    assert root is not None
    places = sorted((root / "bedrock").glob("invoke-*"))
    assert len(places) == 75

    def adapter(*, transport: Any, api_key: str = "", max_tokens: int = 100) -> BedrockAdapter:
        model = "anthropic.claude-3-7-sonnet-20250219-v1:0"
        settings = {"transport": transport, "api_key": api_key, "max_tokens": max_tokens}
        return BedrockAdapter(model=model, aws_region="us-east-1", **settings)

    report = asyncio.run(conform(adapter, recordings=places))
    assert report.ok, report.table()
    assert {report.standing(f"wire-{law}") for law in ("reads", "split", "cut", "status", "native")} == {"pass"}
