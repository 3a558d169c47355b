"""A model client that writes `get_response` alone, for a test to name by a dotted path."""

from __future__ import annotations

from typing import Any

from isthmus.models.model import Model
from isthmus.models.responses import Choice, Message, ModelResponse, Usage


class Echo(Model[ModelResponse]):
    """Says the last message again."""

    def __init__(self, model: str = "echo") -> None:
        self.model = model

    async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        """Answer with what was said last."""
        return ModelResponse(
            model=self.model,
            choices=[Choice(message=Message(content=f"echo {messages[-1]['content']}"))],
            usage=Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5),
        )
