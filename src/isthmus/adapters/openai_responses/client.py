"""The client of the Responses API over the official SDK: its transport and options, this library's one decoder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, Self

import msgspec

from isthmus.adapters.bodies import too_large
from isthmus.adapters.drive import no_json_form
from isthmus.adapters.model_face import closed_on, judged, repair_of, response_step, unless_cancelled
from isthmus.adapters.openai_responses.codec import ResponsesCodec
from isthmus.adapters.openai_responses.decode import ResponsesDecoder
from isthmus.adapters.openai_responses.encode import request_body
from isthmus.adapters.openai_responses.errors import response_error
from isthmus.adapters.openai_responses.sdk import (
    Connection,
    SdkReply,
    given_options,
    hidden,
    opened,
    sdk_options,
    wait_after,
)
from isthmus.adapters.render import RoleDict, read_tools, remembered
from isthmus.adapters.views import from_response, to_model_event, to_response
from isthmus.errors import CallCancelledError, ConfigError, TierError
from isthmus.models.config import Config
from isthmus.models.contract import GenerateContext
from isthmus.models.events import CallDelta, Event, FinishReason, Note, Reasoning, StepResult, Text
from isthmus.models.fold import Fold
from isthmus.models.jsontext import loads
from isthmus.models.messages import sendable
from isthmus.models.model import Factory, Model
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.models.output import resolve_output_schema
from isthmus.models.responses import ModelResponse, ModelStreamEvent
from isthmus.models.retry import RetryPolicy, tried
from isthmus.secret import redact
from isthmus.wire.frame import MOST_BYTES, Frame
from isthmus.wire.sse import SSEParser

_LATER = ("websocket", "async_tools")
_REFUSAL_RETRIES = 3
_LONGEST_WAIT = 60.0
_NATIVE = "openai_response"
_sleep = asyncio.sleep
_SHOWN = (Text, CallDelta, Reasoning)


class _Asked(NamedTuple):
    """One call: the SDK's arguments, and what making them changed."""

    arguments: dict[str, Any]
    notes: tuple[Note, ...]
    codec: ResponsesCodec
    streamed: bool


class ResponsesClient(Model[ModelResponse]):
    """A model behind the Responses API, through the official SDK (extra `openai`).

    It owns the retries: connection failures, time-outs and statuses that may pass are tried again, `Retry-After` up to
    60 s is honoured, and a stream is tried again only while it is being set up. The SDK's errors are raised as they
    are, the classified failure as their `classified`.

    Args:
        config: the connection; a model "azure/NAME" goes to Azure, "openai/NAME" and plain names to the SDK's own API.
        refusal_context: words to add as the user's where the model refuses, up to three times; None takes the refusal.
        default_call_args: request options of every call, by the SDK's names; also `max_tokens`, `reasoning_effort` and
            `verbosity`.

    Raises:
        ConfigError: a model at Azure without a base URL; an option that needs a WebSocket.
    """

    handles_retries = True
    max_reply_bytes: int = 256 * 1024 * 1024
    """The most bytes that a reply may have, decompressed."""
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "output-schema"})

    def __init__(self, config: Config, refusal_context: str | None = None, **default_call_args: Any) -> None:
        for name in _LATER:
            if name in default_call_args:
                raise ConfigError("needs a WebSocket, which this client does not speak: leave it out", key=name)
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
            InvalidRequestError: a message, a tool or an option has no form here; two tools have one name.
            OutputError: no reply was of the form.
            CallCancelledError: the token was cancelled.
            Exception: the SDK's own errors.
        """
        ctx, sdk = self._context(messages, {**(extra_call_args or {}), **kwargs}, schema=schema, tools=tools)
        last: list[ModelResponse] = []

        async def ask(asked: GenerateContext) -> StepResult:
            last[:] = [await self._unrefused(asked, sdk)]
            return from_response(last[0])

        repair = repair_of(self, ctx, messages=messages)
        step = await unless_cancelled(response_step(ask, ctx, repair=repair), cancellation_token)
        (response,) = last
        return response if step is response.step else self._shaped(step, response.model_extra.get(_NATIVE))

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

        A failure is shown as an "error" event, then raised; arguments and errors are those of `get_response`.
        """
        reply: SdkReply | None = None
        try:
            ctx, sdk = self._context(messages, {**(extra_call_args or {}), **kwargs}, schema=schema, tools=tools)
            repair = repair_of(self, ctx, messages=messages, retries=0)
            form = None if repair is None else repair.request(ctx)
            asked = self._asked(ctx if form is None else form.ctx, sdk, stream=True)
            async with AsyncExitStack() as stack:
                reply = await self._open(stack, asked)
                async with closed_on(cancellation_token, reply):
                    async for event in self._events(reply, asked):
                        if event.response is not None:
                            judged(from_response(event.response), repair, asked=form)
                        yield event
        except Exception as error:
            cancelled = cancellation_token is not None and cancellation_token.cancelled
            failure = CallCancelledError("the call was given up: its token was cancelled") if cancelled else error
            yield ModelStreamEvent(kind="error", error=failure)
            raise failure from failure.__cause__

    def _context(
        self, messages: Any, options: Mapping[str, Any], *, schema: Any, tools: Any
    ) -> tuple[GenerateContext, dict[str, Any]]:
        """What a call asks for, and those of its options that are the SDK's own."""
        merged = given_options({**self._defaults, **options})
        sdk = sdk_options(merged)
        rest = {name: value for name, value in merged.items() if name not in sdk}
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
        self._codec.learn(ctx)
        return _Asked({**plain, **sdk}, tuple(notes), self._codec, stream)

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

        def wait(error: Exception, attempt_number: int) -> float | None:
            return wait_after(error, attempt_number, policy=self._retries)

        return await tried(once, wait, sleep=_sleep)

    async def _whole(self, asked: _Asked) -> ModelResponse:
        async with AsyncExitStack() as stack:
            reply = await self._open(stack, asked)
            *_, last = [event async for event in self._events(reply, asked)]
        return last.response  # type: ignore[return-value]

    async def _events(self, reply: SdkReply, asked: _Asked) -> AsyncIterator[ModelStreamEvent]:
        """The events of a reply, whichever way it came."""
        decoder, fold = asked.codec.decoder(whole=False), Fold()
        try:
            await reply.begin(streamed=asked.streamed, limit=self.max_reply_bytes)
            decoder = asked.codec.decoder(whole=not reply.is_stream)
            async for frames in _frames(reply, self.max_reply_bytes):
                for frame in frames:
                    events = list(decoder.feed(frame))
                    fold.extend(events)
                    if reply.is_stream or events:
                        for shown in _shown(events, frame, decoder):
                            yield shown
                    if decoder.done:
                        break
                if decoder.done:
                    break
            fold.extend(decoder.close(reply.ended))
        except TierError as error:
            error.partial = fold.failed(error)
            error.body = redact(error.body, [self.config.api_key]) if error.body else None
            said = redact(error.message, [self.config.api_key])
            raise response_error(said, hidden(_native(decoder), self.config.api_key), of=error) from None
        step = fold.result()
        self._count(step)
        response = self._response(step, decoder, asked)
        yield ModelStreamEvent(
            kind="completed",
            response=response,
            raw=fold.finish.raw if fold.finish is not None else None,
            provider_event_type=decoder.event_type or None,
        )

    def _count(self, step: StepResult) -> None:
        if self.config.rate_limiter is not None and step.usage is not None:
            spent = (step.usage.prompt_tokens or 0) + (step.usage.output_tokens or 0)
            self.config.rate_limiter.record_usage(spent)

    def _response(self, step: StepResult, decoder: ResponsesDecoder, asked: _Asked) -> ModelResponse:
        """The reply, if it is one.

        Raises:
            ResponseError: it is no answer: cut for a reason of the provider's own, or waiting for its caller.
        """
        native = _native(decoder)
        if asked.notes:
            step = msgspec.structs.replace(step, notes=(*asked.notes, *step.notes))
        if decoder.waiting or step.finish == FinishReason.OTHER:
            kinds = ", ".join(dict.fromkeys(decoder.waiting))
            what = f"waits for its caller: nothing here answers {kinds}" if kinds else f"ended as {step.raw_reason!r}"
            failure = response_error(f"the response {what}", native)
            failure.partial, failure.usage = step, step.usage
            raise failure
        return self._shaped(step, native)

    def _shaped(self, step: StepResult, native: Any) -> ModelResponse:
        """The reply in its canonical shape, the native response beside it."""
        response = to_response(step, self.model)
        if isinstance(native, dict):
            if step.message is not None and not native.get("output"):
                # Some servers end a stream with a response that leaves its output out.
                native["output"] = loads(step.message.json)
            response.model_extra[_NATIVE] = native
            response.id = native["id"] if isinstance(native.get("id"), str) else response.id
            response.model = native["model"] if isinstance(native.get("model"), str) else response.model
        return response

    async def aclose(self) -> None:
        """Close the SDK's connections in the running loop."""
        await self._connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class ResponsesFactory(Factory[ModelResponse]):
    """Makes clients of the Responses API from one configuration."""

    client = ResponsesClient


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


def _shown(events: list[Event], frame: Frame, decoder: ResponsesDecoder) -> Iterable[ModelStreamEvent]:
    """What a frame shows: its text, arguments or reasoning, else that it came."""
    at, kind = decoder.item
    found = [shown for event in events if isinstance(event, _SHOWN) and (shown := to_model_event(event)) is not None]
    if not found:
        found = [ModelStreamEvent(kind="provider", raw=frame)]
    for shown in found if not decoder.done or found[0].kind != "provider" else ():
        shown.provider_event_type = decoder.event_type or None
        shown.item_index, shown.item_type = at, kind
        yield shown


def _native(decoder: ResponsesDecoder) -> Any:
    try:
        return loads(decoder.response) if decoder.response else None
    except (ValueError, RecursionError):
        return decoder.response.decode("utf-8", "replace")
