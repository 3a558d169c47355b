"""One table from status, code and text to an error class, for every dialect, in HTTP replies and inside streams.

Order: billing and quota, context overflow, content policy, then the status; first match wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isthmus.errors import ErrorClass, TierError, tier_error
from isthmus.models.jsontext import loads
from isthmus.wire.call import WireReply
from isthmus.wire.retryafter import retry_after

_BODY_SHOWN = 2000

_TEXTS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    (
        ErrorClass.CREDENTIALS,
        re.compile(
            r"insufficient_quota|billing_(?:hard_limit_reached|not_active|error)|credit balance|exceeded your current quota"
            r"|insufficient (?:credits|balance|funds)|payment required|out of credits",
            re.I,
        ),
    ),
    (
        ErrorClass.OVERFLOW,
        re.compile(
            r"context_length_exceeded|exceed_context_size|context_window_exceeded|model_context_window|string_above_max_length"
            r"|maximum context length|context (?:length|window|size) (?:is |was |of |has been )?(?:exceeded|limit|too)"
            r"|exceeds? (?:the |model'?s? |your )*(?:available |maximum |max )?context|prompt is too long|input is too long"
            r"|exceed context limit|input tokens exceed|too many (?:input |prompt )?tokens|reduce the length of the"
            r"|exceeds the (?:maximum|max)[\w ]*tokens? (?:limit|allowed)|maximum (?:number of )?input tokens",
            re.I,
        ),
    ),
    (
        ErrorClass.REFUSED,
        re.compile(
            r"content_policy_violation|content_filter|responsibleaipolicyviolation|content management policy"
            r"|violat\w+ [\w' ]*(?:usage|content|safety) polic|moderation_blocked|flagged (?:by|as)|safety system",
            re.I,
        ),
    ),
)

_CODES: dict[str, int] = {
    "overloaded_error": 529,
    "overloaded": 529,
    "engine_overloaded": 529,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "unavailable_error": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "too_many_requests": 429,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "permission_denied_error": 403,
    "billing_error": 402,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "invalid_request": 400,
    "bad_request": 400,
    "timeout_error": 504,
    "request_timeout": 408,
    "api_error": 500,
    "server_error": 500,
    "internal_server_error": 500,
    "internal_error": 500,
}

_STATUSES: dict[int, ErrorClass] = {
    **dict.fromkeys((401, 402, 403), ErrorClass.CREDENTIALS),
    **dict.fromkeys((408, 409, 425, 429, 500, 502, 504), ErrorClass.TRANSIENT),
    **dict.fromkeys((503, 529), ErrorClass.UNAVAILABLE),
}

_OVERLOADED = re.compile(r"overloaded|at capacity|currently unavailable|temporarily unavailable", re.I)
_MODEL = re.compile(r"\bmodels?\b|deployment", re.I)


@dataclass(frozen=True, slots=True)
class Failure:
    """What a provider's error object says, taken apart: message, code, type, and status if it has one."""

    message: str
    code: str | None = None
    kind: str | None = None
    status: int | None = None

    @staticmethod
    def parse(value: Any) -> Failure:
        """Read any error object in use: `{"error": {...}}`, `{"error": "text"}`, `{"detail": ...}`, a string, a list of one."""
        if isinstance(value, list) and value:
            value = value[0]
        body = value
        if isinstance(value, Mapping) and value.get("error"):
            body = value["error"]
        if not isinstance(body, Mapping):
            return Failure(_say(body) if body is not None else "no details")
        outer = value if isinstance(value, Mapping) else body
        message = next(
            (body[key] for key in ("message", "detail", "error", "title", "msg") if body.get(key)),
            outer.get("message") or body,
        )
        code, kind = body.get("code"), body.get("type") or body.get("status")
        number = next(
            (n for n in (code, body.get("status_code"), body.get("status"), outer.get("status_code")) if _is_status(n)),
            None,
        )
        metadata = body.get("metadata")
        inner = metadata.get("raw") if isinstance(metadata, Mapping) else None
        text = _say(message) + (f": {_say(inner)}" if inner else "")
        return Failure(text, _word(code), _word(kind), int(number) if number is not None else None)

    def classified(
        self, *, status: int | None = None, headers: Mapping[str, str] | None = None, body: str | None = None
    ) -> TierError:
        """The one class that this failure belongs to.

        Args:
            status: the HTTP status; None for an error inside a stream, which then gets the status it stands for.
            headers: the reply's headers, names in lower case.
            body: the body as text, for the error to carry.
        """
        stands_for = status or self.status or _CODES.get(self.kind or "") or _CODES.get(self.code or "")
        error = tier_error(
            self._class(stands_for),
            self.message[:_BODY_SHOWN],
            status=stands_for,
            code=self.code or self.kind,
            retry_after=retry_after(headers) if headers else None,
        )
        error.body = body[:_BODY_SHOWN] if body else None
        return error

    def _class(self, status: int | None) -> str:
        said = f"{self.code or ''} {self.kind or ''} {self.message}"
        for kind, pattern in _TEXTS:
            if pattern.search(said):
                return kind
        if _OVERLOADED.search(said) and (status is None or status >= 429):
            return ErrorClass.UNAVAILABLE
        if status is None:
            return ErrorClass.TRANSIENT
        if status in _STATUSES:
            return _STATUSES[status]
        if status == 404:
            return ErrorClass.UNAVAILABLE if _MODEL.search(said) else ErrorClass.INVALID
        return ErrorClass.TRANSIENT if status >= 500 else ErrorClass.INVALID


def _is_status(value: Any) -> bool:
    try:
        return not isinstance(value, bool) and value is not None and 400 <= int(value) <= 599
    except (TypeError, ValueError):
        return False


def _word(value: Any) -> str | None:
    return None if value is None or isinstance(value, Mapping | list) else str(value)


def _say(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("message"), str):
        return str(value["message"])
    return f"{value}"


def classify_reply(reply: WireReply) -> TierError:
    """The classified error of a reply with an error status, whatever its body is."""
    text = reply.body.decode("utf-8", "replace").strip()
    try:
        failure = Failure.parse(loads(reply.body))
    except (ValueError, RecursionError):
        failure = Failure(text[:300] or f"HTTP {reply.status} without a body")
    return failure.classified(status=reply.status, headers=reply.headers, body=text)


def classify_in_band(value: Any) -> TierError:
    """The classified error of an error object inside a reply that began as a success."""
    return Failure.parse(value).classified()
