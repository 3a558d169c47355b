"""What a run may spend: set aside before a try, settled after it, and never gone beyond."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

import pytest

from isthmus import Agent
from isthmus.chain import Budget, ChainCut, ChainExhausted, CutReason, Price, RetryPolicy, define_chain, tier_error
from isthmus.chain.budget import Account
from isthmus.chain.prices import Prices
from isthmus.chain.tier import member
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext, Timeouts
from isthmus.models.events import Finish, Reasoning, Text, Usage
from isthmus.models.retry import Clock
from support.chain_doubles import CTX, HANG, OK, FakeTime, PlayTier, Recorder, events_of
from support.virtual_time import run_virtual

ASK = GenerateContext(messages=({"role": "user", "content": "hi"},), max_output_tokens=100)


def spent(prompt: int, output: int) -> tuple[Any, ...]:
    """A reply that says what it took."""
    return (Text("fine"), Finish("stop", Usage(input_tokens=prompt, output_tokens=output)))


def failing(kind: str, usage: Usage | None = None) -> Any:
    """A failure that says what it took."""
    error = tier_error(kind, f"deliberate {kind}")
    error.usage = usage
    return error


def chain_of(*tiers: Any, budget: Budget, **settings: Any) -> Any:
    """A chain that waits in no time."""
    return define_chain(id="c", tiers=tiers, budget=budget, **{"clock": FakeTime().clock(), **settings})


async def cut_of(chain: Any, ctx: GenerateContext = ASK) -> CutReason:
    """The reason that a call is cut for before any content."""
    with pytest.raises(ChainCut) as caught:
        await chain.generate(ctx)
    return caught.value.reason


def test_the_defaults() -> None:
    """Twenty steps; all else is without limit."""
    assert Budget() == Budget(
        steps=20, calls=None, tokens=None, input_tokens=None, output_tokens=None, cost=None, seconds=None
    )


@pytest.mark.parametrize("limit", ["steps", "calls", "tokens", "input_tokens", "output_tokens", "cost", "seconds"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), "much", True])
def test_a_limit_is_above_zero(limit: str, value: Any) -> None:
    """A limit that nothing could stay within, or that is none, is refused with its name."""
    with pytest.raises(ConfigError, match=f"Budget: {limit}"):
        Budget(**{limit: value})


def test_money_is_decimal() -> None:
    """An amount may be given as text, as a whole number or as a float, and is kept as it was written."""
    assert [Budget(cost=value).cost for value in ("0.1", 2, 0.1)] == [Decimal("0.1"), Decimal(2), Decimal("0.1")]


async def test_exactly_n_steps_are_made() -> None:
    """Of N steps all are made; step N + 1 is cut before its tier is called, "budget-steps"."""
    tier = PlayTier("a", OK)
    async with chain_of(tier, budget=Budget(steps=3)).open_run() as run:
        for _ in range(3):
            await run.generate(ASK)
        assert await cut_of(run) == "budget-steps"
        assert (len(tier.calls), run.spent.steps) == (3, 3)


async def test_a_step_counts_once_however_many_tries() -> None:
    """Retries and fallbacks are one step."""
    a, b = PlayTier("a", [failing("transient")]), PlayTier("b", OK)
    async with chain_of(a, b, budget=Budget(steps=1)).open_run() as run:
        assert (await run.generate(ASK)).text == "fine"
        assert (len(a.calls), run.spent.steps) == (3, 1)


async def test_without_a_run_each_call_has_the_budget_for_itself() -> None:
    """What one call spent is no matter of the next one's, unless both are of one run."""
    chain = chain_of(PlayTier("a", spent(50, 10)), budget=Budget(steps=1, tokens=120))
    for _ in range(3):
        assert (await chain.generate(ASK)).text == "fine"


async def test_exactly_at_the_limit_is_within_it() -> None:
    """Tokens up to and including the limit may be spent; the next call is cut before its tier is called."""
    tier = PlayTier("a", spent(60, 40))
    async with chain_of(tier, budget=Budget(tokens=200)).open_run() as run:
        await run.generate(ASK)
        await run.generate(ASK)
        assert run.spent.input_tokens + run.spent.output_tokens == 200
        assert await cut_of(run) == "budget-tokens"
    assert len(tier.calls) == 2


async def test_the_ceiling_is_lowered_to_what_is_left() -> None:
    """The output ceiling that a tier gets is what the request, the tier and the budget allow, and the reply says so."""
    tier = PlayTier("a", spent(0, 30))
    async with chain_of(tier, budget=Budget(output_tokens=110)).open_run() as run:
        first, second = [await run.generate(ASK) for _ in range(2)]
    assert [ctx.max_output_tokens for ctx in tier.calls] == [100, 80]
    assert first.notes == ()
    assert [note.code for note in second.notes] == ["parameter-changed"]
    assert "100 became 80, the ceiling of what is left of the budget" in second.notes[0].detail


async def test_a_ceiling_below_the_floor_is_not_sent() -> None:
    """With fewer than 64 tokens left the call is cut; a request for fewer is begun all the same."""
    tier = PlayTier("a", spent(0, 50))
    async with chain_of(tier, budget=Budget(output_tokens=110)).open_run() as run:
        await run.generate(ASK)
        assert await cut_of(run) == "budget-tokens"
        few = GenerateContext(messages=ASK.messages, max_output_tokens=20)
        assert (await run.generate(few)).text == "fine"


async def test_a_tier_that_names_no_ceiling_is_given_one() -> None:
    """Where output is limited and nobody named a ceiling, 8192 tokens or what is left are asked for."""
    tier = PlayTier("a", spent(0, 1))
    tier.max_output_tokens = None  # type: ignore[assignment]
    tier.window_tokens = None  # type: ignore[assignment]
    await chain_of(tier, budget=Budget(output_tokens=500)).generate(CTX)
    await chain_of(tier, budget=Budget(output_tokens=50_000)).generate(CTX)
    await chain_of(tier, budget=Budget()).generate(CTX)
    assert [ctx.max_output_tokens for ctx in tier.calls] == [500, 8192, None]


async def test_failed_tries_count() -> None:
    """Tokens that a failed try says it took are spent, for the retry, the fallback and the next step alike."""
    took = Usage(input_tokens=40, output_tokens=0)
    a, b = PlayTier("a", [failing("transient", took)]), PlayTier("b", spent(10, 5))
    async with chain_of(a, b, budget=Budget(tokens=1000)).open_run() as run:
        await run.generate(ASK)
        assert (run.spent.input_tokens, run.spent.output_tokens) == (130, 5)
        assert run.spent.estimated is False


async def test_a_retry_that_no_longer_fits_is_not_begun() -> None:
    """The call is cut with the budget's reason, not "exhausted", and names what to do."""
    a = PlayTier("a", [failing("transient", Usage(input_tokens=60, output_tokens=0))], OK)
    with pytest.raises(ChainCut, match="budget-tokens: what is left is too little for another try: raise the budget"):
        await chain_of(a, budget=Budget(tokens=120)).generate(ASK)
    assert len(a.calls) == 1


async def test_a_refused_try_costs_nothing() -> None:
    """A failure before content that says no tokens counts none."""
    a, b = PlayTier("a", [failing("unavailable")]), PlayTier("b", spent(7, 3))
    async with chain_of(a, b, budget=Budget(tokens=1000)).open_run() as run:
        await run.generate(ASK)
        assert (run.spent.input_tokens, run.spent.output_tokens, run.spent.estimated) == (7, 3, False)


async def test_missing_usage_is_estimated_and_marked() -> None:
    """A reply that says no tokens counts its prompt and its text by their length, marked as an estimate."""
    tier = PlayTier("a", [Text("x" * 40), Text("y" * 41), Finish("stop")])
    async with chain_of(tier, budget=Budget(tokens=1000)).open_run() as run:
        await run.generate(ASK)
        assert run.spent.output_tokens == 21
        assert 5 <= run.spent.input_tokens <= 20
        assert run.spent.estimated is True


async def test_a_reply_cut_after_content_counts() -> None:
    """A stream that broke, and one whose reader left, count what had come."""
    for tail in (failing("transient"), HANG):
        tier = PlayTier("a", [Reasoning("z" * 20), Text("x" * 20), tail])
        async with chain_of(tier, budget=Budget(tokens=1000)).open_run() as run:
            async with run.stream(ASK) as stream:
                async for event in stream:
                    if isinstance(event, Text) and tail is HANG:
                        break
            assert run.spent.output_tokens == 10
            assert run.spent.estimated is True


def test_a_try_that_timed_out_counts_its_prompt() -> None:
    """F11: a tier that was at work when it was stopped may have cost its prompt, which counts as an estimate."""

    async def main() -> None:
        clock = Clock(now=asyncio.get_running_loop().time, random=lambda: 0.5)
        a, b = PlayTier("a", [HANG]), PlayTier("b", spent(0, 0))
        chain = define_chain(
            id="c",
            tiers=[a, b],
            budget=Budget(tokens=1000),
            clock=clock,
            retry=RetryPolicy(max_retries=0),
            timeouts=Timeouts(first_content=1.0),
        )
        async with chain.open_run() as run:
            await run.generate(ASK)
            assert run.spent.input_tokens > 0
            assert run.spent.estimated is True

    run_virtual(main())


async def test_calls_under_way_share_the_budget() -> None:
    """What one call has set aside is not there for another one of the same run."""
    tier = PlayTier("a", [Text("x"), HANG], spent(0, 10))
    async with chain_of(tier, budget=Budget(output_tokens=180)).open_run() as run:
        async with run.stream(ASK) as first:
            await anext(first)
            await run.generate(ASK)
        assert [ctx.max_output_tokens for ctx in tier.calls] == [100, 80]


PRICES = {"a": Price(input=1, output=10), "b": Price(input="0.1", output=1)}


async def test_money_is_spent_by_bucket_and_never_beyond() -> None:
    """A try is begun with no higher ceiling than the money pays for, and what it took is settled exactly."""
    tier = PlayTier("a", spent(8, 100))
    budget = Budget(cost="0.002")
    async with chain_of(tier, budget=budget, prices=PRICES).open_run() as run:
        await run.generate(ASK)
        assert run.spent.cost == Decimal("0.001008")
        await run.generate(ASK)
        assert run.spent.cost <= Decimal("0.0020161")
        assert await cut_of(run) == "budget-cost"
    assert tier.calls[0].max_output_tokens == 100
    assert 64 <= (tier.calls[1].max_output_tokens or 0) < 100


async def test_a_cheaper_tier_is_tried_where_one_is_too_dear() -> None:
    """A tier that the money does not reach for is passed over, and the next one asked."""
    a, b = PlayTier("a", OK), PlayTier("b", spent(8, 100))
    with Recorder() as seen:
        reply = await chain_of(a, b, budget=Budget(cost="0.0005"), prices=PRICES).generate(ASK)
    assert (reply.text, a.calls) == ("fine", [])
    assert seen.fields("tier.skipped")[0]["reason"] == "budget-cost"


@pytest.mark.parametrize("prices", [None, {"a": Price(input=1, output=1)}])
def test_a_limit_of_money_needs_every_price(prices: Any) -> None:
    """F11: an unknown price is refused at definition, never counted as nothing; a tier of a nested chain too."""
    inner = define_chain(id="inner", tiers=[PlayTier("dear", OK)])
    for other in (PlayTier("dear", OK), inner):
        with pytest.raises(ConfigError, match=f"needs the price of tier '{'a' if prices is None else 'dear'}'"):
            chain_of(PlayTier("a", OK), other, budget=Budget(cost=1), prices=prices)


async def test_a_bucket_without_a_price_keeps_what_was_set_aside() -> None:
    """F11: cached tokens of unknown price are unknown in the ledger, and under a limit count what was set aside."""
    usage = Usage(input_tokens=1, output_tokens=1, cache_read_tokens=5)
    tier = PlayTier("a", [Text("x"), Finish("stop", usage)])
    async with chain_of(tier, budget=Budget(cost=1), prices=PRICES).open_run() as run:
        reply = await run.generate(ASK)
        assert reply.attempts[0].cost is None
        assert run.spent.unpriced is True
        assert run.spent.cost >= Decimal("0.001")


def test_time_is_counted_over_a_run() -> None:
    """Once the seconds of a run are over, a call under way is cut "budget-time", and so is every further one."""

    async def main() -> None:
        clock = Clock(now=asyncio.get_running_loop().time, random=lambda: 0.5)
        tier = PlayTier("a", OK, [HANG])
        chain = define_chain(id="c", tiers=[tier], budget=Budget(seconds=10), clock=clock)
        async with chain.open_run() as run:
            await run.generate(ASK)
            began = clock.now()
            assert await cut_of(run) == "budget-time"
            assert clock.now() - began == pytest.approx(10, abs=0.01)
            await asyncio.sleep(0.001)
            assert await cut_of(run) == "budget-time"
        assert (len(tier.calls), tier.open) == (2, 0)

    run_virtual(main())


async def test_agents_may_share_a_run() -> None:
    """Agents whose model is a run's copy of a chain spend from that run's budget together."""
    tier = PlayTier("a", spent(10, 5))
    async with chain_of(tier, budget=Budget(steps=3)).open_run() as run:
        outcomes = [(await Agent(model=run).run("hi")).outcome for _ in range(4)]
        assert run.spent.output_tokens == 15
    assert [outcome.reason for outcome in outcomes] == [None, None, None, "budget-steps"]
    assert [len(outcome.attempts) for outcome in outcomes] == [1, 1, 1, 0]
    assert outcomes[3].detail == "steps=3: all are used; raise it if the run is worth more"


async def test_tries_of_a_nested_chain_count_for_both() -> None:
    """What a chain inside a chain spends counts against the inner budget and the outer one, failed tries included."""
    took = Usage(input_tokens=30, output_tokens=1)
    bad, good = PlayTier("bad", [failing("unavailable", took)]), PlayTier("good", spent(10, 9))
    inner = define_chain(id="inner", tiers=[bad, good], budget=Budget(tokens=10_000))
    outer = chain_of(inner, budget=Budget(tokens=1000))
    async with outer.open_run() as run:
        await run.generate(ASK)
        assert (run.spent.input_tokens, run.spent.output_tokens, run.spent.steps) == (40, 10, 1)


async def test_an_outer_budget_stops_an_inner_chain() -> None:
    """A try inside that the outer budget has no room for is not begun, and the outer call is cut for it."""
    took = Usage(input_tokens=60, output_tokens=0)
    bad, good = PlayTier("bad", [failing("unavailable", took)]), PlayTier("good", OK)
    inner = define_chain(id="inner", tiers=[bad, good])
    assert await cut_of(chain_of(inner, budget=Budget(tokens=120))) == "budget-tokens"
    assert good.calls == []


async def test_a_cut_is_a_tier_error_that_an_outer_chain_falls_back_from() -> None:
    """To a chain around it, a chain whose own budget is used up is a tier that is unavailable."""
    inner = define_chain(id="inner", tiers=[PlayTier("x", OK)], budget=Budget(tokens=10))
    spare = PlayTier("spare", OK)
    assert (await define_chain(id="c", tiers=[inner, spare]).generate(ASK)).text == "fine"
    assert len(spare.calls) == 1


async def test_without_any_failure_of_a_budget_a_chain_is_exhausted() -> None:
    """A budget that was not in the way is not blamed."""
    with pytest.raises(ChainExhausted):
        await chain_of(PlayTier("a", [failing("unavailable")]), budget=Budget(tokens=1000)).generate(ASK)


async def test_listeners_hear_what_is_set_aside_and_settled() -> None:
    """ "budget.reserved" comes before a try begins, "budget.settled" before it is said to be over."""
    with Recorder() as seen:
        await events_of(chain_of(PlayTier("a", spent(3, 4)), budget=Budget(tokens=1000)), ASK)
    wanted = ["budget.reserved", "attempt.started", "attempt.committed", "budget.settled", "attempt.finished"]
    assert [kind for kind in seen.types if kind in wanted] == wanted
    assert seen.fields("budget.reserved")[0]["output_tokens"] == 100
    assert seen.fields("budget.settled")[0]["usage"] == Usage(input_tokens=3, output_tokens=4)


def test_what_was_not_begun_is_given_back() -> None:
    """An account that dropped or settled all its holds has exactly what was spent."""
    tier = member(PlayTier("a", OK), "here")
    account = Account(Budget(tokens=1000, cost=1), Prices(PRICES), began=0.0)
    one, two = (account.reserve(tier, 10, ceiling=100) for _ in range(2))
    assert not isinstance(one, CutReason)
    assert not isinstance(two, CutReason)
    account.drop(one)
    account.settle(two, tier, usage=None)
    full = account.reserve(tier, 10, ceiling=990)
    assert not isinstance(full, CutReason)
    assert full.output == 990
