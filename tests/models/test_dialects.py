"""The dialects as data, and the names that each takes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.models.dialects import dialect, dialects, legal_name, legal_names

RULES = {
    "openai-strict": r"[a-zA-Z0-9_-]{1,64}",
    "anthropic": r"[a-zA-Z0-9_-]{1,128}",
    "bedrock": r"[a-zA-Z0-9_-]{1,64}",
    "gemini": r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
    "none": r"(?s:.*)",
}


def test_the_five_dialects_say_where_their_rules_are_from() -> None:
    """Every dialect names the API and the date of its rules, save the one that has none."""
    assert set(dialects()) == set(RULES)
    assert all(re.search(r"20\d\d-\d\d", each.source) for name, each in dialects().items() if name != "none")
    assert dialect("").name == "openai-strict"


def test_an_unknown_dialect_is_named_with_those_that_are() -> None:
    """A wrong name is refused with the right ones."""
    with pytest.raises(
        ValueError, match=r"dialect 'openai': there is none of that name; use one of none, openai-strict"
    ):
        dialect("openai")


@pytest.mark.parametrize("name", list(RULES))
@given(names=st.lists(st.text(st.characters(codec="utf-8"), max_size=150), max_size=6, unique=True))
def test_names_become_legal_and_come_back(name: str, names: list[str]) -> None:
    """F26: every name is sent under a legal one, and is found again by it."""
    made = legal_names(names, dialect=name)
    assert set(made.sent) == set(names)
    for each, legal in made.sent.items():
        assert name == "none" or re.fullmatch(RULES[name], legal)
        assert made.told[legal] == each
        assert legal_name(each, dialect=name) == legal


def test_a_legal_name_is_sent_as_it_is() -> None:
    """F26: what is legal is not touched, up to the length that the dialect takes."""
    assert legal_name("get-weather_2", dialect="openai-strict") == "get-weather_2"
    assert legal_name("x" * 64, dialect="openai-strict") == "x" * 64
    assert legal_name("x" * 65, dialect="anthropic") == "x" * 65
    assert len(legal_name("x" * 65, dialect="openai-strict")) == 64


class Named(str):
    """A text of a class of its own, as some libraries have them; JSON encoders refuse it."""


@pytest.mark.parametrize("rule", list(RULES))
def test_a_name_is_plain_text_whoever_used_it_first(rule: str) -> None:
    """A text of somebody's own class is sent as its letters, and stands for nobody else's name later on."""
    name = f"first_{rule.replace('-', '_')}"
    assert type(legal_name(Named(name), dialect=rule)) is str
    assert type(legal_name(name, dialect=rule)) is str
    assert legal_name(Named(name), dialect=rule) == name


def test_names_that_look_alike_stay_apart() -> None:
    """F26: names that are the same once cleaned get suffixes of their own, whatever stands beside them."""
    made = legal_names(["a b", "a.b", "a_b"], dialect="openai-strict")
    assert len(set(made.sent.values())) == 3
    assert made.sent["a_b"] == "a_b"
    assert made.sent["a b"] == legal_names(["a b"], dialect="openai-strict").sent["a b"]


def test_a_name_that_another_is_sent_as_is_refused() -> None:
    """F26: two names that would be sent alike are refused, naming one."""
    taken = legal_name("a b", dialect="openai-strict")
    with pytest.raises(ValueError, match="rename one"):
        legal_names(["a b", taken], dialect="openai-strict")
