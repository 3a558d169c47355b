"""An agent at work as those see it who work for it, or take over from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace as changed

from isthmus.chain import Chain
from isthmus.errors import CutReason, InvalidRequestError
from isthmus.harness.agenttool import WAITING, Errand
from isthmus.harness.beginning import Begun
from isthmus.harness.crew import Crew
from isthmus.harness.descriptor import AgentDescriptor
from isthmus.harness.docket import Plan
from isthmus.harness.handoffs import Handoff
from isthmus.harness.loopstate import LoopState
from isthmus.harness.modelview import run_events
from isthmus.harness.outcome import Outcome
from isthmus.harness.pending import Waiting
from isthmus.harness.result import plain_answer
from isthmus.harness.resume import Resume
from isthmus.harness.roles import Makes
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.runstream import RunStream
from isthmus.harness.shims import with_tools
from isthmus.harness.state import RunState
from isthmus.models.executor import ToolResult
from isthmus.models.fold import said
from isthmus.models.messages import MessageRole
from isthmus.models.results import ToolError, ToolFailure
from isthmus.models.tools import Tools
from isthmus.secret import redact

WAITS = "This agent waits for a person's decision."
FAILED = "Error: delegated agent call failed."
TOO_DEEP = "No agent was started: agents are nested as deeply as they may be. Do the task yourself."
TOO_MANY = "No agent was started: as many agents are at work as there may be. Do the task yourself."


_NO_PLAN = Plan()


@dataclass(slots=True)
class Busy:
    """How many agents work for a run, on all levels."""

    count: int = 0


class Lead:
    """An agent at work.

    Args:
        recipe: what makes its runs.
        order: what it is to do.
        run: which run it is.
        crew: who attends it.
        busy: who works for the run at the root of it.
    """

    __slots__ = ("_busy", "_crew", "_ended", "_order", "_plan", "_recipe", "_run", "active", "waiting")

    def __init__(self, recipe: Makes, order: Any, *, run: RunIdentity, crew: Crew | None, busy: Busy) -> None:
        self._recipe, self._order, self._run, self._crew, self._busy = recipe, order, run, crew, busy
        self._ended: list[Outcome] = []
        self.active: Any = None
        """What the run calls: its own copy of a chain."""
        self._plan = _NO_PLAN
        self.waiting: dict[str, Waiting] = {}
        """The calls whose agents wait now."""

    @property
    def model(self) -> Any:
        """The agent's model."""
        return self._recipe.made.model

    def round(self, active: Any, plan: Plan | None) -> None:
        """Calls are run now.

        Args:
            active: what the run calls.
            plan: what becomes of the calls.
        """
        self.active, self.waiting = active, {}
        self._plan = plan or _NO_PLAN

    def marked(self, result: ToolResult) -> ToolResult:
        """The result of a call, or the word that its agent waits."""
        if result.call_id not in self.waiting:
            return result
        return ToolResult(result.call_id, result.tool, WAITS, WAITING, result.seconds)

    def ended(self) -> tuple[Outcome, ...]:
        """How those ended who have worked for the agent since this was asked last."""
        ended = tuple(self._ended)
        self._ended.clear()
        return ended

    async def send(self, errand: Errand) -> Any:
        """Let another agent do its errand.

        Returns:
            Its answer; or a `ToolFailure`, where it gave none that is whole.
        """
        limits = self._recipe.patience
        if self._run.depth >= limits.agent_max_depth:
            return ToolFailure(text=TOO_DEEP, error=ToolError(TOO_DEEP, "depth"))
        if self._busy.count >= limits.agent_max_threads:
            return ToolFailure(text=TOO_MANY, error=ToolError(TOO_MANY, "threads"))
        self._busy.count += 1
        try:
            return await self._answer(errand)
        finally:
            self._busy.count -= 1

    async def _answer(self, errand: Errand) -> Any:
        name, box = errand.agent.name, None if self._crew is None else self._crew.mailbox
        stream: RunStream | None = None
        try:
            recipe = self._recipe.member(
                errand.agent, self._inheritable(errand.itself), limits=errand.limits, hooks=errand.hooks
            )
            stream = self._stream(recipe, errand, watched=box is not None)
            async with stream:
                if box is not None:
                    async for event in stream:
                        await box.forward(event)
                result = await stream.result()
        except Exception as error:
            reason = None if stream is None or stream.outcome is None else stream.outcome.reason
            return _failure(f"{name}: {redact(said(error))}", reason or "error")
        finally:
            if stream is not None and stream.outcome is not None:
                self._ended.append(stream.outcome)
        outcome = result.outcome
        if outcome.reason == CutReason.APPROVAL:
            edited = self._plan.edited.get(errand.call_id)
            self.waiting[errand.call_id] = Waiting(
                messages=result.messages,
                shims=result.run_state.shim_state,
                arguments=None if edited is None else edited.input,
            )
            return ToolFailure(text=WAITS, error=ToolError(WAITS, WAITING))
        if outcome.outcome == "completed":
            return _told(result.final_output)
        detail = outcome.detail and f": {outcome.detail}"
        text = outcome.text and f" Before that it said: {outcome.text}"
        return _failure(f"{name} was cut, {outcome.reason}{detail}.{text}", outcome.reason or "cut")

    def _stream(self, recipe: Makes, errand: Errand, *, watched: bool) -> RunStream:
        again = self._plan.again.get(errand.call_id)
        message = {"role": MessageRole.USER.value, "content": errand.text}
        order = changed(
            self._order,
            items=(message,) if again is None else (),
            resume=None if again is None else Resume(decisions=again.decisions),
            told=False,
            watched=watched,
            parent=self._run,
            busy=self._busy,
            mailbox=None,
        )
        # The connections of a run are its own; what may be spent is shared.
        shares = recipe.chain is self._recipe.chain and isinstance(self.active, Chain)
        return RunStream(
            partial(recipe.begin, order=order),
            self.active.beside() if shares else recipe.chain,
            before=RunState() if again is None else RunState(history=again.messages, shim_state=dict(again.shims)),
            runner=recipe.runner,
            view=run_events if watched else None,
        )

    def successor(self, agent: AgentDescriptor) -> Makes:
        """What makes the runs of an agent that takes over."""
        return self._recipe.member(agent, self._inheritable(None))

    def take_over(self, recipe: Makes, stands: LoopState, *, state: RunState) -> Begun:
        """The next step of the run, which is that agent's now.

        Args:
            recipe: what makes its runs.
            stands: where the run stands.
            state: the conversation that it began from.
        """
        box = None if self._crew is None else self._crew.mailbox
        return recipe.take_over(stands, state, order=changed(self._order, mailbox=box, busy=self._busy))

    def _inheritable(self, without: str | None) -> Tools:
        """The tools that another agent may have of this one's."""
        return inheritable(self._recipe.tools if self._crew is None else self._crew.inheritable(), without)


def inheritable(tools: Tools, without: str | None = None) -> Tools:
    """The tools that another agent may have of these: no handoff, and not itself."""
    kept = [tool for tool in tools.normalized_tools if not isinstance(tool, Handoff) and tool.name != without]
    return tools if len(kept) == len(tools.tools) else with_tools(tools, tuple(kept))


def check_handoffs(recipe: Makes) -> None:
    """Whether those who may take over from an agent can do so, and those who may from them.

    Args:
        recipe: what makes the agent's runs.

    Raises:
        InvalidRequestError: the model of one does not support the tools that it has; names the agent.
        OutputDefinitionError: the form of an answer cannot be asked for.
    """
    known, open_ = [recipe.made], [recipe]
    while open_:
        knows = open_.pop()
        for tool in knows.tools.normalized_tools:
            if not isinstance(tool, Handoff) or any(tool.agent is each for each in known):
                continue
            known.append(tool.agent)
            try:
                open_.append(knows.member(tool.agent, inheritable(knows.tools)))
            except InvalidRequestError as error:
                where = f"agent {tool.agent.name!r}, to which {knows.made.name!r} may hand over"
                raise InvalidRequestError(f"{where}: {error}") from error


def _told(answer: Any) -> Any:
    """What the tool returns: the answer itself, for a formatter, where it becomes JSON, and else what JSON it is."""
    itself = isinstance(answer, str | int | float | Mapping | list | tuple | None) or is_dataclass(answer)
    return answer if itself or hasattr(answer, "model_dump_json") else plain_answer(answer)


def _failure(why: str, kind: str) -> ToolFailure:
    text = f"{FAILED} {why}"
    return ToolFailure(text=text, error=ToolError(text, kind))
