"""What a `[chain]` table says is what the chain does, and each mistake in it is named by file, key and remedy."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from typing import Any

import pytest

from isthmus import build
from isthmus.chain import Budget, ContextPolicy, Cooldown, Price, RetryPolicy
from isthmus.chain.configured import chain_options, check_production, tier_limiter
from isthmus.errors import ConfigError
from isthmus.models.adaptive import AdaptiveConcurrencyLimiter
from isthmus.models.contract import Timeouts
from isthmus.models.limits import CompositeRateLimiter
from isthmus.settings import Layer, Setting, Settings

WHERE = "config.toml"


def _setting(value: Any) -> Setting:
    return Setting(value, WHERE, Layer.USER)


def _options(text: str) -> dict[str, Any]:
    return chain_options({key: _setting(value) for key, value in tomllib.loads(text).items()})


def test_each_table_becomes_what_it_describes() -> None:
    """Retry, time-outs, cooldown, budget, prices and context come as their own types; plain values as they are."""
    made = _options(
        'id = "mine"\nsticky = "none"\nstep_timeout = 30.0\n'
        "retry = {max_retries = 1, cap = 2.0}\ntimeouts = {idle = 5.0}\ncooldown = {failures = 2}\n"
        'budget = {steps = 5, tokens = 9000, cost = "0.25", seconds = 60}\n'
        'prices = {"openai:m" = {input = "0.1", output = 0.4}}\ncontext = {keep_results = 1}\n'
    )
    assert made == {
        "id": "mine",
        "sticky": "none",
        "step_timeout": 30.0,
        "retry": RetryPolicy(max_retries=1, cap=2.0),
        "timeouts": Timeouts(idle=5.0),
        "cooldown": Cooldown(failures=2),
        "budget": Budget(steps=5, tokens=9000, cost=Decimal("0.25"), seconds=60),
        "prices": {"openai:m": Price(input=Decimal("0.1"), output=Decimal("0.4"))},
        "context": ContextPolicy(keep_results=1),
    }


def test_markers_are_tables() -> None:
    """Each marker is a table; its value is text, or JSON where it says so."""
    plain, data = _options(
        '[[markers]]\nname = "cite"\nopen = "[["\nclose = "]]"\n'
        '[[markers]]\nname = "data"\nopen = "<d>"\nclose = "</d>"\nparse = "json"\nmax_chars = 99\n'
    )["markers"]
    assert (plain.name, plain.open, plain.close, plain.parse("1")) == ("cite", "[[", "]]", "1")
    assert (data.max_chars, data.parse("1")) == (99, 1)


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ("budget = {tokenz = 5}", "chain.budget.tokenz", "did you mean 'tokens'?"),
        ("budget = {tokens = 0}", "chain.budget.tokens", "above 0"),
        ("budget = {tokens = 'many'}", "chain.budget.tokens", "whole number"),
        ("retry = {max_retry = 1}", "chain.retry.max_retry", "did you mean 'max_retries'?"),
        ("retry = {max_retries = 'x'}", "chain.retry.max_retries", "whole number"),
        ("timeouts = {idle = -1}", "chain.timeouts.idle", "above 0"),
        ("timeouts = {soonest = 1.0}", "chain.timeouts.soonest", "connect, first_content, idle, total"),
        ("cooldown = {second = 3}", "chain.cooldown.second", "did you mean 'seconds'?"),
        ("context = {keep_result = 3}", "chain.context.keep_result", "did you mean 'keep_results'?"),
        ("context = {estimate = 3}", "chain.context.estimate", "nothing takes this key"),
        ("prices = 'list'", "chain.prices", '"published"'),
        ("prices = {m = {inputs = 1}}", "chain.prices.m.inputs", "did you mean 'input'?"),
        ("prices = {m = {input = 1}}", "chain.prices.m", "output"),
        ("prices = {m = 3}", "chain.prices.m", "table of input"),
        ("markers = [{name = 'a', open = '', close = ']'}]", "chain.markers[0].open", "not empty"),
        ("markers = [{nam = 'a'}]", "chain.markers[0].nam", "did you mean 'name'?"),
        ("markers = [{name = 'a', open = '['}]", "chain.markers[0]", "close"),
        ("markers = [{name = 'a', open = '[', close = ']', parse = 'xml'}]", "chain.markers[0].parse", '"json"'),
    ],
)
def test_a_mistake_names_file_key_and_remedy(text: str, key: str, said: str) -> None:
    """A field that there is not, or a value that it cannot have, is named with the file, the key and what to write."""
    with pytest.raises(ConfigError) as caught:
        _options(text)
    assert (caught.value.where, caught.value.key) == (WHERE, key)
    assert str(caught.value).startswith(f"{WHERE}: {key}: ")
    assert said in str(caught.value)


def test_a_limiter_is_shared_by_all_that_name_the_tier() -> None:
    """The same limits of the same tier are one limiter in the process; another tier has its own."""
    limits = _setting({"max_concurrent": 2, "requests_per_minute": 60, "tokens_per_minute": 9000})
    first = tier_limiter(limits, "limits", tier=("p", "m"))
    assert tier_limiter(limits, "limits", tier=("p", "m")) is first
    assert tier_limiter(limits, "limits", tier=("p", "n")) is not first
    assert isinstance(first, CompositeRateLimiter)
    alone = tier_limiter(_setting({"max_concurrent": 2}), "limits", tier=("p", "m"))
    assert isinstance(alone, AdaptiveConcurrencyLimiter)


@pytest.mark.parametrize(
    ("limits", "key", "said"),
    [
        ({"requests_per_minut": 5}, "limits.requests_per_minut", "did you mean 'requests_per_minute'?"),
        ({"max_concurrent": 0}, "limits.max_concurrent", "from 1"),
        ({"tokens_per_minute": "9"}, "limits.tokens_per_minute", "from 1"),
    ],
)
def test_a_wrong_limit_is_named(limits: dict[str, Any], key: str, said: str) -> None:
    """A limit that there is not, or a number that it cannot be, is named."""
    with pytest.raises(ConfigError) as caught:
        tier_limiter(_setting(limits), "limits", tier=("p", "m"))
    assert caught.value.key == key
    assert said in str(caught.value)


@pytest.mark.parametrize("provider", ["scripted", "local", "isthmus.adapters.scripted:ScriptedAdapter"])
def test_production_refuses_what_is_for_development(provider: str) -> None:
    """With `production = true` no scripted or embedded model answers, by name or by path; without it, it may."""
    tiers = [build.connect(provider)]
    named = [_setting(provider)]
    strict = Settings(chain={"production": _setting(True)}, tiers=({},))
    with pytest.raises(ConfigError) as caught:
        check_production(strict, named, tiers=tiers)
    assert caught.value.key == "chain.tiers[0].provider"
    assert "production = false" in str(caught.value)
    check_production(Settings(), named, tiers=tiers)
    check_production(Settings(chain={"production": _setting(False)}), named, tiers=tiers)
