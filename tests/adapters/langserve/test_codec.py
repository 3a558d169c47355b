"""What stands around the two hooks: routes, what a hook must return, and errors by status."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from isthmus.adapters.langserve import LangServeAdapter
from isthmus.errors import AdapterError, InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.wire.call import WireReply

ASK = GenerateContext(messages=({"role": "user", "content": "Hi"},))
CALLED = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
TURN = (
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": None, "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c", "content": "1"},
)


def test_the_two_routes() -> None:
    """A stream is asked for at `/stream_events`; a whole reply, or any where streams are off, at `/invoke`."""
    on, off = (LangServeAdapter(base_url="http://localhost", stream_events=flag).codec for flag in (True, False))
    assert [on.encode(ASK, stream=way).call.path for way in (True, False)] == ["/stream_events", "/invoke"]
    assert off.encode(ASK, stream=True).call.path == "/invoke"
    assert not off.encode(ASK, stream=True).call.stream


@pytest.mark.parametrize("given", [None, "text", [1]])
def test_a_payload_that_is_none_is_named(given: Any) -> None:
    """A hook that returns no dict is an error that names the class and the hook."""

    class Broken(LangServeAdapter):
        def _build_payload(self, messages: Any, tools: Any) -> Any:
            return given

    with pytest.raises(AdapterError, match=r"Broken\._build_payload must return a dict"):
        Broken(base_url="http://localhost").codec.encode(ASK, stream=True)


def test_an_authors_own_tool_turns_are_what_is_sent() -> None:
    """A `make_tool_turn` of a subclass decides how its payload gets the calls and their results."""

    class Own(LangServeAdapter):
        def make_tool_turn(self, response: Any, results: Any) -> list[dict[str, Any]]:
            return [{"role": "user", "content": f"{call.name} gave {output}"} for call, output in results]

    body = json.loads(
        Own(base_url="http://localhost").codec.encode(GenerateContext(messages=TURN), stream=True).call.body
    )
    assert [item["content"] for item in body["input"]["messages"]] == ["Hi", "f gave 1"]


async def test_tool_turns_that_wait_are_refused() -> None:
    """Rendering does no I/O: an async `make_tool_turn` that waits for something is an error with the remedy."""

    class Waits(LangServeAdapter):
        async def make_tool_turn(self, response: Any, results: Any) -> list[dict[str, Any]]:  # type: ignore[override]
            await asyncio.sleep(1)
            return []

    with pytest.raises(AdapterError, match="plain method"):
        Waits(base_url="http://localhost").codec.encode(GenerateContext(messages=TURN), stream=True)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (401, {"detail": "Unauthorized"}, "credentials"),
        (403, {"detail": "Forbidden"}, "credentials"),
        (404, {"detail": "Not Found"}, "invalid"),
        (422, {"detail": [{"type": "missing", "loc": ["input"], "msg": "Field required"}]}, "invalid"),
        (429, {"detail": "Too many"}, "transient"),
        (500, "Internal Server Error", "transient"),
        (502, "<html>Bad gateway</html>", "transient"),
        (503, {"detail": "warming up"}, "unavailable"),
        (400, {"detail": "This model's maximum context length is 8192 tokens"}, "overflow"),
        (400, {"detail": "Your credit balance is too low"}, "credentials"),
    ],
)
def test_each_status_has_its_class(status: int, body: Any, kind: str) -> None:
    """F18: the table of statuses and texts holds for this server's forms of errors."""
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    error = LangServeAdapter(base_url="http://localhost").codec.classify(WireReply(status, {}, data))
    assert (str(error.error_class), error.status) == (kind, status)


def test_bad_input_names_the_place() -> None:
    """The details of a 422 are told: where, and what is wrong there; a place that has no name is left out."""
    details = [{"loc": ["input", "question"], "msg": "Field required"}, {"loc": [], "msg": "Input should be a dict"}]
    reply = WireReply(422, {}, json.dumps({"detail": details}).encode())
    error = LangServeAdapter(base_url="http://localhost").codec.classify(reply)
    assert error.message == "input.question: Field required; Input should be a dict"


@pytest.mark.parametrize("message", ["hi", None, 3])
def test_what_is_no_message_is_named(message: Any) -> None:
    """A message that is none is refused with its place, before any I/O."""
    made = LangServeAdapter(base_url="http://localhost").codec
    with pytest.raises(InvalidRequestError, match=r"messages\[0\]"):
        made.encode(GenerateContext(messages=(message,)), stream=False)
