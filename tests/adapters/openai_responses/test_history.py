"""Histories as input items: native once and verbatim, the rest by its neutral form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.adapters.openai_responses.history import render
from isthmus.errors import InvalidRequestError
from isthmus.models.events import NoteCode
from isthmus.models.internal import internal_message
from isthmus.models.jsontext import dumps
from isthmus.models.messages import assistant_message, tool_message
from support.responses_frames import call, message, read, reasoning, response

NATIVE = [{"type": "item_reference", "id": "msg_9"}]


def items(*messages: Any, stateless: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    """The items as they go out, and the notes' codes."""
    rendered, notes = render(messages, stateless=stateless)
    return json.loads(dumps(rendered)), [note.code for note in notes]


def test_roles() -> None:
    """System becomes developer, developer and user stay."""
    said = [{"role": role, "content": "x"} for role in ("system", "developer", "user")]
    assert items(*said)[0] == [{"role": role, "content": "x"} for role in ("developer", "developer", "user")]


def test_a_role_that_is_none_is_refused() -> None:
    """The place and the roles that there are are named."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].*tester.*system, developer"):
        items({"role": "tester", "content": "x"})


def test_a_reply_of_our_own_goes_back_as_its_items() -> None:
    """Items of turn 1 stand in the request of turn 2, verbatim and once; the neutral projection does not (F03)."""
    output = [reasoning(), message("Let me see."), call()]
    turn = assistant_message(read(response(*output)))
    sent, notes = items({"role": "user", "content": "q"}, turn, tool_message("call_1", "4"))
    assert sent[1:4] == output
    assert sent[4] == {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    assert len(sent) == 5
    assert notes == []


def test_a_turn_that_was_changed_is_said_by_its_neutral_form() -> None:
    """A stale native form is left out, with a note."""
    turn = {**assistant_message(read(response(message("A")))), "content": "B"}
    sent, notes = items(turn)
    assert sent[0]["content"] == [{"type": "output_text", "text": "B", "annotations": []}]
    assert notes == [NoteCode.NATIVE_STALE]


@pytest.mark.parametrize("role", ["user", "assistant", "developer", None])
def test_native_input_suppresses_the_projection(role: str | None) -> None:
    """`openai_responses_input` on any role, or on none, is sent as it is, once."""
    held = {"content": "not sent", "tool_calls": [], "openai_responses_input": NATIVE}
    assert items({**held, **({} if role is None else {"role": role})}) == (NATIVE, [])


def test_the_public_spelling_counts_where_both_are_there() -> None:
    """Items that a caller edited are sent as edited; unedited ones as they came, number texts and all."""
    text = json.dumps(response(message())).replace('"annotations": []', '"annotations": [], "v": 1.50')
    from support.responses_frames import Frame, decode, fold

    turn = assistant_message(fold(decode([Frame(text.encode())], whole=True)))
    output = json.loads(turn["_isthmus"]["native"]["json"])
    rendered, _ = render([{**turn, "openai_responses_input": output}], stateless=False)
    assert b'"v": 1.50' in dumps(rendered)
    edited = [{**output[0], "id": "msg_other"}]
    assert items({**turn, "openai_responses_input": edited})[0] == edited


def test_native_items_stand_among_messages() -> None:
    """A dict with a type and no role, and a message item, pass as they are."""
    item = {"type": "function_call_output", "call_id": "c", "output": "x"}
    assert items(*NATIVE, item, message("A"))[0] == [*NATIVE, item, message("A")]


def test_marks_of_this_library_are_taken_out() -> None:
    """Internal native items and messages reach the provider without their marks."""
    marked = [internal_message(one, origin="o") for one in (NATIVE[0], {"role": "user", "content": "x"})]
    held = {"role": "user", "openai_responses_input": [marked[0]]}
    sent, _ = items(*marked, held)
    assert sent == [*NATIVE, {"role": "user", "content": "x"}, *NATIVE]


@pytest.mark.parametrize("held", ["x", {"type": "y"}, ["x"], 3])
def test_native_input_must_be_a_list_of_dicts(held: Any) -> None:
    """The place is named."""
    with pytest.raises(InvalidRequestError, match="openai_responses_input"):
        items({"role": "user", "openai_responses_input": held})


def test_a_dict_that_is_neither_is_refused() -> None:
    """A message needs a role, a native item its type."""
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        items({"content": "x"})


def test_assistant_turns_of_others() -> None:
    """Text, refusal and calls of a neutral turn become items, with phase, status and id where they are given."""
    turn = {
        "role": "assistant",
        "content": [{"type": "text", "text": "A"}, {"type": "text", "text": ""}, {"type": "refusal", "refusal": "no"}],
        "phase": "commentary",
        "id": "msg_7",
    }
    made, _ = items(turn)
    assert made == [
        {
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "id": "msg_7",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "A", "annotations": []},
                {"type": "refusal", "refusal": "no"},
            ],
        }
    ]


def test_calls_of_others_follow_their_text() -> None:
    """The text first, then each call with its arguments as text; results pair by their id."""
    function = {"name": "look", "arguments": '{"x": 1}'}
    turn = {"role": "assistant", "content": "A", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    made, notes = items(turn, tool_message("c", "4", name="look"))
    assert [item["type"] for item in made] == ["message", "function_call", "function_call_output"]
    assert made[1] == {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"x": 1}'}
    assert notes == []


def test_turns_with_blocks_are_taken_apart() -> None:
    """`tool_use` and `tool_result` blocks become the same items (F14)."""
    turns = (
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "look", "input": {"x": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "4"}]},
    )
    made, _ = items(*turns)
    assert [item["type"] for item in made] == ["function_call", "function_call_output"]


def test_empty_turns_are_left_out() -> None:
    """An assistant's turn that says nothing is no item, with a note (F14)."""
    assert items({"role": "assistant", "content": ""}) == ([], [NoteCode.HISTORY_CHANGED])


def test_results_may_hold_images() -> None:
    """A result with parts is a list of input parts, where the API takes them."""
    parts = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
    ]
    (made,), _ = items(tool_message("c", parts))
    assert made["output"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGk="},
    ]


def test_the_result_of_a_programs_call_names_its_caller() -> None:
    """A call that a program made is answered with the caller that it came with."""
    caller = {"type": "program", "caller_id": "p1"}
    turn = assistant_message(read(response(call(caller=caller))))
    assert items(turn, tool_message("call_1", "4"))[0][-1]["caller"] == caller


def test_the_result_of_a_custom_call_is_one() -> None:
    """A result for a call of a custom tool is of that kind."""
    native = {"id": "c", "type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "select"}
    made, _ = items({"role": "assistant", "openai_responses_input": [native]}, tool_message("c1", "4"))
    assert made[-1] == {"type": "custom_tool_call_output", "call_id": "c1", "output": "4"}


def test_reasoning_that_nobody_stores_is_left_out() -> None:
    """Where nothing is stored, an item without encrypted content is left out and noted; others stay (F03)."""
    turn = assistant_message(read(response(reasoning(encrypted=None), reasoning("B", "X", "rs_2"), message())))
    sent, notes = items(turn, stateless=True)
    assert [item["id"] for item in sent] == ["rs_2", "msg_1"]
    assert notes == [NoteCode.HISTORY_CHANGED]
    assert len(items(turn)[0]) == 3


def test_what_has_no_place_is_noted() -> None:
    """A name, a failed tool's mark, and another provider's form."""
    _, notes = items({"role": "user", "content": "x", "name": "Ann"}, {**tool_message("c", "x"), "is_error": True})
    assert notes == [NoteCode.PARAMETER_DROPPED] * 2
    foreign = {"role": "assistant", "content": "x", "_isthmus": {"native": {"dialect": "other", "of": "", "json": "1"}}}
    assert items(foreign)[1] == [NoteCode.NATIVE_DROPPED]


def test_the_callers_messages_are_not_changed() -> None:
    """Nothing is written into a message, nor shared with what is sent."""
    held = {"role": "user", "openai_responses_input": [internal_message(NATIVE[0], origin="o")]}
    copy = json.loads(json.dumps(held))
    items(held)
    assert held == copy
