"""One class for each failure, by code, text and status (F18, F09)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.adapters.classify import Failure, classify_in_band, classify_reply
from isthmus.models.jsontext import dumps, loads
from isthmus.wire.call import WireReply
from support.wirecorpus import CORPUS, needs_corpus, rows

# Expectations written by reading the recorded bodies: the end of each recording's path, and its class.
RECORDED = {
    "anthropic/messages-json-400--rubyllm-chat-real-error-scenarios": "overflow",
    "anthropic/messages-json-400--": "invalid",
    "anthropic/messages-json-401--": "credentials",
    "anthropic/messages-json-404--": "unavailable",
    "anthropic/messages-json-429--": "transient",
    "azure/chat-json-401--": "credentials",
    "azure/chat-json-404--": "unavailable",
    "azure/chat-json-422--": "invalid",
    "deepseek/chat-json-400--": "invalid",
    "deepseek/chat-json-401--": "credentials",
    "doubleword/chat-json-400--": "invalid",
    "doubleword/chat-json-403--": "credentials",
    "doubleword/chat-json-404--": "unavailable",
    "fireworks/chat-json-404--": "unavailable",
    "groq/chat-json-400--reqllm2-qwen-qwq-32b": "unavailable",
    "groq/chat-json-400--": "invalid",
    "groq/chat-json-401--": "credentials",
    "groq/chat-json-404--": "unavailable",
    "llama-cpp/chat-json-400--rig-error-matrix-context-overflow": "overflow",
    "llama-cpp/chat-json-400--": "invalid",
    "llama-cpp/chat-json-401--": "credentials",
    "llama-cpp/chat-json-500--": "transient",
    "mistral/chat-json-400--": "invalid",
    "mistral/chat-json-401--": "credentials",
    "ollama/chat-json-400--": "overflow",
    "ollama/chat-json-401--": "credentials",
    "openai/chat-json-400--": "invalid",
    "openai/chat-json-401--": "credentials",
    "openai/chat-json-403--": "credentials",
    "openai/chat-json-404--reqllm": "invalid",
    "openai/chat-json-404--": "unavailable",
    "openrouter/chat-json-400--": "invalid",
    "openrouter/chat-json-401--": "credentials",
    "openrouter/chat-json-403--": "refused",
    "openrouter/chat-json-404--": "unavailable",
    "openrouter/chat-json-429--": "transient",
    "perplexity/chat-json-401--": "credentials",
    "sambanova/chat-json-402--": "credentials",
    "together/chat-json-429--": "transient",
    "venice/chat-json-404--": "unavailable",
    # Other protocols, whose replies the same table serves.
    "anthropic/models-list-json-401--": "credentials",
    "bedrock/converse-json-400--opentelemetry-test-converse-with-invalid-mo": "unavailable",
    "bedrock/converse-json-400--pyai-test-model-name-suggestion-bedrock": "unavailable",
    "bedrock/converse-json-400--rubyllm-chat-real-error-scenarios": "overflow",
    "bedrock/converse-json-400--": "invalid",
    "bedrock/converse-json-403--": "credentials",
    "bedrock/converse-json-404--": "unavailable",
    "bedrock/converse-stream-400--": "unavailable",
    "bedrock/invoke-json-400--newrelic-pytho-invoke-amazon-titan": "invalid",
    "bedrock/invoke-json-400--": "unavailable",
    "bedrock/invoke-json-403--": "credentials",
    "bedrock/invoke-json-503--": "unavailable",
    "bedrock/invoke-stream-400--": "unavailable",
    "bedrock/invoke-stream-403--": "credentials",
    "chatgpt-codex/responses-json-401--": "credentials",
    "deepseek/models-list-json-401--": "credentials",
    "deepseek/responses-json-400--": "invalid",
    "gemini/google-native-json-400--": "credentials",
    "gemini/google-native-json-403--": "credentials",
    "gemini/google-native-json-404--": "unavailable",
    "gemini/google-native-json-429--": "transient",
    "gemini/google-native-sse-400--": "credentials",
    "gemini/google-native-sse-404--": "unavailable",
    "groq/models-list-json-401--": "credentials",
    "langserve/langserve-invoke-404--": "invalid",
    "langserve/langserve-invoke-422--": "invalid",
    "langserve/langserve-invoke-500--": "transient",
    "langserve/langserve-stream-401--": "credentials",
    "langserve/langserve-stream-422--": "invalid",
    "openai/models-list-json-400--": "invalid",
    "openai/models-list-json-401--": "credentials",
    "openai/openai-completions-json-401--": "credentials",
    "openai/openai-completions-json-403--": "credentials",
    "openai/openai-completions-json-404--": "unavailable",
    "openai/responses-json-400--mirascope-test-model-not-found": "unavailable",
    "openai/responses-json-400--newrelic-pytho-mlmodel-openai": "unavailable",
    "openai/responses-json-400--opentelemetry-test-responses-create-api-err": "unavailable",
    "openai/responses-json-400--rubyllm-chat-real-error-scenarios": "overflow",
    "openai/responses-json-400--": "invalid",
    "openai/responses-json-401--": "credentials",
    "openai/responses-json-429--": "credentials",
    "vertex/google-native-json-400--": "invalid",
    "vertex/google-native-json-401--": "credentials",
    "vertex/google-native-json-404--": "unavailable",
    "vertex/google-native-sse-401--": "credentials",
    "vertex/google-native-sse-404--": "unavailable",
    "xai/responses-json-400--rig-": "unavailable",
    "xai/responses-json-400--rubyllm-chat-error-handling": "credentials",
}


@pytest.mark.corpus
@needs_corpus
def test_each_recorded_error_has_its_class() -> None:
    """F18: every recorded error reply, of whatever protocol, gets the class that its body deserves."""
    errors = [row for row in rows() if row["status"] >= "400"]
    assert len(errors) > 120
    for row in errors:
        folder = CORPUS / row["path"]
        meta = loads((folder / "response.meta.json").read_bytes())
        headers = {name.lower(): value for name, value in meta["headers"]}
        error = classify_reply(WireReply(meta["status"], headers, (folder / "response.body").read_bytes()))
        expected = next(kind for start, kind in RECORDED.items() if row["path"].startswith(start))
        assert error.error_class == expected, (row["path"], error)
        assert error.status == meta["status"]
        assert error.message
        assert not error.message.startswith(("{", "[")), error.message


@pytest.mark.corpus
@needs_corpus
def test_a_recorded_reset_header_tells_the_wait() -> None:
    """F09: the two recorded rate limits that say when to come back do so in seconds and in epoch milliseconds."""
    waits = {}
    for name in ("together/chat-json-429--", "openrouter/chat-json-429--"):
        row = next(row for row in rows() if row["path"].startswith(name))
        meta = loads((CORPUS / row["path"] / "response.meta.json").read_bytes())
        headers = {name.lower(): value for name, value in meta["headers"]}
        waits[name.split("/")[0]] = classify_reply(WireReply(429, headers, b"")).retry_after
    assert waits == {"together": 1.0, "openrouter": pytest.approx(2.0)}


IN_BAND: list[tuple[Any, str, int | None]] = [
    ({"error": {"message": "failed to decode, try again, increasing context size"}}, "transient", None),
    ({"message": "Tool choice is required", "type": "invalid_request_error", "status_code": 400}, "invalid", 400),
    ({"error": {"code": 502, "message": "Upstream error: EngineCore encountered an issue"}}, "transient", 502),
    ({"error": {"code": "502", "message": "x"}}, "transient", 502),
    ({"error": {"code": 400, "message": "Token limit reached"}}, "invalid", 400),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "unavailable", 529),
    ({"type": "error", "error": {"type": "rate_limit_error", "message": "x"}}, "transient", 429),
    ({"type": "error", "error": {"type": "api_error", "message": "x"}}, "transient", 500),
    ({"error": {"type": "invalid_request_error", "code": "invalid_api_key", "message": "x"}}, "credentials", 401),
    ({"error": {"type": "authentication_error", "code": "invalid_request_error"}}, "credentials", 401),
    ({"error": {"status": "RESOURCE_EXHAUSTED", "message": "x"}}, "transient", 429),
    ({"error": {"status": "UNAVAILABLE", "message": "x"}}, "unavailable", 503),
    ({"status_code": 500, "message": "Internal Server Error"}, "transient", 500),
    ({"code": "rate_limit_exceeded", "message": "Rate limit reached for requests"}, "transient", 429),
    ({"code": "insufficient_quota", "message": "You exceeded your current quota"}, "credentials", None),
    ({"error": "something broke"}, "transient", None),
    ("something broke", "transient", None),
]


@pytest.mark.parametrize(("value", "kind", "status"), IN_BAND, ids=str)
def test_an_error_inside_a_stream_gets_the_status_it_stands_for(value: Any, kind: str, status: int | None) -> None:
    """F01, F18: an in-band error is classified as the same failure would be by its status."""
    error = classify_in_band(value)
    assert (error.error_class, error.status) == (kind, status)


STATUSES = {
    **dict.fromkeys((401, 402, 403), "credentials"),
    **dict.fromkeys((408, 409, 425, 429, 500, 502, 504, 507, 520, 524), "transient"),
    **dict.fromkeys((301, 307, 503, 529), "unavailable"),
    **dict.fromkeys((400, 404, 405, 406, 410, 413, 415, 418, 422, 451), "invalid"),
}


@pytest.mark.parametrize(("status", "kind"), STATUSES.items())
@pytest.mark.parametrize("body", [b"", b"{}", b"nothing to see", b'{"error":{"message":"nope"}}', b"\xff\xfe"])
def test_a_status_alone_decides_where_the_body_says_nothing(status: int, kind: str, body: bytes) -> None:
    """F18: without telling words each status belongs to one class."""
    assert classify_reply(WireReply(status, {}, body)).error_class == kind


TEXTS: list[tuple[int, str, str]] = [
    (400, "Incorrect API key provided. You can obtain an API key from the console.", "credentials"),
    (400, "Model not found: no-such-model", "unavailable"),
    (400, "The provided model identifier is invalid.", "unavailable"),
    (400, "The tool call for model x was not found", "invalid"),
    (400, "Your credit balance is too low to access the API", "credentials"),
    (429, "You exceeded your current quota, please check your plan and billing details.", "credentials"),
    (429, "You exceeded your current quota. Quota exceeded for metric: x.\nPlease retry in 37.4s.", "transient"),
    (400, "You have reached your specified API usage limits. You will regain access on 2026-12-01.", "credentials"),
    (402, "Insufficient Balance", "credentials"),
    (400, "Input tokens exceed the configured limit of 272000 tokens", "overflow"),
    (400, "This endpoint's maximum context length is 8192 tokens. However, you requested 9000", "overflow"),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000", "overflow"),
    (400, "prompt is too long: 210000 tokens > 200000 maximum", "overflow"),
    (400, "Input is too long for requested model.", "overflow"),
    (400, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", "overflow"),
    (400, "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", "overflow"),
    (400, "`inputs` tokens + `max_new_tokens` must be <= 8193", "overflow"),
    (400, "Please reduce the length of the messages or completion.", "overflow"),
    (500, "the request exceeds the available context size. try increasing the context size", "overflow"),
    (400, "The decoder prompt (length 40000) is longer than the maximum model length of 32768.", "overflow"),
    (400, "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens", "invalid"),
    (400, "max_tokens exceeds the maximum output tokens allowed", "invalid"),
    (429, "Too many tokens, please wait before trying again.", "transient"),
    (429, "Request too large for x on tokens per min (TPM): Limit 30000. The input must be reduced", "transient"),
    (400, "Invalid 'tools[0].function.description': string too long. string_above_max_length", "invalid"),
    (400, "The response was filtered due to the prompt triggering the content management policy", "refused"),
    (400, "Output blocked by content filtering policy", "refused"),
    (400, "Your request was rejected as a result of our safety system.", "refused"),
    (400, "Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "refused"),
    (403, "Content violates usage guidelines.", "refused"),
    (400, "The feature is flagged as beta: pass the beta header", "invalid"),
    (500, "The server is overloaded or not ready yet.", "unavailable"),
    (429, "That model is currently overloaded with other requests.", "unavailable"),
    (404, "model: no-such-model", "unavailable"),
    (404, "The model `x` does not exist or you do not have access to it.", "unavailable"),
    (404, 'model "x" not found, try pulling it first', "unavailable"),
    (404, "models/x is not found for API version v1beta", "unavailable"),
    (404, "No endpoints found for x/y:free.", "unavailable"),
    (404, "No endpoints found that support tool use", "invalid"),
    (404, "tools is not supported in this model.", "invalid"),
    (404, "Invalid URL (POST /v1/chat/completion): see the list of models", "invalid"),
    (404, "404 page not found", "invalid"),
    (400, "This model does not support effort level 'xhigh'.", "invalid"),
]


@pytest.mark.parametrize(("status", "text", "kind"), TEXTS, ids=lambda value: str(value)[:40])
def test_telling_words_come_before_the_status(status: int, text: str, kind: str) -> None:
    """F18: billing, overflow, policy and missing models are told by their words, not by what looks alike."""
    body = dumps({"error": {"message": text, "type": "some_error"}})
    assert classify_reply(WireReply(status, {}, body)).error_class == kind
    assert classify_reply(WireReply(status, {}, text.encode())).error_class == kind


FORMS: list[tuple[Any, Failure]] = [
    ([{"error": {"code": 400, "message": "m", "status": "INVALID"}}], Failure("m", "400", "INVALID", 400)),
    ({"error": "m"}, Failure("m")),
    ({"error": "m", "code": "c", "type": "t"}, Failure("m", "c", "t")),
    ({"error": {"error": {"message": "m", "type": "t"}}}, Failure("m", kind="t")),
    ({"type": "error", "error": {"type": "t", "message": "m"}}, Failure("m", kind="t")),
    ({"detail": "m"}, Failure("m")),
    (
        {"detail": [{"loc": ["body", "messages", 0], "msg": "Field required", "type": "missing"}, {"msg": "n"}]},
        Failure("body.messages.0: Field required; n"),
    ),
    ({"message": "m", "code": "3051", "raw_status_code": 400, "object": "error"}, Failure("m", "3051", None, 400)),
    ({"error": {"message": {"message": "m"}}}, Failure("m")),
    ({"error": {"message": "m", "metadata": {"raw": '{"a":1}'}}}, Failure('m: {"a":1}')),
    ({"error": {}, "message": "m"}, Failure("m")),
    ({"error": None, "message": "m"}, Failure("m")),
    ("m", Failure("m")),
    (None, Failure("no details")),
    (7, Failure("7")),
    ([], Failure("[]")),
]  # fmt: skip


@pytest.mark.parametrize(("value", "failure"), FORMS, ids=str)
def test_every_form_of_an_error_object_is_read(value: Any, failure: Failure) -> None:
    """F18: message, code, type and status are found wherever the servers put them."""
    assert Failure.parse(value) == failure


def test_a_page_is_told_in_its_words() -> None:
    """F18: an HTML body becomes an excerpt without markup, and the error carries the body's beginning."""
    page = b"<html><style>b{}</style><head><title>502 Bad Gateway</title></head>\n<body><h1>nginx</h1></body></html>"
    error = classify_reply(WireReply(502, {}, page + b"x" * 5000))
    assert error.message.startswith("502 Bad Gateway nginx")
    assert len(error.message) <= 300
    assert error.body
    assert len(error.body) <= 2000


def test_the_wait_and_the_code_are_carried() -> None:
    """F09: the classified error says how long to wait and what the provider called it."""
    body = b'{"error":{"message":"slow down","type":"requests","code":"rate_limit_exceeded"}}'
    error = classify_reply(WireReply(429, {"retry-after": "5"}, body))
    assert (error.retry_after, error.code, error.status) == (5.0, "rate_limit_exceeded", 429)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "detail", "code", "type", "status", "metadata", "raw", "loc", "msg"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(JSON, st.integers(300, 599), st.dictionaries(st.sampled_from(["retry-after", "date"]), st.text(max_size=6)))
def test_nothing_makes_it_fail(value: Any, status: int, headers: dict[str, str]) -> None:
    """F18: whatever an error body or its headers hold, there is one classified error with a message."""
    assert classify_in_band(value).message is not None
    error = classify_reply(WireReply(status, headers, dumps(value)))
    assert error.status == status
    assert isinstance(error.message, str)


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(300, 599))
def test_no_bytes_make_it_fail(body: bytes, status: int) -> None:
    """F18: a body that is no text, no JSON, or half of either is classified by its status."""
    assert classify_reply(WireReply(status, {}, body)).status == status


SAID = [
    # What servers of each kind say, as their reference pages and bug reports quote it.
    (
        400,
        {"code": "Arrearage", "message": "Access denied, please make sure your account is in good standing."},
        "credentials",
    ),
    (429, {"error": {"type": "exceeded_current_quota_error", "message": "Your account is suspended"}}, "credentials"),
    (429, {"error": {"code": "1113", "message": "Insufficient balance or no resource package."}}, "credentials"),
    (400, {"error": {"code": "data_inspection_failed", "message": "Input data may contain it."}}, "refused"),
    (400, {"code": "DataInspectionFailed", "message": "Output data may contain inappropriate content."}, "refused"),
    (400, {"error": {"message": "Content Exists Risk", "type": "invalid_request_error"}}, "refused"),
    (400, {"error": {"code": "1301", "message": "Detected potentially unsafe or sensitive content"}}, "refused"),
    (498, {"error": {"message": "Flex tier capacity exceeded", "code": "capacity_exceeded"}}, "unavailable"),
    (400, {"error": {"message": "Range of input length should be [1, 129024]"}}, "overflow"),
    (400, {"error": {"message": "Your request exceeded model token limit: 8192"}}, "overflow"),
    (404, {"error_code": "ENDPOINT_NOT_FOUND", "message": "The given endpoint does not exist"}, "unavailable"),
    (404, {"errors": [{"message": "No such model @x or task", "code": 5007}], "success": False}, "unavailable"),
    (500, {"detail": {"error": {"message": "boom"}}}, "transient"),
]


@pytest.mark.parametrize(("status", "body", "expected"), SAID)
def test_f18_what_servers_say_in_their_own_words(status: int, body: Any, expected: str) -> None:
    """F18: each server's own code or text has its class, and the message is the innermost error's."""
    error = classify_reply(WireReply(status, {}, dumps(body)))
    assert error.error_class == expected
    assert not error.message.startswith("{")


@pytest.mark.parametrize(
    "error",
    [
        {"details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "33s"}]},
        {"metadata": {"headers": {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1759671193000"}}},
        {"retry_after": 33},
        {"retry_after_seconds": "33"},
    ],
)
def test_f09_a_time_to_wait_inside_the_body(error: dict[str, Any]) -> None:
    """F09: a hint in the error object counts where no header says one, and makes a quota a rate limit."""
    body = dumps({"error": {"code": 429, "message": "You exceeded your current quota, check your plan.", **error}})
    date = {"date": "Sun, 05 Oct 2025 13:32:40 GMT"}
    found = classify_reply(WireReply(429, date, body))
    assert (found.error_class, found.retry_after) == ("transient", 33)
    assert classify_reply(WireReply(429, {**date, "retry-after": "7"}, body)).retry_after == 7
    assert (
        classify_reply(WireReply(429, {}, dumps({"error": {"message": "You exceeded your current quota"}}))).retry_after
        is None
    )


@pytest.mark.parametrize("hint", [None, [], {}, True, "soon", [1], {"headers": [1]}, -1, "1e999"])
def test_f09_a_hint_that_makes_no_sense_is_no_hint(hint: object) -> None:
    """F09: garbage where a time should be neither crashes nor counts."""
    names = ("details", "metadata", "retry_after")
    body = {"error": {"message": "slow", **dict.fromkeys(names, hint), "details": [hint, {"retryDelay": hint}]}}
    assert classify_reply(WireReply(429, {}, dumps(body))).retry_after is None


@pytest.mark.parametrize(
    "error",
    [
        classify_reply(
            WireReply(529, {}, b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}')
        ),
        classify_in_band({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        classify_reply(WireReply(500, {}, b'{"error":{"message":"The engine is currently overloaded"}}')),
        classify_reply(WireReply(429, {}, b'{"error":{"code":"engine_overloaded","message":"try later"}}')),
        classify_reply(WireReply(503, {}, b"upstream connect error")),
    ],
    ids=["status", "in a stream", "in words", "by code", "a gateway's"],
)
def test_f18_overloaded_in_each_of_its_shapes(error: Any) -> None:
    """F18: overloaded is "unavailable", whether a status, an event after 200, a code or the words say so."""
    assert error.error_class == "unavailable"


@pytest.mark.parametrize("status", [101, 300, 302, 307, 308, 399])
def test_a_reply_that_leads_elsewhere_is_the_addresss_failure(status: int) -> None:
    """A redirect, as of a login page or of a host that moved, blames no request: another tier may answer it."""
    place = {"location": "https://login.example.org/in?token=cnry-8f3a1b2c4d5e6f70"}
    error = classify_reply(WireReply(status, place, b"<html>Moved</html>"))
    assert (str(error.error_class), error.status) == ("unavailable", status)
    if status >= 300:
        assert "login.example.org" in error.message
        assert "base URL" in error.message
    assert "cnry" not in str(error)
    assert classify_reply(WireReply(302, {}, b"")).message == "HTTP 302 without a body"


@pytest.mark.parametrize("blank", [" ", "\n", "\u00a0"])
def test_an_error_page_may_begin_with_blanks(blank: str) -> None:
    """What a body says counts, not how many blanks a template of the server's left in front of it."""
    body = (blank * 5000 + "<p>maximum context length exceeded</p>").encode()
    error = classify_reply(WireReply(500, {}, body))
    assert (str(error.error_class), error.message) == ("overflow", "maximum context length exceeded")
