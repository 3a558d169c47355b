"""An adapter that stands around another one and passes for it in everything but its replies."""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from isthmus.adapters.base import ModelAdapter, ModelCapabilities


class Around(ModelAdapter):
    """The base of such adapters; they write `stream` and `generate`.

    Args:
        inner: the adapter inside.
    """

    def __init__(self, inner: ModelAdapter) -> None:
        self.inner = inner
        self.model = getattr(inner, "model", "")
        self.id = inner.id
        self.window_tokens = inner.window_tokens
        self.max_output_tokens = inner.max_output_tokens
        self.supports = inner.supports
        self.handles_retries = inner.handles_retries
        self.requires_streaming = inner.requires_streaming
        self.timeouts = inner.timeouts

    def capabilities(self) -> ModelCapabilities:
        """The adapter's own."""
        return self.inner.capabilities()

    def make_tool_turn(self, response: Any, results: Sequence[tuple[Any, str]]) -> list[dict[str, Any]]:
        """The adapter's own turns."""
        return self.inner.make_tool_turn(response, results)

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[ModelAdapter]:
        """The same around what the adapter opens."""
        async with self.inner.open_run() as active:
            same = copy.copy(self)
            same.inner = active
            yield same

    async def steer(self, steering: Any) -> Any:
        """Steer the adapter."""
        return await self.inner.steer(steering)

    async def aclose(self) -> None:
        """Close the adapter."""
        await self.inner.aclose()
