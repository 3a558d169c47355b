"""Tiers that keep failing are left alone for a while, by all runs of a chain."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest

from isthmus.chain import Budget, ChainExhausted, Cooldown, RetryPolicy, define_chain, tier_error
from isthmus.errors import ConfigError, ErrorClass, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Text
from support.chain_doubles import CTX, HANG, OK, FakeTime, PlayTier, Recorder

ONCE = RetryPolicy(max_retries=0)


def failing(kind: str = "unavailable", **more: Any) -> Any:
    """A failure."""
    return tier_error(kind, f"deliberate {kind}", **more)


def chain_of(*tiers: Any, time: FakeTime, cooldown: Cooldown | None = None, retry: RetryPolicy = ONCE) -> Any:
    """A chain with a cooldown."""
    return define_chain(
        id="c", tiers=tiers, clock=time.clock(), retry=retry, cooldown=cooldown or Cooldown(), sticky="none"
    )


async def ask(chain: Any, times: int = 1) -> None:
    """Call it some times."""
    for _ in range(times):
        await chain.generate(CTX)


async def test_cooling_is_off_by_default() -> None:
    """Without a cooldown a tier is asked every time, however often it failed."""
    tier = PlayTier("a", [failing()])
    await ask(define_chain(id="c", tiers=[tier, PlayTier("b", OK)], sticky="none"), 10)
    assert len(tier.calls) == 10


async def test_three_failures_in_a_row_cool_a_tier_for_30_seconds() -> None:
    """F09: the defaults; while it cools the tier is passed over, and listeners are told."""
    time, tier = FakeTime(), PlayTier("a", [failing()])
    chain = chain_of(tier, PlayTier("b", OK), time=time)
    with Recorder() as seen:
        await ask(chain, 5)
        assert len(tier.calls) == 3
        time.seconds += 29.9
        await ask(chain)
        assert len(tier.calls) == 3
        time.seconds += 0.2
        await ask(chain)
        assert len(tier.calls) == 4
    assert [f["seconds"] for f in seen.fields("tier.cooled")] == [30.0, 60.0]
    assert [f["reason"] for f in seen.fields("tier.skipped")] == ["cooling"] * 3


async def test_the_wait_grows_to_its_cap() -> None:
    """F09: each ejection in a row is 30 s longer, up to 300 s; a success begins anew."""
    time = FakeTime()
    tier = PlayTier("a", *[[failing()]] * 14, OK, [failing()])
    chain = chain_of(tier, PlayTier("b", OK), time=time)
    with Recorder() as seen:
        for _ in range(18):
            await ask(chain)
            time.seconds += 301
    waits = [f["seconds"] for f in seen.fields("tier.cooled")]
    assert waits == [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300, 30]
    assert len(seen.fields("tier.recovered")) == 1


async def test_a_success_breaks_the_row() -> None:
    """Two failures, a success and two failures are no three in a row."""
    tier = PlayTier("a", [failing()], [failing()], OK, [failing()], [failing()], OK)
    await ask(chain_of(tier, PlayTier("b", OK), time=FakeTime()), 6)
    assert len(tier.calls) == 6


async def test_one_call_probes_a_tier_the_others_go_past_it() -> None:
    """After the wait one call tries the tier, half-open; until it is through, others go past."""
    time = FakeTime()
    tier = PlayTier("a", *[[failing()]] * 3, [HANG], OK)
    spare = PlayTier("b", OK)
    chain = chain_of(tier, spare, time=time)
    await ask(chain, 3)
    time.seconds += 31
    probe = asyncio.create_task(chain.generate(CTX))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await ask(chain, 2)
    assert (len(tier.calls), len(spare.calls)) == (4, 5)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    # A probe that was given up says nothing: the next call is the probe.
    await ask(chain)
    assert len(tier.calls) == 5


@pytest.mark.parametrize("kind", list(ErrorClass))
async def test_only_what_is_the_tiers_fault_counts(kind: str) -> None:
    """Caller's faults cool no tier; "credentials" does alone, "transient" and "unavailable" do in a row."""
    counted = {"transient": 3, "unavailable": 3, "credentials": 1}
    tier = PlayTier("a", [failing(kind)])
    chain = chain_of(tier, PlayTier("b", OK, window=10**6), time=FakeTime())
    for _ in range(6):
        with pytest.raises(TierError) if kind in ("invalid", "refused") else nullcontext():
            await ask(chain)
    assert len(tier.calls) == counted.get(kind, 6)


async def test_failures_after_content_do_not_count() -> None:
    """A stream that broke after content cools nothing."""
    tier = PlayTier("a", [Text("x"), failing("transient")])
    await ask(chain_of(tier, PlayTier("b", OK), time=FakeTime()), 6)
    assert len(tier.calls) == 6


async def test_a_tier_that_is_cooled_is_not_retried_while_another_is_left() -> None:
    """The failure that cools a tier goes to the next one at once; the last one keeps its retries."""
    time = FakeTime()
    first, last = PlayTier("a", [failing("transient")]), PlayTier("b", [failing("transient")])
    chain = chain_of(first, last, time=time, cooldown=Cooldown(failures=1), retry=RetryPolicy(max_retries=2))
    with pytest.raises(ChainExhausted):
        await ask(chain)
    assert (len(first.calls), len(last.calls)) == (1, 3)


async def test_all_cooling_forces_the_first() -> None:
    """Where all tiers cool they are tried all the same, in order, rather than that the call fails untried."""
    first, last = PlayTier("a", [failing()]), PlayTier("b", [failing()], OK)
    chain = chain_of(first, last, time=FakeTime(), cooldown=Cooldown(failures=1))
    with pytest.raises(ChainExhausted):
        await ask(chain)
    with Recorder() as seen:
        assert (await chain.generate(CTX)).text == "fine"
    assert [f["tier"] for f in seen.fields("tier.forced")] == ["a"]
    assert (len(first.calls), len(last.calls)) == (2, 2)


async def test_the_providers_own_wait_is_heeded() -> None:
    """F09: a tier that asks to be left alone for longer than the wait is, up to the cap."""
    for hint, wait in ((45.0, 45.0), (5.0, 30.0), (9999.0, 300.0)):
        with Recorder() as seen:
            tiers = PlayTier("a", [failing("transient", retry_after=hint)]), PlayTier("b", OK)
            await ask(chain_of(*tiers, time=FakeTime(), cooldown=Cooldown(failures=1)))
        assert [f["seconds"] for f in seen.fields("tier.cooled")] == [wait]


async def test_runs_share_what_is_known_of_a_tier() -> None:
    """What one run found out holds for the others of the same chain, and for no other chain."""
    tier, spare = PlayTier("a", [failing()]), PlayTier("b", OK)
    chain = chain_of(tier, spare, time=FakeTime(), cooldown=Cooldown(failures=1))
    async with chain.open_run() as one, chain.open_run() as two:
        await ask(one)
        await ask(two)
        assert len(tier.calls) == 1
    await ask(chain_of(tier, spare, time=FakeTime()))
    assert len(tier.calls) == 2


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"failures": 1.5}, {"seconds": 0}, {"cap": -1}])
def test_a_cooldown_that_cannot_be(wrong: Any) -> None:
    """Numbers that make no sense are refused by name."""
    with pytest.raises(ConfigError, match=f"Cooldown: {next(iter(wrong))}"):
        Cooldown(**wrong)


@pytest.mark.parametrize("name", ["seconds", "cap"])
@pytest.mark.parametrize("value", ["x", None, True, 0])
def test_a_wait_is_a_number(name: str, value: Any) -> None:
    """What is no number of seconds is refused by name and value."""
    with pytest.raises(ConfigError, match=rf"Cooldown: {name}: must be seconds above 0, not "):
        Cooldown(**{name: value})


async def test_the_end_of_a_budget_is_no_illness() -> None:
    """A chain among the tiers whose budget is too small for one request is still asked for the next one."""
    inner = define_chain(id="inner", tiers=[PlayTier("i", OK)], budget=Budget(tokens=90))
    chain = chain_of(inner, PlayTier("b", OK), time=FakeTime(), cooldown=Cooldown(failures=1))
    large = GenerateContext(messages=({"role": "user", "content": "word " * 400},))
    assert [attempt.tier for attempt in (await chain.generate(large)).attempts] == ["inner", "b"]
    assert [attempt.tier for attempt in (await chain.generate(CTX)).attempts] == ["inner"]


@pytest.mark.parametrize("ends", ["abort", "break"])
async def test_the_end_of_an_older_call_lets_nobody_past_a_probe(ends: str) -> None:
    """While one call probes a tier, one that began before the tier was left alone and ends now changes nothing."""
    time, tier = FakeTime(), PlayTier("a", [Text("old"), HANG], [failing()], [HANG])
    chain = chain_of(tier, PlayTier("b", OK), time=time, cooldown=Cooldown(failures=1))
    old = chain.stream(CTX)
    await anext(aiter(old))
    await ask(chain)
    time.seconds += 31
    probe = asyncio.create_task(ask(chain))
    await asyncio.sleep(0)
    while len(tier.calls) < 3:
        await asyncio.sleep(0)
    if ends == "abort":
        reader = asyncio.create_task(old.result())
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    await old.aclose()
    async with asyncio.timeout(5):
        await ask(chain, 3)
    assert len(tier.calls) == 3
    probe.cancel()
    await asyncio.gather(probe, return_exceptions=True)
