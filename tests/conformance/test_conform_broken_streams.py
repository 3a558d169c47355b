"""Adapters whose streams are wrong in one thing each are caught by the law that they break, and by no other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from isthmus.adapters.faces import source_of
from isthmus.conformance import conform
from isthmus.models.events import Call, CallDelta, Finish, Marker, Reset, Text
from isthmus.models.responses import ModelStreamEvent
from support.twins import TOOLS, Chat, Client, Modelled, Step


def edited(twin: type, face: str, edit: Any) -> type:
    """The twin with its stream's items passed through an edit: a function from the list of items to another one."""

    async def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
        source = getattr(twin, face)
        raw = getattr(source, "__wrapped__", source)(self, *args, **kwargs)
        for item in edit([item async for item in raw]):
            await asyncio.sleep(0)
            yield item

    source = source_of(twin)
    assert source is not None
    # Written again, so that what the class writes is all that its twin does.
    again = {**source.written, **({"stream_chat": vars(twin)["stream_chat"]} if twin is Chat else {})}
    return type(twin.__name__, (twin,), {**again, face: changed})


def chat(edit: Any) -> type:
    """A chat-face adapter with an edited stream."""
    return edited(Chat, "stream_with_tools", edit)


def step(edit: Any) -> type:
    """A step-face adapter with an edited stream."""
    return edited(Step, "stream", edit)


def model(edit: Any) -> type:
    """A model-face adapter with an edited stream."""
    return edited(Modelled, "stream_response", edit)


def truncated(edit: Any) -> type:
    """A step-face adapter with an edited stream, whose gateway always reaches the limit."""

    class Truncated(step(edit)):  # type: ignore[misc]
        def __init__(self, **settings: Any) -> None:
            super().__init__(**{"client": Client("truncated"), **settings})

    return Truncated


def done(items: list[Any], **changes: Any) -> list[Any]:
    """The items of a chat stream with other fields in the last reply."""
    return [*items[:-1], ("done", replace(items[-1][1], **changes))]


def calls_as(events: list[Any], change: Any) -> list[Any]:
    """The events of a step stream with each call changed."""
    return [change(event) if isinstance(event, Call) else event for event in events]


DELTA = ModelStreamEvent(kind="text_delta", text="more")

BROKEN = {
    "chat: no done": (chat(lambda i: i[:-1]), "finish-present"),
    "chat: done twice": (chat(lambda i: [*i, i[-1]]), "finish-once"),
    "chat: text after done": (chat(lambda i: [*i, ("text", "more")]), "nothing-after-finish"),
    "chat: done first": (chat(lambda i: [i[-1], *i[:-1]]), "nothing-after-finish"),
    "chat: bare strings": (chat(lambda i: [i[0][1], *i[1:]]), "event-shape"),
    "chat: text is None": (chat(lambda i: [("text", None), *i]), "event-shape"),
    "chat: an unknown kind": (chat(lambda i: [("delta", "x"), *i]), "event-shape"),
    "chat: triples": (chat(lambda i: [(*i[0], 0), *i[1:]]), "event-shape"),
    "chat: the last text is another": (chat(lambda i: done(i, text="Something else.")), "text-agrees"),
    "chat: the last text alone": (chat(lambda i: i[-1:]), "text-agrees"),
    "chat: a piece is lost": (chat(lambda i: i[1:]), "text-agrees"),
    "chat: a piece twice": (chat(lambda i: [i[0], *i]), "text-agrees"),
    "chat: calls lost when streamed": (chat(lambda i: done(i, tool_calls=[], stop_reason="end_turn")), "same-calls"),
    "chat: one call lost when streamed": (chat(lambda i: done(i, tool_calls=i[-1][1].tool_calls[:1])), "same-calls"),
    "chat: done is a string": (chat(lambda i: [*i[:-1], ("done", "Zürich is sunny")]), "reply-shape"),
    "chat: done is None": (chat(lambda i: [*i[:-1], ("done", None)]), "reply-shape"),
    "chat: bytes split in a character": (
        chat(lambda i: [("text", "Z\ufffd"), ("text", "\ufffdrich "), *i[1:]]),
        "characters-whole",
    ),
    "chat: half a character": (chat(lambda i: [("text", "Z\udcc3"), *i[1:]]), "characters-whole"),
    "chat: nothing at all": (chat(lambda i: []), "finish-present"),
    "chat: text alone is another": (edited(Chat, "stream_chat", lambda i: ["Something else."]), "same-text"),
    "chat: text alone as pairs": (edited(Chat, "stream_chat", lambda i: [("text", t) for t in i]), "event-shape"),
    "step: no finish": (step(lambda i: i[:-1]), "finish-present"),
    "step: two finishes": (step(lambda i: [*i, i[-1]]), "finish-once"),
    "step: text after the finish": (step(lambda i: [*i, Text("more")]), "nothing-after-finish"),
    "step: an unknown type": (step(lambda i: [{"type": "token", "text": "x"}, *i]), "event-shape"),
    "step: an unknown field": (step(lambda i: [{"type": "text", "txt": "x"}, *i]), "event-shape"),
    "step: text is None": (step(lambda i: [Text(None), *i]), "event-shape"),  # type: ignore[arg-type]
    "step: a bare string": (step(lambda i: ["x", *i]), "event-shape"),
    "step: an unknown finish": (step(lambda i: [*i[:-1], {"type": "finish", "finish": "tool_use"}]), "event-shape"),
    "step: error-post": (step(lambda i: [*i[:-1], Finish("error-post")]), "event-shape"),
    "step: tool-calls without a call": (
        step(lambda i: [event for event in i if not isinstance(event, Call)]),
        "calls-stop",
    ),
    "step: a marker": (step(lambda i: [Marker("x"), *i]), "side-events"),
    "step: a reset": (step(lambda i: [Reset(1), *i]), "side-events"),
    "step: previews of something else": (
        step(lambda i: [CallDelta(0, "c1", "look_up", "{}") if isinstance(e, CallDelta) else e for e in i]),
        "side-events",
    ),
    "step: text lost when streamed": (step(lambda i: i[1:]), "same-text"),
    "step: calls lost when streamed": (
        step(lambda i: [*[e for e in i if not isinstance(e, Call | CallDelta)][:-1], Finish("stop")]),
        "same-calls",
    ),
    "step: truncation lost when streamed": (truncated(lambda i: [*i[:-1], Finish("stop")]), "same-finish"),
    "model: no completed": (model(lambda i: i[:-1]), "finish-present"),
    "model: completed twice": (model(lambda i: [*i, i[-1]]), "finish-once"),
    "model: text after completed": (model(lambda i: [*i, DELTA]), "nothing-after-finish"),
    "model: the last text is another": (model(lambda i: [DELTA, *i]), "text-agrees"),
    "model: dicts of another kind": (model(lambda i: [{"kind": "token"}, *i]), "event-shape"),
    "model: completed without a response": (
        model(lambda i: [*i[:-1], ModelStreamEvent(kind="completed")]),
        "reply-shape",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_stream_is_caught_by_its_law_alone(name: str) -> None:
    """F01, F16: one change in a right stream gives errors of the law that it breaks, and of no other."""
    kind, law = BROKEN[name]
    report = asyncio.run(conform(kind, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {law}, report.table()
    assert all(finding.message and finding.fix for finding in report.findings)


@pytest.mark.parametrize("kind", [chat(list), step(list), model(list)])
def test_an_edit_that_changes_nothing_is_right(kind: type) -> None:
    """The frame of these tests breaks no law by itself."""
    report = asyncio.run(conform(kind, tools=TOOLS))
    assert not report.findings, report.table()


def slow(items: int) -> type:
    """A twin that waits for the whole reply, and then yields it in so many items."""

    class Late(Client):
        async def stream(self, **request: Any) -> Any:
            reply = await self.send(**request)
            await asyncio.sleep(0.2)
            for piece in reply["pieces"] if items > 1 else ["".join(reply["pieces"])]:
                yield piece
            yield reply

    class Slow(Chat):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings, client=Late())

    return Slow


@pytest.mark.parametrize("items", [1, 3])
def test_a_stream_that_comes_late_is_warned_of(items: int) -> None:
    """A reply that comes in one moment at the end is a warning: a gateway may be unable to stream."""
    report = asyncio.run(conform(slow(items), tools=TOOLS))
    assert report.ok, report.table()
    assert "streams-live" in {finding.law for finding in report.findings}, report.table()
