"""What was said, as the conventions have it, cut to size and with keys taken out; asked for only where it may leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

from isthmus.secret import HIDDEN, Secret, hidden, names_secret, redact, redact_members

CONTENT = frozenset(
    {
        "gen_ai.completion",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.prompt",
        "gen_ai.system_instructions",
        "gen_ai.tool.call.arguments",
        "gen_ai.tool.call.result",
        "gen_ai.tool.definitions",
        "gen_ai.tool.description",
        "exception.message",
        "exception.stacktrace",
    }
)
"""The attributes that hold what was said."""
OWN = frozenset(
    {
        *("gen_ai.operation.name", "gen_ai.tool.type", "gen_ai.output.type", "gen_ai.conversation.id"),
        *("isthmus.outcome", "isthmus.finish", "isthmus.next", "isthmus.status"),
    }
)
"""The attributes that hold nothing but words of this library."""
MOST_CHARS = 4000
"""The most characters of an attribute that an adapter sets."""
_CUT = "…"


_SHORT = 128
# What is looked at beyond a limit, so that a key that the limit cuts is still seen whole.
_BEYOND = 1024
# What the conventions have other words for; and what they require, and an adapter does not say.
_FINISHES: Mapping[str, str] = {"tool-calls": "tool_call", "content-filter": "content_filter", "error-post": "error"}
_UNTOLD = "unknown"
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class View:
    """What may leave.

    Args:
        capture: whether what was said may.
        limit: the most characters of an attribute that holds it.
        redact: given the name and the text of each attribute just before it leaves; returns the text to send instead,
            or None for nothing.
    """

    capture: bool = False
    limit: int = 16_384
    redact: Callable[[str, str], str | None] | None = None

    def text(self, name: str, text: str) -> str:
        """A text without keys, cut to size, that can be encoded."""
        if len(text) <= _SHORT <= self.limit:
            return _short(name, text)
        return _cleaned(name, text, self._most(name))

    def sent(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes as they leave: only those that may, without keys, and as the hook would have them."""
        out: dict[str, Any] = {}
        hook, capture = self.redact, self.capture
        short = _SHORT if self.limit >= _SHORT else -1
        for name, value in attributes.items():
            if value is None or (not capture and name in CONTENT):
                continue
            kind = type(value)
            if kind is str:
                # Words of our own need no look, unless somebody wants one.
                if hook is not None:
                    value = self._hooked(name, self.text(name, value))
                elif name not in OWN:
                    value = _short(name, value) if len(value) <= short else self.text(name, value)
            elif kind is not bool and (kind is not int or value not in _INT64):
                value = self._other(name, value)
            if value is not None:
                out[name if name.isascii() else _encodable(name)] = value
        return out

    def title(self, name: str) -> str:
        """The name of a span as it leaves; its first word says what it is, and is nobody's."""
        kept = self._hooked("name", self.text("name", name))
        return kept or name.partition(" ")[0]

    def _other(self, name: str, value: Any) -> Any:
        """A value that is no plain text: a number as it is, if it can be sent as one; a list; all else as its text."""
        if value is None or (isinstance(value, float) and isfinite(value)):
            return value
        if isinstance(value, list | tuple):
            return self._list(name, value)
        if isinstance(value, Secret):
            return HIDDEN
        return self._hooked(name, self.text(name, str(hidden(value))))

    def _list(self, name: str, values: Iterable[Any]) -> list[Any] | None:
        """As many of the values as may be sent, all of one kind; what is hidden in it is left out."""
        left = self._most(name)
        out: list[Any] = []
        for value in values:
            plain = type(value) is str and (self.capture or name not in CONTENT)
            sent = self._hooked(name, self.text(name, value)) if plain else self.sent({name: value}).get(name)
            left -= len(sent) + 1 if isinstance(sent, str) else 8
            if left < 0:
                break
            if sent is not None:
                out.append(sent if isinstance(sent, str | bool | int | float) else str(sent))
        return out if len({type(each) for each in out}) <= 1 else [str(each) for each in out]

    def _hooked(self, name: str, text: str) -> str | None:
        if self.redact is None:
            return text
        try:
            kept = self.redact(name, text)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            # What could not be looked at does not leave; a cancellation that a hook makes up is not the run's.
            return None
        return cut(_encodable(kept), self._most(name)) if isinstance(kept, str) else None

    def _most(self, name: str) -> int:
        return self.limit if name in CONTENT else MOST_CHARS


def _cleaned(name: str, text: str, limit: int) -> str:
    if names_secret(name):
        return HIDDEN
    looked = redact_members(text[: limit + _BEYOND]) if name in CONTENT else redact(text[: limit + _BEYOND])
    whole = len(text) <= limit + _BEYOND
    return cut(_encodable(looked), limit) if whole else cut(_encodable(looked) + _CUT, limit)


@lru_cache(4096)
def _short(name: str, text: str) -> str:
    """The same for a short text: names and models come again and again."""
    return _cleaned(name, text, _SHORT)


def _encodable(text: str) -> str:
    """The text, halves of characters put together or taken out: one of them would lose a whole export."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def cut(text: str, limit: int) -> str:
    """The text, at most so many characters of it."""
    return text if len(text) <= limit else (text[: limit - 1] + _CUT if limit > 0 else "")


def asked(ctx: Any, view: View) -> dict[str, Any]:
    """The contents of a request."""
    found = {"gen_ai.input.messages": messages(ctx.messages, view)}
    if ctx.brief:
        found["gen_ai.system_instructions"] = instructions(ctx.brief, view)
    if ctx.tools:
        found["gen_ai.tool.definitions"] = _listed([_definition(tool) for tool in ctx.tools], view)
    return found


def _definition(tool: Any) -> dict[str, Any]:
    schema = getattr(tool, "parameters_schema", None) or getattr(tool, "input_schema", None)
    return {"type": "function", "name": tool.name, "description": tool.description or "", "parameters": schema}


def replied(reply: Any, view: View) -> dict[str, Any]:
    """The contents of a reply."""
    parts: list[dict[str, Any]] = []
    if reply.reasoning:
        parts.append({"type": "reasoning", "content": reply.reasoning})
    parts += [{"type": "text", "content": e.text} if e.type == "text" else _call(e) for e in reply.events]
    said = {"role": "assistant", "parts": parts, "finish_reason": _FINISHES.get(reply.finish, str(reply.finish))}
    return {"gen_ai.output.messages": _listed([said], view)}


def _call(call: Any) -> dict[str, Any]:
    given = redact_members(call.arguments or "") if call.input is None else hidden(call.input)
    return {"type": "tool_call", "id": call.call_id, "name": call.tool, "arguments": given}


def called(call: Any, view: View) -> dict[str, Any]:
    """The arguments of a tool."""
    given = call.arguments if call.input is None else json.dumps(hidden(call.input), ensure_ascii=False, default=str)
    return {"gen_ai.tool.call.arguments": given or ""}


def returned(content: Any, view: View) -> dict[str, Any]:
    """What a tool returned, as the model reads it."""
    text = content if isinstance(content, str) else json.dumps(_parts(content), ensure_ascii=False, default=str)
    return {"gen_ai.tool.call.result": text}


def messages(given: Iterable[Mapping[str, Any]], view: View) -> str:
    """Messages as the conventions have them: JSON, the last ones as far as they fit."""
    return _listed([_message(each) for each in given], view)


def instructions(text: str, view: View) -> str:
    """Instructions as the conventions have them."""
    return _listed([{"type": "text", "content": text}], view)


def spoken(text: str, view: View) -> str:
    """A reply's text as the conventions have it."""
    parts = [{"type": "text", "content": text}]
    return _listed([{"role": "assistant", "parts": parts, "finish_reason": _UNTOLD}], view)


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = str(message.get("role") or message.get("type") or ""), message.get("content")
    if role == "tool":
        answer = {"type": "tool_call_response", "id": message.get("tool_call_id"), "response": _parts(content)}
        return {"role": role, "parts": [answer]}
    parts = _parts(content)
    for call in message.get("tool_calls") or ():
        made = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(made, Mapping):
            given = made.get("arguments")
            given = redact_members(given) if isinstance(given, str) else hidden(given)
            named = {"name": made.get("name"), "arguments": given}
            parts.append({"type": "tool_call", "id": call.get("id"), **named})
    return {"role": role, "parts": parts}


def _parts(content: Any) -> list[dict[str, Any]]:
    """The parts of a content; what is no text is named only."""
    if isinstance(content, str):
        return [{"type": "text", "content": redact_members(content)}]
    parts: list[dict[str, Any]] = []
    for part in content if isinstance(content, list | tuple) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        text = part.get("text") if isinstance(part, Mapping) else None
        parts.append(
            {"type": "text", "content": redact_members(text)} if isinstance(text, str) else {"type": str(kind)}
        )
    return parts


def _listed(items: list[dict[str, Any]], view: View) -> str:
    """A JSON list of at most so many characters: the last items, and of a last one that is too long what fits."""
    kept: list[str] = []
    left = view.limit - 2
    for item in reversed(items):
        text = json.dumps(item, ensure_ascii=False, default=str)
        most = left
        while len(text) > left and not kept and most > 0:
            # What a character takes in JSON is not known before.
            text = json.dumps(_shorter(item, most), ensure_ascii=False, default=str)
            most //= 2
        if len(text) > left:
            break
        kept.append(text)
        left -= len(text) + 1
    return f"[{','.join(reversed(kept))}]"


def _shorter(value: Any, most: int) -> Any:
    """The value with each of its texts cut to so many characters."""
    if isinstance(value, str):
        return cut(value, most)
    if isinstance(value, Mapping):
        return {name: item if name in ("role", "type") else _shorter(item, most) for name, item in value.items()}
    return [_shorter(item, most) for item in value] if isinstance(value, list) else value
