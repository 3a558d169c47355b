"""What Bedrock's errors mean."""

from __future__ import annotations

import json

import pytest

from isthmus.adapters.bedrock.failures import classify
from isthmus.adapters.bedrock.sniff import BedrockDecoder
from isthmus.errors import TierError
from isthmus.wire.call import WireReply
from isthmus.wire.frame import Frame


def failed(status, message, kind="", **headers):
    """The error of an HTTP reply."""
    named = {"x-amzn-errortype": f"{kind}:http://internal.amazon.com/coral/"} if kind else {}
    return classify(WireReply(status, {**named, **headers}, json.dumps({"message": message}).encode()))


@pytest.mark.parametrize(
    ("status", "kind", "message", "expected"),
    [
        (400, "ValidationException", "Malformed input request", "invalid"),
        (400, "ValidationException", "The provided model identifier is invalid.", "unavailable"),
        (400, "ValidationException", "ID x with on-demand throughput isn’t supported. Retry", "unavailable"),
        (400, "ValidationException", "Input Tokens Exceeded: Number of input tokens exceeds maximum", "overflow"),
        (400, "ValidationException", "Input is too long for requested model.", "overflow"),
        (400, "ServiceQuotaExceededException", "too much", "transient"),
        (403, "AccessDeniedException", "You don't have access to the model", "credentials"),
        (403, "ExpiredTokenException", "The security token included in the request is expired", "credentials"),
        (
            404,
            "ResourceNotFoundException",
            "Could not resolve the foundation model from the identifier.",
            "unavailable",
        ),
        (404, "ResourceNotFoundException", "The specified resource ARN was not found.", "unavailable"),
        (403, "InvalidSignatureException", "Signature expired: it is now earlier than 20261201T000500Z", "credentials"),
        (404, "ResourceNotFoundException", "This model version has reached the end of its life.", "unavailable"),
        (408, "ModelTimeoutException", "slow", "transient"),
        (424, "ModelErrorException", "the model failed", "transient"),
        (429, "ThrottlingException", "Too many tokens, please wait before trying again.", "transient"),
        (429, "ModelNotReadyException", "Model is not ready for inference.", "unavailable"),
        (500, "InternalServerException", "oops", "transient"),
        (503, "ServiceUnavailableException", "Model is getting throttled.", "unavailable"),
        (502, "", "bad gateway", "transient"),
    ],
)
def test_each_error_has_its_class(status, kind, message, expected):
    """F18: status, code and text of an error give one class, and the error keeps status and code."""
    error = failed(status, message, kind)
    assert (str(error.error_class), error.status) == (expected, status)
    assert error.code == (kind or None)
    assert message in error.message


def test_retry_after_is_read():
    """F09: the time to wait that a reply names is on the error."""
    assert failed(429, "slow down", "ThrottlingException", **{"retry-after": "7"}).retry_after == 7


def test_a_body_that_is_no_json_is_shown():
    """F18: an error page's words are the message."""
    error = classify(WireReply(502, {}, b"upstream  is gone"))
    assert (str(error.error_class), error.message) == ("transient", "upstream is gone")
    assert classify(WireReply(502, {}, b"caf\xe9 is closed")).message == "caf\N{REPLACEMENT CHARACTER} is closed"


def test_events_pass_and_exceptions_do_not():
    """F01: only frames that are marked as failures are refused; one without any JSON still is."""
    decoder = BedrockDecoder(whole=False, names={})
    assert not list(decoder.feed(Frame(b"{}", "messageStart")))
    for data, said in ((b"not json", "not json"), (b'{"Message": "m"}', "m"), (b"", "throttlingException")):
        with pytest.raises(TierError, match=said):
            decoder.feed(Frame(data, "!throttlingException"))
