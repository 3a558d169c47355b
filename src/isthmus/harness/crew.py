"""Those who attend a run: the application's hooks, the agent's shims, and whoever reads its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as changed

from isthmus.chain.ledger import Attempt
from isthmus.harness.agenttool import AgentTool
from isthmus.harness.audience import Audience, Say, collected
from isthmus.harness.effects import CallModel
from isthmus.harness.loopstate import LoopState
from isthmus.harness.plainjson import own_copy
from isthmus.harness.reports import Prepared
from isthmus.harness.result import RunResult
from isthmus.harness.runevents import Mailbox, RunEvent, RunEventKind, StateSnapshot
from isthmus.harness.runnerhooks import RunIdentity, RunnerHooks
from isthmus.harness.shims import RULINGS, BoundShim, PreparedTurn, Ruling, Shim, TurnState, with_tools
from isthmus.harness.state import RunState
from isthmus.harness.view import PLAN_STATE_KEY
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call
from isthmus.models.executor import ToolResult
from isthmus.models.responses import ModelResponse
from isthmus.models.tools import Tools

_STOPPED = "Error: The run was stopped."
_AGENT, _MODEL = "agent", "model"


class Crew:
    """Those who attend one run, in its steps; without any of them a run has no crew.

    Args:
        run: which run it is.
        hooks: the application's.
        shims: the agent's.
        tools: the agent's tools and their policy.
        request: what its calls have in common.
        state: the run's own state, whose `shim_state` the shims write.
        mailbox: where events go; None if nobody reads them.
    """

    def __init__(
        self,
        run: RunIdentity,
        hooks: Sequence[RunnerHooks],
        *,
        shims: Sequence[Shim],
        tools: Tools,
        request: GenerateContext,
        state: RunState,
        mailbox: Mailbox | None,
    ) -> None:
        self.run = run
        self.mailbox = mailbox
        self._audience = Audience(hooks)
        self._shims = tuple(shims)
        self._tools, self._request = tools, request
        self._state = TurnState(run=run, history=state.history, shim_state=state.shim_state, instructions=request.brief)
        self._transient: dict[str, Any] = {}
        self._bound: tuple[BoundShim, ...] = ()
        self._attending: list[BoundShim] = []
        self._turn: PreparedTurn | None = None
        self._calling = self._begun = False
        self._calls: dict[str, Call] = {}
        self._plan = state.shim_state.get(PLAN_STATE_KEY)
        self._passed_on = _names(tools) if shims else set[str]()

    async def begin(self, stands: LoopState, kept: Mapping[str, Any] | None = None) -> None:
        """Bind the shims, let them begin, and say that the agent has.

        Args:
            stands: where the run stands.
            kept: what shims kept when the run stopped; None leaves what the state has.
        """
        if kept is not None:
            self.restore(kept)
        self._state.history, self._state.turn_count = stands.messages, stands.earlier + stands.steps
        for shim in self._shims:
            bound = await shim.bind(self.run)
            if not isinstance(bound, BoundShim):
                raise TypeError(f"shim {shim.name!r}: bind gave {bound!r:.60}: must return a BoundShim for the run")
            self._bound = (*self._bound, bound)
            self._attending.append(bound)
            await bound.on_run_start(self._state, self._transient)
        of_shims = (bound.runner_hooks for bound in self._bound)
        self._audience.hooks += tuple(hooks for hooks in of_shims if hooks is not None)
        self._begun = True
        self._publish(RunEventKind.AGENT_START)
        await self._audience.starts(_AGENT, lambda each: each.on_agent_start(self.run), end=self._agent_end(None))
        self.at("run_start", stands)

    def at(self, boundary: Any, stands: LoopState) -> None:
        """Say how the run stands at a boundary."""
        if self.mailbox is not None:
            snapshot = StateSnapshot(
                boundary=boundary,
                turn_count=stands.steps,
                history_length=len(stands.messages),
                response_count=stands.steps,
                shim_state=own_copy(self._state.shim_state),
            )
            self._publish(RunEventKind.STATE_SNAPSHOT, state=snapshot)

    async def prepare(self, stands: LoopState, model: Any, *, repeated: bool = False) -> Prepared:
        """What the next turn is made of, once every shim has had its say.

        Args:
            stands: where the run stands.
            model: what it calls.
            repeated: whether the turn was prepared before, in an earlier life of the run.
        """
        state = self._state
        turns = stands.earlier + stands.steps + (not repeated)
        state.history, state.turn_count, state.model = stands.messages, turns, model
        self._turn = turn = PreparedTurn(
            run_state=state,
            tools=self._tools,
            model_args=dict(self._request.options),
            transient_state=self._transient,
            system_instruction=self._request.brief,
            repeated=repeated,
        )
        for bound in self._bound:
            before = turn.tools
            await bound.prepare_turn(turn)
            if bound.inherit_tools and turn.tools is not before:
                self._passed_on |= _names(turn.tools) - _names(before)
        offered = turn.tools.normalized_tools
        kept = tuple(tool for tool in offered if tool.name not in turn.excluded)
        tools = turn.tools if len(kept) == len(offered) else with_tools(turn.tools, kept)
        return Prepared(
            tuple(state.history),
            tools,
            turn.system_instruction,
            turn.model_args,
            spent=tuple(turn.spent),
            notes=tuple(turn.notes),
        )

    def inheritable(self) -> Tools:
        """The tools that other agents may have: the agent's own, and those of shims that say so."""
        turn = self._turn
        if turn is None or not self._shims:
            return self._tools
        offered = (tool for tool in turn.tools.normalized_tools if tool.name not in turn.excluded)
        return with_tools(turn.tools, tuple(tool for tool in offered if tool.name in self._passed_on))

    async def announce(self, effect: CallModel) -> CallModel:
        """The call as it is made, after the shims and the hooks have seen its messages."""
        ctx = effect.ctx
        changing = [each for each in self._bound if _overrides(each, BoundShim.transform_messages)]
        listening = any(_overrides(each, RunnerHooks.on_llm_start) for each in self._audience.hooks)
        copies = [own_copy(message) for message in ctx.messages] if changing or listening else []
        messages = list(copies)
        for bound in changing:
            given = await bound.transform_messages(messages)
            if not isinstance(given, list | tuple):
                kind = type(bound).__qualname__
                raise TypeError(f"{kind}.transform_messages gave {given!r:.60}: must return the messages, as a list")
            messages = list(given)
        await self._audience.starts(_MODEL, lambda each: each.on_llm_start(self.run, messages), end=self._llm_end(None))
        if changing or listening:
            known = {id(copied): message for copied, message in zip(copies, ctx.messages, strict=True)}
            # What nobody changed goes out as it is, with what hangs on it.
            ctx = replace(ctx, messages=tuple(_unchanged(message, known) for message in messages))
        self._calling = True
        self._publish(RunEventKind.LLM_START, messages=ctx.messages)
        return effect if ctx is effect.ctx else changed(effect, ctx=ctx)

    async def heard(self, response: ModelResponse | None, attempts: Sequence[Attempt] = ()) -> None:
        """A model call is over, after these tries; None if it failed."""
        self._calling = False
        self._publish(RunEventKind.LLM_END, response=response, attempts=attempts)
        await self._audience.ends(_MODEL, self._llm_end(response))
        if response is not None and self._turn is not None:
            for bound in self._bound:
                await bound.on_model_response(self._turn, response)

    async def tools(self, stands: LoopState, model: Any) -> Tools:
        """The tools of a turn that this process has not prepared: what else that does to the run is taken back."""
        kept = own_copy(self._state.shim_state)
        tools = (await self.prepare(stands, model, repeated=True)).tools
        self.restore(kept)
        return tools

    def restore(self, shim_state: Mapping[str, Any]) -> None:
        """Let the shims find what they kept when the run stopped."""
        self._state.shim_state.clear()
        self._state.shim_state.update(own_copy(shim_state))

    @property
    def unprepared(self) -> bool:
        """Whether no turn was prepared yet."""
        return self._turn is None

    async def review(self, calls: Sequence[Call]) -> dict[str, Ruling]:
        """What is to become of calls; of several rulings the strictest."""
        rulings: dict[str, Ruling] = {}
        if self._turn is None:
            return rulings
        for bound in self._bound:
            for call_id, ruling in (await bound.review_calls(self._turn, calls)).items():
                known = rulings.get(call_id)
                if known is None or RULINGS.index(ruling.verdict) > RULINGS.index(known.verdict):
                    rulings[call_id] = ruling
        return rulings

    def asks(self, call: Call, request: Mapping[str, Any]) -> None:
        """A call waits for a decision."""
        self._publish(RunEventKind.TOOL_APPROVAL, call=call, detail=request)

    async def tool_starts(self, call: Call) -> None:
        """A tool is about to run."""
        self._calls[call.call_id or ""] = call
        self._publish(RunEventKind.TOOL_START, call=call, is_delegation=self._is_agent(call))
        await self._starts(call, ToolResult(call.call_id or "", call.tool, _STOPPED, "unknown"))

    async def _starts(self, call: Call, result: ToolResult) -> None:
        """Tell of the start of a call; if that is broken off, of this as its result."""
        await self._audience.starts(
            _key(call), lambda each: each.on_tool_call_start(self.run, call), end=self._tool_end(call, result)
        )

    async def tool_ends(self, call: Call, result: ToolResult) -> None:
        """A call is answered."""
        self._calls.pop(call.call_id or "", None)
        self._publish(RunEventKind.TOOL_END, call=call, result=result, is_delegation=self._is_agent(call))
        plan = self._state.shim_state.get(PLAN_STATE_KEY)
        if plan is not self._plan:
            self._plan = plan
            self._publish(RunEventKind.PLAN_UPDATED, detail={"steps": own_copy(plan)})
        key, end = _key(call), self._tool_end(call, result)
        if self._audience.hooks and not self._audience.owed(key):
            self._audience.owe(key, end)
        await self._audience.ends(key, end)

    async def hands_over(self, call: Call, result: ToolResult, *, about: Mapping[str, Any]) -> None:
        """The agent hands the conversation over.

        Args:
            call: the call by which it does.
            result: its answer.
            about: who hands over to whom.
        """
        self.handoff(RunEventKind.HANDOFF_START, call, about=about)
        await self._starts(call, result)
        await self._audience.ends(_key(call), self._tool_end(call, result))

    def handoff(self, kind: RunEventKind, call: Call, *, about: Mapping[str, Any]) -> None:
        """Say that a handoff begins, or is through."""
        self._publish(kind, call=call, detail=about)

    def _is_agent(self, call: Call) -> bool:
        tools = (self._tools if self._turn is None else self._turn.tools).normalized_tools
        return any(tool.name == call.tool and isinstance(tool, AgentTool) for tool in tools)

    async def leave(self, known: Mapping[str, ToolResult] | None = None) -> list[Exception]:
        """Let every shim that began end, the last one first; what goes wrong is returned.

        Args:
            known: results that were there and not told yet.
        """
        failures: list[Exception] = []
        if self._calling:
            await collected(failures, self.heard, None)
        for call in tuple(self._calls.values()):
            result = (known or {}).get(call.call_id or "")
            result = result or ToolResult(call.call_id or "", call.tool, _STOPPED, "unknown")
            await collected(failures, self.tool_ends, call, result)
        failures += await self._audience.settle(_AGENT)
        while self._attending:
            await collected(failures, self._attending.pop().on_run_end, self._state, self._transient)
        return failures

    async def end(self, result: RunResult | None, stands: LoopState) -> list[Exception]:
        """Say that the agent is done; what goes wrong is returned."""
        failures: list[Exception] = []
        if self._begun:
            self._begun = False
            self.at("run_end", stands)
            self._publish(RunEventKind.AGENT_END, output=None if result is None else result.final_output)
            await collected(failures, self._audience.ends, _AGENT, self._agent_end(result))
        return failures + await self._audience.settle()

    def events(self) -> tuple[RunEvent, ...]:
        """What is to be read by now."""
        return () if self.mailbox is None else self.mailbox.take()

    def event(self, kind: RunEventKind, **about: Any) -> RunEvent:
        """An event of this run."""
        run = self.run
        return RunEvent(
            kind=kind.value,
            agent=run.agent,
            task_id=run.task_id,
            parent_task_id=run.parent_task_id,
            depth=run.depth,
            **about,
        )

    def _publish(self, kind: RunEventKind, **about: Any) -> None:
        if self.mailbox is not None:
            self.mailbox.put(self.event(kind, **about))

    def _agent_end(self, result: RunResult | None) -> Say:
        return lambda each: each.on_agent_end(self.run, result)

    def _llm_end(self, response: ModelResponse | None) -> Say:
        return lambda each: each.on_llm_end(self.run, response)

    def _tool_end(self, call: Call, result: ToolResult) -> Say:
        return lambda each: each.on_tool_call_end(self.run, call, result=result)


def together(failures: Sequence[Exception], error: BaseException | None) -> None:
    """Raise what went wrong at the end of a run.

    Args:
        failures: what those failed with who attended it.
        error: what the run failed with; then they are notes on that, and nothing is raised here.

    Raises:
        ExceptionGroup: there are failures, and no other error.
    """
    if error is not None:
        for failure in failures:
            error.add_note(f"and at the end of the run: {type(failure).__name__}: {failure}")
    elif failures:
        raise ExceptionGroup("those who attend the run failed at its end", failures)


def _names(tools: Tools) -> set[str]:
    return {tool.name for tool in tools.normalized_tools}


def _overrides(each: Any, method: Callable[..., Any]) -> bool:
    return getattr(type(each), method.__name__) is not method or method.__name__ in vars(each)


def _unchanged(message: dict[str, Any], known: Mapping[int, Mapping[str, Any]]) -> Mapping[str, Any]:
    original = known.get(id(message))
    return original if original is not None and message == original else message


def _key(call: Call) -> str:
    return f"tool {call.call_id}"
