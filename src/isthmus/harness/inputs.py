"""What callers hand to a run, as messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from isthmus.harness.items import as_item, check_item
from isthmus.harness.resume import Resume
from isthmus.harness.state import RunState
from isthmus.models.promptspec import PromptSpec, render_user_messages
from isthmus.models.responses import ModelResponse

Message: TypeAlias = Mapping[str, Any]
Item: TypeAlias = Message | PromptSpec[Any] | ModelResponse | str | list[Any] | object
RunInput: TypeAlias = str | Message | PromptSpec[Any] | Sequence[Item] | RunState | Resume


def history_items(history: Sequence[Item]) -> tuple[Item, ...]:
    """The items of a history, as messages and prompts.

    Raises:
        TypeError: it is no sequence of messages.
    """
    if isinstance(history, (tuple, list)):
        return tuple(map(as_item, history))
    if isinstance(history, str | bytes | Mapping | PromptSpec) or not hasattr(history, "__iter__"):
        raise TypeError(f"history must be a sequence of messages, not {type(history).__name__}")
    return tuple(map(as_item, history))


def input_items(input: RunInput) -> tuple[Item, ...]:
    """The items of an input; a state brings none beside its history, and a run that is taken up has its own.

    Raises:
        TypeError: it is neither text, nor a message, nor a prompt, nor a sequence of items, nor a state.
    """
    if isinstance(input, (RunState, Resume)):
        return ()
    if isinstance(input, (str, dict, Mapping, PromptSpec)):
        return (as_item(input),)
    if isinstance(input, bytes) or not hasattr(input, "__iter__"):
        kind = type(input).__name__
        raise TypeError(
            f"input must be text, a message, a prompt or a sequence of these, a RunState or a Resume, not {kind}"
        )
    return tuple(map(as_item, input))


def messages_of(items: Sequence[Item], where: str) -> Iterator[Message]:
    """The messages of items: of a prompt its user messages.

    Raises:
        InvalidRequestError: a message is none; names its place.
        PromptError: a prompt cannot be rendered, or has no user message.
    """
    item: Any
    for place, item in enumerate(items):
        if isinstance(item, PromptSpec):
            yield from render_user_messages(item)
        else:
            check_item(item, f"{where}[{place}]")
            yield item
