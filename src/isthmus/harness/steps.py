"""Replies and results as plain JSON, so that they can be read back as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from isthmus.harness.plainjson import plain_json
from isthmus.models.events import Call, Native, Note, StepResult, Text, Usage
from isthmus.models.executor import ToolResult
from isthmus.models.normalise import make_call


def encoded_step(step: StepResult) -> dict[str, Any]:
    """A whole reply; live objects beside its native form stay behind.

    Raises:
        TypeError: something in it has no JSON form.
        ValueError: the same.
    """
    return {
        "events": [_encoded_event(event) for event in step.events],
        "finish": str(step.finish),
        "raw_reason": step.raw_reason,
        "usage": None if step.usage is None else plain_json(step.usage.to_dict(), "usage"),
        "reasoning": step.reasoning,
        "native": [
            [each.provider, each.event_type, each.json.decode("utf-8", "surrogatepass")] for each in step.native
        ],
        "notes": [[str(note.code), note.detail] for note in step.notes],
    }


def decoded_step(given: Mapping[str, Any]) -> StepResult:
    """What `encoded_step` made.

    Raises:
        KeyError: something is missing.
        TypeError: something is of another type.
        ValueError: the same.
    """
    natives = given["native"]
    return StepResult(
        events=tuple(_decoded_event(each) for each in given["events"]),
        finish=given["finish"],
        raw_reason=given["raw_reason"],
        usage=None if given["usage"] is None else Usage(**given["usage"]),
        reasoning=given["reasoning"],
        native=tuple(Native(of, kind, json=text.encode("utf-8", "surrogatepass")) for of, kind, text in natives),
        notes=tuple(Note(*each) for each in given["notes"]),
    )


def _encoded_event(event: Text | Call) -> dict[str, Any]:
    if isinstance(event, Text):
        return {"text": event.text}
    # Arguments as the model wrote them give the same input again, digit by digit.
    given = event.arguments if event.arguments is not None else plain_json(event.input, event.tool)
    return {"tool": event.tool, "call_id": event.call_id, "arguments": given}


def _decoded_event(given: Mapping[str, Any]) -> Text | Call:
    if "tool" not in given:
        return Text(given["text"])
    return make_call(given["tool"], given["arguments"], call_id=given["call_id"])


def encoded_result(result: ToolResult) -> dict[str, Any]:
    """A result.

    Raises:
        TypeError: a part of it has no JSON form.
        ValueError: the same.
    """
    return {name: plain_json(getattr(result, name), name) for name in result.__struct_fields__}


def decoded_result(given: Mapping[str, Any]) -> ToolResult:
    """What `encoded_result` made.

    Raises:
        msgspec.ValidationError: a field is missing, or of another type.
    """
    return msgspec.convert({"type": ToolResult.type, **given}, ToolResult)
