"""A guard for tests: no connection leaves this machine."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

from isthmus.errors import LiveCallError
from isthmus.transport import live

_LOCAL = frozenset({"", "localhost", "ip6-localhost"})
_INTERNET = frozenset({socket.AF_INET, socket.AF_INET6})


@contextmanager
def forbid_live_calls() -> Iterator[list[str]]:
    """Make every connection to another machine an error that names it, as a block or a fixture.

    It stands at the system's sockets, as Python code opens them, and at this library's own transport, which also sees
    what goes through a proxy or another event loop. A chain would take the error for one tier's failure and go on with
    the next, so leaving the block raises it again where it did not come out; clear the list to let it pass.

    Yields:
        The hosts that something tried to reach.

    Raises:
        LiveCallError: something tried to.
    """
    tried: list[str] = []

    def check(host: str) -> None:
        if not _is_local(host):
            tried.append(host)
            raise LiveCallError(host)

    kept = {name: vars(socket.socket).get(name) for name in ("connect", "connect_ex", "sendto")}
    look_up = socket.getaddrinfo
    for name in kept:
        setattr(socket.socket, name, _guarded(getattr(socket.socket, name), check))
    socket.getaddrinfo = _looked_up(look_up, check)
    live.watchers.append(check)
    try:
        yield tried
    finally:
        live.watchers.remove(check)
        socket.getaddrinfo = look_up
        for name, own in kept.items():
            if own is None:
                delattr(socket.socket, name)
            else:
                setattr(socket.socket, name, own)
    if tried:
        raise LiveCallError(", ".join(dict.fromkeys(tried)))


def _is_local(host: str) -> bool:
    bare = host.rstrip(".").lower()
    if bare in _LOCAL or bare.endswith(".localhost") or bare == socket.gethostname().lower():
        return True
    try:
        address = ip_address(bare.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None) or address
    return bool(mapped.is_loopback or mapped.is_unspecified)


def _guarded(method: Callable[..., Any], check: Callable[[str], None]) -> Callable[..., Any]:
    def guarded(self: socket.socket, *args: Any) -> Any:
        address = args[-1] if args else None
        if self.family in _INTERNET and isinstance(address, tuple):
            check(str(address[0]))
        return method(self, *args)

    return guarded


def _looked_up(method: Callable[..., Any], check: Callable[[str], None]) -> Callable[..., Any]:
    def looked_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        check(host.decode("ascii", "replace") if isinstance(host, bytes) else str(host or ""))
        return method(host, *args, **kwargs)

    return looked_up
