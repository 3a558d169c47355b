"""The loop of an agent as a pure step machine: a state and an event give the next state and what to do.

No I/O, no clock, no model: `isthmus.harness.driver` carries out the effects and reports what came of them. What stops
a run first: the tools are withdrawn after `max_tool_round_trips` rounds, the steps are used up, the guard of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec.structs import replace as changed

from isthmus.errors import CutReason, ModelBehaviorError, RefusedError
from isthmus.harness.effects import CallModel, Collect, Effect, Emit, HandOver, PrepareTurn, RunTools
from isthmus.harness.endings import cut_reason, end, failure_reason
from isthmus.harness.following import answered, delivered, followed, resumed, succeeded, unanswered
from isthmus.harness.handoffs import Handoff
from isthmus.harness.history import NOT_EXECUTED, UNKNOWN, Message, Said
from isthmus.harness.limits import Limits
from isthmus.harness.loopstate import LoopState
from isthmus.harness.pairing import all_call_ids, paired_with_ids
from isthmus.harness.pending import Pending
from isthmus.harness.reports import Aborted, Collected, Failed, Held, Prepared, Replied, Report, ToolsRan
from isthmus.harness.sent import check_kept
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, FinishReason, Note, NoteCode, Reset, StepResult, Text
from isthmus.models.executor import ToolResult
from isthmus.models.messages import MessageRole, text_of
from isthmus.models.repair import Repair, Verdict, repairing
from isthmus.models.tools import Tools

CUT_OFF = "(response was cut off at the output limit)"
RESUME = (
    "Your last message reached the output limit. Go on from its very last character: repeat nothing, "
    "add no introduction and no comment."
)


Next: TypeAlias = tuple[LoopState, tuple[Effect, ...]]
Follow: TypeAlias = Callable[[LoopState, StepResult, Said], Next]


def start(
    messages: Sequence[Message],
    request: GenerateContext,
    *,
    tools: Tools | None = None,
    limits: Limits | None = None,
    supports: Collection[str] = ("output-schema",),
    staged: bool = False,
    pending: Pending | None = None,
) -> Next:
    """Begin a run on a transcript that ends with what the model is to answer, or with calls that waited.

    Calls without a result get one that says so, results without a call are left out; both are noted.

    Args:
        messages: the transcript.
        request: what every call has in common.
        tools: the tools and their policy.
        limits: what ends the run.
        supports: what the model supports; decides how a form is asked for.
        staged: whether others prepare each turn.
        pending: the calls that waited, behind this transcript; what the run had used before counts.
    """
    kept, notes, ids = paired_with_ids(messages)
    limits = limits or Limits()
    state = LoopState(
        request=request if request.output is None else changed(request, output=None),
        repair=repairing(request.output, supports, retries=limits.max_repairs),
        tools=tools or Tools(),
        limits=limits,
        messages=kept,
        ids=ids,
        notes=notes,
        staged=staged,
    )
    return _ask(state) if pending is None else _taken_up(state, pending)


def _taken_up(state: LoopState, pending: Pending) -> Next:
    used, reply = pending.used, pending.reply
    state = changed(
        state,
        messages=(*state.messages, reply),
        ids=state.ids | all_call_ids((reply,)),
        calls=pending.calls,
        earlier=used["steps"],
        rounds=used["rounds"],
        called=used["called"],
        used=MappingProxyType(dict(used["tools"])),
        text=text_of(reply.get("content")),
        via=pending.via,
    )
    return _run_tools(state)


def handed_over(state: LoopState, effect: HandOver) -> LoopState:
    """The transcript with the handoff in it, complete for whoever reads it next."""
    call = effect.call
    settled = state.settled({call.call_id or "": effect.to.result(call)}, UNKNOWN)
    messages = (*settled.messages, effect.to.briefing(call))
    return changed(settled, messages=messages, via=(*state.via, effect.to.name))


def not_handed_over(state: LoopState) -> Next:
    """The call of a handoff that nobody follows, run like any tool's."""
    return _runs(state, state.text)


def taken_over(state: LoopState, anew: LoopState) -> Next:
    """Go on with a run as another agent, which has rounds of its own; all else that is counted goes on counting.

    Args:
        state: where the run stands, after `handed_over`.
        anew: where a run of that agent would begin.
    """
    counted = (
        "messages",
        "ids",
        "steps",
        "earlier",
        "called",
        "used",
        "text",
        "spent",
        "tier",
        "finish",
        "notes",
        "via",
    )
    return _ask(changed(anew, **{name: getattr(state, name) for name in counted}))


def advance(state: LoopState, report: Report) -> Next:
    """What follows from what happened."""
    return _REPORTS[type(report)](state, report)


def asked_again(state: LoopState) -> Next:
    """Go on with a run that lost what ran beside it."""
    return _ask(state)


def _ask(state: LoopState, extra: tuple[Message, ...] = ()) -> Next:
    """Call the model, if the budget allows another step."""
    limits, made = state.limits, state.earlier + state.steps
    if made >= limits.max_steps or made >= limits.max_turns:
        name = "max_steps" if made >= limits.max_steps else "max_turns"
        detail = f"{name}={getattr(limits, name)}: all are used; raise it if the run is worth more"
        return end(state, "cut", reason=CutReason.BUDGET_STEPS, text=state.text, detail=detail)
    again = extra or (state.repair is not None and state.repair.feedback)
    return (state, (PrepareTurn(),)) if state.staged and not again else _call(state, extra)


def _prepared(state: LoopState, report: Prepared) -> Next:
    """A turn was prepared; a transcript that was changed must still have one result for each call."""
    for usage in report.spent:
        state = changed(state, spent=state.spent.add(usage))
    if report.notes:
        state = changed(state, notes=(*state.notes, *report.notes))
    check_kept(state, report)
    if state.continues == "automatic":
        return _call(resumed(state, report))
    request = changed(state.request, brief=report.brief, options=report.options)
    if report.messages is not state.messages:
        kept, notes, ids = paired_with_ids(report.messages)
        notes = (*state.notes, *notes)
        state = changed(state, messages=unanswered(state, kept), ids=state.ids | ids, notes=notes)
    return _call(changed(state, request=request, tools=report.tools))


def _call(state: LoopState, extra: tuple[Message, ...] = ()) -> Next:
    tools, choice = state.offer()
    ctx = changed(
        state.request,
        messages=(*state.messages, *extra),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=(state.tools if state.tools.tools else state.request).parallel_tool_calls,
    )
    asked = None if state.repair is None else state.repair.request(ctx)
    ctx, how = ctx if asked is None else asked.ctx, state.continues
    call = CallModel(ctx, said=state.open_text, taken=state.ids, asked=asked, continues=how)
    return (state if how is None else changed(state, continues=None)), (call,)


def _replied(state: LoopState, report: Replied) -> Next:
    step = report.step
    usage = step.usage if step.usage is not None or step.error is None else step.error.usage
    state = changed(
        state,
        steps=state.steps + 1,
        finish=str(step.finish),
        tier=report.tier,
        spent=state.spent.add(usage),
        notes=(*state.notes, *step.notes),
    )
    follow = _FINISHES.get(step.finish, _completed)
    if report.continued is not None and report.continued.continuation == "automatic":
        return _ask(followed(state, report))
    how = report.continued
    if how is not None or state.continues is not None or state.required:
        required = () if how is None else how.required_tool_call_ids
        state = changed(state, continues=None if how is None else "explicit", required=required)
    if (state.running or report.continued is not None) and step.finish not in _ENDS:
        # A run goes on for what it still owes or is owed, whatever the reply itself says.
        return _called(state.unrepaired(), step, report.said)
    if state.repair is None:
        return follow(state, step, report.said)
    return _judged(state, state.repair, step, follow=follow)


def _judged(state: LoopState, repair: Repair, step: StepResult, *, follow: Follow) -> Next:
    """A structured reply: it was previewed so far, and is shown now, or asked for again and leaves nothing behind."""
    verdict = Verdict() if step.finish == FinishReason.PAUSE else repair.judge(step)
    if verdict.again is not None:
        note = Note(NoteCode.OUTPUT_REPAIRED, f"repair {verdict.again.used}: {verdict.fault}")
        state, effects = _ask(changed(state, repair=verdict.again, notes=(*state.notes, note)))
        return state, (Emit(Reset(verdict.again.used + 1)), *effects)
    if verdict.wrong:
        return end(state, "failed", reason="output", text=step.text, error=verdict.error)
    if isinstance(verdict.error, RefusedError):
        follow = _refused
    state = changed(state.unrepaired(), verdict=verdict)
    state, effects = follow(state, step, Said(step.text, step.text))
    shown = () if step.calls or not step.text else (Emit(Text(step.text)),)
    return state, (*shown, *effects)


def _completed(state: LoopState, step: StepResult, said: Said) -> Next:
    text = state.answer(said.shown)
    return end(state.committed(step, said), "completed", text=text)


def _refused(state: LoopState, step: StepResult, said: Said) -> Next:
    text = state.answer(said.shown)
    detail = f"the provider withheld the rest of the reply ({step.raw_reason or step.finish})"
    return end(state.committed(step, said), "cut", reason=CutReason.REFUSED, text=text, detail=detail)


def _broke(state: LoopState, step: StepResult, said: Said) -> Next:
    """A reply that failed after content: it stands as far as it came, and none of its calls ever runs."""
    text = state.answer(said.shown)
    state = state.committed(step, said)
    state = state.settled({}, NOT_EXECUTED)
    reason = cut_reason(step.error) or CutReason.STREAM_ERROR
    return end(state, "cut", reason=reason, text=text, error=step.error)


def _called(state: LoopState, step: StepResult, said: Said) -> Next:
    text = state.answer(said.shown)
    state = state.committed(step, said, text=text)
    handoffs = state.handoffs()
    if handoffs and any(call.tool in handoffs for call in state.calls):
        return _hands_over(state, handoffs)
    if not state.calls and (state.running or state.required):
        return state, (Collect(state.required, first=bool(state.running)),)
    return _runs(state, text)


def _hands_over(state: LoopState, handoffs: Mapping[str, Handoff]) -> Next:
    """A handoff stands alone; one with wrong arguments is answered like any tool's."""
    first, *others = state.calls
    if others or state.running or state.continues:
        names = ", ".join(call.tool for call in state.calls)
        more = "asks for more in one reply" if others else "calls still run" if state.running else "steered input waits"
        message = f"the model hands the conversation over and {more} ({names}): none of it was done"
        error = ModelBehaviorError(message)
        return end(state.settled({}, NOT_EXECUTED), "failed", reason=failure_reason(error), error=error)
    to = handoffs[first.tool]
    return (state, (HandOver(first, to),)) if to.accepts(first) else _runs(state, state.text)


def _runs(state: LoopState, text: str) -> Next:
    most = state.limits.max_calls
    if most is not None and state.called + len(state.calls) > most:
        detail = f"max_calls={most}: {state.called} are used, and {len(state.calls)} more were asked for: none was run"
        state = state.settled({}, NOT_EXECUTED)
        return end(state, "cut", reason=CutReason.BUDGET_CALLS, text=text, detail=detail)
    return _run_tools(changed(state, called=state.called + len(state.calls)))


def _run_tools(state: LoopState) -> Next:
    return state, (RunTools(state.calls, state.policy(state.tools), state.used),)


def _paused(state: LoopState, step: StepResult, said: Said) -> Next:
    """The model wants its turn back as it is."""
    text = state.answer(said.shown)
    return _ask(changed(state.committed(step, said, text=text), answered=text))


def _cut_by_length(state: LoopState, step: StepResult, said: Said) -> Next:
    limits, text = state.limits, state.answer(said.shown)
    steps = state.earlier + state.steps
    left = state.continued < limits.max_continuations and steps < min(limits.max_steps, limits.max_turns)
    if left and step.text.strip() and state.repair is None:
        written = state.open_text + said.written
        detail = f"continuation {state.continued + 1} of a reply that was cut at the output limit"
        notes = (*state.notes, Note(NoteCode.CONTINUED, detail))
        if step.message is not None:
            notes = (*notes, Note(NoteCode.NATIVE_DROPPED, "a reply that is continued keeps its text only"))
        state = changed(state, open_text=written, answered=text, continued=state.continued + 1, notes=notes)
        return _ask(state, (_says(MessageRole.ASSISTANT, written), _says(MessageRole.USER, RESUME)))
    state = state.committed(step, said)
    if state.repair is not None:
        return end(state, "cut", reason=CutReason.LENGTH, text=text)
    mark = f"\n\n{CUT_OFF}" if text else CUT_OFF
    state, ending = end(state, "cut", reason=CutReason.LENGTH, text=text + mark)
    return state, (Emit(Text(mark)), *ending)


def _says(role: MessageRole, text: str) -> Message:
    return {"role": role.value, "content": text}


def _failed(state: LoopState, report: Failed) -> Next:
    """A call that failed before any content of its own; an answer that had begun is cut there."""
    error = report.error
    if report.called:
        state = changed(state, steps=state.steps + 1, spent=state.spent.add(getattr(error, "usage", None)))
    text = state.answer("")
    cut = cut_reason(error) or (CutReason.STREAM_ERROR if text else None)
    state = state.settled({}, UNKNOWN).committed(StepResult(), Said())
    if cut is not None:
        return end(state, "cut", reason=cut, text=text, error=error, detail=str(error))
    return end(state, "failed", reason=failure_reason(error), error=error)


def _ran(state: LoopState, report: ToolsRan) -> Next:
    results = {result.call_id: result for result in report.results}
    used = dict(state.used)
    for result in report.results:
        if result.ran:
            used[result.tool] = used.get(result.tool, 0) + 1
    state = state.settled(results, UNKNOWN, used=MappingProxyType(used), rounds=state.rounds + 1)
    return (state, (Collect(state.required),)) if state.running else _ask(state)


def _collected(state: LoopState, report: Collected) -> Next:
    return _ask(delivered(state, report))


def _held(state: LoopState, report: Held) -> Next:
    """Calls wait for a decision: the run stops here, and can be taken up again."""
    many = len(report.asked)
    detail = f"{many} {'calls wait' if many > 1 else 'call waits'} for a decision: resume the run with it"
    state = state.holding(report.run, report.asked, results=report.results)
    return end(state, "cut", reason=CutReason.APPROVAL, text=state.text, detail=detail)


def _aborted(state: LoopState, report: Aborted) -> Next:
    step = report.step
    text = state.answer(report.said.shown) or state.text
    if step is not None:
        state = changed(state, steps=state.steps + 1, spent=state.spent.add(step.usage))
    state = answered(state, report.results)
    if state.calls:
        results = {result.call_id: result for result in report.results}
        unknown = {call_id: _unknown(call_id, state.calls) for call_id in report.started}
        state = state.settled({**unknown, **results}, NOT_EXECUTED)
    else:
        state = state.committed(step or StepResult(), report.said)
        state = succeeded(state.settled({}, NOT_EXECUTED), report.continued)
    return end(state, "cut", reason=CutReason.ABORTED, text=text)


def _unknown(call_id: str, calls: Sequence[Call]) -> ToolResult:
    tool = next((call.tool for call in calls if call.call_id == call_id), "")
    return ToolResult(call_id, tool, UNKNOWN, "unknown")


_FINISHES: Mapping[str, Follow] = {
    FinishReason.TOOL_CALLS: _called,
    FinishReason.LENGTH: _cut_by_length,
    FinishReason.PAUSE: _paused,
    FinishReason.CONTENT_FILTER: _refused,
    FinishReason.ERROR_POST: _broke,
}

_ENDS = frozenset({FinishReason.PAUSE, FinishReason.CONTENT_FILTER, FinishReason.ERROR_POST})

_REPORTS: Mapping[type, Callable[[LoopState, Any], Next]] = {
    Prepared: _prepared,
    Replied: _replied,
    Failed: _failed,
    ToolsRan: _ran,
    Held: _held,
    Collected: _collected,
    Aborted: _aborted,
}
