"""The model client of one connection: an abstract class with one method to write, and what makes clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from isthmus.errors import ConfigError
from isthmus.models.config import Config
from isthmus.models.enums import ModelTracing
from isthmus.models.responses import ModelResponse, ModelStreamEvent
from isthmus.models.steering import SteeringInput, SteeringReceipt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=ModelResponse)
else:
    from typing import TypeVar

    T = TypeVar("T")


class Model(ABC, Generic[T]):
    """A client that answers `get_response`; accepted wherever an adapter is."""

    tracing: ModelTracing = ModelTracing.DISABLED
    """How much of its calls is traced."""
    requires_streaming: bool = False
    """Whether it can only be streamed."""
    handles_retries: bool = False
    """Whether it retries by itself, so that its caller must not."""

    @abstractmethod
    async def get_response(
        self,
        messages: Any,
        extra_call_args: Mapping[str, Any] | None = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> T:
        """Answer a transcript.

        Args:
            messages: OpenAI-chat dicts, the instructions in front as a system message.
            extra_call_args: request options, by the provider's names.
            schema: the form of the reply, or None for text.
            tools: the `Tools` that may be called, or None.
            cancellation_token: tells that nobody waits for the reply any more.
            parent_span: the span that the call belongs to.
            kwargs: more request options.
        """

    def __call__(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
        """The same as `get_response`."""
        return self.get_response(messages, *args, **kwargs)

    async def stream_response(
        self,
        messages: Any,
        extra_call_args: Mapping[str, Any] | None = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> AsyncIterator[ModelStreamEvent]:
        """The reply as one "completed" event; or one "error" event, after which the error is raised."""
        try:
            response: Any = await self.get_response(
                messages,
                extra_call_args=extra_call_args,
                schema=schema,
                tools=tools,
                cancellation_token=cancellation_token,
                parent_span=parent_span,
                **kwargs,
            )
        except Exception as error:
            yield ModelStreamEvent(kind="error", error=error)
            raise
        yield ModelStreamEvent(kind="completed", response=response)

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[Self]:
        """The model for the length of one run; this one keeps nothing between calls."""
        yield self

    async def steer(self, steering: SteeringInput) -> SteeringReceipt:
        """Send input into a reply under way.

        Raises:
            NotImplementedError: this model cannot be steered.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be steered")


class Factory(Generic[T]):
    """Makes clients of one class from one configuration; a subclass names the class as its `client`.

    Args:
        default_config: what a client gets where `get_model_client` says nothing else.

    Raises:
        ConfigError: there is no `client`, or the configuration is none.
    """

    client: ClassVar[Callable[..., Any] | None] = None
    """Called with the configuration, and with default request options by name."""

    def __init__(self, default_config: Config) -> None:
        if not callable(type(self).client):
            raise ConfigError("set it to the class of the clients to make", where=type(self).__name__, key="client")
        if not isinstance(default_config, Config):
            raise ConfigError(
                f"must be a Config, not {type(default_config).__name__}",
                where=type(self).__name__,
                key="default_config",
            )
        self.default_config = default_config

    def get_model_client(self, **kwargs: Any) -> Model[T]:
        """A new client.

        Args:
            kwargs: those that are fields of `Config` replace them; the rest are request options of every call.

        Raises:
            ConfigError: a field of `Config` gets a value that cannot be.
        """
        known = {field.name for field in fields(Config)}
        config = replace(self.default_config, **{name: kwargs[name] for name in kwargs.keys() & known})
        make: Any = type(self).client
        return make(config, **{name: value for name, value in kwargs.items() if name not in known})  # type: ignore[no-any-return]
