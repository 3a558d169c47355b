"""The only fold: whatever arrives amounts to one reply, or to a failure that says so."""

from __future__ import annotations

import asyncio
import json
from http.client import IncompleteRead
from typing import Any

import aiohttp
import pytest

from isthmus.errors import ProtocolError, TransientError, UnavailableError, UnclassifiedError, tier_error
from isthmus.models.events import (
    Call,
    CallDelta,
    Finish,
    Marker,
    Native,
    Note,
    NoteCode,
    Reasoning,
    Reset,
    StepResult,
    Text,
    Usage,
)
from isthmus.models.fold import Fold, classify, consume_stream
from isthmus.models.normalise import to_step_result


async def streamed(*events: Any) -> Any:
    """A stream of these; an exception among them is raised."""
    for event in events:
        if isinstance(event, BaseException):
            raise event
        yield event


async def test_seed_001_consume_stream_folds_text_and_forwards_it() -> None:
    """Deltas reach the callback as they come; the result joins adjacent texts and keeps usage as given."""
    said: list[str] = []
    usage = {"inputTokens": 24, "outputTokens": 8, "estimated": True}
    step = await consume_stream(
        streamed(
            {"type": "text", "text": "Answering: "},
            {"type": "text", "text": ""},
            {"type": "text", "text": "brief"},
            {"type": "finish", "finish": "stop", "usage": usage},
        ),
        said.append,
    )
    assert said == ["Answering: ", "brief"]
    assert step.events == (Text("Answering: brief"),)
    assert step.usage == Usage(input_tokens=24, output_tokens=8, estimated=True)


async def test_an_async_callback_is_awaited() -> None:
    """`on_text` may be a coroutine function."""
    said: list[str] = []

    async def hear(text: str) -> None:
        await asyncio.sleep(0)
        said.append(text)

    await consume_stream(streamed(Text("a"), Finish("stop")), hear)
    assert said == ["a"]


SIDE = (Reasoning("r"), CallDelta(0, "c", "t", "{"), Native("p", "block", 1), Marker("m", 1), Reset(2))


async def test_side_events_change_neither_text_calls_finish_nor_usage() -> None:
    """Leaving all side events out changes none of what counts."""
    content = [Text("a"), Call("t", {"x": 1}, "c"), Text("b")]
    end = Finish("tool-calls", Usage(input_tokens=1))
    plain = await consume_stream(streamed(*content, end))
    mixed = [item for event in content for item in (*SIDE, event)]
    full = await consume_stream(streamed(*mixed, *SIDE, end))
    assert (full.events, full.finish, full.usage) == (plain.events, plain.finish, plain.usage)


async def test_reset_forgets_the_previews() -> None:
    """What side events said before a Reset is no part of the reply."""
    step = await consume_stream(streamed(Reasoning("old"), Reset(2), Reasoning("new"), Text("a"), Finish("stop")))
    assert step.reasoning == "new"


@pytest.mark.parametrize("with_callback", [False, True])
async def test_a_failure_after_content_is_error_post_with_or_without_a_callback(with_callback: bool) -> None:
    """F05: text or a call is content; what arrived and the usage known are kept, with the classified error."""
    hear = (lambda text: None) if with_callback else None
    error = TransientError("cut", usage=Usage(output_tokens=3))
    for content in (Text("half"), Call("t", {}, "c")):
        step = await consume_stream(streamed(content, error), hear)
        assert step.finish == "error-post"
        assert step.events == (content,)
        assert step.usage == Usage(output_tokens=3)
        assert step.error is error


@pytest.mark.parametrize("side", [*SIDE, Text("")])
async def test_a_failure_before_content_is_raised(side: Any) -> None:
    """Side events and empty text are no content: the failure is raised, so a retry is safe."""
    with pytest.raises(TransientError):
        await consume_stream(streamed(side, TransientError("down")))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
async def test_interrupts_are_not_swallowed(stop: type[BaseException]) -> None:
    """Interrupts and exits pass, also after content."""
    with pytest.raises(stop):
        await consume_stream(streamed(Text("half"), stop()))


async def test_it_stops_at_the_first_finish_and_closes_the_stream() -> None:
    """Nothing behind the first finish is read; the author's generator is closed on every path."""
    closed = []

    async def author(*events: Any) -> Any:
        try:
            async for event in streamed(*events):
                yield event
        finally:
            closed.append(True)

    step = await consume_stream(author(Text("a"), Finish("stop"), Text("never")))
    assert step.text == "a"
    with pytest.raises(TransientError):
        await consume_stream(author(TransientError("down")))
    assert (await consume_stream(author(Text("a"), ValueError()))).finish == "error-post"
    assert len(closed) == 3


@pytest.mark.parametrize("source", [None, 3, "text", {"type": "text"}])
async def test_what_is_no_stream_is_protocol(source: Any) -> None:
    """A value that yields nothing is named by its type."""
    with pytest.raises(ProtocolError, match="must return an async iterator"):
        await consume_stream(source)


@pytest.mark.parametrize("bad", [Text(None), Text(0), Text(3), Finish("done")])  # type: ignore[arg-type]
async def test_a_struct_with_a_wrong_field_is_protocol(bad: Any) -> None:
    """Structs are made without checks; the fold checks what counts."""
    with pytest.raises(ProtocolError):
        await consume_stream(streamed(bad, Finish("stop")))


async def test_any_whole_call_runs_whatever_the_finish() -> None:
    """F12: a reply with whole calls ends "tool-calls", with the raw reason kept and a note."""
    step = await consume_stream(streamed(Call("t", {}, "c"), Finish("stop", raw_reason="stop")))
    assert (step.finish, step.raw_reason) == ("tool-calls", "stop")
    assert step.notes[0].code == NoteCode.FINISH_CHANGED
    with pytest.raises(ProtocolError, match="without a call"):
        await consume_stream(streamed(Finish("tool-calls")))


async def test_the_fold_of_a_stream_is_the_whole_reply() -> None:
    """F16: the same content streamed and whole gives equal results, ids and notes included."""
    content = [Text("a"), Text("b"), Call("t", {"x": 1}), Call("t", {"x": 1}), Text(""), Text("c")]
    whole = to_step_result(StepResult(events=tuple(content), finish="stop"))
    assert await consume_stream(streamed(*content, Finish("stop"))) == whole
    assert whole.events[0] == Text("ab")
    assert len({call.call_id for call in whole.calls}) == 2


async def test_has_content_knows_texts_and_calls() -> None:
    """A non-empty text or a call is content."""
    fold = Fold()
    for event in (Reasoning("r"), Text("")):
        fold.add(event)
    assert not fold.has_content
    fold.add(Text("a"))
    assert fold.has_content


def test_failures_are_classified_by_their_cause() -> None:
    """A TierError among the causes stands; refused is unavailable; time-outs and lost connections are transient."""
    inner = tier_error("credentials", "no")
    wrapped = RuntimeError("wrapped")
    wrapped.__cause__ = inner
    assert classify(wrapped) is inner
    assert isinstance(classify(ConnectionRefusedError()), UnavailableError)
    assert isinstance(classify(TimeoutError()), TransientError)
    assert isinstance(classify(ConnectionResetError("reset")), TransientError)
    odd = classify(ValueError("odd"))
    assert isinstance(odd, UnclassifiedError)
    assert "ValueError: odd" in str(odd)


def _named(module: str, name: str) -> Exception:
    """An exception as a library that is not here calls it, and one that derives from it."""
    kind = type(name, (Exception,), {"__module__": module})
    made: Exception = type("Derived", (kind,), {})("gone")
    return made


@pytest.mark.parametrize(
    "error",
    [
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError("cut"),
        IncompleteRead(b"half"),
        asyncio.IncompleteReadError(b"half", 9),
        _named("httpx", "RemoteProtocolError"),
        _named("httpx", "NetworkError"),
        _named("httpx2", "TimeoutException"),
        _named("requests.exceptions", "ChunkedEncodingError"),
    ],
    ids=str,
)
def test_a_connection_lost_in_anybodys_words_is_transient(error: Exception) -> None:
    """F09: an author may use any HTTP library, and leave its errors as they are; wrapped ones too."""
    wrapped = RuntimeError("the gateway")
    wrapped.__cause__ = error
    for each in (error, wrapped):
        assert isinstance(classify(each), TransientError)
    refused = aiohttp.ClientConnectionError("no")
    refused.__cause__ = ConnectionRefusedError()
    assert isinstance(classify(refused), UnavailableError)
    assert isinstance(classify(aiohttp.InvalidURL("x")), UnclassifiedError)


@pytest.mark.parametrize("wrong", [ValueError("the listener"), TransientError("the listener")])
async def test_a_raising_callback_is_no_failure_of_the_stream(wrong: Exception) -> None:
    """F01: what `on_text` raises passes as it is and closes the stream; it is never a reply cut by a failure."""
    closed: list[str] = []

    async def author() -> Any:
        try:
            yield Text("half")
            yield Finish("stop")
        finally:
            closed.append("closed")

    def hear(text: str) -> None:
        raise wrong

    with pytest.raises(type(wrong)) as caught:
        await consume_stream(author(), hear)
    assert (caught.value, closed) == (wrong, ["closed"])


BAD: dict[str, Any] = {
    "usage-negative": Finish("stop", Usage(output_tokens=-1)),
    "usage-fraction": Finish("stop", Usage(output_tokens=1.5)),  # type: ignore[arg-type]
    "usage-unknown": Finish("stop", {"tokens": 1}),  # type: ignore[arg-type]
    "native": Finish("stop", native=3),  # type: ignore[arg-type]
    "notes": Finish("stop", notes=[{"cod": "x"}]),  # type: ignore[arg-type]
    "finish": Finish(["stop"]),  # type: ignore[arg-type]
    "tool": Call(None, {}, "c"),  # type: ignore[arg-type]
    "call-id": Call("t", {}, 7),  # type: ignore[arg-type]
    "input": Call("t", {"a": object()}, "c"),
    "reasoning": Reasoning(None),  # type: ignore[arg-type]
    "event": {"type": ["text"]},
}


@pytest.mark.parametrize("name", BAD)
async def test_a_struct_is_judged_like_a_dict(name: str) -> None:
    """A struct that an author filled with what its fields cannot hold is a breach, named at once, never an answer."""
    with pytest.raises(ProtocolError):
        await consume_stream([BAD[name], Finish("stop")])


async def test_a_struct_filled_in_a_looser_way_is_put_right() -> None:
    """Arguments as text in `input` or alone, usage, native and notes as dicts: all become what a decoder would make."""
    end: Any = Finish(
        "tool-calls",
        {"inputTokens": 3},  # type: ignore[arg-type]
        native={"provider": "p", "event_type": "message", "payload": 1},  # type: ignore[arg-type]
        notes=[{"code": "x"}],  # type: ignore[arg-type]
    )
    step = await consume_stream([Call("t", '{"a":1}', "1"), Call("t", None, "2", '{"a":1}'), end])  # type: ignore[arg-type]
    assert [(call.input, call.arguments, call.problem) for call in step.calls] == [({"a": 1}, '{"a":1}', None)] * 2
    assert (step.usage, step.message, step.notes) == (Usage(input_tokens=3), Native("p", "message", 1), (Note("x"),))


@pytest.mark.parametrize("given", [{1: 2}, {"a": (1, {2: 3})}, {"a": {5}}, {"a": float("nan")}])
async def test_an_input_is_what_its_json_says(given: Any) -> None:
    """F15: an input with keys or values that JSON lacks is the same in `input` as in the text that is sent on."""
    for event in (Call("t", given, "1"), {"type": "call", "tool": "t", "input": given}):
        (call,) = (await consume_stream([event, Finish("tool-calls")])).calls
        assert call.input == json.loads(call.arguments or "null")


async def test_an_error_post_without_content_is_the_failure_itself() -> None:
    """F05: nothing was said, so an adapter's own "error-post" is a failure before content, which may be tried again."""
    error = TransientError("cut")
    with pytest.raises(TransientError) as caught:
        await consume_stream([Finish("error-post", error=error)])
    assert caught.value is error
    with pytest.raises(ProtocolError, match="error-post"):
        await consume_stream([Finish("error-post")])


def test_keys_in_foreign_errors_are_hidden() -> None:
    """F29: a key in the words of an exception does not reach the classified error; one that cannot speak is named."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    key = "sk-CANARY0123456789abcdefghij"
    for error in (ValueError(key), ConnectionResetError(key), ConnectionRefusedError(key)):
        assert "CANARY" not in str(classify(error))
    assert str(classify(Mute())) == "Mute"


async def test_a_cancellation_that_nobody_asked_for_is_a_failure() -> None:
    """F01: work of an author's that was cancelled fails the call, and does not pass for the caller's own end."""
    with pytest.raises(UnclassifiedError, match="cancelled"):
        await consume_stream(streamed(asyncio.CancelledError()))
    step = await consume_stream(streamed(Text("half"), asyncio.CancelledError()))
    assert (step.finish, step.text) == ("error-post", "half")


async def test_a_cancellation_of_the_caller_stays_one() -> None:
    """F10: a caller that is cancelled while the stream is read is cancelled."""

    async def endless() -> Any:
        yield Text("a")
        await asyncio.Event().wait()

    task = asyncio.create_task(consume_stream(endless()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_content_of_a_finish_is_what_is_kept() -> None:
    """Where a chain took markers out of what it handed on, the finish has the content as written; dicts may not."""
    end = Finish("stop", content=(Text("a [[b]] c"),))
    result = await consume_stream([Text("a "), Marker("m", "b", "[[b]]"), Text(" c"), end])
    assert result.events == (Text("a [[b]] c"),)
    assert await consume_stream([Text("a "), Text(" c"), end]) == result
    with pytest.raises(ProtocolError, match="content"):
        await consume_stream([{"type": "finish", "finish": "stop", "content": []}])
