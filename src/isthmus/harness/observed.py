"""A run and its tools as those who listen see them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

from isthmus.chain.ledger import Attempt, total_cost
from isthmus.harness.outcome import Outcome
from isthmus.models.events import Call, Usage
from isthmus.models.executor import Around, ToolResult
from isthmus.observability import hooks
from isthmus.observability.scope import Operation, under

_UNRUN = frozenset({"unknown-tool", "invalid-arguments", "limit", "refused"})


def begun() -> Operation | None:
    """A run that begins here; None where nobody listens."""
    return Operation() if hooks.listening() else None


def started(run: Operation | None, agent: str, *, run_id: str) -> None:
    """Tell that a run begins."""
    if run is not None:
        run.conversation = run_id or None
        hooks.emit(hooks.TurnStarted(op=run, agent=agent, run_id=run_id))


def ended(
    run: Operation | None,
    agent: str,
    *,
    run_id: str,
    outcome: Outcome,
    attempts: Sequence[Attempt],
    usage: Usage | None,
) -> None:
    """Tell that a run is over. Who adds up the runs must not count an agent again with the one that it worked for.

    Args:
        run: the run.
        agent: the agent that began it, whoever has taken it over.
        run_id: its identity.
        outcome: how it ended.
        attempts: its own, without those of the agents that worked for it; and so is the next one.
        usage: the tokens.
    """
    error = outcome.error
    if run is not None:
        run.over, run.error = True, error
    if hooks.listening():
        hooks.emit(
            hooks.TurnEnded(
                agent=agent,
                run_id=run_id,
                outcome=outcome.outcome,
                reason=outcome.reason,
                steps=outcome.steps,
                tier=outcome.tier,
                usage=usage,
                cost=total_cost(attempts),
                op=run,
                error_class=None if error is None else hooks.error_type(error),
            )
        )
    if run is not None:
        run.forget()


def around_tools(run: Operation | None, marked: Callable[[ToolResult], ToolResult] | None) -> Around | None:
    """What tells of each tool of a run, and makes it current inside its handler; None where nobody listens.

    Args:
        run: the run.
        marked: a result as it is told; None leaves it.
    """
    if run is None:
        return None if marked is None else _marking(marked)

    async def around(call: Call, ran: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        op, begun = Operation(parent=run), monotonic()
        op.said, outcome = call, "cancelled"
        hooks.emit(hooks.ToolStarted(op=op, tool=call.tool, call_id=call.call_id or ""))
        try:
            with under(op):
                result = await ran()
            result = result if marked is None else marked(result)
            outcome, op.answer = result.outcome, result.content
            return result
        finally:
            op.over = True
            hooks.emit(
                hooks.ToolEnded(
                    tool=call.tool,
                    call_id=call.call_id or "",
                    seconds=monotonic() - begun,
                    outcome=outcome,
                    op=op,
                )
            )
            op.forget()

    return around


def _marking(marked: Callable[[ToolResult], ToolResult]) -> Around:
    async def around(call: Call, ran: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        return marked(await ran())

    return around


def answered(run: Operation | None, result: ToolResult) -> None:
    """Tell of a call that never came to a handler."""
    if run is not None and result.outcome in _UNRUN:
        op = Operation(parent=run)
        op.answer = result.content
        hooks.emit(
            hooks.ToolEnded(
                tool=result.tool,
                call_id=result.call_id,
                seconds=result.seconds,
                outcome=result.outcome,
                op=op,
            )
        )
        op.forget()
