"""The adapter over real sockets: hooks on every path, the way back to `/invoke`, credentials, waits, ends."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter, ToolCall, load_adapter
from isthmus.adapters.langserve import LangServeAdapter, adapter
from isthmus.adapters.registry import provider_of
from isthmus.errors import ConfigError, InvalidRequestError, TransientError, UnavailableError
from isthmus.harness import DefaultAgent
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from isthmus.models.fold import consume_stream
from support.langserve_frames import DONE, END, SPENT, message, model_run, said, stream_bytes
from support.loopback import CLOSE, HOLD, LoopbackServer, Seen, stream, whole

KEY = "lsk-canary-0123456789"
CTX = GenerateContext(messages=({"role": "user", "content": "Hi"},))
HELLO = message("Hello", response_metadata=DONE, usage_metadata=SPENT)
EVENTS = stream_bytes([*model_run(said("Hel"), said("lo"), output=HELLO), END])
BODY = json.dumps({"output": HELLO, "metadata": {"run_id": "r"}}).encode()
GONE = whole(b'{"detail":"Not Found"}', 404)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that knows of no server without streams."""
    monkeypatch.setattr(adapter, "_without_streams", set())
    return iter([None])


def both(seen: Seen) -> list[Any]:
    """A server with both routes."""
    return stream(EVENTS) if seen.path.endswith("/stream_events") else [whole(BODY)]


def invoke_only(status: int) -> Any:
    """A server whose streams are not published."""
    return lambda seen: [whole(b"{}", status)] if seen.path.endswith("/stream_events") else [whole(BODY)]


def made(server: LoopbackServer, kind: type[LangServeAdapter] = LangServeAdapter, **settings: Any) -> LangServeAdapter:
    """An adapter of this server."""
    return kind(**{"base_url": f"{server.url}/chain", "model": "m", **settings})


async def streamed(one: ModelAdapter, ctx: GenerateContext = CTX) -> StepResult:
    """A streamed reply."""
    return await consume_stream(one.stream(ctx))


def paths(server: LoopbackServer) -> list[str]:
    """Which routes were asked."""
    return [seen.path for seen in server.requests]


async def test_streams_by_default_and_whole_by_invoke() -> None:
    """A stream goes to `/stream_events`, a whole reply to `/invoke`, with one body; both give the same reply."""
    async with LoopbackServer(both) as server, aclosing(made(server)) as one:
        assert await streamed(one) == await one.generate(CTX)
        assert paths(server) == ["/chain/stream_events", "/chain/invoke"]
        first, second = server.requests
        assert first.body == second.body
        assert (first.headers["accept"], second.headers["accept"]) == ("text/event-stream", "application/json")


async def test_the_chat_face_ends_with_reason_usage_and_calls() -> None:
    """`stream_with_tools` yields text as it arrives and last a `ChatResponse` with the gateway's reason and usage."""
    async with LoopbackServer(both) as server, aclosing(made(server)) as one:
        pairs = [pair async for pair in one.stream_with_tools([{"role": "user", "content": "Hi"}], [])]
    assert pairs[:-1] == [("text", "Hel"), ("text", "lo")]
    kind, response = pairs[-1]
    assert (kind, response.text, response.stop_reason) == ("done", "Hello", "end_turn")
    assert response._raw.usage.output_tokens == 6


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_streams_that_are_not_published_fall_back(status: int) -> None:
    """404, 405 and 501 lead to `/invoke` at once, and no later adapter of that configuration asks again."""
    async with LoopbackServer(invoke_only(status)) as server:
        for _ in range(2):
            async with aclosing(made(server, system="another brief each turn")) as one:
                assert (await streamed(one)).text == "Hello"
                assert (await streamed(one)).text == "Hello"
        assert paths(server) == ["/chain/stream_events", *["/chain/invoke"] * 4]


async def test_another_base_url_or_configuration_is_asked_anew() -> None:
    """What is remembered is one base URL in one configuration."""
    async with LoopbackServer(invoke_only(404)) as server:
        for settings in ({}, {"base_url": f"{server.url}/other"}, {"headers": {"X-Tenant": "t"}}, {}):
            async with aclosing(made(server, **settings)) as one:
                await streamed(one)
        assert [path.endswith("stream_events") for path in paths(server)] == [
            True,
            False,
            True,
            False,
            True,
            False,
            False,
        ]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_other_errors_do_not_fall_back(status: int) -> None:
    """Any other status is the error that it is, and nothing is remembered."""
    async with LoopbackServer(invoke_only(status)) as server, aclosing(made(server)) as one:
        for _ in range(2):
            with pytest.raises(Exception) as caught:  # noqa: PT011
                await streamed(one)
            assert caught.value.status == status  # type: ignore[attr-defined]
        assert paths(server) == ["/chain/stream_events"] * 2


async def test_a_base_url_that_is_wrong_is_told_and_not_remembered() -> None:
    """Where `/invoke` is not there either, its error is raised, and streams are asked for again later."""
    async with LoopbackServer([[GONE]]) as server, aclosing(made(server)) as one:
        for _ in range(2):
            with pytest.raises(InvalidRequestError, match="Not Found"):
                await streamed(one)
        assert [path.rpartition("/")[2] for path in paths(server)] == ["stream_events", "invoke"] * 2


async def test_streams_switched_off() -> None:
    """`stream_events = false` never asks for one, and a stream is the whole reply in one piece."""
    async with LoopbackServer(both) as server, aclosing(made(server, stream_events=False)) as one:
        assert (await streamed(one)).text == "Hello"
        assert paths(server) == ["/chain/invoke"]


class Own(LangServeAdapter):
    """A gateway with a shape of its own."""

    def _build_payload(self, messages: Any, tools: Any) -> dict[str, Any]:
        return {"input": messages[-1]["content"], "ceiling": self.max_tokens, "names": [tool["name"] for tool in tools]}

    def _parse_output(self, output: Any) -> tuple[str, list[ToolCall], dict[str, Any]]:
        text, calls, usage = super()._parse_output(output)
        return f"<{text}>", [*calls, ToolCall("c1", "f", {"x": 1})], {**usage, "output_tokens": 99}


@pytest.mark.parametrize("path", ["stream", "whole", "fallback", "off", "chat", "stream_chat", "response"])
async def test_both_hooks_hold_on_every_path(path: str) -> None:
    """A subclass that writes the hooks is heard streamed, whole, in the fall-back, and on every face."""
    script = invoke_only(404) if path == "fallback" else both
    async with LoopbackServer(script) as server:
        one = made(server, Own, max_tokens=7, stream_events=path != "off")
        messages = [{"role": "user", "content": "Hi"}]
        async with aclosing(one):
            if path == "stream_chat":
                assert [piece async for piece in one.stream_chat(messages)] == ["<Hello>"]
            elif path == "chat":
                reply: ChatResponse = await one.chat(messages, [])
                assert (reply.text, reply.tool_calls[0].input, reply.stop_reason) == ("<Hello>", {"x": 1}, "tool_use")
            elif path == "response":
                response = await one.get_response(messages)
                assert response.choices[0].message.content == "<Hello>"
            else:
                step = await (one.generate(CTX) if path == "whole" else streamed(one))
                assert (step.text, step.calls[0].input, step.raw_reason) == ("<Hello>", {"x": 1}, "stop")
                assert step.usage.output_tokens == 99
        assert all(json.loads(s.body) == {"input": "Hi", "ceiling": 7, "names": []} for s in server.requests)


async def test_one_hook_alone_is_enough() -> None:
    """Each hook can be written without the other."""

    class Asks(LangServeAdapter):
        _build_payload = Own._build_payload

    class Reads(LangServeAdapter):
        def _parse_output(self, output: Any) -> tuple[str, list[ToolCall], dict[str, Any]]:
            return output["content"][::-1], [], {}

    async with LoopbackServer(both) as server:
        async with aclosing(made(server, Asks)) as asks, aclosing(made(server, Reads)) as reads:
            assert [(await streamed(asks)).text, (await asks.generate(CTX)).text] == ["Hello", "Hello"]
            assert [(await streamed(reads)).text, (await reads.generate(CTX)).text] == ["olleH", "olleH"]
        bodies = [json.loads(seen.body) for seen in server.requests]
    assert [sorted(found) for found in bodies] == [["ceiling", "input", "names"]] * 2 + [
        ["config", "input", "kwargs"]
    ] * 2


async def test_a_subclass_that_writes_chat_reaches_its_parent() -> None:
    """`await super().chat(…)` in an override reaches the whole reply, once, and every face hears the override."""

    class Mine(LangServeAdapter):
        async def chat(self, messages: Any, tools: Any) -> ChatResponse:
            reply = await super().chat(messages, tools)
            return ChatResponse(f"{reply.text}!", reply.tool_calls, reply.stop_reason, reply._raw)

    async with LoopbackServer(both) as server, aclosing(made(server, Mine)) as one:
        ctx = GenerateContext(brief="B", messages=CTX.messages, max_output_tokens=5)
        assert [(await streamed(one, ctx)).text, (await one.generate(ctx)).text] == ["Hello!", "Hello!"]
        assert paths(server) == ["/chain/invoke"] * 2
        body = json.loads(server.requests[0].body)
    assert body["kwargs"] == {"max_tokens": 5}
    assert body["input"]["messages"][0] == {"type": "system", "content": "B"}


@pytest.mark.parametrize(
    ("settings", "header", "value"),
    [
        ({}, "authorization", f"Bearer {KEY}"),
        ({"auth_scheme": "Token"}, "authorization", f"Token {KEY}"),
        ({"auth_scheme": ""}, "authorization", KEY),
        ({"auth_header": "X-Api-Key", "auth_scheme": ""}, "x-api-key", KEY),
    ],
)
async def test_header_and_scheme_of_the_key(settings: dict[str, str], header: str, value: str) -> None:
    """The key goes as `Authorization: Bearer …` unless another header or scheme is named; "" sends it bare."""
    async with LoopbackServer(both) as server, aclosing(made(server, api_key=KEY, **settings)) as one:
        await one.generate(CTX)
        assert server.requests[0].headers[header] == value


async def test_the_key_is_optional_and_stays_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key none is sent; the environment's goes only to a trusted address."""
    monkeypatch.setenv("LANGSERVE_API_KEY", KEY)
    async with LoopbackServer(both) as server:
        for trusted in (False, True):
            async with aclosing(made(server, base_url_trusted=trusted)) as one:
                await one.generate(CTX)
        assert [seen.headers.get("authorization") for seen in server.requests] == [None, f"Bearer {KEY}"]


async def test_a_refused_key_is_asked_for_once_more(tmp_path: Any) -> None:
    """A 401 runs `api_key_command` again, on either route."""
    counter = tmp_path / "n"
    command = f"echo x >> {counter}; printf 'key-%d' $(wc -l < {counter})"

    def answer(seen: Seen) -> list[Any]:
        return both(seen) if seen.headers["authorization"] == "Bearer key-2" else [whole(b"{}", 401)]

    async with (
        LoopbackServer(answer) as server,
        aclosing(made(server, api_key_command=command, api_key_ttl_ms=60_000)) as one,
    ):
        assert (await streamed(one)).text == "Hello"


async def test_no_key_shows() -> None:
    """No key stands in a repr, a pickle or an error that repeats it."""
    said_key = whole(json.dumps({"detail": f"bad key {KEY}"}).encode(), 403)
    async with LoopbackServer([[said_key]]) as server, aclosing(made(server, api_key=KEY)) as one:
        with pytest.raises(Exception, match="bad key") as caught:
            await streamed(one)
        assert KEY not in f"{caught.value!r} {vars(caught.value)} {one.__dict__!r} {adapter._without_streams!r}"
        with pytest.raises(TypeError):
            pickle.dumps(one.keys)


@pytest.mark.parametrize("suffix", ["", "/", "/invoke", "/invoke/", "/stream_events"])
async def test_the_address_with_and_without_its_route(suffix: str) -> None:
    """`base_url` may or may not end in `/invoke`."""
    async with LoopbackServer(both) as server:
        async with aclosing(made(server, base_url=f"{server.url}/chain{suffix}")) as one:
            await one.generate(CTX)
            await streamed(one)
        assert paths(server) == ["/chain/invoke", "/chain/stream_events"]


async def test_an_address_with_a_config_hash_and_a_query() -> None:
    """F32: a base URL with a path of its own and a query keeps both on every route."""
    async with LoopbackServer(both) as server:
        async with aclosing(made(server, base_url=f"{server.url}/chain/c/N4XyA?tenant=a")) as one:
            await one.generate(CTX)
            await streamed(one)
        assert paths(server) == ["/chain/c/N4XyA/invoke?tenant=a", "/chain/c/N4XyA/stream_events?tenant=a"]


async def test_a_stream_without_an_end_mark_does_not_hang() -> None:
    """F32: a server that leaves the socket open after the last event is not waited for."""
    open_end = [*stream(stream_bytes(model_run(said("Hello"), output=HELLO)), last=False), HOLD]
    async with LoopbackServer([open_end]) as server, aclosing(made(server)) as one:
        async with asyncio.timeout(10):
            assert (await streamed(one)).text == "Hello"


async def test_a_cut_stream_is_an_error_with_what_arrived() -> None:
    """F01: a connection that drops before the root's end event is an error-post reply."""
    cut = stream_bytes(model_run(said("Hel"), output=HELLO)[:-1])
    async with LoopbackServer([[*stream(cut, last=False), CLOSE]]) as server, aclosing(made(server)) as one:
        step = await streamed(one)
    assert (step.finish, step.text) == ("error-post", "Hel")
    assert isinstance(step.error, TransientError)


async def test_timeout_is_the_longest_silence() -> None:
    """F24: `timeout` bounds the wait for the first event and between two; 0 leaves both to the library."""
    silent = [[*stream(EVENTS[:50], last=False), HOLD]]
    async with LoopbackServer(silent) as server, aclosing(made(server, timeout=0.2)) as one:
        with pytest.raises(TransientError):
            await streamed(one)
    assert made(server).timeouts is None
    assert made(server, timeout=5).timeouts.idle == 5  # type: ignore[union-attr]


async def test_leaving_a_stream_closes_the_socket() -> None:
    """A stream that is left after its first event holds no connection."""
    async with LoopbackServer([[*stream(EVENTS[:-200], last=False), HOLD]]) as server, aclosing(made(server)) as one:
        async with one.stream(CTX) as events:
            async for _ in events:
                break
        await server.until(lambda: server.open == 0)


async def test_a_tool_loop() -> None:
    """A call over one request, its result in the next, through the agent and the hooks alike."""
    call = {"name": "get_weather", "args": {"city": "Rome"}, "id": "call_1", "type": "tool_call"}
    first = message("", tool_calls=[call], response_metadata={"finish_reason": "tool_calls"})
    answers = [stream(stream_bytes([*model_run(output=first), END])), stream(EVENTS)]

    async def get_weather(city: str) -> str:
        """The weather in a city."""
        return f"Sunny in {city}"

    async with LoopbackServer(answers) as server, aclosing(made(server)) as one:
        agent = DefaultAgent(name="weather", model=one, instructions="Be brief.", tools=[get_weather])
        result = await agent.run("Weather in Rome?")
        assert result.final_output == "Hello"
        sent = json.loads(server.requests[1].body)["input"]["messages"]
    assert [item["type"] for item in sent] == ["system", "human", "ai", "tool"]
    assert (sent[2]["tool_calls"][0], sent[3]["content"], sent[3]["tool_call_id"]) == (call, "Sunny in Rome", "call_1")


@pytest.mark.parametrize("key", ["stop_reason", "stopReason", "finish_reason"])
async def test_a_truncated_reply_is_continued(key: str) -> None:
    """The gateway's stop reason is told, so that a reply cut at the ceiling is continued without any code for it."""
    cut = message("One, ", response_metadata={key: "max_tokens"})
    rest = message("two.", response_metadata={key: "end_turn"})
    answers = [stream(stream_bytes([*model_run(output=reply), END])) for reply in (cut, rest)]
    async with LoopbackServer(answers) as server, aclosing(made(server)) as one:
        result = await DefaultAgent(name="a", model=one).run("Count.")
    assert result.final_output == "One, two."


def test_settings_reach_it_by_name() -> None:
    """The provider is `langserve`; its settings come by name, texts in the type of the default."""
    one = load_adapter(
        "langserve", base_url="http://localhost/x/invoke", model="m", max_tokens_in="config", stream_events="false"
    )
    assert isinstance(one, LangServeAdapter)
    assert (one.id, one.stream_events, str(one.base_url)) == ("langserve:m", False, "http://localhost/x")
    limits = {"m": {"max_output_tokens": 100, "context_window": 5000}}
    clamped = load_adapter("langserve", base_url="http://localhost", model="m", max_tokens=500, model_limits=limits)
    assert (clamped.max_tokens, clamped.window_tokens) == (100, 5000)
    unset = load_adapter("langserve", base_url="http://localhost", model="m", model_limits=limits)
    assert unset.max_tokens == 0


def test_an_address_is_needed() -> None:
    """There is no address of LangServe's own: a missing one is an error that names the key."""
    with pytest.raises(ConfigError, match=r"llm\.base_url"):
        LangServeAdapter(model="m")


def test_recordings_are_known_by_path_and_body() -> None:
    """`/invoke` is shared with others: the members of the body tell it apart."""
    assert provider_of("/x/stream_events", {}) == "langserve"
    assert provider_of("/x/invoke", {"input": "x"}) == "langserve"
    assert provider_of("/x/invoke", {"config": {}}) == "langserve"
    assert provider_of("/model/some.model/invoke", {"messages": []}) != "langserve"


def test_what_it_declares() -> None:
    """Tools and media are taken; an output schema has no place in a runnable's input."""
    one = LangServeAdapter(base_url="http://localhost")
    assert one.supports == {"tools", "parallel-tools", "images", "documents", "audio"}
    assert (one.max_output_tokens, one.id) == (None, "langserve")


async def test_a_busy_gateway_is_unavailable() -> None:
    """F18: 503 and 529 are told as such."""
    async with LoopbackServer([[whole(b'{"detail":"busy"}', 529)]]) as server, aclosing(made(server)) as one:
        with pytest.raises(UnavailableError):
            await one.generate(CTX)
