"""What failed responses stand for."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.openai_responses.errors import failure_of


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


def test_an_error_keeps_the_beginning_of_what_was_said() -> None:
    """The body of an error is for a person to read, whatever its length."""
    assert failure_of({"message": "x" * 3000}).body == ("{'message': '" + "x" * 3000)[:2000]
