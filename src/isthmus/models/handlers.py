"""How the handler of a tool is called: with its arguments, and with as much else as its signature asks for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import Any

from isthmus.models.fold import said

INJECTED = ("cancellation_token", "context")
"""Parameters that a model is not told of: they are filled in, by name or, in a handler, in this order."""


class Arguments(dict[str, Any]):
    """The checked arguments of a call: a dict whose keys can be read as attributes too."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"there is no argument {name!r}; there are {', '.join(self) or 'none'}") from None


def is_async(func: Any) -> bool:
    """Whether calling it gives a coroutine."""
    while isinstance(func, partial):
        func = func.func
    return inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(getattr(func, "__call__", None))  # noqa: B004


@dataclass(frozen=True, slots=True)
class _Plain:
    """A function as a handler; two of one function are equal."""

    func: Callable[..., Any]
    injected: tuple[str, ...]

    def __call__(self, args: Any, cancellation_token: Any = None, context: Any = None) -> Any:
        return self.func(**_values(args), **_filled(self.injected, cancellation_token, context))


@dataclass(frozen=True, slots=True)
class _Async:
    """An async function as a handler."""

    func: Callable[..., Any]
    injected: tuple[str, ...]

    async def __call__(self, args: Any, cancellation_token: Any = None, context: Any = None) -> Any:
        return await self.func(**_values(args), **_filled(self.injected, cancellation_token, context))


def _filled(injected: tuple[str, ...], cancellation_token: Any, context: Any) -> Mapping[str, Any]:
    if not injected:
        return _NONE
    given = {"cancellation_token": cancellation_token, "context": context}
    return {name: given[name] for name in injected}


_NONE: Mapping[str, Any] = {}


def keyword_handler(func: Callable[..., Any], injected: tuple[str, ...]) -> Callable[..., Any]:
    """A function as a handler: it takes its arguments as one object, a mapping or a model.

    Args:
        func: called by keyword.
        injected: which of `INJECTED` it has.
    """
    return _Async(func, injected) if is_async(func) else _Plain(func, injected)


def _values(args: Any) -> Mapping[str, Any]:
    # A dict first, of which it is seen at once.
    if isinstance(args, (dict, Mapping)):
        return args
    fields = getattr(type(args), "model_fields", None)
    if fields is None:
        raise TypeError(f"arguments must be a mapping or a model of them, not {type(args).__name__}")
    return {field.alias or name: getattr(args, name) for name, field in fields.items()}


def handler_call(handler: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    """How to call a handler with arguments, a token and a context: with as much of it as it has parameters for.

    Parameters named `cancellation_token` and `context` get these; further positional ones get them in that order.
    """
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return lambda args, cancellation_token, context: handler(args)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return handler
    further = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][1:]
    by_order = iter(INJECTED)
    wanted = [p.name if p.name in INJECTED else next(by_order, None) for p in further if _is_ours(p)]
    places = [name for name in wanted if name is not None]
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.name in INJECTED]
    if tuple(places) == INJECTED and not names:
        return handler

    def _call(args: Any, cancellation_token: Any, context: Any) -> Any:
        given = {"cancellation_token": cancellation_token, "context": context}
        return handler(args, *[given[name] for name in places], **{name: given[name] for name in names})

    return _call


def _is_ours(parameter: inspect.Parameter) -> bool:
    return parameter.name in INJECTED or parameter.default is parameter.empty


async def in_thread(call: Callable[[], Any], name: str) -> Any:
    """Run a plain function in a thread of its own, which nobody waits for once this is cancelled.

    Not in a pool: a handler that never returns would hold one of its places, and the interpreter at exit.

    Args:
        call: what to run; it sees the context variables of the caller.
        name: for the thread's name.
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
