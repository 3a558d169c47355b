"""Cuts a recorded stream short and looks for successes that are smaller than the whole."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from isthmus.adapters.registry import load_adapter
from isthmus.errors import TierError
from isthmus.models.events import StepResult
from isthmus.models.fold import Fold
from isthmus.wire.call import Ended
from isthmus.wire.eventstream import EventStreamParser
from isthmus.wire.frame import Frame
from isthmus.wire.sse import SSEParser

PROVIDERS = {"openai-chat": "openai", "anthropic-messages": "anthropic", "openai-responses": "openai-responses"}
_ELSEWHERE = {"bedrock": {"aws_region": "us-east-1"}, "langserve": {"base_url": "http://localhost"}}


@cache
def codec(api: str) -> Any:
    """The codec that reads an API's replies."""
    provider = PROVIDERS.get(api, api.partition("-")[0])
    return load_adapter(provider, model="m", api_key="none", **_ELSEWHERE.get(provider, {})).codec


def parser(api: str) -> Any:
    """A fresh parser of the framing in which an API streams."""
    return EventStreamParser() if api.startswith("bedrock") else SSEParser()


def outcome(api: str, frames: list[Frame], ended: Ended) -> StepResult | TierError:
    """What a streamed reply of these frames amounts to."""
    decoder = codec(api).decoder(whole=False)
    fold = Fold()
    try:
        for frame in frames:
            for event in decoder.feed(frame):
                fold.add(event)
            if decoder.done:
                break
        for event in decoder.close(Ended.FRAMED if decoder.done else ended):
            fold.add(event)
    except TierError as error:
        return error
    return fold.result()


def same(one: StepResult, other: StepResult) -> bool:
    """Whether two results are the same reply; usage is not compared: one that did not arrive is noted."""
    names = ("text", "calls", "reasoning", "native", "finish")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def smaller_successes(api: str, body: bytes, whole: StepResult, *, quick: bool) -> tuple[int, list[str]]:
    """How many cuts were tried, and those that gave a success other than the whole reply.

    Cuts at every frame boundary and at random bytes, with each way in which the bytes can end.
    """
    chance = random.Random(len(body))
    frames, faults, tried = _parsed(api, body), [], 0
    counts = range(len(frames))
    for count in chance.sample(counts, min(12, len(counts))) if quick else counts:
        for ended in (Ended.FRAMED, Ended.BROKEN):
            tried += 1
            faults += _fault(outcome(api, frames[:count], ended), whole, f"cut after {count} frames, {ended}")
    for point in chance.sample(range(len(body)), min(8 if quick else 120, len(body))):
        for ended in (Ended.FRAMED, Ended.UNFRAMED, Ended.BROKEN):
            tried += 1
            faults += _fault(outcome(api, _parsed(api, body[:point]), ended), whole, f"cut at byte {point}, {ended}")
    return tried, faults[:3]


def _parsed(api: str, body: bytes) -> list[Frame]:
    reader = parser(api)
    return [*reader.feed(body), *reader.close()]


def _fault(found: StepResult | TierError, whole: StepResult, where: str) -> list[str]:
    if isinstance(found, TierError) or (whole.error is None and same(found, whole)):
        return []
    return [f"{where}: a smaller success: {found.finish} {found.text[-40:]!r}"]
