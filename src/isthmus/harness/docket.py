"""What is known of the calls of one reply before any of them runs, and what follows for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from isthmus.harness.crew import Crew
from isthmus.harness.decisions import Decision
from isthmus.harness.effects import RunTools
from isthmus.harness.history import UNKNOWN
from isthmus.harness.loopstate import LoopState
from isthmus.harness.pending import Question, Waiting, requests_of
from isthmus.harness.shims import Ruling
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.normalise import make_call

Uncertain: TypeAlias = str | Callable[[Call], str]
"""What becomes of a call that began and whose result was not recorded: "ask", "rerun" or "fail", or who says so."""

_POLICIES = ("ask", "rerun", "fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Docket:
    """What a run that is taken up again knows of the calls that it stopped at.

    Args:
        results: the calls that were answered.
        decisions: what was decided.
        waiting: the calls of agents that wait themselves, with what was decided of theirs.
        started: the calls that began, and have no result.
        uncertain: what becomes of these.
    """

    results: Mapping[str, ToolResult] = field(default_factory=dict)
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    started: frozenset[str] = frozenset()
    uncertain: Uncertain = "ask"


@dataclass(slots=True)
class Plan:
    """What becomes of the calls of one reply.

    Args:
        run: those to be run, as they are to be run.
        answered: those that have their answers.
        asked: those that wait for a decision, and why: while there is one, none is run.
        edited: those that run with other arguments than the model gave.
        again: those of them whose agents go on where they waited.
    """

    run: list[Call] = field(default_factory=list)
    answered: dict[str, ToolResult] = field(default_factory=dict)
    asked: dict[str, Question] = field(default_factory=dict)
    edited: dict[str, Call] = field(default_factory=dict)
    again: dict[str, Waiting] = field(default_factory=dict)

    def shown(self, result: ToolResult) -> ToolResult:
        """A result as the model reads it: of a call that had other arguments than it gave, it is told so."""
        call = self.edited.get(result.call_id)
        if call is None:
            return result
        told = f"(A person changed the arguments of this call to {call.arguments}.)\n"
        content = result.content
        said: Any = told + content if isinstance(content, str) else [{"type": "text", "text": told}, *content]
        return ToolResult(result.call_id, result.tool, said, result.outcome, result.seconds)


def planned(calls: Sequence[Call], docket: Docket, *, rulings: Mapping[str, Ruling]) -> Plan:
    """What becomes of each call: its result where there is one, else what was decided of it, else what is ruled.

    All calls of a reply wait while one of them does. The model made them together, knowing none of their results; one
    that ran at once could take effect, a mail that announces a payment, for what a person then refuses.

    Args:
        calls: the calls of one reply.
        docket: what is known of them.
        rulings: what those who attend the run say of them; one that is not named is run.

    Raises:
        ValueError: a policy says something that is no policy.
    """
    plan = Plan()
    for call in calls:
        call_id = call.call_id or ""
        known = docket.results.get(call_id)
        if known is not None:
            plan.answered[call_id] = known
        elif call_id in docket.waiting:
            _wait(plan, call, docket.waiting[call_id])
        elif call_id in docket.decisions:
            _decide(plan, call, docket.decisions[call_id])
        elif call_id in docket.started:
            _settle(plan, call, docket.uncertain)
        else:
            _rule(plan, call, rulings.get(call_id) or _RUN)
    return plan


def check_policy(policy: Any) -> None:
    """Whether this says what becomes of uncertain calls.

    Raises:
        ValueError: it does not.
    """
    if not callable(policy) and policy not in _POLICIES:
        raise ValueError(f"uncertain={policy!r:.40}: must be one of {', '.join(_POLICIES)}, or a function of the call")


def _decide(plan: Plan, call: Call, decision: Decision) -> None:
    if decision.verdict == "refuse":
        _refuse(plan, call, decision.text)
    elif decision.verdict == "answer":
        plan.answered[call.call_id or ""] = ToolResult(call.call_id or "", call.tool, decision.text)
    else:
        _run(plan, call, decision.arguments)


def _run(plan: Plan, call: Call, arguments: Mapping[str, Any] | None) -> None:
    if arguments is not None:
        call = make_call(call.tool, dict(arguments), call_id=call.call_id)
        plan.edited[call.call_id or ""] = call
    plan.run.append(call)


def _wait(plan: Plan, call: Call, waiting: Waiting) -> None:
    if waiting.decisions:
        plan.again[call.call_id or ""] = waiting
        _run(plan, call, waiting.arguments)
    else:
        plan.asked[call.call_id or ""] = Question(inner=waiting)


def _settle(plan: Plan, call: Call, uncertain: Uncertain) -> None:
    policy = uncertain(call) if callable(uncertain) else uncertain
    check_policy(policy)
    if policy == "rerun":
        plan.run.append(call)
    elif policy == "fail":
        plan.answered[call.call_id or ""] = ToolResult(call.call_id or "", call.tool, UNKNOWN, "unknown")
    else:
        plan.asked[call.call_id or ""] = Question(why="unknown", reason="it began, and its result was not recorded")


_RUN = Ruling("run")


def _rule(plan: Plan, call: Call, ruling: Ruling) -> None:
    # What cannot run needs nobody's leave: the model is told what is wrong with it.
    if ruling.verdict == "run" or call.input is None:
        plan.run.append(call)
    elif ruling.verdict == "refuse":
        _refuse(plan, call, ruling.reason)
    else:
        plan.asked[call.call_id or ""] = Question(reason=ruling.reason)


def _refuse(plan: Plan, call: Call, reason: str) -> None:
    text = f"Error: Tool {call.tool!r} was not run: it was refused{f': {reason}' if reason else '.'}"
    plan.answered[call.call_id or ""] = ToolResult(call.call_id or "", call.tool, text, "refused")


async def planned_round(
    effect: RunTools, docket: Docket | None, *, crew: Crew | None, stands: LoopState, model: Any, run_id: str
) -> tuple[Plan | None, RunTools]:
    """What becomes of the calls of a round, and on what terms; no plan where all of them simply run.

    Args:
        effect: the round.
        docket: what is known of its calls; None if it is new.
        crew: those who attend the run, and are asked; they are told of calls that wait.
        stands: where the run stands.
        model: what it calls.
        run_id: the run.
    """
    rulings: Mapping[str, Ruling] = {}
    if crew is not None:
        if crew.unprepared:
            effect = changed(effect, tools=stands.policy(await crew.tools(stands, model)))
        rulings = await crew.review(effect.calls)
    if docket is None and all(each.verdict == "run" for each in rulings.values()):
        return None, effect
    docket = docket or Docket()
    plan = planned(effect.calls, docket, rulings=rulings)
    for call in effect.calls:
        asked = plan.asked.get(call.call_id or "")
        if crew is not None and asked is not None:
            for request in requests_of(run_id, call, asked=asked):
                crew.asks(call, request.to_dict())
    used = Counter(effect.used)
    used.update(result.tool for result in docket.results.values() if result.ran)
    return plan, changed(effect, used=used)
