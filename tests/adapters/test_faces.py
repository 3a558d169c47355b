"""The rule of the faces: whatever of the six a class wrote, all six say it, and `super()` never comes back round."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.chain import define_chain
from isthmus.errors import AdapterError, ProtocolError, TierError, TransientError, UnclassifiedError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, CallDelta, Finish, Native, Reasoning, StepResult, Text
from isthmus.models.fold import consume_stream
from isthmus.models.model import Model
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.stream import EventStream
from support.face_kit import CTX, FACES, HELLO, TOOL_DICTS, WRITERS, Chats, Generates, Streams, StreamsWithTools, heard

SAID = ("one two", [("c1", "look", {"q": "x"})], "tool-calls", (5, 7))
PREFIX = {"chat": "chat", "stream_with_tools": "chat", "stream": "step", "generate": "step"}


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("written", FACES)
async def test_each_face_says_what_each_method_wrote(written: str, face: str) -> None:
    """Six adapters that wrote one method each say the same on all six faces."""
    assert await heard(WRITERS[written](), face) == SAID


def louder(written: str, base: type) -> type:
    """A subclass that writes one method, asks `super()` and changes the text."""

    class Loud(base):  # type: ignore[misc,valid-type]
        if written == "stream":

            async def stream(self, ctx: Any) -> Any:
                async for event in super().stream(ctx):
                    yield Text(event.text.upper()) if isinstance(event, Text) else event

        elif written == "generate":

            async def generate(self, ctx: Any) -> Any:
                step = await super().generate(ctx)
                events = [Text(e.text.upper()) if isinstance(e, Text) else e for e in step.events]
                return {"events": events, "finish": step.finish, "usage": step.usage}

        elif written == "stream_with_tools":

            async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
                async for kind, value in super().stream_with_tools(messages, tools):
                    if kind == "done":
                        value.text = value.text and value.text.upper()
                    yield kind, value.upper() if kind == "text" else value

        elif written == "chat":

            async def chat(self, messages: Any, tools: Any) -> Any:
                reply = await super().chat(messages, tools)
                reply.text = reply.text.upper()
                return reply

        elif written == "stream_response":

            async def stream_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
                async for event in super().stream_response(messages, *args, **kwargs):
                    if event.kind == "text_delta":
                        event.text = event.text.upper()
                    if event.kind == "completed":
                        message = event.response.choices[0].message
                        message.content = message.content.upper()
                    yield event

        else:

            async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
                reply = await super().get_response(messages, *args, **kwargs)
                reply.choices[0].message.content = reply.choices[0].message.content.upper()
                return reply

    return Loud


@pytest.mark.parametrize("base", FACES)
@pytest.mark.parametrize("written", FACES)
async def test_a_subclass_that_writes_one_method_is_heard_on_every_face(written: str, base: str) -> None:
    """A method that asks `super()` for its own face never comes back round, over a parent that wrote any method."""
    adapter = louder(written, WRITERS[base])()
    for face in FACES:
        assert await heard(adapter, face) == ("ONE TWO", *SAID[1:])


async def test_three_levels_of_super_each_count_once() -> None:
    """Each level's method runs exactly once a call, whichever face is asked."""
    ran: list[str] = []

    class Middle(Chats):
        async def generate(self, ctx: Any) -> Any:
            ran.append("middle")
            return await super().generate(ctx)

    class Top(Middle):
        async def chat(self, messages: Any, tools: Any) -> Any:
            ran.append("top")
            return await super().chat(messages, tools)

    for face in FACES:
        ran.clear()
        assert await heard(Top(), face) == SAID
        assert ran == ["top", "middle"]


async def test_a_plain_mixin_is_heard_on_every_face() -> None:
    """A mixin without a base writes `chat` alone and is heard, also above another that writes `stream` alone."""

    class Shouts:
        async def chat(self, messages: Any, tools: Any) -> Any:
            reply = await super().chat(messages, tools)  # type: ignore[misc]
            reply.text = reply.text.upper()
            return reply

    class Marks:
        async def stream(self, ctx: Any) -> Any:
            async for event in super().stream(ctx):  # type: ignore[misc]
                yield Text(event.text.replace("one", "once")) if isinstance(event, Text) else event

    class Mine(Shouts, Marks, Streams):
        pass

    for face in FACES:
        assert (await heard(Mine(), face))[0] == "ONCE TWO"


async def test_the_nearest_class_of_a_diamond_counts() -> None:
    """In a diamond the nearest writer is heard, and its `super()` reaches the other side."""

    class Base(Streams):
        pass

    class Left(Base):
        async def chat(self, messages: Any, tools: Any) -> Any:
            reply = await super().chat(messages, tools)
            reply.text = f"left({reply.text})"
            return reply

    class Right(Base):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            reply = await super().get_response(messages, *args, **kwargs)
            reply.choices[0].message.content = f"right({reply.choices[0].message.content})"
            return reply

    class Both(Left, Right):
        pass

    for face in FACES:
        assert (await heard(Both(), face))[0] == "left(right(one two))"


async def test_a_model_beside_the_base_class_counts() -> None:
    """A `Model` mixed into an adapter is what the adapter says."""

    class Client(Model):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return await WRITERS["get_response"]().get_response(messages)

    class Mine(ModelAdapter, Client):
        pass

    for face in FACES:
        assert await heard(Mine(), face) == SAID


async def test_none_means_not_written() -> None:
    """`stream = None` beside `generate` leaves `stream` to be written; alone it leaves the parent's."""

    class Once(ModelAdapter):
        stream = None

        async def generate(self, ctx: Any) -> Any:
            return {"events": [{"type": "text", "text": "hi"}], "finish": "stop"}

    class Same(Streams):
        stream = None

    assert (await Once().stream(GenerateContext()).result()).text == "hi"
    assert (await Same().stream(CTX).result()).text == "one two"


async def test_a_stream_comes_from_a_stream_and_a_whole_reply_from_a_whole_reply() -> None:
    """Of several methods the same kind is taken, step before chat before model."""

    class Four(ModelAdapter):
        async def stream_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("model comes last")
            yield

        async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
            yield "text", "streamed"
            yield "done", ChatResponse(None, [], "stop")

        async def chat(self, messages: Any, tools: Any) -> Any:
            return ChatResponse("whole", [], "stop")

        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("model comes last")

    adapter = Four()
    assert (await adapter.stream(CTX).result()).text == "streamed"
    assert (await adapter.generate(CTX)).text == "whole"
    assert [piece async for piece in adapter.stream_chat(HELLO, [])] == ["streamed"]


async def test_a_method_written_again_is_heard_by_those_the_parent_got() -> None:
    """The faces of a parent stay the parent's: nothing looks a method up on the instance."""

    class Mine(Streams):
        async def generate(self, ctx: Any) -> Any:
            return await consume_stream(super().stream(ctx))

    class Again(Mine):
        async def stream(self, ctx: Any) -> Any:
            step = await super().generate(ctx)
            yield Text(f"<{step.text}>")
            yield Finish("stop")

    assert (await Again().stream(CTX).result()).text == "<one two>"
    assert (await Again().generate(CTX)).text == "<one two>"


async def test_a_class_that_writes_nothing_is_refused_when_instantiated() -> None:
    """Defining it is fine; instantiating it is an AdapterError (a TypeError) that says what to write."""

    class Nothing(ModelAdapter):
        pass

    with pytest.raises(AdapterError, match=r"Nothing writes none of stream.*write `async def stream") as caught:
        Nothing()
    assert isinstance(caught.value, TypeError)
    with pytest.raises(AdapterError):
        ModelAdapter()


@pytest.mark.parametrize("face", FACES)
async def test_a_method_that_cannot_take_its_arguments_is_refused_when_instantiated(face: str) -> None:
    """The refusal names the method and the form to write."""

    async def narrow(self: Any) -> Any:
        return None

    wrong = type("Narrow", (ModelAdapter,), {face: narrow})
    with pytest.raises(AdapterError, match=rf"Narrow\.{face} cannot take its arguments .*write `{face}\(self, "):
        wrong()


async def test_a_constructor_needs_no_super_and_takes_only_its_own_arguments() -> None:
    """A class with its own `__init__` works without `super().__init__()`; one without takes no argument."""

    class Own(Streams):
        def __init__(self, base_url: str) -> None:
            self.base_url = base_url

    assert Own("x").base_url == "x"
    with pytest.raises(TypeError):
        Streams("x")  # type: ignore[call-arg]


def _decorated(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class _Iterator:
    """An async iterator that is no generator."""

    def __init__(self) -> None:
        self.left = [{"type": "text", "text": "odd"}, {"type": "finish", "finish": "stop"}]

    def __aiter__(self) -> _Iterator:
        return self

    async def __anext__(self) -> Any:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


async def _generator(self: Any, ctx: Any) -> Any:
    yield Text("odd")
    yield Finish("stop")


async def _promised(self: Any, ctx: Any) -> Any:
    return _Iterator()


ODD_STREAMS = {
    "generator": _generator,
    "decorated": _decorated(_generator),
    "plain method returning an async iterator": lambda self, ctx: _Iterator(),
    "awaitable of one": _promised,
    "list": lambda self, ctx: [{"type": "text", "text": "odd"}, {"type": "finish", "finish": "stop"}],
    "iterator": lambda self, ctx: iter([Text("odd"), Finish("stop")]),
    "static": staticmethod(lambda ctx: _generator(None, ctx)),
    "event stream": lambda self, ctx: EventStream(_Iterator()),
    "partial": staticmethod(functools.partial(_generator, None)),
}


@pytest.mark.parametrize("form", ODD_STREAMS)
async def test_a_stream_in_any_form_is_an_event_stream_of_structs(form: str) -> None:
    """Authors' streams are wrapped when the class is created; callers always get an EventStream of structs."""
    adapter = type("Odd", (ModelAdapter,), {"stream": ODD_STREAMS[form]})()
    stream = adapter.stream(GenerateContext())
    assert isinstance(stream, EventStream)
    assert [event async for event in stream] == [Text("odd"), Finish("stop")]
    assert type(adapter).stream.__wrapped__ is ODD_STREAMS[form]


async def _later(self: Any, ctx: Any) -> Any:
    return {"events": [{"type": "text", "text": "odd"}], "finish": "stop", "usage": {"inputTokens": 1}}


ODD_WHOLES = {
    "dict": lambda self, ctx: {"events": [{"type": "text", "text": "odd"}], "finish": "stop"},
    "struct": lambda self, ctx: StepResult(events=(Text("odd"),), finish="stop"),
    "awaitable": _later,
    "decorated": _decorated(_later),
    "async iterator": lambda self, ctx: _Iterator(),
    "iterator": lambda self, ctx: iter([Text("odd"), Finish("stop")]),
}


@pytest.mark.parametrize("form", ODD_WHOLES)
async def test_a_generate_in_any_form_gives_a_step_result(form: str) -> None:
    """`await adapter.generate(ctx)` is a StepResult whatever its author wrote."""
    adapter = type("Odd", (ModelAdapter,), {"generate": ODD_WHOLES[form]})()
    step = await adapter.generate(GenerateContext())
    assert isinstance(step, StepResult)
    assert (step.text, step.finish) == ("odd", "stop")
    assert type(adapter).generate.__wrapped__ is ODD_WHOLES[form]


async def test_an_unknown_field_in_a_dict_is_protocol() -> None:
    """A misspelt field is an error that names it and those there are."""

    class Misspelt(ModelAdapter):
        def generate(self, ctx: Any) -> Any:
            return {"events": [], "finish": "stop", "usages": None}

        async def stream(self, ctx: Any) -> Any:
            yield {"type": "text", "text": "hi", "txet": 1}

    with pytest.raises(ProtocolError, match="usages"):
        await Misspelt().generate(CTX)
    with pytest.raises(ProtocolError, match="txet"):
        await Misspelt().stream(CTX).result()


async def test_a_sync_throw_is_an_async_one() -> None:
    """A method that throws when called fails the call that awaits it, not the one that opens it."""

    def throws(self: Any, ctx: Any) -> Any:
        raise TransientError("down")

    adapter = type("Down", (ModelAdapter,), {"stream": throws})()
    stream = adapter.stream(CTX)
    with pytest.raises(TransientError):
        await stream.result()
    for face in FACES[1:]:
        with pytest.raises(TransientError):
            await heard(adapter, face)


async def test_a_reply_cut_by_a_failure_is_raised_on_the_other_faces_with_its_part() -> None:
    """The step face folds it to "error-post"; chat and model raise the classified error with what had arrived."""

    class Breaks(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            yield Text("half")
            raise ValueError("boom")

    adapter = Breaks()
    assert (await adapter.generate(CTX)).finish == "error-post"
    assert (await adapter.stream(CTX).result()).finish == "error-post"
    for face in FACES:
        if face in ("stream", "generate"):
            continue
        with pytest.raises(UnclassifiedError, match="boom") as caught:
            await heard(adapter, face)
        assert caught.value.partial.text == "half"
        assert isinstance(caught.value.__cause__, ValueError)


async def test_a_model_stream_shows_its_failure_and_raises_it() -> None:
    """`stream_response` yields one "error" event, then raises."""

    class Breaks(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            yield Text("half")
            raise TransientError("cut")

    shown = []

    async def show() -> None:
        async for event in Breaks().stream_response(HELLO):
            shown.append(event)

    with pytest.raises(TransientError):
        await show()
    assert [event.kind for event in shown] == ["text_delta", "error"]
    assert isinstance(shown[-1], ModelStreamEvent)
    assert isinstance(shown[-1].error, TransientError)


async def test_calls_that_are_no_json_pass_the_inner_faces_and_are_refused_outside() -> None:
    """F15: invalid arguments survive a chat-face layer as they were, and no outside chat caller runs them."""

    class Garbled(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            yield {"type": "call", "tool": "look", "arguments": '{"q":', "callId": "c1"}
            yield {"type": "finish", "finish": "tool-calls"}

    class Layer(Garbled):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return await super().chat(messages, tools)

    for adapter in (Garbled(), Layer()):
        (call,) = (await adapter.generate(CTX)).calls
        assert (call.input, call.arguments) == (None, '{"q":')
        assert call.problem
    with pytest.raises(ProtocolError, match="look") as caught:
        await Garbled().chat(HELLO, TOOL_DICTS)
    assert caught.value.partial.calls[0].arguments == '{"q":'


async def test_side_events_and_native_blocks_survive_a_chat_layer() -> None:
    """Reasoning, native blocks, notes and the raw reason of a parent pass through a child's `chat` unchanged."""

    class Rich(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            yield Reasoning("why")
            yield CallDelta(0, "c1", "look", '{"q":"x"}')
            yield Native("dialect", "block", {"a": 1})
            yield Text("ok")
            yield Call("look", {"q": "x"}, "c1", '{"q":"x"}')
            yield Finish("tool-calls", raw_reason="tool_stop", native=Native("dialect", "message", {"m": 1}))

    class Chat(Rich):
        async def chat(self, messages: Any, tools: Any) -> Any:
            return await super().chat(messages, tools)

    class Stream(Rich):
        async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
            async for pair in super().stream_with_tools(messages, tools):
                yield pair

    class Respond(Rich):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().get_response(messages, *args, **kwargs)

    plain = await Rich().generate(CTX)
    for adapter in (Chat(), Stream(), Respond()):
        assert await adapter.generate(CTX) == plain
        assert await adapter.stream(CTX).result() == plain


async def test_an_abandoned_derived_stream_closes_its_author() -> None:
    """F10: a break out of any derived stream closes the author's generator without the garbage collector."""
    closed: list[str] = []

    def endless(kind: str, item: Any) -> Any:
        async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                while True:
                    yield item
            finally:
                closed.append(kind)

        return method

    written = {
        "stream": Text("x"),
        "stream_with_tools": ("text", "x"),
        "stream_response": ModelStreamEvent(kind="text_delta", text="x"),
    }
    for kind, item in written.items():
        adapter = type("Endless", (ModelAdapter,), {kind: endless(kind, item)})()
        for opened in (
            adapter.stream(CTX),
            adapter.stream_with_tools(HELLO, []),
            adapter.stream_response(HELLO),
            adapter.stream_chat(HELLO, []),
        ):
            async for _ in opened:
                break
            await opened.aclose()
            assert closed.pop() == kind
        async for _ in adapter.stream_with_tools(HELLO, []):
            break
        for _ in range(10):
            await asyncio.sleep(0)
        assert closed.pop() == kind
    assert len(asyncio.all_tasks()) == 1


async def test_concurrent_calls_share_nothing() -> None:
    """Many calls of one adapter at once each get their own reply, on every face."""

    class Echoes(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            for letter in ctx.messages[0]["content"]:
                await asyncio.sleep(0)
                yield Text(letter)
            yield Finish("stop")

    adapter = Echoes()
    words = [f"word{n}" for n in range(30)]
    replies = await asyncio.gather(*(adapter.chat([{"role": "user", "content": word}], []) for word in words))
    assert [reply.text for reply in replies] == words


def test_the_written_methods_say_whose_they_are() -> None:
    """A method that was written for a class carries that class's name in tracebacks, and a docstring."""
    assert Chats.stream.__qualname__ == "Chats.stream"
    assert Generates.chat.__doc__
    assert StreamsWithTools.stream_with_tools.__qualname__ == "StreamsWithTools.stream_with_tools"


async def test_super_streams_the_whole_reply_where_no_parent_wrote_a_method() -> None:
    """Seed 000: the base class's `stream_with_tools` calls `chat` and emits it in one shot, for an author to wrap."""

    class Wrapped(ModelAdapter):
        async def chat(self, messages: Any, tools: Any) -> ChatResponse:
            return ChatResponse("whole", [], "end_turn")

        async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
            async for kind, value in super().stream_with_tools(messages, tools):
                yield kind, value

    assert (await Wrapped().stream(CTX).result()).text == "whole"
    pairs = [pair async for pair in Wrapped().stream_with_tools([{"role": "user", "content": "x"}], [])]
    assert [kind for kind, _ in pairs] == ["text", "done"]


async def test_super_without_a_whole_reply_says_what_to_write() -> None:
    """Where no class wrote a whole reply, the base class's stream is an error that says so, not endless recursion."""

    class Empty(ModelAdapter):
        async def stream_with_tools(self, messages: Any, tools: Any) -> Any:
            async for pair in super().stream_with_tools(messages, tools):
                yield pair

    with pytest.raises(TierError, match="write one"):
        await Empty().generate(CTX)


async def test_constructors_of_classes_beside_the_base_class_run() -> None:
    """A mixin after `ModelAdapter` gets its constructor called, as beside any class that has none of its own."""

    class Counts:
        def __init__(self) -> None:
            self.count = 7

    class Mixed(ModelAdapter, Counts):
        def generate(self, ctx: Any) -> Any:
            return StepResult(events=(Text(str(self.count)),))

    assert (await Mixed().generate(CTX)).text == "7"


@pytest.mark.parametrize("where", ["the object", "its class", "a subclass"])
async def test_a_chain_asks_what_stands_in_place_of_a_stream(where: str) -> None:
    """It goes past the stream that an adapter has from its class, and past no other."""

    class Says(ModelAdapter):
        async def stream(self, ctx: Any) -> Any:
            yield Text("as written")
            yield Finish("stop")

    async def other(*_: Any) -> Any:
        yield Text("in its place")
        yield Finish("stop")

    adapter: Any = Says()
    assert (await define_chain(id="c", tiers=[adapter]).generate(GenerateContext())).text == "as written"
    if where == "the object":
        adapter.stream = other
    elif where == "its class":
        Says.stream = other
    else:
        adapter = type("Other", (Says,), {"stream": other})()
    assert (await define_chain(id="c", tiers=[adapter]).generate(GenerateContext())).text == "in its place"
