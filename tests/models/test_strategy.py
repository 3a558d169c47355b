"""How a form is asked for: pure changes of request and reply."""

import copy
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import OutputDefinitionError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, CallDelta, Marker, Native, NoteCode, Reasoning, StepResult, Text
from isthmus.models.normalise import make_call
from isthmus.models.output import OutputSchema
from isthmus.models.strategy import PREVIEW, Draft, ask_for, choose


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


SCHEMA = OutputSchema(Person)
LOOK = ToolSpec(name="look", description="Look it up.")
USER = {"role": "user", "content": "Who?"}
ANSWER = make_call("Person", {"name": "Ann", "age": 3}, call_id="a")


def ctx(**fields: Any) -> GenerateContext:
    """A request for a person."""
    return GenerateContext(messages=(USER,), brief="Be brief.", output=SCHEMA, **fields)


def step(*events: Any, finish: str = "tool-calls", **fields: Any) -> StepResult:
    """A reply."""
    return StepResult(events=events, finish=finish, **fields)


def codes(reply: StepResult) -> list[str]:
    """The codes of a reply's notes."""
    return [note.code for note in reply.notes]


@pytest.mark.parametrize(
    ("supports", "strategy"),
    [
        ({"output-schema", "tools"}, "native"),
        ({"output-schema"}, "native"),
        ({"tools"}, "tool"),
        ({"images"}, "prompted"),
        (set(), "prompted"),
    ],
)
def test_the_first_strategy_that_is_supported_is_taken(supports: Any, strategy: str) -> None:
    """F17: native, then by tool, then in words, by what is supported."""
    assert choose(SCHEMA, supports) == strategy


@pytest.mark.parametrize("own", ["native", "tool", "prompted"])
def test_a_strategy_can_be_given(own: str) -> None:
    """The form's own strategy wins over what is supported."""
    assert choose(OutputSchema(Person, strategy=own), {"output-schema", "tools"}) == own
    assert choose(OutputSchema(Person, strategy=own), set()) == own


def test_a_stranger_s_wrong_strategy_is_refused() -> None:
    """A form of somebody's own with an unknown strategy is told which there are."""

    class Own:
        strategy = "magic"

    with pytest.raises(
        OutputDefinitionError, match="strategy='magic': use one of 'auto', 'native', 'tool', 'prompted'"
    ):
        choose(Own(), ())  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", ["native", "tool", "prompted"])
def test_the_request_is_never_changed(strategy: str) -> None:
    """F22: a strategy makes a new request; the caller's stays as it was."""
    before = ctx(tools=(LOOK,))
    twin = copy.deepcopy(before)
    ask_for(before, strategy)
    assert before == twin


def test_native_sends_the_form_as_it_is() -> None:
    """The provider's own structured output needs no change and no note."""
    request = ctx()
    asked = ask_for(request, "native")
    assert (asked.ctx, asked.tool, asked.notes) == (request, None, ())


@pytest.mark.parametrize("strategy", ["native", "tool", "prompted"])
def test_plain_text_is_asked_for_in_no_way(strategy: str) -> None:
    """A form of plain text is left out, whatever the strategy."""
    asked = ask_for(GenerateContext(messages=(USER,), output=OutputSchema(str)), strategy)
    assert asked.ctx == GenerateContext(messages=(USER,))


def test_a_tool_takes_the_answer() -> None:
    """The form becomes a tool with its name and schema, which must be called once; the form itself goes."""
    asked = ask_for(ctx(), "tool")
    (tool,) = asked.ctx.tools
    assert (tool.name, tool.parameters, tool.strict) == ("Person", SCHEMA.json_schema(), True)
    assert "Somebody." in tool.description
    assert (asked.ctx.output, asked.ctx.tool_choice, asked.ctx.parallel_tool_calls) == (None, "required", False)
    assert [note.code for note in asked.notes] == [NoteCode.OUTPUT_STRATEGY]


def test_the_answer_s_tool_joins_others_and_takes_none_of_their_names() -> None:
    """F17: other tools stay callable, and a name that is taken is not taken again."""
    tools = (LOOK, ToolSpec(name="Person"), ToolSpec(name="Person_2"))
    asked = ask_for(ctx(tools=tools, parallel_tool_calls=True), "tool")
    assert asked.ctx.tools[:3] == tools
    assert (asked.tool, asked.ctx.tools[3].name) == ("Person_3", "Person_3")
    assert (asked.ctx.tool_choice, asked.ctx.parallel_tool_calls) == ("required", True)


@pytest.mark.parametrize(
    "fields",
    [{"effort": "high"}, {"effort": "LOW "}, {"options": {"thinking": {"type": "enabled", "budget_tokens": 1024}}}],
)
def test_a_model_that_thinks_is_not_forced(fields: Any) -> None:
    """F17: a forced choice conflicts with thinking, so it is left to the model, and the note says so."""
    asked = ask_for(ctx(**fields), "tool")
    assert asked.ctx.tool_choice == "auto"
    assert "not forced" in asked.notes[0].detail


@pytest.mark.parametrize("fields", [{}, {"effort": "off"}, {"options": {"thinking": {"type": "disabled"}}}])
def test_a_model_that_does_not_think_is(fields: Any) -> None:
    """Without thinking some tool must be called."""
    assert ask_for(ctx(**fields), "tool").ctx.tool_choice == "required"


@pytest.mark.parametrize("choice", ["look", "required"])
def test_a_choice_that_was_made_stays(choice: str) -> None:
    """Whoever names a tool, or wants some tool, gets what he asked for."""
    assert ask_for(ctx(tools=(LOOK,), tool_choice=choice), "tool").ctx.tool_choice == choice


def test_in_words_the_schema_joins_the_instructions() -> None:
    """The instructions keep what they said, and the schema follows; nothing else is changed."""
    asked = ask_for(ctx(tools=(LOOK,)), "prompted")
    assert asked.ctx.brief.startswith("Be brief.\n\n")
    assert '"properties":{"name"' in asked.ctx.brief
    assert (asked.ctx.output, asked.ctx.tools, asked.ctx.messages) == (None, (LOOK,), (USER,))
    assert [note.code for note in asked.notes] == [NoteCode.OUTPUT_STRATEGY]


# Reading the reply


def read(reply: StepResult) -> StepResult:
    """A reply to a request for a person, beside another tool."""
    return ask_for(ctx(tools=(LOOK,)), "tool").read(reply)


def test_the_arguments_of_the_call_are_the_text() -> None:
    """The answer's call becomes its text, exactly as the model wrote it, and the reply ends like any other."""
    reply = read(step(make_call("Person", '{"name": "Ann",  "age": 3}', call_id="a")))
    assert (reply.text, reply.calls, reply.finish) == ('{"name": "Ann",  "age": 3}', (), "stop")
    assert codes(reply) == [NoteCode.OUTPUT_STRATEGY] * 2


def test_a_cut_reply_stays_cut() -> None:
    """A reply that ran into the output limit keeps that finish."""
    assert read(step(ANSWER, finish="length")).finish == "length"


def test_text_beside_the_answer_is_left_out() -> None:
    """F17: where text and answer come together the answer counts, and the note says so."""
    reply = read(step(Text("Here it is: "), ANSWER))
    assert reply.text == ANSWER.arguments
    assert any("text beside the answer" in note.detail for note in reply.notes)


def test_of_several_answers_the_first_right_one_counts() -> None:
    """F17: with two answers at once the first whose arguments are an object wins."""
    broken = Call("Person", None, "x", '{"na', "cut")
    reply = read(step(broken, ANSWER, make_call("Person", {"name": "Bob", "age": 4}, call_id="b")))
    assert reply.text == ANSWER.arguments
    assert any("3 answers" in note.detail for note in reply.notes)


def test_a_right_text_beside_a_wrong_call_is_the_answer() -> None:
    """F17: of text and calls that come together, what fits is preferred; a right call goes before a right text."""
    wrong = make_call("Person", {"name": "Ann"}, call_id="w")
    right = Text('{"name": "Bob", "age": 4}')
    asked = ask_for(ctx(), "tool")
    assert asked.read(step(right, wrong)).text == right.text
    assert asked.read(step(Text("Here."), wrong)).text == wrong.arguments
    assert asked.read(step(right, wrong, ANSWER)).text == ANSWER.arguments


def test_tools_that_may_not_be_called_are_not_shown() -> None:
    """Where the choice is none, the answer's tool is the only one that can be called, thinking or not."""
    for effort in (None, "high"):
        asked = ask_for(ctx(tools=(LOOK,), tool_choice="none", effort=effort), "tool")
        assert [tool.name for tool in asked.ctx.tools] == ["Person"]


def test_other_tools_run_before_an_answer_counts() -> None:
    """F17: an answer beside calls of other tools was given without their results: it is left out, they run."""
    look = make_call("look", {}, call_id="l")
    reply = read(step(Text("Let me see."), ANSWER, look))
    assert (reply.calls, reply.text, reply.finish) == ((look,), "Let me see.", "tool-calls")
    assert any("results come first" in note.detail for note in reply.notes)


def test_a_reply_without_the_call_stays_as_it_is() -> None:
    """A model that answers in text, or calls another tool alone, is read as ever."""
    look = step(make_call("look", {}, call_id="l"))
    assert read(look).events == look.events
    assert read(step(Text('{"name": "Ann", "age": 3}'), finish="stop")).text == '{"name": "Ann", "age": 3}'


def test_the_native_form_of_the_call_goes_with_it() -> None:
    """The history gets the answer as text, so the native form of a call is dropped, with a note; the rest stays."""
    thinking, message = Native("d", "thinking", 1), Native("d", "message", {"calls": 1})
    reply = read(step(ANSWER, native=(thinking, message), reasoning="hm"))
    assert (reply.native, reply.reasoning) == ((thinking,), "hm")
    assert NoteCode.NATIVE_DROPPED in codes(reply)


# Drafts


def shown(tool: str | None, *events: Any) -> list[Any]:
    """What is shown of events."""
    draft = Draft(tool)
    return [each for event in events for each in draft.take(event)]


def test_the_text_of_a_structured_reply_is_a_preview() -> None:
    """Nobody knows whether it will stand: text comes as markers, side events that change nothing."""
    assert shown(None, Text('{"na'), Text(""), Reasoning("hm"), Text('me"')) == [
        Marker(PREVIEW, None, '{"na'),
        Reasoning("hm"),
        Marker(PREVIEW, None, 'me"'),
    ]


def test_the_arguments_of_the_answer_s_call_are_the_preview() -> None:
    """By tool, the pieces of its arguments are previewed; neither the call nor the text beside it is shown."""
    events = (Text("Well: "), CallDelta(0, "a", "Person", '{"a'), CallDelta(0, "a", "Person", ""), ANSWER)
    assert shown("Person", *events) == [Marker(PREVIEW, None, '{"a')]


def test_text_before_calls_of_other_tools_is_shown() -> None:
    """What a model says before it calls a tool was no answer: it is shown, then the call, then what follows."""
    look = make_call("look", {}, call_id="l")
    assert shown("Person", Text("Let me "), Text("see."), look, Text("Hm.")) == [Text("Let me see."), look, Text("Hm.")]
