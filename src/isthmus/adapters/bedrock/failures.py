"""What Bedrock's errors mean, as HTTP replies and as exceptions inside a stream."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from isthmus.adapters.classify import Failure
from isthmus.errors import TierError
from isthmus.models.jsontext import loads
from isthmus.wire.call import WireReply
from isthmus.wire.eventstream import FAILED
from isthmus.wire.frame import Frame

_STATUSES: Mapping[str, int] = {
    "accessdeniedexception": 403,
    "expiredtokenexception": 403,
    "invalidsignatureexception": 403,
    "unrecognizedclientexception": 403,
    "resourcenotfoundexception": 404,
    "validationexception": 400,
    "modeltimeoutexception": 408,
    "modelerrorexception": 500,
    "modelstreamerrorexception": 500,
    "modelnotreadyexception": 503,
    "throttlingexception": 429,
    "toomanyrequestsexception": 429,
    "servicequotaexceededexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
}
"""The status that stands for the class of each error, where Bedrock's own says something else.

ModelErrorException and ModelStreamErrorException come as 424, which is no fault of the request: the model failed.
ModelNotReadyException comes as 429 and ServiceQuotaExceededException as 400. Source: bedrock-runtime's model, 2026-11.
"""
_NO_MODEL = re.compile(
    r"could not resolve the foundation model|resource ARN was not found|"
    r"model (?:identifier|version)\b.{0,60}\b(?:invalid|end of its life)|on-demand throughput isn.t supported",
    re.I,
)


def classify(reply: WireReply) -> TierError:
    """The error of a reply with a status other than 2xx."""
    text = reply.body.decode("utf-8", "replace").strip()
    try:
        failure = Failure.parse(loads(reply.body))
    except (ValueError, RecursionError):
        failure = Failure(" ".join(text.split())[:300] or f"HTTP {reply.status} without a body")
    named = reply.headers.get("x-amzn-errortype", "").partition(":")[0] or failure.code or failure.kind
    return _classified(failure, named, reply.status, headers=reply.headers, body=text)


def failed(frame: Frame) -> TierError:
    """The error that a frame stands for which is an exception: of the class that it would have had as a reply."""
    try:
        value = loads(frame.data)
    except (ValueError, RecursionError):
        value = frame.data.decode("utf-8", "replace").strip() or {}
    if isinstance(value, dict):
        said = value.get("message") or value.get("Message") or value.get("originalMessage")
        value = {**value, "message": said or frame.event.removeprefix(FAILED)}
    return _classified(Failure.parse(value), frame.event.removeprefix(FAILED), None)


def _classified(
    failure: Failure,
    named: str | None,
    status: int | None,
    *,
    headers: Mapping[str, str] | None = None,
    body: str | None = None,
) -> TierError:
    name = named or failure.code or ""
    stands_for = _STATUSES.get(name.lower()) or status or failure.status
    gone = _NO_MODEL.search(failure.message) is not None and stands_for in (400, 404)
    if gone:
        # It may be told as a fault of the request, yet another model may be there.
        stands_for = 404
    known = replace(failure, code=name or None, kind="model_not_found" if gone else failure.kind)
    error = known.classified(status=stands_for, headers=headers, body=body)
    error.status = status or stands_for
    return error
