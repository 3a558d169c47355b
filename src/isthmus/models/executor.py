"""Runs the calls of one reply: validates, runs, times out, and answers each so that the model can read it.

Nothing that a tool does ends a run: only cancellation passes through. Knows nothing of models or loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import lru_cache, partial
from inspect import isawaitable
from time import monotonic
from types import CoroutineType
from typing import Any, ClassVar, TypeAlias

import msgspec

from isthmus.models.arguments import ArgumentsError, arguments_of, validated
from isthmus.models.cancellation import CancellationToken
from isthmus.models.copies import copier
from isthmus.models.enums import ToolErrorKind
from isthmus.models.events import Call
from isthmus.models.fold import said
from isthmus.models.handlers import is_async
from isthmus.models.inturn import Closable, InTurn
from isthmus.models.outputs import ChatCompletionsOutputAdapter, ToolOutputAdapter, call_of
from isthmus.models.results import ToolError, ToolFailure, result_content, shown, tool_outcome
from isthmus.models.tools import Tool, ToolExecutionContext, Tools
from isthmus.secret import redact

Around: TypeAlias = Callable[[Call, Callable[[], "Awaitable[ToolResult]"]], "Awaitable[ToolResult]"]
Contexts: TypeAlias = ToolExecutionContext | Mapping[str, ToolExecutionContext]
_RAN = frozenset({"ok", "error", "timeout", "cancelled"})


class ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool-result"):
    """The answer to one call.

    Args:
        call_id: the call that it answers.
        tool: the tool's name.
        content: what the model reads: text, or, where there are images or files in it, a list of parts.
        outcome: "ok", "error" (the handler failed, or says so), "timeout", "cancelled" (its outcome is unknown),
            "unknown-tool", "invalid-arguments", "limit" (used up), "refused" (a person or a policy said no), or, for a
            run that was stopped, "unknown" and "not-executed", or, where an agent waits for a decision, "waiting".
        seconds: how long it ran.
    """

    type: ClassVar[str] = "tool-result"
    call_id: str
    tool: str
    content: str | list[dict[str, Any]]
    outcome: str = "ok"
    seconds: float = 0.0

    @property
    def ran(self) -> bool:
        """Whether the handler was called, so that it counts."""
        return self.outcome in _RAN

    @property
    def text(self) -> str:
        """The content for a person: images and files are named, not shown."""
        return shown(self.content)


class _Ready(msgspec.Struct, frozen=True):
    """A call that may run."""

    call: Call
    tool: Tool
    args: Any
    context: ToolExecutionContext


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What the calls of one reply have in common."""

    tools: Tools
    started: Callable[[Call], Any] | None
    ended: Callable[[Call, Any], Any] | None
    stop: CancellationToken | None
    around: Around | None

    @property
    def stopped(self) -> bool:
        """Whether the caller has cancelled."""
        return self.stop is not None and self.stop.cancelled


_copier = lru_cache(maxsize=16)(copier)
_ADAPTER = ChatCompletionsOutputAdapter()


class ToolExecutor:
    """Runs the calls of a reply and answers each.

    Args:
        adapter: makes the messages that `execute` returns; None makes those of Chat Completions, the neutral history.
        around: given each call that may run and what runs it; returns what that returns. None runs it as it is.
    """

    def __init__(self, adapter: ToolOutputAdapter | None = None, *, around: Around | None = None) -> None:
        self._adapter = adapter or _ADAPTER
        self._around = around

    async def execute(
        self,
        *,
        tool_calls: Sequence[Any],
        tools: Tools,
        cancellation_token: CancellationToken | None = None,
        on_tool_start: Callable[[Any], Any] | None = None,
        on_tool_end: Callable[[Any, Any], Any] | None = None,
        context: Contexts | None = None,
    ) -> list[dict[str, Any]]:
        """One message for each call, in the order of the calls. A tool that fails, or is not there, has one too.

        Args:
            tool_calls: `Call`, or Chat Completions calls as objects or dicts.
            tools: the tools on offer, and on what terms.
            cancellation_token: stops what runs; every call is answered all the same.
            on_tool_start: told of each call, as it was given, just before its handler runs; may be async.
            on_tool_end: told of it and of what the handler returned, or of a `ToolFailure`; may be async.
            context: what handlers are told: by call id, or the same for all.

        Raises:
            TypeError: something that is no call, or no `Tools`.
            Exception: whatever a callback raises.
        """
        if not isinstance(tools, Tools):
            raise TypeError(f"tools={tools!r:.60}: must be Tools, as in Tools([…]), not {type(tools).__name__}")
        calls = [call_of(each, f"tool_calls[{place}]") for place, each in enumerate(tool_calls)]
        given = dict(zip(map(id, calls), tool_calls, strict=True))
        results = self.results(
            calls,
            tools=tools,
            cancellation_token=cancellation_token,
            on_tool_start=on_tool_start and (lambda call: on_tool_start(given[id(call)])),
            on_tool_end=on_tool_end and (lambda call, result: on_tool_end(given[id(call)], result)),
            context=context,
        )
        async with aclosing(results):
            return [self._message(result) async for result in results]

    def _message(self, result: ToolResult) -> dict[str, Any]:
        adapt = self._adapter.format_success if result.outcome == "ok" else self._adapter.format_error
        return adapt(result.call_id, result.tool, result.content)

    def results(
        self,
        calls: Sequence[Call],
        *,
        tools: Tools,
        cancellation_token: CancellationToken | None = None,
        on_tool_start: Callable[[Call], Any] | None = None,
        on_tool_end: Callable[[Call, Any], Any] | None = None,
        context: Contexts | None = None,
        used: Mapping[str, int] | None = None,
    ) -> Closable[ToolResult]:
        """One result a call, in the order of the calls, as they come; closing it cancels what still runs.

        Args:
            calls: the calls of one reply.
            tools: as for `execute`, and so are the next four.
            cancellation_token: the same.
            on_tool_start: the same.
            on_tool_end: the same.
            context: the same.
            used: how often each tool has run in this run before, for `tool_call_limits`.
        """
        batch = _Batch(
            tools=tools,
            started=on_tool_start,
            ended=on_tool_end,
            stop=cancellation_token,
            around=self._around,
        )
        plan = _plan(batch.tools, calls, context, used=dict(used or {}))
        alone = not tools.parallel_tool_calls or len(plan) == 1
        return InTurn(plan, partial(_run, batch)) if alone else _side_by_side(batch, plan)


async def _side_by_side(batch: _Batch, plan: Iterable[ToolResult | _Ready]) -> AsyncGenerator[ToolResult, None]:
    tasks = [item if isinstance(item, ToolResult) else asyncio.ensure_future(_run(batch, item)) for item in plan]
    try:
        for task in tasks:
            yield task if isinstance(task, ToolResult) else await task
    finally:
        await _cancel(task for task in tasks if isinstance(task, asyncio.Future))


def _plan(
    tools: Tools, calls: Sequence[Call], context: Contexts | None, *, used: dict[str, int]
) -> list[ToolResult | _Ready]:
    plan: list[ToolResult | _Ready] = []
    offered = {tool.name: tool for tool in tools.normalized_tools}
    limits = tools.tool_call_limits or {}
    for call in calls:
        item = _ready(offered, call, context)
        if limits and isinstance(item, _Ready):
            limit = limits.get(call.tool)
            used[call.tool] = used.get(call.tool, 0) + 1
            if limit is not None and used[call.tool] > limit:
                text = (
                    f"Error: Tool {call.tool!r} was not run: its limit of {limit} calls is used up. Go on without it."
                )
                item = _answer(call, text, "limit")
        plan.append(item)
    return plan


def _ready(offered: Mapping[str, Any], call: Call, context: Contexts | None) -> ToolResult | _Ready:
    tool = offered.get(call.tool)
    if tool is None:
        names = ", ".join(offered)
        hint = f"Use one of: {names}." if names else "No tool is available now: answer without one."
        return _answer(call, f"Error: Tool {call.tool!r} is not registered. {hint}", "unknown-tool")
    if not isinstance(tool, Tool):
        return _answer(call, f"Error: Tool {call.tool!r} has no handler here and was not run.", "unknown-tool")
    try:
        given = arguments_of(call)
    except ArgumentsError as error:
        text = (
            f"Invalid arguments for {call.tool}. Please call {call.tool} with the required parameters. It was not run: "
            f"{error}; give a JSON object."
        )
        return _answer(call, text, "invalid-arguments")
    try:
        args = validated(tool, given)
    except Exception as error:
        # An application's own validators may raise anything.
        why = str(error) if isinstance(error, ArgumentsError) else redact(said(error))
        text = f"Invalid arguments for {call.tool}: {why}. It was not run. Please retry with valid parameters."
        return _answer(call, text, "invalid-arguments")
    return _Ready(call, tool, args, _context(call, context))


def _context(call: Call, context: Contexts | None) -> ToolExecutionContext:
    if isinstance(context, ToolExecutionContext):
        kind: Any = type(context)
        mine: ToolExecutionContext = _copier(kind)(context, tool_call_id=call.call_id)
        return mine
    known = context.get(call.call_id or "") if context is not None else None
    return known or ToolExecutionContext(tool_call_id=call.call_id)


async def _run(batch: _Batch, item: ToolResult | _Ready) -> ToolResult:
    if isinstance(item, ToolResult):
        return item
    if batch.around is None:
        return await _ran(batch, item)
    return await batch.around(item.call, lambda: _ran(batch, item))


async def _ran(batch: _Batch, item: _Ready) -> ToolResult:
    began = monotonic()
    if batch.stopped:
        return _answer(item.call, f"Error: Tool {item.tool.name!r} was not run: the run was cancelled.", "not-executed")
    if batch.started is not None:
        await _told(batch.started(item.call))
    value, content, outcome = await _attempts(batch, item)
    if batch.ended is not None:
        await _told(batch.ended(item.call, value))
    return _answer(item.call, content, outcome, monotonic() - began)


async def _told(answer: Any) -> None:
    """Wait for a callback that is async."""
    if type(answer) is CoroutineType or isawaitable(answer):
        await answer


_Attempt: TypeAlias = tuple[Any, str | list[dict[str, Any]], str]
"""What the handler returned, what the model reads of it, and the outcome."""


async def _attempts(batch: _Batch, item: _Ready) -> _Attempt:
    limit, again = batch.tools.tool_call_timeout, batch.tools.tool_call_max_retries
    retries = limit is not None and item.tool.retry_on_timeout and is_async(item.tool.handler)
    tries = 1 + again if retries else 1
    for _ in range(tries):
        try:
            return await _attempt(item, limit, batch.stop)
        except _TimedOut:
            continue
        except _Stopped:
            break
    left = "It was stopped" if is_async(item.tool.handler) else "It may still be running"
    if batch.stopped:
        text = f"Error: Tool {item.tool.name!r} was cancelled. {left}; its outcome is unknown."
        return _failure(text, ToolErrorKind.CANCELLED)
    text = f"Error: Tool {item.tool.name!r} timed out after {limit}s ({tries} attempts)."
    return _failure(f"{text} {left}; its outcome is unknown.", ToolErrorKind.TIMEOUT)


def _failure(text: str, kind: ToolErrorKind) -> _Attempt:
    return ToolFailure(text=text, error=ToolError(text, kind.value)), text, kind.value


class _TimedOut(Exception):
    """The time for one attempt was over."""


class _Stopped(Exception):
    """The caller cancelled."""


async def _attempt(item: _Ready, limit: float | None, stop: CancellationToken | None) -> _Attempt:
    """One attempt; a time-out, a cancellation or an exit of the handler's own is its failure, not ours."""
    token, task = CancellationToken(), asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    scope = None if limit is None and stop is None else asyncio.timeout(limit)
    forget = None
    if stop is not None and scope is not None:
        forget = stop.on_cancel(partial(_stop, token, scope, asyncio.get_running_loop()))
    try:
        if scope is None:
            # What nobody stops needs no scope of its own.
            return _result(item.tool, await item.tool.call(item.args, token, context=item.context))
        async with scope:
            return _result(item.tool, await item.tool.call(item.args, token, context=item.context))
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        return _failed(item, error)
    except (Exception, SystemExit) as error:
        if isinstance(error, TimeoutError) and scope is not None and scope.expired():
            raise (_Stopped if stop is not None and stop.cancelled else _TimedOut) from None
        return _failed(item, error)
    finally:
        if forget is not None:
            forget()
        token.cancel()


def _stop(token: CancellationToken, scope: asyncio.Timeout, loop: asyncio.AbstractEventLoop) -> None:
    """Stop an attempt, from whatever thread."""
    token.cancel()
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(_expire, scope)


def _expire(scope: asyncio.Timeout) -> None:
    """End the scope now; one that has ended stays as it is."""
    with suppress(RuntimeError):
        scope.reschedule(asyncio.get_running_loop().time())


def _result(tool: Tool, value: Any) -> _Attempt:
    outcome = "ok" if tool_outcome(value).ok else ToolErrorKind.ERROR.value
    return value, result_content(value) if tool.formatter is None else tool.return_value_as_string(value), outcome


def _failed(item: _Ready, error: BaseException) -> _Attempt:
    text = f"Error: Tool {item.tool.name!r} failed: {redact(said(error))}"
    return ToolFailure(text=text, error=ToolError(redact(said(error)), ToolErrorKind.ERROR.value)), text, "error"


async def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    left = list(tasks)
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _answer(call: Call, content: str | list[dict[str, Any]], outcome: str, seconds: float = 0.0) -> ToolResult:
    return ToolResult(call.call_id or "", call.tool, content, outcome, seconds)
