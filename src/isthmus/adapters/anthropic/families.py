"""What is known of thinking in each family of models; a user's own table of limits goes before it."""

from __future__ import annotations

from collections.abc import Mapping

_OMITTED_IS_OFF: Mapping[str, bool] = {"thinking_default_on": False}
_THINKS: Mapping[str, bool] = {"thinking_default_on": True, "thinking_disable": True}
_ALWAYS_THINKS: Mapping[str, bool] = {"thinking_default_on": True, "thinking_disable": False}

# The page on custom adapters names these.
_FIRST = {
    "opus-4": _OMITTED_IS_OFF,
    "sonnet-4": _OMITTED_IS_OFF,
    "sonnet-5": _THINKS,
    "opus-5": _THINKS,
    "fable": _ALWAYS_THINKS,
}
# Found since, in a later release of the console that the page is about.
_LATER = {
    "haiku-4": {"adaptive_thinking": False},
    "opus-5-5": _ALWAYS_THINKS,
}

FAMILIES: Mapping[str, Mapping[str, bool]] = {**_FIRST, **_LATER}
"""Part of a model's id → fields of its capabilities, the longest part first; Messages API, 2026-11."""
