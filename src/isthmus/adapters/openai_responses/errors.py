"""What a failed response stands for."""

from __future__ import annotations

from typing import Any

from isthmus.adapters.classify import Failure
from isthmus.errors import TierError

# Codes of `response.error` that stand for a status; the Responses API reference, 2026-11.
_STATUSES: dict[str | None, int] = {
    "vector_store_timeout": 504,
    "insufficient_quota": 429,
    "failed_to_download_image": 400,
    "image_file_not_found": 400,
    "empty_image_file": 400,
    "image_parse_error": 400,
    "image_too_large": 400,
    "image_too_small": 400,
    "image_file_too_large": 400,
    "image_content_policy_violation": 400,
    "invalid_image": 400,
    "invalid_image_format": 400,
    "invalid_image_mode": 400,
    "invalid_image_url": 400,
    "invalid_base64_image": 400,
    "unsupported_image_media_type": 400,
    "invalid_prompt": 400,
    "bio_policy": 400,
}


def failure_of(error: Any) -> TierError:
    """The classified form of an error object inside a reply that began as a success.

    Args:
        error: `response.error`, the `error` of an error event, or such an event itself.
    """
    failure = Failure.parse(error)
    made = failure.classified(status=failure.status or _STATUSES.get(failure.code))
    made.body = str(error)[:2000]
    return made
