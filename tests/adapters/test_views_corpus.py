"""Every recorded reply through the model face and back."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from isthmus.adapters.views import from_response, to_response
from isthmus.conformance import replay
from isthmus.models import get_usage_totals
from isthmus.models.events import StepResult
from isthmus.models.messages import native_of
from isthmus.models.responses import ModelResponse
from support.corpus import REASON, corpus_root, rows

_APIS = ("openai-chat", "anthropic-messages")


def essence(step: StepResult) -> Any:
    """What a model face must keep of a reply; no arguments at all are shown as those of no parameters."""
    said = [(call.tool, call.input, call.call_id, call.arguments or "{}") for call in step.calls]
    usage = None if step.usage is None else msgspec.structs.replace(step.usage, raw=None)
    return step.text, said, str(step.finish), step.reasoning, usage


@pytest.mark.skipif(corpus_root() is None, reason=REASON)
@pytest.mark.parametrize("api", _APIS)
def test_recorded_replies_survive_the_model_face_and_its_json(api: str) -> None:
    """F11, F16: text, calls, finish, reasoning, usage and the native form of real replies come back from their JSON."""
    root, seen = corpus_root(), 0
    assert root is not None
    for row in rows(api):
        step = replay(root / row.path)
        if step.finish == "error-post":
            continue
        seen += 1
        response = to_response(step, "m")
        saved = json.loads(json.dumps(response.to_dict(), allow_nan=False))
        again = ModelResponse.from_dict(saved)
        assert again.to_dict() == response.to_dict(), row.path
        assert essence(from_response(again)) == essence(step), row.path
        assert (get_usage_totals(again) is None) == (step.usage is None), row.path
        own = step.message
        if own is not None:
            assert native_of(saved["choices"][0]["message"], own.provider) == (own, None), row.path
    assert seen > 50
