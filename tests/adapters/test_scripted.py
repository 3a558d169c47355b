from __future__ import annotations

import pytest

from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.errors import InvalidRequestError, TransientError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, CallDelta, Finish, Native, Reasoning, StepResult, Text, Usage

CTX = GenerateContext(messages=({"role": "user", "content": "hi"},))

FULL = StepResult(
    events=(Text("Let me see. \n"), Call("add", {"a": 1}, "c1", '{"a": 1}'), Call("add", {"a": 2}, "c2", '{"a": 2}')),
    finish="tool-calls",
    raw_reason="tool_use",
    usage=Usage(input_tokens=3, output_tokens=5),
    reasoning="hmm",
    native=(Native("d", "thinking", {"x": 1}), Native("d", "message", {"y": 2})),
)


async def events_of(adapter: ScriptedAdapter, ctx: GenerateContext = CTX) -> list:
    """All events of one call."""
    return [event async for event in adapter.stream(ctx)]


async def until_error(adapter: ScriptedAdapter) -> tuple[list, TransientError]:
    """The events of a call that fails, and its error."""
    seen = []
    try:
        async for event in adapter.stream(CTX):
            seen.append(event)
    except TransientError as error:
        return seen, error
    pytest.fail("the call did not fail")


async def test_texts_are_played_in_order_and_in_pieces():
    """A text is streamed word by word, and the pieces joined are the text exactly."""
    adapter = ScriptedAdapter(["  Hello there,\n my  friend. ", "Bye"])
    events = await events_of(adapter)
    pieces = [event.text for event in events if isinstance(event, Text)]
    assert "".join(pieces) == "  Hello there,\n my  friend. "
    assert len(pieces) >= 4
    assert events[-1] == Finish("stop")
    assert (await adapter.generate(CTX)).text == "Bye"


async def test_a_result_comes_out_as_it_went_in():
    """A StepResult with everything in it is the same after streaming and after a whole call."""
    adapter = ScriptedAdapter([FULL, FULL])
    whole = await adapter.generate(CTX)
    assert whole == FULL
    events = await events_of(adapter)
    assert Reasoning("hmm") in events
    deltas = [event for event in events if isinstance(event, CallDelta)]
    assert [(delta.index, delta.arguments_delta) for delta in deltas] == [(0, '{"a": 1}'), (1, '{"a": 2}')]


async def test_event_lists_are_played_as_they_stand():
    """A list of events, structs or dicts, is played unchanged, and an exception in it is raised at its place."""
    lost = TransientError("lost")
    adapter = ScriptedAdapter([[{"type": "text", "text": "a"}, Text("b"), lost]])
    seen, error = await until_error(adapter)
    assert seen == [Text("a"), Text("b")]
    assert error is lost


async def test_exceptions_are_raised_before_any_event():
    """A step that is an exception fails the call, and the next call plays the next step."""
    adapter = ScriptedAdapter([TransientError("busy"), "fine"])
    with pytest.raises(TransientError, match="busy"):
        await adapter.generate(CTX)
    assert (await adapter.generate(CTX)).text == "fine"


async def test_functions_see_the_context():
    """A function, sync or async, gets the context and returns any other step."""

    async def later(ctx: GenerateContext) -> StepResult:
        return StepResult(events=(Text(ctx.brief),))

    adapter = ScriptedAdapter([lambda ctx: ctx.messages[-1]["content"], later])
    assert (await adapter.generate(CTX)).text == "hi"
    assert (await adapter.generate(GenerateContext(brief="be"))).text == "be"


async def test_contexts_are_recorded_and_a_script_ends():
    """Each call's context is kept, and a call after the last step says that the script is over."""
    adapter = ScriptedAdapter(replies=["only"])
    await adapter.generate(CTX)
    with pytest.raises(InvalidRequestError, match="call 2 of a script of 1"):
        await adapter.generate(CTX)
    assert adapter.contexts == [CTX, CTX]


async def test_a_failed_result_raises_its_error_after_its_content():
    """A StepResult that carries an error streams its content first, and then fails."""
    adapter = ScriptedAdapter([StepResult(events=(Text("half"),), finish="error-post", error=TransientError("cut"))])
    seen, error = await until_error(adapter)
    assert seen == [Text("half")]
    assert error.message == "cut"


def test_what_it_declares_can_be_set():
    """Id, window, ceiling and support are what the script's author says."""
    adapter = ScriptedAdapter(id="b", window_tokens=100, max_output_tokens=10, supports=["tools"])
    declared = (adapter.id, adapter.window_tokens, adapter.max_output_tokens, adapter.supports)
    assert declared == ("b", 100, 10, frozenset({"tools"}))
    assert (ScriptedAdapter().id, ScriptedAdapter.provider) == ("scripted:script", "scripted")
