"""Calls that wait for a decision, as they stand in a transcript.

A run that stops for a decision is cut, with the reason "approval": that the model was not done is what a cut says, and
whoever shows "completed", "cut" and "failed" needs no fourth word. Its transcript ends with the reply that makes the
calls, under the mark `_isthmus.visibility = "pending"`. The mark is all there is, so that a copy of the transcript, a
state, a snapshot and a store hold it without knowing, and a reader who does not know the word refuses the transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from isthmus.harness.decisions import ApprovalRequest, Decision, checked, digest_of
from isthmus.harness.errors import ApprovalError
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.messages import RESERVED, MessageRole
from isthmus.models.outputs import call_of

Message: TypeAlias = Mapping[str, Any]

PENDING = "pending"


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A call of an agent that waits itself: its decisions are asked for in its name.

    Args:
        messages: its transcript, which ends with what waits.
        shims: what its shims kept.
        arguments: what the call ran with, where that is not what the model gave.
        decisions: what was decided of its calls.
    """

    messages: Sequence[Message]
    shims: Mapping[str, Any]
    arguments: Mapping[str, Any] | None = None
    decisions: tuple[Decision, ...] = ()

    @property
    def pending(self) -> Pending:
        """What waits.

        Raises:
            ApprovalError: nothing does.
        """
        found = pending_in(self.messages)
        if found is None:
            raise ApprovalError("an agent that worked for the run waits for nothing: its transcript was changed")
        return found

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, without the decisions."""
        return {"messages": list(self.messages), "shims": self.shims, "arguments": self.arguments}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Why a call waits; with `inner`, because an agent does that works for the run."""

    why: str = "approval"
    reason: str = ""
    inner: Waiting | None = None

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        inner = {} if self.inner is None else {"inner": self.inner.to_dict()}
        return {"why": self.why, "reason": self.reason, **inner}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A transcript that waits: what is before, what waits, and what the run had used.

    Args:
        run: the run that asks.
        before: the transcript up to the reply.
        reply: the reply that makes the calls, without the mark.
        calls: all of them, in order.
        asked: those that wait, by their ids.
        results: those that were answered.
        used: `steps`, `rounds`, `called` and the count of each tool under `tools`.
        left: where ephemeral context stood that is gone: a place among all messages, and its origin.
        via: the handoffs by which the conversation came to the agent that asks, by their names.
        form: the form of the answer that is due; None is text.
    """

    run: str
    before: tuple[Message, ...]
    reply: Message
    calls: tuple[Call, ...]
    asked: Mapping[str, Question]
    results: Mapping[str, ToolResult]
    used: Mapping[str, Any]
    left: tuple[tuple[int, str], ...] = ()
    via: tuple[str, ...] = ()
    form: Any = None

    @property
    def requests(self) -> tuple[ApprovalRequest, ...]:
        """What is asked."""
        waiting = [call for call in self.calls if call.call_id in self.asked]
        asked = [requests_of(self.run, call, asked=self.asked[call.call_id or ""]) for call in waiting]
        return tuple(each for requests in asked for each in requests)

    @property
    def waiting(self) -> dict[str, Waiting]:
        """The calls of agents that wait themselves."""
        return {name: each.inner for name, each in self.asked.items() if each.inner is not None}

    def decided(self, decisions: Iterable[Decision]) -> tuple[dict[str, Decision], dict[str, Waiting]]:
        """The decisions of the run's own calls, and the agents that wait with those of theirs.

        Raises:
            ApprovalError: one is of another run, call or arguments, two differ, or one is missing.
        """
        rest, waiting = shared_out(decisions, self.waiting)
        own = {each.call_id: each for each in self.requests if each.run == self.run}
        given = checked(rest, self.run, digests={name: each.digest for name, each in own.items()})
        missing = [each for name, each in own.items() if name not in given]
        missing += [asked for each in waiting.values() if not each.decisions for asked in each.pending.requests]
        if missing:
            names = ", ".join(f"{each.call_id!r} ({each.tool})" for each in missing)
            raise ApprovalError(f"no decision for {names}: all calls that wait are decided together")
        return given, waiting


def shared_out(
    decisions: Iterable[Decision], waiting: Mapping[str, Waiting]
) -> tuple[list[Decision], dict[str, Waiting]]:
    """Give agents that wait the decisions of their calls; the rest is the run's own.

    Raises:
        ApprovalError: of an agent for whom there are some, one does not fit, or is missing.
    """
    rest, told = list(decisions), dict(waiting)
    for name, each in waiting.items():
        found = each.pending
        runs = {request.run for request in found.requests}
        mine = tuple(decision for decision in rest if getattr(decision, "run", None) in runs)
        if mine:
            found.decided(mine)
            rest = [decision for decision in rest if decision not in mine]
            told[name] = replace(each, decisions=mine)
    return rest, told


def requests_of(run: str, call: Call, *, asked: Question) -> tuple[ApprovalRequest, ...]:
    """What is asked of one call, or by the agent that it let work."""
    if asked.inner is not None:
        return asked.inner.pending.requests
    request = ApprovalRequest(
        run=run,
        call_id=call.call_id or "",
        tool=call.tool,
        arguments=call.input or {},
        digest=digest_of(call.tool, call.input),
        why=asked.why,
        reason=asked.reason,
    )
    return (request,)


def held(message: Message, *, run: str, asked: Mapping[str, Question], about: Mapping[str, Any]) -> Message:
    """The reply that makes the calls, under the mark.

    Args:
        message: the reply.
        run: the run that asks.
        asked: the calls that wait, and why.
        about: `used`, `left`, `via` and `form`, as a `Pending` has them, and the `outcomes` of answered calls.
    """
    digests = {call.call_id: digest_of(call.tool, call.input) for call in _calls(message)}
    mark = {
        "run": run,
        "calls": {name: {"digest": digests[name], **each.to_dict()} for name, each in asked.items()},
        **about,
    }
    return {**message, RESERVED: {**message.get(RESERVED, {}), "visibility": PENDING, PENDING: mark}}


def pending_in(messages: Sequence[Message]) -> Pending | None:
    """What waits at the end of a transcript; None if nothing does.

    Raises:
        ApprovalError: calls wait in the middle of it, or were changed since they were asked about.
    """
    places = [place for place, message in enumerate(messages) if _is_pending(message)]
    if not places:
        return None
    after = messages[places[0] + 1 :]
    if len(places) > 1 or any(message.get("role") != MessageRole.TOOL for message in after):
        raise ApprovalError(
            f"history[{places[0]}]: its calls wait for a decision, and the transcript goes on behind it"
        )
    message = messages[places[0]]
    mark = check_pending(message, f"history[{places[0]}]")
    calls = _calls(message)
    digests = {call.call_id or "": digest_of(call.tool, call.input) for call in calls}
    for call_id, about in mark["calls"].items():
        if about["digest"] != digests.get(call_id):
            raise ApprovalError(f"history[{places[0]}]: call {call_id!r} is no longer the one that was asked about")
    tools = {call.call_id: call.tool for call in calls}
    answered = {str(each.get("tool_call_id")): each.get("content") for each in after}
    outcomes = mark["outcomes"]
    return Pending(
        run=mark["run"],
        before=tuple(messages[: places[0]]),
        reply=unheld(message),
        calls=calls,
        asked={name: _question(about) for name, about in mark["calls"].items()},
        results={
            name: ToolResult(name, tools[name], said, outcomes.get(name, "ok"))  # type: ignore[arg-type]
            for name, said in answered.items()
            if name in tools
        },
        used=mark["used"],
        left=tuple((place, origin) for place, origin in mark["left"]),
        via=tuple(mark["via"]),
        form=mark.get("form"),
    )


def unheld(message: Message) -> Message:
    """The message without the mark."""
    if not _is_pending(message):
        return message
    ours = {key: value for key, value in message[RESERVED].items() if key not in ("visibility", PENDING)}
    bare = {key: value for key, value in message.items() if key != RESERVED}
    return {**bare, RESERVED: ours} if ours else bare


def check_pending(message: Message, place: str) -> Mapping[str, Any]:
    """The mark of a reply whose calls wait.

    Raises:
        ApprovalError: it is not what it must be; names the place.
    """
    mark = message[RESERVED].get(PENDING)
    for name, kind in _MARK.items():
        if not isinstance(mark, Mapping) or not isinstance(mark.get(name), kind):
            raise ApprovalError(f"{place}.{RESERVED}.{PENDING}.{name}: is not what it must be")
    for call_id, about in mark["calls"].items():
        if not isinstance(about, Mapping) or any(not isinstance(about.get(name), str) for name in _ABOUT):
            raise ApprovalError(f"{place}.{RESERVED}.{PENDING}.calls.{call_id}: is not what it must be")
        _check_inner(about, f"{place}.{RESERVED}.{PENDING}.calls.{call_id}.inner")
    for name in _COUNTS:
        if type(mark["used"].get(name)) is not int:
            raise ApprovalError(f"{place}.{RESERVED}.{PENDING}.used.{name}: must be a whole number")
    tools = mark["used"].get("tools")
    if not isinstance(tools, Mapping) or any(type(count) is not int for count in tools.values()):
        raise ApprovalError(f"{place}.{RESERVED}.{PENDING}.used.tools: must hold whole numbers")
    for each in mark["left"]:
        if not (isinstance(each, list | tuple) and len(each) == 2 and type(each[0]) is int and type(each[1]) is str):
            raise ApprovalError(f"{place}.{RESERVED}.{PENDING}.left: must hold places and origins")
    if not all(isinstance(each, str) for each in mark["via"]):
        raise ApprovalError(f"{place}.{RESERVED}.{PENDING}.via: must hold names")
    return mark  # type: ignore[no-any-return]


def _check_inner(about: Mapping[str, Any], place: str) -> None:
    inner = about.get("inner")
    if inner is None:
        return
    messages = inner.get("messages") if isinstance(inner, Mapping) else None
    if not isinstance(messages, list | tuple) or not all(isinstance(each, Mapping) for each in messages):
        raise ApprovalError(f"{place}.messages: must hold messages")
    if not isinstance(inner.get("shims"), Mapping) or not isinstance(inner.get("arguments"), Mapping | None):
        raise ApprovalError(f"{place}: is not what it must be")
    try:
        found = pending_in(messages)
    except ApprovalError as error:
        raise ApprovalError(f"{place}: {error}") from None
    if found is None:
        raise ApprovalError(f"{place}.messages: nothing waits in them")


def _question(about: Mapping[str, Any]) -> Question:
    inner = about.get("inner")
    waiting = None if inner is None else Waiting(**{name: inner[name] for name in _INNER})
    return Question(why=about["why"], reason=about["reason"], inner=waiting)


_MARK: Mapping[str, Any] = {
    "run": str,
    "calls": Mapping,
    "used": Mapping,
    "left": list | tuple,
    "via": list | tuple,
    "outcomes": Mapping,
}
_INNER = ("messages", "shims", "arguments")
_ABOUT = ("digest", "why", "reason")
_COUNTS = ("steps", "rounds", "called")


def _is_pending(message: Message) -> bool:
    mark = message.get(RESERVED)
    return isinstance(mark, Mapping) and mark.get("visibility") == PENDING


def _calls(message: Message) -> tuple[Call, ...]:
    return tuple(call_of(each, f"tool_calls[{place}]") for place, each in enumerate(message.get("tool_calls") or ()))
