"""Chat Completions, the dialect that most servers speak."""

from __future__ import annotations

from isthmus.adapters.openai_chat.adapter import OpenAIChatAdapter

__all__ = ["OpenAIChatAdapter"]
