"""What the span of a tool says of the MCP call behind it: one span for both, as the OpenTelemetry conventions ask.

The trace's own context goes to the server by the library, in `_meta` of the request.
Source: the conventions for MCP of OpenTelemetry's repository for generative AI, 2026-11.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from isthmus.harness.mcpservers import HttpServer, McpServer
from isthmus.observability.facts import server as host_of
from isthmus.observability.scope import current

_CALL = "tools/call"


def tell(facts: Mapping[str, Any]) -> None:
    """Say this of the tool that runs here; nothing happens where nobody listens."""
    op = current()
    if op is not None and not op.over:
        op.facts = {**op.facts, **facts}


def facts_of(server: McpServer, *, version: str) -> dict[str, Any]:
    """What is known of a call before it is made.

    Args:
        server: which server is asked.
        version: of the protocol, as agreed with it.
    """
    facts: dict[str, Any] = {"mcp.method.name": _CALL, "mcp.protocol.version": version}
    if isinstance(server, HttpServer):
        return {**facts, "network.transport": "tcp", "network.protocol.name": "http", **host_of(server.place)}
    return {**facts, "network.transport": "pipe"}


def refusal_of(error: BaseException) -> Mapping[str, Any]:
    """The code of an answer that was an error of the protocol; nothing where none came."""
    code = getattr(error.__cause__, "code", None)
    return {} if code is None else {"error.type": str(code), "rpc.response.status_code": str(code)}


@asynccontextmanager
async def numbered(transport: Any) -> AsyncGenerator[tuple[Any, Any], None]:
    """A transport that tells the number of each call as it is sent."""
    async with transport as (reads, writes):
        yield reads, _Numbered(writes)


class _Numbered:
    """A stream of messages to a server; the library numbers them, and tells nobody."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _Numbered:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._stream.__aexit__(*raised)

    async def send(self, item: Any) -> None:
        """Send one; it is sent by the task that makes the call."""
        message: Any = getattr(item, "message", None)
        if getattr(message, "method", None) == _CALL:
            tell({"jsonrpc.request.id": str(message.id)})
        await self._stream.send(item)
