"""What tokens cost, by bucket; and what is unknown stays so."""

from __future__ import annotations

import sys
from decimal import Decimal
from typing import Any

import pytest

from isthmus.chain import Price, define_chain, published_prices
from isthmus.chain.prices import Prices
from isthmus.chain.tier import member
from isthmus.errors import ConfigError, MissingDependencyError
from isthmus.models.events import Finish, Text, Usage
from support.chain_doubles import CTX, PlayTier

SONNET = Price(input=3, output=15, cache_read="0.3", cache_write="3.75", cache_write_1h=6)


def tier_of(id: str, **own: Any) -> Any:
    """A tier as a chain sees it."""
    made = PlayTier(id, [])
    made.__dict__.update(own)
    return member(made, "here")


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input_tokens=1_000_000, output_tokens=0), "3"),
        (Usage(input_tokens=3, output_tokens=1), "0.000024"),
        # F11: the reports' own numbers; nothing of a bucket is charged twice.
        (Usage(input_tokens=3, cache_write_tokens=12_304, output_tokens=0), "0.046149"),
        (Usage(input_tokens=86, cache_read_tokens=1920, output_tokens=0), "0.000834"),
        (Usage(input_tokens=0, cache_write_tokens=10, cache_write_1h_tokens=4, output_tokens=0), "0.0000465"),
        (Usage(input_tokens=0, output_tokens=10, reasoning_tokens=7), "0.00015"),
    ],
)
def test_each_bucket_has_its_price(usage: Usage, cost: str) -> None:
    """F11: uncached input, cache reads, cache writes of either life and output are priced apart, exactly."""
    assert SONNET.cost(usage) == Decimal(cost)


@pytest.mark.parametrize(
    "usage",
    [
        Usage(input_tokens=1),
        Usage(output_tokens=1),
        Usage(input_tokens=1, output_tokens=1, cache_read_tokens=1),
        Usage(input_tokens=1, output_tokens=1, cache_write_tokens=1),
    ],
)
def test_the_unknown_is_not_zero(usage: Usage) -> None:
    """F11: a missing count, or a used bucket without a price, makes the price unknown."""
    assert Price(input=1, output=1).cost(usage) is None


def test_a_bucket_that_was_not_used_needs_no_price() -> None:
    """Zero tokens cost nothing, whatever their price would be."""
    usage = Usage(input_tokens=1, output_tokens=1, cache_read_tokens=0, cache_write_tokens=0)
    assert Price(input=1, output=1).cost(usage) == Decimal("0.000002")


@pytest.mark.parametrize("wrong", [-1, "free", float("nan"), True])
def test_a_price_is_an_amount(wrong: Any) -> None:
    """A price that is none is refused with its bucket."""
    with pytest.raises(ConfigError, match="Price: output"):
        Price(input=1, output=wrong)


def test_a_price_is_found_by_id_then_provider_and_model_then_model() -> None:
    """The most particular key of the table counts; without any the price is unknown."""
    usage = Usage(input_tokens=0, output_tokens=1_000_000)
    tier = tier_of("mine", provider="p", model="m")
    table = {"m": {"input": 0, "output": 1}, "p:m": {"input": 0, "output": 2}, "mine": {"input": 0, "output": 3}}
    for cost in (3, 2, 1):
        assert Prices(table).cost(tier, usage) == cost
        table.popitem()
    assert Prices(table).cost(tier, usage) is None
    assert Prices({"m": {"input": 0, "output": 1}}).cost(tier, None) is None


def test_a_tier_is_known_by_its_model_or_its_id() -> None:
    """Provider and model are the adapter's own, or what its id says."""
    tiers = [tier_of("x", provider="p", model="m"), tier_of("p:m:8b"), tier_of("plain")]
    assert [(tier.provider, tier.model) for tier in tiers] == [("p", "m"), ("p", "m:8b"), ("", "plain")]


@pytest.mark.parametrize("wrong", [[], {"m": 3}, {"m": {"inptu": 3}}])
def test_a_table_that_is_none_is_refused(wrong: Any) -> None:
    """What is no table, and a price that is no price, is refused with its key."""
    with pytest.raises(ConfigError, match="prices"):
        Prices(wrong)


async def test_a_function_may_know_the_prices() -> None:
    """Prices may be asked of a function of provider, model and tokens."""
    asked: list[Any] = []

    def pricing(provider: str, model: str, usage: Usage) -> Decimal | None:
        asked.append((provider, model, usage.output_tokens))
        return Decimal("0.5")

    tier = PlayTier("p:m", [Text("x"), Finish("stop", Usage(input_tokens=1, output_tokens=2))])
    reply = await define_chain(id="c", tiers=[tier], prices=pricing).generate(CTX)
    assert (asked, reply.attempts[0].cost) == ([("p", "m", 2)], Decimal("0.5"))


def test_the_most_that_a_prompt_may_cost_is_that_of_writing_it_to_a_cache() -> None:
    """What is set aside covers a prompt that the provider writes to its dearest cache."""
    prices, tier = Prices({"m": SONNET}), tier_of("m")
    assert prices.most(tier, 1_000_000, output=0) == 6
    assert Prices({"m": {"input": 3, "output": 1}}).most(tier, 1_000_000, output=0) == 3
    assert prices.most(tier_of("other"), 1, output=1) is None


def test_published_prices_need_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package the error names the extra that brings it."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(MissingDependencyError, match=r"isthmus\[pricing\]"):
        published_prices()


def test_published_prices() -> None:
    """A known model has its list price, by its provider or else by its name; another one has none."""
    pytest.importorskip("genai_prices", reason="needs the extra 'pricing'")
    price, usage = published_prices(), Usage(input_tokens=1_000_000, output_tokens=0)
    known = price("openai", "gpt-4o", usage)
    assert known is not None
    assert known > 0
    assert price("some-gateway", "gpt-4o", usage) == known
    half = Usage(input_tokens=500_000, cache_read_tokens=500_000, output_tokens=0)
    cached = price("openai", "gpt-4o", half)
    assert cached is not None
    assert cached < known
    assert price("", "no-such-model-at-all", usage) is None
    assert price("openai", "gpt-4o", Usage(output_tokens=1)) is None
