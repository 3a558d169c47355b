"""LangServe: a LangChain runnable behind `/invoke` and `/stream_events`."""

from __future__ import annotations

from isthmus.adapters.langserve.adapter import LangServeAdapter

__all__ = ["LangServeAdapter"]
