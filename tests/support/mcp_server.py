"""An MCP server made with the official library, on stdio; over HTTP with a port as its argument."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==")
).decode()
SOUND = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt ").decode()

app = MCPServer("demo")
seen = {"cancelled": 0, "slow": 0}


@app.tool()
def add(a: int, b: int) -> int:
    """The sum of two integers."""
    return a + b


@app.tool()
def weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "id": 2512292042121000001, "sky": ["blue", "grey"]}


@app.tool()
def cities() -> list[str]:
    """Where there is weather."""
    return ["Rome", "Oslo"]


@app.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Takes its time."""
    seen["slow"] += 1
    try:
        await ctx.report_progress(1, 2, "half way")
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        seen["cancelled"] += 1
        raise
    return "done"


@app.tool()
def count(of: str) -> int:
    """How often something has happened here."""
    return seen[of]


@app.tool()
def variables() -> str:
    """The names of the environment."""
    return " ".join(sorted(os.environ))


@app.tool()
def broken(reason: str) -> str:
    """Fails."""
    raise ValueError(reason)


@app.tool()
async def talk(text: str, ctx: Context) -> str:
    """Logs."""
    await ctx.warning(text)
    return "said"


@app.tool()
def everything() -> CallToolResult:
    """One of each kind of content."""
    text = TextResourceContents(uri="file:///a.txt", text="the file", mime_type="text/plain")
    blob = BlobResourceContents(uri="file:///a.pdf", blob=base64.b64encode(b"%PDF-1.7").decode())
    link = ResourceLink(uri="file:///b.txt", name="b", description="another file", mime_type="text/plain")
    return CallToolResult(
        content=[
            TextContent(text="first"),
            ImageContent(data=PIXEL, mime_type="image/png"),
            AudioContent(data=SOUND, mime_type="audio/wav"),
            EmbeddedResource(resource=text),
            EmbeddedResource(resource=blob),
            link,
        ],
        structured_content={"more": 1},
    )


@app.tool()
def long(size: int) -> str:
    """A text of that many characters."""
    return "x" * size


@app.tool()
def header(name: str, ctx: Context) -> str:
    """A header of the request."""
    return (ctx.headers or {}).get(name, "none")


@app.tool()
async def grow(name: str, ctx: Context) -> str:
    """Adds a tool."""
    app.add_tool(lambda: "new", name=name, description="A new one.")
    await ctx.notify_tools_changed()
    return "grown"


if __name__ == "__main__":
    if len(sys.argv) == 1:
        app.run()
    else:
        app.run("streamable-http", port=int(sys.argv[1]))
