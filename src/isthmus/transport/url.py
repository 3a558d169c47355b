"""Where a call goes."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import SplitResult, urlsplit

from isthmus.errors import InvalidRequestError
from isthmus.secret import Address


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


def _usable(url: str) -> bool:
    with suppress(ValueError):
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    return False
