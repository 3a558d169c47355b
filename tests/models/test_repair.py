"""Asking again: bounded, only for what asking again can mend, and nothing of it is kept."""

import copy
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import OutputError, OutputTruncatedError, RefusedError
from isthmus.models import ESCAPE_SEQUENCE_RETRY_MESSAGE, SCHEMA_NORMALIZATION_ERROR
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import NoteCode, StepResult, Text, Usage
from isthmus.models.normalise import make_call
from isthmus.models.output import OutputSchema
from isthmus.models.repair import RETRIES, answered, repairing


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


ANN = '{"name": "Ann", "age": 3}'
EXPLODED = '{"name": "' + "\\u0000" * 30
CTX = GenerateContext(messages=({"role": "user", "content": "Who?"},), output=OutputSchema(Person))


class Asked:
    """Answers with replies written down beforehand, the last one again and again, and remembers the requests."""

    def __init__(self, *replies: Any) -> None:
        self._replies = replies
        self.seen: list[GenerateContext] = []

    async def __call__(self, ctx: GenerateContext) -> StepResult:
        """The next reply."""
        reply = self._replies[min(len(self.seen), len(self._replies) - 1)]
        self.seen.append(ctx)
        return says(reply) if isinstance(reply, str) else reply


def says(text: str, finish: str = "stop", **fields: Any) -> StepResult:
    """A reply of text."""
    return StepResult(events=(Text(text),), finish=finish, usage=Usage(input_tokens=5, output_tokens=2), **fields)


async def ask(*replies: Any, supports: Any = ("output-schema",), **options: Any) -> tuple[Asked, Any]:
    """The model that was asked, and the value or the error that came of it."""
    model = Asked(*replies)
    try:
        return model, (await answered(model, CTX, repair=repairing(CTX.output, supports, **options)))[1]
    except (OutputError, RefusedError) as error:
        return model, error


async def test_a_right_reply_is_asked_for_once() -> None:
    """A reply of the form is validated into the typed object."""
    model, value = await ask(ANN)
    assert (value, len(model.seen)) == (Person(name="Ann", age=3), 1)


@pytest.mark.parametrize("wrong", ["prose", '{"name": "Ann"}', ""])
async def test_a_wrong_reply_is_asked_for_again(wrong: str) -> None:
    """Prose, JSON of another form and an empty reply are mended by asking again."""
    model, value = await ask(wrong, ANN)
    assert (value, len(model.seen)) == (Person(name="Ann", age=3), 2)


async def test_what_the_model_is_told() -> None:
    """The feedback is one user turn at the end: what does not fit, and how the reply began; only the last one."""
    model, _ = await ask('{"name": "Ann"}', "prose", ANN)
    assert model.seen[0].messages == CTX.messages
    for request, fault, began in zip(
        model.seen[1:], ("age: it is required", "no JSON"), ('"Ann"', "prose"), strict=True
    ):
        *before, last = request.messages
        assert tuple(before) == CTX.messages
        assert last["role"] == "user"
        assert fault in last["content"]
        assert began in last["content"]


async def test_three_repairs_make_four_requests() -> None:
    """By default a reply is asked for again three times; then comes a typed error with the last text."""
    model, error = await ask("one", "two", "three", "four")
    assert (len(model.seen), RETRIES) == (4, 3)
    assert type(error) is OutputError
    assert isinstance(error, ValueError)
    assert (error.text, error.finish, error.attempts) == ("four", "stop", 4)
    assert error.partial.text == "four"
    assert "Person: there is no JSON object in the reply (after 4 requests)" in str(error)


@pytest.mark.parametrize("retries", [0, 1])
async def test_the_number_of_repairs_is_the_caller_s(retries: int) -> None:
    """Fewer repairs are as good as none."""
    model, error = await ask("prose", retries=retries)
    assert (len(model.seen), error.attempts) == (retries + 1, retries + 1)


async def test_an_escape_explosion_has_its_own_feedback_and_the_same_budget() -> None:
    """A reply of endless escapes is told so, without being quoted, and counts as any other repair."""
    model, error = await ask("prose", EXPLODED)
    assert len(model.seen) == 4
    assert [request.messages[-1]["content"] == ESCAPE_SEQUENCE_RETRY_MESSAGE for request in model.seen[1:]] == [
        False,
        True,
        True,
    ]
    assert "escape sequence" in str(error)


async def test_a_cut_reply_is_told_apart_and_not_repaired() -> None:
    """A reply that ran into the output limit is no wrong one: it has its own error, with the text and the finish."""
    model, error = await ask(says('{"name": "An', finish="length"))
    assert len(model.seen) == 1
    assert isinstance(error, OutputTruncatedError)
    assert (error.text, error.finish) == ('{"name": "An', "length")


@pytest.mark.parametrize("finish", ["refusal", "content-filter"])
async def test_refusals_are_typed_and_not_repaired(finish: str) -> None:
    """F20: a refusal, or a filtered reply, even with text, is an error of its own that holds the reply."""
    model, error = await ask(says("I will not.", finish=finish, raw_reason="policy"))
    assert len(model.seen) == 1
    assert isinstance(error, RefusedError)
    assert (error.partial.finish, error.partial.text) == (finish, "I will not.")
    assert "policy" in str(error)


async def test_calls_are_not_validated() -> None:
    """A reply that calls tools is no answer yet: it comes back as it is, without a value."""
    step = StepResult(events=(Text("hm"), make_call("look", {}, call_id="1")), finish="tool-calls")
    model = Asked(step)
    ctx = replace(CTX, tools=(ToolSpec(name="look"),))
    got, value = await answered(model, ctx, repair=repairing(CTX.output, ("output-schema",)))
    assert (got.events, value, len(model.seen)) == (step.events, None, 1)


async def test_calls_of_tools_that_nobody_offered_are_no_answer() -> None:
    """A model that makes a tool up is asked again; a call never passes for a value."""
    step = StepResult(events=(make_call("look", {}, call_id="1"),), finish="tool-calls")
    model, value = await ask(step, ANN)
    assert (value, len(model.seen)) == (Person(name="Ann", age=3), 2)
    _, error = await ask(step)
    assert type(error) is OutputError


async def test_a_paused_reply_is_judged_where_nobody_goes_on() -> None:
    """Without a loop a pause is an end like any other."""
    assert (await ask(says(ANN, finish="pause")))[1] == Person(name="Ann", age=3)


async def test_nothing_of_the_callers_is_changed() -> None:
    """F22: request and messages are the same after repairs and after an error."""
    twin = copy.deepcopy(CTX)
    await ask("prose")
    assert twin == CTX


async def test_the_tokens_of_all_requests_are_counted() -> None:
    """A repaired reply has spent what all its requests did, and a note says how many there were."""
    model = Asked("prose", ANN)
    step, _ = await answered(model, CTX, repair=repairing(CTX.output, ("output-schema",)))
    assert step.usage is not None
    assert (step.usage.input_tokens, step.usage.output_tokens) == (10, 4)
    assert [note.code for note in step.notes] == [NoteCode.OUTPUT_REPAIRED]


@pytest.mark.parametrize("supports", [("output-schema",), ("tools",), ()])
async def test_each_strategy_is_repaired_alike(supports: Any) -> None:
    """Natively, by tool and in words, a wrong reply is asked for again in the same way."""
    call = StepResult(events=(make_call("Person", {"name": "Ann"}, call_id="1"),), finish="tool-calls")
    right = StepResult(events=(make_call("Person", {"name": "Ann", "age": 3}, call_id="1"),), finish="tool-calls")
    model, value = await ask(
        *((call, right) if supports == ("tools",) else ('{"name": "Ann"}', ANN)), supports=supports
    )
    assert value == Person(name="Ann", age=3)
    assert "age: it is required" in model.seen[1].messages[-1]["content"]


async def test_a_stranger_s_form_is_validated_too() -> None:
    """A form that only says its schema is sent as it is, and replies are checked against that schema."""

    class Own:
        def name(self) -> str:
            return "own"

        def json_schema(self) -> dict[str, Any]:
            return {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

        def response_format(self) -> dict[str, Any]:
            return {"type": "json_object"}

    form = Own()
    model = Asked('{"n": "x"}', '{"n": 1}')
    _, value = await answered(model, GenerateContext(output=form), repair=repairing(form, ("output-schema",)))
    assert value == {"n": 1}
    assert [request.output for request in model.seen] == [form, form]


async def test_plain_text_is_its_own_value() -> None:
    """Without a form, or with one of plain text, one request is made and its text is the value."""
    for form in (None, OutputSchema(str)):
        model = Asked("Hello.")
        step, value = await answered(model, GenerateContext(output=form), repair=repairing(form, ()))
        assert (step.text, value, model.seen[0].output) == ("Hello.", "Hello.", None)


def test_the_shared_texts_are_there() -> None:
    """Adapters share the feedback on escapes and the error of a schema that resolves to nothing."""
    assert "escape" in ESCAPE_SEQUENCE_RETRY_MESSAGE
    assert "schema" in SCHEMA_NORMALIZATION_ERROR


def test_no_negative_number_of_repairs() -> None:
    """A number of repairs that cannot be is refused, with what can."""
    with pytest.raises(ValueError, match=r"retries=-1: must be a whole number from 0"):
        repairing(CTX.output, (), retries=-1)
