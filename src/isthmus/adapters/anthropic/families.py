"""What is known of thinking in each family of models; a user's own table of limits goes before it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

FAMILIES: Mapping[str, Mapping[str, bool]] = MappingProxyType(
    {
        "haiku-4": {"adaptive_thinking": False},
        "sonnet-5": {"thinking_default_on": True},
        "opus-5": {"thinking_default_on": True},
        "opus-5-5": {"thinking_default_on": True, "thinking_disable": False},
        "fable": {"thinking_default_on": True, "thinking_disable": False},
    }
)
"""Part of a model's id → fields of its capabilities, the longest part first; Messages API, 2026-11."""
