"""Three providers behind real sockets, and everything that goes wrong with one of them, before content and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from isthmus import Agent
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.chain import Budget, ChainExhausted, RetryPolicy, custom_model, define_chain
from isthmus.conformance import Play, serve
from isthmus.conformance.reply import End
from isthmus.models.contract import Timeouts
from isthmus.models.events import Text
from isthmus.models.retry import Clock
from support.chain_doubles import CTX
from support.sockets import data, said

SIZE: dict[str, Any] = {"window_tokens": 9_000, "max_output_tokens": 900, "api_key": "k"}
TIMEOUTS = Timeouts(first_content=1.5, idle=1.0)
RETRY = RetryPolicy(max_retries=1, base=0.01)

MAKE: dict[str, Callable[[str], Any]] = {
    "chat": lambda url: custom_model(OpenAIChatAdapter, "m", base_url=f"{url}/v1", id="first", **SIZE),
    "messages": lambda url: custom_model(AnthropicAdapter, "m", base_url=url, id="first", **SIZE),
}
HEAD = {
    "chat": [data(id="c", choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])],
    "messages": [
        data("message_start", message={"id": "m", "role": "assistant", "content": [], "usage": {"input_tokens": 4}}),
        data("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    ],
}
WORDS = {
    "chat": said("Half an answer ab"),
    "messages": data("content_block_delta", index=0, delta={"type": "text_delta", "text": "Half an answer ab"}),
}
MORE = {
    "chat": said("out the sea."),
    "messages": data("content_block_delta", index=0, delta={"type": "text_delta", "text": "out the sea."}),
}
SLOW_DOWN = b'{"type":"error","error":{"type":"rate_limit_error","message":"Slow down"}}'
BUSY = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'


def _date(seconds: float) -> dict[str, str]:
    """A `Retry-After` as a date, and the date of the reply itself."""
    now = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
    later = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    return {"retry-after": later, "date": format_datetime(now, usegmt=True)}


BEFORE: dict[str, Callable[[str], tuple[Play, int, str]]] = {
    # What the first provider does, how often it is asked, and the class of its failure.
    "killed before the head": lambda api: (Play.raw(End.RESET), 2, "transient"),
    "killed": lambda api: (Play.stream(*HEAD[api], End.RESET), 2, "transient"),
    "stalled": lambda api: (Play.stream(*HEAD[api], End.HOLD), 2, "transient"),
    "429 with a date at once": lambda api: (Play.whole(SLOW_DOWN, status=429, headers=_date(0)), 2, "transient"),
    "429 with a far date": lambda api: (Play.whole(SLOW_DOWN, status=429, headers=_date(3600)), 1, "transient"),
    "529": lambda api: (Play.whole(BUSY, status=529), 1, "unavailable"),
    "cut in the middle of a frame": lambda api: (
        Play.stream(*HEAD[api], WORDS[api][: len(WORDS[api]) // 2], End.CLOSE),
        2,
        "transient",
    ),
}
ERROR_FRAME = {
    "chat": lambda kind, code: data(error={"message": kind, "type": kind, "code": code}),
    "messages": lambda kind, code: data("error", error={"type": kind, "message": kind}),
}
AFTER: dict[str, Callable[[str], list[Any]]] = {
    "killed": lambda api: [End.RESET],
    "stalled": lambda api: [End.HOLD],
    "429": lambda api: [ERROR_FRAME[api]("rate_limit_error", 429)],
    "529": lambda api: [ERROR_FRAME[api]("overloaded_error", 529)],
    "cut in the middle of a word": lambda api: [MORE[api][: len(MORE[api]) // 2], End.CLOSE],
}


def _others(second: Any, third: Any) -> list[Any]:
    return [
        custom_model(AnthropicAdapter, "m", base_url=second.url, id="second", **SIZE),
        custom_model(OpenAIChatAdapter, "m", base_url=f"{third.url}/v1", id="third", **SIZE),
    ]


@pytest.mark.parametrize("api", MAKE)
@pytest.mark.parametrize("fault", BEFORE)
async def test_before_content_the_next_provider_answers(fault: str, api: str) -> None:
    """F05, F09, F24: nobody sees a word of the two that failed; the ledger names them; all sockets close."""
    play, tries, kind = BEFORE[fault](api)
    async with (
        serve(play, repeat=True) as first,
        serve(Play.whole(BUSY, status=503), repeat=True) as second,
        serve(*Play.steps("A whole answer."), repeat=True) as third,
    ):
        tiers = [MAKE[api](first.url), *_others(second, third)]
        async with define_chain(id="c", tiers=tiers, timeouts=TIMEOUTS, retry=RETRY) as chain:
            run = Agent(model=chain).run_stream("hi")
            texts = [event.text async for event in run if isinstance(event, Text)]
            result = await run.result()
        for server in (first, second, third):
            await server.until(lambda server=server: server.open == 0)  # type: ignore[misc]
        assert [len(server.requests) for server in (first, second, third)] == [tries, 1, 1]
    assert "".join(texts) == "A whole answer."
    assert (result.text, result.outcome.outcome, result.outcome.tier) == ("A whole answer.", "completed", "third")
    ledger = [(a.tier, a.error_class) for a in result.attempts]
    assert ledger == [("first", kind)] * tries + [("second", "unavailable"), ("third", None)]


@pytest.mark.parametrize("api", MAKE)
@pytest.mark.parametrize("fault", AFTER)
async def test_after_content_nothing_is_said_again(fault: str, api: str) -> None:
    """F05, F24: the turn ends "stream-error" with what had come; no other provider is asked, none twice."""
    async with (
        serve(Play.stream(*HEAD[api], WORDS[api], *AFTER[fault](api)), repeat=True) as first,
        serve(*Play.steps("never"), repeat=True) as second,
        serve(*Play.steps("never"), repeat=True) as third,
    ):
        tiers = [MAKE[api](first.url), *_others(second, third)]
        budget = Budget(tokens=5000)
        async with define_chain(id="c", tiers=tiers, timeouts=TIMEOUTS, retry=RETRY, budget=budget) as chain:
            result = await Agent(model=chain).run("hi")
        await first.until(lambda: first.open == 0)
        assert [len(server.requests) for server in (first, second, third)] == [1, 0, 0]
    assert (result.text, result.outcome.outcome, result.outcome.reason) == ("Half an answer ab", "cut", "stream-error")
    assert [(a.tier, a.finish, a.next) for a in result.attempts] == [("first", "error-post", "passthrough")]


async def test_all_providers_down_names_each() -> None:
    """A chain of three that all fail says what each of them said."""
    async with (
        serve(Play.raw(End.RESET), repeat=True) as first,
        serve(Play.whole(BUSY, status=529), repeat=True) as second,
        serve(Play.whole(b'{"error":{"message":"bad key"}}', status=401), repeat=True) as third,
    ):
        tiers = [MAKE["chat"](first.url), *_others(second, third)]
        async with define_chain(id="c", tiers=tiers, retry=RETRY) as chain:
            with pytest.raises(ChainExhausted) as caught:
                await chain.generate(CTX)
    classes = [(f.tier, f.error_class, f.status) for f in caught.value.failures]
    assert classes == [
        ("first", "transient", None),
        ("first", "transient", None),
        ("second", "unavailable", 529),
        ("third", "credentials", 401),
    ]


async def test_a_dead_port_falls_back_at_once() -> None:
    """Nobody listens at the first provider's port: it is asked once, without a wait."""
    async with serve(*Play.steps("here"), repeat=True) as server:
        dead = MAKE["chat"]("http://127.0.0.1:9")
        spare = custom_model(OpenAIChatAdapter, "m", base_url=f"{server.url}/v1", id="spare", **SIZE)
        async with define_chain(id="c", tiers=[dead, spare]) as chain:
            began = asyncio.get_running_loop().time()
            reply = await chain.generate(CTX)
            assert asyncio.get_running_loop().time() - began < 2
    assert (reply.text, [(a.tier, a.error_class) for a in reply.attempts]) == (
        "here",
        [("first", "unavailable"), ("spare", None)],
    )


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        (_date(9), 9.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6s"}, 6.0),
        ({"retry-after": "soon"}, 0.01),
        ({"retry-after": "-5"}, 0.01),
    ],
)
@pytest.mark.parametrize("api", MAKE)
async def test_a_hint_in_every_form_is_the_wait(api: str, headers: dict[str, str], wait: float) -> None:
    """F09: seconds, fractions, milliseconds, a date and a reset are waited for exactly; nonsense leaves the backoff."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with serve(Play.whole(SLOW_DOWN, status=429, headers=headers), *Play.steps("fine")) as server:
        clock = Clock(sleep=sleep, random=lambda: 1.0)
        async with define_chain(id="c", tiers=[MAKE[api](server.url)], retry=RETRY, clock=clock) as chain:
            reply = await chain.generate(CTX)
    assert reply.text == "fine"
    assert waits == [pytest.approx(wait)]
    assert [attempt.wait for attempt in reply.attempts] == [0.0, pytest.approx(wait)]
