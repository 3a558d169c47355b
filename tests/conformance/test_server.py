"""The server of tests, as a bare socket sees it."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import urllib.request
from typing import Any

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.conformance import Play, serve
from isthmus.conformance.damage import Cut, Drip, Garbage, Reset, Split, Stall, Status, WrongType
from isthmus.conformance.plays import Received
from isthmus.conformance.reply import End, Framing
from isthmus.errors import ConfigError, tier_error
from isthmus.models.events import Text
from support.rawclient import CHAT_PATH, MESSAGES_PATH, Heard, ask
from support.turns import tasks

BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=5)
FRAMINGS = st.sampled_from([Framing.CHUNKED, Framing.LENGTH, Framing.CLOSE])


async def settled() -> None:
    """All tasks come to their end."""
    async with asyncio.timeout(5):
        while tasks():
            await asyncio.sleep(0)


def heard(play: Play, **options: Any) -> Heard:
    """What a client hears of one play, with nothing left behind."""

    async def main() -> Heard:
        async with serve(play) as server:
            reply = await ask(server.url, **options)
        assert not tasks()
        await server.until(lambda: server.open == 0)
        return reply

    return asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(BODIES, FRAMINGS, st.none() | st.integers(1, 9))
def test_any_body_arrives_as_it_is(pieces: list[bytes], framing: Framing, size: int | None) -> None:
    """F06: a client gets exactly the bytes, whatever they are, however they are split and framed."""
    play = Play.stream(*pieces).framed(framing)
    reply = heard(play.damaged(Split(size)) if size else play)
    assert reply.body == b"".join(pieces)
    assert reply.ending == ("closed" if framing is Framing.CLOSE else "framed")
    if framing is Framing.CHUNKED and size:
        assert all(len(chunk) <= size for chunk in reply.chunks)
    elif framing is Framing.CHUNKED:
        assert reply.chunks == pieces


@settings(max_examples=60, deadline=None)
@given(BODIES, FRAMINGS, st.data())
def test_a_cut_body_arrives_up_to_the_cut(pieces: list[bytes], framing: Framing, data: st.DataObject) -> None:
    """F01: a client gets every byte before a cut, none after it, and sees a close, a reset or a framed end."""
    body = b"".join(pieces)
    at = data.draw(st.integers(0, len(body)))
    damage, ending = data.draw(
        st.sampled_from([(Cut(at), "closed"), (Reset(at), "reset"), (Cut(at, framed=True), "framed")])
    )
    reply = heard(Play.stream(*pieces).framed(framing).damaged(damage))
    assert reply.body == body[:at]
    if ending == "framed" and framing is Framing.CLOSE:
        ending = "closed"
    if framing is Framing.LENGTH and at == len(body):
        # All that was promised has come: a client need not look any further.
        ending = "framed"
    assert reply.ending == ending


async def test_a_reset_may_come_before_the_head() -> None:
    """A reset without a place comes before any byte of the reply."""
    async with serve(Play.stream(b"x").damaged(Reset())) as server:
        reply = await ask(server.url)
    assert (reply.status, reply.body, reply.ending) == (0, b"", "reset")


async def test_a_stall_lasts_until_the_client_leaves() -> None:
    """F24: after a stall's place nothing comes and the connection stays; the client's leaving ends it."""
    async with serve(Play.stream(b"data: 1\n\n", b"data: 2\n\n").damaged(Stall(9))) as server:
        reply = await ask(server.url, patience=0.05)
        assert (reply.body, reply.ending) == (b"data: 1\n\n", "silent")
        await server.until(lambda: server.open == 0)
        await settled()


async def test_a_stall_may_end() -> None:
    """A stall of some time is a pause: the rest of the body follows."""
    async with serve(Play.whole(b"12").damaged(Stall(1, seconds=0.01))) as server:
        before = asyncio.get_running_loop().time()
        reply = await ask(server.url)
        assert asyncio.get_running_loop().time() - before >= 0.01
    assert (reply.body, reply.ending) == (b"12", "framed")


async def test_a_drip_takes_its_time() -> None:
    """Every piece of a drip comes after its wait, and all of the body comes."""
    async with serve(Play.stream(b"abcdef").damaged(Drip(0.005, size=2))) as server:
        before = asyncio.get_running_loop().time()
        reply = await ask(server.url)
        assert asyncio.get_running_loop().time() - before >= 0.015
    assert reply.chunks == [b"ab", b"cd", b"ef"]


async def test_a_wait_ends_when_the_client_leaves() -> None:
    """F10: a client that leaves in a pause, long or for an event, ends the reply and its task."""
    for wait in (60.0, asyncio.Event()):
        async with serve(Play.stream(b"a", wait, b"b")) as server:
            reply = await ask(server.url, patience=0.02)
            assert (reply.body, reply.ending) == (b"a", "silent")
            await server.until(lambda: server.open == 0)
            await settled()


async def test_an_event_holds_a_piece_back() -> None:
    """A piece after an event goes out once it is set."""
    gate = asyncio.Event()
    async with serve(Play.stream(b"a", gate, b"b")) as server:
        client = asyncio.create_task(ask(server.url))
        await server.until(lambda: len(server.requests) == 1)
        gate.set()
        assert (await client).body == b"ab"


async def test_status_type_and_headers_are_as_given() -> None:
    """An error status comes with its headers and a body in the dialect's own form; a content type may lie."""
    late = Status(429, {"Retry-After": "7"})
    async with serve(
        Play.steps("x", "x")[0].damaged(late),
        Play.whole(b"{}").damaged(late).at(MESSAGES_PATH),
        Play.stream(b"x").damaged(WrongType()),
        Play.whole(b"").damaged(Status(418, body=b"")),
    ) as server:
        chat = await ask(server.url)
        messages = await ask(server.url, MESSAGES_PATH)
        html = await ask(server.url)
        empty = await ask(server.url)
    assert (chat.status, chat.headers["retry-after"]) == (429, "7")
    assert json.loads(chat.body)["error"]["message"]
    assert json.loads(messages.body)["type"] == "error"
    assert (html.status, html.headers["content-type"], html.body) == (200, "text/html", b"x")
    assert (empty.status, empty.body, empty.ending) == (418, b"", "framed")


async def test_garbage_stands_where_it_was_put() -> None:
    """Bytes that do not belong there come at their place, and the framing counts them."""
    async with serve(Play.whole(b"abcd").damaged(Garbage(2, b"\x00\xff"))) as server:
        reply = await ask(server.url)
    assert (reply.body, reply.ending) == (b"ab\x00\xffcd", "framed")


async def test_raw_bytes_are_all_that_goes_out() -> None:
    """A raw play writes its bytes and nothing else, and ends as it says."""
    async with serve(Play.raw(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", End.CLOSE)) as server:
        reply = await ask(server.url)
    assert (reply.body, reply.ending) == (b"ab", "closed")


async def test_plays_are_taken_in_order_by_path() -> None:
    """Each request takes the first play left that fits its path; without one it is told so, with a count."""
    plays = [Play.whole(b"1"), Play.whole(b"m").at("/messages"), Play.whole(b"2")]
    async with serve(*plays) as server:
        told = [(await ask(server.url, path)).body for path in ("/a", MESSAGES_PATH, "/a?key=CANARY")]
        assert told == [b"1", b"m", b"2"]
        last = await ask(server.url, "/a?key=CANARY")
        assert last.status == 400
        assert "request 4" in json.loads(last.body)["error"]["message"]
        assert b"of the 3" in last.body
        assert b"CANARY" not in last.body
    assert [type(problem) for problem in server.problems] == [ConfigError]


async def test_the_last_play_may_repeat_and_a_function_may_answer() -> None:
    """With `repeat` the last play that fits stays; a function answers as often as it is asked."""
    async with serve(Play.whole(b"1"), Play.whole(b"2"), repeat=True) as server:
        assert [(await ask(server.url)).body for _ in range(4)] == [b"1", b"2", b"2", b"2"]
    async with serve(lambda request: Play.whole(request.path.encode())) as server:
        assert [(await ask(server.url, path)).body for path in ("/a", "/b")] == [b"/a", b"/b"]


async def test_what_was_asked_is_kept_and_no_secret_shows() -> None:
    """F29: method, path, headers and body of each request are there; its repr holds neither keys nor the body."""
    async with serve(Play.whole(b"{}")) as server:
        await ask(server.url, "/x?key=CANARY1", model="CANARY4")
        (request,) = server.requests
    assert (request.method, request.path, request.asked) == ("POST", "/x?key=CANARY1", {"model": "CANARY4"})
    assert request.headers["host"] == "x"
    held = Received("POST", "/", {"authorization": "Bearer CANARY2", "x-api-key": "CANARY3", "cookie": "CANARY5"})
    assert held.headers["x-api-key"] == "CANARY3"
    assert "CANARY" not in repr(request) + repr(held)


async def test_connections_are_served_side_by_side_and_used_again() -> None:
    """Replies that wait do not hold up others; a connection serves one request after the other."""
    gate = asyncio.Event()
    async with serve(Play.stream(gate, b"slow"), Play.whole(b"fast")) as server:
        slow = asyncio.create_task(ask(server.url))
        await server.until(lambda: len(server.requests) == 1)
        assert (await ask(server.url)).body == b"fast"
        gate.set()
        assert (await slow).body == b"slow"
    assert [request.connection for request in server.requests] == [0, 1]
    async with serve(Play.whole(b"1"), repeat=True) as server:
        reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").split(":"))
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n1")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        await writer.wait_closed()
    assert [(request.connection, request.body) for request in server.requests] == [(0, b"{}")] * 3


@pytest.mark.parametrize("nonsense", [b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: many\r\n\r\n"])
async def test_nonsense_closes_the_connection(nonsense: bytes) -> None:
    """What is no HTTP gets no answer, and the next client is served."""
    async with serve(Play.whole(b"1")) as server:
        reader, writer = await asyncio.open_connection(*server.url.removeprefix("http://").split(":"))
        writer.write(nonsense)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        assert (await ask(server.url)).body == b"1"


async def test_it_speaks_tls() -> None:
    """With a context the server speaks TLS."""
    authority = trustme.CA()
    context, trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(trusting)
    async with serve(Play.whole(b"1"), ssl=context) as server:
        assert server.url.startswith("https://")
        host, port = server.url.removeprefix("https://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n1")).endswith(b"1")
        writer.close()
        await writer.wait_closed()


async def test_a_connection_error_in_a_script_is_one_on_the_wire() -> None:
    """A script's lost connection resets it, before content and after; its time-out says nothing more."""
    lost = [Text("hel"), ConnectionResetError()]
    async with serve(Play.steps(ConnectionResetError(), lost, [Text("hel"), TimeoutError()], "x")) as server:
        assert (await ask(server.url, stream=True)).ending == "reset"
        cut = await ask(server.url, stream=True)
        assert (cut.ending, b"hel" in cut.body) == ("reset", True)
        held = await ask(server.url, stream=True, patience=0.05)
        assert (held.ending, b"hel" in held.body) == ("silent", True)
    assert not tasks()


async def test_a_script_waits_where_it_says() -> None:
    """A delay in a step is one on the wire, streamed and whole."""
    async with serve(Play.steps({"text": "x", "delay": 0.02}, {"text": "x", "delay": 0.02})) as server:
        for stream in (True, False):
            before = asyncio.get_running_loop().time()
            assert (await ask(server.url, CHAT_PATH, stream=stream)).status == 200
            assert asyncio.get_running_loop().time() - before >= 0.02


async def test_it_closes_whatever_is_open() -> None:
    """F10: leaving the block ends replies under way and leaves neither task nor connection."""
    async with serve(Play.stream(b"a", End.HOLD), repeat=True) as server:
        clients = [asyncio.create_task(ask(server.url)) for _ in range(5)]
        await server.until(lambda: len(server.requests) == 5)
    assert {(await client).ending for client in clients} <= {"closed", "reset"}
    await server.until(lambda: server.open == 0)
    assert not tasks()


async def test_an_error_of_a_function_is_told() -> None:
    """A function that fails gives the client status 400 with the reason, and the server a problem."""

    def broken(_: Received) -> Play:
        raise tier_error("invalid", "so it is")

    async with serve(broken) as server:
        reply = await ask(server.url)
    assert (reply.status, b"so it is" in reply.body, len(server.problems)) == (400, True, 1)


def test_a_client_that_blocks_is_served_from_a_thread() -> None:
    """As a plain context manager the server answers blocking clients, and its thread ends with the block."""
    before = threading.active_count()
    with serve(Play.whole(b"1")) as server:
        with urllib.request.urlopen(server.url, data=b"{}") as reply:
            assert reply.read() == b"1"
        server.wait(lambda: server.open == 0)
        with pytest.raises(TimeoutError):
            server.wait(lambda: False, 0.01)
    assert threading.active_count() == before
    assert [request.body for request in server.requests] == [b"{}"]


@pytest.mark.parametrize("given", [{"text": "Hi."}, "Hi.", b"Hi.", 5, None, [{"text": "Hi."}]])
async def test_what_is_no_play_is_refused_with_how_to_make_one(given: Any) -> None:
    """A step, a body or a slip in a play's place says so, before any request; from a function, with the request."""
    with pytest.raises(ConfigError, match=r"not with \w+ .*Play\.steps"):
        serve(given)
    async with serve(lambda request: given) as server:
        assert (await ask(server.url)).status == 400
        assert "Play.steps" in str(server.problems[0])
