"""What a run hands back, as plain values."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import CutReason, TransientError
from isthmus.harness import DefaultAgent, RunResult
from isthmus.harness.outcome import Outcome
from isthmus.models import internal_message, is_ephemeral_message, is_internal_message
from isthmus.models.events import Native, Note, NoteCode, StepResult, Text, Usage
from isthmus.models.messages import assistant_message
from support.turns import Turns, asks, call, says

USER = {"role": "user", "content": "What now?"}
HIDDEN = internal_message({"role": "user", "content": "files: a.csv"}, origin="files")
VIEW = internal_message({"role": "user", "content": "sees a.csv"}, origin="ui", ephemeral=True)


def look() -> str:
    """Look."""
    return "seen"


async def test_ephemeral_context_is_in_every_call_of_its_run_and_in_nothing_after_it() -> None:
    """Each model call of the run, tool rounds included, receives it; the transcript and the next run do not."""
    model = Turns(asks(call("look")), says("A"), says("B"))
    agent = DefaultAgent(model=model, tools=[look])
    result = await agent.run([HIDDEN, VIEW, USER])
    assert [list(ctx.messages[:3]) for ctx in model.seen] == [[HIDDEN, VIEW, USER]] * 2
    assert [message["content"] for message in result.messages] == ["files: a.csv", "What now?", None, "seen", "A"]
    assert not any(is_ephemeral_message(message) for message in result.messages)
    await agent.run("more", result.messages)
    assert not any(is_ephemeral_message(message) for message in model.seen[2].messages)
    assert model.seen[2].messages[0] == HIDDEN


async def test_ephemeral_context_leaves_a_run_that_is_cut_too() -> None:
    """However a run ends, its outcome holds nothing that was for it alone."""
    model = Turns([Text("par"), TransientError("gone")])
    result = await DefaultAgent(model=model).run([VIEW, USER])
    assert result.outcome.outcome == "cut"
    assert [message["content"] for message in result.messages] == ["What now?", "par"]


async def test_the_callers_history_keeps_its_ephemeral_messages() -> None:
    """F22: the list that a run was given is not changed."""
    given = [HIDDEN, VIEW, USER]
    before = json.dumps(given)
    await DefaultAgent(model=Turns(says("A"))).run(given)
    assert json.dumps(given) == before


async def test_internal_messages_are_kept_in_history_and_left_out_of_dicts() -> None:
    """`messages` hold internal context; `to_dict` omits it by default and gives it on demand."""
    result = await DefaultAgent(model=Turns(says("A"))).run([HIDDEN, USER])
    assert is_internal_message(result.messages[0], "files")
    for shown in (result.to_dict(), result.outcome.to_dict()):
        assert [message["content"] for message in shown["messages"]] == ["What now?", "A"]
        assert json.loads(json.dumps(shown)) == shown
    everything = result.to_dict(include_internal=True)["messages"]
    assert everything == [dict(message) for message in result.messages]
    assert everything[0]["_isthmus"] == {"visibility": "internal", "origin": "files"}


async def test_native_items_without_a_role_pass_through_a_run() -> None:
    """An item without a role stands in the call and in the transcript as it is, marked or not."""
    item = {"type": "item_reference", "id": "i1"}
    marked = internal_message({"type": "note", "x": 1}, origin="memory")
    model = Turns(says("A"))
    result = await DefaultAgent(model=model).run([item, marked, USER])
    assert model.seen[0].messages == (item, marked, USER)
    assert result.messages[:2] == (item, marked)
    assert result.to_dict()["messages"][0] == item


def test_all_fields_of_an_outcome_are_plain() -> None:
    """Usage, notes and errors of both kinds are JSON values; changing the dict changes no message."""
    message = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    outcome = Outcome(
        outcome="cut",
        reason=CutReason.LENGTH,
        text="t",
        usage=Usage(input_tokens=1),
        messages=(message,),
        notes=(Note(NoteCode.HISTORY_CHANGED, "d"),),
        error=TransientError("gone", status=503),
    )
    shown = outcome.to_dict()
    assert json.loads(json.dumps(shown)) == shown
    assert shown["usage"]["input_tokens"] == 1
    assert shown["notes"] == [{"code": "history-changed", "detail": "d"}]
    assert (shown["error"]["class"], shown["error"]["status"]) == ("transient", 503)
    shown["messages"][0]["content"][0]["text"] = "changed"
    assert message["content"] == [{"type": "text", "text": "a"}]
    strange = Outcome(outcome="failed", error=RuntimeError("odd")).to_dict()
    assert (strange["error"]["class"], strange["error"]["message"]) == ("unclassified", "odd")


def test_a_reply_with_a_live_native_form_is_plain_in_a_dict() -> None:
    """The native form of a reply is in the dict as JSON, its live object nowhere."""

    reply = assistant_message(
        StepResult(events=(Text("x"),), native=(Native("d", "message", {"i": 1}, held=object()),))
    )
    shown = Outcome(outcome="completed", messages=(reply,)).to_dict()
    assert json.loads(json.dumps(shown))["messages"][0]["_isthmus"]["native"]["dialect"] == "d"


class Model(BaseModel):
    """A typed answer."""

    x: int


@dataclass
class Data:
    """Another."""

    x: int


@pytest.mark.parametrize("output", [Model(x=1), Data(x=1), {"x": 1}], ids=["pydantic", "dataclass", "dict"])
def test_a_typed_answer_is_plain_in_a_dict(output: Any) -> None:
    """The answer stands under `final_output` as JSON values, whatever type it has."""
    shown = RunResult(final_output=output, outcome=Outcome(outcome="completed")).to_dict()
    assert shown["final_output"] == {"x": 1}
    assert shown["outcome"] == "completed"
