"""Turns begin where the user speaks, and hold calls and results together in any spelling."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from isthmus.chain.turns import call_and_result_ids, divided, joints, lasts, with_results
from isthmus.models.internal import internal_message
from support.transcripts import blocks, call, items, pairs, result, said, transcripts, user


def _turns(*messages: Any) -> list[tuple[int, int]]:
    return [(turn.start, turn.stop) for turn in divided(messages).turns]


def test_a_turn_begins_where_the_user_speaks() -> None:
    """Each user message begins a turn that lasts to the next one."""
    assert _turns(user(), said(), user(), call("1"), result("1"), said()) == [(0, 2), (2, 6)]
    assert _turns(said(), user(), said()) == [(0, 1), (1, 3)]


@pytest.mark.parametrize("answered", [blocks("1"), items("1"), [call("1"), result("1")]])
def test_a_result_belongs_to_its_call_in_any_spelling(answered: list[Any]) -> None:
    """A result in a user message or an item of a provider begins no turn."""
    assert _turns(user(), *answered, said()) == [(0, 4)]
    assert divided([user(), *answered]).results == (2,)


def test_a_call_that_is_answered_later_holds_its_turns_together() -> None:
    """Where the user speaks between a call and its result, no turn begins there."""
    assert _turns(user(), call("1"), user(), result("1"), user()) == [(0, 4), (4, 5)]


def test_context_right_before_the_users_words_is_theirs() -> None:
    """Internal messages begin no turn; those right before the user's words belong to that turn."""
    inside = internal_message(user("files"), origin="files")
    assert _turns(user(), said(), inside, user(), inside, said()) == [(0, 2), (2, 6)]


def test_instructions_and_what_belongs_to_the_run_last() -> None:
    """System and developer messages and ephemeral ones outlast their turn; other internal ones do not."""
    assert lasts({"role": "system", "content": "x"})
    assert lasts({"role": "developer", "content": "x"})
    assert lasts(internal_message(user(), origin="clock", ephemeral=True))
    assert not lasts(internal_message(user(), origin="files"))
    assert not lasts(user())


@pytest.mark.parametrize("message", [result("1"), blocks("1")[1], items("1")[1]])
def test_a_result_is_replaced_in_any_spelling(message: dict[str, Any]) -> None:
    """Only what the tool gave is replaced; its id and all else stay, and the message given is not changed."""
    before = str(message)
    made = with_results(message, lambda content: "gone")
    assert "gone" in str(made)
    assert "found" not in str(made)
    assert pairs([made]) == pairs([message])
    assert str(message) == before


@given(transcripts())
def test_turns_cover_everything_once_and_part_no_pair(messages: list[dict[str, Any]]) -> None:
    """The turns are all messages in order, and each has as many results as calls."""
    form = divided(messages)
    assert [at for turn in form.turns for at in turn] == list(range(len(messages)))
    for turn in form.turns:
        calls, answers = pairs([messages[at] for at in turn])
        assert calls == answers


@pytest.mark.parametrize("answered", [blocks("1"), items("1"), [call("1"), result("1")]])
def test_a_transcript_may_be_cut_within_a_turn(answered: list[Any]) -> None:
    """Before any message but a result: between two rounds of one turn, too."""
    assert joints([user(), *answered, *answered, said(), user()]) == (1, 3, 5, 6)
    assert joints([]) == joints([user()]) == ()


def test_what_belongs_to_one_reply_is_not_cut() -> None:
    """A paused reply and how it goes on, and native items up to the result, stay together."""
    assert joints([user(), said(), said(), user()]) == (1, 3)
    assert joints([user(), {"type": "reasoning", "summary": []}, *items("1"), said()]) == (1, 4)


@given(transcripts())
def test_no_joint_parts_a_call_from_its_result(messages: list[Any]) -> None:
    """On each side of each joint every result has its call and every call its result, as far as the whole has."""
    for at in joints(messages):
        before, after = (
            [{each for message in side for each in call_and_result_ids(message)[kind]} for kind in (0, 1)]
            for side in (messages[:at], messages[at:])
        )
        assert not before[0] & after[1]
