"""The stream that callers hold: one finish, closed on every path, one watchdog, a span that never leaks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from isthmus.errors import ProtocolError, TransientError, UnclassifiedError
from isthmus.models.contract import Timeouts
from isthmus.models.events import Call, Finish, NoteCode, Reasoning, Text
from isthmus.models.stream import EventStream

FOREVER = Timeouts(first_content=None, idle=None)


class Source:
    """An author's generator that tells when it is closed."""

    def __init__(self, *events: Any, hang: bool = False, endless: bool = False) -> None:
        self.events, self.hang, self.endless = events, hang, endless
        self.closed = 0
        self.waiting = asyncio.Event()

    async def open(self) -> Any:
        """The generator."""
        try:
            for event in self.events:
                if isinstance(event, Exception):
                    raise event
                yield event
            while self.endless:
                await asyncio.sleep(0)
                yield Text("x")
            if self.hang:
                self.waiting.set()
                await asyncio.get_running_loop().create_future()
        finally:
            self.closed += 1


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Nothing here may depend on the garbage collector."""
    gc.disable()
    yield
    gc.enable()


def alone() -> bool:
    """Whether this task is the only one."""
    return asyncio.all_tasks() == {asyncio.current_task()}


async def settled() -> None:
    """Let the loop run what a dropped generator scheduled."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_events_pass_and_the_result_is_their_fold() -> None:
    """Dicts become structs, and what was read already counts in `result()`."""
    source = Source({"type": "text", "text": "a"}, Reasoning("r"), Text("b"), Finish("stop"))
    stream = EventStream(source.open())
    assert await anext(stream) == Text("a")
    step = await stream.result()
    assert (step.text, step.reasoning, step.finish) == ("ab", "r", "stop")
    assert await stream.result() == step
    assert source.closed == 1


@pytest.mark.parametrize("late", [Text("x"), Reasoning("x"), Finish("stop")])
async def test_anything_after_the_finish_is_protocol(late: Any) -> None:
    """One Finish, nothing after: text, side event or another finish."""
    stream = EventStream(Source(Text("a"), Finish("stop"), late).open())
    seen = []

    async def read() -> None:
        async for event in stream:
            seen.append(event)

    with pytest.raises(ProtocolError, match="after the finish"):
        await read()
    assert seen == [Text("a"), Finish("stop")]


async def test_a_stream_without_a_finish_is_protocol_and_keeps_its_part() -> None:
    """F01: no finish is an error before content and "error-post" after it, never a short success."""
    with pytest.raises(ProtocolError, match="without a finish"):
        await EventStream(Source().open()).result()
    step = await EventStream(Source(Text("half")).open()).result()
    assert (step.finish, step.text) == ("error-post", "half")
    assert isinstance(step.error, ProtocolError)


async def test_a_failure_passes_unchanged_to_the_reader_and_classified_to_result() -> None:
    """Iterating raises what the author raised; `result()` gives it classified, with its cause."""
    boom = ValueError("boom")
    with pytest.raises(ValueError, match="boom"):
        await anext(EventStream(Source(boom).open()))
    with pytest.raises(UnclassifiedError) as caught:
        await EventStream(Source(boom).open()).result()
    assert caught.value.__cause__ is boom
    root = OSError("root")
    error = TransientError("down")
    error.__cause__ = root
    with pytest.raises(TransientError) as again:
        await EventStream(Source(error).open()).result()
    assert again.value is error
    assert again.value.__cause__ is root


async def test_leaving_the_block_closes_the_author() -> None:
    """F10: a break inside the block closes the generator in the same task."""
    source = Source(Text("a"), Text("b"), endless=True)
    async with EventStream(source.open()) as stream:
        async for _ in stream:
            break
    assert source.closed == 1
    assert alone()


async def test_a_break_without_a_variable_closes_the_author() -> None:
    """F10: dropping the last reference closes the generator soon, with no task left."""
    source = Source(endless=True)
    async for _ in EventStream(source.open()):
        break
    await settled()
    assert source.closed == 1
    assert alone()


async def test_dropping_a_stream_that_was_never_begun_is_silent() -> None:
    """Opening a stream and forgetting it runs nothing and warns of nothing."""
    source = Source(Text("a"))
    EventStream(source.open())
    await settled()
    assert source.closed == 0


async def test_cancelling_the_reader_closes_the_author() -> None:
    """F10: a cancelled reader ends with CancelledError and the generator is closed before that."""
    source = Source(Text("a"), hang=True)
    stream = EventStream(source.open())
    task = asyncio.create_task(stream.result())
    await source.waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert source.closed == 1


@pytest.mark.parametrize("begun", [False, True])
async def test_aclose_is_idempotent(begun: bool) -> None:
    """Closing twice, begun or not, does nothing more; a closed stream has no more events."""
    source = Source(Text("a"), endless=True)
    stream = EventStream(source.open())
    if begun:
        await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert source.closed == int(begun)
    assert [event async for event in stream] == []
    with pytest.raises(ProtocolError, match="closed before its finish"):
        await stream.result()


async def test_aclose_from_another_task_interrupts_a_waiting_reader() -> None:
    """F10: a reader that waits on a silent model is let go, uncancelled, and the author is closed."""
    source = Source(Text("a"), hang=True)
    stream = EventStream(source.open(), FOREVER)
    read: list[Any] = []

    async def reader() -> int:
        async for event in stream:
            read.append(event)
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    task = asyncio.create_task(reader())
    await source.waiting.wait()
    await stream.aclose()
    assert source.closed == 1
    assert await task == 0
    assert read == [Text("a")]


async def test_aclose_from_another_task_leaves_a_busy_reader_alone() -> None:
    """A reader that is busy with an event isn't interrupted: its loop just ends."""
    source = Source(endless=True)
    stream = EventStream(source.open(), FOREVER)
    busy, go = asyncio.Event(), asyncio.Event()

    async def reader() -> str:
        async for _ in stream:
            busy.set()
            await go.wait()
        return "ended"

    task = asyncio.create_task(reader())
    await busy.wait()
    await stream.aclose()
    assert source.closed == 1
    go.set()
    assert await task == "ended"


async def test_a_second_cancellation_is_not_swallowed_by_a_close() -> None:
    """A reader that is cancelled for its own sake while another task closes the stream stays cancelled."""
    source = Source(hang=True)
    stream = EventStream(source.open(), FOREVER)
    task = asyncio.create_task(stream.result())
    await source.waiting.wait()
    closing = asyncio.create_task(stream.aclose())
    await asyncio.sleep(0)
    task.cancel()
    await closing
    with pytest.raises((asyncio.CancelledError, ProtocolError)):
        await task
    assert source.closed == 1


async def test_a_silent_start_is_a_time_out() -> None:
    """F24: no first event within its limit is a TransientError that says which limit."""
    source = Source(hang=True)
    with pytest.raises(TransientError, match=r"time-out: first content: no event for 0\.02 s"):
        await EventStream(source.open(), Timeouts(first_content=0.02, idle=None)).result()
    assert source.closed == 1
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_silence_between_events_is_a_time_out() -> None:
    """F24: silence after content folds to "error-post" with what had arrived."""
    source = Source(Text("half"), hang=True)
    step = await EventStream(source.open(), Timeouts(first_content=None, idle=0.02)).result()
    assert (step.finish, step.text) == ("error-post", "half")
    assert isinstance(step.error, TransientError)
    assert "idle" in str(step.error)


async def test_the_total_limit_ends_a_talkative_stream() -> None:
    """`total` counts from the first read, however many events come."""
    source = Source(endless=True)
    step = await EventStream(source.open(), Timeouts(first_content=None, idle=None, total=0.03)).result()
    assert "total" in str(step.error)
    assert source.closed == 1


async def test_a_slow_consumer_never_runs_into_the_watchdog() -> None:
    """Idle time counts only while the model is awaited."""
    source = Source(Text("a"), Text("b"), Finish("stop"))
    seen = []
    async for event in EventStream(source.open(), Timeouts(first_content=0.01, idle=0.01)):
        await asyncio.sleep(0.03)
        seen.append(event)
    assert len(seen) == 3


async def test_nested_streams_that_expire_together_leave_no_cancellation() -> None:
    """An author who reads another stream inside: both watchdogs fire, and the task is not left cancelled."""
    source = Source(hang=True)
    times = Timeouts(first_content=0.02, idle=None)

    async def outer() -> Any:
        async for event in EventStream(source.open(), times):
            yield event

    with pytest.raises(TransientError):
        await EventStream(outer(), times).result()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    assert source.closed == 1


async def test_each_event_may_be_read_by_another_task() -> None:
    """The watchdog interrupts the task that waits, also where every read is a task of its own."""
    source = Source(Text("a"), Text("b"), hang=True)
    stream = EventStream(source.open(), Timeouts(first_content=None, idle=0.02))

    async def step() -> Any:
        return await anext(stream)

    assert await asyncio.create_task(step()) == Text("a")
    assert await asyncio.create_task(step()) == Text("b")
    with pytest.raises(TransientError, match="idle"):
        await asyncio.create_task(step())


async def test_an_expired_stream_inside_an_outer_timeout_is_told_apart() -> None:
    """An outer `asyncio.timeout` keeps its own TimeoutError; the watchdog's is a TransientError."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await EventStream(Source(hang=True).open(), FOREVER).result()
    async with asyncio.timeout(5):
        with pytest.raises(TransientError):
            await EventStream(Source(hang=True).open(), Timeouts(first_content=0.01, idle=None)).result()


async def test_the_watchdog_leaves_no_timer() -> None:
    """After a stream has ended its timer is gone."""
    stream = EventStream(Source(Text("a"), Finish("stop")).open(), Timeouts(idle=3600, first_content=3600))
    await stream.result()
    loop: Any = asyncio.get_running_loop()
    assert [handle for handle in loop._scheduled if not handle.cancelled()] == []


async def test_bare_hands_on_the_authors_iterator() -> None:
    """Levels unwrap a stream that nobody has begun, and leave any other as it is."""
    generator = Source(Text("a"), Finish("stop")).open()
    stream = EventStream(generator)
    assert EventStream.bare(stream) is generator
    begun = EventStream(Source(Text("a"), Finish("stop")).open())
    await anext(begun)
    assert EventStream.bare(begun) is begun
    assert EventStream.bare(3) == 3
    await begun.aclose()
    await stream.aclose()


async def test_text_is_the_text_alone() -> None:
    """`text` gives the pieces as they arrive and nothing else."""
    stream = EventStream(Source(Text("a"), Reasoning("r"), Text(""), Text("b"), Finish("stop")).open())
    assert [piece async for piece in stream.text] == ["a", "b"]


async def _one(stream: EventStream) -> Any:
    return await anext(stream)


async def test_calls_get_ids_and_repeated_ids_are_protocol() -> None:
    """A call without an id gets one, noted; a repeated id is refused."""
    events = [event async for event in EventStream(Source(Call("t", {}), Finish("tool-calls")).open())]
    assert events[0].call_id.startswith("call_")  # type: ignore[union-attr]
    assert events[1].notes[0].code == NoteCode.CALL_ID_MADE  # type: ignore[union-attr]
    with pytest.raises(ProtocolError, match="two calls with the id"):
        async for _ in EventStream(Source(Call("t", {}, "c"), Call("t", {}, "c")).open()):
            pass


async def test_a_close_that_fails_never_replaces_the_outcome() -> None:
    """An author whose clean-up raises doesn't change what the reader gets."""

    class Bad:
        def __init__(self) -> None:
            self.left: list[Any] = [Text("a"), Finish("stop")]

        def __aiter__(self) -> Bad:
            return self

        async def __anext__(self) -> Any:
            if self.left:
                return self.left.pop(0)
            raise StopAsyncIteration

        async def aclose(self) -> None:
            raise RuntimeError("clean-up")

    assert (await EventStream(Bad()).result()).text == "a"


async def test_two_readers_of_one_stream_do_not_break_it() -> None:
    """A second reader while the first waits is refused by Python, and the first goes on."""
    source = Source(hang=True)
    stream = EventStream(source.open(), FOREVER)
    first = asyncio.create_task(_one(stream))
    await source.waiting.wait()
    with pytest.raises(RuntimeError):
        await anext(stream)
    first.cancel()
    with suppress(asyncio.CancelledError):
        await first
    assert source.closed == 1


async def test_a_failure_is_told_again() -> None:
    """F01: `result` after a failure, its own or a reader's, says the same failure with the same part, each time."""
    cut = TransientError("cut")
    for first in ("result", "read"):
        stream = EventStream(Source(Text("half"), cut).open())
        with suppress(TransientError):
            if first == "result":
                await stream.result()
            else:
                _ = [event async for event in stream]
        for _ in range(2):
            step = await stream.result()
            assert (step.finish, step.text, step.error) == ("error-post", "half", cut)
    early = EventStream(Source(cut).open())
    for _ in range(2):
        with pytest.raises(TransientError, match="cut"):
            await early.result()


async def test_a_time_out_is_told_again() -> None:
    """F24: a stream that expired expires for everybody who asks."""

    async def silent() -> Any:
        yield Text("half")
        await asyncio.Event().wait()

    stream = EventStream(silent(), Timeouts(idle=0.01))
    for _ in range(2):
        step = await stream.result()
        assert step.error is not None
        assert "idle" in step.error.message


async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    """F01: an author whose own work was cancelled fails his stream; the reader's task is not cancelled."""

    async def author() -> Any:
        yield Text("half")
        raise asyncio.CancelledError

    step = await EventStream(author()).result()
    assert (step.finish, step.text, type(step.error)) == ("error-post", "half", UnclassifiedError)


async def test_an_error_object_that_is_raised_again_carries_no_old_part() -> None:
    """F01: an author who raises one and the same object each time never gets another call's part for an answer."""
    cut = TransientError("cut")
    assert (await EventStream(Source(Text("half"), cut).open()).result()).text == "half"
    with pytest.raises(TransientError):
        await EventStream(Source(cut).open()).result()
    assert (await EventStream(Source(Text("more"), cut).open()).result()).text == "more"


def test_a_stream_whose_loop_is_gone_says_so() -> None:
    """F10: a reader in a second loop is told that the stream was closed with the first; it is no short reply."""
    stream = EventStream(Source(Text("a"), Text("b"), Finish("stop")).open())

    async def first() -> Any:
        return await anext(stream)

    async def rest() -> list[Any]:
        return [event async for event in stream]

    assert asyncio.run(first()) == Text("a")
    with pytest.raises(ProtocolError, match="closed before its finish"):
        asyncio.run(rest())


async def test_reading_on_after_a_failure_raises_it_again() -> None:
    """F01: a second loop over a stream that failed is not an empty reply."""
    stream = EventStream(Source(Text("a"), TransientError("cut")).open())
    for _ in range(2):
        with pytest.raises(TransientError, match="cut"):
            _ = [event async for event in stream]


@pytest.mark.parametrize("wrong", [5, True, b"bytes", ["a"], None, 0])
async def test_a_text_of_another_type_is_protocol_before_the_reader_sees_it(wrong: Any) -> None:
    """A text event whose text is no string fails where it stands, and nothing of it is handed on."""
    seen: list[Any] = []

    async def read() -> None:
        async for event in EventStream(Source(Text("a"), Text(wrong), Finish("stop")).open()):
            seen.append(event)

    with pytest.raises(ProtocolError, match=f"'text' must be str, not {type(wrong).__name__}"):
        await read()
    assert seen == [Text("a")]


async def test_a_text_may_be_empty_or_a_kind_of_string() -> None:
    """An empty text is no content; a subclass of `str` is text."""

    class Word(str):
        __slots__ = ()

    result = await EventStream(Source(Text(""), Text(Word("a")), Text(""), Finish("stop")).open()).result()
    assert result.events == (Text("a"),)
    with pytest.raises(TransientError):
        await EventStream(Source(Text(""), TransientError("cut")).open()).result()
