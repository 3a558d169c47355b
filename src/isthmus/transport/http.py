"""Calls over HTTP: the only module that knows the HTTP client, which is imported at the first call."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import weakref
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

from isthmus.errors import InvalidRequestError, ProtocolError, TierError, TransientError, UnavailableError
from isthmus.models.contract import Timeouts
from isthmus.secret import Address
from isthmus.transport.live import announce
from isthmus.transport.request import merged_headers, own_version, parts_of
from isthmus.transport.tls import ssl_context
from isthmus.wire.call import Ended, WireCall

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

_SETTLE_BYTES = 65_536
_SETTLE_SECONDS = 0.05
_TARGETS_KEPT = 64
_BUFFER = "_buffer"
_UNREACHABLE = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})


class HttpTransport:
    """Carries calls over HTTP/1.1, with one pool of connections for each event loop that it is used in.

    A loop's connections are closed by `aclose()` in that loop, or when the loop shuts down its async generators, as
    `asyncio.run` does. Connections are unlimited, redirects are not followed, cookies are not kept.

    Args:
        timeouts: of these, `connect` is observed here: name look-up, TCP and TLS together.
        verify: whether a server's certificate is checked.
        ca_bundle: a file or folder of the certificate authorities to trust instead of the system's.
        client_cert: a PEM file with certificate and key, or one file for each.
        trust_env: whether the proxies that the environment names are used.

    Raises:
        ConfigError: a certificate file cannot be used.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        verify: bool = True,
        ca_bundle: str | Path | None = None,
        client_cert: str | Path | tuple[str | Path, str | Path] | None = None,
        trust_env: bool = True,
    ) -> None:
        self._connect = (timeouts or Timeouts()).connect
        self._ssl = ssl_context(verify, ca_bundle, client_cert=client_cert)
        self._trust_env = trust_env
        self._targets: dict[str, _Target] = {}
        self._pools: dict[asyncio.AbstractEventLoop, _Pool] = {}

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> _Exchange:
        """Send the call; see `isthmus.adapters.codec.Transport`."""
        return _Exchange(self, url, call, headers)

    async def aclose(self) -> None:
        """Close the connections of the running loop; the transport can be used again."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.keeper.aclose()

    async def _session(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            for other in tuple(self._pools):
                if other.is_closed():
                    self._pools.pop(other, None)
            keeper = _keep(weakref.ref(self), loop, self._connect, self._ssl)
            # Nothing is awaited before the first yield, so no other task can come between.
            pool = self._pools[loop] = _Pool(loop, keeper, await anext(keeper))
        return pool.session

    def _target(self, url: str) -> _Target:
        target = self._targets.get(url)
        if target is None:
            from yarl import URL

            proxy = self._proxy(parts_of(url))
            target = _Target(URL(url, encoded=True), proxy)
            if "@" in url or "?" in url:
                return target
            if len(self._targets) >= _TARGETS_KEPT:
                self._targets.clear()
            self._targets[url] = target
        return target

    def _proxy(self, parts: SplitResult) -> str | None:
        proxy = getproxies().get(parts.scheme) if self._trust_env else None
        return None if not proxy or proxy_bypass(parts.hostname or "") else Address(proxy)


@dataclass(slots=True, eq=False, repr=False)
class _Target:
    """An address in the client's form, and the proxy on the way there; either may hold a password, so neither shows."""

    url: URL
    proxy: str | None


@dataclass(slots=True, eq=False)
class _Pool:
    """The connections of one loop, and the generator whose end closes them."""

    loop: asyncio.AbstractEventLoop
    keeper: AsyncGenerator[aiohttp.ClientSession, None]
    session: aiohttp.ClientSession

    def __del__(self) -> None:
        # A loop that was closed by hand has shut nothing down: nothing can be awaited in it, and nothing needs to be.
        if self.loop.is_closed() and not self.session.closed:
            with suppress(StopIteration):
                self.session.close().send(None)


async def _keep(
    owner: weakref.ref[HttpTransport],
    loop: asyncio.AbstractEventLoop,
    connect: float | None,
    tls: ssl.SSLContext | bool,
) -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Hold a session open until this generator is closed.

    Loops close the async generators that were begun in them before they end, and close one in themselves when its last
    reference goes: so the session never outlives its loop or its transport.
    """
    import aiohttp

    session = aiohttp.ClientSession(
        connector=_connector_class()(limit=0, ssl=tls),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": f"isthmus/{own_version()}"},
        timeout=aiohttp.ClientTimeout(total=None, connect=connect),
    )
    try:
        yield session
    finally:
        transport = owner()
        if transport is not None:
            transport._pools.pop(loop, None)
        await session.close()


_on_a_used_connection: ContextVar[bool] = ContextVar("on_a_used_connection", default=False)


@cache
def _connector_class() -> type[aiohttp.TCPConnector]:
    import aiohttp

    class Connector(aiohttp.TCPConnector):
        """Tells a caller whether the connection that it got has served before."""

        async def connect(self, *args: Any, **kwargs: Any) -> aiohttp.connector.Connection:
            connection = await super().connect(*args, **kwargs)
            protocol: Any = connection.protocol
            used = getattr(protocol, "has_served", False)
            _on_a_used_connection.set(used)
            if not used:
                protocol.has_served = True
                if protocol.closed is not None:
                    protocol.closed.add_done_callback(_noticed)
            return connection

    return Connector


def _left_idle(error: Exception) -> bool:
    """Whether a request found its connection closed without a byte of a reply, and that had served before.

    A server may close an idle connection just as a request goes out on it: it has not taken that one up then.
    """
    import aiohttp

    if not _on_a_used_connection.get() or isinstance(error, aiohttp.ClientConnectorError):
        return False
    # What had come of a reply is the message here.
    unheard = isinstance(error, aiohttp.ServerDisconnectedError) and isinstance(error.message, str)
    return unheard or isinstance(error, aiohttp.ClientOSError)


class _Exchange:
    """One call and its reply, as a block; leaving it closes the connection, or has returned it to the pool."""

    __slots__ = ("_call", "_closed", "_headers", "_response", "_transport", "_url")

    def __init__(self, transport: HttpTransport, url: str, call: WireCall, headers: Mapping[str, str]) -> None:
        self._transport = transport
        self._url = url
        self._call = call
        self._headers = headers
        self._response: aiohttp.ClientResponse | None = None
        self._closed: asyncio.Future[None] | None = None

    async def __aenter__(self) -> HttpReply:
        call, transport = self._call, self._transport
        merged = merged_headers(call, self._headers)
        # A body may be large, and a reply take long.
        del self._call, self._headers
        target = transport._target(self._url)
        announce(self._url)
        pool = transport._pools.get(asyncio.get_running_loop())
        session = pool.session if pool is not None else await transport._session()
        failure: TierError | None = None
        try:
            for again in (False, True):
                try:
                    response = self._response = await session.request(
                        call.method,
                        target.url,
                        data=call.body or None,
                        headers=merged,
                        allow_redirects=False,
                        proxy=target.proxy,
                    )
                    break
                except _broken() as error:
                    if again or not _left_idle(error):
                        raise
        except _broken(ValueError) as error:
            # The client's errors and frames hold headers and proxies, keys included: nothing of them goes on.
            failure = _failure(error, parts_of(self._url))
            failure.__cause__ = _bare(error)
        if failure is not None:
            raise failure
        protocol = response.connection.protocol if response.connection is not None else None
        closed = self._closed = protocol.closed if protocol is not None else None
        if closed is not None:
            closed.add_done_callback(self._lost)
        elif protocol is not None:
            self._lost()
        return HttpReply(response)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed is not None:
            self._closed.remove_done_callback(self._lost)
        if self._response is not None:
            self._response.close()

    def _lost(self, _: asyncio.Future[None] | None = None) -> None:
        """Wake the reader when the connection is gone: the client does not, after a malformed chunk."""
        import aiohttp

        content = self._response.content if self._response is not None else None
        if content is not None and not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection is gone"))


def _noticed(closed: asyncio.Future[None]) -> None:
    """Take note of how a connection was closed, or its future would complain that nobody did."""
    if not closed.cancelled():
        closed.exception()


class HttpReply:
    """An open reply; see `isthmus.adapters.codec.Reply`."""

    __slots__ = ("_content", "_over", "_response", "ended", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response, self._content = response, response.content
        self.status = response.status
        self.ended = Ended.BROKEN
        self._over = False
        sent = response.headers
        headers = {name.lower(): value for name, value in sent.items()}
        if len(headers) != len(sent):
            headers = {name: ", ".join(sent.getall(name)) for name in headers}
        self.headers: Mapping[str, str] = headers

    def chunks(self) -> HttpReply:
        """The body as it arrives; see `ended` afterwards."""
        return self

    def __aiter__(self) -> HttpReply:
        return self

    # No generator: one is dearer to begin, and each piece to hand on.
    async def __anext__(self) -> bytes:
        if self._over:
            raise StopAsyncIteration
        content = self._content
        pieces: Any = getattr(content, _BUFFER, ())
        if hasattr(pieces, "popleft") and len(pieces) > 1:
            # After each piece that it hands out the client asks its parser to go on: of one large piece it asks once.
            joined = b"".join(pieces)
            pieces.clear()
            pieces.append(joined)
        try:
            data = await content.readany()
        except _broken():
            data = self._left()
        else:
            if not data:
                self.ended = self._framing()
        if not data:
            self._over = True
            raise StopAsyncIteration
        return data

    def _left(self) -> bytes:
        """What had arrived before the connection broke: the client drops it if nobody had read it yet."""
        self._over = True
        self._content.set_exception(None)  # type: ignore[arg-type]
        data = self._content.read_nowait()
        self._response.close()
        return data

    def _framing(self) -> Ended:
        headers = self.headers
        framed = "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
        bodiless = self.status in (204, 304) or self._response.method == "HEAD"
        return Ended.FRAMED if framed or bodiless else Ended.UNFRAMED

    async def read(self, limit: int | None = None) -> bytes:
        """The rest of the body, or its first `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        async for data in self:
            pieces.append(data)
            size += len(data)
            if limit is not None and size >= limit:
                break
        return b"".join(pieces)[:limit]

    async def settle(self) -> None:
        """Read at most 64 KiB more and for at most 50 ms, so that the connection can be used again."""
        if self._response.closed:
            return
        left, content = _SETTLE_BYTES, self._content
        alarm = asyncio.get_running_loop().call_later(_SETTLE_SECONDS, self._response.close)
        try:
            while left > 0 and (data := await content.readany()):
                left -= len(data)
        except _broken():
            pass
        finally:
            alarm.cancel()


def _broken(*others: type[Exception]) -> tuple[type[Exception], ...]:
    """What the client raises when a connection breaks; asked for only once something was raised."""
    import aiohttp

    return (aiohttp.ClientError, OSError, *others)


def _bare(error: Exception) -> OSError | None:
    """The system's own error behind the client's, without anything of the client."""
    cause = getattr(error, "os_error", error)
    if type(cause).__module__ not in ("builtins", "socket", "ssl") or not isinstance(cause, OSError):
        return None
    cause.__cause__ = cause.__context__ = None
    return cause.with_traceback(None)


def _failure(error: Exception, parts: SplitResult) -> TierError:
    """The classified form of a failure to get the head of a reply; names the host and never a header."""
    import aiohttp

    where = parts.hostname or "(no host)"
    with_port = f"{where}:{parts.port}" if parts.port else where
    cause = getattr(error, "os_error", error)
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return TransientError(f"{with_port}: TLS failed: {cause}")
    if isinstance(error, TimeoutError):
        return TransientError(f"{with_port}: time-out while connecting")
    if isinstance(cause, socket.gaierror) or isinstance(error, aiohttp.ClientConnectorDNSError):
        return UnavailableError(f"{where}: host not found: is the base URL right?")
    if isinstance(cause, OSError) and cause.errno in _UNREACHABLE:
        return UnavailableError(f"{with_port}: {cause.strerror or 'cannot be reached'}")
    if isinstance(error, ValueError):
        return InvalidRequestError(f"{with_port}: the URL or a header cannot be sent: {type(error).__name__}")
    if isinstance(error, aiohttp.ClientResponseError):
        # Its further lines quote what the peer sent.
        said = error.message.partition("\n")[0].rstrip(":")
        return ProtocolError(f"{with_port}: the reply is not HTTP: {said}")
    return TransientError(f"{with_port}: connection lost before a reply: {type(error).__name__}")
