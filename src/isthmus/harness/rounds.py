"""One round of tools: what is known and ruled of the calls, then each tool, told to whom it concerns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Protocol

from isthmus.harness.agenttool import WAITING
from isthmus.harness.conversation import Turn, knows_where
from isthmus.harness.crew import Crew
from isthmus.harness.docket import Docket, Plan, planned_round
from isthmus.harness.effects import RunTools
from isthmus.harness.loopstate import LoopState
from isthmus.harness.observed import answered, around_tools
from isthmus.harness.pending import Question, Waiting
from isthmus.harness.reports import Held, Report, ToolsRan
from isthmus.harness.runevents import RunEvent
from isthmus.harness.runlog import RunLog
from isthmus.models.events import Call
from isthmus.models.executor import Around, ToolExecutor, ToolResult
from isthmus.models.inturn import Closable
from isthmus.models.tools import ToolExecutionContext
from isthmus.observability.scope import Operation, under


class Worked(Protocol):
    """The run, as far as its tools go; its own fields say what these are."""

    state: LoopState
    context: ToolExecutionContext
    crew: Crew | None
    op: Operation | None
    log: RunLog | None
    docket: Docket | None
    lead: Any
    active: Any
    turn: Turn | None
    results: tuple[ToolResult, ...]
    returned: dict[str, ToolResult]
    started: frozenset[str]

    def report(self, report: Report) -> None:
        """Tell the machine what happened."""

    def collect(self) -> None:
        """Enter what those spent who have worked for the run."""


async def run_round(run: Worked, effect: RunTools) -> AsyncGenerator[ToolResult | RunEvent, None]:
    """The events of a round, which is reported at its end; while a call waits for a decision none is run."""
    run_id = run.context.run_id or ""
    plan, effect = await planned_round(
        effect, run.docket, crew=run.crew, stands=run.state, model=run.active, run_id=run_id
    )
    if plan is not None:
        async for known in _known(run, effect, plan):
            yield known
        if plan.asked:
            run.report(Held(run_id, plan.asked, plan.answered))
            return
    calls = {call.call_id or "": call for call in effect.calls}
    run.docket = None
    if run.lead is not None:
        run.lead.round(run.active, plan)
    due = effect.calls if plan is None else plan.run
    beside_others = effect.tools.parallel_tool_calls and len(due) > 1
    results = ToolExecutor(around=around(run, plan, early=beside_others)).results(
        due, tools=effect.tools, context=run.context, used=effect.used, on_tool_start=starting(run)
    )
    events = beside(run, results)
    try:
        async for item in events:
            if isinstance(item, ToolResult):
                item = item if plan is None else plan.shown(item)
                if item.outcome == WAITING:
                    if run.crew is not None:
                        await run.crew.tool_ends(calls[item.call_id], item)
                    continue
                run.results = (*run.results, item)
                await tell(run, calls[item.call_id], result=item)
            yield item
    finally:
        await events.aclose()
    _report(run, run_id)


def _report(run: Worked, run_id: str) -> None:
    """Say what came of a round that was run."""
    waiting: dict[str, Waiting] = {}
    if run.lead is not None:
        run.collect()
        waiting = run.lead.waiting
    if waiting:
        # An agent that waits holds the run up as a call of its own would.
        asked = {name: Question(inner=each) for name, each in waiting.items()}
        run.report(Held(run_id, asked, {result.call_id: result for result in run.results}))
    else:
        run.report(ToolsRan(run.results))
    if run.crew is not None:
        run.crew.at("tool_round_end", run.state)


async def _known(run: Worked, effect: RunTools, plan: Plan) -> AsyncGenerator[ToolResult, None]:
    """The answers of calls that are not run; those that an earlier life of the run had told are not told again."""
    calls = {call.call_id or "": call for call in effect.calls}
    for known in plan.answered.values():
        run.results = (*run.results, known)
        if run.docket is None or known.call_id not in run.docket.results:
            await tell(run, calls[known.call_id], result=known)
            yield known


def beside(run: Worked, results: Closable[ToolResult]) -> Closable[ToolResult | RunEvent]:
    """Results as they come, and in between what those who attend the run have to say; closing it closes them."""
    return results if run.crew is None or run.crew.mailbox is None else run.crew.mailbox.beside(results)


def starting(run: Worked) -> Callable[[Call], Awaitable[None]]:
    """What is told of each call just before its handler runs."""

    async def starts(call: Call) -> None:
        run.started = run.started | {call.call_id or ""}
        if run.crew is not None:
            await run.crew.tool_starts(call)
        if run.log is not None:
            await run.log.starts(call)

    return starts


def around(run: Worked, plan: Plan | None, *, early: bool = False) -> Around | None:
    """What tells of each tool, and writes its result as soon as it is there.

    Args:
        run: the run.
        plan: what becomes of the calls.
        early: whether a result may be there before its turn comes to be told.
    """
    log, lead = run.log, run.lead
    told = knows_where(run.turn, around_tools(run.op, None if lead is None else lead.marked))
    if not early and log is None:
        return told
    shown = (plan or Plan()).shown
    told = _returning(run, told, shown)
    if log is None:
        return told
    waiting = {} if lead is None else lead.waiting
    return log.recording(told, shown, waiting=waiting)


def _returning(run: Worked, told: Around | None, shown: Callable[[ToolResult], ToolResult]) -> Around:
    """Know each result as soon as it is there: a run that is stopped before it is told has it all the same."""

    async def returned(call: Call, ran: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        result = await (ran() if told is None else told(call, ran))
        if result.outcome != WAITING:
            run.returned[result.call_id] = shown(result)
        return result

    return returned


async def tell(run: Worked, call: Call, *, result: ToolResult) -> None:
    """Say that a call is answered."""
    if run.log is not None:
        await run.log.result(result)
    answered(run.op, result)
    if run.crew is not None:
        with under(run.op):
            await run.crew.tool_ends(call, result)
