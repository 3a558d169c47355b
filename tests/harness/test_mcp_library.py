"""Servers made with the official library: a process on stdio, and one that is reached over HTTP."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack

import pytest
import pytest_asyncio

from isthmus.harness import HttpServer, McpShim
from support.mcp_runs import driven, over_http, real

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("mcp")]
CANARY = "hunter22-4711"


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["stdio", "http"])
async def shim(request: pytest.FixtureRequest) -> AsyncIterator[McpShim]:
    """A shim of one server, which all tests of this file share."""
    with ExitStack() as stack:
        if request.param == "stdio":
            server = real(env={"API_TOKEN": CANARY})
        else:
            server = HttpServer("demo", stack.enter_context(over_http()), headers={"x-api-key": CANARY})
        shim = McpShim(server, most_text=50)
        yield shim
        await shim.aclose()


async def test_tools_are_offered_as_they_are_declared(shim: McpShim):
    """Their names, texts and schemas are the server's own; they are not strict and not retried."""
    async with driven(shim) as run:
        add = next(tool for tool in run.tools.executable_tools if tool.name == "add")
    assert (add.description, add.strict, add.retry_on_timeout) == ("The sum of two integers.", False, False)
    assert add.parameters_schema == {
        "type": "object",
        "properties": {"a": {"title": "A", "type": "integer"}, "b": {"title": "B", "type": "integer"}},
        "required": ["a", "b"],
        "title": "addArguments",
    }


async def test_each_kind_of_result_arrives(shim: McpShim):
    """Numbers of any size are exact, nothing is said twice, images, sounds and files are parts, errors failures."""
    async with driven(shim) as run:
        sum_ = await run.call("add", a=2512292042121000001, b=10**30)
        assert sum_.content == str(2512292042121000001 + 10**30)
        assert (await run.call("cities")).content == "Rome\nOslo"
        everything = (await run.call("everything")).content
        kinds = [part["type"] for part in everything if isinstance(part, dict)]
        assert kinds == ["text", "image_url", "input_audio", "text", "file", "text", "text"]
        long = str((await run.call("long", size=60)).content)
        assert long.endswith("[cut: 50 of 60 characters are shown; ask for less at a time]")
        failed = await run.call("broken", reason="x")
        assert (failed.outcome, failed.content) == ("error", "Error: Error executing tool broken")
        assert (await run.call("add", a=1)).outcome == "invalid-arguments"


async def test_a_cancelled_run_cancels_the_call_at_the_server_and_nothing_else(shim: McpShim):
    """The server's handler is cancelled, at once for the caller; the session serves the other runs as before."""

    async def count(what: str) -> int:
        return int(str((await run.call("count", of=what)).content))

    async with driven(shim) as run, driven(shim) as other:
        cancelled, begun = await count("cancelled"), await count("slow")
        slow = asyncio.ensure_future(run.call("slow", seconds=30))
        beside = asyncio.ensure_future(other.call("slow", seconds=1))
        async with asyncio.timeout(10):
            while await count("slow") < begun + 2:
                await asyncio.sleep(0.01)
        began = asyncio.get_running_loop().time()
        slow.cancel()
        await asyncio.wait((slow,))
        assert asyncio.get_running_loop().time() - began < 0.05
        assert (await beside).content == "done"
        async with asyncio.timeout(10):
            while await count("cancelled") < cancelled + 1:
                await asyncio.sleep(0.01)


async def test_what_a_server_logs_and_reports_goes_to_our_logger(shim: McpShim, caplog: pytest.LogCaptureFixture):
    """Log messages keep their level, progress is DEBUG, and neither shows a secret of the server's settings."""
    caplog.set_level(logging.DEBUG, "isthmus.harness.mcp")
    async with driven(shim) as run:
        await run.call("talk", text=f"the key is {CANARY}")
        await run.call("slow", seconds=0)
    said = {(record.levelname, record.getMessage()) for record in caplog.records}
    assert ("DEBUG", "demo: slow: 1.0 2.0 half way") in said
    assert ("WARNING", "demo: the key is ***") in said
    assert CANARY not in caplog.text


async def test_a_changed_list_is_offered_from_the_next_turn_on(shim: McpShim):
    """A tool that the server adds in a run can be called in the next turn; until then tools stay the same objects."""
    async with driven(shim) as run:
        before = {tool.name for tool in run.tools.normalized_tools}
        await run.call("grow", name="fresh")
        async with asyncio.timeout(10):
            while "fresh" not in await run.turn():
                await asyncio.sleep(0.01)
        assert (await run.call("fresh")).content == "new"
        assert {tool.name for tool in run.tools.normalized_tools} == {*before, "fresh"}
        first = run.tools.normalized_tools
        await run.turn()
        assert [id(tool) for tool in first] == [id(tool) for tool in run.tools.normalized_tools]


async def test_headers_and_variables_reach_the_server(shim: McpShim):
    """A server over HTTP gets the headers; a process gets PATH and the like, what it is given, and nothing of ours."""
    async with driven(shim) as run:
        if isinstance(shim._pool.servers[0], HttpServer):
            assert (await run.call("header", name="x-api-key")).content == CANARY
            return
        variables = set(str((await run.call("variables")).content).split())
    assert {"PATH", "API_TOKEN"} <= variables
    assert not {name for name in variables if name.startswith(("PYTEST", "PYTHON", "ISTHMUS"))}
