"""Typed views of providers' own shapes."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.adapters.views import to_response
from isthmus.models import ReasoningPhase, get_reasoning_phase, get_usage_totals
from isthmus.models.accessors import UsageTotals
from isthmus.models.events import StepResult, Text, Usage
from isthmus.models.responses import ModelResponse, ModelStreamEvent
from isthmus.wire.frame import Frame
from isthmus.wire.sse import SSEParser
from support.corpus import REASON, corpus_root, recordings


def item_event(phase: Any, kind: str = "response.output_item.done", item: str = "message") -> dict[str, Any]:
    """An output-item event of the Responses API."""
    return {"type": kind, "output_index": 0, "item": {"type": item, "id": "msg_1", "phase": phase, "content": []}}


def as_object(data: Any) -> Any:
    """The same as an SDK shows it."""
    return SimpleNamespace(
        **{name: as_object(value) if isinstance(value, dict) else value for name, value in data.items()}
    )


FORMS = {
    "dict": lambda data: data,
    "object": as_object,
    "frame": lambda data: Frame(json.dumps(data).encode(), data["type"]),
    "frame without a type": lambda data: Frame(
        json.dumps({k: v for k, v in data.items() if k != "type"}).encode(), data["type"]
    ),
}


def phase_of(raw: Any) -> Any:
    """The phase that an event with this raw payload shows."""
    return get_reasoning_phase(ModelStreamEvent(kind="provider", raw=raw))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["response.output_item.added", "response.output_item.done"])
@pytest.mark.parametrize("phase", ["commentary", "final_answer"])
def test_the_phase_of_a_message_is_read_in_every_form_of_raw(form: str, kind: str, phase: str) -> None:
    """An SDK's object, a dict and an undecoded frame say the same."""
    assert phase_of(FORMS[form](item_event(phase, kind))) is ReasoningPhase(phase)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "event",
    [
        item_event("musing"),
        item_event(None),
        item_event(["commentary"]),
        item_event("commentary", "response.output_text.delta"),
        item_event("commentary", item="reasoning"),
    ],
)
def test_no_usable_phase_is_none(form: str, event: Any) -> None:
    """No output-item event, no message, no phase, an unknown phase: None, and nothing raises."""
    assert phase_of(FORMS[form](event)) is None


def test_the_sdks_own_event_is_read() -> None:
    """The event that the provider's SDK builds carries its phase as an attribute."""
    responses = pytest.importorskip("openai.types.responses")
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": []}
    data = {"type": "response.output_item.added", "output_index": 0, "sequence_number": 1}
    event = responses.ResponseOutputItemAddedEvent(**data, item={**message, "phase": "commentary"})
    assert phase_of(event) is ReasoningPhase.COMMENTARY


@given(st.binary(max_size=30), st.text(max_size=30))
def test_no_frame_makes_it_raise(data: bytes, name: str) -> None:
    """Whatever bytes a frame holds, the worst answer is None."""
    assert phase_of(Frame(b"output_item" + data, name)) is None
    assert phase_of(Frame(b'{"output_item":' * 3000 + data, name)) is None


@pytest.mark.parametrize("event", [None, 3, "x", ModelStreamEvent(kind="text_delta"), SimpleNamespace(raw=object())])
def test_what_is_no_such_event_has_no_phase(event: Any) -> None:
    """Anything may be asked."""
    assert get_reasoning_phase(event) is None


def test_the_totals_of_a_reply() -> None:
    """F11: prompt is input, cache reads and cache writes; completion is output; the total is both."""
    usage = Usage(input_tokens=1, cache_read_tokens=2, cache_write_tokens=4, output_tokens=8, reasoning_tokens=3)
    step = StepResult((Text("x"),), usage=usage)
    assert get_usage_totals(to_response(step)) == UsageTotals(7, 8, 15)
    assert get_usage_totals(step) == UsageTotals(7, 8, 15)


@pytest.mark.parametrize(
    "response",
    [
        None,
        ModelResponse(choices=[]),
        {"usage": None},
        {"usage": {}},
        {"usage": {"prompt_tokens": 3}},
        {"usage": {"prompt_tokens": True, "completion_tokens": "4"}},
        to_response(StepResult()),
    ],
)
def test_missing_usage_has_no_totals(response: Any) -> None:
    """A response or usage that is not there is None, which is not zero."""
    assert get_usage_totals(response) is None


def test_a_strangers_totals_are_read() -> None:
    """Objects and dicts of the Chat Completions shape; a total that is reported stands."""
    counts = {"prompt_tokens": 3, "completion_tokens": 4}
    assert get_usage_totals({"usage": counts}) == UsageTotals(3, 4, 7)
    assert get_usage_totals(SimpleNamespace(usage=SimpleNamespace(**counts, total_tokens=9))) == UsageTotals(3, 4, 9)


def test_the_seeds_block_of_accessors_runs() -> None:
    """Seed 004, "Typed accessors": the block runs as it is written, changed in its import alone."""
    event = ModelStreamEvent(kind="provider", raw=item_event("final_answer"))
    response = to_response(StepResult((Text("x"),), usage=Usage(input_tokens=1, output_tokens=2)))
    seen: list[Any] = []
    track = seen.append

    phase = get_reasoning_phase(event)
    if phase is ReasoningPhase.FINAL_ANSWER:
        track("final")

    totals = get_usage_totals(response)
    if totals is not None:
        track(totals.total_tokens)

    assert seen == ["final", 3]


@pytest.mark.skipif(corpus_root() is None, reason=REASON)
def test_the_phase_is_read_off_recorded_frames() -> None:
    """Over every frame of the recorded Responses streams, an undecoded frame says what its decoded dict says."""
    seen: set[Any] = set()
    for _, recording in recordings("openai-responses", stream=True, status=200):
        parser = SSEParser()
        for frame in [*parser.feed(recording.body), *parser.close()]:
            phase = phase_of(frame)
            seen.add(phase)
            if b"output_item" in frame.data:
                event = json.loads(frame.data)
                assert phase_of(event) is phase
                assert (event["item"].get("phase") or None) == (None if phase is None else phase.value)
            else:
                assert phase is None
    assert {None, ReasoningPhase.COMMENTARY, ReasoningPhase.FINAL_ANSWER} >= seen > {None}
