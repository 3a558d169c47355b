"""Ids for calls without one, and for the results that answer them."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.models.events import Note
from isthmus.models.pairing import Pairing


def call(name: str, call_id: Any = None) -> dict[str, Any]:
    """A call of a history."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def said(*calls: dict[str, Any]) -> dict[str, Any]:
    """A turn of the model."""
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(**members: Any) -> dict[str, Any]:
    """A tool's message."""
    return {"role": "tool", "content": "r", **members}


def paired(*messages: dict[str, Any]) -> tuple[list[dict[str, Any]], list[Note]]:
    """The history as it goes on."""
    notes: list[Note] = []
    pairing = Pairing(notes)
    return [dict(pairing.turn(message, f"messages[{at}]")) for at, message in enumerate(messages)], notes


def ids(messages: list[dict[str, Any]]) -> list[Any]:
    """The ids of calls and results, in order."""
    return [each for m in messages for each in ([c["id"] for c in m.get("tool_calls", ())] or [m.get("tool_call_id")])]


def test_a_history_with_ids_is_handed_back_as_it_is() -> None:
    """Nothing is copied, changed or noted where every call and result has its id."""
    notes: list[Note] = []
    pairing = Pairing(notes)
    history = [{"role": "user", "content": "Hi"}, said(call("f", "a")), result(tool_call_id="a"), {"type": "reasoning"}]
    assert all(pairing.turn(message, "m") is message for message in history)
    assert notes == []


@pytest.mark.parametrize("empty", [None, ""])
def test_results_answer_calls_in_order(empty: Any) -> None:
    """Calls without ids get one each, noted; results without one take them in turn."""
    found, notes = paired(said(call("f", empty), call("g", empty)), result(tool_call_id=empty), result())
    assert ids(found) == ["call_0", "call_1", "call_0", "call_1"]
    assert [(str(note.code), note.detail) for note in notes] == [
        ("call-id-made", "messages[0].tool_calls[0]: the id call_0 was made"),
        ("call-id-made", "messages[0].tool_calls[1]: the id call_1 was made"),
    ]


def test_a_result_with_a_name_answers_the_call_of_that_name() -> None:
    """Out of order, the name tells; one that no open call has falls back to the order."""
    found, _ = paired(said(call("f"), call("g"), call("h")), result(name="g"), result(name="?"), result())
    assert ids(found) == ["call_0", "call_1", "call_2", "call_1", "call_0", "call_2"]


def test_results_with_an_id_are_out_of_the_way() -> None:
    """A result that names its call leaves the others to those that name none."""
    found, _ = paired(said(call("f", "a"), call("f", "b")), result(tool_call_id="a"), result())
    assert ids(found) == ["a", "b", "a", "b"]


def test_an_id_twice_in_one_message_is_made_two() -> None:
    """The second call gets another id, and so does the second result; in another message the id may come again."""
    found, notes = paired(
        said(call("f", "a"), call("g", "a")),
        result(tool_call_id="a"),
        result(tool_call_id="a"),
        said(call("f", "a")),
        result(tool_call_id="a"),
    )
    assert ids(found) == ["a", "call_1", "a", "call_1", "a", "a"]
    assert [note.detail for note in notes] == ["messages[0].tool_calls[1]: the id call_1 was made"]


def test_a_made_id_is_nobody_elses() -> None:
    """An id that the history uses is passed over, and none is made twice."""
    found, _ = paired(said(call("f"), call("g", "call_0"), call("h")), result(), said(call("f")), result())
    assert len({*ids(found)}) == 4
    assert ids(found)[3] == ids(found)[0]
    assert ids(found)[4] == ids(found)[5]


def test_the_legacy_form_is_a_call_and_a_result() -> None:
    """`function_call` and role "function" take today's form; text beside them stays."""
    legacy = {"role": "assistant", "content": "So.", "function_call": {"name": "f", "arguments": "{}"}}
    found, _ = paired(legacy, {"role": "function", "name": "f", "content": "r"})
    function = {"name": "f", "arguments": "{}"}
    assert found == [
        {
            "role": "assistant",
            "content": "So.",
            "tool_calls": [{"type": "function", "function": function, "id": "call_0"}],
        },
        {"role": "tool", "name": "f", "content": "r", "tool_call_id": "call_0"},
    ]
    assert "tool_calls" not in legacy


def test_a_result_that_answers_nothing_stays() -> None:
    """Without an open call a result is left as it is, for its reader to refuse."""
    found, _ = paired(result(), said(call("f", "a")), result(tool_call_id="a"), result())
    assert ids(found) == [None, "a", "a", None]


def test_what_is_no_call_at_all_passes_on() -> None:
    """A call without a function, or with a number for its id, is its reader's to refuse."""
    found, _ = paired(said({"function": "f"}, {"id": 5}), result(tool_call_id=5), result())
    assert ids(found) == ["call_1", 5, 5, "call_1"]


def test_an_empty_legacy_call_is_none() -> None:
    """A `function_call` without a name, which some servers send beside text, calls nothing."""
    message = {"role": "assistant", "content": "Hi", "function_call": {"name": "", "arguments": ""}}
    assert paired(message)[0] == [message]


def test_what_has_ids_counts_once_something_has_none() -> None:
    """The calls before one without an id have theirs, and those of them that wait are answered in order."""
    first, second = call("f", "call_0"), call("f", "call_1")
    messages, _ = paired(said(first, second), result(tool_call_id="call_1"), result(), said(call("g")), result())
    assert ids(messages) == ["call_0", "call_1", "call_1", "call_0", "call_2", "call_2"]
