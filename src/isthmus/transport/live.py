"""Who wants to know of a connection before it is made: how tests forbid live calls."""

from __future__ import annotations

from collections.abc import Callable

from isthmus.transport.request import parts_of

watchers: list[Callable[[str], None]] = []
"""Called with the host of each call that is about to be made; what they raise stops it."""


def announce(url: str) -> None:
    """Tell the watchers where a call is about to go."""
    if watchers:
        host = parts_of(url).hostname or ""
        for watcher in watchers:
            watcher(host)
