"""What tells one server of Chat Completions from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.adapters.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class ChatServer(Endpoint):
    """A server of this dialect.

    Args:
        ceiling_key: what it calls the output ceiling: "max_completion_tokens" or "max_tokens".
        stream_usage: whether it takes `stream_options`, which asks for token counts in a stream.
        seed_key: what it calls the sampling seed; "" where it takes none.
        effort_off: the members that switch reasoning off in a model that reasons by itself.
    """

    path: str = "/chat/completions"
    ceiling_key: str = "max_tokens"
    stream_usage: bool = True
    seed_key: str = "seed"
    effort_off: Mapping[str, Any] = field(default_factory=lambda: {"reasoning_effort": "none"})


_ALWAYS_REASONS = {"thinking_default_on": True, "thinking_disable": False}

# Source: the API reference of Chat Completions and the pages of its reasoning models, 2026-11. The o-series and the
# first gpt-5 reason at "medium" where no effort is named, and take no "none"; later ones take it.
OPENAI = ChatServer(
    provider="openai",
    base_url="https://api.openai.com/v1",
    variable="OPENAI_API_KEY",
    hosts=("api.openai.com",),
    ceiling_key="max_completion_tokens",
    models={
        "o1": _ALWAYS_REASONS,
        "o3": _ALWAYS_REASONS,
        "o4-mini": _ALWAYS_REASONS,
        "gpt-5": _ALWAYS_REASONS,
        "gpt-5.": {"thinking_default_on": True, "thinking_disable": True},
    },
)
