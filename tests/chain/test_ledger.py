"""Every try is on record, on every result."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest

from isthmus import Agent
from isthmus.chain import Attempt, ChainExhausted, Price, define_chain, tier_error
from isthmus.chain.ledger import total_cost
from isthmus.models.events import Finish, StepResult, Text, Usage
from isthmus.models.limits import SlidingWindowRateLimiter
from isthmus.observability import hooks
from support.chain_doubles import CTX, OK, FakeTime, PlayTier, events_of

USAGE = Usage(input_tokens=10, output_tokens=5)
GOOD = [Text("fine"), Finish("stop", USAGE)]
PRICES = {"b": Price(input=1, output=1)}


def _busy(**more: Any) -> Any:
    return tier_error("transient", "429: slow down", status=429, **more)


def _chain(*tiers: Any, **settings: Any) -> Any:
    return define_chain(id="c", tiers=tiers, **{"clock": FakeTime().clock(), **settings})


async def test_a_reply_says_what_it_took() -> None:
    """F05: tier, number, class, status, wait, usage, cost and reason of each try, in order, on the reply itself."""
    chain = _chain(PlayTier("a", [_busy(retry_after=2)], [_busy()]), PlayTier("b", GOOD), prices=PRICES)
    reply = await chain.generate(CTX)
    assert [(a.tier, a.attempt, a.error_class, a.status, a.wait, a.next) for a in reply.attempts] == [
        ("a", 1, "transient", 429, 0.0, "retry"),
        ("a", 2, "transient", 429, 2.0, "retry"),
        ("a", 3, "transient", 429, 0.5, "fallback"),
        ("b", 1, None, None, 0.0, None),
    ]
    assert [a.reason for a in reply.attempts] == ["429: slow down"] * 3 + ["stop"]
    assert (reply.attempts[3].usage, reply.attempts[3].cost) == (USAGE, Decimal("0.000015"))
    assert reply.attempts[0].cost is None


async def test_the_ledger_changes_no_result() -> None:
    """It is no part of equality or repr: a reply through a chain equals the same one without."""
    reply, bare = await _chain(PlayTier("b", GOOD)).generate(CTX), StepResult((Text("fine"),), "stop", usage=USAGE)
    assert (reply, repr(reply), reply.to_dict()) == (bare, repr(bare), bare.to_dict())
    assert bare.attempts == ()
    end = (await events_of(_chain(PlayTier("b", GOOD))))[-1]
    assert end == GOOD[-1]
    assert [a.tier for a in end.attempts] == ["b"]


async def test_a_reply_cut_after_content_has_its_tries() -> None:
    """The "error-post" result names the tries before it and the one that broke."""
    chain = _chain(PlayTier("a", [tier_error("unavailable", "down")]), PlayTier("b", [Text("ha"), _busy()]))
    reply = await chain.generate(CTX)
    assert [(a.tier, a.finish, a.error_class, a.next) for a in reply.attempts] == [
        ("a", None, "unavailable", "fallback"),
        ("b", "error-post", "transient", "passthrough"),
    ]


async def test_a_run_keeps_the_tries_of_all_its_calls() -> None:
    """Each reply has its own; the run has all, a cancelled one too."""
    async with _chain(PlayTier("b", GOOD)).open_run() as run:
        replies = [await run.generate(CTX) for _ in range(2)]
        async with run.stream(CTX) as stream:
            await anext(stream)
        assert [len(reply.attempts) for reply in replies] == [1, 1]
        assert [a.reason for a in run.attempts] == ["stop", "stop", "cancelled"]


async def test_the_tries_of_an_inner_chain_stand_in_the_outer_one() -> None:
    """The outer try holds the inner ones, and its price is theirs."""
    inner = define_chain(
        id="inner",
        tiers=[PlayTier("x", [tier_error("unavailable", "down")]), PlayTier("b", GOOD)],
        prices=PRICES,
    )
    (outer,) = (await _chain(inner).generate(CTX)).attempts
    assert [(a.tier, a.error_class) for a in outer.attempts] == [("x", "unavailable"), ("b", None)]
    assert outer.cost == Decimal("0.000015")


async def test_the_tries_of_an_inner_chain_have_the_prices_of_the_outer_one() -> None:
    """Unless it has prices of its own; what a run cost is known on its ledger as it is to its budget."""
    for own, cost in ((None, "0.000015"), ({"b": Price(input=2, output=2)}, "0.00003")):
        inner = _chain(PlayTier("a", [_busy(retry_after=99)]), PlayTier("b", GOOD), prices=own)
        middle = define_chain(id="middle", tiers=[inner])
        outer = define_chain(id="outer", tiers=[middle, PlayTier("spare", OK)], prices=PRICES)
        (tried,) = (await outer.generate(CTX)).attempts
        assert (tried.cost, tried.attempts[0].attempts[1].cost) == (Decimal(cost), Decimal(cost))
        assert (await Agent(model=outer).run("hi")).outcome.cost == Decimal(cost)


async def test_an_agent_s_result_has_them_all() -> None:
    """Result and outcome have every try, and what all cost; as JSON too."""
    chain = _chain(PlayTier("a", [tier_error("unavailable", "down")]), PlayTier("b", GOOD), prices=PRICES)
    result = await Agent(model=chain).run("hi")
    assert [a.tier for a in result.attempts] == ["a", "b"]
    assert result.outcome.cost == Decimal("0.000015")
    told = json.loads(json.dumps(result.to_dict()))
    assert (told["cost"], told["attempts"][0]["class"]) == ("0.000015", "unavailable")


async def test_an_agent_that_fails_has_them_too() -> None:
    """The outcome of a failed run names its tries, and the price of nothing is unknown."""
    stream = Agent(model=_chain(PlayTier("a", [tier_error("credentials", "no")]))).run_stream("hi")
    with pytest.raises(ChainExhausted):
        await stream.result()
    assert stream.outcome is not None
    assert [a.error_class for a in stream.outcome.attempts] == ["credentials"]
    assert stream.outcome.cost is None


async def test_listeners_hear_the_end_of_a_turn_once() -> None:
    """A run ends with one record, whatever ended it."""
    heard: list[hooks.TurnEnded] = []
    good, bad = PlayTier("b", GOOD), PlayTier("a", [tier_error("credentials", "no")])
    with hooks.sink(lambda record: heard.append(record) if isinstance(record, hooks.TurnEnded) else None):
        await Agent(model=_chain(good, prices=PRICES), name="one").run("hi")
        with pytest.raises(ChainExhausted):
            await Agent(model=_chain(bad), name="two").run("hi")
        stream = Agent(model=_chain(good), name="three").run_stream("hi")
        await anext(stream)
        await stream.aclose()
        await stream.aclose()
    assert [(end.agent, end.outcome, end.reason) for end in heard] == [
        ("one", "completed", None),
        ("two", "failed", "exhausted"),
        ("three", "cut", "aborted"),
    ]
    assert (heard[0].cost, heard[0].tier, heard[0].usage) == (Decimal("0.000015"), "b", USAGE)


async def test_the_wait_for_a_limiter_is_a_wait() -> None:
    """A try that was held back by a limiter says for how long."""
    time = FakeTime()
    limiter = SlidingWindowRateLimiter(1, 60, clock=time.clock())
    chain = _chain(PlayTier("b", OK), limits={"b": limiter}, clock=time.clock())
    replies = [await chain.generate(CTX) for _ in range(2)]
    assert [reply.attempts[0].wait for reply in replies] == [0.0, 60.0]


def test_a_total_is_known_only_where_each_price_is() -> None:
    """Refused tries cost nothing; one try that spent tokens of unknown price makes the total unknown."""

    def attempt(cost: Decimal | None = None, usage: Usage | None = USAGE) -> Attempt:
        return Attempt(tier="a", attempt=1, seconds=0.0, usage=usage, cost=cost)

    assert total_cost([]) is None
    assert total_cost([attempt(usage=None)]) is None
    assert total_cost([attempt(Decimal(1)), attempt(usage=None), attempt(Decimal(2))]) == 3
    assert total_cost([attempt(Decimal(1)), attempt()]) is None
