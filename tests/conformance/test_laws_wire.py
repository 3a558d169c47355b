"""The laws at wire level: our adapters keep them over all recordings, and each can be broken."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall
from isthmus.adapters.bedrock.adapter import BedrockAdapter
from isthmus.adapters.langserve import LangServeAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.openai_responses import OpenAIResponsesAdapter
from isthmus.conformance import conform
from isthmus.errors import tier_error
from isthmus.models.events import Call, CallDelta, Finish, Text
from isthmus.models.fold import consume_stream
from isthmus.models.messages import RESERVED
from isthmus.wire.call import WireCall
from support.corpus import REASON, corpus_root, rows

PIECES = ["Zürich ", "is sunny 🦔, ", "and warm."]


def write(place: Path, body: bytes, *, status: int = 200, stream: bool = True, context: Any = None) -> None:
    """Write one recording."""
    place.mkdir(parents=True)
    request = {"method": "POST", "host": "gateway", "path": "/chat", "body": {"stream": stream, "text": "Play it."}}
    kind = "text/event-stream" if stream else "application/json"
    meta = {"status": status, "headers": [["content-type", kind]], "stream": stream}
    (place / "request.json").write_text(json.dumps(request))
    (place / "response.meta.json").write_text(json.dumps(meta))
    (place / "response.body").write_bytes(body)
    if context is not None:
        (place / "context.json").write_text(json.dumps(context))


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    """Recordings of a gateway of nobody's: lines of JSON, the last one the end."""
    calls = [{"id": "c1", "name": "look_up", "input": {"query": "x"}}]
    text = [{"text": piece} for piece in PIECES]
    lines = [*text, {"end": "stop"}]
    asks = [*text, {"calls": calls, "signature": "s" * 30}, {"end": "tool"}]
    write(tmp_path / "text", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode())
    write(tmp_path / "calls", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in asks).encode())
    write(tmp_path / "busy", b'{"error": "busy"}', status=503, stream=False)
    return tmp_path


def test_a_failure_among_the_recordings_answers_no_ordinary_request(tape: Path) -> None:
    """F01: a recorded stream that was cut, or holds an error, is read as the failure that it is; others are played."""
    write(tape / "a-cut", json.dumps({"text": "Z"}).encode() + b"\n")
    report = judged(Gateway, tape)
    assert report.ok, report.table()
    assert report.standing("wire-reads") == "pass"


class Gateway(ModelAdapter):
    """A right adapter of that gateway, over HTTP, by a client of its own."""

    def __init__(self, *, base_url: str = "http://gateway", api_key: str = "", max_tokens: int = 8192) -> None:
        self.base_url = base_url
        self.max_tokens = max_tokens or 8192
        self._headers = {"authorization": api_key}

    def body(self, messages: Any) -> Any:
        """What is sent."""
        said = [{key: value for key, value in m.items() if key != RESERVED} for m in messages]
        return {"messages": said, "max_tokens": self.max_tokens, "stream": True}

    def _send(self, messages: Any) -> tuple[int, bytes]:
        data = json.dumps(self.body(messages)).encode()
        request = urllib.request.Request(self.base_url + "/chat", data, {**self._headers})
        try:
            with urllib.request.urlopen(request, timeout=5) as reply:
                return reply.status, reply.read()
        except http.client.IncompleteRead as error:
            return 200, error.partial
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def lines(self, body: bytes) -> list[Any]:
        """The lines of a reply."""
        return [json.loads(line) for line in body.decode().splitlines()]

    def failure(self, status: int) -> Exception:
        """What an error status is."""
        return tier_error("unavailable", f"the gateway says {status}", status=status)

    def reply(self, lines: list[Any]) -> Any:
        """The reply of the lines."""
        if not lines or "end" not in lines[-1]:
            raise tier_error("transient", "the stream was cut")
        calls = [ToolCall(**call) for line in lines for call in line.get("calls", ())]
        text = "".join(line.get("text", "") for line in lines)
        raw = {"signature": next((line["signature"] for line in lines if "signature" in line), None)}
        return ChatResponse(text, calls, "tool_use" if calls else "end_turn", raw)

    async def chat(self, messages: Any, tools: Any) -> Any:
        status, body = await asyncio.to_thread(self._send, messages)
        if status != 200:
            raise self.failure(status)
        try:
            lines = self.lines(body)
        except ValueError:
            raise tier_error("transient", "the stream was cut inside a line") from None
        return self.reply(lines)

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        calls = [{"id": c.id, "name": c.name, "input": c.input} for c, _ in results]
        raw = response._raw or {}
        asked = {"role": "assistant", "content": response.text or "", "calls": calls, **raw}
        return [asked, *({"role": "tool", "tool_call_id": c.id, "content": o} for c, o in results)]


def judged(kind: Any, tape: Path) -> Any:
    """The report on an adapter with these recordings."""
    return asyncio.run(conform(kind, recordings=tape, patience=3.0))


def test_a_stranger_with_a_base_url_is_proven_at_wire_level(tape: Path) -> None:
    """An adapter with a client of its own is reached through its base URL, and keeps every law that applies."""
    report = judged(Gateway, tape)
    assert report.ok, report.table()
    kept = [each.id for each in report.laws if each.id.startswith("wire-") and each.status == "pass"]
    assert {"wire-reads", "wire-split", "wire-cut", "wire-whole", "wire-status", "wire-results"} <= set(kept)
    assert {"wire-native", "wire-request"} <= set(kept)


def changed(**methods: Any) -> type:
    """The gateway's adapter with one method replaced."""
    return type("Gateway", (Gateway,), methods)


def _lenient(self: Any, body: bytes) -> list[Any]:
    found = []
    for line in body.decode(errors="ignore").splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return [*found, {"end": "stop"}] if not found or "end" not in found[-1] else found


def _late(self: Any, body: bytes) -> list[Any]:
    raise KeyError("choices")


async def _errors_as_text(self: Any, messages: Any, tools: Any) -> Any:
    status, body = await asyncio.to_thread(self._send, messages)
    return ChatResponse(body.decode(), [], "end_turn") if status != 200 else self.reply(self.lines(body))


def _forgets(self: Any, messages: Any) -> Any:
    return {**Gateway.body(self, messages), "messages": [m for m in messages if m["role"] == "user"]}


def _drops(self: Any, response: Any, results: Any) -> Any:
    turns = Gateway.make_tool_turn(self, response, results)
    return [{key: value for key, value in turn.items() if key != "signature"} for turn in turns]


BROKEN: dict[str, tuple[type, str]] = {
    "a cut taken for the end": (changed(lines=_lenient), "wire-cut"),
    "an error status as text": (changed(chat=_errors_as_text), "wire-status"),
    "results not sent": (changed(body=_forgets), "wire-results"),
    "a signature dropped": (changed(make_tool_turn=_drops), "wire-native"),
    "no ceiling": (changed(body=lambda self, m: {**Gateway.body(self, m), "max_tokens": 1}), "wire-request"),
    "the key in the body": (
        changed(body=lambda self, m: {**Gateway.body(self, m), "key": self._headers["authorization"]}),
        "wire-request",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_break_at_wire_level_is_caught(name: str, tape: Path) -> None:
    """F01, F03, F07, F18, F21: one change in a right adapter is caught by the law that it breaks."""
    kind, law = BROKEN[name]
    report = judged(kind, tape)
    assert law in {finding.law for finding in report.errors}, report.table()


def openai(**parts: Any) -> Callable[..., Any]:
    """Our own adapter with parts of its codec replaced."""

    def make(*, transport: Any, api_key: str = "", max_tokens: int = 100) -> Any:
        adapter = OpenAIChatAdapter("m", transport=transport, api_key=api_key, max_tokens=max_tokens)
        for name, part in parts.items():
            setattr(adapter.codec, name, part(getattr(adapter.codec, name)))  # type: ignore[attr-defined]
        return adapter

    return make


CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n'
CHAT = CHUNK % (b"One ", b"null") + CHUNK % (b"two.", b'"stop"') + b"data: [DONE]\n\n"
EMPTY = {"messages": [{"role": "user", "content": "Play it."}]}


@pytest.fixture
def chat_tape(tmp_path: Path) -> Path:
    """A recording of a Chat Completions stream."""
    write(tmp_path / "text", CHAT)
    return tmp_path


class Lines(ModelAdapter):
    """A right adapter of the gateway over a transport of ours."""

    def __init__(self, *, transport: Any) -> None:
        self.transport = transport

    def frames(self, buffer: bytes, data: bytes) -> tuple[list[bytes], bytes]:
        """The whole lines so far, and what is left."""
        *lines, rest = (buffer + data).split(b"\n")
        return lines, rest

    def event(self, line: Any) -> Any:
        """One line as an event."""
        if "calls" in line:
            return [Call(c["name"], c["input"], c["id"]) for c in line["calls"]]
        return [Text(line["text"])] if "text" in line else [Finish({"tool": "tool-calls"}.get(line["end"], "stop"))]

    async def stream(self, ctx: Any) -> Any:
        call, buffer = WireCall(path="/chat", body=json.dumps([m.get("content") for m in ctx.messages]).encode()), b""
        async with self.transport.open("http://x", call, headers={}) as reply:
            if reply.status != 200:
                raise tier_error("unavailable", "busy", status=reply.status)
            async for data in reply.chunks():
                lines, buffer = self.frames(buffer, data)
                for line in lines:
                    for event in self.event(json.loads(line)):
                        yield event
                        if isinstance(event, Finish):
                            return
        raise tier_error("transient", "the stream was cut")


class Piecewise(Lines):
    """Takes each read for whole lines."""

    def frames(self, buffer: bytes, data: bytes) -> tuple[list[bytes], bytes]:
        return [line for line in data.split(b"\n") if line.endswith(b"}")], b""

    def event(self, line: Any) -> Any:
        return Lines.event(self, line)


class Hasty(Lines):
    """Takes the first end of bytes for the end."""

    async def stream(self, ctx: Any) -> Any:
        try:
            async for event in Lines.stream.__wrapped__(self, ctx):  # type: ignore[attr-defined]
                yield event
        except Exception:
            yield Finish("stop")


class TwoReaders(Lines):
    """Reads whole replies another way."""

    async def generate(self, ctx: Any) -> Any:
        step = await consume_stream(Lines.stream.__wrapped__(self, ctx))  # type: ignore[attr-defined]
        return replace(step, events=step.events[:1]) if len(step.events) == 1 else replace(step, reasoning="Hm.")

    stream = Lines.stream.__wrapped__  # type: ignore[attr-defined]


LINES: dict[str, tuple[type, str]] = {
    "reads taken for lines": (Piecewise, "wire-split"),
    "an end of bytes taken for the end": (Hasty, "wire-cut"),
    "two readers": (TwoReaders, "wire-whole"),
}


class PreviewsOthers(Lines):
    """Previews a call to another tool, in the one reply of many that has two calls."""

    def event(self, line: Any) -> Any:
        twice = len(line.get("calls", ())) > 1
        return [*([CallDelta(0, "c1", "other", "")] if twice else []), *Lines.event(self, line)]


def test_a_rare_reply_is_held_to_the_laws_of_a_stream_too(tape: Path) -> None:
    """F02, F16: what only one recording shows of an adapter's events is found."""
    calls = [{"id": f"c{number}", "name": "look_up", "input": {"query": "x"}} for number in (1, 2)]
    lines = [{"text": "More than the other. " * 9}, {"calls": calls}, {"end": "tool"}]
    write(tape / "twice", "".join(json.dumps(line) + "\n" for line in lines).encode())
    assert judged(Lines, tape).ok
    report = judged(PreviewsOthers, tape)
    assert {finding.law for finding in report.errors} == {"wire-events"}, report.table()


def test_a_stranger_with_a_transport_is_proven_at_wire_level(tape: Path) -> None:
    """An adapter that takes a transport of ours is played to by it, and keeps every law that applies."""
    report = judged(Lines, tape)
    assert report.ok, report.table()
    assert report.standing("wire-releases") == report.standing("wire-split") == "pass"


@pytest.mark.parametrize("name", LINES)
def test_a_break_over_a_transport_is_caught_by_its_law(name: str, tape: Path) -> None:
    """F01, F06, F16: one change in a right adapter is caught by the law that it breaks."""
    kind, law = LINES[name]
    report = judged(kind, tape)
    assert law in {finding.law for finding in report.errors}, report.table()


def test_a_recording_that_cannot_be_read_is_caught(tape: Path) -> None:
    """F04, F12: a recorded success that makes the adapter fail in a way of its own is found."""

    class Unread(Lines):
        def event(self, line: Any) -> Any:
            return [Finish({"stop": "stop"}[line["end"]])] if "end" in line else Lines.event(self, line)

    class Unclear(Lines):
        def event(self, line: Any) -> Any:
            if line.get("end") == "tool":
                raise tier_error("unclassified", "cannot be read")
            return Lines.event(self, line)

    for kind in (Unread, Unclear):
        report = judged(kind, tape)
        assert {finding.law for finding in report.errors} == {"wire-reads"}, report.table()


def test_a_failure_without_a_class_is_read_by_its_providers_code(tape: Path) -> None:
    """F18: what the provider itself names, and no class says, is no recording that cannot be read."""

    class Named(Lines):
        def event(self, line: Any) -> Any:
            if line.get("end") == "tool":
                raise tier_error("unclassified", "cancelled at its provider", code="cancelled")
            return Lines.event(self, line)

    assert "wire-reads" not in {finding.law for finding in judged(Named, tape).errors}


def test_a_request_beside_its_context_is_compared(chat_tape: Path) -> None:
    """A context beside a recording gives the recorded request, or is found."""
    place = chat_tape / "text"
    (place / "context.json").write_text(json.dumps(EMPTY))
    report = judged(openai(), chat_tape)
    assert {finding.law for finding in report.errors} == {"wire-golden"}, report.table()


@pytest.mark.parametrize(("text", "ok"), [("One two.", True), ("One.", False)])
def test_a_result_beside_its_recording_is_compared(text: str, ok: bool, chat_tape: Path) -> None:
    """F16: a recording gives the result beside it, or is found."""
    (chat_tape / "text" / "result.json").write_text(json.dumps({"text": text, "finish": "stop"}))
    report = judged(openai(), chat_tape)
    assert report.ok is ok, report.table()
    assert {finding.law for finding in report.errors} <= {"wire-golden"}


def test_a_connection_that_stays_open_is_caught(chat_tape: Path) -> None:
    """F10: an adapter that opens its transport without a block leaves it open when it is left early."""

    class Leaks(ModelAdapter):
        def __init__(self, *, transport: Any) -> None:
            self.inner = OpenAIChatAdapter("m", api_key="k", transport=transport)
            self.transport = transport

        async def stream(self, ctx: Any) -> Any:
            await self.transport.open(
                "http://x", self.inner.codec.encode(ctx, stream=True).call, headers={}
            ).__aenter__()
            async for event in self.inner.stream(ctx):
                yield event

    report = judged(Leaks, chat_tape)
    assert {finding.law for finding in report.errors} == {"wire-releases"}, report.table()


def test_an_adapter_that_recordings_cannot_reach_is_told_so(chat_tape: Path) -> None:
    """Recordings need a transport or a base URL to come in by."""

    class Closed(ModelAdapter):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return ChatResponse("Hi.", [], "end_turn")

    with pytest.raises(ValueError, match="base_url"):
        judged(Closed, chat_tape)


# Successes that answer nothing: a limit told inside a stream, background replies that have not ended, a deletion, and
# two of another protocol. An ordinary call must get an answer.
NO_REPLIES = ("stream-rate-limited", "background-mode-vcr", "responses-delete", "azure-deepseek-reasoning")


def bedrock(*, transport: Any, api_key: str = "", max_tokens: int = 100) -> Any:
    """An adapter that needs a region."""
    return BedrockAdapter(
        model="m", aws_region="us-east-1", transport=transport, api_key=api_key, max_tokens=max_tokens
    )


@pytest.mark.corpus
@pytest.mark.skipif(corpus_root() is None, reason=REASON)
@pytest.mark.parametrize(
    ("kind", "apis"),
    [
        (OpenAIChatAdapter, ("openai-chat",)),
        (AnthropicAdapter, ("anthropic-messages",)),
        (OpenAIResponsesAdapter, ("openai-responses",)),
        (LangServeAdapter, ("langserve-invoke", "langserve-stream")),
        (bedrock, ("bedrock-converse", "bedrock-converse-stream")),
    ],
)
def test_our_adapters_keep_every_law_over_all_their_recordings(kind: Any, apis: tuple[str, ...]) -> None:
    """F01, F03, F04, F06, F16, F18: no law finds anything in our adapters over any recording of their protocol."""
    root = corpus_root()
    assert root is not None
    found = [row for api in apis for row in rows(api)]
    kept = [root / row.path for row in found if not any(name in row.path for name in NO_REPLIES)]
    report = asyncio.run(conform(kind, recordings=kept))
    assert not report.findings, report.table()
    assert not [each for each in report.laws if each.status == "skip"]
    assert len([each for each in report.laws if each.id.startswith("wire-") and each.status == "pass"]) >= 9
