"""What makes the runs of an agent: what it is, what drives it, and who attends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

from isthmus.chain import of
from isthmus.harness.crew import Crew
from isthmus.harness.descriptor import AgentDescriptor, Runner
from isthmus.harness.inputs import Item, messages_of
from isthmus.harness.limits import Limits
from isthmus.harness.loop import start
from isthmus.harness.run import Begun
from isthmus.harness.runevents import Mailbox
from isthmus.harness.runnerhooks import RunIdentity, RunnerHooks
from isthmus.harness.state import RunState
from isthmus.harness.view import LiveRunView
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.output import resolve_output_schema
from isthmus.models.promptspec import PromptSpec, render_instruction_text
from isthmus.models.tools import ToolExecutionContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one run is to do, and for whom.

    Args:
        items: what to answer.
        told: whether the caller brought the state, with instructions that come first.
        metadata: what tools and hooks find in their context.
        watched: whether somebody reads the run's events.
        parent: the run that hands the work over.
    """

    items: Sequence[Item]
    told: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)
    watched: bool = False
    parent: RunIdentity | None = None


class Recipe:
    """Makes the runs of an agent.

    Args:
        made: what the agent is.
        limits: what ends a run that does not end by itself.
        runner: how runs are driven.
        hooks: what is told of them.

    Raises:
        InvalidRequestError: a tier of the model does not support tools, which there are, or has no room for them and
            the instructions; names it.
        OutputDefinitionError: no such form can be asked for.
    """

    def __init__(
        self, made: AgentDescriptor, *, limits: Limits | None, runner: Runner | None, hooks: Sequence[RunnerHooks]
    ) -> None:
        self.made = made
        self.chain = of(made.model)
        self.tools = made.policy
        self.runner = Runner() if getattr(made.model, "handles_retries", False) or runner is None else runner
        self.limits = _limits(limits, runner).within(self.chain.budget)
        self.hooks = tuple(hooks)
        self._request = GenerateContext(
            max_output_tokens=made.max_output_tokens,
            output=resolve_output_schema(made.output),
            options=dict(made.model_args),
        )
        brief = made.instructions if isinstance(made.instructions, str) else ""
        offered = tuple(each for each in self.tools.tools if isinstance(each, ToolSpec))
        self.chain.check({"tools"} if offered else (), replace(self._request, brief=brief, tools=offered))

    def begin(self, state: RunState, order: Order) -> Begun:
        """The first step of a run from a state, which becomes the run's own."""
        own, brought = self.made.instructions, state.instructions
        instructions = brought if brought is not None and (order.told or not own) else own
        messages = (*messages_of(state.history, "history"), *messages_of(order.items, "input"))
        request = self._rendered(instructions, (*state.history, *order.items))
        state.instructions = request.brief
        state.task_id = state.task_id or uuid4().hex
        context = ToolExecutionContext(
            run_id=state.task_id,
            agent_name=self.made.name,
            metadata=order.metadata,
            run_state=LiveRunView(state.task_id, state.shim_state),
        )
        crew = self._crew(state, order, request) if order.watched or self.hooks or self.made.shims else None
        step = start(
            messages,
            request,
            tools=self.tools,
            limits=self.limits,
            supports=self.chain.supports,
            staged=crew is not None,
        )
        return Begun(step, context, crew)

    def _crew(self, state: RunState, order: Order, request: GenerateContext) -> Crew:
        parent = order.parent
        run = RunIdentity(
            agent=self.made.name,
            task_id=state.task_id or "",
            parent_task_id=None if parent is None else parent.task_id,
            depth=0 if parent is None else parent.depth + 1,
            metadata=order.metadata,
        )
        return Crew(
            run,
            self.hooks,
            shims=self.made.shims,
            tools=self.tools,
            request=request,
            state=state,
            mailbox=Mailbox() if order.watched else None,
        )

    def _rendered(self, instructions: str | PromptSpec[Any], items: Sequence[Item]) -> GenerateContext:
        """What the calls of a run have in common: the instructions as they are now, and the form of the answer."""
        output = self._request.output
        if output is None:
            prompts = [item for item in (*reversed(items), instructions) if isinstance(item, PromptSpec)]
            # A form without a `response_format` is text, and leaves the choice to the next prompt.
            forms = (each.template.output_schema for each in prompts if each.template.response_format() is not None)
            output = next(forms, None)
        brief = instructions if isinstance(instructions, str) else render_instruction_text(instructions)
        return replace(self._request, brief=brief, output=output)


def _limits(limits: Limits | None, runner: Runner | None) -> Limits:
    limits = limits or Limits()
    return limits if runner is None else replace(limits, max_turns=min(limits.max_turns, runner.max_turns))
