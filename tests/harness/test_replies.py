"""Replies kept as text: the same values, apart from one another, in less room."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from isthmus.harness import RunState
from isthmus.harness.replies import Replies

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), JSON, max_size=4), max_size=4))
def test_what_is_kept_comes_back(items: list[dict[str, Any]]) -> None:
    """Any plain values, to the last digit and character, by place, by slice and one after another."""
    kept = Replies(items)
    assert list(kept) == items
    assert kept == items
    assert [kept[place] for place in range(len(kept))] == items
    assert list(kept[1:]) == items[1:]
    assert list(kept + items) == [*items, *items]
    assert kept == Replies(kept)
    assert kept != [*items, {}]


def test_each_look_gives_a_copy() -> None:
    """Nobody changes what is kept, nor what was given; what has no plain form is kept as it is."""
    odd = object()
    given: list[Any] = [{"a": [1]}, {"odd": odd, "list": [1]}]
    kept = Replies(given)
    for look in (kept[0], kept[1], *kept):
        look["new"] = 1
    given[0]["a"].append(2)
    given[1]["list"].append(2)
    assert list(kept) == [{"a": [1]}, {"odd": odd, "list": [1]}]
    assert repr(kept) == "<2 replies>"


def test_a_copy_of_a_state_shares_the_text() -> None:
    """However long the conversation, its replies are not copied with it."""
    state = RunState(responses=[{"a": 1}])
    assert state.copy().responses._kept is state.responses._kept  # type: ignore[attr-defined]
