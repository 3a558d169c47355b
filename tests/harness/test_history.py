"""The transcript stays valid whatever happens: calls and results in pairs, ids unique."""

from isthmus.harness.history import fresh_id, renamed, reply_message, with_id
from isthmus.models.events import Native, NoteCode, StepResult, Text, framed
from isthmus.models.messages import native_of
from isthmus.wire.frame import Frame
from support.turns import call


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
