"""A client made of a bare socket: what arrives, byte for byte, and how it ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

CHAT_PATH = "/v1/chat/completions"
MESSAGES_PATH = "/v1/messages"


@dataclass
class Heard:
    """One reply: `ending` is "framed", "closed", "reset", or "silent" where nothing came for a while."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    ending: str = ""


async def ask(
    url: str, path: str = CHAT_PATH, *, patience: float | None = None, close: bool = False, **asked: Any
) -> Heard:
    """Send a request and read its reply to its end, or for so long that nothing comes for `patience` seconds."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    body = json.dumps(asked).encode()
    lasting = "close" if close else "keep-alive"
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\nconnection: {lasting}\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    heard = Heard()
    try:
        heard.ending = await _read(reader, heard, patience)
    except ConnectionResetError:
        heard.ending = "reset"
    except asyncio.IncompleteReadError as error:
        heard.body += error.partial
        heard.ending = "closed"
    except TimeoutError:
        heard.ending = "silent"
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    return heard


async def _read(reader: asyncio.StreamReader, heard: Heard, patience: float | None) -> str:
    async def some(count: int) -> bytes:
        return await asyncio.wait_for(reader.read(count), patience)

    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
    heard.status = int(start.split(" ")[1])
    heard.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in heard.headers:
        while size := int(await asyncio.wait_for(reader.readuntil(b"\r\n"), patience), 16):
            heard.chunks.append(await reader.readexactly(size))
            heard.body += heard.chunks[-1]
            await reader.readexactly(2)
        await reader.readexactly(2)
        return "framed"
    left = int(heard.headers.get("content-length", 1 << 40))
    while left:
        data = await some(left)
        if not data:
            return "closed"
        heard.body += data
        left -= len(data)
    return "framed"
