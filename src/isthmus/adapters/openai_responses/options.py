"""Which options of a call are the SDK's own, and which a run over a WebSocket takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from isthmus.adapters.openai_responses.sdk import load_sdk
from isthmus.errors import InvalidRequestError

# What a run over a WebSocket decides for itself, and what belongs to the connection instead of one request on it.
_OWNED = ("conversation", "context_management", "background", "stream", "stream_id", "previous_response_id")
_DIALLING = ("extra_headers", "extra_query")


def sdk_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that are the SDK's own and no part of a body."""
    return {
        name: options[name] for name in ("extra_headers", "extra_query", "extra_body", "timeout") if name in options
    }


def given_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options without those that say, in the SDK's own way, that they are not given."""
    openai = load_sdk()
    return {name: value for name, value in options.items() if not isinstance(value, openai.Omit | openai.NotGiven)}


def owned_option(options: Mapping[str, Any]) -> str | None:
    """The first option that a client over a WebSocket may not have, in the request's extra body too."""
    return _first(options, (*_OWNED, "timeout"))


def dialling_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those options that belong to the request that opens a connection."""
    return {name: options[name] for name in _DIALLING if options.get(name)}


def live_options(given: Mapping[str, Any], sdk: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the SDK's own options that a request on a connection that stands may have.

    Args:
        given: the options of one call.
        sdk: the SDK's own options of the call and of the client.

    Raises:
        InvalidRequestError: one was given that it may not have.
    """
    owned, dialling = _first(given, _OWNED), _first(given, (*_DIALLING, "timeout"))
    if owned is not None:
        raise InvalidRequestError(f"options.{owned}: a run over a WebSocket decides that for itself: leave it out")
    if dialling is not None:
        raise InvalidRequestError(f"options.{dialling}: belongs to the connection: give it to the client")
    return {name: value for name, value in sdk.items() if name == "extra_body"}


def _first(options: Mapping[str, Any], names: Iterable[str]) -> str | None:
    body = options.get("extra_body")
    held = {**body, **options} if isinstance(body, Mapping) else options
    return next((name for name in names if held.get(name) is not None), None)
