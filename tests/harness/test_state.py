"""What an agent knows between two runs."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.errors import InvalidRequestError
from isthmus.harness.errors import SnapshotError
from isthmus.harness.state import RunState
from isthmus.models import PromptSpec, PromptTemplate, internal_message
from isthmus.models.messages import LiveForm

USER = {"role": "user", "content": "hi"}
VIEW = internal_message({"role": "user", "content": "sees a"}, origin="ui", ephemeral=True)


def test_an_empty_state_is_the_beginning_of_a_conversation() -> None:
    """The defaults say that nothing was said, counted or committed."""
    state = RunState()
    assert (state.instructions, list(state.history), list(state.responses), state.shim_state) == (None, [], [], {})
    assert (state.turn_count, state.revision, state.task_id) == (0, 0, None)


def test_a_state_shares_nothing_with_what_it_was_made_from() -> None:
    """F13: changing the lists and dicts that were given, or those of a copy, changes no other state."""
    given = [{"role": "user", "content": [{"type": "text", "text": "x"}]}]
    shims = {"plan": {"steps": [1]}}
    state = RunState("be kind", given, [{"id": "r"}], shims, 3, 2)
    twin = state.copy()
    given[0]["content"][0]["text"] = "changed"  # type: ignore[index]
    shims["plan"]["steps"].append(2)
    twin.shim_state["plan"]["steps"].append(9)
    twin.history[0]["content"].clear()
    assert state.history[0]["content"] == [{"type": "text", "text": "x"}]
    assert state.shim_state == {"plan": {"steps": [1]}}
    assert (twin.instructions, twin.turn_count, twin.revision) == ("be kind", 3, 2)


def test_a_live_object_stays_beside_its_native_form() -> None:
    """The author's own reply still hangs on the message of a copy."""
    held = object()
    message = {"role": "assistant", "content": "a", "_isthmus": {"native": LiveForm.of({"dialect": "x"}, held)}}
    assert RunState(history=[message]).copy().history[0]["_isthmus"]["native"].held is held


def test_what_was_for_one_run_is_no_part_of_the_lasting_state() -> None:
    """A state that was made by hand may hold ephemeral context for its run; `lasting` and `to_dict` have none."""
    state = RunState(history=[VIEW, USER])
    assert state.history == (VIEW, USER)
    assert state.lasting().history == (USER,)
    assert state.to_dict()["history"] == [USER]


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"instructions": 3}, TypeError, "instructions"),
        ({"history": "hi"}, TypeError, "history"),
        ({"history": [USER, 3]}, InvalidRequestError, r"history\[1\]"),
        ({"shim_state": []}, TypeError, "shim_state"),
        ({"turn_count": -1}, ValueError, "turn_count=-1"),
        ({"revision": True}, ValueError, "revision=True"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], error: type[Exception], said: str) -> None:
    """What is no state is refused when it is made, and the error names the field."""
    with pytest.raises(error, match=said):
        RunState(**fields)


def _looped() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["self"] = [value]
    return value


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"history": [{"role": "user", "content": [{"data": b"x"}]}]}, r"history\[0\]\.content\[0\]\.data: a bytes"),
        ({"shim_state": {"x": {1, 2}}}, r"shim_state\.x: a set"),
        ({"shim_state": {"x": {3: 4}}}, r"shim_state\.x: a key must be a string, not 3"),
        ({"shim_state": {"x": float("nan")}}, r"shim_state\.x: nan"),
        ({"shim_state": {"x": object()}}, r"shim_state\.x: a object"),
        ({"instructions": PromptSpec(PromptTemplate(system_template="x"))}, "instructions: a prompt"),
        ({"history": [PromptSpec(PromptTemplate(user_template="x"))]}, r"history\[0\]: a PromptSpec"),
    ],
)
def test_what_has_no_plain_json_form_fails_closed(fields: dict[str, Any], said: str) -> None:
    """F13: nothing is stored as something else; the error names the place."""
    with pytest.raises(SnapshotError, match=said):
        RunState(**fields).to_dict()


def test_a_value_that_holds_itself_fails_closed() -> None:
    """A circle is refused, whoever closed it after the state was made."""
    state = RunState()
    state.shim_state["x"] = _looped()
    with pytest.raises(SnapshotError, match=r"shim_state\.x\.self\[0\]: holds itself"):
        state.to_dict()
