"""The adapter of Anthropic's own endpoint, and of servers that speak its dialect."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from typing import Any
from urllib.parse import quote

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.anthropic.encode import Target
from isthmus.adapters.anthropic.markers import check_ttl
from isthmus.adapters.anthropic.modelsapi import ModelLookup
from isthmus.adapters.anthropic.server import ANTHROPIC, MessagesServer
from isthmus.adapters.base import ModelCapabilities
from isthmus.adapters.codec import Request, Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.models.batches import BatchSource
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext, Timeouts
from isthmus.models.events import Event
from isthmus.transport.http import HttpTransport
from isthmus.wire.call import WireCall


class AnthropicAdapter(WireAdapter):
    """A model behind the Messages API.

    Args:
        model: the model's id.
        api_key: the key; else `api_key_command`, else the environment's ANTHROPIC_API_KEY, which goes only to
            Anthropic's own host or to a trusted `base_url`.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which a printed key is used again.
        base_url: the endpoint, without `/v1/messages`; a server of one's own needs no key.
        base_url_trusted: whether the environment's key may go to `base_url` too; true for one from the user's own
            configuration.
        system: the instructions where a context has none.
        max_tokens: ceiling of a reply, in tokens; falsy means 8192.
        effort: "off", "low", "medium", "high", "xhigh" or "max", where a context names none.
        model_limits: part of a model id → fields of `ModelCapabilities`; goes before what is known of its family.
        headers: further headers of every request; their values are hidden in records.
        betas: beta features to ask for.
        cache_markers: whether to mark the last tool, the system text and the last block as what the provider should
            keep of the prompt; tools are then sent by name.
        cache_ttl: how long that is kept: "5m", "1h", or "" for the provider's own.
        timeouts: how long to wait, in seconds.
        transport: what carries the calls; HTTP if None.
        server: which host's habits to follow.
    """

    codec: MessagesCodec
    provider = "anthropic"
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "output-schema"})

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None = None,
        api_key_command: str | None = None,
        api_key_ttl_ms: int = 0,
        base_url: str | None = None,
        base_url_trusted: bool = False,
        system: str | None = None,
        max_tokens: int | None = None,
        effort: str | None = "off",
        model_limits: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        betas: Sequence[str] = (),
        cache_markers: bool = True,
        cache_ttl: str = "",
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
        server: MessagesServer = ANTHROPIC,
    ) -> None:
        url = server.url(base_url)
        self.provider = server.provider
        self.supports = server.supported(type(self).supports)
        self.model = model
        self.system = system or ""
        self.max_tokens = int(max_tokens or DEFAULT_CEILING)
        self.effort = effort
        self.timeouts = timeouts
        self._model_limits = dict(model_limits or {})
        self._server = server
        target = Target(model=model, cache_markers=cache_markers, cache_ttl=check_ttl(cache_ttl))
        keys = server.keys(
            url,
            trusted=base_url_trusted,
            headers=headers,
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=int(api_key_ttl_ms),
        )
        codec = MessagesCodec(model, target, betas=betas, server=server, base_url=url)
        self._wire(codec, transport or HttpTransport(timeouts=timeouts), keys, url)
        self._lookup: ModelLookup | None = None
        if transport is None and server.models_path and (base_url_trusted or server.is_home(url)):
            self._lookup = self._looks_up(server)

    @classmethod
    def preset(cls, provider: str, row: Mapping[str, Any]) -> partial[AnthropicAdapter]:
        """The factory of adapters for another host of this dialect.

        Args:
            provider: the host's name.
            row: fields of `MessagesServer`.

        Raises:
            ConfigError: the row has a field that means nothing here.
        """
        return partial(cls, server=MessagesServer.of(provider, row))

    def capabilities(self) -> ModelCapabilities:
        """What the model can do: the table of limits, else what its host told, else what is known of its family."""
        told = {} if self._lookup is None else {self.model: self._lookup.found}
        return self._server.capabilities(self.model, self._model_limits, told)

    def _looks_up(self, server: MessagesServer) -> ModelLookup:
        path = server.models_path.replace("{model}", quote(self.model, safe="@:"))
        url = self._url(Request(WireCall(path=path)))
        version = {"anthropic-version": server.version}
        return ModelLookup(url, version, transport=self.transport, keys=self.keys)

    def _batches(self, ctx: GenerateContext, *, stream: bool) -> BatchSource:
        batches = super()._batches(ctx, stream=stream)
        lookup = self._lookup
        return batches if lookup is None or not lookup.due else _beside(lookup, batches)


async def _beside(lookup: ModelLookup, batches: BatchSource) -> AsyncGenerator[Sequence[Event], None]:
    """The same, while the model's limits are asked for."""
    async with lookup.beside() if lookup.due else nullcontext(), aclosing(batches):
        async for batch in batches:
            yield batch
