"""What tokens cost: a table of the user's own, or published prices. What has no price is unknown, never free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from isthmus.chain.tier import Member
from isthmus.errors import ConfigError, MissingDependencyError
from isthmus.models.events import Usage

Pricing: TypeAlias = Callable[[str, str, Usage], Decimal | None]
"""Given provider, model and tokens, the price; None where it is unknown."""

_MILLION = Decimal(1_000_000)


def amount(value: Any, where: str, *, key: str) -> Decimal:
    """A sum of money: a `Decimal`, a whole number, or text; a float is read as it is written.

    Raises:
        ConfigError: it is none, or negative.
    """
    try:
        money = Decimal(str(value))
    except InvalidOperation:
        money = Decimal("NaN")
    if isinstance(value, bool) or not money.is_finite() or money < 0:
        raise ConfigError(f"must be an amount of 0 or more, e.g. '0.25', not {value!r}", where=where, key=key)
    return money


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What the tokens of one model cost, per million tokens; the currency is the same for a whole table.

    Args:
        input: prompt tokens that no cache had to do with.
        output: output tokens, reasoning included.
        cache_read: prompt tokens read from a cache; None is unknown, not free.
        cache_write: prompt tokens written to a cache.
        cache_write_1h: those kept for an hour.

    Raises:
        ConfigError: not an amount of 0 or more.
    """

    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None:
                object.__setattr__(self, each.name, amount(value, "Price", key=each.name))

    def cost(self, usage: Usage) -> Decimal | None:
        """The price of these tokens; None where a count or the price of a bucket that was used is unknown."""
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        long = usage.cache_write_1h_tokens or 0
        buckets = (
            (usage.input_tokens, self.input),
            (usage.output_tokens, self.output),
            (usage.cache_read_tokens or 0, self.cache_read),
            ((usage.cache_write_tokens or 0) - long, self.cache_write),
            (long, self.cache_write_1h),
        )
        total = Decimal(0)
        for tokens, price in buckets:
            if tokens and price is None:
                return None
            total += tokens * (price or Decimal(0))
        return total / _MILLION


class Prices:
    """Finds what a try of a tier costs.

    Args:
        given: a table from a tier's id, "provider:model" or model to a `Price` or a dict of its fields; or a function
            from provider, model and `Usage` to an amount or None.

    Raises:
        ConfigError: it is neither; names the key.
    """

    __slots__ = ("_pricing", "_table")

    def __init__(self, given: Mapping[str, Any] | Pricing) -> None:
        self._table: dict[str, Price] = {}
        self._pricing: Pricing | None = None
        if callable(given):
            self._pricing = given
            return
        if not isinstance(given, Mapping):
            raise ConfigError("must be a table from model to Price, or a function", where="chain", key="prices")
        for name, price in given.items():
            self._table[name] = price if isinstance(price, Price) else _price(price, name)

    def cost(self, member: Member, usage: Usage | None) -> Decimal | None:
        """The price of a try; None where it, or what was used, is unknown."""
        if usage is None:
            return None
        provider, model = member.provider, member.model
        if self._pricing is not None:
            return self._pricing(provider, model, usage)
        for key in (member.id, f"{provider}:{model}", model):
            if key in self._table:
                return self._table[key].cost(usage)
        return None

    def most(self, member: Member, prompt: int, *, output: int) -> Decimal | None:
        """The most that so many tokens may cost, were the whole prompt written to a cache."""
        ways = (
            Usage(input_tokens=prompt, output_tokens=output),
            Usage(input_tokens=0, cache_write_tokens=prompt, output_tokens=output),
            Usage(input_tokens=0, cache_write_tokens=prompt, cache_write_1h_tokens=prompt, output_tokens=output),
        )
        plain, *others = (self.cost(member, usage) for usage in ways)
        return plain if plain is None else max([plain, *(cost for cost in others if cost is not None)])


def _price(given: Any, name: str) -> Price:
    try:
        return Price(**given)
    except TypeError:
        known = ", ".join(each.name for each in fields(Price))
        raise ConfigError(f"must be a Price, or a dict of {known}", where="prices", key=name) from None


def published_prices() -> Pricing:
    """The list prices that the package `genai-prices` holds, in US dollars, without any download.

    Raises:
        MissingDependencyError: the package is not installed.
    """
    try:
        from genai_prices import Usage as Counts
        from genai_prices import calc_price
    except ImportError:
        raise MissingDependencyError("published prices", "genai-prices", extra="pricing") from None

    def _listed(provider: str, model: str, usage: Usage) -> Decimal | None:
        if usage.input_tokens is None or usage.output_tokens is None:
            return None
        counts = Counts(
            input_tokens=usage.prompt_tokens,
            cache_read_tokens=usage.cache_read_tokens or 0,
            cache_write_tokens=usage.cache_write_tokens or 0,
            output_tokens=usage.output_tokens,
        )
        for place in dict.fromkeys((provider or None, None)):
            try:
                found = calc_price(counts, model_ref=model, provider_id=place)
            except LookupError:
                continue
            return Decimal(found.total_price)
        return None

    return _listed
