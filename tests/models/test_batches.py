"""Events that came together: the same events in the same order, however they are read, and nothing that nobody saw."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from isthmus.chain import of
from isthmus.errors import ProtocolError, TierError
from isthmus.harness import DefaultAgent
from isthmus.models.batches import Batches
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, CallDelta, Event, Finish, Text
from isthmus.models.stream import EventStream
from support.turns import call, tasks

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))
PARTS: tuple[Any, ...] = ([Text("a")], [Text("b"), Text("c"), call("look", "1"), Finish("tool-calls")])


class Together:
    """A model whose events come in batches; an exception in their place is raised there."""

    id = "together"
    supports = frozenset({"tools"})

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.open = 0

    def stream(self, ctx: GenerateContext) -> Batches:
        """The next reply."""
        return Batches(self._batches())

    async def _batches(self) -> AsyncGenerator[Sequence[Event], None]:
        self.open += 1
        try:
            for part in self.parts:
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            self.open -= 1


async def test_read_one_by_one_or_together_they_are_the_same() -> None:
    """By iteration, by single steps, through a stream, through its batches, and through a chain."""
    flat = [event for part in PARTS for event in part]
    model = Together(*PARTS)
    assert [event async for event in model.stream(CTX)] == flat
    single = model.stream(CTX)
    assert [await anext(single), await anext(single)] == flat[:2]
    await single.aclose()
    await single.aclose()
    assert [event async for event in EventStream(model.stream(CTX))] == flat
    together = [list(batch) async for batch in EventStream(model.stream(CTX)).batches()]
    assert together == [[Text("a")], *([event] for event in PARTS[1])]
    texts = [[Text("a"), Text("b")], [Finish("stop")]]
    assert [list(batch) async for batch in EventStream(Together(*texts).stream(CTX)).batches()] == texts
    pieces = [CallDelta(0, "1", "look", "{"), CallDelta(0, "1", "look", "}")]
    previews = [pieces, [call("look", "1")], [Finish("tool-calls")]]
    assert [list(batch) async for batch in EventStream(Together(*previews).stream(CTX)).batches()] == previews
    assert [event async for event in of(model).stream(CTX)] == flat
    assert [event async for event in of(of(model)).stream(CTX)] == flat
    assert model.open == 0


async def test_a_stream_knows_only_what_was_read_of_a_batch() -> None:
    """Whoever stops within a batch has what he read; what is closed then has no result."""
    model = Together(*PARTS)
    stream = EventStream(model.stream(CTX))
    assert [await anext(stream), await anext(stream)] == [Text("a"), Text("b")]
    await stream.aclose()
    assert stream.partial(TierError("stopped")).text == "ab"
    with pytest.raises(ProtocolError, match="closed before its finish"):
        await stream.result()
    assert model.open == 0


async def test_what_came_before_a_failure_in_one_batch_is_shown_first() -> None:
    """A second call of one id breaks a rule: the text and the call before it pass, then the reply is broken."""
    twice = [Text("a"), Call("look", {}, "1"), Call("look", {}, "1"), Finish("tool-calls")]
    for stream in (EventStream(Together(twice).stream(CTX)), of(Together(twice)).stream(CTX)):
        seen: list[Event] = []
        try:
            async for event in stream:
                seen.append(event)
        except TierError:
            pass
        assert seen[:2] == [Text("a"), Call("look", {}, "1")]
    batches = EventStream(Together(twice).stream(CTX)).batches()
    assert [*await anext(batches), *await anext(batches)] == [Text("a"), Call("look", {}, "1")]
    with pytest.raises(ProtocolError):
        await anext(batches)


async def test_batches_of_a_stranger_are_read_as_single_events_are() -> None:
    """Dicts become events, what is no event breaks the reply, and a subclass of the form is of the form."""

    class Own(Batches):
        """A stranger's."""

    model = Together([{"type": "text", "text": "a"}], [{"type": "finish", "finish": "stop"}])
    for made in (Batches, Own):
        stream = EventStream(made(model.stream(CTX).batches))
        assert [event async for event in stream] == [Text("a"), Finish("stop")]
    for wrong in ({"type": "nope"}, 5):
        with pytest.raises(ProtocolError):
            assert [event async for event in EventStream(Together([Text("a"), wrong]).stream(CTX))]
    late = EventStream(Together([Finish("stop"), {"type": "text", "text": "a"}]).stream(CTX))
    with pytest.raises(ProtocolError, match="after the finish"):
        assert [event async for event in late]


async def test_after_content_a_chain_tries_nothing_again_whatever_came_in_the_batch() -> None:
    """The first text commits the try before anybody reads it."""
    model = Together([Text("a"), Text("b")], ConnectionResetError("gone"))
    result = await of(model).stream(CTX).result()
    assert (result.text, str(result.finish)) == ("ab", "error-post")


async def test_a_run_that_is_stopped_within_a_batch_keeps_what_was_shown() -> None:
    """The transcript holds the text up to where its reader stopped, and no call that nobody saw is run."""
    ran: list[int] = []

    async def look() -> None:
        """Look."""
        ran.append(1)

    agent = DefaultAgent(model=Together(*PARTS), tools=[look])
    stream = agent.run_stream("go")
    async for event in stream:
        if event == Text("b"):
            break
    await stream.aclose()
    assert stream.outcome is not None
    assert stream.outcome.text == "ab"
    assert stream.outcome.messages[1:] == ({"role": "assistant", "content": "ab"},)
    assert not ran
    await asyncio.sleep(0)
    assert not tasks()
