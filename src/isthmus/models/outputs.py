"""The messages that tool results become, in the form of whoever reads them, and calls in any form as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from isthmus.models.events import Call
from isthmus.models.normalise import make_call

Output: TypeAlias = str | list[dict[str, Any]]


class ToolOutputAdapter(Protocol):
    """Makes the message of a tool's result."""

    def format_success(self, call_id: str, tool_name: str, content: Any) -> dict[str, Any]:
        """The message of a call that went well; the content is text, or a list of parts."""
        ...

    def format_error(self, call_id: str, tool_name: str, error_message: Any) -> dict[str, Any]:
        """The message of a call that failed or was not run."""
        ...


class ChatCompletionsOutputAdapter:
    """Makes messages of the Chat Completions API, which are those of the neutral history too."""

    def format_success(self, call_id: str, tool_name: str, content: Output) -> dict[str, Any]:
        """The message of a call that went well."""
        return {"tool_call_id": call_id, "role": "tool", "name": tool_name, "content": content}

    def format_error(self, call_id: str, tool_name: str, error_message: Output) -> dict[str, Any]:
        """The message of a call that failed; the text alone says so."""
        return self.format_success(call_id, tool_name, error_message)


def call_of(given: Any, place: str) -> Call:
    """A call as ours: one that is, or a Chat Completions call, as an object or as a dict.

    Args:
        given: the call.
        place: where it stands, for the error.

    Raises:
        TypeError: it is no call.
    """
    if isinstance(given, Call):
        return given
    function = _member(given, "function")
    name = _member(function, "name")
    if not isinstance(name, str):
        raise TypeError(f"{place}: must be a call with an id and a function of a name and arguments, not {given!r:.80}")
    return make_call(name, _member(function, "arguments"), call_id=_member(given, "id"))


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
