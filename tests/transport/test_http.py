"""The HTTP transport over real sockets: ends, closing, reuse, failures, TLS, proxies, loops."""

from __future__ import annotations

import asyncio
import functools
import gc
import gzip
import ssl
import subprocess
import sys
import textwrap
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import trustme

from isthmus.errors import ConfigError, InvalidRequestError, ProtocolError, TransientError, UnavailableError
from isthmus.models.contract import Timeouts
from isthmus.transport.http import HttpReply, HttpTransport
from isthmus.wire.call import Ended, WireCall
from support.loopback import CLOSE, HOLD, LAST, RESET, LoopbackServer, Seen, chunk, head, stream, whole

SRC = Path(__file__).resolve().parents[2] / "src"
CALL = WireCall(path="/v1/chat", body=b'{"model":"m"}')


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    """A transport that is closed afterwards."""
    made = HttpTransport()
    yield made
    await made.aclose()


async def call(transport: HttpTransport, url: str, wire: WireCall = CALL) -> tuple[HttpReply, bytes]:
    """One whole exchange."""
    async with transport.open(url + wire.path, wire, headers={}) as reply:
        body = b"".join([data async for data in reply.chunks()])
    return reply, body


async def test_the_request_is_sent_as_given(transport: HttpTransport) -> None:
    """Method, path, body and both kinds of headers reach the server, with the usual ones added once."""
    wire = WireCall(path="/a%3Ab/c", body=b"{}", headers={"X-Plain": "1", "ACCEPT": "own/type"})
    async with LoopbackServer([[whole(b"{}")]]) as server:
        async with transport.open(server.url + wire.path, wire, headers={"authorization": "Bearer k"}) as reply:
            assert await reply.read() == b"{}"
        seen = server.requests[0]
    assert (seen.method, seen.path, seen.body) == ("POST", "/a%3Ab/c", b"{}")
    assert seen.headers["x-plain"] == "1"
    assert seen.headers["authorization"] == "Bearer k"
    assert seen.headers["accept"] == "own/type"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["user-agent"].startswith("isthmus/")


@pytest.mark.parametrize(
    ("wire", "accept"),
    [
        (WireCall(path="/", body=b"{}", framing="sse"), "text/event-stream"),
        (WireCall(path="/", body=b"{}", framing="ndjson"), "application/x-ndjson"),
        (WireCall(path="/", body=b"{}", stream=False), "application/json"),
        (WireCall(path="/", method="GET", stream=False), "application/json"),
    ],
)
async def test_accept_follows_the_framing(transport: HttpTransport, wire: WireCall, accept: str) -> None:
    """The Accept header asks for what the call can read; a call without a body has no content type."""
    async with LoopbackServer([[whole(b"{}")]]) as server:
        await call(transport, server.url, wire)
        assert server.requests[0].headers["accept"] == accept
        assert ("content-type" in server.requests[0].headers) == bool(wire.body)


@pytest.mark.parametrize(
    ("answer", "ended"),
    [
        ([head(transfer_encoding="chunked"), chunk(b"data"), LAST], Ended.FRAMED),
        ([head(content_length="4"), b"da", b"ta"], Ended.FRAMED),
        ([head(content_length="4", connection="close"), b"data", CLOSE], Ended.FRAMED),
        ([head(connection="close"), b"data", CLOSE], Ended.UNFRAMED),
        ([head(transfer_encoding="chunked"), chunk(b"data"), CLOSE], Ended.BROKEN),
        ([head(transfer_encoding="chunked"), chunk(b"data"), 0.05, RESET], Ended.BROKEN),
        ([head(transfer_encoding="chunked"), chunk(b"data"), 0.05, b"zz\r\n", 0.05, CLOSE], Ended.BROKEN),
        ([head(content_length="5"), b"data", CLOSE], Ended.BROKEN),
        ([head(content_length="5"), b"data", 0.05, RESET], Ended.BROKEN),
    ],
)
async def test_the_end_is_told_apart(transport: HttpTransport, answer: list[Any], ended: Ended) -> None:
    """F01: however the body ends, it ends without an error and says how."""
    async with LoopbackServer([answer]) as server:
        reply, body = await call(transport, server.url)
    assert reply.ended is ended
    assert body == b"data"


@pytest.mark.parametrize("ending", [CLOSE, RESET])
@pytest.mark.parametrize("chunked", [True, False])
async def test_what_arrived_before_a_break_reaches_a_slow_reader(
    transport: HttpTransport, ending: Any, chunked: bool
) -> None:
    """F01: pieces that had arrived when the connection broke are not lost because the reader was slow."""
    pieces = [f"data: {i}\n\n".encode() for i in range(5)]
    gate = asyncio.Event()
    steps: list[Any] = [head(transfer_encoding="chunked"), chunk(pieces[0]), gate, *map(chunk, pieces[1:])]
    if not chunked:
        steps = [head(content_length="999"), pieces[0], gate, *pieces[1:]]
    async with (
        LoopbackServer([[*steps, 0.05, ending]]) as server,
        transport.open(server.url, CALL, headers={}) as reply,
    ):
        chunks = reply.chunks()
        got = [await anext(chunks)]
        gate.set()
        # The client learns of the end while nobody reads.
        await server.until(lambda: server.open == 0)
        await asyncio.sleep(0.05)
        got += [data async for data in chunks]
        await reply.settle()
    assert b"".join(got) == b"".join(pieces)
    assert reply.ended is Ended.BROKEN


@pytest.mark.parametrize(("coding", "encode"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_compressed_bodies_are_decoded(
    transport: HttpTransport, coding: str, encode: Callable[[bytes], bytes]
) -> None:
    """A body with a content coding arrives decoded; the same body cut short is broken."""
    body = b"data: {}\n\n" * 50
    packed = encode(body)
    async with LoopbackServer([stream(packed[:9], packed[9:], content_encoding=coding)]) as server:
        reply, got = await call(transport, server.url)
        assert (got, reply.ended) == (body, Ended.FRAMED)
        server.script = [[*stream(packed[:-9], last=False, content_encoding=coding), 0.05, CLOSE]]
        reply, got = await call(transport, server.url)
        assert reply.ended is Ended.BROKEN


async def test_redirects_are_not_followed_and_repeated_headers_are_joined(transport: HttpTransport) -> None:
    """A redirect is a reply like any other, so that no key follows it."""
    raw = b"HTTP/1.1 307 Moved\r\nLocation: /x\r\nX-A: 1\r\nX-A: 2\r\nContent-Length: 0\r\n\r\n"
    async with LoopbackServer([[raw]]) as server:
        reply, _ = await call(transport, server.url)
        assert (reply.status, reply.headers["x-a"], len(server.requests)) == (307, "1, 2", 1)


async def test_read_stops_at_its_limit(transport: HttpTransport) -> None:
    """F18: the first bytes of a long error body are enough, and the connection is closed."""
    async with LoopbackServer([[head(400, content_length="1000000"), b"x" * 100_000, HOLD]]) as server:
        async with transport.open(server.url, CALL, headers={}) as reply:
            assert await reply.read(1000) == b"x" * 1000
        await server.until(lambda: server.open == 0)


class AbandonedError(Exception):
    """Raised by a consumer."""


async def leave_by_break(reply: HttpReply) -> None:
    """Stop after the first piece."""
    async for _ in reply.chunks():
        break


async def leave_by_error(reply: HttpReply) -> None:
    """Fail after the first piece."""
    async for _ in reply.chunks():
        raise AbandonedError


async def leave_by_cancel(reply: HttpReply) -> None:
    """Be cancelled while waiting for the second piece."""
    task = asyncio.current_task()
    assert task
    async for _ in reply.chunks():
        asyncio.get_running_loop().call_soon(task.cancel)


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_error, leave_by_cancel])
async def test_every_way_out_closes_the_socket(leave: Callable[[HttpReply], Awaitable[None]]) -> None:
    """F10: break, error and cancel close the connection within 0.2 s, without the collector, and leave no task."""
    transport = HttpTransport()
    moments: list[float] = []

    async def run(url: str) -> None:
        try:
            async with transport.open(url, CALL, headers={}) as reply:
                await leave(reply)
        finally:
            moments.append(monotonic())

    gc.disable()
    try:
        async with LoopbackServer([stream(b"data: 1\n\n", HOLD, last=False)]) as server:
            ours = asyncio.create_task(run(server.url))
            await asyncio.wait([ours])
            await server.until(lambda: len(server.disconnects) == 1)
            assert server.disconnects[0].at - moments[0] < 0.2
            assert ours.cancelled() == (leave is leave_by_cancel)
            assert ours.cancelled() or isinstance(ours.exception(), AbandonedError | None)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await transport.aclose()
    finally:
        gc.enable()


async def test_dropping_a_generator_around_an_exchange_closes_the_socket(transport: HttpTransport) -> None:
    """F10: a stream that is dropped without being closed closes its connection, without the collector."""

    async def events(url: str) -> AsyncIterator[bytes]:
        async with transport.open(url, CALL, headers={}) as reply:
            async for data in reply.chunks():
                yield data

    gc.disable()
    try:
        async with LoopbackServer([stream(b"data: 1\n\n", HOLD, last=False)]) as server:
            async for _ in events(server.url):
                break
            left = monotonic()
            await server.until(lambda: len(server.disconnects) == 1)
            assert server.disconnects[0].at - left < 0.2
    finally:
        gc.enable()


async def test_cancelling_while_the_head_is_awaited_closes_the_socket(transport: HttpTransport) -> None:
    """F10: a call that is cancelled before the reply begins leaves no connection."""
    async with LoopbackServer([[HOLD]]) as server:
        task = asyncio.create_task(call(transport, server.url))
        await server.until(lambda: bool(server.requests))
        left = monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until(lambda: len(server.disconnects) == 1)
        assert server.disconnects[0].at - left < 0.2


@pytest.mark.parametrize("late", [0.0, 0.02])
async def test_settling_keeps_the_connection(transport: HttpTransport, late: float) -> None:
    """A reader that stops at the end mark settles; the next call takes the same connection, last chunk late or not."""
    async with LoopbackServer([stream(b"data: [DONE]\n\n", late)]) as server:
        for _ in range(3):
            async with transport.open(server.url, CALL, headers={}) as reply:
                async for _ in reply.chunks():
                    break
                await reply.settle()
        assert (server.connections, len(server.requests)) == (1, 3)


@pytest.mark.parametrize("rest", [[HOLD], [chunk(b": ping\n\n"), 0.03] * 100, [chunk(b"x" * 60_000)] * 50])
async def test_settling_is_bounded(transport: HttpTransport, rest: list[Any]) -> None:
    """A server that never ends its body, or has much more to say, is not waited for: the connection is closed."""
    async with LoopbackServer([[*stream(b"data: [DONE]\n\n", 0.01, last=False), *rest]]) as server:
        async with transport.open(server.url, CALL, headers={}) as reply:
            async for _ in reply.chunks():
                break
            began = monotonic()
            await reply.settle()
            assert monotonic() - began < 1.0
        await server.until(lambda: server.open == 0)


async def test_replies_read_to_the_end_share_one_connection(transport: HttpTransport) -> None:
    """Calls one after another reuse the connection; calls side by side each have their own."""
    async with LoopbackServer([stream(b"data: 1\n\n", 0.3)]) as server:
        for _ in range(3):
            await call(transport, server.url)
        assert server.connections == 1
        await asyncio.gather(*(call(transport, server.url) for _ in range(150)))
        assert server.connections == 150


@pytest.mark.parametrize("end", [CLOSE, RESET])
async def test_a_used_connection_that_the_server_closes_is_replaced(transport: HttpTransport, end: Any) -> None:
    """A call whose kept connection ends without a byte of a reply is sent once more, on a new one, and not again."""
    calls: list[int] = []

    def answer(seen: Seen) -> list[Any]:
        calls.append(seen.connection)
        return [whole(b"{}")] if calls.count(seen.connection) == 1 and len(calls) < 4 else [end]

    async with LoopbackServer(answer) as server:
        assert (await call(transport, server.url))[1] == b"{}"
        assert (await call(transport, server.url))[1] == b"{}"
        assert calls == [0, 0, 1]
        with pytest.raises(TransientError):
            await call(transport, server.url)
        assert calls == [0, 0, 1, 1, 2]
        assert [seen.body for seen in server.requests] == [CALL.body] * 5


@pytest.mark.parametrize("steps", [[b"H"], [b"HTTP/1.1 200 OK\r\nConte"]])
async def test_a_call_that_was_taken_up_is_not_sent_again(transport: HttpTransport, steps: list[Any]) -> None:
    """A kept connection that ends inside a reply's head is a failure: the server may have done the work."""
    async with LoopbackServer([[whole(b"{}")], [*steps, CLOSE]]) as server:
        await call(transport, server.url)
        with pytest.raises(TransientError):
            await call(transport, server.url)
        assert len(server.requests) == 2


async def test_a_refused_connection_is_unavailable(transport: HttpTransport) -> None:
    """A port where nobody listens means the next tier, and the message names it."""
    async with LoopbackServer([[HOLD]]) as server:
        url = server.url
    with pytest.raises(UnavailableError, match=url.removeprefix("http://")) as caught:
        await call(transport, url)
    assert caught.value.__cause__ is not None


async def test_an_unknown_host_is_unavailable(transport: HttpTransport) -> None:
    """A name that does not resolve means the next tier."""
    with pytest.raises(UnavailableError, match=r"no-such-host\.invalid: host not found"):
        await call(transport, "http://no-such-host.invalid")


@pytest.mark.parametrize("steps", [[CLOSE], [RESET], [b"HTTP/1.1 200 OK\r\nContent-", CLOSE]])
async def test_a_connection_lost_before_the_head_is_transient(transport: HttpTransport, steps: list[Any]) -> None:
    """A connection that closes before the reply's head is worth another try."""
    async with LoopbackServer([steps]) as server:
        with pytest.raises(TransientError, match=r"127\.0\.0\.1"):
            await call(transport, server.url)


async def test_what_is_not_http_is_an_error(transport: HttpTransport) -> None:
    """A peer that speaks something else breaks the protocol."""
    async with LoopbackServer([[b"SSH-2.0-OpenSSH_9.6\r\n\r\n", CLOSE]]) as server:
        with pytest.raises(ProtocolError, match="not HTTP"):
            await call(transport, server.url)


@pytest.mark.parametrize("url", ["nonsense", "http://", "ftp://127.0.0.1/x", "http://127.0.0.1:99999"])
async def test_a_bad_url_is_an_invalid_request(transport: HttpTransport, url: str) -> None:
    """A base URL that cannot be called is the caller's mistake, not a passing fault."""
    with pytest.raises(InvalidRequestError):
        async with transport.open(url, CALL, headers={}):
            pass


async def test_connecting_has_a_time_out() -> None:
    """F24: a handshake that never comes ends after the connect time-out, as a transient failure."""
    transport = HttpTransport(timeouts=Timeouts(connect=0.1))
    async with LoopbackServer([[HOLD]]) as server:
        with pytest.raises(TransientError, match="time-out"):
            await call(transport, server.url.replace("http:", "https:"))
        await server.until(lambda: server.open == 0)
    await transport.aclose()


async def test_waiting_for_the_head_or_the_body_has_none() -> None:
    """F24: the connect time-out does not run while the model thinks."""
    transport = HttpTransport(timeouts=Timeouts(connect=0.1))
    answer = [0.3, *stream(b"data: 1\n\n", 0.3, b"data: 2\n\n")]
    async with LoopbackServer([answer]) as server:
        _, body = await call(transport, server.url)
    assert body == b"data: 1\n\ndata: 2\n\n"
    await transport.aclose()


class Authority:
    """A certificate authority with a server's context and its own file."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(str(self.file))
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.ca.issue_cert("127.0.0.1").configure_cert(self.server)


async def test_a_custom_authority_is_trusted_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    """TLS works with the given authority alone; without it the failure is transient and says TLS."""
    authority = Authority(tmp_path)
    trusting, doubting, blind = HttpTransport(ca_bundle=authority.file), HttpTransport(), HttpTransport(verify=False)
    async with LoopbackServer([[whole(b"{}")]], ssl=authority.server) as server:
        assert (await call(trusting, server.url))[1] == b"{}"
        assert (await call(blind, server.url))[1] == b"{}"
        with pytest.raises(TransientError, match="TLS"):
            await call(doubting, server.url)
        for each in (trusting, doubting, blind):
            await each.aclose()


async def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    """A server that asks for a certificate gets the client's, from one file or from two."""
    authority = Authority(tmp_path)
    authority.server.verify_mode = ssl.CERT_REQUIRED
    authority.ca.configure_trust(authority.server)
    mine = authority.ca.issue_cert("client@example.org")
    one, cert, key = (str(tmp_path / name) for name in ("one.pem", "cert.pem", "key.pem"))
    mine.private_key_and_cert_chain_pem.write_to_path(one)
    mine.cert_chain_pems[0].write_to_path(cert)
    mine.private_key_pem.write_to_path(key)
    async with LoopbackServer([[whole(b"{}")]], ssl=authority.server) as server:
        for given in (one, (cert, key)):
            transport = HttpTransport(ca_bundle=authority.file, client_cert=given)
            assert (await call(transport, server.url))[1] == b"{}"
            await transport.aclose()


@pytest.mark.parametrize("options", [{"ca_bundle": "absent.pem"}, {"client_cert": "absent.pem"}])
def test_a_missing_certificate_file_is_a_configuration_error(options: dict[str, Any]) -> None:
    """A certificate file that is not there is said at once."""
    with pytest.raises(ConfigError, match="PEM"):
        HttpTransport(**options)


async def test_proxies_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that the environment names carries the call, save for hosts excepted there, or if it is not trusted."""
    async with LoopbackServer([[whole(b'"proxied"')]]) as proxy, LoopbackServer([[whole(b'"direct"')]]) as server:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        transport, alone = HttpTransport(), HttpTransport(trust_env=False)
        assert (await call(transport, "http://far.invalid"))[1] == b'"proxied"'
        assert proxy.requests[0].path == "http://far.invalid/v1/chat"
        assert (await call(transport, server.url))[1] == b'"direct"'
        monkeypatch.delenv("no_proxy")
        assert (await call(alone, server.url))[1] == b'"direct"'
        await transport.aclose()
        await alone.aclose()


async def test_a_netrc_file_never_replaces_the_key(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F29: the authorisation that is sent is the one that was given."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with LoopbackServer([[whole(b"{}")]]) as server:
        async with transport.open(server.url, CALL, headers={"authorization": "Bearer mine"}) as reply:
            await reply.read()
        await call(transport, server.url)
        assert [seen.headers.get("authorization") for seen in server.requests] == ["Bearer mine", None]


async def test_cookies_are_not_kept(transport: HttpTransport) -> None:
    """Calls share nothing: a cookie of one reply is not sent with the next request."""
    async with LoopbackServer([[whole(b"{}", set_cookie="a=1")]]) as server:
        await call(transport, server.url)
        await call(transport, server.url)
        assert "cookie" not in server.requests[1].headers


PROGRAM = textwrap.dedent(
    """
    import asyncio, gc, sys
    sys.path[:0] = {path!r}
    if {collector!r} == "off":
        gc.disable()
    from isthmus.transport.http import HttpTransport
    from isthmus.wire.call import WireCall
    from support.loopback import LoopbackServer, HOLD, stream

    transport = HttpTransport()

    async def main():
        async with LoopbackServer([stream(b"data: 1\\n\\n"), stream(b"data: 1\\n\\n"),
                                   stream(b"data: 2\\n\\n", HOLD, last=False)]) as server:
            for _ in range(2):
                async with transport.open(server.url, WireCall(path="/"), headers={{}}) as reply:
                    assert [data async for data in reply.chunks()] == [b"data: 1\\n\\n"]
            assert server.connections == 1

            async def events():
                async with transport.open(server.url, WireCall(path="/"), headers={{}}) as reply:
                    async for data in reply.chunks():
                        yield data

            if {held!r}:
                global kept
                kept = events()
                await anext(kept)

    for _ in range(3):
        {run}
    if {dropped!r}:
        del transport
    print("fine")
    """
)
RUNS = {
    "asyncio.run": "asyncio.run(main())",
    "uvloop": "__import__('uvloop').run(main())",
    "by hand": "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); "
    "loop.run_until_complete(loop.shutdown_asyncgens()); loop.close()",
}


RUNS_ABRUPTLY = "loop = asyncio.new_event_loop(); loop.run_until_complete(main()); loop.close()"


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("collector", ["on", "off"])
@pytest.mark.parametrize(("held", "dropped"), [(False, False), (True, False), (False, True)])
def test_one_transport_serves_several_loops_and_leaves_no_warning(
    run: str, collector: str, held: bool, dropped: bool
) -> None:
    """F10: a transport that nobody closes works in one loop after another, and nothing complains, even at exit."""
    assert ran(RUNS[run], collector, held=held, dropped=dropped) == ("fine\n", "")


@pytest.mark.parametrize(("collector", "dropped"), [("on", False), ("on", True), ("off", True)])
def test_a_loop_that_is_closed_by_hand_leaves_no_warning(collector: str, dropped: bool) -> None:
    """F10: a loop that was closed without shutting anything down leaves no unclosed session behind."""
    assert ran(RUNS_ABRUPTLY, collector, held=False, dropped=dropped) == ("fine\n", "")


def ran(run: str, collector: str, *, held: bool, dropped: bool) -> tuple[str, str]:
    """What a program that uses one transport in three loops prints."""
    path = [str(SRC), str(SRC.parent / "tests")]
    program = PROGRAM.format(path=path, collector=collector, held=held, dropped=dropped, run=run)
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.stdout, done.stderr


async def test_a_dropped_transport_closes_its_connections() -> None:
    """F10: connections end with the transport, without the collector and without being told."""
    gc.disable()
    try:
        async with LoopbackServer([[whole(b"{}")]]) as server:
            transport = HttpTransport()
            await call(transport, server.url)
            assert server.open == 1
            del transport
            await server.until(lambda: server.open == 0)
    finally:
        gc.enable()


async def test_a_closed_transport_can_be_used_again(transport: HttpTransport) -> None:
    """Closing is for the moment: connections go, twice is harmless, and the next call opens new ones."""
    async with LoopbackServer([[whole(b"{}")]]) as server:
        await transport.aclose()
        await call(transport, server.url)
        await transport.aclose()
        await transport.aclose()
        await server.until(lambda: server.open == 0)
        await call(transport, server.url)
        assert server.connections == 2


def test_importing_it_loads_no_client() -> None:
    """F31: the HTTP client is imported at the first call, not with this module or what drives it."""
    modules = "isthmus.transport.http, isthmus.transport.recording, isthmus.adapters.base, isthmus.adapters.drive"
    program = f"import sys; sys.path.insert(0, {str(SRC)!r}); import {modules}; assert 'aiohttp' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def _tunnel(asked: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve one client of a proxy that only tunnels."""
    words = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")
    asked.append(f"{words[0]} {words[1]}")
    host, _, port = words[1].rpartition(":")
    there, back = await asyncio.open_connection(host, int(port))
    writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")

    async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                target.write(data)
        target.close()

    await asyncio.gather(carry(reader, back), carry(there, writer))


async def test_tls_goes_through_a_proxy_s_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy for https carries the call in a tunnel and sees nothing but the host; NO_PROXY goes past it."""
    authority = Authority(tmp_path)
    asked: list[str] = []
    proxy = await asyncio.start_server(functools.partial(_tunnel, asked), "127.0.0.1", 0)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    async with LoopbackServer([[whole(b"{}")]], ssl=authority.server) as server:
        place = server.url.removeprefix("https://")
        for exempt, tunnels in (("", 1), ("127.0.0.1", 1)):
            monkeypatch.setenv("no_proxy", exempt)
            transport = HttpTransport(ca_bundle=authority.file)
            assert (await call(transport, server.url))[1] == b"{}"
            assert asked == [f"CONNECT {place}"] * tunnels
            await transport.aclose()
    proxy.close()


async def test_many_calls_at_once_wait_for_none(transport: HttpTransport) -> None:
    """A hundred calls on one transport are all under way at once: no limit, no queue behind a slow one."""
    all_here = asyncio.Event()

    def answer(seen: Seen) -> list[Any]:
        if seen.connection == 99:
            all_here.set()
        return [all_here, whole(b"{}")]

    async with LoopbackServer(answer) as server:
        async with asyncio.timeout(20):
            done = await asyncio.gather(*(call(transport, server.url) for _ in range(100)))
        assert [body for _, body in done] == [b"{}"] * 100
        assert server.connections == 100


@pytest.mark.parametrize("status", [200, 204, 302, 304])
async def test_empty_replies_end_whole(transport: HttpTransport, status: int) -> None:
    """A reply without a body is read to its end, and its connection serves again."""
    first = head(status) if status in (204, 304) else whole(b"", status)
    async with LoopbackServer([[first], [whole(b"{}")]]) as server:
        reply, body = await call(transport, server.url)
        assert (reply.status, body, reply.ended) == (status, b"", Ended.FRAMED)
        assert (await call(transport, server.url))[1] == b"{}"
        assert server.connections == 1


@pytest.mark.parametrize("kept", [True, False])
async def test_chunks_that_came_together_are_handed_on_together(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """One piece of what is there, and what comes later in others; all of it, too, if the client kept it elsewhere."""
    import aiohttp

    if not kept:
        monkeypatch.setattr("isthmus.transport.http._BUFFER", "elsewhere")
    later = asyncio.Event()
    pieces = [f"{number:04}".encode() * 300 for number in range(400)]
    frames = b"".join(map(chunk, pieces))
    steps = [head(transfer_encoding="chunked"), chunk(b"first"), later, frames, 0.01, chunk(b"last"), LAST]
    async with LoopbackServer([steps]) as server, transport.open(server.url + CALL.path, CALL, headers={}) as reply:
        heard = reply.chunks()
        read = [await anext(heard)]
        later.set()
        read += [data async for data in heard]
    assert read[0] == b"first"
    assert b"".join(read) == b"first" + b"".join(pieces) + b"last"
    assert isinstance(reply._content, aiohttp.StreamReader)
    assert reply.ended is Ended.FRAMED
