"""Calls that wait for a decision: how they stand in a transcript, what is asked, and what is decided.

A run that stops for a decision is cut, with the reason "approval": that the model was not done is what a cut says, and
whoever shows "completed", "cut" and "failed" needs no fourth word. Its transcript ends with the reply that makes the
calls, under the mark `_isthmus.visibility = "pending"`. The mark is all there is, so that a copy of the transcript, a
state, a snapshot and a store hold it without knowing, and a reader who does not know the word refuses the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, TypeAlias

from isthmus.harness.errors import ApprovalError
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.messages import RESERVED, MessageRole
from isthmus.models.outputs import call_of

Message: TypeAlias = Mapping[str, Any]

PENDING = "pending"
VERDICTS = ("run", "refuse", "answer")


def digest_of(tool: str, arguments: Mapping[str, Any] | None) -> str:
    """The digest of a call: SHA-256, in hex, of its tool and its arguments, whatever their order."""
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is decided of one call; plain values, to be made by hand or by the request itself.

    Args:
        run: the run that asked.
        call_id: the call.
        digest: the digest of what the call was to do when it was decided.
        verdict: "run", "refuse", or "answer": it is not run, and the model reads the text as its result.
        text: the reason of a refusal, or the answer; the model reads it.
        arguments: what the call is run with, in place of its own arguments; the model is told.

    Raises:
        ValueError: the verdict is none of these, or arguments stand beside one that runs nothing.
    """

    run: str
    call_id: str
    digest: str
    verdict: str
    text: str = ""
    arguments: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r:.40}: must be one of {', '.join(VERDICTS)}")
        if self.arguments is not None and self.verdict != "run":
            raise ValueError(f"arguments: a call with the verdict {self.verdict!r} is not run")

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; `Decision(**fields)` makes it anew."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that waits for a decision.

    Args:
        run: the run that asks.
        call_id: the call.
        tool: its tool.
        arguments: its arguments.
        digest: what a decision must name, so that it holds for these arguments alone.
        why: "approval", or "unknown": the call began, and what became of it was not recorded.
        reason: what the policy says of it, for a person.
    """

    run: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    digest: str
    why: str = "approval"
    reason: str = ""

    def approve(self, arguments: Mapping[str, Any] | None = None) -> Decision:
        """Run it, with these arguments where some are given; one that is "unknown" then runs once more."""
        return self._decided("run", arguments=arguments)

    def refuse(self, reason: str = "") -> Decision:
        """Do not run it; the model reads the reason."""
        return self._decided("refuse", text=reason)

    def answer(self, content: str) -> Decision:
        """Do not run it: this is its result, e.g. of a call that had run before a crash."""
        return self._decided("answer", text=content)

    def _decided(self, verdict: str, **about: Any) -> Decision:
        return Decision(run=self.run, call_id=self.call_id, digest=self.digest, verdict=verdict, **about)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, e.g. for a page that asks."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Why a call waits."""

    why: str = "approval"
    reason: str = ""


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
        return tuple(request_of(self.run, call, asked=self.asked[call.call_id or ""]) for call in waiting)

    def decided(self, decisions: Iterable[Decision]) -> dict[str, Decision]:
        """The decisions by call.

        Raises:
            ApprovalError: one is of another run, call or arguments, two differ, or one is missing.
        """
        given = checked(decisions, self.run, digests={each.call_id: each.digest for each in self.requests})
        missing = [each for each in self.requests if each.call_id not in given]
        if missing:
            names = ", ".join(f"{each.call_id!r} ({each.tool})" for each in missing)
            raise ApprovalError(f"no decision for {names}: all calls that wait are decided together")
        return given


def request_of(run: str, call: Call, *, asked: Question) -> ApprovalRequest:
    """What is asked of one call."""
    return ApprovalRequest(
        run=run,
        call_id=call.call_id or "",
        tool=call.tool,
        arguments=call.input or {},
        digest=digest_of(call.tool, call.input),
        why=asked.why,
        reason=asked.reason,
    )


def checked(decisions: Iterable[Decision], run: str, *, digests: Mapping[str, str]) -> dict[str, Decision]:
    """The decisions by call, each held against what it was made for.

    Args:
        decisions: as they were given.
        run: the run that they must name.
        digests: the calls that may be decided, and the digests that they must name.

    Raises:
        ApprovalError: one is of another run, call or arguments, or two of one call differ.
        TypeError: something that is no decision.
    """
    found: dict[str, Decision] = {}
    for each in decisions:
        if not isinstance(each, Decision):
            raise TypeError(f"decisions: must be Decisions, as request.approve() makes them, not {each!r:.60}")
        if each.run != run:
            raise ApprovalError(f"the decision of call {each.call_id!r} is of run {each.run!r}, not of {run!r}")
        if each.call_id not in digests:
            waiting = ", ".join(map(repr, digests)) or "none"
            raise ApprovalError(f"call {each.call_id!r} does not wait for a decision; those that do: {waiting}")
        if each.digest != digests[each.call_id]:
            raise ApprovalError(
                f"the decision of call {each.call_id!r} is of other arguments (digest {each.digest:.12}…, "
                f"not {digests[each.call_id]:.12}…): look at the call as it stands, and decide anew"
            )
        if found.setdefault(each.call_id, each) != each:
            raise ApprovalError(f"call {each.call_id!r} is decided twice, and differently")
    return found


def held(message: Message, *, run: str, asked: Mapping[str, Question], about: Mapping[str, Any]) -> Message:
    """The reply that makes the calls, under the mark.

    Args:
        message: the reply.
        run: the run that asks.
        asked: the calls that wait, and why.
        about: `used`, `left`, `via` and `form`, as a `Pending` has them.
    """
    digests = {call.call_id: digest_of(call.tool, call.input) for call in _calls(message)}
    mark = {
        "run": run,
        "calls": {name: {"digest": digests[name], **asdict(each)} for name, each in asked.items()},
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
    return Pending(
        run=mark["run"],
        before=tuple(messages[: places[0]]),
        reply=unheld(message),
        calls=calls,
        asked={name: Question(why=about["why"], reason=about["reason"]) for name, about in mark["calls"].items()},
        results={name: ToolResult(name, tools[name], said) for name, said in answered.items() if name in tools},  # type: ignore[arg-type]
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


_MARK: Mapping[str, Any] = {"run": str, "calls": Mapping, "used": Mapping, "left": list | tuple, "via": list | tuple}
_ABOUT = ("digest", "why", "reason")
_COUNTS = ("steps", "rounds", "called")


def _is_pending(message: Message) -> bool:
    mark = message.get(RESERVED)
    return isinstance(mark, Mapping) and mark.get("visibility") == PENDING


def _calls(message: Message) -> tuple[Call, ...]:
    return tuple(call_of(each, f"tool_calls[{place}]") for place, each in enumerate(message.get("tool_calls") or ()))
