"""The adapter of Chat Completions: its codec over HTTP, with a key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from isthmus.adapters.codec import Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_chat.encode import DEFAULT_CEILING
from isthmus.models.contract import Timeouts
from isthmus.secret import Secret
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.http import HttpTransport


@dataclass(frozen=True, kw_only=True)
class ChatServer:
    """What tells one server of this dialect from another: a row of data.

    Args:
        provider: the name that adapters and telemetry show.
        base_url: where it is; "/chat/completions" is appended.
        variable: the environment variable that holds its key, "" for none.
        hosts: the hosts that the variable's key may go to.
        key_required: whether a request without a key is an error.
        scheme: how the key is sent.
        ceiling_key: what it calls the output ceiling: "max_completion_tokens" or "max_tokens".
        stream_usage: whether it takes `stream_options`.
    """

    provider: str
    base_url: str
    variable: str = ""
    hosts: tuple[str, ...] = ()
    key_required: bool = True
    scheme: KeyScheme = field(default_factory=KeyScheme)
    ceiling_key: str = "max_tokens"
    stream_usage: bool = True


OPENAI = ChatServer(
    provider="openai",
    base_url="https://api.openai.com/v1",
    variable="OPENAI_API_KEY",
    hosts=("api.openai.com",),
    ceiling_key="max_completion_tokens",
)


class OpenAIChatAdapter(WireAdapter):
    """A model behind Chat Completions: the provider's own, or any server that speaks it.

    Args:
        model: the model's id, sent as it is.
        api_key: the key; without it `api_key_command`, then the server's environment variable is used.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which the printed key is used again.
        base_url: where to, instead of the server's own address; the variable's key doesn't go there.
        system: the brief where a request has none.
        max_tokens: output ceiling in tokens where a request has none; 0 means 8192.
        ceiling_key: what the ceiling is called, where that differs from the server's own.
        effort: reasoning effort where a request has none, e.g. "low"; "" or "off" sends nothing.
        temperature: sampling temperature where a request has none.
        model_limits: limits by model, see `isthmus.adapters.base.capabilities_from_limits`.
        headers: further headers of every request; their values are hidden in records.
        timeouts: how long to wait, in seconds.
        transport: what carries the calls instead of HTTP.
        server: which server's habits to follow.
    """

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
        self.model = model
        self.system = system
        self.max_tokens = max_tokens or DEFAULT_CEILING
        self.effort = effort
        self.timeouts = timeouts
        self._model_limits = model_limits
        url = base_url or server.base_url
        further = {name.lower(): Secret(value) for name, value in (headers or {}).items()}
        keys = KeySource(
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=api_key_ttl_ms,
            variable=server.variable,
            env_hosts=server.hosts,
            base_url=url,
            scheme=replace(server.scheme, extra={**server.scheme.extra, **further}),
            required=server.key_required,
        )
        codec = ChatCodec(
            model,
            max_tokens=self.max_tokens,
            ceiling_key=ceiling_key or server.ceiling_key,
            system=system,
            effort=effort,
            temperature=temperature,
            stream_usage=server.stream_usage,
        )
        self._wire(codec, transport or HttpTransport(timeouts=timeouts), keys, url)
