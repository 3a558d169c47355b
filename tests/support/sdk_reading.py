"""What the official SDKs make of recorded bytes: an independent reading, where they are installed and can read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from support import bedrock_reading
from support.corpus import Recording

_OURS = {"stop_sequence": "stop", "end_turn": "stop", "tool_use": "tool-calls", "max_tokens": "length"}


class Reading(NamedTuple):
    """Text, calls (name and arguments as a value), the provider's finish reason and output tokens."""

    text: str
    calls: list[tuple[str, Any]]
    finish: str | None
    output: int | None


class Unreadable(Exception):
    """The SDK is absent, or raises on these bytes."""


def read(api: str, recording: Recording, *, stream: bool) -> Reading:
    """The SDK's own parse of a reply.

    Raises:
        Unreadable: with the SDK's own words.
    """
    if api not in _READERS:
        raise Unreadable("there is no SDK for it")
    try:
        return _READERS[api](recording, stream)
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {str(error)[:80]}") from None


def _client(module: Any, recording: Recording, base_url: str) -> Any:
    import httpx2

    def answer(_request: Any) -> Any:
        kept = {"content-type": recording.headers.get("content-type", "application/json")}
        return httpx2.Response(recording.status, headers=kept, content=recording.body)

    client = httpx2.Client(transport=httpx2.MockTransport(answer))
    make = getattr(module, "OpenAI", None) or module.Anthropic
    return make(api_key="none", base_url=base_url, max_retries=0, http_client=client)


def _value(arguments: str | None) -> Any:
    try:
        return json.loads(arguments or "{}") or {}
    except ValueError:
        return None


def _chat(recording: Recording, stream: bool) -> Reading:
    import openai

    client = _client(openai, recording, "http://localhost/v1")
    asked: Any = {"model": "m", "messages": [{"role": "user", "content": "-"}]}
    if not stream:
        reply = client.chat.completions.create(**asked)
        choice = reply.choices[0]
        calls = [(call.function.name, _value(call.function.arguments)) for call in choice.message.tool_calls or []]
        output = reply.usage.completion_tokens if reply.usage else None
        said = (choice.message.content or "") + (choice.message.refusal or "")
        return Reading(said, calls, choice.finish_reason, output)
    text, finish, output = "", None, None
    slots: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(**asked, stream=True):
        output = chunk.usage.completion_tokens if chunk.usage else output
        for choice in chunk.choices or []:
            if choice.index:
                continue
            finish = choice.finish_reason or finish
            text += (choice.delta.content or "") + (choice.delta.refusal or "")
            for call in choice.delta.tool_calls or []:
                slot = slots.setdefault(call.index, ["", ""])
                slot[0] = slot[0] or (call.function.name or "")
                slot[1] += call.function.arguments or ""
    return Reading(text, [(name, _value(arguments)) for name, arguments in slots.values()], finish, output)


def _messages(recording: Recording, stream: bool) -> Reading:
    import anthropic

    client = _client(anthropic, recording, "http://localhost")
    asked: Any = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "-"}]}
    if stream:
        with client.messages.stream(**asked) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**asked)
    text = "".join(block.text for block in message.content if block.type == "text")
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    return Reading(text, calls, message.stop_reason, message.usage.output_tokens)


def _responses(recording: Recording, stream: bool) -> Reading:
    import openai

    client = _client(openai, recording, "http://localhost/v1")
    text = ""
    if stream:
        done: list[Any] = []
        reply: Any = None
        for event in client.responses.create(model="m", input="-", stream=True):
            if event.type in ("response.output_text.delta", "response.refusal.delta"):
                text += event.delta
            elif event.type == "response.output_item.done":
                done.append(event.item)
            elif event.type in ("response.completed", "response.incomplete"):
                reply = event.response
                break
        items = reply.output or done
    else:
        reply = client.responses.create(model="m", input="-")
        items = reply.output
    if not text:
        parts = [part for item in items if item.type == "message" for part in item.content]
        text = "".join(part.text if part.type == "output_text" else part.refusal for part in parts)
    calls = [(item.name, _value(item.arguments)) for item in items if item.type == "function_call"]
    details = reply.incomplete_details
    finish = (details.reason if details else None) or reply.status
    return Reading(text, calls, finish, reply.usage.output_tokens if reply.usage else None)


def _bedrock(api: str, recording: Recording, stream: bool) -> Reading:
    said = bedrock_reading.read(bedrock_reading.by_botocore(api, recording.body))
    return Reading(said.text, said.calls, said.finish, said.output)


_READERS: dict[str, Callable[[Recording, bool], Reading]] = {
    "openai-chat": _chat,
    "anthropic-messages": _messages,
    "openai-responses": _responses,
    **{api: partial(_bedrock, api) for api in bedrock_reading.OPERATIONS},
}
