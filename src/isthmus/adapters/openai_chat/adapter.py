"""The adapter of Chat Completions: its codec over HTTP, with a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from isthmus.adapters.codec import Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_chat.server import OPENAI, ChatServer
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import DEFAULT_CEILING, Timeouts
from isthmus.transport.http import HttpTransport


class OpenAIChatAdapter(WireAdapter):
    """A model behind Chat Completions: the provider's own, or any server that speaks it.

    Args:
        model: the model's id, sent as it is.
        api_key: the key; without it `api_key_command`, then the server's environment variable is used.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which the printed key is used again.
        base_url: where to, instead of the server's own address; a server of one's own needs no key.
        base_url_trusted: whether the environment's key may go to `base_url` too; true for one from the user's own
            configuration.
        system: the brief where a request has none.
        max_tokens: output ceiling in tokens where a request has none; 0 means 8192.
        ceiling_key: what the ceiling is called, where that differs from the server's own.
        effort: reasoning effort where a request has none, e.g. "low"; "off" sends what the model needs to be off.
        temperature: sampling temperature where a request has none.
        model_limits: limits by model, see `isthmus.adapters.base.capabilities_from_limits`.
        headers: further headers of every request; their values are hidden in records.
        timeouts: how long to wait, in seconds.
        transport: what carries the calls instead of HTTP.
        server: which server's habits to follow.
    """

    codec: ChatCodec
    provider = "openai"
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
        ceiling_key: str | None = None,
        effort: str | None = None,
        temperature: float | None = None,
        model_limits: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
        server: ChatServer = OPENAI,
    ) -> None:
        self.provider = server.provider
        self.supports = server.supported(type(self).supports)
        self.model = model
        self.system = system
        self.max_tokens = max_tokens or DEFAULT_CEILING
        self.effort, self.temperature = effort, temperature
        self.timeouts = timeouts
        self._server = server
        self._model_limits = model_limits
        url = server.url(base_url)
        keys = server.keys(
            url,
            trusted=base_url_trusted,
            headers=headers,
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=api_key_ttl_ms,
        )
        codec = ChatCodec(model, server=replace(server, ceiling_key=ceiling_key or server.ceiling_key), base_url=url)
        self._wire(codec, transport or HttpTransport(timeouts=timeouts), keys, url)

    @classmethod
    def preset(cls, provider: str, row: Mapping[str, Any]) -> partial[OpenAIChatAdapter]:
        """The factory of adapters for another server of this dialect.

        Args:
            provider: the server's name.
            row: fields of `ChatServer`.

        Raises:
            ConfigError: the row has a field that means nothing here.
        """
        return partial(cls, server=ChatServer.of(provider, row))

    def capabilities(self) -> ModelCapabilities:
        """What the model can do: the table of limits, else what is known of its family."""
        return self._server.capabilities(self.model, self._model_limits)
