"""A context as what a chat- or model-face method takes, and what such a method was given as a context again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any

from isthmus.adapters.chat import ChatResponse, ToolCall, peek
from isthmus.errors import InvalidRequestError, ProtocolError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Note, NoteCode
from isthmus.models.jsontext import dumps
from isthmus.models.messages import RESERVED, check_form, native_of, text_of
from isthmus.models.neutral import check_projection, split
from isthmus.models.normalise import parse_arguments
from isthmus.models.pairing import Pairing
from isthmus.models.parts import TextContent
from isthmus.models.reading import read_result

_LEADING = ("system", "developer")
_BLOCKS = ("tool_use", "tool_result")


class RoleDict(dict[str, Any]):
    """A message as an author gets it; remembers the one it was made from, native form and all, and its context."""

    __slots__ = ("ctx", "origin")
    origin: Mapping[str, Any]
    ctx: GenerateContext

    def original(self) -> Mapping[str, Any]:
        """The message that it was made from, while its author left it as it was; else itself."""
        made = {key: fresh(value) for key, value in self.origin.items() if key != RESERVED}
        return self.origin if dict(self) == made else self


class Rendered(list[Any]):
    """The messages that an author's method gets; remembers the context they were made from.

    So `super().chat(messages, tools)` keeps what the chat face has no words for: effort, output, options, ceiling.
    """

    __slots__ = ("ctx",)

    def __init__(self, items: Iterable[Any], ctx: GenerateContext) -> None:
        super().__init__(items)
        self.ctx = ctx


def fresh(value: Any) -> Any:
    """A copy of plain containers all the way down, for an author to change; anything else is the same object."""
    if isinstance(value, dict):
        return {key: fresh(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fresh(item) for item in value]
    return value


def role_dict(message: Mapping[str, Any], ctx: GenerateContext) -> RoleDict:
    """The message without this library's bookkeeping, its author's to change."""
    made = RoleDict({key: fresh(value) for key, value in message.items() if key != RESERVED})
    made.origin, made.ctx = message, ctx
    return made


def tool_dicts(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Tools as {name, description, input_schema}, `strict` where it is set."""
    return [
        {"name": tool.name, "description": tool.description, "input_schema": fresh(dict(tool.parameters))}
        | ({} if tool.strict is None else {"strict": tool.strict})
        for tool in tools
    ]


@dataclass(frozen=True, slots=True)
class Turns:
    """How one class wants tool turns said.

    Args:
        make: its `make_tool_turn`; None leaves the neutral turns as they are.
        dialect: the name under which its own replies hang on messages.
        alone: whether no parent could use what it leaves behind, so that a note is due.
    """

    make: Callable[[ChatResponse, list[tuple[ToolCall, str]]], Any] | None
    dialect: str
    alone: bool = True


async def chat_messages(ctx: GenerateContext, turns: Turns, *, notes: list[Note]) -> Rendered:
    """The transcript as a chat-face class wants it: tool turns in its own shape, the rest as role dicts.

    Args:
        ctx: the request.
        turns: how the class wants tool turns.
        notes: takes what was left behind.

    Raises:
        InvalidRequestError: a message without a role: a native item of one provider, which no other can read.
        ProtocolError: `make_tool_turn` returned no list of dicts.
    """
    made: list[Any] = []
    shown: list[Any] = []
    messages, place = [*_paired(ctx, notes)], 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if shown and message.get("role") != "tool":
            made.append(role_dict({"role": "user", "content": shown}, ctx))
            shown = []
        if not message.get("tool_calls") or turns.make is None:
            note = native_of(message, turns.dialect)[1]
            if note is not None and turns.alone:
                notes.append(Note(note.code, f"messages[{place - 1}]: {note.detail}"))
            made.append(role_dict(message, ctx))
            continue
        response = _response(message, turns, notes, place=f"messages[{place - 1}]")
        results: list[tuple[ToolCall, str]] = []
        # By place: an id that the author left out was made after his reply.
        ids = [call.get("id") for call in message["tool_calls"]]
        calls = dict(zip(ids, response.tool_calls or (), strict=False))
        while place < len(messages) and messages[place].get("tool_call_id") in calls:
            call = calls[messages[place]["tool_call_id"]]
            text, moved = _output(messages[place].get("content"))
            if moved:
                # A result is text on the chat face: nothing else has a place in (call, output).
                shown += [{"type": "text", "text": f"This is what tool call {call.id} returned beside text:"}, *moved]
                detail = f"messages[{place}]: what is not text in the result was moved into a user message after it"
                notes.append(Note(NoteCode.HISTORY_CHANGED, detail))
            results.append((call, text))
            place += 1
        made += await _spliced(turns.make(response, results), ctx)
    if shown:
        made.append(role_dict({"role": "user", "content": shown}, ctx))
    return Rendered(made, ctx)


def _paired(ctx: GenerateContext, notes: list[Note]) -> Iterator[Mapping[str, Any]]:
    """The transcript in the one form of today: each call with an id, each result with that of its call."""
    pairing = Pairing(notes)
    for at, message in enumerate(ctx.messages):
        place = f"messages[{at}]"
        check_form(message, place)
        check_projection(message, place)
        yield pairing.turn(message, place)


async def _spliced(turns: Any, ctx: GenerateContext) -> list[Any]:
    if isawaitable(turns):
        turns = await turns
    if not isinstance(turns, list | tuple) or not all(isinstance(turn, Mapping) for turn in turns):
        raise ProtocolError(f"make_tool_turn must return a list of dicts, not {turns!r:.80}")
    return [role_dict(turn, ctx) if type(turn) is dict and RESERVED in turn else turn for turn in turns]


def _output(content: Any) -> tuple[str, list[dict[str, Any]]]:
    """A result's text, and what it has beside text, in the neutral spelling."""
    read = read_result(content)
    if isinstance(read, str):
        return read, []
    moved = [part.neutral() for part in read if not isinstance(part, TextContent)]
    text = "".join(part.text for part in read if isinstance(part, TextContent))
    return text or ("The result is in the user message that follows." if moved else ""), moved


def _response(message: Mapping[str, Any], turns: Turns, notes: list[Note], *, place: str) -> ChatResponse:
    """The author's own reply while it hangs on the message, else one made of the message's fields."""
    native, note = native_of(message, turns.dialect)
    if native is not None and native.held is not None:
        return native.held  # type: ignore[no-any-return]
    if note is not None and turns.alone:
        notes.append(Note(note.code, f"{place}: {note.detail}"))
    calls = [
        ToolCall(str(call.get("id") or ""), name, parse_arguments(arguments)[0] or {})
        for call in message["tool_calls"]
        for name, arguments in [_function(call)]
    ]
    text = text_of(message.get("content")) or None
    response = ChatResponse(text, calls, "tool_use", None if native is None else native.payload)
    return with_origin(response, message)


def with_origin(response: ChatResponse, message: Mapping[str, Any]) -> ChatResponse:
    """The reply, remembering the neutral message that says the same and more."""
    response.__dict__["_origin"] = message
    return response


def neutral_turns(response: Any, results: Sequence[tuple[Any, str]]) -> list[dict[str, Any]]:
    """A tool turn in the neutral shape: the assistant's message, then one tool message a result.

    Args:
        response: the reply that asked for the tools.
        results: (call, output) pairs.
    """
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dumps(call.input).decode()}}
        for call in response.tool_calls or ()
    ]
    turn: dict[str, Any] = {"role": "assistant", "content": response.text or None}
    if calls:
        turn["tool_calls"] = calls
    origin = getattr(response, "__dict__", {}).get("_origin")
    if origin is not None and _says_the_same(origin, turn):
        turn = dict(origin)
    answers = [{"role": "tool", "tool_call_id": call.id, "content": output} for call, output in results]
    return [turn, *answers]


def _says_the_same(origin: Mapping[str, Any], turn: Mapping[str, Any]) -> bool:
    def gist(message: Mapping[str, Any]) -> list[Any]:
        functions = [(call.get("id"), *_function(call)) for call in message.get("tool_calls") or ()]
        said = [(call_id, name, parse_arguments(arguments)[0]) for call_id, name, arguments in functions]
        return [text_of(message.get("content")), said]

    return gist(origin) == gist(turn)


def _function(call: Mapping[str, Any]) -> tuple[str, Any]:
    function = call.get("function") or {}
    return str(function.get("name") or ""), function.get("arguments")


def remembered(messages: Any) -> GenerateContext | None:
    """The context that messages were rendered from: a rendered list, or a list with some of its messages."""
    if isinstance(messages, Rendered):
        return messages.ctx
    if not isinstance(messages, list | tuple):
        return None
    return next((message.ctx for message in messages if isinstance(message, RoleDict)), None)


def read_context(messages: Any, tools: Any = None, *, own_brief: str = "", **settings: Any) -> GenerateContext:
    """The context that a call of the chat or model face asks for; what the list remembers holds where nothing is said.

    Args:
        messages: neutral messages, or turns with `tool_use` and `tool_result` blocks; leading system messages are the
            brief.
        tools: what `read_tools` reads; None keeps those that the list remembers.
        own_brief: the brief where neither the messages nor the list has one.
        settings: fields of the context; None says nothing.

    Raises:
        InvalidRequestError: a message or a tool that is none.
    """
    if not isinstance(messages, Iterable):
        raise InvalidRequestError(f"messages must be a list of role dicts, not {type(messages).__name__}")
    base = remembered(messages) or GenerateContext()
    turns = [_original(message, place) for place, message in enumerate(messages)]
    lead = next((n for n, turn in enumerate(turns) if turn.get("role") not in _LEADING), len(turns))
    brief = "\n\n".join(text_of(turn.get("content")) for turn in turns[:lead]) or base.brief or own_brief
    changes = {name: value for name, value in settings.items() if value is not None}
    if tools is not None:
        changes["tools"] = tuple(read_tools(tools))
        if len(changes["tools"]) == len(base.tools) and tool_dicts(changes["tools"]) == tool_dicts(base.tools):
            changes["tools"] = base.tools
    later = enumerate(turns[lead:], lead)
    neutral = tuple(item for place, turn in later for item in _neutral(turn, f"messages[{place}]"))
    return replace(base, **{**changes, "brief": brief, "messages": neutral})


def _original(message: Any, place: int) -> Mapping[str, Any]:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"messages[{place}] must be a role dict, not {type(message).__name__}")
    return message.original() if isinstance(message, RoleDict) else message


def _neutral(message: Mapping[str, Any], place: str) -> Iterable[Mapping[str, Any]]:
    """A message with tool blocks as neutral messages; any other as it is."""
    content = message.get("content")
    if not isinstance(content, list | tuple) or not any(peek(block, "type") in _BLOCKS for block in content):
        return [message]
    blocks = [_as_dict(block) for block in content]
    return split({**message, "content": blocks}, place, spell=lambda part, _: part.to_dict(), notes=[], whole=True)


def _as_dict(block: Any) -> Any:
    """A block that an SDK made an object of, as the dict that it stands for; anything else as it is."""
    if isinstance(block, str | Mapping):
        return block
    dump = getattr(block, "model_dump", None)
    made = dump(exclude_none=True) if callable(dump) else getattr(block, "__dict__", block)
    return dict(made) if isinstance(made, Mapping) else block


def read_tools(tools: Any) -> Iterator[ToolSpec]:
    """Tool declarations in any shape that the faces know.

    Args:
        tools: a list, or an object with `normalized_tools`, of `ToolSpec`, {name, description, input_schema}, or
            {"type": "function", "function": {name, description, parameters}}.

    Raises:
        InvalidRequestError: one that is none of these.
    """
    for place, tool in enumerate(getattr(tools, "normalized_tools", tools)):
        if isinstance(tool, ToolSpec):
            yield tool
            continue
        said = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(said, Mapping) or not isinstance(said.get("name"), str):
            raise InvalidRequestError(
                f"tools[{place}] must be a dict with name, description and input_schema: {tool!r:.80}"
            )
        yield ToolSpec(
            name=said["name"],
            description=said.get("description") or "",
            parameters_schema=said.get("input_schema") or said.get("parameters") or said.get("parameters_schema"),
            strict=said.get("strict"),
        )
