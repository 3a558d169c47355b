"""One table from status, code and text to an error class, for every dialect, in HTTP replies and inside streams.

Order: billing and quota, context overflow, content policy, then the status; first match wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

from isthmus.errors import ErrorClass, TierError, tier_error
from isthmus.models.jsontext import loads
from isthmus.secret import clean_url
from isthmus.wire.call import WireReply
from isthmus.wire.retryafter import retry_after

_Read = TypeVar("_Read")

_BODY_SHOWN = 2000
_TEXT_SHOWN = 300
_MARKUP_READ = 4000
_BODY_KEPT = 4096


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.I | re.S)


_TEXTS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    (
        ErrorClass.CREDENTIALS,
        _any_of(
            r"insufficient_quota|billing_(?:hard_limit_reached|not_active|error)",
            r"credit balance|insufficient (?:credits|balance|funds)|out of credits|payment (?:is |method is )?required",
            # With a time to come back at, the same words mean a rate limit; see also `Failure._class`.
            r"exceeded your current quota(?!.*(?:retry in|per.?(?:minute|day)))",
            r"(?:incorrect|invalid) api key\b|api key (?:is )?(?:not valid|invalid)",
            r"reached your specified [\w ]*usage limit|spend(?:ing)? limit|exceeded_current_quota|\barrearage\b",
        ),
    ),
    (
        ErrorClass.OVERFLOW,
        _any_of(
            r"context_length_exceeded|exceed_context_size|context_window_exceeded|model_context_window",
            r"prompt_tokens_exceeded|string_above_max_length.{0,80}(?:messages|input)",
            r"maximum context length|max context length|maximum prompt length|maximum model length",
            r"context (?:length|window|size) (?:is |was |of |has been )?(?:exceed|too)|greater than the context length",
            r"exceeds? (?:the |model'?s? |your )*(?:available |maximum |max )?context|exceed context limit",
            r"(?:prompt|input) (?:is )?too long|reduce the length of the (?:messages|prompt|input)",
            r"input tokens exceed|(?:input|prompt) token count.{0,40}exceed|too many (?:input|prompt) tokens",
            r"exceeds the max(?:imum)? (?:number of )?(?:input|prompt) tokens|maximum (?:number of )?input tokens",
            r"number of tokens in the prompt|tokens \+ \W?max_new_tokens|range of input length should be",
            r"exceeded model token limit|context (?:the )?overflows",
        ),
    ),
    (
        ErrorClass.REFUSED,
        _any_of(
            r"content_policy_violation|\bcontent_filter\b|responsibleaipolicyviolation|moderation_blocked",
            r"\b(?:bio|cyber|misalignment)_policy(?:_violation)?\b",
            r"content management policy|content filtering policy|our safety system",
            r"violat\w+ [\w' ]*(?:usage|content|safety) (?:polic|guideline)",
            r"(?:input|prompt|content|output)\b.{0,40}\bflagged",
            r"data_?inspection_?failed|inappropriate content|content exists risk|unsafe or sensitive content",
        ),
    ),
)

_CODES: dict[str, int] = {
    "overloaded_error": 529,
    "overloaded": 529,
    "engine_overloaded": 529,
    "unavailable": 503,
    "service_unavailable": 503,
    "service_unavailable_error": 503,
    "unavailable_error": 503,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit": 429,
    "too_many_requests": 429,
    "resource_exhausted": 429,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "permission_error": 403,
    "permission_denied": 403,
    "permission_denied_error": 403,
    "forbidden": 403,
    "billing_error": 402,
    "not_found": 404,
    "not_found_error": 404,
    "model_not_found": 404,
    "model_decommissioned": 404,
    "deploymentnotfound": 404,
    "endpoint_not_found": 404,
    "request_too_large": 413,
    "invalid_request_error": 400,
    "invalid_request": 400,
    "bad_request": 400,
    "invalid_argument": 400,
    "timeout_error": 504,
    "deadline_exceeded": 504,
    "request_timeout": 408,
    "api_error": 500,
    "server_error": 500,
    "internal": 500,
    "internal_server_error": 500,
    "internal_error": 500,
}

_STATUS_NAMES = ("code", "status_code", "status", "raw_status_code", "http_status_code", "http_code")

_STATUSES: dict[int, ErrorClass] = {
    **dict.fromkeys((401, 402, 403), ErrorClass.CREDENTIALS),
    **dict.fromkeys((408, 409, 425, 429, 500, 502, 504), ErrorClass.TRANSIENT),
    **dict.fromkeys((503, 529), ErrorClass.UNAVAILABLE),
}

_QUOTA = re.compile(r"exceeded your current quota", re.I)
_OVERLOADED = _any_of(r"overloaded|(?:at|over) capacity|capacity[ _]exceeded|(?:currently|temporarily) unavailable")
_MODEL_CODES = frozenset({"model_not_found", "model_decommissioned", "deploymentnotfound", "endpoint_not_found"})
_MODEL_GONE = _any_of(
    r"^model: |\b(?:unknown|no such) model\b|no endpoints found for ",
    r"\b(?:model|deployment)s?\b.{0,200}(?:not found|not exist|no longer|not deployed|not loaded)",
    r"\b(?:model|deployment)s?\b.{0,200}(?:decommissioned|deprecated|retired)",
)
# Said with 400 too, and of nothing else.
_NO_SUCH_MODEL = _any_of(
    r"^model not found\b|model identifier is invalid|model version has reached the end of its life"
)
_MARKUP = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.I | re.S)


@dataclass(frozen=True, slots=True)
class Failure:
    """What a provider's error object says, taken apart: message, code, type, and status if it has one.

    `hints` are what it says of the time to wait, as headers say it.
    """

    message: str
    code: str | None = None
    kind: str | None = None
    status: int | None = None
    hints: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def parse(value: Any) -> Failure:
        """Read an error object of any form in use; never fails.

        Known are `{"error": {…}}` however deep, `{"error": "text"}`, `{"errors": [{…}]}`, `{"detail": "text", {…} or
        [{"loc", "msg"}, …]}`, the object alone, a string, and a list of one of these.
        """
        levels: list[Mapping[str, Any]] = []
        while not isinstance(value, str):
            if isinstance(value, list) and value:
                value = "; ".join(value) if all(isinstance(item, str) for item in value) else value[0]
            elif isinstance(value, Mapping):
                levels.append(value)
                if not (inner := _inner(value)):
                    break
                value = inner
            else:
                break
        levels.reverse()
        said = _message(value, levels)
        code = _first(levels, ("code", "error_code"), _word)
        kind = _first(levels, ("type", "status"), _kind)
        status = _first(levels, _STATUS_NAMES, _status)
        return Failure(said, code, kind, status, _hints(levels))

    def classified(
        self, *, status: int | None = None, headers: Mapping[str, str] | None = None, body: str | None = None
    ) -> TierError:
        """The one class that this failure belongs to.

        Args:
            status: the HTTP status; None for an error inside a stream, which then gets the status it stands for.
            headers: the reply's headers, names in lower case.
            body: the body as text, for the error to carry.
        """
        stands_for = status or self.status or self._coded()
        wait = retry_after(headers) if headers else None
        if wait is None and self.hints:
            wait = retry_after({**(headers or {}), **self.hints})
        error = tier_error(
            self._class(stands_for, wait),
            self.message[:_BODY_SHOWN],
            status=stands_for,
            code=self.code or self.kind,
            retry_after=wait,
        )
        error.body = body[:_BODY_SHOWN] if body else None
        return error

    def _coded(self) -> int | None:
        """The status that code or type stand for; the more telling of the two, as either may be just "invalid"."""
        found = [_CODES[word] for word in self._words() if word in _CODES]
        return next((status for status in found if status != 400), 400 if found else None)

    def _words(self) -> tuple[str, ...]:
        return tuple(word.lower() for word in (self.code, self.kind) if word)

    def _class(self, status: int | None, wait: float | None) -> ErrorClass:
        said = f"{self.code or ''} {self.kind or ''} {self.message}"
        if wait is not None:
            said = _QUOTA.sub("", said)
        kind = _by_text(said)
        if kind is ErrorClass.UNAVAILABLE and status is not None and status < 429:
            kind = None
        if kind is not None:
            return kind
        if status in _STATUSES:
            return _STATUSES[status]
        if not _MODEL_CODES.isdisjoint(self._words()) or _NO_SUCH_MODEL.search(self.message):
            return ErrorClass.UNAVAILABLE
        if status == 404 and _MODEL_GONE.search(self.message):
            return ErrorClass.UNAVAILABLE
        if status is not None and status < 400:
            # Somebody else answers at this address: that says nothing against the request.
            return ErrorClass.UNAVAILABLE
        return ErrorClass.INVALID if status is not None and status < 500 else ErrorClass.TRANSIENT


@lru_cache(maxsize=64)
def _by_text(said: str) -> ErrorClass | None:
    """The class that the words alone tell, if they do. A provider that is down says the same again and again."""
    for kind, pattern in _TEXTS:
        if pattern.search(said):
            return kind
    return ErrorClass.UNAVAILABLE if _OVERLOADED.search(said) else None


def _inner(value: Mapping[str, Any]) -> Any:
    """The error inside an error object, if it has one."""
    detail = value.get("detail")
    return value.get("error") or value.get("errors") or (detail if isinstance(detail, Mapping) else None)


def _hints(levels: list[Mapping[str, Any]]) -> dict[str, str]:
    """What an error object says of the time to wait: the headers of a server behind, a number, or `RetryInfo`.

    Source: google.rpc.RetryInfo, and the `metadata.headers` and `retry_after` of gateways' errors, 2026-11.
    """
    hints: dict[str, str] = {}
    for level in reversed(levels):
        metadata = level.get("metadata")
        held = metadata.get("headers") if isinstance(metadata, Mapping) else None
        if isinstance(held, Mapping):
            hints.update({str(name).lower(): str(value) for name, value in held.items()})
        details = level.get("details")
        items = [item for item in details if isinstance(item, Mapping)] if isinstance(details, list) else []
        delays = [item.get("retryDelay") for item in items]
        for value in (*delays, level.get("retry_after"), level.get("retry_after_seconds")):
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                hints["retry-after"] = str(value).removesuffix("s")
    return hints


def _first(
    levels: list[Mapping[str, Any]], names: tuple[str, ...], read: Callable[[Any], _Read | None]
) -> _Read | None:
    """The first value that can be read, from the innermost object outwards."""
    for level in levels:
        for name in names:
            found = level.get(name)
            if found is not None and (value := read(found)) is not None:
                return value
    return None


def _message(value: Any, levels: list[Mapping[str, Any]]) -> str:
    if isinstance(value, str) and value.strip():
        return value
    names = ("message", "detail", "title", "msg", "error_description")
    said = _first(levels, names, _text)
    metadata = levels[0].get("metadata") if levels else None
    inner = _text(metadata.get("raw")) if isinstance(metadata, Mapping) else None
    if said is None:
        return inner or (f"{levels[0]}" if levels else f"{value}" if value is not None else "no details")
    return f"{said}: {inner}" if inner else said


def _text(value: Any) -> str | None:
    """What a message says: text, an object with a message, or the list of a validator's complaints."""
    if isinstance(value, str):
        return value or None
    if isinstance(value, list):
        return "; ".join(filter(None, map(_complaint, value))) or None
    if isinstance(value, Mapping):
        return _text(value.get("message")) or f"{value}"
    return None


def _complaint(value: Any) -> str | None:
    if not isinstance(value, Mapping):
        return f"{value}"
    place, said = value.get("loc"), _text(value.get("msg")) or _text(value.get("message")) or f"{value}"
    return f"{'.'.join(map(str, place))}: {said}" if isinstance(place, list) and place else said


def _word(value: Any) -> str | None:
    return None if value is None or isinstance(value, Mapping | list | bool) else str(value)


def _kind(value: Any) -> str | None:
    return value if isinstance(value, str) and value not in ("error", "") else None


def _status(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599 else None


def _plain(text: str) -> str:
    """The words of a body that is no JSON: markup and runs of white space taken out."""
    return " ".join(_MARKUP.sub(" ", text[:_MARKUP_READ]).split())[:_TEXT_SHOWN]


@lru_cache(maxsize=64)
def _parsed(body: bytes) -> Failure:
    """What an error body says: read as JSON, else as words. A provider that is down sends the same again and again."""
    try:
        return Failure.parse(loads(body))
    except (ValueError, RecursionError):
        return Failure(_plain(body.decode("utf-8", "replace").strip()))


def classify_reply(reply: WireReply) -> TierError:
    """The classified error of a reply with an error status, whatever its body is."""
    text = reply.body.decode("utf-8", "replace").strip()
    failure = (_parsed if len(reply.body) <= _BODY_KEPT else _parsed.__wrapped__)(reply.body)
    if not failure.message:
        failure = replace(failure, message=f"HTTP {reply.status} without a body")
    place = reply.headers.get("location")
    if 300 <= reply.status < 400 and place:
        said = f"redirected to {clean_url(place)}, which is not followed: if it is right, make it the base URL"
        failure = replace(failure, message=f"{said} ({failure.message[:_TEXT_SHOWN]})")
    return failure.classified(status=reply.status, headers=reply.headers, body=text)


def classify_in_band(value: Any) -> TierError:
    """The classified error of an error object inside a reply that began as a success."""
    return Failure.parse(value).classified()
