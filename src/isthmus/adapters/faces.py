"""The rule of the faces: whichever of the six generating methods a class wrote, it has all six.

The methods that an author left out are written for his class when it is created, and are bound to that class: they call
what it wrote, never what a subclass wrote, so that `super()` reaches a parent's own complete set.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import FunctionType, MethodType
from typing import Any

import msgspec

from isthmus.adapters.adjust import adjusted, note_left_out, with_brief
from isthmus.adapters.chat_face import chat_events
from isthmus.adapters.model_face import (
    UNCLASSIFIED,
    closed_on,
    failure_of_stream,
    judged,
    model_arguments,
    model_events,
    model_messages,
    read_as_text,
    read_model_context,
    repair_of,
    response_step,
    unless_cancelled,
)
from isthmus.adapters.observed import asked, observed
from isthmus.adapters.render import Turns, chat_messages, read_context, remembered, tool_dicts
from isthmus.adapters.views import events_of, from_chat, from_response, to_chat, to_model_event, to_response
from isthmus.errors import AdapterError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Event, Note, Reasoning, StepResult, Text
from isthmus.models.fold import classify, close, consume_stream, iterate, reraise
from isthmus.models.model import Model
from isthmus.models.normalise import to_step_result
from isthmus.models.responses import ModelResponse, ModelStreamEvent
from isthmus.models.stream import EventStream
from isthmus.observability import hooks

STREAMS = ("stream", "stream_with_tools", "stream_response")
WHOLES = ("generate", "chat", "get_response")
_SOURCE = "_isthmus_source"
_MODEL_ARGUMENTS = ("extra_call_args", "schema", "tools", "cancellation_token", "parent_span")


def bound(attribute: Any, adapter: Any) -> Callable[..., Any]:
    """What `adapter.name` would be if the class held this attribute: a method, a static method or any callable."""
    if type(attribute) is FunctionType:
        return MethodType(attribute, adapter)
    get = getattr(type(attribute), "__get__", None)
    return attribute if get is None else get(attribute, adapter, type(adapter))  # type: ignore[no-any-return]


def timeouts_of(adapter: Any) -> Timeouts | None:
    """The adapter's own time-outs, if it has some."""
    times = getattr(adapter, "timeouts", None)
    return times if isinstance(times, Timeouts) else None


class Source:
    """What one class wrote: its replies as events and whole, whichever methods it wrote.

    Args:
        owner: the class.
        written: its own generating methods by name, as they stand in its body.
    """

    __slots__ = ("_bare", "_direct", "_stream", "_whole", "face", "owner", "settled", "written")

    def __init__(self, owner: type, written: Mapping[str, Any]) -> None:
        self.owner = owner
        self.written = written
        self._stream = next((name for name in STREAMS if name in written), None)
        self._whole = next((name for name in WHOLES if name in written), None)
        stream, generate = written.get("stream"), written.get("generate")
        self._bare = inspect.isasyncgenfunction(stream) or hasattr(stream, "_isthmus_bare")
        self._direct: Any = stream if self._bare and type(stream) is FunctionType else None
        self.settled = hasattr(generate, "_isthmus_bare")
        self.face: Any = None
        """The `stream` that the class has by now."""

    @property
    def steps(self) -> bool:
        """Whether the class speaks the step face itself."""
        return "stream" in self.written or "generate" in self.written

    def events(self, adapter: Any, ctx: GenerateContext) -> AsyncIterator[Any]:
        """The bare events of one call: a stream from a stream, else from a whole reply."""
        events = self._events(adapter, ctx) if self._direct is None else self._direct(adapter, ctx)
        return observed(events, adapter, ctx=ctx) if hooks.listening() else events

    def whole(self, adapter: Any, ctx: GenerateContext) -> Awaitable[StepResult]:
        """The whole reply of one call: a whole reply from a whole reply, else from a stream."""
        answer = self._answer(adapter, ctx)
        return asked(answer, adapter, ctx=ctx) if hooks.listening() else answer

    def _events(self, adapter: Any, ctx: GenerateContext) -> AsyncIterator[Any]:
        if self._stream == "stream":
            method = self.written["stream"]
            if self._bare:
                return bound(method, adapter)(ctx)  # type: ignore[no-any-return]
            return _called(method, adapter, ctx)
        opened = {"stream_with_tools": self._chat_stream, "stream_response": self._model_stream, None: self._one_shot}
        return opened[self._stream](adapter, ctx)

    def _answer(self, adapter: Any, ctx: GenerateContext) -> Awaitable[StepResult]:
        if self.settled:
            return bound(self.written["generate"], adapter)(ctx)  # type: ignore[no-any-return]
        ways = {"generate": self._generated, "chat": self._chatted, "get_response": self._responded}
        if self._whole is None:
            return consume_stream(self._events(adapter, ctx))
        return ways[self._whole](adapter, ctx)

    async def _one_shot(self, adapter: Any, ctx: GenerateContext) -> AsyncIterator[Event]:
        for event in events_of(await self._answer(adapter, ctx)):
            yield event

    async def _generated(self, adapter: Any, ctx: GenerateContext) -> StepResult:
        reply = await _awaited(bound(self.written["generate"], adapter)(ctx))
        if hasattr(reply, "__aiter__") or hasattr(reply, "__next__"):
            return await consume_stream(reply)
        return to_step_result(reply)

    async def _chatted(self, adapter: Any, ctx: GenerateContext) -> StepResult:
        notes: list[Note] = []
        target, *arguments = await self._chat_arguments(adapter, ctx, notes)
        reply = await _awaited(bound(self.written["chat"], target)(*arguments))
        return _noted(from_chat(reply, dialect_of(adapter), tools=ctx.tools), notes)

    async def _chat_stream(self, adapter: Any, ctx: GenerateContext) -> AsyncIterator[Event]:
        notes: list[Note] = []
        target, *arguments = await self._chat_arguments(adapter, ctx, notes)
        said = bound(self.written["stream_with_tools"], target)(*arguments)
        events = chat_events(said, dialect_of(adapter), ctx=ctx, notes=notes)
        try:
            async for event in events:
                yield event
        finally:
            await close(events)

    async def _chat_arguments(self, adapter: Any, ctx: GenerateContext, notes: list[Note]) -> tuple[Any, Any, Any]:
        alone = self._alone(adapter)
        target = adjusted(adapter, ctx, notes=notes, alone=alone)
        if alone:
            note_left_out(ctx, notes)
        make = getattr(target, "make_tool_turn", None)
        turns = Turns(None if hasattr(make, "_isthmus_default") else make, dialect_of(adapter), alone)
        messages = await chat_messages(ctx, turns, notes=notes)
        tools = () if alone and ctx.tool_choice == "none" else ctx.tools
        return target, with_brief(messages, target, ctx=ctx), tool_dicts(tools)

    def _alone(self, adapter: Any) -> bool:
        """Whether no class further up wrote anything: what this one cannot be told is lost."""
        kinds = type(adapter).__mro__
        place = kinds.index(self.owner) if self.owner in kinds else 0
        return not any(_SOURCE in vars(kind) for kind in kinds[place + 1 :])

    async def _responded(self, adapter: Any, ctx: GenerateContext) -> StepResult:
        notes: list[Note] = []
        ask = bound(self.written["get_response"], adapter)
        return _noted(from_response(await _awaited(ask(model_messages(ctx, notes), **model_arguments(ctx)))), notes)

    async def _model_stream(self, adapter: Any, ctx: GenerateContext) -> AsyncIterator[Event]:
        notes: list[Note] = []
        ask = bound(self.written["stream_response"], adapter)
        events = model_events(ask(model_messages(ctx, notes), **model_arguments(ctx)), notes)
        try:
            async for event in events:
                yield event
        finally:
            await close(events)


def dialect_of(adapter: Any) -> str:
    """The name under which a class of a stranger's keeps its native replies."""
    return f"chat:{type(adapter).__module__}.{type(adapter).__qualname__}"


def _noted(step: StepResult, notes: list[Note]) -> StepResult:
    return msgspec.structs.replace(step, notes=(*notes, *step.notes)) if notes else step


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _called(method: Any, adapter: Any, ctx: GenerateContext) -> AsyncIterator[Any]:
    """The events of a method in any form: plain, decorated, returning a stream, an awaitable of one, an iterator."""
    source = iterate(EventStream.bare(await _awaited(bound(method, adapter)(ctx))))
    try:
        async for event in source:
            yield event
    finally:
        await close(source)


def _own_brief(adapter: Any) -> str:
    system = getattr(adapter, "system", None)
    return system if isinstance(system, str) else ""


def _stream(source: Source) -> Any:
    def stream(self: Any, ctx: GenerateContext) -> EventStream:
        """The reply's events as they arrive, one `Finish` last."""
        return EventStream(source.events(self, ctx), timeouts_of(self))

    return stream


def _generate(source: Source) -> Any:
    async def generate(self: Any, ctx: GenerateContext) -> StepResult:
        """The whole reply."""
        return await source.whole(self, ctx)

    return generate


def _chat(source: Source) -> Any:
    async def chat(self: Any, messages: Any, tools: Any) -> Any:
        """One round trip: the whole reply as a `ChatResponse`."""
        try:
            ctx = read_context(messages, tools, own_brief=_own_brief(self))
            return to_chat(await source.whole(self, ctx), inner=remembered(messages) is not None)
        except Exception as error:
            reraise(classify(error))

    return chat


def _stream_with_tools(source: Source) -> Any:
    async def stream_with_tools(self: Any, messages: Any, tools: Any) -> AsyncIterator[tuple[str, Any]]:
        """("text", str) and ("thinking", str) as they arrive, ("done", `ChatResponse`) last."""
        ctx = read_context(messages, tools, own_brief=_own_brief(self))
        async with EventStream(source.events(self, ctx), timeouts_of(self)) as events:
            try:
                async for event in events:
                    if isinstance(event, Text | Reasoning) and event.text:
                        yield ("text" if isinstance(event, Text) else "thinking", event.text)
                response = to_chat(await events.result(), inner=remembered(messages) is not None)
            except Exception as error:
                reraise(events.failure(error))
            yield "done", response

    return stream_with_tools


def _stream_chat(source: Source) -> Any:
    async def stream_chat(self: Any, messages: Any, tools: Any = None) -> AsyncIterator[str]:
        """The text alone, as it arrives."""
        ctx = read_context(messages, tools, own_brief=_own_brief(self))
        async with EventStream(source.events(self, ctx), timeouts_of(self)) as events:
            try:
                async for piece in events.text:
                    yield piece
            except Exception as error:
                reraise(events.failure(error))

    return stream_chat


def _get_response(source: Source) -> Any:
    async def get_response(
        self: Any,
        messages: Any,
        extra_call_args: Any = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> ModelResponse:
        """The whole reply as a `ModelResponse`, asked for again where it is not of the form of `schema`."""
        try:
            ctx = read_model_context(
                messages, {**kwargs, **(extra_call_args or {})}, schema=schema, tools=tools, own_brief=_own_brief(self)
            )
            ask = functools.partial(source.whole, self)
            step = response_step(ask, ctx, repair=repair_of(self, ctx, messages=messages))
            return to_response(await unless_cancelled(step, cancellation_token), str(getattr(self, "model", "")))
        except UNCLASSIFIED:
            raise
        except Exception as error:
            reraise(classify(error))

    return get_response


def _stream_response(source: Source) -> Any:
    async def stream_response(
        self: Any,
        messages: Any,
        extra_call_args: Any = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ModelStreamEvent]:
        """The reply as `ModelStreamEvent`s, "completed" last; a failure is an "error" event, then raised.

        A reply that is not of the form of `schema` is such a failure: what was shown of it cannot be unsaid.
        """
        ctx = read_model_context(
            messages, {**kwargs, **(extra_call_args or {})}, schema=schema, tools=tools, own_brief=_own_brief(self)
        )
        repair = repair_of(self, ctx, messages=messages, retries=0)
        asked = None if repair is None else repair.request(ctx)
        sent = ctx if asked is None else asked.ctx
        async with EventStream(source.events(self, sent), timeouts_of(self)) as events:
            try:
                async with closed_on(cancellation_token, events):
                    async for event in events:
                        heard = read_as_text(event, asked)
                        shown = None if heard is None else to_model_event(heard)
                        if shown is not None:
                            yield shown
                    step = await events.result()
                response = to_response(judged(step, repair, asked=asked), str(getattr(self, "model", "")))
            except Exception as error:
                failure = failure_of_stream(error, events, token=cancellation_token)
                yield ModelStreamEvent(kind="error", error=failure)
                try:
                    raise failure from failure.__cause__
                finally:
                    del failure
            yield ModelStreamEvent(kind="completed", response=response)

    return stream_response


_WRITERS: Mapping[str, Callable[[Source], Any]] = {
    "stream": _stream,
    "generate": _generate,
    "stream_with_tools": _stream_with_tools,
    "chat": _chat,
    "stream_response": _stream_response,
    "get_response": _get_response,
    "stream_chat": _stream_chat,
}
_WRAPPED = ("stream", "generate")


def complete(cls: type, *, own: bool) -> None:
    """Write the methods that a class left out, if it wrote any of the six; wrap its `stream` and `generate`.

    Args:
        cls: an adapter class, or a mixin of one.
        own: whether a method that is None may be taken off the class: None means not written.
    """
    body = vars(cls)
    if own:
        for name in [name for name in _WRITERS if name in body and body[name] is None]:
            delattr(cls, name)
    written = {
        name: body[name]
        for name in (*STREAMS, *WHOLES)
        if body.get(name) is not None and not getattr(body[name], "__isabstractmethod__", False)
    }
    if not written or cls is Model or body.get("_is_protocol"):
        return
    source = Source(cls, written)
    setattr(cls, _SOURCE, source)
    for name, writer in _WRITERS.items():
        if name in written and name in _WRAPPED:
            setattr(cls, name, functools.update_wrapper(writer(source), written[name]))
        elif name not in written and body.get(name) is None:
            made = writer(source)
            made.__qualname__, made.__module__ = f"{cls.__qualname__}.{name}", cls.__module__
            setattr(cls, name, made)
    source.face = vars(cls).get("stream")


def in_one_shot(adapter: Any, messages: Any, *, tools: Any) -> AsyncIterator[tuple[str, Any]]:
    """The chat-face stream of the whole reply that the nearest class wrote.

    Raises:
        AdapterError: none wrote one.
    """
    for kind in type(adapter).__mro__:
        source = vars(kind).get(_SOURCE)
        wholes = {name: source.written[name] for name in WHOLES if name in source.written} if source else {}
        if wholes:
            return _stream_with_tools(Source(kind, wholes))(adapter, messages, tools)  # type: ignore[no-any-return]
    raise AdapterError(f"{type(adapter).__name__} writes no {', '.join(WHOLES)} that super() could stream: write one")


def source_of(cls: type) -> Source | None:
    """What the nearest class in the resolution order wrote; None where none wrote anything."""
    return next((vars(kind)[_SOURCE] for kind in cls.__mro__ if _SOURCE in vars(kind)), None)


def bare_events(adapter: Any, ctx: GenerateContext) -> AsyncIterator[Any] | None:
    """The events of a call without the stream around them; None where something else stands in place of `stream`."""
    source = getattr(adapter, _SOURCE, None)
    if source is None or getattr(type(adapter), "stream", None) is not source.face or "stream" in vars(adapter):
        return None
    return source.events(adapter, ctx)  # type: ignore[no-any-return]


def is_heard(adapter: Any) -> bool:
    """Whether an adapter's own faces tell of each call; a plain object's are told of by whoever calls it."""
    return getattr(adapter, _SOURCE, None) is not None


def refusal(adapter: Any) -> str | None:
    """Why an adapter's class cannot be used, and what to write; None if it can."""
    name = type(adapter).__name__
    source = source_of(type(adapter))
    if source is None:
        return (
            f"{name} writes none of {', '.join((*STREAMS, *WHOLES))}: write `async def stream(self, ctx)`, which "
            "yields events and a Finish, or `async def chat(self, messages, tools)`, which returns a ChatResponse"
        )
    for written, attribute in source.written.items():
        wrong = None if isinstance(attribute, property) else mismatch(written, bound(attribute, adapter))
        if wrong is not None:
            return f"{name}.{written} cannot take its arguments ({wrong}): write `{written}{_FORMS[written]}`"
    return None


_FORMS = {
    **dict.fromkeys(("stream", "generate"), "(self, ctx)"),
    **dict.fromkeys(("stream_with_tools", "chat"), "(self, messages, tools)"),
    **dict.fromkeys(
        ("stream_response", "get_response"), f"(self, messages, {'=None, '.join(_MODEL_ARGUMENTS)}=None, **kwargs)"
    ),
}


def mismatch(name: str, method: Any) -> str | None:
    """Why a bound method cannot take the arguments of its face; None if it can, or if nobody can tell."""
    positional = 2 if name in ("stream_with_tools", "chat") else 1
    named = dict.fromkeys(_MODEL_ARGUMENTS) if name in ("stream_response", "get_response") else {}
    try:
        inspect.signature(method).bind(*[None] * positional, **named)
    except ValueError:
        return None
    except TypeError as error:
        return str(error)
    return None
