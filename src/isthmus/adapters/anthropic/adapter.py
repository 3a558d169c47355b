"""The adapter of Anthropic's own endpoint, and of servers that speak its dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.anthropic.encode import MAX_TOKENS, Defaults
from isthmus.adapters.anthropic.families import FAMILIES
from isthmus.adapters.base import ModelCapabilities, capabilities_from_limits
from isthmus.adapters.codec import Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.models.contract import Timeouts
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.http import HttpTransport

BASE_URL = "https://api.anthropic.com"
HOSTS = ("api.anthropic.com",)


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
        headers: further headers of every request, without secrets.
        betas: beta features to ask for.
        timeouts: how long to wait, in seconds.
        transport: what carries the calls; HTTP if None.
    """

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
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
    ) -> None:
        url = base_url or BASE_URL
        self.model = model
        self.system = system or ""
        self.max_tokens = int(max_tokens or MAX_TOKENS)
        self.effort = effort
        self.timeouts = timeouts
        self._model_limits = dict(model_limits or {})
        defaults = Defaults(
            max_tokens=self.max_tokens, effort=effort, system=self.system, capabilities=self.capabilities()
        )
        keys = KeySource(
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=int(api_key_ttl_ms),
            variable="ANTHROPIC_API_KEY",
            env_hosts=HOSTS,
            base_url=url,
            base_url_trusted=base_url_trusted,
            scheme=KeyScheme(header="x-api-key", prefix="", extra=dict(headers or {})),
            required=urlsplit(url).hostname in HOSTS,
        )
        codec = MessagesCodec(model, defaults, betas=betas)
        self._wire(codec, transport or HttpTransport(timeouts=timeouts), keys, url)

    def capabilities(self) -> ModelCapabilities:
        """What the model can do: the table of limits, else what is known of its family."""
        return capabilities_from_limits(
            self.model, self._model_limits, base=capabilities_from_limits(self.model, FAMILIES)
        )
