"""Runs the calls of one reply: validates, runs, times out, and answers each so that the model can read it.

Nothing that a tool does ends a run: only cancellation passes through. Knows nothing of models or loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import copy_context
from dataclasses import dataclass
from inspect import isawaitable
from threading import Thread
from time import monotonic
from typing import Any, ClassVar

import msgspec

from isthmus.models.arguments import ArgumentsError, validated
from isthmus.models.events import Call
from isthmus.models.fold import said
from isthmus.models.messages import RESERVED
from isthmus.models.signature import is_async
from isthmus.models.tools import CancellationToken, Tool, ToolExecutionContext, Tools
from isthmus.secret import redact

_RAN = frozenset({"ok", "error", "timeout"})


class ToolResult(msgspec.Struct, frozen=True, tag_field="type", tag="tool-result"):
    """The answer to one call.

    Args:
        call_id: the call that it answers.
        tool: the tool's name.
        content: what the model reads.
        outcome: "ok", "error" (the handler failed), "timeout", "unknown-tool", "invalid-arguments", "limit" (used up),
            or, for a run that was stopped, "unknown" and "not-executed".
        seconds: how long it ran.
    """

    type: ClassVar[str] = "tool-result"
    call_id: str
    tool: str
    content: str
    outcome: str = "ok"
    seconds: float = 0.0

    @property
    def ran(self) -> bool:
        """Whether the handler was called, so that it counts."""
        return self.outcome in _RAN


@dataclass(frozen=True, slots=True)
class _Ready:
    """A call that may run."""

    call: Call
    tool: Tool
    args: Any
    context: ToolExecutionContext


class ToolExecutor:
    """Runs batches of calls under one policy.

    Args:
        tools: the tools that are on offer, and on what terms.
    """

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._offered = {tool.name: tool for tool in tools.normalized_tools}

    async def execute(self, calls: Sequence[Call], **options: Any) -> list[ToolResult]:
        """All results of `results`, in the order of the calls."""
        async with aclosing(self.results(calls, **options)) as results:
            return [result async for result in results]

    async def results(
        self,
        calls: Sequence[Call],
        *,
        context: ToolExecutionContext | None = None,
        used: Mapping[str, int] | None = None,
        on_tool_start: Callable[[Call], Any] | None = None,
    ) -> AsyncGenerator[ToolResult, None]:
        """One result a call, in the order of the calls; closing it cancels what still runs.

        Args:
            calls: the calls of one reply.
            context: what the handlers are told; the call's own id is filled in.
            used: how often each tool has run in this run before, for `tool_call_limits`.
            on_tool_start: told of each call just before its handler runs.
        """
        plan = self._plan(calls, context or ToolExecutionContext(), dict(used or {}))
        started = on_tool_start or (lambda call: None)
        if not self._tools.parallel_tool_calls:
            for item in plan:
                yield item if isinstance(item, ToolResult) else await self._run(item, started)
            return
        tasks = [
            item if isinstance(item, ToolResult) else asyncio.ensure_future(self._run(item, started)) for item in plan
        ]
        try:
            for task in tasks:
                yield task if isinstance(task, ToolResult) else await task
        finally:
            await _cancel(task for task in tasks if isinstance(task, asyncio.Future))

    def _plan(
        self, calls: Sequence[Call], context: ToolExecutionContext, used: dict[str, int]
    ) -> list[ToolResult | _Ready]:
        plan: list[ToolResult | _Ready] = []
        limits = self._tools.tool_call_limits or {}
        for call in calls:
            item = self._ready(call, context)
            if isinstance(item, _Ready):
                limit = limits.get(call.tool)
                used[call.tool] = used.get(call.tool, 0) + 1
                if limit is not None and used[call.tool] > limit:
                    item = _answer(
                        call,
                        f"Not run: {call.tool!r} has been used {limit} times, its limit. Go on without it.",
                        "limit",
                    )
            plan.append(item)
        return plan

    def _ready(self, call: Call, context: ToolExecutionContext) -> ToolResult | _Ready:
        tool = self._offered.get(call.tool)
        if tool is None:
            names = ", ".join(self._offered)
            hint = f"Use one of: {names}." if names else "No tool is available now: answer without one."
            return _answer(call, f"Error: there is no tool {call.tool!r}. {hint}", "unknown-tool")
        if not isinstance(tool, Tool):
            return _answer(call, f"Error: {call.tool!r} has no handler here and was not run.", "unknown-tool")
        try:
            args = validated(tool, call)
        except ArgumentsError as error:
            text = f"Invalid arguments for {call.tool!r}: {error}. It was not run: call it again with valid arguments."
            return _answer(call, text, "invalid-arguments")
        return _Ready(
            call,
            tool,
            args,
            ToolExecutionContext(
                run_id=context.run_id,
                agent_name=context.agent_name,
                tool_call_id=call.call_id,
                metadata=context.metadata,
                run_state=context.run_state,
            ),
        )

    async def _run(self, item: _Ready, started: Callable[[Call], Any]) -> ToolResult:
        began = monotonic()
        started(item.call)
        content, outcome = await self._attempts(item)
        return _answer(item.call, content, outcome, monotonic() - began)

    async def _attempts(self, item: _Ready) -> tuple[str, str]:
        limit, again = self._tools.tool_call_timeout, self._tools.tool_call_max_retries
        plain = not is_async(item.tool.handler)
        tries = 1 if plain or not item.tool.retry_on_timeout else 1 + again
        for _ in range(tries):
            try:
                return await _attempt(item, limit, plain)
            except _TimedOut:
                continue
        left = "It may still be running" if plain else "It was stopped"
        attempts = "1 attempt" if tries == 1 else f"{tries} attempts"
        text = f"Error: {item.tool.name!r} timed out after {limit:g} s ({attempts}). {left}; its outcome is unknown."
        return text, "timeout"


class _TimedOut(Exception):
    """The time for one attempt was over."""


async def _attempt(item: _Ready, limit: float | None, plain: bool) -> tuple[str, str]:
    """One attempt; a time-out, a cancellation or an exit of the handler's own is its failure, not ours."""
    token = CancellationToken()
    scope = asyncio.timeout(limit)
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    try:
        async with scope:
            value = await _call(item, token, plain)
            return item.tool.return_value_as_string(_without_reserved(value)), "ok"
    except asyncio.CancelledError as error:
        if task is None or task.cancelling() > before:
            raise
        return _failed(item, error)
    except (Exception, SystemExit) as error:
        if isinstance(error, TimeoutError) and scope.expired():
            raise _TimedOut from None
        return _failed(item, error)
    finally:
        token.cancel()


def _failed(item: _Ready, error: BaseException) -> tuple[str, str]:
    return f"Error: {item.tool.name!r} failed: {redact(said(error))}", "error"


async def _call(item: _Ready, token: CancellationToken, plain: bool) -> Any:
    def call() -> Any:
        return item.tool.call(item.args, token, context=item.context)

    value = await _in_thread(call, item.tool.name) if plain else call()
    return await value if isawaitable(value) else value


async def _in_thread(call: Callable[[], Any], name: str) -> Any:
    """Run a plain function in a thread of its own, which nobody waits for once this is cancelled.

    Not in a pool: a handler that never returns would hold one of its places, and the interpreter at exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    context = copy_context()

    def deliver(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result((value, error))

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:
            error = raised
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(deliver, value, error)

    Thread(target=work, daemon=True, name=f"isthmus tool {name}").start()
    value, error = await future
    if error is None:
        return value
    if isinstance(error, Exception | SystemExit):
        raise error
    # Whatever else ends a thread ends nothing but that thread.
    raise RuntimeError(said(error)) from error


async def _cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def _answer(call: Call, content: str, outcome: str, seconds: float = 0.0) -> ToolResult:
    return ToolResult(call.call_id or "", call.tool, content, outcome, seconds)


def _without_reserved(value: Any) -> Any:
    """The value without this library's own key: what a tool returns is no bookkeeping."""
    if isinstance(value, dict):
        return {key: _without_reserved(item) for key, item in value.items() if key != RESERVED}
    if isinstance(value, list):
        return [_without_reserved(item) for item in value]
    return value
