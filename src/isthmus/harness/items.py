"""What may stand among the messages of an input or a history, as a message."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from isthmus.adapters.views import from_response
from isthmus.models.messages import MessageRole, assistant_message
from isthmus.models.promptspec import PromptSpec
from isthmus.models.responses import ModelResponse
from isthmus.models.results import result_text


def as_item(item: Any) -> Any:
    """A message or a prompt as it is; of anything else the message that says it, where there is one.

    A `ModelResponse` is the assistant's message; text is the user's, a list of parts is the content of one, and an
    object (a dataclass, a pydantic model) is one of its JSON.

    Raises:
        ProtocolError: a response has no choice.
    """
    if isinstance(item, ModelResponse):
        return assistant_message(from_response(item))
    if isinstance(item, str | list):
        return {"role": MessageRole.USER.value, "content": item}
    if not isinstance(item, type | PromptSpec) and (is_dataclass(item) or hasattr(item, "model_dump")):
        return {"role": MessageRole.USER.value, "content": result_text(item)}
    return item
