"""Joining a continuation to what was said: nothing twice, nothing lost, whatever the pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.harness.joining import OVERLAP, Joiner, overlap


def join(said: str, pieces: list[str]) -> tuple[str, list[str]]:
    """The whole text, and what each piece made visible."""
    joiner = Joiner(said)
    shown = [joiner.feed(piece) for piece in pieces]
    shown.append(joiner.close())
    return said + "".join(shown), shown


@pytest.mark.parametrize(
    ("said", "continuation", "whole"),
    [
        ("The quick brown fox", " jumps.", "The quick brown fox jumps."),
        ("one two three", "three four", "one two three four"),
        ("one two", "two three", "one two three"),
        ("one tw", "two three", "one two three"),
        ("The quick brown fox jum", "fox jumps.", "The quick brown fox jumps."),
        ("It is the fox jum", "jumps.", "It is the fox jumps."),
        ("The answer", "The answer is 42.", "The answer is 42."),
        ("a list:\n- alpha\n", "- alpha\n- beta", "a list:\n- alpha\n- beta"),
        (
            "东京是日本的首都和最大的城市之一",
            "东京是日本的首都和最大的城市之一。",
            "东京是日本的首都和最大的城市之一。",
        ),
    ],
)
def test_a_repetition_is_said_once(said: str, continuation: str, whole: str) -> None:
    """Words that the continuation says again stand once, a word that was cut is completed."""
    assert join(said, [continuation])[0] == whole


@pytest.mark.parametrize(
    ("said", "continuation"),
    [
        ("hel", "lo"),
        ("10", "00"),
        ("1000000", "000000000"),
        ("0, 0, 0, ", "0, 0, 0]"),
        ("        }\n    }\n", "    }\n}\n"),
        ("    end\n", "  end\n"),
        ("banan", "ana"),
        ("a ", "a"),
        ("very very ", "ve"),
        ("said", ""),
    ],
)
def test_what_matches_by_chance_is_kept(said: str, continuation: str) -> None:
    """Letters, digits, brackets and short closers that only happen to be alike are never taken away."""
    assert join(said, [continuation])[0] == said + continuation


_texts = st.text("ab cd.\n1", max_size=40)


@given(_texts.filter(bool), st.lists(st.text("ab cd.\n1", max_size=6), max_size=12))
def test_the_pieces_do_not_matter(said: str, pieces: list[str]) -> None:
    """Any split of a continuation gives the same text, and what is left out is what `overlap` says."""
    whole = "".join(pieces)
    dropped = overlap(said, whole)
    joined, _ = join(said, pieces)
    assert joined == said + whole[dropped:]
    assert said.endswith(whole[:dropped])


_words = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=4, max_size=9), min_size=3, max_size=12, unique=True)


@given(_words, st.data())
def test_a_text_that_was_cut_anywhere_and_resumed_early_is_whole_again(words: list[str], data: st.DataObject) -> None:
    """Cut at any character and resumed at the start of one of its last words, in any pieces, a text comes out whole."""
    text = " ".join(words)
    starts = [0, *(index + 1 for index, char in enumerate(text) if char == " ")]
    cut = data.draw(st.integers(6, len(text)))
    again = data.draw(st.sampled_from([start for start in starts if start <= cut - 5] or [0]))
    rest = text[again:]
    marks = sorted(data.draw(st.sets(st.integers(0, len(rest)), max_size=6)))
    pieces = [rest[a:b] for a, b in zip([0, *marks], [*marks, len(rest)], strict=True)]
    assert join(text[:cut], pieces)[0] == text


def test_text_is_held_back_no_longer_than_needed() -> None:
    """A piece that repeats nothing passes at once, and after the decision every piece does."""
    _, shown = join("The quick brown fox", [" jumps", " over", "The quick"])
    assert shown == [" jumps", " over", "The quick", ""]


def test_what_is_held_back_is_bounded() -> None:
    """No more than a fixed number of characters is ever held back."""
    joiner = Joiner("word " * 1000)
    held = 0
    for _ in range(OVERLAP):
        said = joiner.feed("word ")
        held += 5
        if said:
            break
    assert 0 < held <= OVERLAP + 5


def test_without_anything_said_nothing_is_held_back() -> None:
    """The first call of a reply passes every piece as it is."""
    assert join("", ["a", "", "a"])[1] == ["a", "", "a", ""]
