"""A run with shims, driven by hand in the order that a turn has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isthmus.adapters.views import to_response
from isthmus.chain import of
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import PreparedTurn, Shim, TurnState
from isthmus.harness.view import LiveRunView
from isthmus.models.contract import GenerateContext
from isthmus.models.executor import ToolExecutor
from isthmus.models.messages import assistant_message, tool_message
from isthmus.models.tools import ToolExecutionContext, Tools


@dataclass
class Attended:
    """A conversation that shims attend; every `say` is a run.

    Args:
        model: what answers.
        shims: what attends, in this order.
        tools: what the agent brings.
        history: the transcript so far.
        shim_state: what shims kept so far.
        model_args: the agent's request options.
    """

    model: Any
    shims: Sequence[Shim]
    tools: Sequence[Any] = ()
    history: Sequence[Mapping[str, Any]] = ()
    shim_state: dict[str, Any] = field(default_factory=dict)
    model_args: dict[str, Any] = field(default_factory=dict)
    results: list[Any] = field(default_factory=list)

    async def say(self, text: str, *context: Mapping[str, Any]) -> str:
        """Run until the model calls nothing; the answer."""
        run = RunIdentity(agent="a", task_id="t", metadata={})
        history = (*self.history, *context, {"role": "user", "content": text})
        state = TurnState(
            run=run, history=history, shim_state=self.shim_state, instructions="Be brief.", model=of(self.model)
        )
        told: dict[str, Any] = {}
        bound = [await shim.bind(run) for shim in self.shims]
        for each in bound:
            await each.on_run_start(state, told)
        try:
            while True:
                state.turn_count += 1
                if (answer := await self._turn(state, bound, told)) is not None:
                    return answer
        finally:
            self.history = tuple(state.history)
            for each in reversed(bound):
                await each.on_run_end(state, told)

    async def _turn(self, state: TurnState, bound: Sequence[Any], told: dict[str, Any]) -> str | None:
        turn = PreparedTurn(
            run_state=state,
            tools=Tools(self.tools),
            model_args=dict(self.model_args),
            transient_state=told,
            system_instruction=state.instructions,
        )
        for each in bound:
            await each.prepare_turn(turn)
        messages = [dict(message) for message in state.history]
        for each in bound:
            messages = await each.transform_messages(messages)
        ctx = GenerateContext(
            brief=turn.system_instruction, messages=tuple(messages), tools=turn.tools.normalized_tools
        )
        step = await state.model.generate(ctx)
        for each in bound:
            await each.on_model_response(turn, to_response(step))
        state.history = (*state.history, assistant_message(step))
        if not step.calls:
            return str(step.text)
        context = ToolExecutionContext(run_state=LiveRunView(state.task_id, state.shim_state))
        async for result in ToolExecutor().results(step.calls, tools=turn.tools, context=context):
            self.results.append(result)
            state.history = (*state.history, tool_message(result.call_id, result.content, name=result.tool))
        return None
