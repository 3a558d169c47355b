"""What one face said in one call, read strictly: its content, and every rule of shape that it broke."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.errors import TierError
from isthmus.models.events import CallDelta, Event, StepResult, Usage


@dataclass(frozen=True, slots=True)
class Problem:
    """A broken rule of shape.

    Args:
        law: the id of the law that it breaks.
        message: the place, the value and what is wrong with it.
        seen: what was observed.
        expected: what a right adapter shows there.
    """

    law: str
    message: str
    seen: str = ""
    expected: str = ""


@dataclass(slots=True)
class CallRead:
    """One call as a face showed it."""

    id: Any
    name: Any
    input: Any
    arguments: Any = None
    problem: str | None = None


@dataclass(slots=True)
class Reading:
    """What one face said.

    Args:
        face: the method's name.
        pieces: the streamed texts.
        text: all text.
        calls: all whole calls.
        finish: a `FinishReason`, whatever the face's own spelling.
        reason: the face's own spelling.
        problems: the rules of shape that it broke.
        events: what it said as events, where it speaks in events.
    """

    face: str
    pieces: list[str] = field(default_factory=list)
    text: str = ""
    reasoning: str = ""
    calls: list[CallRead] = field(default_factory=list)
    finish: str | None = None
    reason: Any = None
    usage: Usage | None = None
    problems: list[Problem] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    reply: Any = None

    def wrong(self, law: str, message: str, *, seen: str = "", expected: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(law, f"{self.face}: {message}", seen, expected))

    @property
    def said(self) -> list[tuple[Any, Any]]:
        """The calls without their ids, which an adapter may make up afresh each time."""
        return [(call.name, call.input) for call in self.calls]


def shown(value: Any, size: int = 120) -> str:
    """A value as a finding shows it."""
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr raises {type(error).__name__}>"
    return text if len(text) <= size else text[: size - 1] + "…"


def is_damaged(text: str) -> bool:
    """Whether a text holds what is left of a character that was cut."""
    return "\ufffd" in text or has_halves(text)


def has_halves(text: str) -> bool:
    """Whether a text holds half a surrogate pair, which no encoding can write."""
    return any("\ud800" <= char <= "\udfff" for char in text)


def not_json(value: Any, place: str = "input") -> str:
    """The place of the first value in it that JSON has no word for; "" where there is none."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            found = not_json(item, f"{place}[{key!r}]") if isinstance(key, str) else f"the key {key!r} of {place}"
            if found:
                return found
        return ""
    if isinstance(value, list | tuple):
        return next((found for n, item in enumerate(value) if (found := not_json(item, f"{place}[{n}]"))), "")
    plain = value is None or isinstance(value, str | bool | int)
    finite = isinstance(value, float) and value - value == 0
    return "" if plain or finite else f"{place} ({type(value).__name__} {value!r:.40})"


class Ends:
    """Counts a stream's terminals and what follows them."""

    def __init__(self, reading: Reading, terminal: str) -> None:
        self.reading = reading
        self.terminal = terminal
        self.count = 0

    def item(self, kind: str, *, ends: bool) -> bool:
        """Take note of one item; returns whether it counts."""
        if not self.count:
            self.count = int(ends)
            return True
        if ends:
            self.count += 1
            if self.count == 2:
                self.reading.wrong("finish-once", f"a second {self.terminal}", seen=kind, expected="exactly one")
        elif not any(problem.law == "nothing-after-finish" for problem in self.reading.problems):
            self.reading.wrong(
                "nothing-after-finish", f"{kind} after {self.terminal}", seen=kind, expected="the end of the stream"
            )
        return False

    def close(self) -> None:
        """Take note of the end of the stream."""
        if not self.count:
            self.reading.wrong(
                "finish-present", f"the stream ended without {self.terminal}", seen="no terminal", expected="one, last"
            )


def preview_problems(reading: Reading) -> Iterator[Problem]:
    """What a stream previewed of its calls and is not theirs: arguments, id or name.

    A call that is previewed and never comes was cut: nothing can be said of it.
    """
    previews: dict[int, list[CallDelta]] = {}
    for event in reading.events:
        if isinstance(event, CallDelta):
            previews.setdefault(event.index, []).append(event)
    ids = {index: _last(pieces, "call_id") for index, pieces in previews.items()}
    for place, index in enumerate(sorted(previews)):
        pieces, known = previews[index], ids[index]
        # Calls come in the order in which they end; an id that is told twice tells nothing.
        single = known is not None and list(ids.values()).count(known) == 1
        by_id = next((call for call in reading.calls if single and call.id == known), None)
        by_place = reading.calls[place] if len(previews) == len(reading.calls) else None
        call = by_id or by_place
        if call is None:
            continue
        text = "".join(piece.arguments_delta or "" for piece in pieces)
        told = {"arguments": (text, call.arguments), "name": (_last(pieces, "tool"), call.name)}
        for what, (said, right) in told.items():
            # A call without a name is the fault of another law.
            named = what != "name" or bool(right)
            if said and named and isinstance(right, str) and said != right:
                message = f"{reading.face}: the previews of call {index} have other {what} than the call"
                yield Problem("side-events", message, shown(said), shown(right))


def _last(pieces: list[CallDelta], name: str) -> str | None:
    return next((value for piece in reversed(pieces) if (value := getattr(piece, name))), None)


def plain(outcome: StepResult | TierError) -> dict[str, Any]:
    """What a recording amounts to, as `result.json` keeps it: any of its members may be left out there."""
    if isinstance(outcome, TierError):
        partial = outcome.partial
        spent = None if outcome.usage is None else outcome.usage.to_dict()
        nothing: dict[str, Any] = {"text": "", "reasoning": "", "calls": [], "usage": spent}
        arrived = partial.to_dict() if isinstance(partial, StepResult) else nothing
        return {**_json(arrived), "finish": "error-post", "error": outcome.to_dict()}
    return _json(outcome.to_dict())


def _json(value: Any) -> dict[str, Any]:
    return json.loads(json.dumps(value, default=str))  # type: ignore[no-any-return]
