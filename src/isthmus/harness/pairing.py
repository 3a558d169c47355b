"""Repairs a transcript before it is sent: each call has one result, behind it, and each result a call.

Calls and results are found in every shape that a history may be in: neutral messages, blocks inside of a message, a
provider's own items without a role. A call without an id of its own gets one, and its result the same. What is missing
is put in with a text that says that nobody knows; a result that stands elsewhere is moved to its call; what answers
nothing, or answers a second time, is dropped. All is noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from isthmus.harness.history import UNKNOWN, Message
from isthmus.models.events import Note, NoteCode
from isthmus.models.messages import MessageRole, tool_message
from isthmus.models.neutral import NATIVE_INPUT
from isthmus.models.pairing import Pairing

_ASSISTANT, _TOOL = MessageRole.ASSISTANT.value, MessageRole.TOOL.value
_CALLS = {"tool_use": "id", "function": "id", "function_call": "call_id", "custom_tool_call": "call_id"}
_RESULTS = {"tool_result": "tool_use_id", "function_call_output": "call_id", "custom_tool_call_output": "call_id"}


class _Facts(NamedTuple):
    """The calls that a message makes, and the results that it holds, by their ids."""

    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


_NOTHING = _Facts()


def all_call_ids(messages: Iterable[Message]) -> frozenset[str]:
    """The ids of every call in a transcript, in whatever shape it stands there."""
    return frozenset(call_id for message in messages for call_id in _facts(message).calls)


def paired(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Note, ...]]:
    """The transcript with an answer for each call that lacks one, and without answers that nobody asked for.

    Items in a provider's own shape may answer a call that the provider keeps, so that those stay.
    """
    kept, notes, _ = paired_with_ids(messages)
    return kept, notes


def paired_with_ids(messages: Sequence[Message]) -> tuple[tuple[Message, ...], tuple[Note, ...], frozenset[str]]:
    """The same, and the ids of every call in it."""
    named: list[Note] = []
    if any(map(_is_unnamed, messages)):
        pairing = Pairing(named)
        messages = [pairing.turn(message, f"history[{place}]") for place, message in enumerate(messages)]
    facts = [_facts(message) for message in messages]
    if all(each is _NOTHING for each in facts):
        return tuple(messages), (), frozenset()
    made = _Paired(messages, facts, named)
    for place in range(len(messages)):
        made.add(place)
    made.settle()
    return tuple(made.kept), tuple(made.notes), frozenset([call_id for each in facts for call_id in each.calls])


class _Paired:
    """The transcript as it is made, message by message."""

    def __init__(self, messages: Sequence[Message], facts: Sequence[_Facts], notes: list[Note]) -> None:
        self.kept: list[Message] = []
        self.notes = notes
        self._messages, self._facts = messages, facts
        self._chosen, self._called = _chosen(facts)
        self._waiting: dict[str, int] = {}

    def add(self, place: int) -> None:
        """Say one message, with those of its results that have their place here."""
        message, (calls, results) = self._messages[place], self._facts[place]
        role = message.get("role")
        here = [each for each in results if self._waiting.get(each, -1) == self._chosen.get((place, each), -2)]
        if role == MessageRole.TOOL and not results:
            self._unnamed(message)
            return
        for each in here:
            del self._waiting[each]
        if role is not None and role != MessageRole.TOOL and message.get("type") != "message":
            self.settle()
        shown: Message | None = message
        gone = [each for each in results if each not in here and self._goes(place, each)]
        if gone:
            shown = _without(message, gone)
        if shown is not None:
            self.kept.append(shown)
        self._waiting.update((each, place) for each in calls)

    def settle(self) -> None:
        """Answer what still waits: with its result from elsewhere, or with one that says that there is none."""
        for call_id, place in self._waiting.items():
            found = next((at for (at, each), of in self._chosen.items() if each == call_id and of == place), None)
            if found is None:
                self.kept.append(tool_message(call_id, UNKNOWN))
                self._note(f"call {call_id!r} had no result: one that says so was added")
            else:
                self.kept.append(_only(self._messages[found], call_id))
                self._note(f"the result of {call_id!r} was moved to its call")
        self._waiting.clear()

    def _goes(self, place: int, call_id: str) -> bool:
        """Whether a result that is not due here leaves its place: it is moved, or nobody waits for it."""
        if (place, call_id) in self._chosen:
            return True
        if "role" not in self._messages[place] and call_id not in self._called:
            return False
        self._note(f"a result for {call_id!r}, which waits for none, was dropped")
        return True

    def _unnamed(self, message: Message) -> None:
        """A result without an id is that of the first call that has no other."""
        answered = {(of, each) for (_, each), of in self._chosen.items()}
        call_id = next((each for each, place in self._waiting.items() if (place, each) not in answered), None)
        if call_id is None:
            self._note("a result without the id of a call, where none waits, was dropped")
            return
        del self._waiting[call_id]
        self.kept.append({**message, "tool_call_id": call_id})
        self._note(f"a result without the id of a call was taken for that of {call_id!r}")

    def _note(self, detail: str) -> None:
        self.notes.append(Note(NoteCode.HISTORY_CHANGED, detail))


def _chosen(facts: Sequence[_Facts]) -> tuple[dict[tuple[int, str], int], frozenset[str]]:
    """Which result, by its place and id, answers the call at which place; and the ids of all calls.

    A result answers the last call of its id before it; one that stands before all of them the first, if that has none.
    """
    places: dict[str, list[int]] = {}
    for place, each in enumerate(facts):
        for call_id in each.calls:
            places.setdefault(call_id, []).append(place)
    chosen: dict[tuple[int, str], int] = {}
    taken: set[tuple[int, str]] = set()
    early: list[tuple[int, str]] = []
    for place, each in enumerate(facts):
        for call_id in each.results:
            before = [at for at in places.get(call_id, ()) if at < place]
            if not before:
                early.append((place, call_id))
            elif (before[-1], call_id) not in taken:
                taken.add((before[-1], call_id))
                chosen[place, call_id] = before[-1]
    for place, call_id in early:
        first = next(iter(places.get(call_id, ())), None)
        if first is not None and (first, call_id) not in taken:
            taken.add((first, call_id))
            chosen[place, call_id] = first
    return chosen, frozenset(places)


def _facts(message: Message) -> _Facts:
    """What a message asks and answers."""
    role = message.get("role")
    if role == _TOOL:
        given = message.get("tool_call_id")
        return _Facts(results=(str(given),)) if given not in (None, "") else _Facts()
    asked, content = message.get("tool_calls"), message.get("content")
    if role is not None and not asked and (content is None or type(content) is str) and NATIVE_INPUT not in message:
        # Most messages are nothing but text.
        return _NOTHING
    calls = [str(call.get("id")) for call in asked or () if role == _ASSISTANT]
    results: list[str] = []
    for part in _parts(message):
        called, answered = _asks(part), _answers(part)
        calls += [called] if called is not None and called not in calls else []
        results += [answered] if answered is not None and answered not in results else []
    return _Facts(tuple(calls), tuple(results)) if calls or results else _NOTHING


def _is_unnamed(message: Message) -> bool:
    """Whether it makes a call that has no id of its own, or speaks of calls as was usual before they had any."""
    calls = message.get("tool_calls")
    if not calls:
        return "function_call" in message or message.get("role") == "function"
    ids = {call.get("id") for call in calls}
    return len(ids) < len(calls) or None in ids or "" in ids


def _parts(message: Message) -> Iterator[Mapping[str, Any]]:
    """The parts of a message, and the items that it is in its provider's words."""
    if "role" not in message:
        yield message
    for name in ("content", NATIVE_INPUT):
        held = message.get(name)
        if isinstance(held, list | tuple):
            yield from (part for part in held if isinstance(part, Mapping))


def _asks(part: Mapping[str, Any]) -> str | None:
    block = part.get("toolUse")
    if isinstance(block, Mapping):
        return _text(block.get("toolUseId")) if block.get("type") in (None, "tool_use") else None
    key = _CALLS.get(str(part.get("type")))
    return None if key is None else _text(part.get(key) or part.get("id"))


def _answers(part: Mapping[str, Any]) -> str | None:
    block = part.get("toolResult")
    if isinstance(block, Mapping):
        return _text(block.get("toolUseId"))
    key = _RESULTS.get(str(part.get("type")))
    return None if key is None else _text(part.get(key))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _without(message: Message, results: Sequence[str]) -> Message | None:
    """The message without these results; None where nothing is left of it."""
    if message.get("role") == MessageRole.TOOL or "role" not in message:
        return None
    left = dict(message)
    for name in ("content", NATIVE_INPUT):
        held = message.get(name)
        if isinstance(held, list | tuple):
            left[name] = [part for part in held if not isinstance(part, Mapping) or _answers(part) not in results]
    said = (left.get("content"), left.get(NATIVE_INPUT), left.get("tool_calls"))
    return left if any(said) else None


def _only(message: Message, call_id: str) -> Message:
    """One result of a message, as a message of its own."""
    if message.get("role") == MessageRole.TOOL or "role" not in message:
        return message
    for name in ("content", NATIVE_INPUT):
        held = message.get(name)
        for part in held if isinstance(held, list | tuple) else ():
            if isinstance(part, Mapping) and _answers(part) == call_id:
                return {"role": message["role"], name: [part]}
    return message
