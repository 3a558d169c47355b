"""A second reading of Bedrock's replies: frames by plain slicing or by botocore, what they hold by plain JSON walks."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from isthmus.wire.frame import Frame
from support.anthropic_walk import message_of
from support.chat_walk import walk as chat_walk

Documents = list[tuple[str, dict[str, Any]]]

OPERATIONS = {
    "bedrock-converse": "Converse",
    "bedrock-converse-stream": "ConverseStream",
    "bedrock-invoke": "InvokeModel",
    "bedrock-invoke-stream": "InvokeModelWithResponseStream",
}


class Said(NamedTuple):
    """What a reply says, as plain values; usage as (uncached input, cache reads, cache writes, output)."""

    text: str
    calls: list[tuple[str, Any]]
    finish: str | None
    usage: tuple[int | None, int | None, int | None, int | None]
    reasoning: str = ""
    content: list[Any] | None = None

    @property
    def output(self) -> int | None:
        """Tokens produced."""
        return self.usage[3]


def message(event: str, payload: Any, kind: str = "event") -> bytes:
    """One message of an event stream, as AWS sends it.

    Args:
        event: its event type, exception type, or error code.
        payload: bytes, or a JSON value.
        kind: "event", "exception" or "error".
    """
    names = {"event": ":event-type", "exception": ":exception-type", "error": ":error-code"}
    headers = {names[kind]: event, ":content-type": "application/json", ":message-type": kind}
    if kind == "error":
        headers = {":error-code": event, ":error-message": str(payload), ":message-type": kind}
        payload = b""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    packed = b""
    for name, value in headers.items():
        text = value.encode()
        packed += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(text)) + text
    prelude = struct.pack(">II", 16 + len(packed) + len(body), len(packed))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    return prelude + packed + body + struct.pack(">I", zlib.crc32(prelude + packed + body))


def chunk(value: Any) -> bytes:
    """One chunk of InvokeModelWithResponseStream."""
    return message("chunk", {"bytes": base64.b64encode(json.dumps(value).encode()).decode()})


def sliced(body: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Headers and payload of each message, by plain slicing and without any check."""
    at = 0
    while at < len(body):
        total, size = struct.unpack(">II", body[at : at + 8])
        headers, packed, here = {}, body[at + 12 : at + 12 + size], 0
        while here < len(packed):
            name = packed[here + 1 : here + 1 + packed[here]].decode()
            here += 2 + packed[here]
            (length,) = struct.unpack(">H", packed[here : here + 2])
            headers[name] = packed[here + 2 : here + 2 + length].decode()
            here += 2 + length
        yield headers, body[at + 12 + size : at + total - 4]
        at += total


def documents(body: bytes, *, stream: bool) -> Documents:
    """The events of a reply, by plain slicing; a whole reply is one without a name."""
    if not stream:
        return [("", json.loads(body))]
    found: Documents = []
    for headers, payload in sliced(body):
        value = json.loads(payload)
        if headers[":event-type"] == "chunk":
            found.append(("", json.loads(base64.b64decode(value["bytes"]))))
        else:
            found.append((headers[":event-type"], value))
    return found


def by_botocore(api: str, body: bytes) -> Documents:
    """The same, by botocore's own parsers and shapes.

    Raises:
        Exception: whatever botocore raises.
    """
    from botocore.parsers import create_parser

    operation = _model().operation_model(OPERATIONS[api])
    shape, parser = operation.output_shape, create_parser("rest-json")
    streamed = api.endswith("-stream")
    reply = {
        "status_code": 200,
        "headers": {},
        "body": _Body(body) if streamed else body,
        "context": {"operation_name": operation.name},
    }
    parsed = parser.parse(reply, shape)
    if not streamed:
        return [("", json.loads(parsed["body"]) if api == "bedrock-invoke" else _plain(parsed))]
    found: Documents = []
    for event in parsed["stream" if "converse" in api else "body"]:
        for name, value in event.items():
            found.append(("", json.loads(value["bytes"])) if name == "chunk" else (name, _plain(value)))
    return found


@cache
def _model() -> Any:
    """Botocore's description of the service: reading it takes a tenth of a second."""
    import botocore.session

    return botocore.session.get_session().get_service_model("bedrock-runtime")


class _Body(io.BytesIO):
    def stream(self) -> Iterator[bytes]:
        """As the HTTP client hands it on."""
        while data := self.read(1024):
            yield data


def _plain(value: Any) -> Any:
    """Botocore decodes base64: it is put back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def read(found: Documents) -> Said:
    """What a reply of these events says, whichever dialect they are in.

    Raises:
        KeyError: it is no reply.
    """
    first = found[0][1]
    if found[0][0] or "output" in first or "messageStart" in first:
        return _converse(found)
    if first.get("type") in ("message", "message_start"):
        return _messages(value for _, value in found)
    if "choices" in first and "text" not in (first["choices"] or [{}])[0]:
        return _chat([value for _, value in found])
    return _texts([value for _, value in found])


def _usage(raw: dict[str, Any]) -> tuple[int | None, int | None, int | None, int | None]:
    read_from = raw.get("cacheReadInputTokens", raw.get("cacheReadInputTokenCount"))
    written = raw.get("cacheWriteInputTokens", raw.get("cacheWriteInputTokenCount"))
    return raw.get("inputTokens"), read_from, written, raw.get("outputTokens")


def _converse(found: Documents) -> Said:
    blocks: dict[int, dict[str, Any]] = {}
    stop, usage = None, {}
    for name, value in found:
        if not name and "output" not in value:
            name = next(key for key in value if not key.startswith("amazon"))
            value = value[name]
        if not name:
            blocks = dict(enumerate(value["output"]["message"]["content"]))
            stop, usage = value["stopReason"], value["usage"]
        elif name == "contentBlockStart":
            blocks[value["contentBlockIndex"]] = {key: dict(held) for key, held in value["start"].items()}
        elif name == "contentBlockDelta":
            _grow(blocks.setdefault(value["contentBlockIndex"], {}), value["delta"])
        elif name == "messageStop":
            stop = value["stopReason"]
        elif name == "metadata":
            usage = value["usage"]
    content = [blocks[index] for index in sorted(blocks)]
    for block in content:
        if isinstance(block.get("toolUse", {}).get("input"), str):
            block["toolUse"]["input"] = json.loads(block["toolUse"]["input"] or "{}")
    used = [block["toolUse"] for block in content if "toolUse" in block]
    calls = [call for call in used if call.get("type") != "server_tool_use"]
    return Said(
        "".join(text_of(block) for block in content),
        [(call["name"], call["input"]) for call in calls],
        stop,
        _usage(usage),
        "".join(block.get("reasoningContent", {}).get("reasoningText", {}).get("text", "") for block in content),
        content,
    )


def text_of(block: dict[str, Any]) -> str:
    """The text of a content block, cited or not."""
    cited = block.get("citationsContent", {}).get("content", [])
    return block.get("text", "") + "".join(part["text"] for part in cited)


def _grow(block: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if name == "text" and "citationsContent" in block:
            block["citationsContent"].setdefault("content", [{"text": ""}])[0]["text"] += value
        elif name == "text":
            block["text"] = block.get("text", "") + value
        elif name == "toolUse":
            block["toolUse"]["input"] = block["toolUse"].get("input", "") + value["input"]
        elif name == "citation":
            said = block.pop("text", None)
            cited = block.setdefault("citationsContent", {"content": [{"text": said}]} if said else {})
            cited.setdefault("citations", []).append(value)
        elif name == "reasoningContent" and "redactedContent" in value:
            block["reasoningContent"] = value
        elif name == "reasoningContent":
            held = block.setdefault("reasoningContent", {}).setdefault("reasoningText", {"text": ""})
            held["text"] += value.get("text", "")
            if "signature" in value:
                held["signature"] = value["signature"]
        else:
            block[name].setdefault("content", []).extend(value)


def _messages(values: Iterable[dict[str, Any]]) -> Said:
    message = message_of([Frame(json.dumps(value).encode()) for value in values])
    usage, content = message["usage"], message["content"]
    return Said(
        "".join(block["text"] for block in content if block["type"] == "text"),
        [(block["name"], block["input"]) for block in content if block["type"] == "tool_use"],
        message["stop_reason"],
        (
            usage.get("input_tokens"),
            usage.get("cache_read_input_tokens"),
            usage.get("cache_creation_input_tokens"),
            usage.get("output_tokens"),
        ),
        "".join(block["thinking"] for block in content if block["type"] == "thinking"),
        content,
    )


def _chat(values: list[dict[str, Any]]) -> Said:
    stream = "object" not in values[0] or values[0]["object"] == "chat.completion.chunk"
    counted = [
        value["amazon-bedrock-invocationMetrics"] for value in values if "amazon-bedrock-invocationMetrics" in value
    ]
    values = [value for value in values if "choices" in value]
    body = b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)
    said = chat_walk(body if stream else json.dumps(values[0]).encode(), stream=stream)
    output = said.output if said.output is not None or not counted else counted[-1]["outputTokenCount"]
    return Said(said.text, said.calls, said.finish, (None, None, None, output))


def _texts(values: list[dict[str, Any]]) -> Said:
    text, stop, output = "", None, None
    for value in values:
        held = value
        for name in ("outputs", "results", "generations", "completions", "choices"):
            held = value[name][0] if isinstance(value.get(name), list) else held
        if held.get("index"):
            continue
        data = held.get("data", held)
        found = [data[name] for name in ("outputText", "generation", "completion", "text") if name in data]
        if not found and "finish_reason" not in held:
            raise KeyError("no text")
        text += (found or [""])[0]
        reasons = [held.get(name) for name in ("completionReason", "stop_reason", "finish_reason")]
        reasons.append((held.get("finishReason") or {}).get("reason"))
        stop = next((reason for reason in reasons if reason), stop)
        if value.get("amazon-bedrock-guardrailAction") == "INTERVENED":
            stop = "guardrail_intervened"
        counted = value.get("amazon-bedrock-invocationMetrics") or {}
        counts = (
            counted.get("outputTokenCount"),
            value.get("totalOutputTextTokenCount"),
            held.get("tokenCount"),
            value.get("generation_token_count"),
            (value.get("usage") or {}).get("completion_tokens"),
        )
        output = next((int(count) for count in counts if count is not None), output)
    return Said(text, [], stop, (None, None, None, output))
