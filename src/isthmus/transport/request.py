"""What a request is made of: where it goes and what its head says."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from urllib.parse import SplitResult, urlsplit

from isthmus.errors import ConfigError, InvalidRequestError
from isthmus.secret import Address
from isthmus.wire.call import WireCall

_ACCEPT = {"sse": "text/event-stream", "ndjson": "application/x-ndjson"}


def parts_of(url: str) -> SplitResult:
    """The parts of a URL that can be called.

    Raises:
        InvalidRequestError: it cannot be.
    """
    if not _usable(url):
        raise InvalidRequestError(
            f"{Address(url)!r} cannot be called: base_url must be http:// or https://, a host, and a path"
        )
    return urlsplit(url)


def base_of(url: str) -> str:
    """A base URL as it was configured, without the white space around it.

    Raises:
        ConfigError: nothing can be called there.
    """
    url = url.strip()
    if not _usable(url):
        must = "it must be http:// or https://, a host, and a path without white space"
        raise ConfigError(f"{Address(url)!r} cannot be called: {must}", key="base_url")
    return url


def _usable(url: str) -> bool:
    if not url.isprintable() or " " in url:
        return False
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    return False


def merged_headers(call: WireCall, headers: Mapping[str, str]) -> dict[str, str]:
    """All headers of a request, by names in lower case: the caller's over the call's over the usual ones."""
    merged = {"accept": _ACCEPT.get(call.framing, "*/*") if call.stream else "application/json"}
    if call.body:
        merged["content-type"] = "application/json"
    for name, value in call.headers.items():
        merged[name.lower()] = value
    for name, value in headers.items():
        merged[name.lower()] = value
    return merged


def own_version() -> str:
    """The version of this library, "source" where it is not installed."""
    try:
        return version("isthmus")
    except PackageNotFoundError:
        return "source"
