"""What failed responses stand for."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.openai_responses import ResponseError
from isthmus.adapters.openai_responses.errors import failure_of, response_error
from isthmus.errors import RefusedError, TierError, TransientError


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": "server_error", "message": "x"}, "transient"),
        ({"code": "vector_store_timeout", "message": "x"}, "transient"),
        ({"type": "tokens", "code": "rate_limit_exceeded", "message": "Limit 1, Requested 30"}, "transient"),
        ({"code": "insufficient_quota", "message": "x"}, "credentials"),
        ({"code": "invalid_image_format", "message": "x"}, "invalid"),
        ({"code": "image_content_policy_violation", "message": "x"}, "refused"),
        ({"code": "context_length_exceeded", "message": "x"}, "overflow"),
        ({"message": "Your input exceeds the context window of this model."}, "overflow"),
        ({"code": "server_is_overloaded", "message": "Our servers are overloaded"}, "unavailable"),
        ("plain words", "transient"),
    ],
)
def test_an_error_inside_a_success_has_one_class(error: Any, kind: str) -> None:
    """Code first, then the text: the same table as for a status (F18)."""
    assert failure_of(error).error_class == kind


def test_a_response_error_is_of_the_class_that_it_stands_for() -> None:
    """It is a `TierError` with the class, status and code of the failure, and the native response."""
    native = {"status": "failed", "error": {"code": "server_error", "message": "x"}}
    error = response_error("x", native, of=failure_of(native["error"]))
    assert isinstance(error, ResponseError)
    assert isinstance(error, TierError)
    assert (error.error_class, error.status, error.code) == ("transient", 500, "server_error")
    assert error.response is native
    assert error.error == native["error"]
    assert response_error("x", None, of=RefusedError("no")).error_class == "refused"


def test_the_error_of_an_event_is_found_too() -> None:
    """An event holds its error in its response, or beside it."""
    inner = {"code": "c", "message": "m"}
    assert response_error("x", {"type": "error", "error": inner}).error == inner
    flat = {"type": "error", "code": "c", "message": "m"}
    assert response_error("x", flat).error == flat
    assert response_error("x", None, of=TransientError("cut")).error is None
