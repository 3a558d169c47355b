"""What a right tool turn of the chat face is: the turns that tell a model what its tools returned.

Any provider's shape is right, so the check asks only for what each of them holds: who spoke, which call an answer is
for, what it says, and that arguments are JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from isthmus.models.checks import Finding, shown

_ASSISTANT = frozenset({"assistant", "model", "ai", "chatbot"})
_ROLES = _ASSISTANT | {"system", "developer", "user", "human", "tool", "function"}
_PLAIN = (str, bytes, int, float, bool, type(None))
_DEPTH = 12


def check_tool_turn(turns: Any, results: Sequence[tuple[Any, str]] = ()) -> list[Finding]:
    """What is wrong with the turns that `make_tool_turn` made.

    Args:
        turns: what it returned.
        results: what it was given: (`ToolCall`, output) pairs.
    """
    if not isinstance(turns, list) or not turns:
        return [Finding("turns-type", f"make_tool_turn must return a non-empty list of dicts, not {shown(turns)}")]
    found = []
    for number, turn in enumerate(turns):
        if not isinstance(turn, Mapping):
            found.append(Finding("turn-type", f"turns[{number}] must be a dict, not {type(turn).__name__}"))
        elif not _known(turn):
            found.append(Finding("turn-role", f"turns[{number}]: role {turn.get('role')!r} is not known to providers"))
    if found:
        return found
    asked = [turn for turn in turns if _asks(turn)]
    if results and not asked:
        found.append(Finding("turn-assistant", "no assistant turn: the results would answer calls that nobody made"))
    answers = [turn for turn in turns if not _asks(turn)]
    early = turns[: turns.index(asked[0])] if asked else []
    if any(list(_near(early, call.id)) for call, _ in results):
        found.append(Finding("turn-assistant", "a result stands before the assistant's turn that asks for it"))
    return [*found, *_answered(answers, results), *(_called(asked, results) if asked else ())]


def _known(turn: Mapping[str, Any]) -> bool:
    """Whether a turn's role is one that providers know; an item that has a type instead needs none."""
    role = turn.get("role")
    if role is None:
        return isinstance(turn.get("type"), str)
    return isinstance(role, str) and role.lower() in _ROLES


def _asks(turn: Mapping[str, Any]) -> bool:
    role = turn.get("role")
    if role is None:
        return not any(word in str(turn.get("type")) for word in ("output", "result"))
    return str(role).lower() in _ASSISTANT


def _answered(answers: list[Mapping[str, Any]], results: Sequence[tuple[Any, str]]) -> Iterator[Finding]:
    everything = list(_strings(answers))
    for number, (call, output) in enumerate(results):
        near = list(_near(answers, call.id))
        if not near:
            yield Finding("result-id", f"results[{number}]: the id {call.id!r} is nowhere in the answers")
        elif not _says(near, output):
            if _says(everything, output):
                yield Finding("result-pair", f"results[{number}]: the output does not stand with the id {call.id!r}")
            else:
                yield Finding("result-text", f"results[{number}]: the output {output!r:.60} is not in the turns")


def _called(asked: list[Mapping[str, Any]], results: Sequence[tuple[Any, str]]) -> Iterator[Finding]:
    texts = list(_strings(asked))
    for number, (call, _) in enumerate(results):
        spelled = repr(dict(call.input)) if call.input else ""
        if spelled and _read(json.loads, spelled) is None and any(spelled in text for text in texts):
            yield Finding("call-arguments", f"results[{number}]: the arguments are a Python repr, not JSON")


def advise_tool_turn(turns: Any, results: Sequence[tuple[Any, str]]) -> list[Finding]:
    """What most providers would miss in turns that `check_tool_turn` finds right.

    Args:
        turns: what `make_tool_turn` returned.
        results: what it was given: (`ToolCall`, output) pairs.
    """
    asked = [turn for turn in turns if _asks(turn)]
    values = list(_values(asked))
    if any(_opaque(value) for value in values):
        return []
    texts = [value for value in values if isinstance(value, str)]
    found = []
    for number, (call, _) in enumerate(results):
        if not any(call.id in text for text in texts):
            found.append(Finding("call-id", f"results[{number}]: the id {call.id!r} is not in the assistant's turn"))
        elif call.input and not _told(call.input, values, texts):
            found.append(Finding("call-lost", f"results[{number}]: the arguments are not in the assistant's turn"))
    return found


def _told(arguments: Any, values: list[Any], texts: list[str]) -> bool:
    """Whether arguments stand among values as they are, or in a text as JSON."""
    return any(isinstance(value, Mapping) and value == arguments for value in values) or any(
        arguments in _objects(text) for text in texts
    )


def _read(reader: Any, text: str) -> Any:
    try:
        return reader(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _objects(text: str) -> Iterator[Any]:
    """The JSON objects that stand in a text."""
    decoder = json.JSONDecoder()
    for place in [place for place, char in enumerate(text) if char == "{"][:50]:
        try:
            yield decoder.raw_decode(text, place)[0]
        except (ValueError, RecursionError):
            continue


def _says(texts: Iterable[str], output: str) -> bool:
    """Whether an output stands in one of the texts: as it is, or as JSON."""
    for text in texts:
        if output in text:
            return True
        if any(output in inner for inner in _strings(_read(json.loads, text)) if inner != text):
            return True
    return False


def _near(value: Any, call_id: str) -> Iterator[str]:
    """The texts that stand with an id: of the innermost object that holds it, or of the text that names it."""
    for item in _values(value):
        members = _members(item)
        if isinstance(members, Mapping):
            if call_id in members:
                yield from _strings(members[call_id])
            if any(isinstance(inner, str) and inner == call_id for inner in members.values()):
                yield from _strings(item)
        elif isinstance(item, str) and call_id in item and item != call_id:
            yield item


def _members(value: Any) -> Any:
    """What a value is made of: a mapping, a list, or the attributes of an object; None of a plain value."""
    if isinstance(value, Mapping | list | tuple):
        return value
    return None if isinstance(value, _PLAIN) else getattr(value, "__dict__", None)


def _opaque(value: Any) -> bool:
    return not isinstance(value, (*_PLAIN, Mapping, list, tuple)) and not hasattr(value, "__dict__")


def _values(value: Any, depth: int = 0) -> Iterator[Any]:
    """A value and every value within it, within dicts, lists and objects."""
    yield value
    members = _members(value)
    if members is None or depth >= _DEPTH:
        return
    for item in members.values() if isinstance(members, Mapping) else members:
        yield from _values(item, depth + 1)


def _strings(value: Any) -> Iterator[str]:
    return (item for item in _values(value) if isinstance(item, str))
