"""What the renderers say, their inverse decoders and the official clients understand."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.conformance import Play, serve
from isthmus.conformance.plays import Received, wire_of
from isthmus.conformance.wire import sse_frames
from isthmus.errors import ConfigError, ErrorClass, TierError, tier_error
from isthmus.models.events import Call, StepResult, Text
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended, WireReply
from isthmus.wire.frame import Frame
from isthmus.wire.sse import SSEParser
from support.cuts import codec, outcome
from support.rawclient import CHAT_PATH, MESSAGES_PATH

PATHS = {"openai-chat": CHAT_PATH, "anthropic-messages": MESSAGES_PATH}
APIS = sorted(PATHS)
TOOL_STEP = {
    "text": "Let me see.",
    "calls": [{"tool": "add", "input": {"a": 1}, "call_id": "c1"}, {"tool": "add", "input": {}, "call_id": "c2"}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


def replied(api: str, step: Any, *, stream: bool) -> Any:
    """The reply that a request to an API gets."""
    asked = json.dumps({"model": "m", "stream": stream, "stream_options": {"include_usage": True}})
    (play,) = Play.steps(step)
    return play.answer(Received("POST", PATHS[api], {}, asked.encode()))


def understood(api: str, step: Any, *, stream: bool) -> StepResult | TierError:
    """What our own decoder makes of a step as the dialect says it."""
    body = replied(api, step, stream=stream).body
    if stream:
        parser = SSEParser()
        return outcome(api, [*parser.feed(body), *parser.close()], Ended.FRAMED)
    decoder, fold = codec(api).decoder(whole=True), Fold()
    fold.extend(decoder.feed(Frame(body)))
    fold.extend(decoder.close(Ended.FRAMED))
    return fold.result()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=2),
    max_leaves=4,
)
STEPS = st.fixed_dictionaries(
    {
        "text": st.text(st.characters(codec="utf-8"), max_size=30),
        "reasoning": st.text(st.characters(codec="utf-8"), max_size=10),
        "calls": st.lists(st.dictionaries(st.text("xyz", max_size=3), JSON, max_size=2), max_size=3),
        "usage": st.fixed_dictionaries({"input_tokens": st.integers(1, 10**6), "output_tokens": st.integers(1, 10**6)}),
        "reason": st.sampled_from(["stop", "length"]),
    }
)


@settings(max_examples=40, deadline=None)
@given(STEPS)
def test_a_step_comes_out_of_the_decoder_as_it_went_in(step: dict[str, Any]) -> None:
    """Text, reasoning, calls, finish and tokens of any step survive being said in a dialect and read again."""
    inputs, usage = step["calls"], step["usage"]
    calls = [{"tool": "add", "input": value, "call_id": f"c{index}"} for index, value in enumerate(inputs)]
    finish = "tool-calls" if calls else step["reason"]
    written = {**{name: step[name] for name in ("text", "reasoning", "usage")}, "calls": calls, "finish": finish}
    for api in APIS:
        for stream in (True, False):
            found = understood(api, written, stream=stream)
            assert isinstance(found, StepResult), found
            assert (found.text, found.reasoning, found.finish) == (step["text"], step["reasoning"], finish)
            assert [(call.call_id, call.input) for call in found.calls] == [(c["call_id"], c["input"]) for c in calls]
            assert found.usage is not None
            tokens = (found.usage.input_tokens, found.usage.output_tokens)
            assert tokens == (usage["input_tokens"], usage["output_tokens"])


FINISHES = ["stop", "length", "refusal", "content-filter", "pause", "other"]
SAID = [
    (api, finish) for api in APIS for finish in FINISHES if (api, finish) != ("anthropic-messages", "content-filter")
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("api", "finish"), SAID)
def test_each_finish_is_said(api: str, stream: bool, finish: str) -> None:
    """F12: every finish that an API has a word for is understood as itself, streamed and whole."""
    found = understood(api, {"text": "x", "finish": finish}, stream=stream)
    assert isinstance(found, StepResult)
    assert found.finish == finish


@pytest.mark.parametrize("api", APIS)
def test_arguments_stand_as_the_model_wrote_them(api: str) -> None:
    """F30: number texts in arguments are the same on the wire, streamed and whole."""
    arguments = '{"id": 2512292042121000001, "x": 1.50}'
    step = [Text("a"), Call("add", {"id": 2512292042121000001, "x": 1.5}, "c1", arguments)]
    for stream in (True, False):
        found = understood(api, StepResult(events=tuple(step), finish="tool-calls"), stream=stream)
        assert isinstance(found, StepResult)
        assert found.calls[0].arguments == arguments


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("kind", ["transient", "unavailable", "credentials", "overflow", "refused", "invalid"])
def test_an_error_is_classified_as_it_was_meant(api: str, kind: str) -> None:
    """An error of each class that a provider can say is that class again, as a status and inside a stream."""
    error = tier_error(kind, "so it is")
    reply = replied(api, error, stream=True)
    assert reply.status >= 400
    assert codec(api).classify(WireReply(reply.status, dict(reply.headers), reply.body)).error_class == kind
    inside = understood(api, [Text("hel"), error], stream=True)
    assert isinstance(inside, TierError)
    assert inside.error_class == ErrorClass(kind)


@pytest.mark.parametrize("api", APIS)
def test_each_stream_has_an_end_that_is_known(api: str) -> None:
    """F01: the frames that a dialect calls its end are the last ones, and without them a stream is no success."""
    wire = wire_of(PATHS[api])
    assert wire is not None
    frames = sse_frames(replied(api, TOOL_STEP, stream=True).body)
    ends = [wire.ends(frame) for frame in frames]
    assert ends == sorted(ends)
    assert 0 < sum(ends) < len(ends)
    parser = SSEParser()
    kept = parser.feed(b"".join(frame for frame, end in zip(frames, ends, strict=True) if not end))
    assert isinstance(outcome(api, list(kept), Ended.FRAMED), TierError)


def test_what_cannot_be_said_is_an_error() -> None:
    """A step at an unknown path, and broken arguments where they must be a value, say what is wrong."""
    (play,) = Play.steps("x")
    with pytest.raises(ConfigError, match="/chat/completions"):
        play.answer(Received("POST", "/elsewhere", {}))
    broken = StepResult(events=(Call("add", None, "c1", "{", "not JSON"),), finish="tool-calls")
    with pytest.raises(ConfigError, match="only be streamed"):
        replied("anthropic-messages", broken, stream=False)
    assert replied("openai-chat", broken, stream=False).status == 200


ASK: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


async def test_the_official_chat_client_reads_it() -> None:
    """The official client of Chat Completions finds text, calls, reason and tokens, streamed and whole, and errors."""
    openai = pytest.importorskip("openai")
    slow = tier_error("transient", "slow down", status=429, retry_after=2)
    steps = [TOOL_STEP, TOOL_STEP, slow, [Text("hel"), tier_error("unavailable", "over")]]
    async with (
        serve(Play.steps(*steps)) as server,
        openai.AsyncOpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0) as client,
    ):
        reply = await client.chat.completions.create(**ASK)
        assert reply.choices[0].message.content == "Let me see."
        assert [call.function.arguments for call in reply.choices[0].message.tool_calls] == ['{"a":1}', "{}"]
        assert (reply.choices[0].finish_reason, reply.usage.total_tokens) == ("tool_calls", 7)
        stream = client.chat.completions.stream(**ASK, stream_options={"include_usage": True})
        async with stream as events:
            final = await events.get_final_completion()
        assert final.choices[0].message.content == "Let me see."
        assert [call.id for call in final.choices[0].message.tool_calls] == ["c1", "c2"]
        assert final.usage.total_tokens == 7
        with pytest.raises(openai.RateLimitError) as caught:
            await client.chat.completions.create(**ASK)
        assert caught.value.response.headers["retry-after"] == "2"
        with pytest.raises(openai.APIError, match="over"):
            async for _ in await client.chat.completions.create(**ASK, stream=True):
                pass
    assert not server.problems


async def test_the_official_messages_client_reads_it() -> None:
    """The official client of the Messages API finds text, calls, reason and tokens, streamed and whole, and errors."""
    anthropic = pytest.importorskip("anthropic")
    steps = [TOOL_STEP, TOOL_STEP, tier_error("credentials", "no"), [Text("hel"), tier_error("unavailable", "over")]]
    async with (
        serve(Play.steps(*steps)) as server,
        anthropic.AsyncAnthropic(api_key="none", base_url=server.url, max_retries=0) as client,
    ):
        asked = {**ASK, "max_tokens": 9}
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as events:
            streamed = await events.get_final_message()
        for message in (whole, streamed):
            assert [block.type for block in message.content] == ["text", "tool_use", "tool_use"]
            assert [block.input for block in message.content[1:]] == [{"a": 1}, {}]
            assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 4)
        with pytest.raises(anthropic.AuthenticationError):
            await client.messages.create(**asked)
        with pytest.raises(anthropic.APIError, match="over"):
            async with client.messages.stream(**asked) as events:
                await events.get_final_message()
    assert not server.problems
