"""The model face in both directions: arguments, options, tools, events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.adapters.base import ModelAdapter
from isthmus.errors import ProtocolError, TransientError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import CallDelta, Finish, Native, Note, NoteCode, Reasoning, StepResult, Text, Usage
from isthmus.models.output import OutputSchema
from isthmus.models.responses import ModelStreamEvent
from support.face_kit import CTX, HELLO, LOOK, TOOL_DICTS, model_response


class Sees(ModelAdapter):
    """Shows the context that it was asked with."""

    async def stream(self, ctx: Any) -> Any:
        self.ctx = ctx
        yield Text("ok")
        yield Finish("stop")


async def test_options_become_settings_and_the_rest_is_passed_through() -> None:
    """Portable request options fill the context by name; the provider's own stay options; extra arguments win."""
    adapter = Sees()
    form = OutputSchema(str)
    await adapter.get_response(
        [{"role": "system", "content": "be brief"}, *HELLO],
        {"max_tokens": 9, "reasoning_effort": "low", "stop": "x", "tool_choice": "required", "own": 1},
        form,
        TOOL_DICTS,
        temperature=0.5,
        own=2,
    )
    ctx = adapter.ctx
    assert (ctx.brief, list(ctx.messages)) == ("be brief", HELLO)
    assert (ctx.max_output_tokens, ctx.effort, ctx.stop, ctx.tool_choice, ctx.temperature) == (
        9,
        "low",
        ("x",),
        "required",
        0.5,
    )
    assert (dict(ctx.options), ctx.output) == ({"own": 1}, form)
    assert ctx.tools == (LOOK,)


async def test_the_policy_of_the_tools_counts() -> None:
    """An object with normalized_tools, tool_choice and parallel_tool_calls is read whole."""
    adapter = Sees()
    tools = SimpleNamespace(normalized_tools=(LOOK,), tool_choice="none", parallel_tool_calls=False)
    await adapter.get_response(HELLO, tools=tools)
    assert (adapter.ctx.tools, adapter.ctx.tool_choice, adapter.ctx.parallel_tool_calls) == ((LOOK,), "none", False)


async def test_an_author_gets_everything_by_name() -> None:
    """A model-face author gets brief, messages, options, schema and tools; his caller's things stay as they were."""
    seen: list[Any] = []

    class Author(ModelAdapter):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append((list(messages), args, kwargs))
            return model_response()

    form: Any = object()
    ctx = GenerateContext(
        brief="be brief",
        messages=CTX.messages,
        tools=(LOOK,),
        tool_choice="look",
        output=form,
        max_output_tokens=9,
        effort="low",
        stop=("x",),
        options={"own": 1},
    )
    await Author().generate(ctx)
    messages, args, kwargs = seen[0]
    assert messages == [{"role": "system", "content": "be brief"}, *HELLO]
    assert args == ()
    assert kwargs["extra_call_args"] == {"max_tokens": 9, "reasoning_effort": "low", "stop": ["x"], "own": 1}
    assert kwargs["schema"] is form
    sent = kwargs["tools"].as_args()
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "look"}}
    assert sent["tools"][0]["function"]["parameters"] == LOOK.parameters


async def test_events_become_model_events_without_a_second_decoder() -> None:
    """Text, argument deltas, reasoning and provider blocks each become their kind; the whole reply comes last."""

    class Rich(ModelAdapter):
        model = "m"

        async def stream(self, ctx: Any) -> Any:
            yield Reasoning("r", signature="s")
            yield Text("a")
            yield CallDelta(0, "c1", "look", "{}")
            yield Native("p", "block", {"a": 1})
            yield {"type": "call", "tool": "look", "arguments": "{}", "callId": "c1"}
            yield Finish("tool-calls", raw_reason="why")

    shown = [event async for event in Rich().stream_response(HELLO)]
    kinds = ["reasoning", "text_delta", "tool_call_arguments_delta", "provider", "completed"]
    assert [event.kind for event in shown] == kinds
    assert (shown[0].reasoning, shown[0].reasoning_signature) == ("r", "s")
    assert (shown[2].tool_call_id, shown[2].tool_call_index, shown[2].arguments_delta) == ("c1", 0, "{}")
    assert shown[3].raw == {"a": 1}
    response = shown[4].response
    assert response.model == "m"
    block = {"provider": "p", "type": "block", "json": '{"a":1}'}
    assert response.model_extra == {"raw_reason": "why", "reasoning_content": "r", "native": [block]}
    assert (response.block, response.reasoning_content) == ({"a": 1}, "r")


async def test_streamed_and_whole_are_the_same_response() -> None:
    """F16: the reply of "completed" is that of `get_response`, but for the id and the moment."""

    class Rich(ModelAdapter):
        model = "m"

        async def stream(self, ctx: Any) -> Any:
            yield Reasoning("r", signature="s")
            yield Text("a")
            yield Text("b")
            yield Native("p", "block", {"a": 1})
            usage = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=3)
            yield Finish("pause", usage, "pause_turn", None, Native("p", "message", [1]), (Note("metadata", "x"),))

    shown = [event async for event in Rich().stream_response(HELLO)]
    streamed, whole = shown[-1].response.to_dict(), (await Rich().get_response(HELLO)).to_dict()
    for varies in ("id", "created"):
        assert streamed.pop(varies)
        assert whole.pop(varies)
    assert streamed == whole
    assert (whole["finish"], whole["choices"][0]["finish_reason"]) == ("pause", "stop")


async def test_a_refusal_is_a_stop_with_the_refusal() -> None:
    """F20: the finish is `stop`, the text is the refusal; read back it is a refusal again."""

    class Refuses(ModelAdapter):
        async def generate(self, ctx: Any) -> Any:
            return StepResult(events=(Text("no"),), finish="refusal")

    response = await Refuses().get_response(HELLO)
    message = response.choices[0].message
    assert (response.choices[0].finish_reason, message.content, message.refusal) == ("stop", None, "no")

    class Again(ModelAdapter):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return {"choices": [{"finish_reason": "stop", "message": {"content": None, "refusal": "no"}}]}

    step = await Again().generate(CTX)
    assert (step.finish, step.text) == ("refusal", "no")


def responding(reply: Any) -> Any:
    """An adapter whose `get_response` returns this."""

    async def get_response(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        return reply

    return type("Responding", (ModelAdapter,), {"get_response": get_response})()


async def test_a_strangers_response_is_read_by_attribute_or_key() -> None:
    """Argument text stays as written, more choices are noted, a missing reason is "other", noted."""
    function = SimpleNamespace(name="look", arguments='{"q": 1.0}')
    message = SimpleNamespace(content=None, tool_calls=[SimpleNamespace(id="c", function=function)], refusal=None)
    choice = SimpleNamespace(message=message, finish_reason="tool_calls")
    step = await responding(SimpleNamespace(choices=[choice, choice], usage=None)).generate(CTX)
    assert step.calls[0].arguments == '{"q": 1.0}'
    assert [note.code for note in step.notes] == [NoteCode.EXTRA_CHOICES]
    step = await responding({"choices": [{"message": {"content": "x"}}]}).generate(CTX)
    assert (step.finish, step.notes[0].code) == ("other", NoteCode.NO_FINISH_REASON)


@pytest.mark.parametrize("reply", [None, {}, {"choices": []}, {"choices": [{}]}, "text"])
async def test_a_reply_without_a_choice_is_protocol(reply: Any) -> None:
    """F04: an empty `choices` is no empty success."""
    with pytest.raises(ProtocolError, match="ModelResponse with a choice"):
        await responding(reply).generate(CTX)


TEXT = ModelStreamEvent(kind="text_delta", text="a")
DONE = ModelStreamEvent(kind="completed", response=model_response())


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], "without a 'completed'"),
        ([DONE, DONE], "'completed' after 'completed'"),
        ([DONE, TEXT], "'text_delta' after 'completed'"),
        ([TEXT, DONE], "not the streamed one"),
        (["a"], "must yield events of the kinds"),
        ([ModelStreamEvent(kind="text_delta")], "must be str"),
    ],
)
async def test_a_broken_model_stream_is_protocol(events: Any, said: str) -> None:
    """Each breach of the model face's rules is named."""

    async def stream_response(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        for event in events:
            yield event

    adapter = type("Broken", (ModelAdapter,), {"stream_response": stream_response})()
    with pytest.raises(ProtocolError, match=said):
        async for _ in adapter.stream(CTX):
            pass


async def test_an_error_event_fails_the_stream_with_its_error() -> None:
    """An "error" event is the classified failure."""

    async def stream_response(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        yield ModelStreamEvent(kind="error", error=TransientError("down"))

    adapter = type("Fails", (ModelAdapter,), {"stream_response": stream_response})()
    with pytest.raises(TransientError, match="down"):
        await adapter.generate(CTX)
