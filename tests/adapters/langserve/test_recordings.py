"""Recorded replies of real servers, ours and those beside the checkout, under the laws."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from isthmus.conformance import replay
from isthmus.models.events import StepResult
from support.corpus import REASON, Row, corpus_root, load, rows
from support.langserve_peer import RECORDINGS
from support.langserve_walk import walk

OWN = sorted(RECORDINGS.iterdir())
APIS = ("langserve-invoke", "langserve-stream_events")
CORPUS = [row for api in APIS for row in rows(api)]
needs_corpus = pytest.mark.skipif(corpus_root() is None, reason=REASON)


def own(case: str) -> StepResult:
    """One of our own recordings."""
    return replay(next(folder for folder in OWN if folder.name == case))


@pytest.mark.parametrize("folder", OWN, ids=lambda folder: folder.name)
def test_our_recordings_are_what_a_plain_reading_says(folder: Path) -> None:
    """Each recording is known by its path, and says what a JSON walk of it says, in pieces of any size."""
    meta, data = json.loads((folder / "response.meta.json").read_text()), (folder / "response.body").read_bytes()
    step = replay(folder)
    failed = meta["status"] != 200 or (meta["stream"] and b"event: error" in data)
    assert (step.error is not None) == failed
    if not failed:
        walked = walk(data, stream=meta["stream"])
        assert (step.text, [(call.tool, call.input) for call in step.calls]) == (walked.text, walked.calls)
        assert step.raw_reason == walked.finish
    for size in (1, 7, 64):
        assert same(replay(folder, split=size), step)


def same(one: StepResult, other: StepResult) -> bool:
    """Whether two results say the same."""
    return one.to_dict() == other.to_dict()


@pytest.mark.parametrize("case", ["chain-text", "agent", "two-models"])
def test_streamed_and_whole_replies_say_the_same(case: str) -> None:
    """Promise 3: the text of a stream and of a body of the same runnable are equal."""
    assert own(f"{case}-streamed").text == own(f"{case}-whole").text == "It is sunny in Rome."


def test_a_failure_after_the_first_piece_keeps_it() -> None:
    """F01: a model that fails in the middle is an error-post reply with what had arrived."""
    step = own("failing-model-streamed")
    assert (step.finish, step.text) == ("error-post", "Let me ")
    assert step.error is not None
    assert str(step.error.error_class) == "transient"


@pytest.mark.corpus
@needs_corpus
@pytest.mark.parametrize("row", CORPUS, ids=lambda row: row.path.rpartition("--")[2])
def test_each_recorded_reply(row: Row) -> None:
    """F01, F06, F12: each recording is what a plain reading says, in any pieces, and no cut is a smaller success."""
    root = corpus_root()
    assert root is not None
    folder, recording = root / row.path, load(row)
    step = replay(folder)
    walked = walk(recording.body, stream=row.stream) if row.status == 200 else None
    assert (step.error is not None) == (walked is None or walked.error)
    if walked is not None and not walked.error:
        assert step.text == walked.text
        assert step.raw_reason == walked.finish
        assert (step.usage and step.usage.output_tokens) == walked.output
        # LangChain completes what was cut at the limit: such a call is none.
        expected = [] if walked.finish == "length" else walked.calls
        assert [(call.tool, call.input) for call in step.calls] == expected
    sizes = (1, random.Random(row.path).randrange(2, 400))
    assert all(same(replay(folder, split=size), step) for size in sizes)


@pytest.mark.corpus
@needs_corpus
def test_each_recorded_error_is_one_classified_error() -> None:
    """F18: each recorded status has its class, and the message tells what the body says."""
    classes = {404: "invalid", 422: "invalid", 500: "transient"}
    for row in CORPUS:
        if row.status != 200:
            root = corpus_root()
            assert root is not None
            error = replay(root / row.path).error
            assert error is not None
            assert (str(error.error_class), error.status) == (classes[row.status], row.status)
            assert error.message
