"""The adapter of models behind Amazon Bedrock."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.adapters.anthropic.encode import Target
from isthmus.adapters.anthropic.families import FAMILIES
from isthmus.adapters.anthropic.markers import check_ttl
from isthmus.adapters.base import ModelCapabilities, capabilities_from_limits
from isthmus.adapters.bedrock.codec import ConverseCodec, InvokeCodec
from isthmus.adapters.bedrock.keys import VARIABLE, AwsIdentity, AwsKeys
from isthmus.adapters.bedrock.names import HOSTS, MESSAGES_VENDOR, domain_of, region_of, vendor_of
from isthmus.adapters.codec import Transport
from isthmus.adapters.drive import WireAdapter
from isthmus.errors import ConfigError
from isthmus.models.contract import DEFAULT_CEILING, Timeouts
from isthmus.secret import Secret
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.http import HttpTransport
from isthmus.transport.request import base_of

APIS = ("converse", "invoke")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_REGION = re.compile(r"[a-z0-9-]+")
# A recording needs no region: nothing is sent anywhere.
_NOWHERE = "us-east-1"


class BedrockAdapter(WireAdapter):
    """A model behind Amazon Bedrock: Anthropic's by InvokeModel in their own dialect, all others by Converse.

    Args:
        model: a model's id, with or without a prefix of regions ("us.", "eu.", "global."), or the ARN of an inference
            profile, a provisioned or an imported model.
        api: "converse" or "invoke", instead of what the id says; an ARN that does not say goes by Converse.
        api_key: a Bedrock API key; else `api_key_command`, else AWS_BEARER_TOKEN_BEDROCK, else AWS credentials.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which a printed key is used again.
        aws_region: the region; else the ARN's, AWS_REGION, AWS_DEFAULT_REGION, the profile's.
        aws_profile: a profile of AWS's configuration files.
        aws_access_key_id: an access key, with its secret.
        aws_secret_access_key: its secret.
        aws_session_token: of temporary credentials.
        base_url: the endpoint, instead of the region's own; a server of one's own needs no credentials.
        base_url_trusted: whether credentials that were not given here may be used for `base_url` too.
        system: the instructions where a context has none.
        max_tokens: ceiling of a reply, in tokens; falsy means 8192.
        effort: "off", "low", "medium", "high", "xhigh" or "max", where a context names none.
        model_limits: part of a model id → fields of `ModelCapabilities`; goes before what is known of its family.
        headers: further headers of every request; their values are hidden in records.
        betas: beta features to ask Anthropic's models for.
        cache_markers: whether to mark what should be kept of the prompt, for Anthropic's models.
        cache_ttl: how long it is kept: "5m", "1h", or "" for the provider's own.
        timeouts: how long to wait, in seconds.
        transport: what carries the calls; HTTP if None.

    Raises:
        ConfigError: `api` is neither of the two; no region is known; a key without its secret.
    """

    codec: InvokeCodec | ConverseCodec
    provider = "bedrock"
    supports = frozenset({"tools", "parallel-tools", "images", "documents", "output-schema"})

    def __init__(
        self,
        *,
        model: str,
        api: str | None = None,
        api_key: str | None = None,
        api_key_command: str | None = None,
        api_key_ttl_ms: int = 0,
        aws_region: str | None = None,
        aws_profile: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
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
    ) -> None:
        self.model = model
        self.system = system or ""
        self.max_tokens = int(max_tokens or DEFAULT_CEILING)
        self.effort, self.timeouts = effort, timeouts
        self._model_limits = dict(model_limits or {})
        identity = _identity(
            aws_region or region_of(model),
            aws_profile,
            key_id=aws_access_key_id,
            secret=aws_secret_access_key,
            token=aws_session_token,
        )
        url = _address(base_url) or _endpoint(identity, needed=transport is None)
        bearer = _bearer(
            url,
            base_url_trusted,
            headers=headers,
            api_key=api_key,
            api_key_command=api_key_command,
            api_key_ttl_ms=int(api_key_ttl_ms),
        )
        keys = AwsKeys(bearer=bearer, identity=identity, base_url_trusted=base_url_trusted)
        target = Target(model=model, cache_markers=cache_markers, cache_ttl=check_ttl(cache_ttl))
        invoked = _by_invoke(api, model)
        codec = InvokeCodec(model, target, betas=betas) if invoked else ConverseCodec(model, target)
        self._wire(codec, transport or HttpTransport(timeouts=timeouts), keys, url)

    def capabilities(self) -> ModelCapabilities:
        """What the model can do: the table of limits, else what is known of its family."""
        return capabilities_from_limits(
            self.model, self._model_limits, base=capabilities_from_limits(self.model, FAMILIES)
        )


def _by_invoke(api: str | None, model: str) -> bool:
    """Whether the model is called by InvokeModel.

    Raises:
        ConfigError: `api` names no way of calling one.
    """
    if api not in (None, *APIS):
        raise ConfigError(f"must be one of {', '.join(APIS)}, not {api!r}", key="llm.api")
    return (api or ("invoke" if vendor_of(model) == MESSAGES_VENDOR else "converse")) == "invoke"


def _bearer(base_url: str, trusted: bool, *, headers: Mapping[str, str] | None, **given: Any) -> KeySource:
    """Where an API key comes from; no key at all leaves it to AWS credentials."""
    return KeySource(
        **given,
        variable=VARIABLE,
        env_hosts=HOSTS,
        base_url=base_url,
        base_url_trusted=trusted,
        scheme=KeyScheme(extra={name.lower(): Secret(value) for name, value in (headers or {}).items()}),
        required=False,
    )


def _identity(
    region: str | None, profile: str | None, *, key_id: str | None, secret: str | None, token: str | None
) -> AwsIdentity:
    """Who asks, and where.

    Raises:
        ConfigError: half of a pair of keys is missing.
    """
    if bool(key_id) != bool(secret):
        raise ConfigError("aws_access_key_id and aws_secret_access_key go together", key="llm.aws_access_key_id")
    return AwsIdentity(
        region=region or next(filter(None, map(os.environ.get, _REGIONS)), None),
        access_key_id=key_id,
        secret_access_key=Secret(secret) if secret else None,
        session_token=Secret(token) if token else None,
        profile=profile,
    )


def _address(given: str | None) -> str:
    return base_of(given) if given and given.strip() else ""


def _endpoint(identity: AwsIdentity, *, needed: bool) -> str:
    """The address of the region.

    Raises:
        ConfigError: no region is known.
    """
    region = identity.region or (_configured_region(identity.profile) if needed else _NOWHERE)
    if not region:
        raise ConfigError("no region: set it, or AWS_REGION, or one in the AWS profile", key="llm.aws_region")
    url = f"https://bedrock-runtime.{region}.{domain_of(region)}"
    if not _REGION.fullmatch(region):
        raise ConfigError(f"is no region: {region!r}", key="llm.aws_region")
    return url


def _configured_region(profile: str | None) -> str | None:
    """The region that AWS's configuration files name; None where there is none, or nobody to read them."""
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError:
        return None
    try:
        found: str | None = Session(profile=profile).get_config_variable("region")
    except BotoCoreError as error:
        raise ConfigError(f"the AWS profile cannot be read: {error}", key="llm.aws_profile") from None
    return found
