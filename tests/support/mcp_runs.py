"""Runs with an MCP shim, driven by hand, and the servers that they use."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from isthmus.harness import BoundShim, McpShim, PreparedTurn, RunIdentity, StdioServer, ToolResult, TurnState
from isthmus.models.events import Call
from isthmus.models.executor import ToolExecutor
from isthmus.models.tools import Tool, Tools

HERE = Path(__file__).parent
REAL, ODD = str(HERE / "mcp_server.py"), str(HERE / "mcp_odd.py")


def real(name: str = "demo", **settings: Any) -> StdioServer:
    """The server made with the official library, as a process."""
    return StdioServer(name, sys.executable, args=["-W", "ignore", REAL], **settings)


def odd(what: str = "", *, name: str = "odd", **settings: Any) -> StdioServer:
    """The server in plain JSON-RPC, as a process."""
    return StdioServer(name, sys.executable, args=["-S", ODD, what], **settings)


class Driven:
    """A run driven by hand."""

    def __init__(self, shim: McpShim) -> None:
        self.shim = shim
        self.bound = BoundShim()
        run = RunIdentity(agent="agent", task_id="1", metadata={})
        self.state = TurnState(run=run, history=(), shim_state={})
        self.tools = Tools()

    async def turn(self, *own: Tool) -> list[str]:
        """Prepare a turn of an agent that has tools of its own; the names of all."""
        turn = PreparedTurn(run_state=self.state, tools=Tools(tools=own, parallel_tool_calls=True))
        await self.bound.prepare_turn(turn)
        self.tools = turn.tools
        return [tool.name for tool in turn.tools.normalized_tools]

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        """Call a tool as a loop does."""
        (result,) = await self.calls((tool, arguments))
        return result

    async def calls(self, *given: tuple[str, dict[str, Any]]) -> list[ToolResult]:
        """Call tools side by side."""
        made = [
            Call(tool=tool, input=arguments, call_id=str(number), arguments=json.dumps(arguments))
            for number, (tool, arguments) in enumerate(given)
        ]
        return [result async for result in ToolExecutor().results(made, tools=self.tools)]


@asynccontextmanager
async def driven(shim: McpShim) -> AsyncIterator[Driven]:
    """A run, begun and with its first turn prepared."""
    run = Driven(shim)
    run.bound = await shim.bind(run.state.run)
    try:
        await run.bound.on_run_start(run.state, {})
        await run.turn()
        yield run
    finally:
        await run.bound.on_run_end(run.state, {})


@asynccontextmanager
async def shimmed(*servers: Any, **settings: Any) -> AsyncIterator[Driven]:
    """A run of a shim of its own, which is closed afterwards."""
    shim = McpShim(*servers, **settings)
    try:
        async with driven(shim) as run:
            yield run
    finally:
        await shim.aclose()


def lives(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Whether a process ends within that time."""
    until = time.monotonic() + seconds
    while lives(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


async def gone_soon(pid: int, seconds: float = 5.0) -> bool:
    """The same, with the loop going on."""
    until = asyncio.get_running_loop().time() + seconds
    while lives(pid):
        if asyncio.get_running_loop().time() > until:
            return False
        await asyncio.sleep(0.01)
    return True


@contextmanager
def over_http() -> Iterator[str]:
    """The address of the server made with the official library, as a process that listens on loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", REAL, str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ))
    try:
        for _ in range(1_000):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        server.kill()
        server.wait()
