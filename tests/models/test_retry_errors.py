"""Retrying calls whose errors are anybody's."""

from __future__ import annotations

import inspect
import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.errors import ConfigError, tier_error
from isthmus.models import (
    DEFAULT_RETRY_STATUS_CODES,
    RetryMetrics,
    RetryResult,
    extract_retry_after,
    is_retryable_by_status_code,
    retry_on_errors,
    wait_with_retry_after,
)
from support.chain_doubles import FakeTime


class Failure(Exception):
    """Somebody's error, with whatever attributes he gives it."""

    def __init__(self, text: str = "no", **attributes: Any) -> None:
        super().__init__(text)
        self.__dict__.update(attributes)


class Headers:
    """Headers of a library of its own: no Mapping, but with items."""

    def __init__(self, **values: str) -> None:
        self._values = {name.replace("_", "-"): value for name, value in values.items()}

    def items(self) -> Any:
        """Names and values."""
        return self._values.items()


def test_the_default_statuses() -> None:
    """Rate limits, server errors and overload."""
    assert list(DEFAULT_RETRY_STATUS_CODES) == [429, 500, 502, 503, 504, 529]


@pytest.mark.parametrize("status", [200, 400, 401, 404, 408, 422, 429, 500, 501, 502, 503, 504, 529])
@pytest.mark.parametrize("place", ["status_code", "status", "response"])
def test_the_status_decides(status: int, place: str) -> None:
    """F09: it is read off the error or its response, and is retryable if it stands in the list."""
    value = SimpleNamespace(status_code=status) if place == "response" else status
    expected = status in {429, 500, 502, 503, 504, 529}
    assert is_retryable_by_status_code(Failure(**{place: value})) is expected
    assert is_retryable_by_status_code(Failure(status_code=status), {status})


@pytest.mark.parametrize("code", ["insufficient_quota", "billing_hard_limit_reached", "content_policy_violation"])
@pytest.mark.parametrize(
    "carry",
    [
        lambda code: {"code": code},
        lambda code: {"type": code},
        lambda code: {"body": {"error": {"code": code}}},
        lambda code: {"text": f"Error code: 429 - {{'code': '{code}'}}"},
    ],
)
def test_quota_and_policy_are_never_tried_again(code: str, carry: Any) -> None:
    """F09: wherever the code stands, a 429 with it is final."""
    assert not is_retryable_by_status_code(Failure(status_code=429, **carry(code)))


def test_an_error_without_a_status_is_ours_or_final() -> None:
    """A classified error without a status is retryable if it is transient; a stranger's is not."""
    assert is_retryable_by_status_code(tier_error("transient", "connection lost"))
    assert not is_retryable_by_status_code(tier_error("unavailable", "refused"))
    assert not is_retryable_by_status_code(Failure(status_code=True))


NAMES = ["retry-after", "Retry-After", "RETRY-AFTER"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kind", [dict, MappingProxyType, lambda values: Headers(**{n.replace("-", "_"): v for n, v in values.items()})]
)
@pytest.mark.parametrize("where", ["response_headers", "response"])
@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("3600", 60.0),
        ("soon", None),
        ("nan", None),
        ("", None),
    ],
)
def test_the_header_is_found_in_any_mapping_and_case(
    name: str, kind: Any, where: str, value: str, seconds: float | None
) -> None:
    """F09: seconds, at least 0 and at most 60; garbage is nothing and never breaks."""
    headers = kind({name: value})
    held = headers if where == "response_headers" else SimpleNamespace(headers=headers)
    assert extract_retry_after(Failure(**{where: held})) == seconds


@pytest.mark.parametrize(("seconds", "expected"), [(-100, 0.0), (30, 30.0), (10_000, 60.0)])
def test_an_http_date_is_a_wait(seconds: int, expected: float) -> None:
    """F09: relative to now, or to the reply's own date; one in the past is 0."""
    now = datetime.now(UTC)
    date = format_datetime(now + timedelta(seconds=seconds), usegmt=True)
    assert extract_retry_after(Failure(response_headers={"Retry-After": date})) == pytest.approx(expected, abs=2)
    old = datetime(2020, 1, 1, tzinfo=UTC)
    headers = {"retry-after": format_datetime(old + timedelta(seconds=seconds), usegmt=True)}
    headers["Date"] = format_datetime(old, usegmt=True)
    assert extract_retry_after(Failure(response_headers=headers)) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please retry after 7 seconds.", 7.0),
        ("Retry After 1.5 sec", 1.5),
        ("retry after 99999 seconds", 60.0),
        ("retry after a while", None),
        ("retry after 3 months", None),
    ],
)
def test_the_text_is_asked_last(text: str, seconds: float | None) -> None:
    """F09: "retry after N seconds" in the message counts where no header does."""
    assert extract_retry_after(Failure(text)) == seconds
    assert extract_retry_after(Failure(text, response_headers={"retry-after": "4"})) == 4.0


def test_a_classified_error_says_it_itself() -> None:
    """The wait of an error of ours is its `retry_after`."""
    assert extract_retry_after(tier_error("transient", "x", retry_after=3.0)) == 3.0
    assert extract_retry_after(tier_error("transient", "x")) is None


@given(st.integers(1, 40), st.floats(0, 1, exclude_max=True))
def test_without_a_hint_the_wait_is_between_1_and_10_seconds(attempt: int, luck: float) -> None:
    """F09: random, exponential, never under a second, never over ten."""
    wait = wait_with_retry_after(Failure(), attempt, clock=FakeTime(luck).clock())
    assert 1.0 <= wait <= min(10.0, 2.0 ** (attempt - 1))


def test_a_hint_is_the_wait() -> None:
    """F09: what the other side asks for replaces the backoff, up to 60 s."""
    assert wait_with_retry_after(Failure(response_headers={"Retry-After": "33"})) == 33.0
    assert wait_with_retry_after(Failure(response_headers={"Retry-After": "333"})) == 60.0


class Calls:
    """Fails so often, each time with an error of its own, a second a try."""

    def __init__(self, time: FakeTime, fails: int, **attributes: Any) -> None:
        self.time, self.fails, self.attributes = time, fails, {"status_code": 503, **attributes}
        self.errors: list[Failure] = []

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.time.seconds += 1
        if len(self.errors) < self.fails:
            self.errors.append(Failure(**self.attributes))
            raise self.errors[-1]
        return args, kwargs


@pytest.mark.parametrize(("max_retries", "tries"), [(0, 1), (1, 1), (2, 2), (3, 3)])
async def test_max_retries_counts_all_tries(max_retries: int, tries: int) -> None:
    """0 and 1 both mean one try; the original error of the last try is raised as it is."""
    time = FakeTime()
    calls = Calls(time, 9)
    with pytest.raises(Failure) as caught:
        await retry_on_errors(max_retries, clock=time.clock())(calls)()
    assert len(calls.errors) == tries
    assert caught.value is calls.errors[-1]


async def test_a_result_comes_with_what_it_took() -> None:
    """Attempts, seconds waited between them, seconds inside them; the arguments are handed on."""
    time = FakeTime()
    done = await retry_on_errors(3, clock=time.clock())(Calls(time, 2))("a", b=1)
    assert done == RetryResult((("a",), {"b": 1}), RetryMetrics(attempts=3, retry_wait=3.0, backend_latency=3.0))
    assert time.waits == [1.0, 2.0]


@pytest.mark.parametrize(
    ("attributes", "tries", "waits"),
    [
        ({"response_headers": {"Retry-After": "4"}}, 2, [4.0]),
        ({"response_headers": {"Retry-After": "61"}}, 1, []),
        ({"status_code": 400}, 1, []),
        ({"code": "insufficient_quota"}, 1, []),
    ],
)
async def test_what_is_not_worth_it_is_not_tried_again(attributes: Any, tries: int, waits: list[float]) -> None:
    """F09: final failures and waits of over a minute end the tries at once."""
    time = FakeTime()
    calls = Calls(time, 1, **attributes)
    if tries == 1:
        with pytest.raises(Failure):
            await retry_on_errors(3, clock=time.clock())(calls)()
    else:
        await retry_on_errors(3, clock=time.clock())(calls)()
    assert time.waits == waits


async def test_the_caller_may_decide_what_passes() -> None:
    """`is_retryable` replaces the rule of statuses."""
    time = FakeTime()
    calls = Calls(time, 1, status_code=400)
    await retry_on_errors(2, lambda error: isinstance(error, Failure), clock=time.clock())(calls)()
    assert len(calls.errors) == 1


async def test_the_log_names_the_error_and_no_more_of_it(caplog: pytest.LogCaptureFixture) -> None:
    """F29: try, type and wait are logged, never the text of a stranger's error."""
    time = FakeTime()
    logger = logging.getLogger("isthmus.test")
    with caplog.at_level("WARNING"):
        await retry_on_errors(2, logger=logger, clock=time.clock())(Calls(time, 1, text="sk-canary"))()
    assert caplog.messages == ["try 1 failed (Failure); next in 1.0 s"]


def test_a_decorated_call_keeps_its_name() -> None:
    """It decorates."""

    @retry_on_errors(max_retries=2)
    async def ask(question: str) -> str:
        """Ask."""
        return question

    assert (ask.__name__, inspect.iscoroutinefunction(ask)) == ("ask", True)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None])
def test_a_wrong_number_of_tries_is_named(wrong: Any) -> None:
    """It must be a whole number from 0."""
    with pytest.raises(ConfigError, match=rf"retry_on_errors: max_retries: must be a whole number .*{wrong}"):
        retry_on_errors(wrong)


@pytest.mark.parametrize(
    "headers",
    [
        {"Retry-After": b"7"},
        {b"retry-after": b"7"},
        [("Retry-After", "7")],
        ((b"RETRY-AFTER", b" 7 "), "odd", (1, 2, 3)),
    ],
)
def test_headers_may_be_pairs_or_bytes(headers: Any) -> None:
    """Clients hold headers as mappings or as pairs, of text or of bytes: all are read, what is none is passed over."""
    assert extract_retry_after(Failure(response_headers=headers)) == 7


@pytest.mark.parametrize("attempt", [-5, 0, 1])
def test_the_wait_is_never_below_a_second(attempt: int) -> None:
    """Without a hint the wait is at least 1 s, whatever number the caller gives his first try."""
    assert wait_with_retry_after(Failure(), attempt) >= 1


def test_the_decorator_without_its_parentheses_says_so() -> None:
    """`@retry_on_errors` on its own is refused with the remedy."""
    with pytest.raises(ConfigError, match=r"write @retry_on_errors\(\)"):
        retry_on_errors(print)  # type: ignore[arg-type]
