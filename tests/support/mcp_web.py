"""An MCP server of the older protocol over HTTP on loopback, with sessions, which can fail as others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web


class Web:
    """What the server does next, and what it has seen.

    Args:
        token: what an Authorization must say; "" for none.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token
        self.sessions: set[str] = set()
        self.opened = self.closed = 0
        self.ran: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.breaks = self.hangs = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if self.token and request.headers.get("Authorization") != self.token:
            return web.Response(status=401, text=f"not {request.headers.get('Authorization')}")
        session = request.headers.get("Mcp-Session-Id", "")
        if request.method == "DELETE":
            self.sessions.discard(session)
            self.closed += 1
            if self.hangs:
                await asyncio.sleep(60)
            return web.Response()
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        self.bodies.append(message)
        method, number = message["method"], message.get("id")
        if method == "initialize":
            self.opened += 1
            session = f"s{self.opened}"
            self.sessions.add(session)
            hello = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            return self._answer(number, {**hello, "serverInfo": {"name": "web", "version": "1"}}, session)
        if session not in self.sessions:
            return web.Response(status=404)
        if number is None:
            return web.Response(status=202)
        if method == "tools/list":
            return self._answer(number, {"tools": [{"name": "work", "inputSchema": {"type": "object"}}]})
        self.ran.append(session)
        if self.breaks and request.transport is not None:
            request.transport.close()
        return self._answer(number, {"content": [{"type": "text", "text": f"in {session}"}]})

    def _answer(self, number: Any, result: dict[str, Any], session: str = "") -> web.Response:
        headers = {"Mcp-Session-Id": session} if session else {}
        return web.json_response({"jsonrpc": "2.0", "id": number, "result": result}, headers=headers)


@asynccontextmanager
async def web_server(token: str = "") -> AsyncIterator[tuple[Web, str]]:
    """The server and its address."""
    made = Web(token)
    app = web.Application()
    app.router.add_route("*", "/mcp", made.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield made, f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()
