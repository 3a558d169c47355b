"""An MCP server of the older protocol in plain JSON-RPC on stdio, which can do what no library would.

Its argument says what is odd: silent, exit, stubborn, endless, odd-tools, no-object, pages, traced, talker, hushed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

ODD = sys.argv[1] if len(sys.argv) > 1 else ""
EMPTY = {"type": "object", "properties": {}}
BOUNDED = {"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "x-own": 1.50}}}

tools: list[dict[str, Any]] = [
    {"name": "pid", "inputSchema": EMPTY},
    {"name": "hang", "inputSchema": EMPTY},
    {"name": "die", "inputSchema": EMPTY},
    {"name": "grow", "inputSchema": EMPTY},
    {"name": "cancelled", "inputSchema": EMPTY},
    {"name": "refuse", "inputSchema": EMPTY},
    {"name": "lie", "inputSchema": EMPTY, "outputSchema": {"type": "object", "required": ["a"]}},
    {"name": "bounded", "title": "Bounded", "inputSchema": BOUNDED},
]
if ODD == "odd-tools":
    tools += [
        {"name": "", "inputSchema": EMPTY},
        {"name": "pid", "description": "another", "inputSchema": EMPTY},
        {"name": "s" * 80 + ".dotted", "inputSchema": EMPTY},
    ]
if ODD == "no-object":
    tools.append({"name": "list", "inputSchema": {"type": "array"}})
if ODD == "traced":
    tools += [{"name": "trace", "inputSchema": EMPTY}, {"name": "fail", "inputSchema": EMPTY}]
cancelled: list[Any] = []
hushed: list[bool] = []


def send(**message: Any) -> None:
    """One message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def listed(params: dict[str, Any]) -> dict[str, Any]:
    """The tools, or a page of them."""
    if ODD == "endless":
        return {"tools": [], "nextCursor": "more"}
    if ODD != "pages":
        return {"tools": tools}
    at = int(params.get("cursor") or 0)
    return {"tools": tools[at : at + 3], **({"nextCursor": str(at + 3)} if at + 3 < len(tools) else {})}


def called(number: Any, params: dict[str, Any]) -> None:
    """Answer a call, or do not."""
    name = params["name"]
    if name == "hang":
        return
    if name == "die":
        os._exit(1)
    if name == "refuse":
        send(id=number, error={"code": -32602, "message": f"not with {os.environ.get('API_TOKEN')}"})
        return
    if name == "grow":
        tools.append({"name": f"grown{len(tools)}", "inputSchema": EMPTY})
        hushed.append(ODD == "hushed")
        send(method="notifications/tools/list_changed")
    texts = {"pid": str(os.getpid()), "cancelled": json.dumps(cancelled), "trace": json.dumps(params.get("_meta"))}
    more: dict[str, Any] = {"lie": {"structuredContent": {}}, "fail": {"isError": True}}.get(name, {})
    send(id=number, result={"content": [{"type": "text", "text": texts.get(name, "done")}], **more})


def answer(message: dict[str, Any]) -> None:
    """Answer one message."""
    number, method, params = message.get("id"), message.get("method"), message.get("params") or {}
    if method == "initialize":
        send(
            id=number,
            result={
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {"listChanged": True}, "logging": {}},
                "serverInfo": {"name": "odd", "version": "1"},
            },
        )
    elif method == "tools/list":
        if hushed == [True]:
            return
        send(id=number, result=listed(params))
    elif method == "tools/call":
        called(number, params)
    elif method == "notifications/cancelled":
        cancelled.append(params["requestId"])
    elif number is not None:
        send(id=number, error={"code": -32601, "message": "Method not found"})


if ODD == "exit":
    print(f"no licence for {os.environ.get('API_TOKEN')}", file=sys.stderr, flush=True)
    sys.exit(2)
if ODD == "talker":
    print("payload-said", file=sys.stderr, flush=True)
if ODD == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    if ODD != "silent":
        answer(json.loads(line))
while ODD == "stubborn":
    time.sleep(1)
