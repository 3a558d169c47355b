"""The floor: what a stream, a reply and a round of tools cost with aiohttp, decoding only what is used."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

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


class Function(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class CallOf(msgspec.Struct):
    id: str = ""
    index: int = 0
    function: Function = msgspec.field(default_factory=Function)


class Said(msgspec.Struct):
    content: str | None = None
    tool_calls: list[CallOf] | None = None


class SaidChoice(msgspec.Struct):
    message: Said | None = None
    delta: Said | None = None


class Reply(msgspec.Struct):
    choices: list[SaidChoice]


decode_reply, encode = msgspec.json.Decoder(Reply).decode, msgspec.json.encode
HEAD = {"Authorization": "Bearer k", "Content-Type": "application/json"}


class ToolLoop:
    """Asks, runs the tools that are asked for, and asks again, until there is an answer."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        tools: list[dict[str, Any]],
        run: Callable[..., Awaitable[object]],
    ) -> None:
        self.session, self.url = session, url + "/chat/completions"
        self.tools, self.tool = tools, run

    async def run(
        self, messages: list[dict[str, Any]], ask: Callable[[list[dict[str, Any]]], Awaitable[Said]]
    ) -> str | None:
        while True:
            said = await ask(messages)
            if not said.tool_calls:
                return said.content
            calls = [
                {"id": each.id, "type": "function", "function": msgspec.to_builtins(each.function)}
                for each in said.tool_calls
            ]
            messages.append({"role": "assistant", "content": said.content, "tool_calls": calls})
            for each in said.tool_calls:
                result = await self.tool(**json.loads(each.function.arguments))
                messages.append({"role": "tool", "tool_call_id": each.id, "content": str(result)})

    async def whole(self, messages: list[dict[str, Any]]) -> Said:
        body = encode({"model": "m", "messages": messages, "tools": self.tools})
        async with self.session.post(self.url, data=body, headers=HEAD) as reply:
            return decode_reply(await reply.read()).choices[0].message or Said()

    async def streamed(self, messages: list[dict[str, Any]]) -> Said:
        body = encode({"model": "m", "messages": messages, "tools": self.tools, "stream": True})
        texts: list[str] = []
        calls: dict[int, CallOf] = {}
        async with self.session.post(self.url, data=body, headers=HEAD) as reply:
            rest = b""
            async for data in reply.content.iter_any():
                *events, rest = (rest + data).split(b"\n\n")
                for event in events:
                    if event[6:] == b"[DONE]":
                        continue
                    for choice in decode_reply(event[6:]).choices:
                        delta = choice.delta or Said()
                        if delta.content:
                            texts.append(delta.content)
                        for each in delta.tool_calls or ():
                            known = calls.setdefault(each.index, each)
                            if known is not each:
                                known.function.arguments += each.function.arguments
        return Said("".join(texts), list(calls.values()) or None)
