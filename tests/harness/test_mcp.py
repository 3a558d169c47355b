"""Runs with the tools of real MCP servers on stdio, driven by hand."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.harness import McpServerError, McpShim, StdioServer, ToolNameCollisionError
from isthmus.models.tools import Tool
from support.mcp_runs import driven, gone_soon, lives, odd, shimmed

UNKNOWN = "the outcome is unknown."


def own(name: str) -> Tool:
    """A tool of the agent itself."""
    return Tool(name=name, handler=lambda args: "own")


async def pid(run: Any, tool: str = "pid") -> int:
    """The process of the odd server."""
    return int((await run.call(tool)).content)


async def test_a_server_of_the_older_protocol():
    """It is spoken to in its own version; changes, pages, calls and cancellation work there too."""
    async with shimmed(odd("pages")) as run:
        names = [tool.name for tool in run.tools.normalized_tools]
        assert names == ["pid", "hang", "die", "grow", "cancelled", "refuse", "lie", "bounded"]
        await run.call("grow")
        assert await run.turn() == [*names, "grown8"]
        hang = asyncio.ensure_future(run.call("hang"))
        await asyncio.sleep(0.1)
        hang.cancel()
        await asyncio.wait((hang,))
        async with asyncio.timeout(5):
            while (await run.call("cancelled")).content == "[]":
                await asyncio.sleep(0.01)


async def test_a_schema_is_passed_on_unchanged():
    """Whatever a schema holds reaches the request as it is, with the title where there is no description."""
    async with shimmed(odd(allow=["bounded"])) as run:
        (tool,) = run.tools.normalized_tools
        assert tool.schema == {
            "name": "bounded",
            "description": "Bounded",
            "parameters": {
                "type": "object",
                "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "x-own": 1.5}},
            },
            "strict": False,
        }


async def test_an_odd_tool_is_left_out_and_the_rest_offered(caplog: pytest.LogCaptureFixture):
    """A tool without a name and a second one of a name are left out, with a warning; long names are for the codecs."""
    async with shimmed(odd("odd-tools", deny=["grow", "shrink"])) as run:
        names = [tool.name for tool in run.tools.normalized_tools]
        assert names == ["pid", "hang", "die", "cancelled", "refuse", "lie", "bounded", "s" * 80 + ".dotted"]
        assert await pid(run)
    assert "a tool is left out: tool ''" in caplog.text
    assert "two tools 'pid'" in caplog.text
    assert "no tool 'shrink', which allow or deny names" in caplog.text


async def test_one_process_serves_all_runs_until_the_shim_is_closed():
    """Runs side by side and one after another share the process; closing ends it; a later run has another."""
    shim = McpShim(odd())
    async with driven(shim) as one, driven(shim) as two:
        first = await pid(one)
        assert await pid(two) == first
    async with driven(shim) as three:
        assert await pid(three) == first
    await shim.aclose()
    assert not lives(first)
    async with driven(shim) as four:
        assert await pid(four) != first
    await shim.aclose()
    await shim.aclose()


async def test_servers_with_tools_of_one_name_need_a_prefix():
    """Two tools of one name are an error that names server, tool and remedy; with a prefix both are there."""
    with pytest.raises(ToolNameCollisionError, match="'two': there is another tool 'pid': give the server a prefix="):
        async with shimmed(odd(name="one"), odd(name="two")):
            pass
    async with shimmed(odd(name="one"), odd(name="two", prefix="two_", deny=["die"])) as run:
        assert await pid(run) != await pid(run, "two_pid")
        assert "two_die" not in await run.turn()
        with pytest.raises(ToolNameCollisionError, match="'two_pid'"):
            await run.turn(own("two_pid"))


async def test_a_list_that_never_comes_holds_no_run_up(caplog: pytest.LogCaptureFixture):
    """A server that tells of a change and lists no tools keeps those that it had, until it tells of another."""
    async with shimmed(odd("hushed")) as run:
        names = [tool.name for tool in run.tools.normalized_tools]
        link = run.bound._held["odd"]  # type: ignore[attr-defined]
        link.server = replace(link.server, start_timeout=0.5)
        await run.call("grow")
        async with asyncio.timeout(5):
            assert await run.turn() == names
        assert "did not list them within 0.5s" in caplog.text
        before = asyncio.get_running_loop().time()
        assert await run.turn() == names
        assert asyncio.get_running_loop().time() - before < 0.4
        await run.call("grow")
        assert await run.turn() == [*names, "grown8", "grown9"]


async def test_calls_in_flight_when_a_server_dies_have_an_unknown_outcome():
    """Each is answered so; a call after it is not run; the next turn has the server again, in a new process."""
    async with shimmed(odd()) as run, driven(run.shim) as other:
        first = await pid(run)
        results = await run.calls(("hang", {}), ("die", {}))
        assert all(str(result.content).endswith(UNKNOWN) for result in results), results
        assert {result.outcome for result in results} == {"error"}
        after = await run.call("pid")
        remedy = "it is started again before your next turn"
        assert after.content == f"Error: 'pid' was not run: MCP server 'odd' is gone; {remedy}."
        await run.turn()
        await other.turn()
        second = await pid(run)
        assert second != first
        assert await pid(other) == second


async def test_a_server_that_dies_twice_in_a_run_ends_it():
    """The second death is an error at the next turn; the next run starts it again."""
    async with shimmed(odd()) as run:
        await run.call("die")
        await run.turn()
        await run.call("die")
        with pytest.raises(McpServerError, match=r"'odd' .* went away; .*second time in this run"):
            await run.turn()
        async with driven(run.shim) as later:
            assert await pid(later)


CANNOT: dict[str, tuple[Any, str]] = {
    "no program": (StdioServer("bad", "/no/such/program"), "cannot be started: there is no such program"),
    "ends": (
        odd("exit", name="bad", env={"API_TOKEN": "hunter22"}),
        r"ended before it answered; it said: no licence for \*\*\*",
    ),
    "silent": (odd("silent", name="bad", start_timeout=0.3), r"did not answer within 0.3s"),
    "no object": (odd("no-object", name="bad"), "tools.8.inputSchema.type Input should be 'object'"),
    "endless": (odd("endless", name="bad"), "more than 200 pages"),
}


@pytest.mark.parametrize("case", CANNOT)
async def test_a_server_that_cannot_start_fails_the_run_and_the_others_are_closed(case: str, tmp_path: Path):
    """The error names server, program and what it said, without secrets; the server that had started has ended."""
    server, told = CANNOT[case]
    noted = tmp_path / "pid"
    good = StdioServer("good", "/bin/sh", args=["-c", f"echo $$ > {noted}; exec {odd().command} -S {odd().args[1]}"])
    with pytest.raises(McpServerError, match=f"^MCP server 'bad' \\(.*{told}") as caught:
        async with shimmed(good, server):
            pass
    assert "hunter22" not in repr((caught.value, caught.value.__cause__))
    assert server.command in str(caught.value)
    if noted.exists():
        assert not lives(int(noted.read_text()))


async def test_a_failing_start_leaves_what_other_runs_use():
    """A server that serves another run goes on when a run beside it cannot begin."""
    shim = McpShim(odd(), flaky := odd("exit", name="flaky"))
    good = McpShim(odd())
    async with driven(good) as run:
        first = await pid(run)
        shim._pool = good._pool
        good._pool.servers = (*good._pool.servers, flaky)
        with pytest.raises(McpServerError, match="flaky"):
            async with driven(shim):
                pass
        assert await pid(run) == first
    await good.aclose()


async def test_a_run_that_is_stopped_while_a_server_starts_stops_the_start():
    """Nobody waits for a server that does not answer: cancellation is quick and the process ends."""
    shim = McpShim(odd("silent"))

    async def begin() -> None:
        async with driven(shim):
            pass

    beginning = asyncio.ensure_future(begin())
    await asyncio.sleep(0.5)
    (link,) = [link for links in shim._pool._links.values() for link in links.values()]
    beginning.cancel()
    began = asyncio.get_running_loop().time()
    await asyncio.wait((beginning,))
    assert asyncio.get_running_loop().time() - began < 0.05
    assert beginning.cancelled()
    await shim.aclose()
    assert link.over


async def test_a_shim_that_is_closed_while_a_server_starts_says_so():
    """The run that waits for the server fails, and its error does not blame the server."""
    shim = McpShim(odd("silent"))

    async def begin() -> None:
        async with driven(shim):
            pass

    beginning = asyncio.ensure_future(begin())
    await asyncio.sleep(0.3)
    await shim.aclose()
    with pytest.raises(McpServerError, match="was closed"):
        await beginning


async def test_a_call_may_have_a_limit_of_its_own():
    """After `call_timeout` the server is told to stop and the model that the outcome is unknown."""
    async with shimmed(odd(call_timeout=0.2)) as run:
        late = await run.call("hang")
        assert late.content == f"Error: 'hang' timed out after 0.2s and was told to stop; {UNKNOWN}"
        async with asyncio.timeout(5):
            while (await run.call("cancelled")).content == "[]":
                await asyncio.sleep(0.01)


async def test_errors_of_the_protocol_are_read_by_the_model_without_secrets():
    """A refused call says why; an answer that breaks the tool's own schema says that the tool has run."""
    async with shimmed(odd(env={"API_TOKEN": "hunter22"})) as run:
        assert (await run.call("refuse")).content == "Error: 'refuse' failed: not with ***."
        lie = str((await run.call("lie")).content)
        assert lie.startswith("Error: 'lie' ran, but its answer cannot be used: ")
        assert "'a' is a required property" in lie


async def test_a_forgotten_shim_ends_its_servers():
    """Dropping the last reference to a shim is as good as closing it; a run that is on holds one."""
    async with driven(McpShim(odd())) as run:
        del run.shim
        gc.collect()
        process = await pid(run)
        await run.turn()
    del run
    gc.collect()
    assert await gone_soon(process)
