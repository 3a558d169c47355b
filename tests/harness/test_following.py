"""What a transcript becomes by steered input, and by calls that run while replies go on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace as changed

from isthmus.errors import ModelBehaviorError
from isthmus.harness.following import (
    answered,
    begun,
    followed,
    joined,
    left_out,
    resumed,
    terms,
    unanswered,
    uncertain,
)
from isthmus.harness.history import UNKNOWN, Said
from isthmus.harness.limits import Limits
from isthmus.harness.loopstate import LoopState
from isthmus.harness.reports import Prepared, Replied
from isthmus.models import Tools, as_tool
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Finish, StepResult, Text
from isthmus.models.executor import ToolResult
from isthmus.models.responses import ModelStreamEvent

HI, FOCUS = {"role": "user", "content": "Hi"}, {"role": "user", "content": "Focus"}
CALL = Call("look", {}, "c1", "{}")


@as_tool
async def look() -> str:
    """Look."""
    return "seen"


@as_tool
async def other() -> str:
    """Look elsewhere."""
    return "seen"


def stands(**more: Any) -> LoopState:
    """A run at its beginning."""
    tools = Tools([look, other], tool_call_limits={"look": 1, "other": 2}, tool_call_max_retries=3, tool_choice="look")
    return changed(LoopState(request=GenerateContext(), tools=tools, limits=Limits(), messages=(HI,)), **more)


def prepared(*messages: Any, tools: Tools) -> Prepared:
    """A turn."""
    return Prepared(messages=messages, tools=tools, brief="", options={})


def test_input_stands_behind_the_reply_and_before_results() -> None:
    """By a successor after its reply; by an explicit continuation where the last reply ended."""
    event = ModelStreamEvent(kind="completed", continuation="automatic", input_messages=[FOCUS])
    step = StepResult(events=(Text("Yes"), Finish("stop")))
    state = followed(stands(), Replied(step, Said("Yes", "Yes"), continued=event))
    assert (state.messages[-1], state.continues) == (FOCUS, "automatic")
    state = joined(changed(state, messages=(*state.messages, HI), replied=2), [FOCUS])
    assert state.messages == (HI, {"role": "assistant", "content": "Yes"}, FOCUS, FOCUS, HI)
    assert state.replied == 3


def test_a_successor_of_a_reply_with_calls_is_a_fault() -> None:
    """Their results could go nowhere."""
    step = StepResult(events=(CALL, Finish("tool-calls")))
    with pytest.raises(ModelBehaviorError, match="look"):
        followed(stands(), Replied(step, Said(), continued=ModelStreamEvent(kind="completed")))


def test_a_successor_has_fewer_tools_and_never_more() -> None:
    """With their limits, and a choice that is still there."""
    state = resumed(stands(), prepared(HI, tools=Tools([other], tool_choice="other")))
    assert [tool.name for tool in state.tools.normalized_tools] == ["other"]
    assert state.tools.tool_choice == "other"
    state = resumed(stands(tools=Tools([look])), prepared(HI, tools=stands().tools))
    assert [tool.name for tool in state.tools.normalized_tools] == ["look"]
    assert state.tools.tool_call_limits == {"look": 1}


def test_a_call_takes_its_place_and_gives_it_back() -> None:
    """When it begins; where it never came to its handler, or waits for a decision."""
    state = begun(stands(), CALL)
    assert (state.used["look"], state.called, state.running) == (1, 1, (CALL,))
    with pytest.raises(ModelBehaviorError, match="look"):
        begun(state, CALL)
    assert terms(state).tool_call_max_retries == 0
    assert left_out(state, CALL).used.get("look", 0) == 0
    never = answered(state, [ToolResult("c1", "look", "no", "invalid-arguments"), ToolResult("c9", "look", "no", "ok")])
    assert (never.running, never.messages[-1]["content"]) == ((), "no")
    assert never.used["look"] == 0
    assert answered(state, [ToolResult("c1", "look", "seen", "ok")]).used["look"] == 1


def test_what_nobody_awaited_is_unknown_and_what_runs_is_not_made_up() -> None:
    """A call that stands in the transcript gets an answer that says so; a repair makes none for one that still runs."""
    state = changed(begun(stands(), CALL), ids=frozenset({"c1"}))
    over = uncertain(state)
    assert (over.messages[-1]["content"], over.running) == (UNKNOWN, ())
    assert uncertain(changed(state, ids=frozenset())).messages == (HI,)
    assert unanswered(state, (HI, over.messages[-1])) == (HI,)
