"""How a run ends, and the reason that an error gives for it."""

from __future__ import annotations

import pytest

from isthmus.errors import CutReason, ModelBehaviorError, TransientError
from isthmus.harness.effects import Done
from isthmus.harness.endings import cut_reason, end, failure_reason
from isthmus.harness.history import UNKNOWN
from isthmus.harness.limits import Limits
from isthmus.harness.loopstate import LoopState
from isthmus.models import Tools
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call


def test_an_end_says_what_of_the_calls_nobody_knows() -> None:
    """In the transcript and in the notes of the outcome."""
    state = LoopState(
        request=GenerateContext(),
        tools=Tools(),
        limits=Limits(),
        messages=({"role": "user", "content": "Hi"},),
        ids=frozenset({"c1"}),
        running=(Call("look", {}, "c1", "{}"),),
    )
    state, (done,) = end(state, "cut", reason=CutReason.ABORTED, text="so far")
    assert isinstance(done, Done)
    assert (done.outcome.outcome, done.outcome.reason, done.outcome.text) == ("cut", "aborted", "so far")
    assert done.outcome.messages[-1]["content"] == UNKNOWN
    assert [note.detail for note in done.outcome.notes] == ["the result of 'c1' (look) was not awaited"]
    assert state.running == ()


@pytest.mark.parametrize(
    ("error", "reason"), [(TransientError("x"), "transient"), (KeyError("x"), "unclassified")], ids=repr
)
def test_a_failure_gives_its_class_as_the_reason(error: Exception, reason: str) -> None:
    """One without a class is unclassified."""
    assert failure_reason(error) == reason
    assert cut_reason(error) is None


def test_an_error_may_bring_the_reason_of_a_cut() -> None:
    """Only one of the words for that; whatever else is called so is not taken."""
    error = ModelBehaviorError("x")
    error.reason = CutReason.BUDGET_STEPS  # type: ignore[attr-defined]
    assert cut_reason(error) is CutReason.BUDGET_STEPS
    error.reason = "else"  # type: ignore[attr-defined]
    assert (cut_reason(error), cut_reason(None)) == (None, None)
