"""The model client of one connection: an abstract class with one method to write."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from isthmus.models.responses import ModelResponse, ModelStreamEvent


class Model(ABC):
    """A client that answers `get_response`; accepted wherever an adapter is."""

    requires_streaming: bool = False
    """Whether it can only be streamed."""
    handles_retries: bool = False
    """Whether it retries by itself, so that its caller must not."""

    @abstractmethod
    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer a transcript.

        Args:
            messages: OpenAI-chat dicts, the instructions in front as a system message.
            args: in order `extra_call_args` (request options), `schema` (the form of the reply), `tools`,
                `cancellation_token`, `parent_span`; all of them also by name.
            kwargs: more request options.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The same as `get_response`."""
        return self.get_response(*args, **kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[ModelStreamEvent]:
        """The reply as one "completed" event; or one "error" event, after which the error is raised."""
        try:
            response = await self.get_response(*args, **kwargs)
        except Exception as error:
            yield ModelStreamEvent(kind="error", error=error)
            raise
        yield ModelStreamEvent(kind="completed", response=response)

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[Model]:
        """The model for the length of one run; this one keeps nothing between calls."""
        yield self

    async def steer(self, steering: Any) -> Any:
        """Send input into a reply under way.

        Raises:
            NotImplementedError: this model cannot be steered.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be steered")
