"""A scripted chat server on loopback, in a process of its own, so that its cost is not the client's.

`/fast/…` sends 500 chunks at once, `/paced/…` 60 of them, one every 20 ms, `/slow/…` one chunk and then nothing,
`/one/…` a short reply at once, `/round/…` a call of the tool `double` and, once that is answered, a short reply; any of
them answers whole when the request does not ask for a stream. `/down/…` is 503.
Prints its port, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys

CHUNKS = 500
PACE = 0.02
PACED_CHUNKS = 60
TEXT = " token"


def chunk(text: str | None, finish: str | None = None) -> bytes:
    delta = {"content": text} if text is not None else {}
    body = {
        "id": "chatcmpl-C0ffee0123456789abcdefghij",
        "object": "chat.completion.chunk",
        "created": 1764460800,
        "model": "gpt-4o-mini-2024-07-18",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}],
        "usage": None,
        "obfuscation": "Zx81",
    }
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


USAGE = {"prompt_tokens": 20, "completion_tokens": CHUNKS, "total_tokens": 20 + CHUNKS}
LAST = {"id": "chatcmpl-C0ffee0123456789abcdefghij", "object": "chat.completion.chunk", "created": 1764460800}
LAST |= {"model": "gpt-4o-mini-2024-07-18", "choices": [], "usage": USAGE}
END = [chunk(None, "stop"), b"data: " + json.dumps(LAST, separators=(",", ":")).encode() + b"\n\n", b"data: [DONE]\n\n"]
WHOLE = json.dumps(
    {
        "id": "chatcmpl-C0ffee0123456789abcdefghij",
        "object": "chat.completion",
        "created": 1764460800,
        "model": "gpt-4o-mini-2024-07-18",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT * 40, "refusal": None, "annotations": []},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": USAGE,
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
    },
    separators=(",", ":"),
).encode()


def framed(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
FAST = HEAD + b"".join(map(framed, [chunk(TEXT)] * CHUNKS + END)) + b"0\r\n\r\n"
ONE = HEAD + b"".join(map(framed, [chunk(TEXT), *END])) + b"0\r\n\r\n"
WHOLE_REPLY = (
    f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(WHOLE)}\r\n\r\n".encode() + WHOLE
)
CALL = {"id": "call_0123456789abcdefghijklmn", "type": "function"}
CALL |= {"function": {"name": "double", "arguments": '{"n":21}'}}
CALL_DELTAS: list[dict[str, object]] = [
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"index": 0, **CALL, "function": {"name": "double", "arguments": ""}}],
    },
    *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in ('{"n"', ":21", "}")),
]
WORDS = 8


def changed(delta: object, finish: str | None = None) -> bytes:
    """A chunk with this delta in place of its text."""
    body = json.loads(chunk(None, finish)[6:])
    body["choices"][0]["delta"] = delta
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def whole_round(message: dict[str, object], finish: str) -> bytes:
    """A whole reply with this message."""
    body = json.loads(WHOLE)
    body["choices"][0] |= {"message": {"role": "assistant", **message}, "finish_reason": finish}
    data = json.dumps(body, separators=(",", ":")).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


ROUND_CALL = (
    HEAD + b"".join(map(framed, [*map(changed, CALL_DELTAS), changed({}, "tool_calls"), *END[1:]])) + b"0\r\n\r\n"
)
ROUND_TEXT = HEAD + b"".join(map(framed, [chunk(TEXT)] * WORDS + END)) + b"0\r\n\r\n"
ROUND_WHOLE_CALL = whole_round({"content": None, "tool_calls": [CALL]}, "tool_calls")
ROUND_WHOLE_TEXT = whole_round({"content": TEXT * WORDS}, "stop")
DOWN_BODY = b'{"error":{"message":"The server is overloaded","type":"server_error","param":null,"code":null}}'
DOWN = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(DOWN_BODY)
    + DOWN_BODY
)
PACED = framed(chunk(TEXT))


class Server(asyncio.Protocol):
    open_now = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.buffer = b""
        self.timer: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self.timer:
            self.timer.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, rest = self.buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = next(
            (int(v) for k, _, v in (h.partition(b":") for h in head.split(b"\r\n")) if k.lower() == b"content-length"),
            0,
        )
        if len(rest) < length:
            return
        body, self.buffer = rest[:length], rest[length:]
        self.answer(head.split(b" ")[1].split(b"/")[1].decode(), body)

    def answer(self, mode: str, body: bytes) -> None:
        if mode == "down":
            self.transport.write(DOWN)
        elif mode == "round":
            plain = body.replace(b" ", b"")
            streamed, answered = b'"stream":true' in plain, b'"role":"tool"' in plain
            replies = (ROUND_CALL, ROUND_TEXT) if streamed else (ROUND_WHOLE_CALL, ROUND_WHOLE_TEXT)
            self.transport.write(replies[answered])
        elif b'"stream":true' not in body.replace(b" ", b""):
            self.transport.write(WHOLE_REPLY)
        elif mode in ("fast", "one"):
            self.transport.write(FAST if mode == "fast" else ONE)
        else:
            self.transport.write(HEAD + PACED)
            if mode == "paced":
                self.left = PACED_CHUNKS - 1
                self.timer = asyncio.get_running_loop().call_later(PACE, self.tick)

    def tick(self) -> None:
        if self.left:
            self.left -= 1
            self.transport.write(PACED)
            self.timer = asyncio.get_running_loop().call_later(PACE, self.tick)
        else:
            self.transport.write(b"".join(map(framed, END)) + b"0\r\n\r\n")


def allow_files(wanted: int = 4096) -> None:
    """Let this process have that many sockets open, as far as its hard limit goes; the usual soft one is 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    most = wanted if hard == unlimited else min(wanted, hard)
    if soft != unlimited and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Server, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    allow_files()
    try:
        import uvloop

        uvloop.run(main())
    except ImportError:
        asyncio.run(main())
