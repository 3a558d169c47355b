"""Carries out a handoff: one agent ends, another goes on with the same run, stream and conversation."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any

from msgspec.structs import replace as changed

from isthmus.harness.crew import Crew, together
from isthmus.harness.effects import HandOver
from isthmus.harness.loop import handed_over
from isthmus.harness.result import RunResult
from isthmus.harness.roles import Gives, Makes
from isthmus.harness.run import AgentEvent, Run
from isthmus.harness.runevents import RunEvent, RunEventKind


async def hand_over(run: Run, effect: HandOver) -> AsyncGenerator[AgentEvent | RunEvent, None]:
    """The events of a handoff; at its end the run is the other agent's.

    The first agent's shims end, the last one first, and its hooks are told, before anything of the other one begins.
    """
    # What the model of the first agent still owes, e.g. the outcome of input that steers it, is to be refused here.
    if run.crew is not None and run.crew.unprepared:
        # The process that prepared this turn is gone; what the shims pass on is not known yet.
        await run.crew.tools(run.state, run.active)
    lead: Gives = run.lead
    recipe = lead.successor(effect.to.agent)
    crew = run.crew
    about = {"from": run.context.agent_name, "to": recipe.made.name, "tool": effect.to.name}
    run.state = handed_over(run.state, effect)
    try:
        if crew is not None:
            await crew.hands_over(effect.call, effect.to.result(effect.call), about=about)
        for told in run.told():
            yield told
        yield effect.to.result(effect.call)
        if crew is not None:
            await _end(run, crew)
        run.collect()
        await _call(run, lead.model, recipe)
        begun = lead.take_over(recipe, run.state, state=run.origin)
        run.go_on(begun, recipe.runner)
        if run.log is not None:
            await run.log.handoff(effect.to.name, begun.about or {})
        if run.crew is not None:
            await run.crew.begin(run.state)
    finally:
        if run.crew is not None:
            run.crew.handoff(RunEventKind.HANDOFF_END, effect.call, about=about)
    for told in run.told():
        yield told


async def _end(run: Run, crew: Crew) -> None:
    """Let those who attend the first agent go."""
    outcome = run.state.outcome("completed", reason="handoff", text=run.state.text)
    result = RunResult(
        final_output=None,
        outcome=changed(outcome, final_output=None, usage=run.spent.usage, usage_missing=run.spent.missing),
        replies=run.replies,
        before=run.origin,
    )
    together([*await crew.leave(), *await crew.end(result, run.state)], None)


async def take_up(run: Run, active: Any) -> None:
    """Call this, or the model of the agent to which a run had been handed over before it stopped."""
    run.calls(active)
    if run.back is not None and run.back.first is not None:
        recipe: Makes = run.back.maker
        await _call(run, run.back.first.made.model, recipe)
        run.driven_by(recipe.runner)


async def _call(run: Run, model: Any, recipe: Makes) -> None:
    """Call the other agent's model from now on. One that was called before goes on: its budget is the run's.

    Args:
        run: the run.
        model: what was called until now.
        recipe: what makes the runs of the other agent.
    """
    if run.others is None:
        run.others, run.opened = AsyncExitStack(), {id(model): run.active}
    key = id(recipe.made.model)
    opened: dict[int, Any] = run.opened
    if key not in opened:
        opened[key] = await run.others.enter_async_context(recipe.chain.open_run())
    run.calls(opened[key])
