"""What tells one host of the Messages API from another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from isthmus.adapters.anthropic.families import FAMILIES
from isthmus.adapters.endpoint import Endpoint


@dataclass(frozen=True, kw_only=True)
class MessagesServer(Endpoint):
    """A host of this dialect.

    Args:
        version: the version of the API, as a header says it.
        body_version: the version as the body says it; there the path names the model, and the body doesn't.
        models_path: where it tells the limits of a model; "" where it doesn't.
    """

    path: str = "/v1/messages"
    header: str = "x-api-key"
    prefix: str = ""
    version: str = "2023-06-01"
    body_version: str = ""
    models_path: str = ""
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: FAMILIES)


ANTHROPIC = MessagesServer(
    provider="anthropic",
    base_url="https://api.anthropic.com",
    variable="ANTHROPIC_API_KEY",
    hosts=("api.anthropic.com",),
    models_path="/v1/models/{model}",
)
