"""How long a reply asks to wait, in every form (F09)."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.wire.retryafter import retry_after

DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
EPOCH = 1792567680  # DATE in seconds


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "5"}, 5.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:00 GMT", "date": DATE}, 0.0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "soon", "x-ratelimit-reset": "3"}, 3.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1h2m3s"}, 3723.0),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "17.5ms"}, 0.0175),
        ({"x-ratelimit-remaining-tokens": "12", "x-ratelimit-reset-tokens": "17s"}, None),
        ({"x-ratelimit-reset": "3"}, 3.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(EPOCH + 12), "date": DATE}, 12.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": f"{EPOCH + 12}000", "date": DATE}, 12.0),
        (
            {
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": "2026-10-21T07:28:20Z",
                "date": DATE,
            },
            20.0,
        ),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "7s",
            },
            7.0,
        ),
        ({"x-ratelimit-reset": "whenever"}, None),
    ],
)
def test_every_form_is_read(headers: dict[str, str], seconds: float | None) -> None:
    """F09: seconds, milliseconds, dates, spans and epochs are read; what makes no sense is passed over."""
    assert retry_after(headers) == (None if seconds is None else pytest.approx(seconds))


NAMES = ("retry-after", "retry-after-ms", "date", "x-ratelimit-reset", "x-ratelimit-remaining", "x-ratelimit-reset-x")
VALUES = (
    st.text(max_size=12)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.sampled_from([DATE, "9" * 30, "1e308", "2026-10-21T07:28:20", "Wed, 99 Foo 99999 99:99:99", "6m0s"])
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
@example({"x-ratelimit-reset": "9" * 30, "date": DATE})
@example({"x-ratelimit-reset": "1e308", "date": DATE})
@example({"x-ratelimit-reset": "99999-01-01", "date": DATE})
def test_no_header_makes_it_fail(headers: dict[str, str]) -> None:
    """F09: garbage never raises, and a wait is never negative."""
    wait = retry_after(headers)
    assert wait is None or wait >= 0
