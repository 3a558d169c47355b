"""The body of a request: LangChain's messages and tools, and where the runnable expects each setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from isthmus.adapters.openai_chat.merge import exact
from isthmus.adapters.render import Rendered, read_context
from isthmus.errors import ConfigError, InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Note, NoteCode
from isthmus.models.messages import RESERVED, check_form, native_of, text_of
from isthmus.models.neutral import check_projection, to_neutral
from isthmus.models.normalise import parse_arguments
from isthmus.models.pairing import Pairing

DIALECT = "langchain"
"""The name under which its messages are kept as they came."""

_SLOTS = ("kwargs", "config", "input")
_TYPES = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "human"),
    **dict.fromkeys(("assistant", "ai"), "ai"),
    "tool": "tool",
}
_LEADING = ("system", "developer")
_MARK = "cache_control"
# Prompt caching in the Messages API and in Converse, 2026-11.
_MOST_MARKS = 4
_NO_EFFORT = ("", "off", "none")
_UNMARKED = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})


class Asked(Rendered):
    """The messages of one request, as a hook gets them, with the place for what is changed on the way out."""

    __slots__ = ("notes",)

    def __init__(self, items: Iterable[Any], ctx: GenerateContext, *, notes: list[Note]) -> None:
        super().__init__(items, ctx)
        self.notes = notes


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Where the runnable on the server expects what.

    Args:
        messages_key: the member of `input` that holds the messages; "" where the input is the messages.
        tools_key: the name of the tools.
        tools_in_config: whether they stand in `config.configurable` rather than in the input.
        max_tokens_key: the name of the output ceiling.
        max_tokens_in: "kwargs", "config" (`config.configurable`) or "input".
        effort_key: the name of the effort.
        effort_in: like `max_tokens_in`.
        cache_control: the marker of a cached prefix; None sends none.

    Raises:
        ConfigError: a slot that there is not, or one in an input that is a list.
    """

    messages_key: str = "messages"
    tools_key: str = "tools"
    tools_in_config: bool = False
    max_tokens_key: str = "max_tokens"
    max_tokens_in: str = "kwargs"
    effort_key: str = "reasoning_effort"
    effort_in: str = "kwargs"
    cache_control: tuple[tuple[str, str], ...] | None = None

    def __post_init__(self) -> None:
        for key in ("max_tokens_in", "effort_in"):
            slot = getattr(self, key)
            if slot not in _SLOTS:
                raise ConfigError(f"must be one of {', '.join(_SLOTS)}, not {slot!r}", key=f"llm.{key}")
            if slot == "input" and not self.messages_key:
                raise ConfigError("cannot be 'input' where input_messages_key is empty", key=f"llm.{key}")

    def body(
        self, messages: Sequence[Any], tools: Sequence[Any], *, system: str, max_tokens: int, effort: str | None
    ) -> dict[str, Any]:
        """The body of `/invoke`, of which `/stream_events` takes the same.

        Args:
            messages: neutral messages or block turns; leading system messages join the brief.
            tools: in any shape that the faces know.
            system: the brief.
            max_tokens: the output ceiling in tokens; 0 sends nothing.
            effort: sent as it is; "off", "none" and "" send nothing.
        """
        lead = 0
        while lead < len(messages) and _role(messages[lead]) in _LEADING:
            lead += 1
        ctx = read_context(messages[lead:], tools)
        notes = messages.notes if isinstance(messages, Asked) else []
        briefs = dict.fromkeys([system, *(text_of(message.get("content")) for message in messages[:lead])])
        pairing = Pairing(notes)
        turns = [turn for at, message in enumerate(ctx.messages) for turn in _turns(at, message, pairing, notes=notes)]
        marks = None if self.cache_control is None else _Marks(dict(self.cache_control), turns, notes=notes)
        declared = self._tools(ctx.tools, marks)
        said = self._messages("\n\n".join(filter(None, briefs)), turns, marks)
        body: dict[str, Any] = {"input": {self.messages_key: said} if self.messages_key else said}
        body |= {"config": {}, "kwargs": {}}
        if ctx.tools:
            beside = "input" if self.messages_key else "kwargs"
            self._put(body, "config" if self.tools_in_config else beside, self.tools_key, declared)
        if max_tokens > 0:
            self._put(body, self.max_tokens_in, self.max_tokens_key, max_tokens)
        if effort and effort.lower() not in _NO_EFFORT:
            self._put(body, self.effort_in, self.effort_key, effort)
        return body

    def _put(self, body: dict[str, Any], slot: str, key: str, value: Any) -> None:
        place = body["config"].setdefault("configurable", {}) if slot == "config" else body[slot]
        place[key] = value

    def _messages(self, brief: str, turns: list[dict[str, Any]], marks: _Marks | None) -> list[dict[str, Any]]:
        lead: list[dict[str, Any]] = [{"type": "system", "content": brief}] if brief else []
        if marks is None:
            return [*lead, *turns]
        lead = [marks.marked(system, "the system text") for system in lead]
        return [*lead, *turns[:-1], *(marks.marked(last, "the last message") for last in turns[-1:])]

    def _tools(self, tools: Sequence[ToolSpec], marks: _Marks | None) -> list[dict[str, Any]]:
        """Function tools; sorted where they are marked, so that the cached prefix stays the same from turn to turn."""
        if marks is None or not tools:
            return [_tool(tool) for tool in tools]
        *made, last = [_tool(tool) for tool in sorted(tools, key=lambda tool: tool.name)]
        return [*made, {**last, **marks.take("the last tool")}]


def marker(ttl: str = "") -> tuple[tuple[str, str], ...]:
    """The `cache_control` of a marked prefix, for `Shape`.

    Args:
        ttl: how long it is kept, e.g. "1h"; "" leaves it to the provider.
    """
    return (("type", "ephemeral"), ("ttl", ttl)) if ttl else (("type", "ephemeral"),)


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _tool(tool: ToolSpec) -> dict[str, Any]:
    strict = {} if tool.strict is None else {"strict": tool.strict}
    said = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters), **strict}
    return {"type": "function", "function": said}


class _Marks:
    """The cache markers of one request: as many as the strictest of the models behind takes, the caller's own counted.

    Args:
        control: what a marker says.
        turns: the messages as they are sent.
        notes: takes a note of each marker that the limit left out.
    """

    def __init__(self, control: dict[str, str], turns: Iterable[Mapping[str, Any]], *, notes: list[Note]) -> None:
        self._control, self._notes = control, notes
        self._free = _MOST_MARKS - sum(
            1
            for turn in turns
            for block in (turn, *_blocks(turn.get("content")))
            if isinstance(block, Mapping) and block.get(_MARK)
        )

    def take(self, place: str) -> dict[str, Any]:
        """The member that marks one more block; none where the limit is reached."""
        if self._free <= 0:
            detail = f"cache marker on {place}: left out, as a request takes {_MOST_MARKS} and the caller's own count"
            self._notes.append(Note(NoteCode.PARAMETER_DROPPED, detail))
            return {}
        self._free -= 1
        return {_MARK: self._control}

    def marked(self, message: dict[str, Any], place: str) -> dict[str, Any]:
        """The message, its last block marked; as it is where that one is empty, marked or may not be changed."""
        blocks = _blocks(message.get("content"))
        last = blocks[-1] if blocks else None
        if not isinstance(last, Mapping) or last.get("type") in _UNMARKED or last.get(_MARK):
            return message
        if last.get("type") == "text" and not str(last.get("text") or "").strip():
            return message
        mark = self.take(place)
        return {**message, "content": [*blocks[:-1], {**last, **mark}]} if mark else message


def _blocks(content: Any) -> list[Any]:
    """A message's content as blocks: texts as what they stand for."""
    blocks = [content] if isinstance(content, str) else content if isinstance(content, list | tuple) else ()
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in blocks]


def _turns(at: int, message: Mapping[str, Any], pairing: Pairing, *, notes: list[Note]) -> Iterable[dict[str, Any]]:
    """One neutral message as LangChain's: the form in which it came where it is one of ours and unchanged."""
    place = f"messages[{at}]"
    check_form(message, place)
    native, note = native_of(message, DIALECT)
    if note is not None:
        notes.append(Note(note.code, f"{place}: {note.detail}"))
    if native is not None:
        yield exact(native.json)
        return
    bare = {key: value for key, value in pairing.turn(message, place).items() if key != RESERVED}
    check_projection(bare, place)
    for turn in to_neutral([bare], notes=notes):
        kind = _TYPES.get(str(turn.get("role")))
        if kind is None:
            raise InvalidRequestError(f"{place}.role: must be one of {', '.join(_TYPES)}, not {turn.get('role')!r}")
        made = _message(kind, turn)
        if kind == "ai" and made.keys() == {"type", "content"} and not made["content"]:
            notes.append(Note(NoteCode.HISTORY_CHANGED, f"{place}: an empty assistant turn was left out"))
            continue
        yield made


def _message(kind: str, turn: Mapping[str, Any]) -> dict[str, Any]:
    content = turn.get("content")
    if content is None:
        content = turn.get("refusal") or ""
    made: dict[str, Any] = {"type": kind, "content": content}
    if turn.get("name"):
        made["name"] = turn["name"]
    if kind == "tool":
        made["tool_call_id"] = turn.get("tool_call_id")
        if turn.get("is_error"):
            made["status"] = "error"
    if kind == "ai" and turn.get("tool_calls"):
        made |= _calls(turn["tool_calls"])
    return made


def _calls(calls: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The calls with parsed arguments; those whose arguments are no JSON object stand apart, with their text."""
    sound: list[dict[str, Any]] = []
    broken: list[dict[str, Any]] = []
    for call in calls:
        function = call.get("function") or {}
        name, text = function.get("name"), function.get("arguments")
        value, problem = parse_arguments(text)
        if problem is None:
            args = exact(text.encode()) if isinstance(text, str) and value else value
            sound.append({"name": name, "args": args, "id": call.get("id"), "type": "tool_call"})
        else:
            held = {"name": name, "args": text, "id": call.get("id"), "error": problem}
            broken.append({**held, "type": "invalid_tool_call"})
    return {"tool_calls": sound, **({"invalid_tool_calls": broken} if broken else {})}
