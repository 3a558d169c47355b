"""The adapter as a whole, over real sockets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any

import pytest

from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ModelCapabilities
from isthmus.errors import CredentialsError, TransientError, UnavailableError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text
from isthmus.models.fold import consume_stream
from support.anthropic_corpus import frames, is_document, load, need_rows
from support.anthropic_fold import decode, head, sse, start, stop, tail, user
from support.anthropic_walk import walk

ASK = GenerateContext(messages=(user("Hello"),))
KEY = "sk-test-0123456789-canary"
HELLO = [head(), start(0, {"type": "text", "text": "Hello"}), stop(0), *tail()]


def streamed(*events: dict[str, Any]) -> bytes:
    """The bytes of a stream of these events."""
    return b"".join(b"event: %s\ndata: %s\n\n" % (f.event.encode(), f.data) for f in sse(*events))


class Server:
    """Answers each request on a socket with one prepared reply, and remembers what was asked."""

    def __init__(self, status: int, kind: str, body: bytes, *, cut: bool = False) -> None:
        self.status, self.kind, self.body, self.cut = status, kind, body, cut
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.left = asyncio.Event()
        self.hold = False
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                top = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(top)
                length = next(int(line[15:]) for line in top.lower().splitlines() if line.startswith("content-length:"))
                self.bodies.append(await reader.readexactly(length))
                size = len(self.body) + (7 if self.cut else 0)
                extra = 1_000_000 if self.hold else 0
                line = (
                    f"HTTP/1.1 {self.status} X\r\ncontent-type: {self.kind}\r\ncontent-length: {size + extra}\r\n\r\n"
                )
                writer.write(line.encode() + self.body)
                await writer.drain()
                if self.cut:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
        finally:
            writer.close()


@asynccontextmanager
async def serving(server: Server):
    """A server on a free port for the length of a block."""
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listening.close()


def adapter(server: Server, **settings: Any) -> AnthropicAdapter:
    """An adapter that calls this server."""
    return AnthropicAdapter(**{"model": "m", "api_key": KEY, "base_url": server.url, **settings})


async def test_a_streamed_reply_over_a_socket():
    """Request line, headers and body are the API's; the events are the reply's; the key shows nowhere."""
    async with (
        serving(Server(200, "text/event-stream", streamed(*HELLO))) as server,
        adapter(server, betas=("b-1",), headers={"x-team": "t"}, max_tokens=99) as model,
    ):
        events = [event async for event in model.stream(ASK)]
    assert [type(event) for event in events] == [Text, Finish]
    top = server.heads[0].lower()
    assert top.startswith("post /v1/messages http/1.1")
    for line in (f"x-api-key: {KEY}", "anthropic-version: 2023-06-01", "anthropic-beta: b-1", "x-team: t"):
        assert line in top
    body = json.loads(server.bodies[0])
    assert (body["model"], body["max_tokens"], body["stream"]) == ("m", 99, True)
    assert KEY not in repr(model) + repr(vars(model))


async def test_a_whole_reply_over_a_socket():
    """`generate` asks without a stream, and reads the message that comes."""
    message = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn", "usage": {}}
    async with (
        serving(Server(200, "application/json", json.dumps(message).encode())) as server,
        adapter(server) as model,
    ):
        step = await model.generate(ASK)
    assert (step.text, step.finish) == ("Hi", "stop")
    assert "stream" not in json.loads(server.bodies[0])


async def test_a_connection_lost_before_the_end_mark_is_transient():
    """F01: a body that stops short of its length is a transient error, with nothing of it kept as an answer."""
    async with (
        serving(Server(200, "text/event-stream", streamed(*HELLO[:1]), cut=True)) as server,
        adapter(server) as model,
    ):
        with pytest.raises(TransientError):
            await consume_stream(model.stream(ASK))


async def test_a_status_is_classified_and_the_key_taken_out():
    """F18: an error status is its class; a key that the server repeats is not in the error."""
    error = {"type": "error", "error": {"type": "authentication_error", "message": f"invalid x-api-key {KEY}"}}
    async with serving(Server(401, "application/json", json.dumps(error).encode())) as server, adapter(server) as model:
        with pytest.raises(CredentialsError) as caught:
            await model.generate(ASK)
    assert KEY not in str(caught.value) + repr(caught.value.body)
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    async with serving(Server(529, "application/json", json.dumps(error).encode())) as server, adapter(server) as model:
        with pytest.raises(UnavailableError):
            await consume_stream(model.stream(ASK))


async def test_leaving_a_stream_early_closes_the_socket():
    """F10: a break after the first event lets the server see the connection go."""
    server = Server(200, "text/event-stream", streamed(*HELLO[:2]))
    server.hold = True
    async with serving(server), adapter(server) as model:
        async for _ in model.stream(ASK):
            break
        await asyncio.wait_for(server.left.wait(), 5)


async def test_the_environments_key_goes_to_its_own_host_only(monkeypatch):
    """A key from the environment is not sent elsewhere, and a server of one's own needs none."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    async with (
        serving(Server(200, "text/event-stream", streamed(*HELLO))) as server,
        AnthropicAdapter(model="m", base_url=server.url) as model,
    ):
        assert (await consume_stream(model.stream(ASK))).text == "Hello"
    assert KEY not in server.heads[0]


@pytest.mark.parametrize(
    ("model", "limits", "facts"),
    [
        ("claude-opus-4-8", None, (True, False, True)),
        ("claude-sonnet-5", None, (True, True, True)),
        ("claude-opus-5", None, (True, True, True)),
        ("claude-fable-5", None, (True, True, False)),
        ("claude-haiku-4-5", None, (False, False, True)),
        ("claude-sonnet-5", {"claude": {"thinking_default_on": False}}, (True, False, True)),
        ("unknown", None, (True, False, True)),
    ],
)
def test_what_is_known_of_a_model_and_what_a_table_says(model, limits, facts):
    """Seed 000: each family's thinking is known; the table of limits goes before it."""
    made = AnthropicAdapter(model=model, api_key="k", model_limits=limits).capabilities()
    assert isinstance(made, ModelCapabilities)
    assert (made.adaptive_thinking, made.thinking_default_on, made.thinking_disable) == facts


def test_off_reaches_the_wire_as_the_family_needs_it():
    """Seed 000: off sends nothing on Opus 4.8, an explicit disabled on Sonnet 5, effort low on Fable."""
    sent = {}
    for model in ("claude-opus-4-8", "claude-sonnet-5", "claude-fable-5"):
        made = AnthropicAdapter(model=model, api_key="k")._encode(ASK, stream=False)
        body = json.loads(made.call.body)
        sent[model] = (body.get("thinking"), body.get("output_config"))
    assert sent == {
        "claude-opus-4-8": (None, None),
        "claude-sonnet-5": ({"type": "disabled"}, None),
        "claude-fable-5": ({"type": "adaptive"}, {"effort": "low"}),
    }


def test_identity_and_ceiling():
    """The adapter is `anthropic:MODEL`, with a ceiling of 8192 unless it was given one; falsy is not given."""
    made = AnthropicAdapter(model="m", api_key="k", max_tokens=0)
    assert (made.id, made.max_tokens, made.max_output_tokens) == ("anthropic:m", 8192, 8192)


async def test_a_tool_turn_through_the_chat_face_keeps_the_thinking():
    """F03, seed 000: chat, make_tool_turn, chat: the signed thinking stands before the call in the next request."""
    thinking = {"type": "thinking", "thinking": "Hm", "signature": "S=="}
    use = {"type": "tool_use", "id": "toolu_9", "name": "get_weather", "input": {"city": "Rome"}}
    events = [head(), start(0, thinking), stop(0), start(1, use), stop(1), *tail("tool_use")]
    tools = [{"name": "get_weather", "description": "Weather.", "input_schema": {"type": "object"}}]
    messages = [user("Rome?")]
    async with (
        serving(Server(200, "text/event-stream", streamed(*events))) as server,
        adapter(server, cache_markers=False) as model,
    ):
        reply = await model.chat(messages, tools)
        turn = model.make_tool_turn(reply, [(reply.tool_calls[0], "24 C")])
        await model.chat([*messages, *turn], tools)
    assert (reply.stop_reason, reply.tool_calls[0].input) == ("tool_use", {"city": "Rome"})
    body = json.loads(server.bodies[-1])
    assert body["messages"][1] == {"role": "assistant", "content": [thinking, use]}
    assert body["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "toolu_9", "content": "24 C"}]
    assert body["tools"] == tools


@pytest.mark.corpus
async def test_recorded_streams_over_a_socket():
    """A sample of recorded bodies, served over a real socket, gives what a second reading says."""
    taken = [row for row in need_rows() if row.status == 200][::12]
    for row in taken:
        body = load(row).body
        kind = "application/json" if is_document(body) else "text/event-stream"
        async with serving(Server(200, kind, body)) as server, adapter(server) as model:
            step = await consume_stream(model.stream(ASK))
        assert (step.text, step.raw_reason) == (walk(frames(body)).text, walk(frames(body)).stop_reason), row.path
        assert step.finish == decode(frames(body), whole=is_document(body))[-1].finish
