"""Messages that the model reads and the public conversation leaves out; and those that live for one run alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from isthmus.errors import InvalidRequestError
from isthmus.models.messages import RESERVED, copied

_VISIBILITY = "internal"
_MARKS = ("visibility", "origin", "ephemeral")

_Message = TypeVar("_Message", bound=Mapping[str, Any])


def internal_message(message: Mapping[str, Any], *, origin: str, ephemeral: bool = False) -> dict[str, Any]:
    """A copy of the message, marked as context for the model that is no part of the public conversation.

    A message that is marked already gets the new mark; its native form stays.

    Args:
        message: a role dict, or a provider's own item without a role; never changed.
        origin: what made it, e.g. "file_inventory".
        ephemeral: whether it lives through one run only.

    Raises:
        InvalidRequestError: the message is no dict.
        ValueError: the origin is empty.
        TypeError: `ephemeral` is neither True nor False.
    """
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"internal_message: a message must be a dict, not {type(message).__name__}")
    name: Any = origin
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"internal_message: origin={origin!r} must say what made the message, e.g. 'file_inventory'")
    if not isinstance(ephemeral, bool):
        raise TypeError(f"internal_message: ephemeral={ephemeral!r} must be True or False")
    held = message.get(RESERVED)
    kept = {key: value for key, value in held.items() if key not in _MARKS} if isinstance(held, Mapping) else {}
    mark: dict[str, Any] = {"visibility": _VISIBILITY, "origin": origin}
    if ephemeral:
        mark["ephemeral"] = True
    return {**{key: copied(value) for key, value in message.items()}, RESERVED: {**mark, **kept}}


def is_internal_message(message: Any, origin: str | None = None) -> bool:
    """Whether a message is marked as internal, by this origin or, with None, by any.

    Only the mark counts, so that it works for a provider's own items too; bookkeeping alone makes nothing internal.
    """
    mark = _mark(message)
    return mark is not None and (origin is None or mark.get("origin") == origin)


def is_ephemeral_message(message: Any, origin: str | None = None) -> bool:
    """Whether a message is internal and its ephemeral flag exactly True, by this origin or, with None, by any."""
    mark = _mark(message)
    return mark is not None and mark.get("ephemeral") is True and (origin is None or mark.get("origin") == origin)


def public_messages(messages: Iterable[_Message]) -> tuple[_Message, ...]:
    """The messages of the public conversation: all but the internal ones."""
    return tuple(message for message in messages if not is_internal_message(message))


def lasting_messages(messages: Iterable[_Message]) -> tuple[_Message, ...]:
    """The messages that outlive a run: all but the ephemeral ones."""
    return tuple(
        # Most messages have no mark, and of a dict that is seen at once.
        [each for each in messages if (type(each) is dict and RESERVED not in each) or not is_ephemeral_message(each)]
    )


def _mark(message: Any) -> Mapping[str, Any] | None:
    mark = message.get(RESERVED) if isinstance(message, Mapping) else None
    return mark if isinstance(mark, Mapping) and mark.get("visibility") == _VISIBILITY else None
