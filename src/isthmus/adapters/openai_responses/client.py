"""The client of the Responses API over the official SDK: its transport and options, this library's one decoder."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

from isthmus.adapters.bodies import too_large
from isthmus.adapters.drive import no_json_form
from isthmus.adapters.model_face import closed_on, judged, repair_of, response_step, unless_cancelled
from isthmus.adapters.observed import asked, observed_face
from isthmus.adapters.openai_responses.codec import ResponsesCodec
from isthmus.adapters.openai_responses.encode import request_body
from isthmus.adapters.openai_responses.live import LiveRun
from isthmus.adapters.openai_responses.options import (
    dialling_options,
    given_options,
    live_options,
    owned_option,
    sdk_options,
)
from isthmus.adapters.openai_responses.reading import NATIVE, Reading, shaped
from isthmus.adapters.openai_responses.sdk import Connection, SdkReply, Socket, dialled, opened, wait_after
from isthmus.adapters.openai_responses.tools import SCHEMAS
from isthmus.adapters.render import RoleDict, read_tools, remembered
from isthmus.adapters.views import from_response
from isthmus.errors import CallCancelledError, ConfigError, InvalidRequestError, TierError
from isthmus.models.config import Config
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.dialects import legal_name
from isthmus.models.events import FinishReason, Note, StepResult
from isthmus.models.jsontext import loads
from isthmus.models.messages import sendable
from isthmus.models.model import Factory, Model
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.models.output import resolve_output_schema
from isthmus.models.responses import ModelResponse, ModelStreamEvent
from isthmus.models.retry import RetryPolicy, tried
from isthmus.models.steering import SteeringInput, SteeringReceipt
from isthmus.wire.frame import MOST_BYTES, Frame
from isthmus.wire.sse import SSEParser

_REFUSAL_RETRIES = 3
_LONGEST_WAIT = 60.0
_sleep = asyncio.sleep
_NO_RUN = "over a WebSocket replies belong to a run: async with model.open_run() as active, then active.stream_response"


class _Asked(NamedTuple):
    """One call: the SDK's arguments, and what making them changed."""

    arguments: dict[str, Any]
    notes: tuple[Note, ...]
    asynchronous: frozenset[str]
    streamed: bool


class ResponsesClient(Model[ModelResponse]):
    """A model behind the Responses API, through the official SDK (extra `openai`).

    It owns the retries: connection failures, time-outs and statuses that may pass are tried again, `Retry-After` up to
    60 s is honoured, and a stream is tried again only while it is being set up. The SDK's errors are raised as they
    are, the classified failure as their `classified`.

    With `websocket` it is streamed alone, and within `open_run()`: each run has one connection, on which a reply under
    way can be steered; a connection that fails ends its run.

    Args:
        config: the connection; a model "azure/NAME" goes to Azure, "openai/NAME" and plain names to the SDK's own API.
        refusal_context: words to add as the user's where the model refuses, up to three times; None takes the refusal.
        websocket: whether it speaks over a WebSocket; the provider must support that for the model and the account.
        async_tools: names of functions that may run while a reply goes on; a stream tells each of their calls as soon
            as it is whole.
        default_call_args: request options of every call, by the SDK's names; also `max_tokens`, `reasoning_effort` and
            `verbosity`.

    Raises:
        ConfigError: a model at Azure without a base URL; `async_tools` are no names; an option that a run over a
            WebSocket decides for itself.
    """

    handles_retries = True
    max_reply_bytes: int = 256 * 1024 * 1024
    """The most bytes that a reply may have, decompressed."""
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "output-schema"})
    # What the provider tells before the first content counts as an event, so a silent start may last as long as before.
    timeouts = Timeouts(idle=120.0)

    def __init__(
        self,
        config: Config,
        refusal_context: str | None = None,
        *,
        websocket: bool = False,
        async_tools: Iterable[str] = (),
        **default_call_args: Any,
    ) -> None:
        names = frozenset(_names(async_tools))
        owned = owned_option(default_call_args) if websocket else None
        if owned is not None:
            raise ConfigError("a run over a WebSocket decides that for itself: leave it out", key=owned)
        self.requires_streaming = websocket or bool(names)
        self._websocket, self._async_tools = websocket, names
        self._live: LiveRun | None = None
        self.config = config
        self.tracing = config.tracing
        self._connection = Connection(config)
        self._defaults = default_call_args
        self._refusal_context = refusal_context
        self._codec = ResponsesCodec(self._connection.model)
        self._retries = RetryPolicy(max_retries=max(0, config.max_retries - 1), max_hint=_LONGEST_WAIT)

    @property
    def schema_validation_retries(self) -> int:
        """How often a reply that misses its schema is asked for again."""
        return self.config.schema_validation_retries

    @property
    def id(self) -> str:
        """Provider and model, as a chain shows them."""
        return f"{NATIVE_DIALECT}:{self.model}"

    @property
    def model(self) -> str:
        """The model's id as it is sent."""
        return self._connection.model

    @property
    def provider(self) -> str:
        """The provider's name here."""
        return self._connection.provider

    @property
    def base_url(self) -> str:
        """Where requests go."""
        return self._connection.url

    async def get_response(
        self,
        messages: Any,
        extra_call_args: Mapping[str, Any] | None = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> ModelResponse:
        """Answer a transcript.

        Args:
            messages: OpenAI-chat dicts and native input items; of one with `openai_responses_input` these items alone.
            extra_call_args: request options by the SDK's names, over the client's own.
            schema: the form of the reply; it joins your `text` settings, and a reply that does not fit is asked for
                again, as often as the configuration says.
            tools: the `Tools` that may be called; native declarations in the options stand before them.
            cancellation_token: gives the call up as soon as it is cancelled.
            parent_span: not used.
            kwargs: more request options.

        Raises:
            ResponseError: the response failed, was cancelled, is no answer yet, or waits for what nobody here can do.
            ValueError: the client speaks over a WebSocket, which is streamed alone.
            InvalidRequestError: a message, a tool or an option has no form here; two tools have one name.
            OutputError: no reply was of the form.
            CallCancelledError: the token was cancelled.
            Exception: the SDK's own errors.
        """
        if self._websocket:
            raise InvalidRequestError("get_response: over a WebSocket replies are streamed; use stream_response")
        ctx, sdk = self._context(messages, {**(extra_call_args or {}), **kwargs}, schema=schema, tools=tools)
        last: list[ModelResponse] = []

        async def answered(wanted: GenerateContext) -> StepResult:
            last[:] = [await self._unrefused(wanted, sdk)]
            return from_response(last[0])

        async def ask(wanted: GenerateContext) -> StepResult:
            return await asked(answered(wanted), self, ctx=wanted)

        repair = repair_of(self, ctx, messages=messages)
        step = await unless_cancelled(response_step(ask, ctx, repair=repair), cancellation_token)
        (response,) = last
        return response if step is response.step else shaped(step, response.model_extra.get(NATIVE), model=self.model)

    async def stream_response(
        self,
        messages: Any,
        extra_call_args: Mapping[str, Any] | None = None,
        schema: Any = None,
        tools: Any = None,
        cancellation_token: Any = None,
        parent_span: Any = None,
        **kwargs: Any,
    ) -> AsyncGenerator[ModelStreamEvent, None]:
        """The reply as it arrives: every event of the provider once, its frame as `raw`; the last is "completed".

        A failure is shown as an "error" event, then raised; arguments and errors are those of `get_response`. Over a
        WebSocket a reply whose last event has a `continuation` is not the last: "automatic" means that the provider
        goes on by itself, and the next call, with that event's messages in the history, reads what it says.

        Raises:
            RuntimeError: it speaks over a WebSocket, and this is no run.
        """
        try:
            ctx, sdk = self._context(messages, {**(extra_call_args or {}), **kwargs}, schema=schema, tools=tools)
            repair = repair_of(self, ctx, messages=messages, retries=0)
            form = None if repair is None else repair.request(ctx)
            wanted = ctx if form is None else form.ctx
            async with AsyncExitStack() as stack:
                source, said = await self._begun(stack, self._asked(wanted, sdk, stream=True))
                events = await stack.enter_async_context(aclosing(observed_face(said, self, ctx=wanted)))
                async with closed_on(cancellation_token, source):
                    async for event in events:
                        if event.response is not None and event.continuation is None:
                            judged(from_response(event.response), repair, asked=form)
                        yield event
        except Exception as error:
            cancelled = cancellation_token is not None and cancellation_token.cancelled
            failure = CallCancelledError("the call was given up: its token was cancelled") if cancelled else error
            unknown = None if self._live is None else self._live.unknown() or None
            yield ModelStreamEvent(kind="error", error=failure, steering=unknown)
            raise failure from failure.__cause__

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[Self]:
        """The client for the length of a run: over a WebSocket a copy with a connection of its own, closed at the end.

        Raises:
            Exception: the connection could not be made; while that may pass it was tried again.
        """
        if not self._websocket or self._live is not None:
            yield self
            return
        async with AsyncExitStack() as stack:
            socket = await self._dial(stack)
            bound = copy.copy(self)
            bound._live = LiveRun(socket, limit=self.max_reply_bytes, count=self._count)
            stack.push_async_callback(bound._live.aclose)
            yield bound

    async def steer(self, steering: SteeringInput) -> SteeringReceipt:
        """Send input into the reply under way.

        Args:
            steering: text, or the SDK's input items: messages of the user.

        Returns:
            A live receipt: its status changes while the reply, and what follows it, are read.

        Raises:
            RuntimeError: this is no run over a WebSocket, or no reply of it is under way.
            InvalidRequestError: the input is neither text nor items, or empty.
            Exception: it could not be sent: the connection is closed, the run over, and the receipt says "unknown".
        """
        if self._live is None:
            raise RuntimeError(_NO_RUN)
        items = isinstance(steering, list) and all(isinstance(item, Mapping) for item in steering)
        if not steering or not (items or isinstance(steering, str)):
            raise InvalidRequestError(f"steer: give text, or a list of input items, not {steering!r:.80}")
        try:
            # What the caller does with his own items later changes nothing.
            plain = loads(sendable(steering, "steer"))
        except (TypeError, RecursionError) as error:
            raise no_json_form(error) from error
        return await self._live.steer(plain)

    def _context(
        self, messages: Any, options: Mapping[str, Any], *, schema: Any, tools: Any
    ) -> tuple[GenerateContext, dict[str, Any]]:
        """What a call asks for, and those of its options that are the SDK's own."""
        merged = given_options({**self._defaults, **options})
        sdk = sdk_options(merged)
        rest = {name: value for name, value in merged.items() if name not in sdk}
        if self._websocket:
            sdk = live_options(given_options(options), sdk)
        base = remembered(messages) or GenerateContext()
        ctx = GenerateContext(
            messages=tuple(each.original() if isinstance(each, RoleDict) else each for each in messages),
            tools=() if tools is None else tuple(read_tools(tools)),
            tool_choice=None if tools is None else getattr(tools, "tool_choice", "auto"),
            parallel_tool_calls=bool(getattr(tools, "parallel_tool_calls", True)),
            output=resolve_output_schema(schema),
            stop=rest.pop("stop", None) or (),
            seed=rest.pop("seed", None),
            on_unsupported=base.on_unsupported,
            options=rest,
        )
        return ctx, sdk

    def _asked(self, ctx: GenerateContext, sdk: Mapping[str, Any], *, stream: bool = False) -> _Asked:
        try:
            body, notes = request_body(ctx, model=self.model, ceiling=None)
            plain = loads(sendable(body))
        except (TypeError, RecursionError) as error:
            raise no_json_form(error) from error
        self._codec.names.learn(ctx.tools)
        names = {legal_name(spec.name, dialect=SCHEMAS) for spec in ctx.tools if spec.name in self._async_tools}
        for tool in plain.get("tools", ()):
            if tool.get("name") in names:
                tool["async"] = True
        return _Asked({**plain, **sdk}, tuple(notes), frozenset(names), stream)

    async def _begun(
        self, stack: AsyncExitStack, asked: _Asked
    ) -> tuple[SdkReply | LiveRun, AsyncGenerator[ModelStreamEvent, None]]:
        """What carries the reply to a request, and the reply's events."""
        if not self._websocket:
            reply = await self._open(stack, asked)
            return reply, self._events(reply, asked)
        if self._live is None:
            raise RuntimeError(_NO_RUN)
        await stack.enter_async_context(self.config.rate_limiter or nullcontext())
        return self._live, self._live.turn(asked.arguments, self._reading(asked, whole=False))

    async def _dial(self, stack: AsyncExitStack) -> Socket:
        """The connection of a run, tried again while its failure may pass; closed with the stack."""
        sent = dialling_options(self._defaults)

        async def once(attempt_number: int) -> Socket:
            client = await self._connection.client()
            return await stack.enter_async_context(dialled(client, self.config, limit=self.max_reply_bytes, **sent))

        return await tried(once, self._wait, sleep=_sleep)

    def _wait(self, error: Exception, attempt_number: int) -> float | None:
        return wait_after(error, attempt_number, policy=self._retries)

    async def _unrefused(self, ctx: GenerateContext, sdk: Mapping[str, Any]) -> ModelResponse:
        """The reply; asked for again, with the words for that, where the model refuses."""
        response = await self._whole(self._asked(ctx, sdk))
        for _ in range(_REFUSAL_RETRIES if self._refusal_context else 0):
            if response.step is None or response.step.finish != FinishReason.REFUSAL:
                break
            ctx = replace(ctx, messages=(*ctx.messages, {"role": "user", "content": self._refusal_context}))
            response = await self._whole(self._asked(ctx, sdk))
        return response

    async def _open(self, stack: AsyncExitStack, asked: _Asked) -> SdkReply:
        """Send the call, and again while its failure may pass; its limiter and its reply end with the stack."""
        await stack.enter_async_context(self.config.rate_limiter or nullcontext())
        responses = (await self._connection.client()).responses.with_streaming_response
        how = {"stream": True} if asked.streamed else {}

        async def once(attempt_number: int) -> SdkReply:
            # A try that fails leaves nothing on the stack.
            async with AsyncExitStack() as attempt:
                reply = await attempt.enter_async_context(
                    opened(responses.create(**asked.arguments, **how), self.config.api_key)
                )
                await stack.enter_async_context(attempt.pop_all())
                return reply

        return await tried(once, self._wait, sleep=_sleep)

    async def _whole(self, asked: _Asked) -> ModelResponse:
        async with AsyncExitStack() as stack:
            reply = await self._open(stack, asked)
            *_, last = [event async for event in self._events(reply, asked)]
        return last.response  # type: ignore[return-value]

    def _reading(self, asked: _Asked, *, whole: bool) -> Reading:
        return Reading(
            self._codec.decoder(whole=whole),
            model=self.model,
            secret=self.config.api_key,
            notes=asked.notes,
            asynchronous=asked.asynchronous,
        )

    async def _events(self, reply: SdkReply, asked: _Asked) -> AsyncGenerator[ModelStreamEvent, None]:
        """The events of a reply, whichever way it came."""
        reading = self._reading(asked, whole=False)
        try:
            await reply.begin(streamed=asked.streamed, limit=self.max_reply_bytes)
            reading = self._reading(asked, whole=not reply.is_stream)
            async for frames in _frames(reply, self.max_reply_bytes):
                for frame in frames:
                    for shown in reading.feed(frame):
                        if reply.is_stream or reading.done:
                            yield shown
                    if reading.done:
                        break
                if reading.done:
                    break
            step = reading.close(reply.ended)
        except TierError as error:
            raise reading.failure(error) from None
        self._count(step)
        yield reading.completed(step)

    def _count(self, step: StepResult) -> None:
        if self.config.rate_limiter is not None and step.usage is not None:
            spent = (step.usage.prompt_tokens or 0) + (step.usage.output_tokens or 0)
            self.config.rate_limiter.record_usage(spent)

    async def aclose(self) -> None:
        """Close the SDK's connections in the running loop; a run's copy closes the run's alone."""
        await (self._connection if self._live is None else self._live).aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class ResponsesFactory(Factory[ModelResponse]):
    """Makes clients of the Responses API from one configuration."""

    client = ResponsesClient


def _names(given: Any) -> Iterable[str]:
    named = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    if not named or not all(isinstance(name, str) and name for name in given):
        raise ConfigError(f"must be names of tools, not {given!r:.80}", key="async_tools")
    return given  # type: ignore[no-any-return]


async def _frames(reply: SdkReply, limit: int) -> AsyncIterator[Iterable[Frame]]:
    if not reply.is_stream:
        body = b"".join([chunk async for chunk in _counted(reply, limit)])
        yield (Frame(body),)
        return
    parser = SSEParser(min(limit, MOST_BYTES))
    async for chunk in _counted(reply, limit):
        yield parser.feed(chunk)
    yield parser.close()


async def _counted(reply: SdkReply, limit: int) -> AsyncIterator[bytes]:
    size = 0
    async for chunk in reply.chunks():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        yield chunk
