"""A message as a typed value, and back as the dict or the JSON that it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from isthmus.errors import InvalidRequestError
from isthmus.models.jsontext import dumps, loads, unsayable
from isthmus.models.messages import check_form, copied
from isthmus.models.parts import CallContent, Content, TextContent
from isthmus.models.reading import read_part

MessageDict: TypeAlias = dict[str, Any]
"""A message as a plain dict in the shape of Chat Completions, or a provider's own item."""

_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedMessage:
    """One message of a history. Values are not to be changed in place: `dataclasses.replace` makes the changed copy.

    Args:
        role: who speaks; None for a provider's own item.
        content: text, parts, or what else stood there.
        tool_calls: the calls of an assistant's message; one that cannot be read stands as it is.
        tool_call_id: the call that a tool's message answers.
        name: the name of who speaks, or of the tool.
        extra: all other members, bookkeeping under the reserved key too.
    """

    role: Any = None
    content: Any = None
    tool_calls: tuple[Any, ...] = ()
    tool_call_id: Any = None
    name: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    _keys: tuple[str, ...] = field(default=(), compare=False, repr=False)
    _text: bytes | None = field(default=None, init=False, compare=False, repr=False)

    @classmethod
    def from_dict(cls, message: Mapping[str, Any]) -> TypedMessage:
        """Read a message in any spelling; `to_dict` gives it back as it was.

        Raises:
            InvalidRequestError: it is no dict.
        """
        if not isinstance(message, Mapping):
            raise InvalidRequestError(f"a message must be a dict with a role, not {type(message).__name__}")
        calls = message.get("tool_calls")
        listed = isinstance(calls, list | tuple)
        read = {name: message[name] for name in _FIELDS if name in message and name != "tool_calls"}
        if isinstance(read.get("content"), list | tuple):
            read["content"] = tuple(_read(part) for part in read["content"])
        elif "content" in read:
            read["content"] = copied(read["content"])
        return cls(
            **read,
            tool_calls=tuple(_read_call(call) for call in calls or ()) if listed else (),
            extra={
                key: copied(value)
                for key, value in message.items()
                if key not in _FIELDS or (key == "tool_calls" and not listed)
            },
            _keys=tuple(message),
        )

    def to_dict(self) -> dict[str, Any]:
        """The message as a dict: members in the order in which they were read, unchanged ones exactly as they were."""
        members: dict[str, Any] = {name: getattr(self, name) for name in ("role", "content", "tool_call_id", "name")}
        if isinstance(self.content, list | tuple):
            members["content"] = [_written(part) for part in self.content]
        if self.tool_calls or "tool_calls" not in self.extra:
            members["tool_calls"] = [_written(call) for call in self.tool_calls]
        members = {**{key: copied(value) for key, value in self.extra.items()}, **members}
        new = [name for name in _FIELDS if members.get(name) is not None and (name != "tool_calls" or self.tool_calls)]
        return {key: members[key] for key in dict.fromkeys((*self._keys, *new, *self.extra)) if key in members}

    @classmethod
    def from_json(cls, text: bytes | str) -> TypedMessage:
        """Read a message from JSON; integers of any size stay exact.

        Raises:
            ValueError: it is no JSON.
            InvalidRequestError: it is JSON of something else than an object.
        """
        made = cls.from_dict(loads(text))
        object.__setattr__(made, "_text", text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
        return made

    def to_json(self) -> bytes:
        """The message as JSON: the very text that it was read from, else compact.

        Raises:
            InvalidRequestError: it holds a number that JSON has no form for, or bytes as its content.
        """
        if self._text is not None:
            return self._text
        message = self.to_dict()
        check_form(message, "the message")
        unsaid = unsayable(message)
        if unsaid is not None:
            raise InvalidRequestError(f"the message{unsaid}: NaN and infinities have no JSON form: write null, or text")
        return dumps(message)

    @property
    def text(self) -> str:
        """The text of the content, its parts joined."""
        if isinstance(self.content, list | tuple):
            return "".join(part.text for part in self.content if isinstance(part, TextContent))
        return self.content if isinstance(self.content, str) else ""


def _read(part: Any) -> Any:
    return read_part(copied(part)) if isinstance(part, Mapping) else part


def _read_call(call: Any) -> Any:
    """A call of the list, which may lack its type."""
    if not isinstance(call, Mapping):
        return call
    made = read_part(copied(call))
    return made if isinstance(made, CallContent) else copied(call)


def _written(part: Any) -> Any:
    return copied(part.to_dict() if isinstance(part, Content) else part)
