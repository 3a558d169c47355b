"""The one retry engine."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ConfigError, ErrorClass, TierError, TransientError, tier_error
from isthmus.models.retry import RetryPolicy, retrying
from support.chain_doubles import FakeTime


def test_the_defaults() -> None:
    """Two retries, full jitter from 0.25 s doubling to a cap of 4 s, hints of up to 10 s; and the policy is frozen."""
    policy = RetryPolicy()
    assert dataclasses.astuple(policy) == (2, 0.25, 2.0, 4.0, "full", 10.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.base = 1.0  # type: ignore[misc]


def test_backoffs_double_up_to_the_cap() -> None:
    """Without jitter the waits are 0.25, 0.5, 1, 2, 4, 4, … seconds."""
    policy = RetryPolicy(max_retries=7, jitter="none")
    assert [policy.delay(attempt) for attempt in range(1, 9)] == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0, None]


@given(st.integers(1, 500), st.floats(0, 1, exclude_max=True))
def test_full_jitter_stays_between_zero_and_the_limit(attempt: int, luck: float) -> None:
    """F09: each wait is the draw's share of the capped backoff, for any number of tries."""
    policy = RetryPolicy(max_retries=500)
    delay = policy.delay(attempt, rng=lambda: luck)
    assert delay is not None
    assert 0 <= delay <= min(4.0, 0.25 * 2.0 ** (attempt - 1))
    assert delay == pytest.approx(luck * min(4.0, 0.25 * 2.0 ** (attempt - 1)))


@pytest.mark.parametrize("hint", [0.0, 0.3, 10.0])
def test_a_hint_within_the_limit_is_the_wait(hint: float) -> None:
    """F09: a provider's wait replaces the backoff, without jitter."""
    assert RetryPolicy().delay(1, hint, rng=lambda: 0.5) == hint


def test_a_hint_beyond_the_limit_ends_the_tries() -> None:
    """F09: nobody waits longer than `max_hint`."""
    assert RetryPolicy().delay(1, 10.01) is None
    assert RetryPolicy(max_hint=60).delay(1, 60.0) == 60.0


@pytest.mark.parametrize("hint", [math.nan, math.inf, -math.inf, -1.0])
def test_a_hint_that_makes_no_sense_is_none(hint: float) -> None:
    """F09: a negative wait, or one that is not finite, leaves the backoff as it is."""
    assert RetryPolicy(jitter="none").delay(1, hint) == 0.25


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_only_transient_failures_are_tried_again(kind: ErrorClass) -> None:
    """F09: every other class ends the tries at once, whatever hint comes with it."""
    delay = RetryPolicy(jitter="none").after(tier_error(kind, "x", retry_after=1.0), 1)
    assert delay == (1.0 if kind == ErrorClass.TRANSIENT else None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_retries", -1),
        ("base", -0.1),
        ("cap", math.nan),
        ("max_hint", -1),
        ("factor", 0.5),
        ("jitter", "some"),
        # What is no number, or counts no tries, fails here and not in the middle of an outage.
        ("max_retries", 1.5),
        ("max_retries", "2"),
        ("base", "x"),
        ("factor", None),
        ("cap", True),
        ("max_hint", None),
    ],
)
def test_a_wrong_policy_names_the_setting(name: str, value: object) -> None:
    """A setting that makes no sense is refused by name and value."""
    with pytest.raises(ConfigError, match=rf"RetryPolicy: {name}: must be .*{value}"):
        RetryPolicy(**{name: value})  # type: ignore[arg-type]


async def test_retrying_returns_the_first_success() -> None:
    """F09: a call is made again after each passing failure, with its number, and its success is returned."""
    time, numbers = FakeTime(), []

    async def call(attempt: int) -> str:
        numbers.append(attempt)
        if attempt < 3:
            raise tier_error("transient", "busy", retry_after=5.0 if attempt == 2 else None)
        return "done"

    assert await retrying(call, RetryPolicy(), clock=time.clock()) == "done"
    assert (numbers, time.waits) == ([1, 2, 3], [0.25, 5.0])


@pytest.mark.parametrize(("kind", "tries"), [("transient", 3), ("unavailable", 1), ("credentials", 1)])
async def test_retrying_raises_the_last_failure(kind: str, tries: int) -> None:
    """F09: the failure of the last try is raised as it is; quota and policy failures are tried once."""
    errors: list[TierError] = []

    async def call(attempt: int) -> str:
        errors.append(tier_error(kind, f"try {attempt}"))
        raise errors[-1]

    with pytest.raises(TierError) as caught:
        await retrying(call, RetryPolicy(), clock=FakeTime().clock())
    assert (caught.value, len(errors)) == (errors[-1], tries)


@pytest.mark.parametrize("hint", ["3", datetime(2026, 11, 30), object()])
def test_a_hint_of_another_type_is_none(hint: Any) -> None:
    """F09: a `retry_after` that an author set to something else is passed over and never breaks the retry."""
    error = TransientError("no")
    error.retry_after = hint
    assert RetryPolicy(jitter="none").after(error, 1) == 0.25
