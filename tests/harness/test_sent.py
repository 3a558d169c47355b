"""The last request as it was sent, and the one that goes on from it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from isthmus.errors import InvalidRequestError
from isthmus.harness.effects import CallModel
from isthmus.harness.limits import Limits
from isthmus.harness.loopstate import LoopState
from isthmus.harness.reports import Prepared
from isthmus.harness.sent import Sent, check_kept
from isthmus.models import Tools
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, StepResult, Text
from isthmus.models.responses import ModelStreamEvent

HI = {"role": "user", "content": "Hi"}
ADDED = {"role": "user", "content": "Turn 1"}
FOCUS = {"role": "user", "content": "Focus"}


def stands(*messages: Any, replied: int = 0) -> LoopState:
    """A run with this transcript."""
    state = LoopState(request=GenerateContext(), tools=Tools(), limits=Limits(), messages=messages)
    return changed(state, replied=replied)


def asks(*messages: Any, how: str, options: Any = ()) -> CallModel:
    """A call that goes on."""
    return CallModel(GenerateContext(messages=messages, options=dict(options)), continues=how)


def result(call_id: str, content: str = "seen") -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_a_successor_has_the_request_and_the_reply_as_they_were() -> None:
    """What was added for one call, the reply's own words, the input; and the request's own terms."""
    sent = Sent(GenerateContext(messages=(HI, ADDED), options={"effort": "low"}), 1)
    step = StepResult(events=(Text("eries"), Finish("stop")))
    sent = sent.replied(step, ModelStreamEvent(kind="completed", input_messages=[FOCUS]), taken=(), length=3)
    state = stands(HI, {"role": "assistant", "content": "Batteries"}, FOCUS)
    on = sent.going_on(asks(*state.messages, how="automatic", options={"effort": "high"}), state=state)
    assert on.ctx.messages == (HI, ADDED, {"role": "assistant", "content": "eries"}, FOCUS)
    assert on.ctx.options == {"effort": "low"}


def test_results_go_under_the_providers_ids_and_by_the_calls_own_terms() -> None:
    """As shims made them for this call; the input that was applied stands before them."""
    sent = Sent(GenerateContext(messages=(HI,)), 1)
    step = StepResult(events=(Call("look", {}, "c1", "{}"), Finish("tool-calls")))
    sent = sent.replied(step, ModelStreamEvent(kind="completed"), taken=("c1",), length=2)
    state = stands(HI, {"role": "assistant", "content": None}, result("c1_2"), replied=2)
    shown = (HI, result("c1_2", "short"), ADDED)
    on = sent.going_on(asks(*shown, how="explicit", options={"effort": "high"}), state=state)
    assert on.ctx.messages[-1] == result("c1", "short")
    assert on.ctx.options == {"effort": "high"}
    joined = on.joined([FOCUS], state=state)
    assert joined.ctx.messages[-2:] == (FOCUS, result("c1", "short"))
    assert joined.length == on.length + 1


def test_a_reply_that_said_nothing_leaves_nothing() -> None:
    """The provider has no item of it either."""
    sent = Sent(GenerateContext(messages=(HI,)), 1)
    said = ModelStreamEvent(kind="completed", input_messages=[FOCUS])
    assert sent.replied(StepResult(), said, taken=(), length=2).ctx.messages == (HI, FOCUS)


def turn(*messages: Any) -> Prepared:
    """A turn that was prepared."""
    return Prepared(messages=messages, tools=Tools(), brief="", options={})


@pytest.mark.parametrize("how", ["automatic", "explicit"])
def test_a_turn_that_goes_on_keeps_its_history(how: str) -> None:
    """An equal copy is the same; any other turn may change it."""
    state = changed(stands(HI), continues=how)
    check_kept(state, turn(dict(HI)))
    check_kept(stands(HI), turn(FOCUS))
    with pytest.raises(InvalidRequestError, match="a shim must leave it as it is"):
        check_kept(state, turn(FOCUS))
