"""The transcript stays valid whatever happens: calls and results in pairs, ids unique."""

from typing import Any

from isthmus.harness.history import UNKNOWN, fresh_id, paired, renamed, reply_message, with_id
from isthmus.models.events import Native, NoteCode, StepResult, Text, framed
from isthmus.models.messages import native_of, tool_message
from isthmus.wire.frame import Frame
from support.turns import call


def asking(*ids: str) -> dict[str, Any]:
    """An assistant message with calls."""
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


USER = {"role": "user", "content": "hi"}


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    """F07: the answer that is put in says that the outcome is unknown, stands in its place, and is noted."""
    given = (USER, asking("a", "b"), tool_message("b", "2"), USER, asking("c"))
    kept, notes = paired(given)
    assert kept == (
        USER,
        given[1],
        given[2],
        tool_message("a", UNKNOWN),
        USER,
        given[4],
        tool_message("c", UNKNOWN),
    )
    assert [note.code for note in notes] == [NoteCode.HISTORY_CHANGED] * 2
    assert len(given) == 5


def test_results_that_nobody_asked_for_are_left_out() -> None:
    """F07: a result without a call and a second result of a call are dropped with a note, a real one never."""
    given = (tool_message("x", "0"), USER, asking("a"), tool_message("a", "1"), tool_message("a", "again"))
    kept, notes = paired(given)
    assert kept == (USER, asking("a"), tool_message("a", "1"))
    assert len(notes) == 2


def test_a_valid_transcript_is_left_alone() -> None:
    """The very messages come back, native items without a role among them."""
    given = (USER, asking("a"), {"type": "item_reference", "id": "i"}, tool_message("a", "1"), USER)
    kept, notes = paired(given)
    assert notes == ()
    assert all(ours is theirs for ours, theirs in zip(kept, given, strict=True))


def test_ids_that_are_taken_are_renamed_the_same_way_each_time() -> None:
    """A new id is not one of the transcript's nor of the reply's own."""
    calls = [call("f", "a"), call("f", "a_2"), call("f", "b")]
    assert renamed(calls, {"a"}) == {"a": "a_2", "a_2": "a_2_2"}
    assert fresh_id("a", {"a", "a_2"}) == "a_3"
    assert renamed(calls, {"z"}) == {}


def test_a_renamed_call_keeps_its_frame() -> None:
    """What a call was decoded from stays at hand under the new id."""
    frame = Frame(b"{}")
    assert with_id(framed(call("f", "a"), frame), "b").raw is frame


def test_a_reply_keeps_its_native_form_only_unchanged() -> None:
    """The native form hangs on a reply as it came; on a joined or renumbered one it is left out with a note."""
    native = Native("d", "message", {"x": 1})
    step = StepResult(events=(Text("b"), call("f", "a")), finish="tool-calls", native=(native,))
    message, notes = reply_message(step, "b", calls=step.calls)
    assert message is not None
    assert (native_of(message, "d")[0], notes) == (native, ())
    for text, calls in (("ab", step.calls), ("b", (call("f", "a_2"),))):
        message, notes = reply_message(step, text, calls=calls)
        assert message is not None
        assert "_isthmus" not in message
        assert [note.code for note in notes] == [NoteCode.NATIVE_DROPPED]


def test_a_reply_with_nothing_in_it_leaves_nothing() -> None:
    """F14: an empty reply adds no message."""
    assert reply_message(StepResult(), "", calls=()) == (None, ())
