"""What a run's state becomes by steered input, and by calls that run while replies go on: pure changes of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace as changed

from isthmus.errors import ModelBehaviorError
from isthmus.harness.history import UNKNOWN, Message
from isthmus.harness.loopstate import LoopState
from isthmus.harness.reports import Collected, Prepared, Replied
from isthmus.models.events import Call, Note, NoteCode
from isthmus.models.executor import ToolResult
from isthmus.models.messages import MessageRole, tool_message
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.tools import Tool, Tools


def followed(state: LoopState, report: Replied) -> LoopState:
    """With a reply that the provider goes on from by itself, and the input that it goes on with.

    Raises:
        ModelBehaviorError: the reply has calls that wait for their results.
    """
    state = state.unrepaired().committed(report.step, report.said)
    if state.calls:
        names = ", ".join(call.tool for call in state.calls)
        raise ModelBehaviorError(f"the provider went on by itself from a reply whose calls wait to be run: {names}")
    return changed(succeeded(state, report.continued), continues="automatic")


def succeeded(state: LoopState, continued: ModelStreamEvent | None) -> LoopState:
    """With the input that a successor of the last reply has, as that reply's end said."""
    inputs = () if continued is None else continued.input_messages or ()
    return changed(state, messages=(*state.messages, *inputs)) if inputs else state


def resumed(state: LoopState, report: Prepared) -> LoopState:
    """With the turn that was prepared for a reply that nobody asks for: the last request stands, with fewer tools."""
    names = {tool.name for tool in report.tools.normalized_tools}
    kept = tuple(tool for tool in state.tools.normalized_tools if tool.name in names)
    limits = {name: limit for name, limit in (report.tools.tool_call_limits or {}).items() if name in _names(kept)}
    choice = report.tools.tool_choice
    named = choice not in ("auto", "required", "none", *_names(kept))
    tools = replace(report.tools, tools=kept, tool_call_limits=limits or None, tool_choice="auto" if named else choice)
    return changed(state, tools=tools)


def _names(tools: Iterable[Any]) -> frozenset[str]:
    return frozenset(tool.name for tool in tools)


def joined(state: LoopState, messages: Iterable[Message]) -> LoopState:
    """With input that the provider applied before what the last request brought, e.g. the results of calls."""
    given, at = tuple(messages), state.replied
    return changed(state, messages=(*state.messages[:at], *given, *state.messages[at:]), replied=at + len(given))


def begun(state: LoopState, call: Call) -> LoopState:
    """With a call that runs from now on, its place in the budgets taken.

    Raises:
        ModelBehaviorError: the call may not be made: there is no such tool, or a budget is used up.
    """
    offered, choice = state.offer()
    tool = next((each for each in offered if each.name == call.tool), None)
    if not isinstance(tool, Tool) or choice == "none":
        raise ModelBehaviorError(
            f"the asynchronous call of {call.tool!r} cannot be run: no such tool is offered now, or it has no handler"
        )
    most = state.limits.max_calls
    if most is not None and state.called >= most:
        raise ModelBehaviorError(f"the asynchronous call of {call.tool!r} is one too many: max_calls={most}")
    return entered(state, call)


def entered(state: LoopState, call: Call) -> LoopState:
    """With a call that was begun."""
    used = {**state.used, call.tool: state.used.get(call.tool, 0) + 1}
    return changed(state, running=(*state.running, call), used=MappingProxyType(used), called=state.called + 1)


def left_out(state: LoopState, call: Call) -> LoopState:
    """Without a call that was to be begun and waits with the ordinary ones of its reply."""
    used = Counter(state.used)
    used[call.tool] -= 1
    running = tuple(each for each in state.running if each is not call)
    return changed(state, running=running, used=MappingProxyType(dict(used)), called=state.called - 1)


def terms(state: LoopState) -> Tools:
    """The terms for a call that runs while replies go on: a time-out is not tried again."""
    return replace(state.tools, tool_call_max_retries=0)


def delivered(state: LoopState, report: Collected) -> LoopState:
    """With the results that are ready, in the order in which they came."""
    state = answered(state, report.results)
    return changed(state, rounds=state.rounds + report.round)


def answered(state: LoopState, results: Iterable[ToolResult]) -> LoopState:
    """With results of running calls; one that never came to its handler gives its place in the budget back."""
    running = {call.call_id: call for call in state.running}
    ready = [result for result in results if result.call_id in running]
    if not ready:
        return state
    used = Counter(state.used)
    used.subtract(result.tool for result in ready if not result.ran)
    for result in ready:
        del running[result.call_id]
    messages = (tool_message(result.call_id, result.content, name=result.tool) for result in ready)
    return changed(
        state,
        messages=(*state.messages, *messages),
        running=tuple(running.values()),
        used=MappingProxyType(dict(used)),
    )


def uncertain(state: LoopState) -> LoopState:
    """With an answer for each running call that says that nobody knows; each is noted."""
    messages, notes = [], []
    for call in state.running:
        call_id = call.call_id or ""
        notes.append(Note(NoteCode.HISTORY_CHANGED, f"the result of {call_id!r} ({call.tool}) was not awaited"))
        if call_id in state.ids:
            messages.append(tool_message(call_id, UNKNOWN, name=call.tool))
    return changed(state, messages=(*state.messages, *messages), notes=(*state.notes, *notes), running=())


def unanswered(state: LoopState, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """A repaired transcript without what the repair made up for calls that still run."""
    running = {call.call_id for call in state.running}
    if not running:
        return messages
    return tuple(message for message in messages if not _made_up(message, running))


def _made_up(message: Mapping[str, Any], running: Iterable[str | None]) -> bool:
    return message.get("role") == MessageRole.TOOL and message.get("tool_call_id") in running
