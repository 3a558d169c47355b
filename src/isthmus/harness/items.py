"""What may stand among the messages of an input or a history, as a message."""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any

from isthmus.adapters.views import from_response
from isthmus.errors import InvalidRequestError
from isthmus.models.internal import is_internal_message
from isthmus.models.messages import MessageRole, assistant_message, check_form
from isthmus.models.promptspec import PromptSpec
from isthmus.models.responses import ModelResponse
from isthmus.models.results import result_text

_USER = MessageRole.USER.value


def as_item(item: Any) -> Any:
    """A message or a prompt as it is; of anything else the message that says it, where there is one.

    A `ModelResponse` is the assistant's message; text is the user's, a list of parts is the content of one, and an
    object (a dataclass, a pydantic model) is one of its JSON.

    Raises:
        ProtocolError: a response has no choice.
    """
    if type(item) is dict:
        return item
    if isinstance(item, ModelResponse):
        return assistant_message(from_response(item))
    if isinstance(item, (str, list)):
        return {"role": _USER, "content": item}
    if not isinstance(item, type | PromptSpec) and (is_dataclass(item) or hasattr(item, "model_dump")):
        return {"role": _USER, "content": result_text(item)}
    return item


def check_item(message: Any, place: str) -> None:
    """Whether something is a message that a conversation can hold, and a snapshot of it, before anything is done.

    Raises:
        InvalidRequestError: it is no message, or has neither a role nor what an item of a provider's own has in place
            of one; names the place.
    """
    check_form(message, place)
    role = message.get("role")
    if isinstance(role, str):
        return
    if "role" in message:
        raise InvalidRequestError(f"{place}.role: must be text, not {role!r:.60}")
    if not isinstance(message.get("type"), str) and not is_internal_message(message):
        raise InvalidRequestError(f"{place}: has no role, nor the type that an item of a provider's own has; add one")
