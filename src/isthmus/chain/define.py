"""The definition of a chain, with all that can be checked before any call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from isthmus.chain.budget import Budget
from isthmus.chain.chain import Chain
from isthmus.chain.context import ContextPolicy
from isthmus.chain.health import Cooldown, Health
from isthmus.chain.markers import MarkerForm, draining
from isthmus.chain.policy import Rules
from isthmus.chain.prices import Prices, Pricing
from isthmus.chain.seams import Renderer
from isthmus.chain.setup import Setup
from isthmus.chain.tier import Member, callable_as, members, name_of
from isthmus.errors import ConfigError
from isthmus.models.contract import Timeouts
from isthmus.models.limits import RateLimiter
from isthmus.models.retry import Clock, RetryPolicy

_RETRY = RetryPolicy()
_CLOCK = Clock()
_CONTEXT = ContextPolicy()


def define_chain(
    *,
    id: str,
    tiers: Sequence[Any],
    retry: RetryPolicy = _RETRY,
    timeouts: Timeouts | None = None,
    step_timeout: float | None = None,
    fallback_on_refused: bool = False,
    sticky: str = "turn",
    cooldown: Cooldown | None = None,
    budget: Budget | None = None,
    prices: Mapping[str, Any] | Pricing | None = None,
    limits: Mapping[str, RateLimiter] | None = None,
    context: Renderer | None = _CONTEXT,
    markers: Sequence[MarkerForm] = (),
    clock: Clock = _CLOCK,
) -> Chain:
    """Make one adapter of several.

    Args:
        id: the chain's name.
        tiers: tiers, adapters or chains, in the order in which they are tried.
        retry: how often a passing failure is tried again on the same tier, and after how long.
        timeouts: how long to wait for each try, fresh each time; None leaves it to each tier's own `timeouts`, or to
            the defaults. One that expires before content is a passing failure.
        step_timeout: seconds for one call with all its tries, waits and fallbacks; then it is cut, "deadline".
        fallback_on_refused: whether another tier is asked after a refusal by content policy.
        sticky: "turn": within a run, later calls begin with the tier that served; "none": always with the first.
        cooldown: when a tier that keeps failing is left alone by all runs of this chain; None never.
        budget: what one run may spend.
        prices: what tokens cost: a table from a tier's id, "provider:model" or model to a `Price`, or a function such
            as `published_prices()` gives.
        limits: a limiter for each tier that has one, by the tier's id; it may be shared with other chains.
        context: makes each request fit the tier that gets it; None sends it as it is.
        markers: what is taken out of a reply's text and handed on as `Marker` events: `define_marker`.
        clock: time, waiting and chance, for tests.

    Raises:
        AdapterError: a tier is no adapter.
        ConfigError: no tiers, an empty or repeated id, a number that makes no sense, a limit of money without the price
            of a tier; names the tier and the remedy.
    """
    if type(id) is not str or not id.strip():
        raise ConfigError(f"give the chain a name, not {id!r}", where="define_chain", key="id")
    where = f"chain {id!r}"
    if sticky not in ("turn", "none"):
        raise ConfigError(f"must be 'turn' or 'none', not {sticky!r}", where=where, key="sticky")
    if step_timeout is not None and not (type(step_timeout) in (int, float) and step_timeout > 0):
        raise ConfigError(f"must be seconds above 0, or None, not {step_timeout!r}", where=where, key="step_timeout")
    if isinstance(tiers, str) or not hasattr(tiers, "__iter__"):
        raise ConfigError("must be a list of tiers: write [tier]", where=where, key="tiers")
    found = tuple(replace(each, chained=isinstance(each.adapter, Chain)) for each in members(tiers, where))
    rules = Rules(
        ids=tuple(each.id for each in found),
        windows=tuple(each.window_tokens for each in found),
        owns_retries=tuple(each.owns_retries for each in found),
        retry=retry,
        fallback_on_refused=fallback_on_refused,
        renders=context is not None,
    )
    priced = None if prices is None else Prices(prices)
    if budget is not None and budget.cost is not None:
        _check_prices(found, priced, where)
    setup = Setup(
        id=id,
        members=found,
        rules=rules,
        timeouts=timeouts,
        clock=clock,
        sticky=sticky == "turn",
        health=Health(cooldown, len(found), clock=clock),
        step_seconds=step_timeout,
        budget=budget,
        prices=priced,
        limits=_limiters(found, limits or {}, where),
        context=context,
        markers=draining(markers, where),
    )
    return Chain(setup)


def _check_prices(found: Iterable[Member], prices: Prices | None, where: str) -> None:
    """See to it that a limit of money can be kept: each tier has a price."""
    for each in found:
        if isinstance(each.adapter, Chain):
            _check_prices(each.adapter.members, prices, where)
        elif prices is None or prices.most(each, 1, output=1) is None:
            raise ConfigError(
                f"a limit of money needs the price of tier {each.id!r}: add it to `prices`",
                where=where,
                key="budget.cost",
            )


def _limiters(found: Sequence[Member], limits: Mapping[str, RateLimiter], where: str) -> tuple[RateLimiter | None, ...]:
    ids = [each.id for each in found]
    for name, limiter in limits.items():
        if name not in ids:
            raise ConfigError(f"no tier has the id {name!r}: use one of {ids}", where=where, key="limits")
        if not isinstance(limiter, RateLimiter):
            kind = type(limiter).__name__
            raise ConfigError(f"must be a RateLimiter, not {kind}", where=where, key=f"limits.{name}")
    return tuple(limits.get(name) for name in ids) if limits else ()


def of(adapter: Any) -> Chain:
    """Any adapter as a chain: a chain as it is, anything else as a chain of one with the default policies.

    Args:
        adapter: a chain, a tier, an adapter, a `Model`, or an object with `stream(ctx)` or `generate(ctx)`.

    Raises:
        AdapterError: it is no adapter.
        ConfigError: a number of it makes no sense.
    """
    if isinstance(adapter, Chain):
        return adapter
    adapter = callable_as(adapter)
    return define_chain(id=name_of(adapter), tiers=[adapter])
