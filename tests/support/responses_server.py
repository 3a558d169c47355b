"""The official SDK against a scripted server: clients, and the answers that it gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.models import Config
from support.loopback import LoopbackServer, Step, stream, whole
from support.responses_frames import body, sse, streamed

KEY = "sk-canary-0123456789"
USER = {"role": "user", "content": "Hi"}


def client(server: LoopbackServer, *, model: str = "m", max_retries: int = 3, **default_call_args: Any) -> Any:
    """A client for the server."""
    config = Config(api_key=KEY, model=model, base_url=f"{server.url}/v1", max_retries=max_retries, timeout=5.0)
    return ResponsesClient(config, **default_call_args)


def answer(value: Mapping[str, Any], status: int = 200, **headers: str) -> list[Step]:
    """A whole reply."""
    return [whole(body(value), status, **headers)]


def answer_stream(value: Mapping[str, Any], **options: Any) -> list[Step]:
    """A streamed reply that ends in this response."""
    return stream(sse(streamed(value)), **options)


def failed(status: int, code: str = "", message: str = "no", **headers: str) -> list[Step]:
    """An error reply."""
    return answer({"error": {"message": message, "code": code or None, "type": "x", "param": None}}, status, **headers)


def sent(server: LoopbackServer, at: int = -1) -> dict[str, Any]:
    """The body of a request that the server got."""
    value: dict[str, Any] = json.loads(server.requests[at].body)
    return value
