"""A small model inside the process: llama.cpp behind its own loopback port, spoken to in Chat Completions."""

from __future__ import annotations

from isthmus.adapters.local.adapter import LocalAdapter

__all__ = ["LocalAdapter"]
