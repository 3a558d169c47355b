"""The floor: what reading the same stream costs with aiohttp and nothing but the decoding of its text."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import msgspec

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


class Message(msgspec.Struct):
    content: str | None = None


class WholeChoice(msgspec.Struct):
    message: Message


class Whole(msgspec.Struct):
    choices: list[WholeChoice]


decode = msgspec.json.Decoder(Chunk).decode
decode_whole = msgspec.json.Decoder(Whole).decode


async def stream(session: aiohttp.ClientSession, url: str) -> AsyncIterator[str]:
    async with session.post(url + "/chat/completions", json=BODY, headers={"Authorization": "Bearer k"}) as reply:
        rest = b""
        async for data in reply.content.iter_any():
            *events, rest = (rest + data).split(b"\n\n")
            for event in events:
                payload = event[6:]
                if payload == b"[DONE]":
                    continue
                chunk = decode(payload)
                if chunk.choices and chunk.choices[0].delta.content is not None:
                    yield chunk.choices[0].delta.content


async def whole(session: aiohttp.ClientSession, url: str) -> str | None:
    body = {**BODY, "stream": False}
    async with session.post(url + "/chat/completions", json=body, headers={"Authorization": "Bearer k"}) as reply:
        return decode_whole(await reply.read()).choices[0].message.content
