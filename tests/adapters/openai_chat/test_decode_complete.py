"""When a Chat Completions stream is complete, and what stands beside the reply."""

from __future__ import annotations

import json

import pytest

from isthmus.errors import TransientError
from support.chat_frames import chunk, sse, step, tc, whole


def test_a_framed_end_after_more_than_the_reason_is_a_cut() -> None:
    """F12: where no mark ends the stream, content after the last finish reason makes the end a cut."""
    first = tc(0, "a", "f", "{}")
    body = sse(
        chunk({"tool_calls": [first]}, finish="tool_calls"), chunk({"tool_calls": [tc(1, "b", "g", "{}")]}), done=False
    )
    with pytest.raises(TransientError):
        step([body])


def test_a_framed_end_within_another_choice_is_a_cut() -> None:
    """Where no mark ends the stream, a choice that was begun and not finished makes the end a cut."""
    other = {"index": 1, "delta": {"content": "B"}, "finish_reason": None}
    body = sse(chunk({"content": "A"}, finish="stop"), {**chunk(), "choices": [other]}, done=False)
    with pytest.raises(TransientError):
        step([body])


def test_diagnostics_are_noted_and_no_blocks() -> None:
    """What a server says of its own work stands in a note as JSON, streamed and whole alike."""
    said = {"timings": {"predicted_ms": 1.5}, "provider": "P"}
    streamed = step([sse(chunk({"content": "A"}), chunk(finish="stop", **said))])
    complete = whole({"choices": [{"index": 0, "message": {"content": "A"}, "finish_reason": "stop"}], **said})
    for seen in (streamed, complete):
        assert not seen.native
        assert [note.detail for note in seen.notes if note.code == "metadata"] == [
            json.dumps(said, separators=(",", ":"))
        ]


@pytest.mark.parametrize("text", ["", "a", "ä\u2028😀", "x" * 5000])
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "strange"])
def test_the_strict_path_of_a_whole_reply_agrees_with_the_general_one(text: str, reason: str) -> None:
    """F16: a reply of text alone folds to the same result whether or not a harmless field sends it the general way."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    message = {"role": "assistant", "content": text}
    plain = {"id": "r", "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": usage}
    general = {**plain, "choices": [{**plain["choices"][0], "delta": {}}]}  # type: ignore[dict-item]
    assert whole(plain) == whole(general)
