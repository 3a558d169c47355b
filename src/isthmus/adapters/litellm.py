"""The adapter of LiteLLM: its library makes the call, our codec of Chat Completions says and reads it.

The library is imported at the first call, as that takes seconds, with its own table of prices, as it would fetch one.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from functools import cache
from importlib.util import find_spec
from typing import Any

from isthmus.adapters.adjust import with_own
from isthmus.adapters.base import ModelAdapter, ModelCapabilities, capabilities_from_limits
from isthmus.adapters.classify import Failure
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_chat.server import ChatServer
from isthmus.errors import InvalidRequestError, MissingDependencyError, TierError, TransientError
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext, Timeouts
from isthmus.models.events import Event, Finish, Note, NoteCode, StepResult, framed
from isthmus.models.fold import Fold, folded
from isthmus.models.neutral import NATIVE_INPUT
from isthmus.observability import hooks
from isthmus.secret import HIDDEN, Secret, names_secret, redact
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.request import base_of
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

_SERVER = ChatServer(provider="litellm", effort_off={"reasoning_effort": "none"})
_SCHEME = KeyScheme(header="key", prefix="")
# Sent in place of a key, so that the library sends none from the environment to an address that is not its own.
_NO_KEY = "no-key"
# Anything shorter may be a word.
_SHORTEST = 8
_FORCED: Mapping[str, Any] = {"drop_params": True, "num_retries": 0, "max_retries": 0}
# The library's exceptions that say more than their status; LiteLLM 1.110, 2026-11.
_CODES = {
    "ContextWindowExceededError": "context_length_exceeded",
    "ContentPolicyViolationError": "content_policy_violation",
    "Timeout": "timeout_error",
}
_UNREACHED = frozenset({"ConnectError", "ConnectionRefusedError", "ClientConnectorError"})
# What the library drops in silence where a model lacks it.
_DROPPABLE = (
    *("temperature", "top_p", "stop", "seed", "max_tokens", "reasoning_effort"),
    *("tools", "tool_choice", "parallel_tool_calls", "response_format"),
)


class LiteLLMAdapter(ModelAdapter):
    """A model that the LiteLLM library reaches.

    Args:
        model: the model as the library names it, e.g. "groq/llama-3.3-70b-versatile".
        api_key: the key; else `api_key_command`, else the library looks for the provider's own variable.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which the printed key is used again.
        base_url: the endpoint, instead of the provider's own; without a key of its own it gets none from the
            environment.
        base_url_trusted: whether the environment's key may go to `base_url` too.
        system: the brief where a request has none.
        max_tokens: output ceiling in tokens where a request has none; 0 means 8192.
        effort: reasoning effort where a request has none; never together with a temperature.
        temperature: sampling temperature where a request has none.
        model_limits: limits by model, see `isthmus.adapters.base.capabilities_from_limits`.
        timeouts: how long to wait, in seconds.

    Raises:
        MissingDependencyError: the extra `litellm` is not installed.
    """

    provider = "litellm"
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "audio", "output-schema"})

    def __init__(
        self,
        model: str,
        *,
        api_key: str | None = None,
        api_key_command: str | None = None,
        api_key_ttl_ms: int = 0,
        base_url: str | None = None,
        base_url_trusted: bool = False,
        system: str = "",
        max_tokens: int | None = None,
        effort: str | None = None,
        temperature: float | None = None,
        model_limits: Mapping[str, Any] | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        if find_spec("litellm") is None:
            raise MissingDependencyError("provider 'litellm'", "litellm", extra="litellm")
        self.model = model
        self.system = system
        self.max_tokens = max_tokens or DEFAULT_CEILING
        self.effort, self.temperature = effort, temperature
        self.timeouts = timeouts
        self._model_limits = model_limits
        self._base_url = base_of(base_url) if base_url and base_url.strip() else None
        self._placeholder = _NO_KEY if self._base_url and not base_url_trusted else None
        self.keys = KeySource(
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=api_key_ttl_ms,
            scheme=_SCHEME,
            required=False,
        )
        self.codec = ChatCodec(model, server=_SERVER)

    def capabilities(self) -> ModelCapabilities:
        """What the model can do, by the table of limits alone."""
        return capabilities_from_limits(self.model, self._model_limits)

    async def stream(self, ctx: GenerateContext) -> AsyncGenerator[Event, None]:
        """The reply's events as they arrive.

        Raises:
            InvalidRequestError: the history holds another provider's native items, or effort meets a temperature.
            TierError: the call failed.
        """
        library = await _imported()
        wanted, notes = self._request(ctx, library, stream=True)
        decoder = self.codec.decoder(whole=False)
        async with aclosing(await self._call(library, wanted)) as chunks:
            async for chunk in self._chunks(chunks):
                for event in decoder.feed(Frame(_json(chunk))):
                    yield event
            if getattr(chunks, "received_finish_reason", True) is None:
                # The library makes up a reason where none came.
                raise TransientError("the stream ended without a finish reason")
        for event in self._end(decoder.close(Ended.FRAMED), notes):
            yield event

    async def generate(self, ctx: GenerateContext) -> StepResult:
        """The reply whole, in one round trip.

        Raises:
            InvalidRequestError: as `stream` raises it.
            TierError: the call failed.
        """
        return await folded(self._whole, ctx)

    async def _whole(self, fold: Fold, ctx: GenerateContext) -> None:
        library = await _imported()
        wanted, notes = self._request(ctx, library, stream=False)
        decoder = self.codec.decoder(whole=True)
        reply = await self._call(library, wanted)
        fold.extend(decoder.feed(Frame(_json(reply))))
        fold.extend(self._end(decoder.close(Ended.FRAMED), notes))

    def _request(self, ctx: GenerateContext, library: Any, *, stream: bool) -> tuple[dict[str, Any], list[Note]]:
        """The arguments of the library's call, and what was changed."""
        for at, message in enumerate(ctx.messages):
            if NATIVE_INPUT in message:
                error = InvalidRequestError(
                    f"messages[{at}] has {NATIVE_INPUT}, which this adapter cannot send: "
                    "convert the history with isthmus.models.to_neutral first"
                )
                error.for_this_tier = True
                raise error
        request = self.codec.encode(with_own(self, ctx), stream=stream, capabilities=self.capabilities())
        wanted: dict[str, Any] = json.loads(request.call.body)
        notes = list(request.notes)
        if "temperature" in wanted and "reasoning_effort" in wanted:
            raise InvalidRequestError("temperature and effort were both set: LiteLLM's providers take one of them")
        notes += [
            Note(NoteCode.PARAMETER_CHANGED, f"options.{name} became {value!r}")
            for name, value in _FORCED.items()
            if wanted.get(name, value) != value
        ]
        wanted.update(_FORCED)
        notes += self._left_out(ctx, library, wanted=wanted)
        if self._base_url:
            wanted.setdefault("api_base", self._base_url)
        return wanted, notes

    def _left_out(self, ctx: GenerateContext, library: Any, *, wanted: Mapping[str, Any]) -> Iterator[Note]:
        """What the library will drop because the model lacks it."""
        for name in _DROPPABLE:
            if name not in wanted or self._takes(library, name, wanted[name]):
                continue
            detail = f"{name}: dropped by LiteLLM, as {self.model} takes none like it"
            if ctx.on_unsupported == "error":
                raise InvalidRequestError(f"{detail} (on_unsupported is 'error')")
            yield Note(NoteCode.PARAMETER_DROPPED, detail)

    def _takes(self, library: Any, name: str, value: Any) -> bool:
        """Whether the library would send a parameter; its list of names says less than its own check of a value."""
        try:
            model, provider, *_ = library.get_llm_provider(self.model)
            library.get_optional_params(model=model, custom_llm_provider=provider, drop_params=False, **{name: value})
        except library.UnsupportedParamsError:
            return False
        except Exception:
            # What the call itself makes of it will be said there.
            return True
        return True

    async def _call(self, library: Any, wanted: dict[str, Any]) -> Any:
        """The library's answer; asked once more with a new key where the first was refused and there can be another."""
        for last in (False, True):
            headers = await self.keys.headers(refresh=last)
            key = headers.get("key") or self._placeholder
            arguments = {**wanted, "api_key": key} if key else wanted
            if hooks.listening():
                hooks.emit(hooks.WireSent(method="CALL", url="litellm:acompletion", headers={}, body=_shown(arguments)))
            try:
                return await library.acompletion(**arguments)
            except Exception as error:
                failure = self._failure(error)
            if last or failure.status != 401 or not self.keys.refreshable:
                break
        raise failure

    async def _chunks(self, chunks: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """The chunks; what the library raises between them as the class that it belongs to."""
        while True:
            try:
                chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except Exception as error:
                failure = self._failure(error, in_stream=True)
            else:
                yield chunk
                continue
            raise failure

    def _failure(self, error: Exception, *, in_stream: bool = False) -> TierError:
        """The one class of an exception of the library, without keys; what led to it may hold them and is left out.

        Args:
            error: what the library raised.
            in_stream: the reply had begun, so that a status is one that the library made up: the server's own error
                object says more.
        """
        told = next(
            (held for cause in _causes(error) if isinstance(held := getattr(cause, "body", None), Mapping)), None
        )
        own = Failure("") if told is None else Failure.parse(told)
        status = getattr(error, "status_code", None) if told is None or not in_stream else own.status
        if status == 500 and any(type(cause).__name__ in _UNREACHED for cause in _causes(error)):
            status = 503
        named = next((_CODES[name] for cause in _causes(error) if (name := type(cause).__name__) in _CODES), None)
        code = named or own.code or getattr(error, "code", None)
        held = getattr(getattr(error, "response", None), "headers", None)
        headers = {str(name).lower(): str(value) for name, value in dict(held or {}).items()}
        said = redact(str(error) or type(error).__name__, (*self.keys.secrets(), *_of_the_environment()))
        return Failure(said, str(code) if code else None, own.kind or type(error).__name__).classified(
            status=int(f"{status}") if f"{status}".isdigit() else None, headers=headers
        )

    def _end(self, events: Any, notes: list[Note]) -> Iterator[Event]:
        """The last events, the notes of the request in front of the reply's own."""
        for event in events:
            if isinstance(event, Finish):
                kept = [note for note in event.notes if note.code != NoteCode.NO_END_MARK]
                all_notes = (*notes, *kept)
                made = Finish(event.finish, event.usage, event.raw_reason, event.error, event.native, all_notes)
                yield framed(made, event.raw)
            else:
                yield event


async def _imported() -> Any:
    """The library; its import takes seconds, which the loop does not wait for."""
    return _library() if _library.cache_info().currsize else await asyncio.to_thread(_library)


@cache
def _library() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    litellm.suppress_debug_info = True
    return litellm


def _json(reply: Any) -> bytes:
    """A chunk or a reply of the library as the JSON of the dialect, with what it says of the cost as one number."""
    held: dict[str, Any] = reply.model_dump(mode="json", exclude_none=True)
    usage = held.get("usage")
    if isinstance(usage, dict):
        cost = _number((getattr(reply, "_hidden_params", None) or {}).get("response_cost"), usage.get("cost"))
        usage.pop("cost", None)
        if cost is not None:
            usage["cost"] = cost
    return json.dumps(held).encode()


def _number(*values: Any) -> float | None:
    """The first cost that is a number, or an object with one in all."""
    for value in values:
        found = value.get("total_cost") if isinstance(value, Mapping) else value
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
    return None


def _of_the_environment() -> Iterator[str]:
    """The keys that the library may have taken from the environment, which servers repeat in their errors."""
    return (value for name, value in os.environ.items() if names_secret(name) and len(value) >= _SHORTEST)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        yield at
        seen.add(id(at))
        at = getattr(at, "original_exception", None) or at.__cause__ or at.__context__


def _shown(arguments: Mapping[str, Any]) -> bytes:
    """The arguments as a log may have them."""
    return json.dumps(_hidden(arguments)).encode()


def _hidden(value: Any, name: str = "") -> Any:
    if isinstance(value, Secret) or (isinstance(value, str) and names_secret(name)):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _hidden(item, str(key)) for key, item in value.items()}
    return [_hidden(item) for item in value] if isinstance(value, list) else value
