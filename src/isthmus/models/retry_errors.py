"""Retrying calls whose errors are anybody's: what an SDK's error says about its status, and how long to wait."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Generic, ParamSpec, TypeVar

from isthmus.errors import ConfigError, ErrorClass, TierError, is_hint
from isthmus.models.accessors import member
from isthmus.models.retry import Clock, RetryPolicy, tried
from isthmus.wire.retryafter import retry_after

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_RETRY_STATUS_CODES = (429, 500, 502, 503, 504, 529)
"""The statuses that may pass by themselves; a server that is overloaded says 529 or 503."""

# Waiting helps against none of these, whatever the status.
_NEVER = ("insufficient_quota", "billing_hard_limit_reached", "content_policy_violation")
_IN_TEXT = re.compile(r"retry after (\d+(?:\.\d+)?)\s*s(?:ec|\b)", re.I)
_FLOOR = 1.0
_POLICY = RetryPolicy(max_retries=10**9, base=1.0, cap=10.0, jitter="none", max_hint=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMetrics:
    """What it took to get a result.

    Args:
        attempts: how many calls were made.
        retry_wait: seconds spent waiting between them.
        backend_latency: seconds spent inside them, all together.
    """

    attempts: int
    retry_wait: float
    backend_latency: float


@dataclass(frozen=True, slots=True)
class RetryResult(Generic[T]):
    """A result, and what it took to get it."""

    result: T
    metrics: RetryMetrics


def is_retryable_by_status_code(
    error: BaseException, status_codes: Collection[int] = DEFAULT_RETRY_STATUS_CODES
) -> bool:
    """Whether the call may succeed if it is made again, as far as the status of its error tells.

    Never with a quota that is used up, a billing limit or a content policy, which come with 429 or 400 too.

    Args:
        error: its `status_code` or `status`, or that of its `response`; a classified error without a status, such as a
            lost connection, is retryable if it is "transient".
        status_codes: the statuses to try again.
    """
    if any(code in text for text in _texts(error) for code in _NEVER):
        return False
    status = _status(error)
    if status is None:
        return isinstance(error, TierError) and error.error_class == ErrorClass.TRANSIENT
    return status in status_codes


def _texts(error: BaseException) -> Iterator[str]:
    yield str(error)
    for name in ("code", "type", "body"):
        value = member(error, name)
        if value is not None:
            yield str(value)


def _status(error: BaseException) -> int | None:
    found = (member(owner, name) for owner in (error, member(error, "response")) for name in ("status_code", "status"))
    return next((status for status in found if isinstance(status, int) and not isinstance(status, bool)), None)


def extract_retry_after(error: BaseException) -> float | None:
    """Seconds that the other side asked to wait, at least 0 and at most 60; None where it asked for nothing.

    Args:
        error: its `retry_after`, its `response_headers`, the `headers` of its `response`, or the words "retry after N
            seconds" in its text. Headers may be any mapping or pairs, of text or bytes, in any case, with seconds or an
            HTTP date.
    """
    hint = _hint(error)
    return None if hint is None else min(hint, _POLICY.max_hint)


def _hint(error: BaseException) -> float | None:
    own = member(error, "retry_after")
    if is_hint(own):
        return own
    for headers in (member(error, "response_headers"), member(member(error, "response"), "headers")):
        found = retry_after(_lowered(headers))
        if found is not None:
            return found
    said = _IN_TEXT.search(str(error))
    return float(said[1]) if said else None


def _lowered(headers: Any) -> dict[str, str]:
    """Headers by their names in lower case, with the date of the reply, or now; none where a stranger holds nothing
    of the kind.

    A wait below 0 is none at all, so it is 0.
    """
    items = getattr(headers, "items", None)
    pairs = items() if callable(items) else headers if isinstance(headers, list | tuple) else ()
    whole = (pair for pair in pairs if isinstance(pair, list | tuple) and len(pair) == 2)
    found = {_said(name).lower(): _said(value).strip() for name, value in whole}
    for name in ("retry-after", "retry-after-ms"):
        if re.fullmatch(r"-\d+(\.\d+)?", found.get(name, "")):
            found[name] = "0"
    return {"date": format_datetime(datetime.now(UTC), usegmt=True), **found}


def _said(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def wait_with_retry_after(error: BaseException, attempt: int = 1, *, clock: Clock | None = None) -> float:
    """Seconds to wait before the next try: what the other side asked for, else 1 to 10 s, growing and drawn by chance.

    Args:
        error: the failure.
        attempt: the number of the try that failed, from 1.
        clock: chance.
    """
    hint = extract_retry_after(error)
    return _backoff(attempt, clock or Clock()) if hint is None else hint


def _backoff(attempt: int, clock: Clock) -> float:
    limit = _POLICY.delay(max(attempt, 1)) or _FLOOR
    return _FLOOR + (limit - _FLOOR) * clock.random()


def retry_on_errors(
    max_retries: int = 3,
    is_retryable: Callable[[BaseException], bool] = is_retryable_by_status_code,
    *,
    logger: logging.Logger | None = None,
    clock: Clock | None = None,
) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[RetryResult[T]]]]:
    """A decorator that makes a call again while it fails in a way that may pass; returns a `RetryResult`.

    A call is not made again if the other side asks for a wait of more than 60 s: it would be refused.

    Args:
        max_retries: how many tries there are in all; 0 and 1 both mean one.
        is_retryable: whether a failure may pass.
        logger: told of every retry, with the error's type and no more of it.
        clock: time, waiting and chance.

    Raises:
        ConfigError: `max_retries` is no whole number from 0.
    """
    if type(max_retries) is not int or max_retries < 0:
        remedy = ": write @retry_on_errors()" if callable(max_retries) else ""
        raise ConfigError(
            f"must be a whole number of tries from 0, not {max_retries!r}{remedy}",
            where="retry_on_errors",
            key="max_retries",
        )
    time = clock or Clock()

    def decorate(call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[RetryResult[T]]]:
        @functools.wraps(call)
        async def repeated(*args: P.args, **kwargs: P.kwargs) -> RetryResult[T]:
            waits: list[float] = []
            spent: list[float] = []

            def wait(error: Exception, attempt: int) -> float | None:
                if attempt >= max_retries or not is_retryable(error):
                    return None
                hint = _hint(error)
                delay = _backoff(attempt, time) if hint is None else _POLICY.delay(attempt, hint)
                if delay is not None:
                    waits.append(delay)
                    if logger is not None:
                        logger.warning("try %d failed (%s); next in %.1f s", attempt, type(error).__name__, delay)
                return delay

            async def once(attempt: int) -> T:
                begun = time.now()
                try:
                    return await call(*args, **kwargs)
                finally:
                    spent.append(time.now() - begun)

            result = await tried(once, wait, sleep=time.sleep)
            return RetryResult(
                result, RetryMetrics(attempts=len(spent), retry_wait=sum(waits), backend_latency=sum(spent))
            )

        return repeated

    return decorate
