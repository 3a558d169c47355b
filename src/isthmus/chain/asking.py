"""How a tier is asked, whatever it returns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from isthmus.adapters.base import bare_events
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, Reasoning
from isthmus.models.fold import close, iterate
from isthmus.models.normalise import to_step_result
from isthmus.models.stream import EventStream


def asked(target: Any, ctx: GenerateContext) -> AsyncIterator[Any]:
    """A bare iterator of the events of a call."""
    bare = bare_events(target, ctx)
    if bare is not None:
        return bare
    stream = getattr(target, "stream", None)
    source = EventStream.bare(stream(ctx)) if callable(stream) else _whole(target.generate, ctx)
    begun: AsyncIterator[Any] = source if hasattr(source, "__anext__") else iterate(source)
    return begun


async def later(target: Any, ctx: GenerateContext) -> AsyncIterator[Any]:
    """The same, asked with the first step: what a plain function does at once is part of the call too."""
    inner = asked(target, ctx)
    try:
        async for event in inner:
            yield event
    finally:
        await close(inner)


async def _whole(generate: Any, ctx: GenerateContext) -> AsyncIterator[Event]:
    """The events of a reply that comes whole."""
    result = generate(ctx)
    if hasattr(result, "__await__"):
        result = await result
    reply = to_step_result(result)
    for block in reply.native:
        if block is not reply.message:
            yield block
    if reply.reasoning:
        yield Reasoning(reply.reasoning)
    for event in reply.events:
        yield event
    yield Finish(reply.finish, reply.usage, reply.raw_reason, reply.error, reply.message, reply.notes)
