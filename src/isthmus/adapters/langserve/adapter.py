"""The adapter of a LangServe endpoint, and the base of adapters for gateways that are like one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from isthmus.adapters.base import ToolCall
from isthmus.adapters.codec import Reply, Request, Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.adapters.langserve.calls import settle, shown
from isthmus.adapters.langserve.codec import LangServeCodec
from isthmus.adapters.langserve.decode import Parse
from isthmus.adapters.langserve.payload import Asked, Shape, marker
from isthmus.adapters.langserve.reply import read
from isthmus.errors import ConfigError, TierError
from isthmus.models.capabilities import within
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Event
from isthmus.models.fold import close
from isthmus.secret import Address, Secret
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.http import HttpTransport
from isthmus.transport.request import base_of
from isthmus.wire.frame import Frame

_UNPUBLISHED = frozenset({404, 405, 501})
# LangServe has no host of its own: the environment's key goes to a trusted address, or nowhere.
_HOST = "langserve.invalid"
_NOWHERE = f"http://{_HOST}"
_ROUTES = ("/invoke", "/stream_events", "/stream")
# The configurations whose server has no route for streams, until the process ends: all that tells one way of asking
# from another, without what may change from turn to turn (brief, ceiling, effort, keys).
_without_streams: set[tuple[Any, ...]] = set()


class _NotPublished(Exception):
    """The server has no route for streams."""


class LangServeAdapter(WireAdapter):
    """A LangChain runnable that LangServe publishes, or a gateway that looks like one.

    For a gateway with a shape of its own write `_build_payload(messages, tools)`, which returns the body of `/invoke`,
    or `_parse_output(output)`, which returns (text, [ToolCall, …], usage); each holds on every path. The brief, the
    output ceiling and the effort of the request are `self.system`, `self.max_tokens` and `self.effort` in them.

    Args:
        base_url: where the runnable is, with or without "/invoke"; needed unless a transport is given.
        model: the model's id, for limits and records; it is not sent.
        api_key: the key, if the gateway wants one; else `api_key_command`, else the environment's LANGSERVE_API_KEY,
            which goes only to a trusted `base_url`.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which the printed key is used again.
        base_url_trusted: whether the environment's key may go to `base_url`; true for one from the user's own
            configuration.
        system: the brief where a request has none.
        auth_header: the header that carries the key.
        auth_scheme: the word before the key; "" sends the bare key.
        input_messages_key: the member of `input` that holds the messages; "" where the input is the list of messages,
            as for a model that is published by itself.
        input_tools_key: the name of the tools.
        tools_in_config: whether they stand in `config.configurable` rather than in the input.
        max_tokens: output ceiling in tokens where a request has none; 0 sends nothing.
        max_tokens_key: its name.
        max_tokens_in: where it stands: "kwargs", "config" (`config.configurable`) or "input".
        effort: sent as it is where a request has none; "off", "none" and "" send nothing.
        effort_key: its name.
        effort_in: where it stands, like `max_tokens_in`.
        cache_markers: whether to mark system, last tool and last message for a prompt cache.
        cache_ttl: how long a marked prefix is kept, e.g. "1h"; "" leaves it to the provider.
        stream_events: whether to stream over `/stream_events`; else, and where that is not published, over `/invoke`.
        model_limits: limits by model, see `isthmus.adapters.base.capabilities_from_limits`.
        headers: further headers of every request; their values are hidden in records.
        timeout: seconds to wait for the first event and between two; 0 leaves both to the library (120 and 60).
        timeouts: each wait by itself, in seconds.
        transport: what carries the calls instead of HTTP.

    Raises:
        ConfigError: there is no base URL; a slot that there is not.
    """

    provider = "langserve"
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "audio"})

    def __init__(
        self,
        *,
        base_url: str | None = None,
        model: str = "",
        api_key: str | None = None,
        api_key_command: str | None = None,
        api_key_ttl_ms: int = 0,
        base_url_trusted: bool = False,
        system: str | None = "",
        auth_header: str = "Authorization",
        auth_scheme: str = "Bearer",
        input_messages_key: str = "messages",
        input_tools_key: str = "tools",
        tools_in_config: bool = False,
        max_tokens: int | None = 0,
        max_tokens_key: str = "max_tokens",
        max_tokens_in: str = "kwargs",
        effort: str | None = "",
        effort_key: str = "reasoning_effort",
        effort_in: str = "kwargs",
        cache_markers: bool = False,
        cache_ttl: str = "",
        stream_events: bool = True,
        model_limits: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 0.0,
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.model, self.system, self.stream_events = model, system or "", stream_events
        self.max_tokens, self.effort = int(max_tokens or 0), effort
        self.timeouts = timeouts or (Timeouts(first_content=timeout, idle=timeout) if timeout else None)
        self._model_limits = model_limits
        self._shape = Shape(
            messages_key=input_messages_key,
            tools_key=input_tools_key,
            tools_in_config=tools_in_config,
            max_tokens_key=max_tokens_key,
            max_tokens_in=max_tokens_in,
            effort_key=effort_key,
            effort_in=effort_in,
            cache_control=marker(cache_ttl) if cache_markers and self.capabilities().cache_markers else None,
        )
        self.base_url = Address(_runnable(base_url, needed=transport is None))
        further = {name.lower(): Secret(value) for name, value in sorted((headers or {}).items())}
        self.keys = KeySource(
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=int(api_key_ttl_ms),
            variable="LANGSERVE_API_KEY",
            env_hosts=(_HOST,),
            base_url=self.base_url,
            base_url_trusted=base_url_trusted,
            scheme=KeyScheme(header=auth_header.lower(), prefix=f"{auth_scheme} ".lstrip(), extra=further),
            required=False,
        )
        self.transport = transport or HttpTransport(timeouts=self.timeouts)
        self._configuration = (type(self), self.base_url, self._shape, hash(tuple(further.items())))

    def _build_payload(self, messages: Any, tools: Any) -> dict[str, Any]:
        """The body of `/invoke`: `{"input": …, "config": {}, "kwargs": {}}`.

        Args:
            messages: role dicts; the caller's to change.
            tools: {name, description, input_schema} each; the caller's to change.
        """
        caps = self.capabilities()
        effort = self.effort if caps.adaptive_thinking else None
        ceiling = within(self.max_tokens, caps, notes=messages.notes if isinstance(messages, Asked) else [])
        return self._shape.body(messages, tools, system=self.system, max_tokens=ceiling, effort=effort)

    def _parse_output(self, output: Any) -> tuple[str, list[ToolCall], dict[str, Any]]:
        """Text, calls and usage of an output, however it is wrapped.

        Args:
            output: what the runnable returned: a message, a dict, a text.
        """
        answer = read(output)
        return answer.text or "", shown(settle(answer, seed="", frame=Frame(b"")).calls), answer.usage

    @property
    def codec(self) -> LangServeCodec:  # type: ignore[override]
        """A codec that asks this adapter's hooks."""
        return LangServeCodec(self)

    def own_reading(self) -> Parse | None:
        """`_parse_output` where a subclass wrote one; the library's own reading says more than that form holds."""
        return None if type(self)._parse_output is LangServeAdapter._parse_output else self._parse_output

    @property
    def streams(self) -> bool:
        """Whether `/stream_events` is to be asked: switched on, and not known to be missing."""
        return self.stream_events and self._configuration not in _without_streams

    async def _batches(self, ctx: GenerateContext, *, stream: bool) -> AsyncGenerator[Sequence[Event], None]:
        """The reply's events; from `/invoke` where `/stream_events` turns out not to be published."""
        for _ in range(2):
            source = super()._batches(ctx, stream=stream)
            try:
                async for batch in source:
                    yield batch
                return
            except _NotPublished:
                _without_streams.add(self._configuration)
            finally:
                await close(source)

    async def _refused(self, reply: Reply, request: Request, *, last: bool) -> None:
        try:
            await super()._refused(reply, request, last=last)
        except TierError as error:
            if reply.status in _UNPUBLISHED:
                if request.call.stream:
                    raise _NotPublished from error
                # Nothing is published here, or not yet: that says nothing of one route.
                _without_streams.discard(self._configuration)
            raise


def _runnable(url: str | None, *, needed: bool) -> str:
    """The runnable's own address: without the name of a route, query and all."""
    url = (url or "").strip()
    if not url and needed:
        raise ConfigError("LangServe has no address of its own: say where the runnable is", key="llm.base_url")
    parts = urlsplit(base_of(url or _NOWHERE))
    path = parts.path.rstrip("/")
    route = next((route for route in _ROUTES if path.endswith(route)), "")
    return urlunsplit(parts._replace(path=path.removesuffix(route)))
