"""What an author's `stream_with_tools` yields, as events; each rule that it breaks, named."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from isthmus.adapters.views import from_chat
from isthmus.errors import ProtocolError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, Note, Reasoning, StepResult, Text
from isthmus.models.fold import close, iterate

_PAIRS = "('text', str), ('thinking', str) and last ('done', ChatResponse)"


async def chat_events(said: Any, dialect: str, *, ctx: GenerateContext, notes: list[Note]) -> AsyncIterator[Event]:
    """The events of a chat-face stream.

    Args:
        said: what `stream_with_tools` returned.
        dialect: the name under which the reply's native form is kept.
        ctx: the request.
        notes: what was changed on the way in; handed on with the finish.

    Raises:
        ProtocolError: a pair of the wrong shape or kind, anything after "done", no "done", a final text that is not the
            streamed one, a reply that breaks a rule.
    """
    source = iterate(said)
    texts: list[str] = []
    thought, done = False, False
    response: Any = None
    try:
        async for pair in source:
            kind, value = _pair(pair)
            if done:
                raise ProtocolError(
                    f"{kind!r} after 'done': stream_with_tools must end with exactly one 'done' (rule end)"
                )
            if kind == "done":
                done, response = True, value
            elif kind == "text":
                texts.append(value)
                yield Text(value)
            else:
                thought = True
                yield Reasoning(value)
    finally:
        await close(source)
    if not done:
        raise ProtocolError("stream_with_tools ended without ('done', ChatResponse) (rule end)")
    step = from_chat(response, dialect, tools=ctx.tools)
    _agree("".join(texts), response.text)
    for event in _rest(step, thought, notes):
        yield event


def _pair(pair: Any) -> tuple[str, Any]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ProtocolError(f"stream_with_tools must yield {_PAIRS}, not {pair!r:.80} (rule pair)")
    kind, value = pair
    if kind not in ("text", "thinking", "done"):
        raise ProtocolError(f"stream_with_tools yielded {kind!r}: it must yield {_PAIRS} (rule kind)")
    if kind != "done" and not isinstance(value, str):
        raise ProtocolError(f"({kind!r}, {value!r:.60}): the value must be a str (rule value)")
    return kind, value


def _agree(streamed: str, final: str | None) -> None:
    """White space around the text is no part of what was said; all else is."""
    if final is not None and final.strip() != streamed.strip():
        raise ProtocolError(
            f"the text of 'done' ({final!r:.60}) is not what was streamed ({streamed!r:.60}): stream all of it as "
            "('text', str), or leave it None (rule text)"
        )


def _rest(step: StepResult, thought: bool, notes: list[Note]) -> Iterator[Event]:
    if step.reasoning and not thought:
        yield Reasoning(step.reasoning)
    last = step.native[-1] if step.native and step.native[-1].event_type == "message" else None
    yield from step.native if last is None else step.native[:-1]
    yield from step.calls
    yield Finish(step.finish, step.usage, step.raw_reason, None, last, (*notes, *step.notes))
