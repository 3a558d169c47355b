"""The codec: requests, names and error replies."""

from __future__ import annotations

import json

import pytest

from isthmus.adapters.openai_responses import OpenAIResponsesAdapter
from isthmus.adapters.openai_responses.codec import ResponsesCodec
from isthmus.adapters.registry import load_adapter, provider_of
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.wire.call import Ended, WireReply
from isthmus.wire.frame import Frame
from support.responses_frames import body, call, response

CTX = GenerateContext(messages=({"role": "user", "content": "Hi"},))


def test_streamed_and_whole_requests_differ_in_one_member() -> None:
    """One builder makes both (F16)."""
    adapter = OpenAIResponsesAdapter("m", api_key="k", system="Be brief.", effort="low", temperature=0.5)
    one, other = adapter._encode(CTX, stream=True).call, adapter._encode(CTX, stream=False).call
    assert (one.method, one.path, one.stream, other.stream) == ("POST", "/responses", True, False)
    assert json.loads(one.body) == {**json.loads(other.body), "stream": True}
    assert json.loads(other.body)["instructions"] == "Be brief."


def test_the_contexts_own_settings_come_first() -> None:
    """The adapter's are for where the request says nothing."""
    adapter = OpenAIResponsesAdapter("m", api_key="k", system="A", effort="low", temperature=0.5, max_tokens=9)
    ctx = GenerateContext(brief="B", effort="high", temperature=0.0, max_output_tokens=5)
    sent = json.loads(adapter._encode(ctx, stream=False).call.body)
    assert sent["instructions"] == "B"
    assert sent["reasoning"] == {"effort": "high"}
    assert sent["temperature"] == 0.0
    assert sent["max_output_tokens"] == 5


def test_a_name_comes_back_as_its_own() -> None:
    """What was declared under a legal name is called by its own (F26)."""
    codec = ResponsesCodec("m")
    name = "server.tool with spaces"
    request = codec.encode(GenerateContext(tools=(ToolSpec(name=name, strict=False),)), stream=False)
    sent = json.loads(request.call.body)["tools"][0]["name"]
    decoder = codec.decoder(whole=True)
    events = [*decoder.feed(Frame(body(response(call(sent))))), *decoder.close(Ended.FRAMED)]
    assert events[0].tool == name  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, {"message": "Your input exceeds the context window of this model."}, "overflow"),
        (400, {"code": "context_length_exceeded", "message": "x"}, "overflow"),
        (400, {"code": "invalid_value", "message": "x"}, "invalid"),
        (401, {"code": "invalid_api_key", "message": "x"}, "credentials"),
        (429, {"code": "insufficient_quota", "message": "x"}, "credentials"),
        (429, {"code": "rate_limit_exceeded", "message": "x"}, "transient"),
        (503, {"message": "overloaded"}, "unavailable"),
    ],
)
def test_error_replies_have_one_class(status: int, error: dict[str, str], kind: str) -> None:
    """By code and text first, then by status (F18)."""
    reply = WireReply(status, {}, json.dumps({"error": error}).encode())
    assert ResponsesCodec("m").classify(reply).error_class == kind


def test_a_body_that_is_no_json_keeps_its_words() -> None:
    """The status is read before the body (F18)."""
    error = ResponsesCodec("m").classify(WireReply(502, {}, b"<html><h1>Bad gateway</h1></html>"))
    assert (error.error_class, error.status) == ("transient", 502)
    assert "Bad gateway" in error.message


def test_the_provider_is_known_by_name_and_by_path() -> None:
    """Configuration, `connect` and replays find it."""
    adapter = load_adapter("openai-responses", model="m", api_key="k")
    assert adapter.id == "openai-responses:m"
    assert provider_of("/v1/responses", {}) == "openai-responses"
    assert ResponsesCodec.dialect == NATIVE_DIALECT
