"""The client over the real SDK, whole replies: requests, results, errors and retries."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any

import openai
import pytest

from isthmus.adapters.openai_responses import ResponseError, ResponsesClient, ResponsesFactory
from isthmus.errors import CallCancelledError, ConfigError, ErrorClass, InvalidRequestError, OutputError, TierError
from isthmus.models import (
    CancellationToken,
    ConcurrentRequestLimiter,
    Config,
    ModelTracing,
    Tools,
    as_tool,
    get_usage_totals,
)
from isthmus.models.fold import classify
from support.loopback import CLOSE, LoopbackServer, head, whole
from support.responses_frames import USAGE, body, call, message, reasoning, refusal, response, sse, streamed
from support.responses_server import KEY, USER, answer, client, failed, sent

FULL = response(reasoning(), message("Hello"), service_tier="flex")


@as_tool
async def look(x: int) -> str:
    """Look at a number."""
    return str(x)


async def test_a_reply_has_its_canonical_and_its_native_form() -> None:
    """Content, reasoning, usage and finish, and the whole response as JSON beside them."""
    async with LoopbackServer([answer(FULL)]) as server, client(server) as model:
        reply = await model.get_response([{"role": "system", "content": "Be brief."}, USER])
        request = server.requests[0]
    assert (request.method, request.path) == ("POST", "/v1/responses")
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert json.loads(request.body) == {"model": "m", "input": [{"role": "developer", "content": "Be brief."}, USER]}
    assert reply.choices[0].message.content == "Hello"
    assert reply.choices[0].finish_reason == "stop"
    assert reply.reasoning_content == "Hm."
    assert (reply.id, reply.model) == ("resp_1", "m-1")
    assert reply.model_extra["openai_response"] == FULL
    totals = get_usage_totals(reply)
    assert totals is not None
    assert (totals.prompt_tokens, totals.completion_tokens) == (10, 6)
    assert reply.choices[0].message.model_extra["openai_responses_input"] == FULL["output"]


async def test_options_and_aliases() -> None:
    """Defaults, then the call's own; aliases become the SDK's names; the SDK's request options reach the SDK."""
    async with LoopbackServer([answer(FULL)]) as server:
        model = client(server, max_tokens=50, reasoning_effort="low", service_tier="flex")
        given = {"max_tokens": 70, "verbosity": "low", "extra_headers": {"x-team": "t"}, "extra_body": {"later": 1}}
        await model.get_response([USER], given, extra_query={"q": "1"})
        await model.aclose()
        request = server.requests[0]
    assert sent(server) == {
        "model": "m",
        "input": [USER],
        "max_output_tokens": 70,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "service_tier": "flex",
        "later": 1,
    }
    assert request.headers["x-team"] == "t"
    assert request.path == "/v1/responses?q=1"
    assert given["max_tokens"] == 70


async def test_an_option_that_the_sdk_does_not_know_is_the_sdks_to_refuse() -> None:
    """Validation is the SDK's and the service's."""
    async with LoopbackServer([answer(FULL)]) as server, client(server) as model:
        with pytest.raises(TypeError, match="no_such_option"):
            await model.get_response([USER], {"no_such_option": 1})
        assert server.requests == []


async def test_tools_and_native_declarations_merge() -> None:
    """Hosted declarations stand first, local ones are strict, the policy's words are sent; the calls come back."""
    policy = Tools([look], tool_choice="required", parallel_tool_calls=False)
    async with LoopbackServer([answer(response(call("look", '{"x": 2}')))]) as server, client(server) as model:
        reply = await model.get_response([USER], {"tools": [{"type": "web_search"}]}, tools=policy)
    assert [tool.get("name", tool["type"]) for tool in sent(server)["tools"]] == ["web_search", "look"]
    assert sent(server)["tools"][1]["strict"] is True
    assert sent(server)["tool_choice"] == "required"
    assert sent(server)["parallel_tool_calls"] is False
    (made,) = reply.choices[0].message.tool_calls
    assert (made.id, made.function.name, made.function.arguments) == ("call_1", "look", '{"x": 2}')
    assert reply.choices[0].finish_reason == "tool_calls"


async def test_native_functions_need_a_call_without_tools() -> None:
    """Without `Tools` they are declared and their calls canonical; with `Tools`, even empty ones, they are refused."""
    native = {"tools": [{"type": "function", "name": "find", "parameters": {}, "strict": False}]}
    async with LoopbackServer([answer(response(call("find")))]) as server, client(server) as model:
        reply = await model.get_response([USER], native)
        assert reply.choices[0].message.tool_calls[0].function.name == "find"
        for policy in (Tools([look]), Tools([])):
            with pytest.raises(ValueError, match="find"):
                await model.get_response([USER], native, tools=policy)
        hosted = {"tools": [{"type": "mcp", "name": "look"}]}
        with pytest.raises(ValueError, match="Duplicate native tool name"):
            await model.get_response([USER], hosted, tools=Tools([look]))
        assert len(server.requests) == 1


async def test_an_empty_policy_of_none_stays_none() -> None:
    """An emptied set of tools with the choice none is said to the provider."""
    async with LoopbackServer([answer(FULL)]) as server, client(server) as model:
        await model.get_response([USER], {"tools": [{"type": "web_search"}]}, tools=Tools([], tool_choice="none"))
    assert sent(server)["tool_choice"] == "none"


async def test_a_reply_goes_back_as_its_items_once() -> None:
    """The message of a reply, as a dict, is history: its native items are sent, its text and calls are not."""
    output = [reasoning(), message("Let me see."), call()]
    async with LoopbackServer([answer(response(*output)), answer(FULL)]) as server, client(server) as model:
        first = await model.get_response([USER])
        turn = json.loads(json.dumps(first.choices[0].message.to_dict()))
        await model.get_response([USER, turn, {"role": "tool", "tool_call_id": "call_1", "content": "4"}])
    result = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
    assert sent(server)["input"] == [USER, *output, result]


async def test_missing_usage_stays_missing() -> None:
    """A reply that says nothing of tokens has no usage."""
    async with LoopbackServer([answer(response(message(), usage=None))]) as server, client(server) as model:
        reply = await model.get_response([USER])
    assert reply.usage is None
    assert get_usage_totals(reply) is None


async def test_an_artifact_alone_has_no_text() -> None:
    """The image is in the native response, the content is None, and that is a normal stop."""
    image = {"id": "ig", "type": "image_generation_call", "status": "completed", "result": "aGk="}
    async with LoopbackServer([answer(response(image))]) as server, client(server) as model:
        reply = await model.get_response([USER])
    assert reply.choices[0].message.content is None
    assert reply.choices[0].finish_reason == "stop"
    assert reply.model_extra["openai_response"]["output"] == [image]


async def test_a_refusal() -> None:
    """The refusal is the message's, its content is None, the reason "stop"."""
    async with LoopbackServer([answer(response(refusal()))]) as server, client(server) as model:
        reply = await model.get_response([USER])
    said = reply.choices[0].message
    assert (said.content, said.refusal, reply.choices[0].finish_reason) == (None, "I can't.", "stop")


async def test_a_refusal_is_answered_with_the_context_for_it() -> None:
    """With `refusal_context` it is asked again with these words, three times at most."""
    script = [answer(response(refusal())), answer(FULL)]
    context = "It is for a test."
    async with LoopbackServer(script) as server, client(server, refusal_context=context) as model:
        reply = await model.get_response([USER])
        assert reply.choices[0].message.content == "Hello"
        assert sent(server)["input"][-1] == {"role": "user", "content": context}
    async with LoopbackServer([answer(response(refusal()))]) as server, client(server, refusal_context="x") as model:
        reply = await model.get_response([USER])
        assert reply.choices[0].message.refusal
        assert len(server.requests) == 4


@pytest.mark.parametrize(("reason", "finish"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
async def test_truncation_has_its_canonical_reason(reason: str, finish: str) -> None:
    """Length and filter are reasons of a reply, no errors (F20)."""
    cut = response(message("Hel"), status="incomplete", incomplete_details={"reason": reason})
    async with LoopbackServer([answer(cut)]) as server, client(server) as model:
        reply = await model.get_response([USER])
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("Hel", finish)


@pytest.mark.parametrize(
    "native",
    [
        response(status="failed", error={"code": "server_error", "message": "oops"}),
        response(status="cancelled"),
        response(status="queued"),
        response(status="in_progress"),
        response(message(), status="incomplete", incomplete_details={"reason": "steered"}),
        response({"id": "c", "type": "custom_tool_call", "call_id": "c1", "name": "sql", "input": "x"}),
        response({"id": "m", "type": "mcp_approval_request", "name": "n", "arguments": "{}", "server_label": "s"}),
    ],
    ids=lambda native: native["status"],
)
async def test_what_is_no_answer_raises_with_the_native_response(native: dict[str, Any]) -> None:
    """Failed, cancelled, not ended, cut for another reason, or waiting for its caller: the response is on the error."""
    async with LoopbackServer([answer(native)]) as server, client(server) as model:
        with pytest.raises(ResponseError) as caught:
            await model.get_response([USER])
        assert len(server.requests) == 1
    assert caught.value.response == native
    assert isinstance(caught.value, TierError)
    if native["error"]:
        assert caught.value.error == native["error"]
        assert caught.value.error_class == "transient"


@pytest.mark.parametrize(
    ("status", "kind", "meaning"),
    [
        (400, openai.BadRequestError, "invalid"),
        (401, openai.AuthenticationError, "credentials"),
        (403, openai.PermissionDeniedError, "credentials"),
        (404, openai.NotFoundError, "unavailable"),
        (422, openai.UnprocessableEntityError, "invalid"),
    ],
)
async def test_errors_of_the_sdk_are_its_own_and_are_not_retried(status: int, kind: type, meaning: str) -> None:
    """The SDK's exception is raised as it is; what it means to a chain is beside it (F09, F18)."""
    script = [failed(status, message="the model `m` does not exist" if status == 404 else "no")]
    async with LoopbackServer(script) as server, client(server) as model:
        with pytest.raises(kind) as caught:
            await model.get_response([USER])
        assert len(server.requests) == 1
    assert type(caught.value) is kind
    assert caught.value.status_code == status
    assert classify(caught.value).error_class == meaning
    assert KEY not in repr(caught.value)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
async def test_statuses_that_pass_are_tried_again(status: int) -> None:
    """By our own engine, with the wait that the provider asks for; the SDK retries nothing itself (F09)."""
    script = [failed(status, retry_after="0"), failed(status, retry_after_ms="1"), answer(FULL)]
    async with LoopbackServer(script) as server, client(server) as model:
        reply = await model.get_response([USER])
        assert len(server.requests) == 3
    assert reply.choices[0].message.content == "Hello"


async def test_max_retries_counts_all_tries() -> None:
    """After the last one the SDK's error is raised."""
    for tries, seen in ((0, 1), (1, 1), (2, 2)):
        async with LoopbackServer([failed(500, retry_after="0")]) as server, client(server, max_retries=tries) as model:
            with pytest.raises(openai.InternalServerError):
                await model.get_response([USER])
            assert len(server.requests) == seen


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_hard_limit_reached", "content_policy_violation"])
async def test_quota_and_policy_are_not_retried(code: str) -> None:
    """Whatever the status, waiting would not help (F09)."""
    async with LoopbackServer([failed(429, code, retry_after="0")]) as server, client(server) as model:
        with pytest.raises(openai.RateLimitError):
            await model.get_response([USER])
        assert len(server.requests) == 1


async def test_a_wait_beyond_a_minute_ends_the_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 seconds are waited for, more are not."""
    waits: list[float] = []

    async def slept(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("isthmus.adapters.openai_responses.client._sleep", slept)
    script = [failed(429, retry_after="60"), failed(429, retry_after="61")]
    async with LoopbackServer(script) as server, client(server, max_retries=5) as model:
        with pytest.raises(openai.RateLimitError):
            await model.get_response([USER])
        assert len(server.requests) == 2
    assert waits == [60.0]


async def test_a_lost_connection_is_tried_again() -> None:
    """Before anything came of it, a call may be made again; in the end the SDK's error says what happened."""
    async with LoopbackServer([[CLOSE], answer(FULL)]) as server, client(server) as model:
        reply = await model.get_response([USER])
        assert reply.choices[0].message.content == "Hello"
    async with LoopbackServer([[CLOSE]]) as server, client(server, max_retries=1) as model:
        with pytest.raises(openai.APIConnectionError) as caught:
            await model.get_response([USER])
    assert classify(caught.value).error_class == "transient"


async def test_a_body_that_breaks_off_is_no_answer() -> None:
    """A reply cut inside its document is an error of class transient, never a smaller one (F01)."""
    data = body(FULL)
    cut = [head(200, content_type="application/json", content_length=str(len(data))) + data[:100], CLOSE]
    async with LoopbackServer([cut]) as server, client(server) as model:
        with pytest.raises(ResponseError) as caught:
            await model.get_response([USER])
    assert caught.value.error_class == "transient"


async def test_a_success_that_is_no_response_is_malformed() -> None:
    """Text where JSON should be is "protocol" (F18)."""
    page = [whole(b"<html>hello</html>", content_type="application/json")]
    async with LoopbackServer([page]) as server, client(server) as model:
        with pytest.raises(ResponseError) as caught:
            await model.get_response([USER])
    assert caught.value.error_class == "protocol"


def test_models_at_azure_need_an_address() -> None:
    """The prefix is split off; azure without a base URL is a ValueError."""
    assert ResponsesClient(Config(api_key="k", model="openai/gpt-9")).model == "gpt-9"
    assert ResponsesClient(Config(api_key="k", model="other/gpt-9")).model == "other/gpt-9"
    assert ResponsesClient(Config(api_key="k", model="azure/d", base_url="https://x")).model == "d"
    with pytest.raises(ValueError, match="base_url"):
        ResponsesClient(Config(api_key="k", model="azure/d"))


async def test_azure_is_asked_in_its_own_way() -> None:
    """The key goes in Azure's header, the API's version in the query."""
    async with LoopbackServer([answer(FULL)]) as server:
        config = Config(api_key=KEY, model="azure/d", base_url=server.url)
        async with ResponsesClient(config) as model:
            await model.get_response([USER])
        request = server.requests[0]
    assert request.path == "/openai/responses?api-version=2025-03-01-preview"
    assert request.headers["api-key"] == KEY
    assert sent(server)["model"] == "d"


@pytest.mark.parametrize("names", ["look", True, ["look", ""], [3]], ids=repr)
def test_async_tools_are_names(names: Any) -> None:
    """One string is no list of names: it is said when the client is made."""
    with pytest.raises(ConfigError, match="async_tools"):
        ResponsesClient(Config(api_key="k", model="m"), async_tools=names)


async def test_a_schema_must_be_one() -> None:
    """What has no schema is refused before any call."""
    model = ResponsesClient(Config(api_key="k", model="m"))
    with pytest.raises(ValueError, match="object"):
        await model.get_response([USER], schema=object())


async def test_a_reply_of_the_wrong_form_is_asked_for_again() -> None:
    """The schema joins the caller's text settings; a misfit is told to the model, as often as configured."""
    wrong, right = answer(response(message("no"))), answer(response(message('{"a": 1}')))
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    async with LoopbackServer([wrong, right]) as server, client(server) as model:
        reply = await model.get_response([USER], {"text": {"verbosity": "low"}}, schema=schema)
        assert len(server.requests) == 2
    assert reply.choices[0].message.content == '{"a": 1}'
    assert reply.model_extra["openai_response"]["output"][0]["content"][0]["text"] == '{"a": 1}'
    assert reply.usage is not None
    assert reply.usage.total_tokens == 2 * USAGE["total_tokens"]
    assert sent(server)["text"]["verbosity"] == "low"
    assert sent(server)["text"]["format"]["type"] == "json_schema"
    async with LoopbackServer([wrong]) as server:
        config = Config(api_key=KEY, model="m", base_url=f"{server.url}/v1", schema_validation_retries=1)
        async with ResponsesClient(config) as model:
            with pytest.raises(OutputError):
                await model.get_response([USER], schema=schema)
        assert len(server.requests) == 2


async def test_the_limiter_is_held_and_told() -> None:
    """A call waits for its place and tells what it spent; a failing one gives its place back."""
    spent: list[int] = []

    class Limiter(ConcurrentRequestLimiter):
        def record_usage(self, tokens: int) -> None:
            spent.append(tokens)

    async with LoopbackServer([answer(FULL), failed(400), answer(FULL)]) as server:
        config = Config(api_key=KEY, model="m", base_url=f"{server.url}/v1", rate_limiter=Limiter(1))
        async with ResponsesClient(config) as model:
            await model.get_response([USER])
            with pytest.raises(openai.BadRequestError):
                await model.get_response([USER])
            await asyncio.wait_for(model.get_response([USER]), 5)
    assert spent == [USAGE["total_tokens"]] * 2
    assert spent[0] == 16


async def test_a_call_that_was_cancelled_is_not_made() -> None:
    """The token is looked at before the call."""
    token = CancellationToken()
    token.cancel()
    async with LoopbackServer([answer(FULL)]) as server, client(server) as model:
        with pytest.raises(CallCancelledError):
            await model.get_response([USER], cancellation_token=token)
        assert server.requests == []


def test_one_client_serves_loops_one_after_another() -> None:
    """Connections belong to the loop that they were made in."""

    async def once(model: ResponsesClient, server: LoopbackServer) -> str | None:
        async with server:
            model.config.__dict__["base_url"] = f"{server.url}/v1"
            reply = await model.get_response([USER])
            await model.aclose()
            return reply.choices[0].message.content

    model = ResponsesClient(Config(api_key=KEY, model="m", base_url="http://127.0.0.1"))
    assert [asyncio.run(once(model, LoopbackServer([answer(FULL)]))) for _ in range(2)] == ["Hello"] * 2


def test_what_it_says_of_itself() -> None:
    """It owns its retries, keeps the tracing that it is given, and needs no streaming."""
    model = ResponsesClient(Config(api_key=KEY, model="m", tracing=ModelTracing.ENABLED_WITHOUT_DATA))
    assert model.handles_retries is True
    assert model.id == "openai-responses:m"
    assert model.requires_streaming is False
    assert model.tracing is ModelTracing.ENABLED_WITHOUT_DATA
    assert KEY not in repr(vars(model))


def test_a_factory_makes_clients() -> None:
    """Settings of the configuration replace it, the rest are request options."""
    model = ResponsesFactory(Config(api_key="k", model="m")).get_model_client(model="openai/n", max_tokens=5)
    assert isinstance(model, ResponsesClient)
    assert model.model == "n"


async def test_the_callers_messages_and_options_are_not_changed() -> None:
    """Neither by a call nor by a refusal's context."""
    messages, options = [USER], {"text": {"verbosity": "low"}, "tools": [{"type": "web_search"}]}
    copy = json.loads(json.dumps([messages, options]))
    async with LoopbackServer([answer(response(refusal()))]) as server, client(server, refusal_context="x") as model:
        await model.get_response(messages, options)
    assert [messages, options] == copy


async def test_no_key_in_what_an_error_says() -> None:
    """A provider that repeats the key is not quoted with it: neither in the class of an error nor in a reply's."""
    said = f"Incorrect API key provided: {KEY}"
    native = response(status="failed", error={"code": "server_error", "message": said})
    async with LoopbackServer([failed(401, message=said), answer(native)]) as server, client(server) as model:
        with pytest.raises(openai.AuthenticationError) as refused:
            await model.get_response([USER])
        with pytest.raises(ResponseError) as ended:
            await model.get_response([USER])
    for error in (classify(refused.value), refused.value, ended.value):
        shown = "".join(traceback.format_exception(error))
        assert KEY not in f"{error} {error!r} {error.body} {error.args} {vars(error).get('response')} {shown}"
        assert "Incorrect API key" in str(error)
    assert type(refused.value) is openai.AuthenticationError


@pytest.mark.parametrize("content_type", ["text/event-stream", "application/json", "text/plain", ""])
@pytest.mark.parametrize("said", [sse(streamed(FULL)), body(FULL)], ids=["events", "document"])
async def test_what_a_reply_is_decides_how_it_is_read(content_type: str, said: bytes) -> None:
    """Events and documents are told apart by what they are, whatever header a gateway puts on them (F16, F18)."""
    if said == body(FULL):
        content_type = content_type.replace("event-stream", "html")
    script = [[whole(said, content_type=content_type)]]
    async with LoopbackServer(script) as server, client(server) as model:
        reply = await model.get_response([USER])
        *_, last = [event async for event in model.stream_response([USER])]
    assert reply.choices[0].message.content == last.response.choices[0].message.content == "Hello"


async def test_a_page_is_a_breach_of_protocol() -> None:
    """A success that is neither events nor JSON is told as such, not as a cut (F18)."""
    page = [whole(b"<html>portal</html>", content_type="text/html")]
    async with LoopbackServer([page]) as server, client(server) as model:
        with pytest.raises(ResponseError) as caught:
            await model.get_response([USER])
    assert caught.value.error_class == ErrorClass.PROTOCOL
    assert "base URL" in str(caught.value)


async def test_options_that_are_not_given_are_left_out() -> None:
    """The SDK's own marks for an option that is not given are no values."""
    async with LoopbackServer([answer(FULL)]) as server, client(server, top_p=openai.omit) as model:
        await model.get_response([USER], {"temperature": openai.NOT_GIVEN, "user": None})
        assert sent(server) == {"model": "m", "input": [USER], "user": None}


async def test_a_request_without_a_json_form_is_invalid() -> None:
    """What cannot be written down is refused before anything is sent."""
    async with LoopbackServer([answer(FULL)]) as server, client(server) as model:
        with pytest.raises(InvalidRequestError, match="JSON form"):
            await model.get_response([USER], {"metadata": {"x": object()}})
        assert server.requests == []
