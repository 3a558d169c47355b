"""The adapter of the Responses API: its codec over HTTP, with a key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from isthmus.adapters.codec import Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.adapters.endpoint import Endpoint
from isthmus.adapters.openai_chat.server import OPENAI
from isthmus.adapters.openai_responses.codec import ResponsesCodec
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import DEFAULT_CEILING, Timeouts
from isthmus.transport.http import HttpTransport

# The same host, keys and models as in the older dialect.
_SERVER = Endpoint(
    provider="openai-responses",
    base_url=OPENAI.base_url,
    variable=OPENAI.variable,
    hosts=OPENAI.hosts,
    models=OPENAI.models,
)


class OpenAIResponsesAdapter(WireAdapter):
    """A model behind the Responses API: the provider's own, or any server that speaks it.

    Args:
        model: the model's id, sent as it is.
        api_key: the key; without it `api_key_command`, then the environment's OPENAI_API_KEY is used.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which the printed key is used again.
        base_url: where to, instead of the provider's own address; "/responses" is appended. A server of one's own
            needs no key.
        base_url_trusted: whether the environment's key may go to `base_url` too; true for one from the user's own
            configuration.
        system: the brief where a request has none.
        max_tokens: output ceiling in tokens where a request has none; 0 means 8192.
        effort: reasoning effort where a request has none, e.g. "low"; "off" sends what the model needs to be off.
        temperature: sampling temperature where a request has none.
        model_limits: limits by model, see `isthmus.adapters.base.capabilities_from_limits`.
        headers: further headers of every request; their values are hidden in records.
        timeouts: how long to wait, in seconds.
        transport: what carries the calls instead of HTTP.
    """

    provider = "openai-responses"
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "output-schema"})
    codec: ResponsesCodec

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
        headers: Mapping[str, str] | None = None,
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.model = model
        self.system = system
        self.max_tokens = max_tokens or DEFAULT_CEILING
        self.effort, self.temperature = effort, temperature
        self.timeouts = timeouts
        self._model_limits = model_limits
        url = _SERVER.url(base_url)
        keys = _SERVER.keys(
            url,
            trusted=base_url_trusted,
            headers=headers,
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=api_key_ttl_ms,
        )
        self._wire(ResponsesCodec(model), transport or HttpTransport(timeouts=timeouts), keys, url)

    def capabilities(self) -> ModelCapabilities:
        """What the model can do: the table of limits, else what is known of its family."""
        return _SERVER.capabilities(self.model, self._model_limits)
