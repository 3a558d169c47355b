"""A conversation as versioned plain JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.harness.errors import SnapshotError
from isthmus.harness.snapshot import AgentId, AgentSnapshot
from isthmus.harness.state import RunState
from isthmus.models import internal_message
from isthmus.models.events import Native, StepResult, Text
from isthmus.models.messages import assistant_message

ME = {"type": "scout", "key": "7"}
USER = {"role": "user", "content": "hi"}
HIDDEN = internal_message({"role": "user", "content": "files"}, origin="files")
VIEW = internal_message({"role": "user", "content": "sees"}, origin="ui", ephemeral=True)
THEN = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone(timedelta(hours=2)))


def _written(**changes: Any) -> str:
    plain = AgentSnapshot.capture(RunState(history=[USER]), agent_id=ME, created_at=THEN).to_dict()
    for path, value in changes.items():
        *above, last = path.split("__")
        place = plain
        for name in above:
            place = place[name]
        if value is KeyError:
            del place[last]
        else:
            place[last] = value
    return json.dumps(plain)


def test_the_form_of_version_1() -> None:
    """The text is plain JSON with these fields, and the time is in UTC."""
    state = RunState("be kind", [USER], [{"id": "r1"}], {"plan": [1]}, 2, 5, "t1")
    assert json.loads(AgentSnapshot.capture(state, agent_id=ME, created_at=THEN).to_json()) == {
        "schema_version": 1,
        "agent_id": {"type": "scout", "key": "7"},
        "revision": 5,
        "created_at": "2026-01-02T01:04:05.000678+00:00",
        "state": {
            "instructions": "be kind",
            "history": [USER],
            "responses": [{"id": "r1"}],
            "shim_state": {"plan": [1]},
            "turn_count": 2,
            "task_id": "t1",
        },
    }


def test_a_snapshot_survives_its_text() -> None:
    """What was written is read again: native forms with their exact texts, internal marks and all."""
    native = Native("acme", "message", json=b'{"signature":"a\\u0000b","n":1.10,"big":12345678901234567890123}')
    said = assistant_message(StepResult(events=(Text("A"),), native=(native,)))
    items = [HIDDEN, USER, said, {"type": "item_reference", "id": "i"}]
    snapshot = AgentSnapshot.capture(RunState(None, items, shim_state={"n": 10**30}), agent_id=ME)
    again = AgentSnapshot.from_json(snapshot.to_json())
    assert again == snapshot
    assert list(again.to_run_state().history) == items
    assert again.to_run_state().shim_state == {"n": 10**30}
    assert again.agent_id == AgentId("scout", "7")
    assert again.created_at.tzinfo is UTC


def test_ephemeral_context_is_in_no_snapshot() -> None:
    """Neither a capture nor a text that somebody wrote brings it in."""
    captured = AgentSnapshot.capture(RunState(history=[VIEW, USER]), agent_id=ME)
    assert captured.state["history"] == [USER]
    assert "sees" not in captured.to_json()
    assert AgentSnapshot.from_json(_written(state__history=[VIEW, USER])).state["history"] == [USER]


def test_two_restores_share_nothing() -> None:
    """F13: what one does to its state is seen neither by the other nor by the snapshot."""
    snapshot = AgentSnapshot.capture(RunState(history=[USER], shim_state={"plan": {"steps": []}}), agent_id=ME)
    one, two = snapshot.to_run_state(), snapshot.to_run_state()
    one.shim_state["plan"]["steps"].append(1)
    one.history[0]["content"] = "changed"
    snapshot.to_dict()["state"]["history"].clear()
    assert two.shim_state == {"plan": {"steps": []}}
    assert two.history == (USER,)
    assert snapshot.to_run_state().history == (USER,)


def test_unknown_fields_are_kept_and_mean_nothing() -> None:
    """A field from a later hand is no error, and stands in the text that is written again."""
    snapshot = AgentSnapshot.from_json(_written(colour={"r": 1}, state__mood="good"))
    assert snapshot.to_run_state() == RunState(history=[USER])
    again = json.loads(snapshot.to_json())
    assert (again["colour"], again["state"]["mood"]) == ({"r": 1}, "good")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema_version": 2}, "schema_version: 2"),
        ({"schema_version": "1"}, "schema_version: '1'"),
        ({"schema_version": True}, "schema_version: True"),
        ({"schema_version": KeyError}, "schema_version: is missing"),
        ({"agent_id": "x"}, "agent_id: must be an object"),
        ({"agent_id__key": 3}, "agent_id.key=3"),
        ({"agent_id__type": ""}, "agent_id.type=''"),
        ({"revision": -1}, "revision: must be"),
        ({"revision": 1.5}, "revision: must be"),
        ({"created_at": "2026-01-02T03:04:05"}, "time zone"),
        ({"created_at": "soon"}, "ISO 8601"),
        ({"created_at": 3}, "time zone"),
        ({"state": []}, "state: must be an object"),
        ({"state__history": KeyError}, "state.history: is missing"),
        ({"state__history": None}, "state.history: must be a list"),
        ({"state__history": [USER, "hi"]}, r"state.history\[1\]: must be an object"),
        ({"state__history": [{"content": "x"}]}, r"state.history\[0\].role"),
        ({"state__history": [{"role": 3}]}, r"state.history\[0\].role"),
        ({"state__history": [{**USER, "_isthmus": 1}]}, r"history\[0\]._isthmus: must"),
        ({"state__history": [{**USER, "_isthmus": {"visibility": "secret"}}]}, r"visibility: 'secret' is not known"),
        ({"state__history": [{**USER, "_isthmus": {"native": {"json": {}}}}]}, r"history\[0\]._isthmus.native"),
        ({"state__history": [{"role": "assistant", "tool_calls": "x"}]}, r"history\[0\].tool_calls"),
        ({"state__responses": [1]}, r"state.responses\[0\]"),
        ({"state__shim_state": [1]}, "state.shim_state: must be"),
        ({"state__shim_state": {"x": float("inf")}}, r"state.shim_state.x: inf"),
        ({"state__turn_count": "2"}, "state.turn_count"),
        ({"state__instructions": {"class": "x"}}, "state.instructions"),
        ({"state__task_id": 3}, "state.task_id"),
    ],
)
def test_what_is_not_understood_fails_closed(changes: dict[str, Any], said: str) -> None:
    """F13: an unknown version, a wrong type or a missing part is an error that names the place, never a guess."""
    with pytest.raises(SnapshotError, match=said) as caught:
        AgentSnapshot.from_json(_written(**changes))
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("text", ["", "[]", "{", b"\x80\x04N."], ids=["empty", "list", "cut", "pickle"])
def test_text_that_is_no_snapshot_is_refused(text: Any) -> None:
    """Other JSON, no JSON, and a pickle are errors; nothing is executed."""
    with pytest.raises(SnapshotError, match="snapshot"):
        AgentSnapshot.from_json(text)


def test_a_snapshot_needs_a_time_with_its_zone() -> None:
    """A naive time is refused, the default is now in UTC."""
    with pytest.raises(SnapshotError, match="created_at"):
        AgentSnapshot.capture(RunState(), agent_id=ME, created_at=datetime(2026, 1, 1))
    age = abs(datetime.now(UTC) - AgentSnapshot.capture(RunState(), agent_id=ME).created_at)
    assert age < timedelta(minutes=1)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _JSON, max_size=4), st.lists(st.text(), max_size=3))
def test_any_plain_state_survives_its_text(shims: dict[str, Any], texts: list[str]) -> None:
    """Whatever is plain JSON comes back equal."""
    state = RunState(history=[{"role": "user", "content": text} for text in texts], shim_state=shims)
    again = AgentSnapshot.from_json(AgentSnapshot.capture(state, agent_id=ME).to_json()).to_run_state()
    assert again == state
