"""How long a reply asks its caller to wait, in every form that servers use."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_EPOCH = 1_000_000_000.0


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, or None where the headers say nothing that makes sense.

    Reads `retry-after-ms`, then `retry-after` as seconds or an HTTP date, then the latest reset among rate-limit
    headers whose `remaining` is 0 (spans such as "6m0s", seconds, epoch seconds, RFC 3339). Dates are taken relative to
    the reply's own `date` header. Source: RFC 9110 section 10.2.3 and the providers' rate-limit pages, 2026-11.

    Args:
        headers: names in lower case.
    """
    millis = _number(headers.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    hint = headers.get("retry-after")
    if hint is not None:
        seconds = _number(hint)
        wait = seconds if seconds is not None else _until(_http_date(hint), headers)
        if wait is not None:
            return wait
    waits = [_reset(name, value, headers) for name, value in headers.items() if "ratelimit" in name and "reset" in name]
    return max((wait for wait in waits if wait is not None), default=None)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and math.isfinite(value) and value >= 0 else None


def _http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text) if text else None
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _until(moment: datetime | None, headers: Mapping[str, str]) -> float | None:
    now = _http_date(headers.get("date"))
    if moment is None or now is None:
        return None
    return max(0.0, (moment - now).total_seconds())


def _reset(name: str, value: str, headers: Mapping[str, str]) -> float | None:
    if _number(headers.get(name.replace("reset", "remaining"), "0")) != 0:
        return None
    number = _number(value)
    if number is not None and number >= _EPOCH:
        now = _http_date(headers.get("date"))
        seconds = number / 1000 if number >= _EPOCH * 1000 else number
        return None if now is None else max(0.0, seconds - now.timestamp())
    if number is not None:
        return number
    spans = _SPAN.findall(value.strip())
    if spans and "".join(count + unit for count, unit in spans) == value.strip():
        return sum(float(count) * _UNITS[unit] for count, unit in spans)
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return _until(moment if moment.tzinfo else moment.replace(tzinfo=UTC), headers)
