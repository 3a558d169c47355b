"""Sessions that fail: over HTTP as on stdio each failure has its meaning, and none shows a secret."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest

from isthmus.errors import MissingDependencyError
from isthmus.harness import HttpServer, McpServerError
from support.mcp_runs import driven, odd, shimmed
from support.mcp_web import web_server

CANARY = "Bearer canary-4711-secret"


async def test_a_session_over_http_is_opened_once_and_closed_at_the_end():
    """All runs share it; closing the shim ends it at the server."""
    async with web_server(CANARY) as (web, url):
        async with shimmed(HttpServer("web", url, headers={"Authorization": CANARY})) as run:
            async with driven(run.shim) as other:
                assert (await other.call("work")).content == "in s1"
            assert (await run.call("work")).content == "in s1"
        assert (web.opened, web.closed) == (1, 1)


async def test_a_refused_key_is_told_with_its_status_and_without_the_key():
    """The error names server, URL and status; neither it nor its cause nor a log shows the header."""
    async with web_server("Bearer another") as (_, url):
        server = HttpServer("web", f"{url}?key=canary-4711-secret", headers={"Authorization": CANARY})
        with pytest.raises(
            McpServerError, match=r"'web' \(http.*key=\*\*\*\) failed: .* \(HTTP 401 .*check its URL"
        ) as caught:
            async with shimmed(server):
                pass
    assert "canary" not in f"{caught.value!r} {caught.value.__cause__!r} {server!r}"


async def test_a_session_that_the_server_forgot_is_renewed():
    """The call says that it was not run, which is so; the next turn has a new session."""
    async with web_server() as (web, url), shimmed(HttpServer("web", url)) as run:
        web.sessions.clear()
        never = await run.call("work")
        assert str(never.content).startswith("Error: 'work' was not run")
        assert web.ran == []
        await run.turn()
        assert (await run.call("work")).content == "in s2"


async def test_a_connection_that_breaks_in_a_call_leaves_its_outcome_unknown():
    """The server has run the tool, or not: the model is told that nobody knows, and the next turn goes on."""
    async with web_server() as (web, url), shimmed(HttpServer("web", url)) as run:
        web.breaks = True
        lost = await run.call("work")
        assert str(lost.content).endswith("the outcome is unknown.")
        assert web.ran == ["s1"]
        web.breaks = False
        await run.turn()
        assert (await run.call("work")).outcome == "ok"


async def test_a_server_that_does_not_part_is_left():
    """Closing does not wait long for a server that never answers the farewell, nor is its run any later."""
    async with web_server() as (web, url):
        async with shimmed(HttpServer("web", url)) as run:
            web.hangs = True
            assert (await run.call("work")).outcome == "ok"
            began = asyncio.get_running_loop().time()
        assert 1 < asyncio.get_running_loop().time() - began < 4


async def test_nobody_listens():
    """A URL where nothing is says so, with what to check."""
    with pytest.raises(McpServerError, match=r"'web' .* failed: ConnectError: .*check its URL and headers"):
        async with shimmed(HttpServer("web", "http://127.0.0.1:9/mcp")):
            pass


async def test_what_a_process_writes_to_its_error_stream_is_logged_without_secrets(caplog: pytest.LogCaptureFixture):
    """It goes to our logger at DEBUG, not to the terminal."""
    caplog.set_level(logging.DEBUG, "isthmus.harness.mcp")
    with pytest.raises(McpServerError):
        async with shimmed(odd("exit", env={"API_TOKEN": "hunter22"})):
            pass
    said = [record for record in caplog.records if "no licence" in record.getMessage()]
    assert {(record.levelname, record.getMessage()) for record in said} == {("DEBUG", "odd: no licence for ***")}


async def test_the_loop_goes_on_while_a_server_starts():
    """Loading the library, which takes a second, and starting a process block nobody."""
    late = 0.0
    loop = asyncio.get_running_loop()

    async def clock() -> None:
        nonlocal late
        while True:
            before = loop.time()
            await asyncio.sleep(0.01)
            late = max(late, loop.time() - before)

    ticking = asyncio.ensure_future(clock())
    async with shimmed(odd()):
        pass
    ticking.cancel()
    assert late < 0.5


async def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """A run without the library fails with what to install; making a shim does not."""
    monkeypatch.setitem(sys.modules, "mcp.client.stdio", None)
    with pytest.raises(MissingDependencyError, match=r"isthmus\[mcp\]"):
        async with shimmed(odd(), odd(name="two")):
            pass


def test_the_library_is_not_loaded_before_it_is_needed():
    """Importing the harness and making a shim load neither the library nor its HTTP client."""
    code = (
        "import sys; from isthmus.harness import McpShim, StdioServer; McpShim(StdioServer('a', 'x'));"
        "print([name for name in ('mcp', 'httpx2', 'anyio', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
