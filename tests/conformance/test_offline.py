"""The guard against live calls."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus import connect, define_chain
from isthmus.conformance import Play, forbid_live_calls, scripted, serve
from isthmus.errors import LiveCallError
from isthmus.models.contract import GenerateContext
from isthmus.transport import live

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
ELSEWHERE = "192.0.2.7"


async def by_adapter() -> None:
    """An adapter of ours."""
    async with connect("openai:m", api_key="none", base_url=f"http://{ELSEWHERE}/v1") as adapter:
        await adapter.generate(CTX)


async def by_stream() -> None:
    """A stream of asyncio's."""
    await asyncio.open_connection(ELSEWHERE, 80)


async def by_name() -> None:
    """The same, by name."""
    await asyncio.open_connection("example.invalid", 80)


async def by_socket() -> None:
    """A bare socket."""
    with socket.socket() as plain:
        plain.connect((ELSEWHERE, 80))


async def by_code() -> None:
    """A bare socket that returns a code."""
    with socket.socket() as plain:
        plain.connect_ex((ELSEWHERE, 80))


async def by_datagram() -> None:
    """A datagram."""
    with socket.socket(type=socket.SOCK_DGRAM) as plain:
        plain.sendto(b"x", (ELSEWHERE, 53))


async def by_creation() -> None:
    """The standard library's short cut."""
    socket.create_connection(("example.invalid", 80), timeout=0.01)


@pytest.mark.parametrize("way", [by_stream, by_name, by_socket, by_code, by_datagram, by_creation, by_adapter])
async def test_no_way_leads_to_another_machine(way: Callable[[], Awaitable[Any]]) -> None:
    """Each way to reach another machine is an error that names it, before any byte leaves."""
    with pytest.raises(Exception, match=r"a live call to (192\.0\.2\.7|example\.invalid)"), forbid_live_calls():
        await way()


async def test_a_call_that_a_chain_swallowed_comes_out_at_the_end() -> None:
    """A chain goes on to its next tier, and leaving the block still tells of the call."""
    first = connect("anthropic:m", api_key="none", base_url=f"http://{ELSEWHERE}")

    async def swallow() -> None:
        with forbid_live_calls() as tried:
            async with define_chain(id="c", tiers=[first, scripted(["hello"])]) as chain:
                assert (await chain.generate(CTX)).text == "hello"
            assert set(tried) == {ELSEWHERE}

    with pytest.raises(LiveCallError, match=ELSEWHERE) as caught:
        await swallow()
    assert caught.value.host == ELSEWHERE


async def test_a_proxy_on_this_machine_is_no_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that would go through a proxy on loopback is seen by the library's transport."""
    async with serve(Play.whole(b"{}")) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(Exception, match="a live call"), forbid_live_calls():
            await by_adapter()
        assert not proxy.requests


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST.", "::1", "0.0.0.0", "::ffff:127.0.0.1"]
)
def test_this_machine_is_not_live(host: str) -> None:
    """Every spelling of loopback may be looked up."""
    with forbid_live_calls():
        socket.getaddrinfo(host.rstrip("."), 80)


async def test_loopback_works_and_all_is_as_before_afterwards() -> None:
    """A server on loopback can be called within the block, which leaves nothing changed, nested or not."""
    before = (socket.getaddrinfo, socket.socket.connect, socket.socket.sendto, dict(vars(socket.socket)))
    with forbid_live_calls() as outer, forbid_live_calls() as inner:
        async with (
            serve(Play.steps("hello")) as server,
            connect("openai:m", api_key="none", base_url=f"{server.url}/v1") as adapter,
        ):
            assert (await adapter.generate(CTX)).text == "hello"
    assert (outer, inner) == ([], [])
    assert (socket.getaddrinfo, socket.socket.connect, socket.socket.sendto, dict(vars(socket.socket))) == before
    assert live.watchers == []


async def test_a_list_that_is_cleared_lets_it_pass() -> None:
    """Who knows of the attempt may clear the list; the error of the block itself is never replaced."""
    with forbid_live_calls() as tried:
        with pytest.raises(LiveCallError):
            await by_stream()
        tried.clear()

    async def fail() -> None:
        with forbid_live_calls():
            with pytest.raises(LiveCallError):
                await by_stream()
            raise KeyError("mine")

    with pytest.raises(KeyError):
        await fail()
