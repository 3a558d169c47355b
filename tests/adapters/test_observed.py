"""A model call as listeners see it."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.observed import told
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.errors import TransientError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Native, Text, Usage
from isthmus.observability import hooks
from isthmus.observability.scope import Operation, under

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))


async def heard(adapter: Any) -> list[Any]:
    """The records of one streamed call."""
    records: list[Any] = []
    with hooks.sink(records.append):
        try:
            async for _ in adapter.stream(ASK):
                pass
        except Exception as error:
            records.append(error)
    return records


async def test_a_property_that_fails_is_not_the_calls_failure() -> None:
    """An adapter whose own description raises answers as it does unheard, and is told of without it."""

    class Odd(ModelAdapter):
        @property
        def base_url(self) -> str:
            raise RuntimeError("no")

        async def stream(self, ctx: Any) -> Any:
            yield {"type": "text", "text": "x"}
            yield {"type": "finish", "finish": "stop", "usage": {"inputTokens": 3}}

    begun, ended = await heard(Odd())
    assert (begun.model, ended.outcome, ended.usage.input_tokens) == ("", "ok", 3)


async def test_the_usage_of_a_failure_and_the_identity_of_a_reply_are_told() -> None:
    """An error's own tokens, and the id and model of the provider's own form, stand in the record of the end."""
    failing = ScriptedAdapter([[Text("a"), TransientError("x", usage=Usage(input_tokens=2), status=502)]])
    _, ended, error = await heard(failing)
    assert isinstance(error, TransientError)
    assert (ended.usage.input_tokens, ended.error_class, ended.status) == (2, "transient", 502)
    native = Native("d", "message", {"id": "r-1", "model": "m-2"})
    _, ended = await heard(ScriptedAdapter([[Text("a"), Finish("stop", native=native)]]))
    assert (ended.reply_id, ended.reply_model, ended.op.error, ended.op.said) == ("r-1", "m-2", None, None)


@pytest.mark.parametrize(
    ("last", "told_of"),
    [
        (Finish("stop", {"inputTokens": 2}), ("ok", 2, None)),  # type: ignore[arg-type]
        (
            Finish("stop", native={"provider": "d", "event_type": "message", "payload": {"id": "r-1"}}),
            ("ok", None, "r-1"),
        ),  # type: ignore[arg-type]
        (Finish("error-post", {"inputTokens": 2}, error=ValueError("x")), ("error", 2, None)),  # type: ignore[arg-type]
        (Finish("stop", native=3), ("error", None, None)),  # type: ignore[arg-type]
        (TransientError("x", usage={"inputTokens": 2}), ("error", 2, None)),
    ],
    ids=["usage", "native", "error", "no form", "a failure's usage"],
)
async def test_an_end_filled_in_a_looser_way_is_told(last: Any, told_of: Any) -> None:
    """F23: the call ends for listeners too, once, with what is known, where an author's struct holds plain dicts."""

    class Loose(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            yield Text("a")
            if isinstance(last, Exception):
                raise last
            yield last

    (ended,) = [record for record in await heard(Loose()) if isinstance(record, hooks.ModelEnded)]
    assert (ended.outcome, ended.usage and ended.usage.input_tokens, ended.reply_id) == told_of


async def test_an_empty_piece_is_no_first_content() -> None:
    """The time to the first content does not end with an empty text."""
    _, ended = await heard(ScriptedAdapter([[Text(""), 0.05, Text("a"), Finish("stop")]]))
    assert ended.first >= 0.05


def test_the_first_frame_tells_id_and_model_in_any_form() -> None:
    """Members of the frame, of its message or of its response; what is no JSON, or names nothing, tells nothing."""
    for data in (
        b'{"id": "r", "model": "m"}',
        b'{"type": "message_start", "message": {"id": "r", "model": "m"}}',
        b'{"type": "response.created", "response": {"id": "r", "model": "m"}}',
    ):
        op = Operation()
        with under(op):
            assert told(data)
        assert op.reply == ("r", "m")
    op = Operation()
    with under(op):
        assert not any(told(data) for data in (b"", b"[DONE]", b"[1]", b'{"id": 3}', b"{" * 3000))
    assert op.reply == (None, None)
    assert told(b"whatever")
