"""The table of limits and the effort field of seed 000."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from isthmus.models.capabilities import ModelCapabilities, apply_thinking, capabilities_from_limits

TABLE = {
    "claude": {"context_window": 200000, "max_output_tokens": 8192},
    "claude-sonnet-4-6": {"max_output_tokens": 64000, "adaptive_thinking": True},
}


def test_the_defaults_are_those_of_seed_000() -> None:
    """Seven fields with the documented defaults."""
    assert vars(ModelCapabilities()) == {
        "context_window": None,
        "max_output_tokens": None,
        "adaptive_thinking": True,
        "thinking_default_on": False,
        "thinking_disable": True,
        "cache_markers": True,
        "strict_tools": False,
    }


def test_the_longest_matching_key_wins_field_by_field() -> None:
    """Broad and specific entries merge; case doesn't matter; an entry that doesn't match says nothing."""
    caps = capabilities_from_limits("Claude-Sonnet-4-6-via-gateway", {**TABLE, "gpt": {"context_window": 1}})
    assert (caps.context_window, caps.max_output_tokens) == (200000, 64000)
    assert capabilities_from_limits("claude-x", TABLE).max_output_tokens == 8192
    assert capabilities_from_limits("other", TABLE) == ModelCapabilities()


def test_the_empty_key_is_the_default_of_all() -> None:
    """An empty key matches every model and loses to every other key."""
    table = {"": {"context_window": 5, "strict_tools": True}, **TABLE}
    assert capabilities_from_limits("other", table).context_window == 5
    assert capabilities_from_limits("claude", table).context_window == 200000
    assert capabilities_from_limits("", table).strict_tools


def test_the_table_beats_the_base() -> None:
    """What the table says overrides the base; what it doesn't say stays; the base is unchanged."""
    base = ModelCapabilities(context_window=1, thinking_default_on=True)
    caps = capabilities_from_limits("claude", TABLE, base=base)
    assert (caps.context_window, caps.thinking_default_on) == (200000, True)
    assert base.context_window == 1


@pytest.mark.parametrize(
    ("value", "count"), [("64000", 64000), (0, None), (-1, None), ("x", None), (None, None), ([], None), (1e400, None)]
)
def test_numbers_are_coerced_and_bad_ones_say_nothing(value: Any, count: int | None) -> None:
    """Strings of digits count; nothing below one token does."""
    assert capabilities_from_limits("m", {"m": {"context_window": value}}).context_window == count


@pytest.mark.parametrize(
    ("value", "flag"),
    [("false", False), ("0", False), ("no", False), (" Off ", False), ("", False), ("yes", True), (1, True)],
)
def test_booleans_may_be_strings(value: Any, flag: bool) -> None:
    """The words for no are no, all else is yes."""
    assert capabilities_from_limits("m", {"m": {"strict_tools": value}}).strict_tools is flag


@pytest.mark.parametrize("limits", [None, {}, {"m": 3}, {3: {}}, "m", {"m": {"unknown": 1}}])
def test_a_bad_table_never_raises(limits: Any) -> None:
    """What is no table is passed over."""
    assert capabilities_from_limits("m", limits) == ModelCapabilities()


@pytest.mark.parametrize("level", ["low", "medium", "high", "xhigh", "max"])
def test_a_named_level_asks_for_adaptive_thinking(level: str) -> None:
    """The level goes to output_config, beside what is there; max_tokens is left alone; the dict is returned."""
    kwargs = {"max_tokens": 5, "output_config": {"format": 1}}
    assert apply_thinking(kwargs, level) is kwargs
    assert kwargs == {
        "max_tokens": 5,
        "thinking": {"type": "adaptive"},
        "output_config": {"format": 1, "effort": level},
    }


@pytest.mark.parametrize("effort", ["off", "", None, "sometimes"])
@pytest.mark.parametrize(
    "caps",
    [
        None,
        ModelCapabilities(),
        ModelCapabilities(adaptive_thinking=False, thinking_default_on=True),
    ],
)
def test_off_sends_nothing_where_leaving_out_is_off(effort: Any, caps: ModelCapabilities | None) -> None:
    """Without capabilities, without default thinking, or where the endpoint takes no field: untouched."""
    assert apply_thinking({"a": 1}, effort, caps) == {"a": 1}


def test_off_is_explicit_where_the_model_thinks_by_itself() -> None:
    """A model that thinks by default is switched off."""
    caps = ModelCapabilities(thinking_default_on=True)
    assert apply_thinking({}, "off", caps) == {"thinking": {"type": "disabled"}}


def test_off_is_low_where_it_cannot_be_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    """A model that refuses to be switched off gets the lowest level, logged once a model."""
    caps = ModelCapabilities(thinking_default_on=True, thinking_disable=False)
    with caplog.at_level(logging.INFO, logger="isthmus.models.capabilities"):
        for _ in range(2):
            kwargs = apply_thinking({}, "off", caps, "stubborn-1")
    assert kwargs == {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}
    assert len(caplog.records) == 1
    assert "stubborn-1" in caplog.text
