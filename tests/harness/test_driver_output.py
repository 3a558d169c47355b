"""Runs whose answer must have a form, as their caller and their reader see them."""

import asyncio
import copy
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import (
    CutReason,
    InvalidRequestError,
    OutputDefinitionError,
    OutputError,
    OutputTruncatedError,
    RefusedError,
    TransientError,
)
from isthmus.harness.agents import DefaultAgent
from isthmus.harness.limits import Limits
from isthmus.models import OutputSchema, partial_outputs
from isthmus.models.events import CallDelta, Finish, Marker, NoteCode, Reset, Text, Usage
from isthmus.models.executor import ToolResult
from isthmus.models.strategy import PREVIEW
from support.turns import Turns, asks, call, says, tasks


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


ANN = '{"name": "Ann", "age": 3}'
PERSON = Person(name="Ann", age=3)


async def look(q: str) -> str:
    """Look it up."""
    return f"{q}: 3"


def natively(*turns: Any) -> Turns:
    """A model with structured output of its own."""
    model = Turns(*turns)
    model.supports = frozenset({"tools", "output-schema"})
    return model


def plainly(*turns: Any) -> Turns:
    """A model that knows neither tools nor forms."""
    model = Turns(*turns)
    model.supports = frozenset()
    return model


async def test_the_final_output_is_the_typed_object() -> None:
    """A run with a form ends with the validated object; its text stays beside it."""
    model = natively(says(ANN))
    result = await DefaultAgent(model=model, output=Person).run("Who?")
    assert (result.final_output, result.text) == (PERSON, ANN)
    assert (result.outcome.outcome, result.outcome.final_output) == ("completed", PERSON)
    assert result.messages[-1] == {"role": "assistant", "content": ANN}
    assert model.seen[0].output == OutputSchema(Person)


async def test_without_a_form_the_final_output_is_the_text() -> None:
    """A run for text, with `OutputSchema(str)` too, returns its text."""
    for output in (None, OutputSchema(str)):
        model = plainly(says("Hello."))
        assert (await DefaultAgent(model=model, output=output).run("Hi")).final_output == "Hello."
        assert model.seen[0].output is None


async def test_a_wrong_reply_is_repaired_and_leaves_nothing() -> None:
    """A repaired run looks as if the model had been right at once, but for its steps, tokens and notes."""
    model = natively(says("prose", usage=Usage(input_tokens=5, output_tokens=2)), says(ANN))
    history = [{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}]
    twin = copy.deepcopy(history)
    result = await DefaultAgent(model=model, output=Person).run("Who?", history)
    assert result.final_output == PERSON
    assert [message["content"] for message in result.messages] == ["before", "yes", "Who?", ANN]
    assert (result.outcome.steps, result.usage.input_tokens if result.usage else 0) == (2, 5)
    assert [note.code for note in result.outcome.notes].count(NoteCode.OUTPUT_REPAIRED) == 1
    assert "no JSON object" in model.seen[1].messages[-1]["content"]
    assert history == twin


async def test_after_three_repairs_the_run_fails_with_the_last_text() -> None:
    """Four requests, then a typed error that carries the last text."""
    model = natively(says("a"), says("b"), says("c"), says("d"))
    with pytest.raises(OutputError) as caught:
        await DefaultAgent(model=model, output=Person).run("Who?")
    assert (caught.value.text, caught.value.attempts, len(model.seen)) == ("d", 4, 4)
    stream = DefaultAgent(model=natively(says("a")), output=Person, limits=Limits(max_repairs=0)).run_stream("Who?")
    with pytest.raises(OutputError):
        await stream.result()
    assert stream.outcome is not None
    assert (stream.outcome.outcome, stream.outcome.reason, stream.outcome.final_output) == ("failed", "output", None)
    assert [message["role"] for message in stream.outcome.messages] == ["user"]


async def test_repairs_are_steps_of_the_budget() -> None:
    """Asking again costs a step like any other call; without one left the run is cut, without an object."""
    agent = DefaultAgent(model=natively(says("prose")), output=Person, limits=Limits(max_steps=2))
    result = await agent.run("Who?")
    assert (result.outcome.reason, result.final_output) == (CutReason.BUDGET_STEPS, None)


async def test_a_cut_reply_is_cut_and_no_object() -> None:
    """A structured reply at the output limit is neither continued nor repaired: the run is cut, and says so by type."""
    model = natively(says('{"name": "An', finish="length"))
    result = await DefaultAgent(model=model, output=Person).run("Who?")
    assert (result.outcome.outcome, result.outcome.reason, result.text) == ("cut", CutReason.LENGTH, '{"name": "An')
    assert result.final_output is None
    assert isinstance(result.outcome.error, OutputTruncatedError)
    assert len(model.seen) == 1


@pytest.mark.parametrize("finish", ["refusal", "content-filter"])
async def test_a_refusal_is_cut_and_no_object(finish: str) -> None:
    """F20: a refused structured run is cut as refused, with a typed error, and never repaired."""
    model = natively(says("I will not.", finish=finish))
    result = await DefaultAgent(model=model, output=Person).run("Who?")
    assert (result.outcome.outcome, result.outcome.reason) == ("cut", CutReason.REFUSED)
    assert (result.final_output, result.text) == (None, "I will not.")
    assert isinstance(result.outcome.error, RefusedError)
    assert len(model.seen) == 1


async def test_tools_run_before_the_answer() -> None:
    """Natively, tools run as ever; only the reply without calls is the answer."""
    model = natively([Text("Let me see."), *asks(call("look", q="Ann"))], says(ANN))
    result = await DefaultAgent(model=model, tools=[look], output=Person).run("Who?")
    assert result.final_output == PERSON
    assert [message["role"] for message in result.messages] == ["user", "assistant", "tool", "assistant"]


async def test_by_tool_the_real_tool_is_called_and_then_the_answer() -> None:
    """F17: both tools are offered, the real one runs, and the answer's call ends the run as text in the history."""
    model = Turns(asks(call("look", q="Ann")), asks(call("Person", "c2", name="Ann", age=3)))
    result = await DefaultAgent(model=model, tools=[look], output=Person).run("Who?")
    assert result.final_output == PERSON
    assert [[tool.name for tool in request.tools] for request in model.seen] == [["look", "Person"]] * 2
    assert (result.messages[-1]["content"], result.outcome.finish) == ('{"name":"Ann","age":3}', "stop")
    assert not any("Person" in str(message.get("tool_calls")) for message in result.messages)


async def test_by_tool_with_no_tool_left_the_answer_is_still_asked_for() -> None:
    """When the real tools are used up the answer's tool stays, and must be called."""
    model = Turns(says(ANN))
    await DefaultAgent(model=model, output=Person).run("Who?")
    assert ([tool.name for tool in model.seen[0].tools], model.seen[0].tool_choice) == (["Person"], "required")


async def test_in_words_for_a_model_that_knows_neither() -> None:
    """A model without tools and forms is asked in its instructions."""
    model = plainly(says(f"```json\n{ANN}\n```"))
    result = await DefaultAgent(model=model, instructions="Be brief.", output=Person).run("Who?")
    assert result.final_output == PERSON
    assert model.seen[0].brief.startswith("Be brief.\n\n")
    assert (model.seen[0].output, model.seen[0].tools) == (None, ())


async def test_a_native_form_that_a_tier_lacks_is_refused_before_any_call() -> None:
    """Whoever insists on native output for a model without it is told which tier lacks it; nothing was sent."""
    model = Turns(says(ANN))
    with pytest.raises(InvalidRequestError, match=r"chain 'turns': .*output-schema"):
        await DefaultAgent(model=model, output=OutputSchema(Person, strategy="native")).run("Who?")
    assert not model.seen


async def test_a_wrong_form_is_refused_when_the_agent_is_made() -> None:
    """What is no form is told so before any run."""
    with pytest.raises(OutputDefinitionError, match="this is no type"):
        DefaultAgent(model=Turns(), output="Person")


# What the reader of the stream sees


async def read(agent: DefaultAgent) -> list[Any]:
    """All events."""
    async with agent.run_stream("Who?") as stream:
        return [event async for event in stream]


async def test_a_structured_answer_is_previewed_and_then_said_once() -> None:
    """While it is written it comes as previews; once it is valid it comes as one text, as the outcome has it."""
    got = await read(DefaultAgent(model=natively(says('{"name": "Ann",', ' "age": 3}')), output=Person))
    assert got == [Marker(PREVIEW, None, '{"name": "Ann",'), Marker(PREVIEW, None, ' "age": 3}'), Text(ANN)]


async def test_a_repaired_answer_is_said_once() -> None:
    """A reply that did not fit was only ever previewed: `Reset`, then the next one; its text is never said."""
    got = await read(DefaultAgent(model=natively(says("prose"), says("no"), says(ANN)), output=Person))
    assert got == [
        Marker(PREVIEW, None, "prose"),
        Reset(2),
        Marker(PREVIEW, None, "no"),
        Reset(3),
        Marker(PREVIEW, None, ANN),
        Text(ANN),
    ]


async def test_leaving_side_events_out_changes_nothing() -> None:
    """The texts alone are the outcome's text: of runs that were repaired, cut, refused, and that called tools."""
    turns: list[list[Any]] = [
        [says("prose"), says(ANN)],
        [says('{"na', finish="length")],
        [says("I will not.", finish="refusal")],
        [says("part", finish="content-filter")],
        [[Text('{"na'), TransientError("lost")]],
    ]
    for each in turns:
        async with DefaultAgent(model=natively(*each), output=Person).run_stream("Who?") as stream:
            said = "".join([event.text async for event in stream if isinstance(event, Text)])
        assert stream.outcome is not None
        assert said == stream.outcome.text


async def test_what_is_said_before_a_tool_is_shown_before_its_call() -> None:
    """Text before a call was no answer: it is said, then the call runs."""
    model = natively([Text("Let me see."), *asks(call("look", q="Ann"))], says(ANN))
    got = await read(DefaultAgent(model=model, tools=[look], output=Person))
    assert [type(event) for event in got] == [Marker, Text, type(call("look")), ToolResult, Marker, Text]
    assert got[1] == Text("Let me see.")


async def test_partial_objects_of_a_run() -> None:
    """The object grows while the run goes on, by each strategy, and begins anew after a repair."""
    pieces = ('{"name": "A', 'nn", "age"', ": 3}")
    grown = [{"name": "A"}, {"name": "Ann"}, {"name": "Ann", "age": 3}]
    deltas = [CallDelta(0, "c1", "Person", piece) for piece in pieces]
    by_tool = [*deltas, call("Person", name="Ann", age=3), Finish("tool-calls")]
    for model, expected in (
        (natively(says(*pieces)), grown),
        (plainly(says("Here: ", *pieces)), grown),
        (Turns(by_tool), grown),
        (natively(says('{"nome": 1}'), says(*pieces)), [{}, {"nome": 1}, *grown][1:]),
    ):
        stream = DefaultAgent(model=model, output=Person).run_stream("Who?")
        assert [part async for part in partial_outputs(stream, Person)] == expected
        assert stream.outcome is not None
        assert stream.outcome.final_output == PERSON


async def test_a_structured_stream_that_is_left_stops_the_run() -> None:
    """Leaving the partial objects closes the model's stream and leaves no task."""
    model = natively([Text('{"name": "A'), 30])
    async for part in partial_outputs(DefaultAgent(model=model, output=Person).run_stream("Who?"), Person):
        assert part == {"name": "A"}
        break
    for _ in range(5):
        if not model.open:
            break
        await asyncio.sleep(0.01)
    assert (model.open, tasks()) == (0, set())


async def test_a_result_with_a_typed_object_is_plain_json() -> None:
    """`to_dict` shows the object, a list of them too, as JSON values beside the text."""
    result = await DefaultAgent(model=natively(says(ANN)), output=Person).run("Who?")
    assert result.to_dict()["final_output"] == {"name": "Ann", "age": 3}
    many = await DefaultAgent(model=natively(says(f'{{"response": [{ANN}]}}')), output=list[Person]).run("Who?")
    assert (many.final_output, many.to_dict()["final_output"]) == ([PERSON], [{"name": "Ann", "age": 3}])


async def test_a_pause_is_a_step_and_no_answer() -> None:
    """A structured reply that pauses is sent back as it is and judged at its end."""
    model = natively(says("Searching.", finish="pause"), says(ANN))
    result = await DefaultAgent(model=model, output=Person).run("Who?")
    assert (result.final_output, len(model.seen)) == (PERSON, 2)
    assert NoteCode.OUTPUT_REPAIRED not in [note.code for note in result.outcome.notes]
