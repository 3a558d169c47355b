"""The Responses API: an adapter of our own over HTTP, and a client over the official SDK."""

from __future__ import annotations

from isthmus.adapters.openai_responses.adapter import OpenAIResponsesAdapter
from isthmus.adapters.openai_responses.client import ResponsesClient, ResponsesFactory
from isthmus.errors import ResponseError

__all__ = ["OpenAIResponsesAdapter", "ResponseError", "ResponsesClient", "ResponsesFactory"]
