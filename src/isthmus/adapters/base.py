"""The base class of adapters: one model, provider or gateway behind three call surfaces.

| face | methods |
|---|---|
| step | `stream(ctx)`, `generate(ctx)` |
| chat | `stream_with_tools(messages, tools)`, `chat(messages, tools)`, `stream_chat`, `make_tool_turn` |
| model | `stream_response(messages, …)`, `get_response(messages, …)`, `open_run()` |

Write any one of the six generating methods; the others are written for the class when it is created.
"""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from isthmus.adapters.chat import ChatResponse, ToolCall
from isthmus.adapters.faces import bare_events as bare_events
from isthmus.adapters.faces import complete, in_one_shot, mismatch, refusal, source_of
from isthmus.adapters.faces import is_heard as is_heard
from isthmus.adapters.faces import timeouts_of as timeouts_of
from isthmus.adapters.observed import names_of as names_of
from isthmus.adapters.observed import observed as observed
from isthmus.adapters.render import neutral_turns
from isthmus.errors import AdapterError
from isthmus.models.capabilities import ModelCapabilities, apply_thinking, capabilities_from_limits
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import StepResult
from isthmus.models.finish import is_output_truncation
from isthmus.models.model import Model
from isthmus.models.responses import ModelResponse, ModelStreamEvent
from isthmus.models.stream import EventStream

if TYPE_CHECKING:
    # In `isthmus.adapters.registry`, which is loaded when one of them is asked for.
    available_providers: Callable[[], Sequence[str]]
    load_adapter: Callable[..., ModelAdapter]
    register_adapter: Callable[[str, Callable[..., Any]], None]

__all__ = [
    "ChatResponse",
    "ModelAdapter",
    "ModelCapabilities",
    "ToolCall",
    "apply_thinking",
    "as_adapter",
    "available_providers",
    "capabilities_from_limits",
    "is_output_truncation",
    "load_adapter",
    "register_adapter",
]

_REGISTRY = frozenset({"available_providers", "load_adapter", "register_adapter"})

_T = TypeVar("_T")


def __getattr__(name: str) -> Any:
    if name in _REGISTRY:
        return getattr(importlib.import_module("isthmus.adapters.registry"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Default(Generic[_T]):
    """A value worked out from the adapter unless its class or `__init__` sets one."""

    def __init__(self, work_out: Callable[[Any], _T]) -> None:
        self._work_out = work_out

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, adapter: Any, owner: type) -> _T:
        if adapter is None:
            raise AttributeError(f"{owner.__name__}.{self._name} is worked out for each adapter")
        return self._work_out(adapter)


def _default_id(adapter: Any) -> str:
    model = getattr(adapter, "model", None)
    provider = getattr(adapter, "provider", None) or type(adapter).__name__.lower().removesuffix("adapter")
    return f"{provider}:{model}" if model else str(provider)


def _default_ceiling(adapter: Any) -> int | None:
    own, hard = getattr(adapter, "max_tokens", None), adapter.capabilities().max_output_tokens
    known = [count for count in (own, hard) if isinstance(count, int) and count > 0]
    return min(known, default=None)


def _default_supports(adapter: Any) -> frozenset[str]:
    source = source_of(type(adapter))
    return frozenset() if source is None or source.steps else frozenset({"tools"})


class ModelAdapter:
    """One model, provider or gateway; write any one of the six generating methods and it has all of them.

    Attributes:
        id: "provider:model", unique within a chain.
        window_tokens: prompt and output tokens together, or None where unknown.
        max_output_tokens: ceiling of one reply in tokens, or None where unknown.
        supports: what it declares to take: tools, parallel-tools, images, documents, audio, output-schema.
        handles_retries: whether it retries by itself, so that a chain must not.
        requires_streaming: whether it can only be streamed.
        timeouts: how long its streams wait; None for the defaults.
        for_development: whether a configuration for production refuses it.

    Raises:
        AdapterError: when instantiated, if the class wrote none of the six, or one that cannot take its arguments.
    """

    id: _Default[str] | str = _Default(_default_id)
    window_tokens: _Default[int | None] | int | None = _Default(lambda adapter: adapter.capabilities().context_window)
    max_output_tokens: _Default[int | None] | int | None = _Default(_default_ceiling)
    supports: _Default[frozenset[str]] | frozenset[str] = _Default(_default_supports)
    handles_retries: bool = False
    requires_streaming: bool = False
    timeouts: Timeouts | None = None
    for_development: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for kind in reversed(cls.__mro__):
            if kind is not ModelAdapter and "_isthmus_source" not in vars(kind) and kind.__module__ != "builtins":
                complete(kind, own=issubclass(kind, ModelAdapter))

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Refuse a class that cannot answer."""
        adapter = super().__new__(cls)
        if "_isthmus_usable" not in vars(cls):
            wrong = refusal(adapter)
            if wrong is not None:
                raise AdapterError(wrong)
            cls._isthmus_usable = True
        return adapter

    # Subclasses need not call it; without it, `object` would take any argument.
    def __init__(self) -> None:
        super().__init__()

    _isthmus_usable: bool

    if TYPE_CHECKING:
        # Written for every class. `Any` beside each type lets an author write any form that the library accepts.
        def stream(self, ctx: GenerateContext) -> EventStream | Any:
            """The reply's events as they arrive, one `Finish` last."""

        def generate(self, ctx: GenerateContext) -> Awaitable[StepResult] | Any:
            """The whole reply."""

        def chat(self, messages: Any, tools: Any) -> Awaitable[ChatResponse] | Any:
            """The whole reply as a `ChatResponse`."""

        def stream_chat(self, messages: Any, tools: Any = None) -> AsyncIterator[str] | Any:
            """The text alone, as it arrives."""

        def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Awaitable[ModelResponse] | Any:
            """The whole reply as a `ModelResponse`."""

        def stream_response(self, messages: Any, *args: Any, **kwargs: Any) -> AsyncIterator[ModelStreamEvent] | Any:
            """The reply as `ModelStreamEvent`s, "completed" last."""

    def stream_with_tools(self, messages: Any, tools: Any) -> AsyncIterator[tuple[str, Any]] | Any:
        """("text", str) as it arrives, ("done", `ChatResponse`) last.

        What `super()` reaches where no class further up wrote a method: the whole reply in one shot.

        Raises:
            AdapterError: no class wrote a whole reply.
        """
        return in_one_shot(self, messages, tools=tools)

    def make_tool_turn(self, response: Any, results: Sequence[tuple[Any, str]]) -> list[dict[str, Any]]:
        """The turns that tell a model what its tools returned, in the neutral shape; a pure renderer.

        Args:
            response: the reply that asked for the tools.
            results: (call, output) pairs.
        """
        return neutral_turns(response, results)

    make_tool_turn._isthmus_default = True  # type: ignore[attr-defined]

    def capabilities(self) -> ModelCapabilities:
        """What the model can do, from the table in `self._model_limits`; called often, so an override must be cheap."""
        limits: Mapping[str, Any] | None = getattr(self, "_model_limits", None)
        return capabilities_from_limits(str(getattr(self, "model", None) or ""), limits)

    def open_run(self) -> AbstractAsyncContextManager[Any]:
        """What to call for the length of one run, as a block: the adapter itself."""
        return _run(self)

    async def steer(self, steering: Any) -> Any:
        """Send input into a reply under way.

        Raises:
            NotImplementedError: this adapter cannot be steered.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be steered")

    async def aclose(self) -> None:
        """Close what the adapter holds open; harmless twice."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@asynccontextmanager
async def _run(adapter: ModelAdapter) -> AsyncIterator[ModelAdapter]:
    yield adapter


_TAKEN_OVER = ("window_tokens", "max_output_tokens", "supports", "handles_retries", "requires_streaming", "timeouts")


class _Plain(ModelAdapter):
    """Stands for a plain object, whose values and methods count where it has them."""

    _isthmus_stands = True

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self.model = getattr(plain, "model", "")
        self.id = getattr(plain, "id", None) or type(plain).__name__
        for name in _TAKEN_OVER:
            value = getattr(plain, name, None)
            if value is not None:
                setattr(self, name, value)

    def capabilities(self) -> ModelCapabilities:
        own = getattr(self.plain, "capabilities", None)
        return own() if callable(own) else super().capabilities()

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[ModelAdapter]:
        own = getattr(self.plain, "open_run", None)
        if not callable(own):
            yield self
            return
        async with own() as active:
            yield self if active is self.plain else as_adapter(active)

    async def steer(self, steering: Any) -> Any:
        own = getattr(self.plain, "steer", None)
        return await own(steering) if callable(own) else await super().steer(steering)

    async def aclose(self) -> None:
        own = getattr(self.plain, "aclose", None)
        if callable(own):
            await own()


class _Streaming(_Plain):
    def stream(self, ctx: GenerateContext) -> Any:
        return self.plain.stream(ctx)


class _Generating(_Plain):
    def generate(self, ctx: GenerateContext) -> Any:
        return self.plain.generate(ctx)


class _Both(_Plain):
    def stream(self, ctx: GenerateContext) -> Any:
        return self.plain.stream(ctx)

    def generate(self, ctx: GenerateContext) -> Any:
        return self.plain.generate(ctx)


class _Responding(_Plain):
    def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self.plain.get_response(messages, *args, **kwargs)


class _RespondingBoth(_Plain):
    def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self.plain.get_response(messages, *args, **kwargs)

    def stream_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return self.plain.stream_response(messages, *args, **kwargs)


_STANDS_FOR: Mapping[tuple[str, ...], type[_Plain]] = {
    ("stream",): _Streaming,
    ("generate",): _Generating,
    ("stream", "generate"): _Both,
    ("get_response",): _Responding,
    ("get_response", "stream_response"): _RespondingBoth,
}


def as_adapter(thing: Any) -> ModelAdapter:
    """The adapter that a thing is: itself, or one that stands for a plain object.

    Args:
        thing: a `ModelAdapter`; an object with `stream(ctx)` or `generate(ctx)`, None meaning that it has none; or a
            `isthmus.models.Model`. A chat face alone makes no adapter of a plain object: derive from `ModelAdapter`.

    Raises:
        AdapterError: it is none of these, or its method cannot take its arguments.
    """
    if isinstance(thing, ModelAdapter):
        return thing
    name = getattr(thing, "__name__", type(thing).__name__)
    if isinstance(thing, type):
        raise AdapterError(f"{name} is a class: give an instance of it")
    written = tuple(method for method in ("stream", "generate") if callable(getattr(thing, method, None)))
    if not written and isinstance(thing, Model):
        streams = type(thing).stream_response is not Model.stream_response
        written = ("get_response", "stream_response") if streams else ("get_response",)
    if not written:
        raise AdapterError(
            f"{name} is no adapter: write `stream(ctx)` or `generate(ctx)`, derive from isthmus.models.Model, or "
            "derive from ModelAdapter and write any of its methods"
        )
    for method in written:
        wrong = mismatch(method, getattr(thing, method))
        if wrong is not None:
            raise AdapterError(f"{name}.{method} cannot take its arguments ({wrong})")
    return _STANDS_FOR[written](thing)
