"""One question, a typed answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

import isthmus
from isthmus import OutputSchema, ask, parse, run_sync
from isthmus.chain import define_chain
from isthmus.errors import (
    InvalidRequestError,
    OutputDefinitionError,
    OutputError,
    OutputTruncatedError,
    RefusedError,
    TransientError,
)
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text
from support.turns import Turns, says


@dataclass
class Person:
    """Somebody."""

    name: str
    age: int


class Mood(Enum):
    """How it sounds."""

    GOOD = "good"
    BAD = "bad"


ANN = '{"name": "Ann", "age": 3}'


def model(*turns: Any, supports: Any = ("output-schema",)) -> Turns:
    """A model that plays these turns."""
    made = Turns(*turns)
    made.supports = frozenset(supports)
    return made


async def test_one_call_gives_the_typed_object() -> None:
    """`parse` asks once and returns a value of the type: a dataclass, a list, an enum, a number."""
    assert await parse("Who?", Person, model=model(says(ANN))) == Person("Ann", 3)
    assert await parse("Who?", list[Person], model=model(says(f'{{"response": [{ANN}]}}'))) == [Person("Ann", 3)]
    assert await parse("How?", Mood, model=model(says('{"response": "good"}'))) is Mood.GOOD
    assert await parse("How many?", int, model=model(says('{"response": 7}'))) == 7
    assert await parse("Say it.", str, model=model(says("Hello."))) == "Hello."


async def test_what_is_asked_for_reaches_the_model() -> None:
    """Question, instructions, ceiling, effort and temperature are those of `ask`."""
    asked = model(says(ANN))
    await parse("Who?", Person, model=asked, system="Be brief.", max_tokens=9, effort="low", temperature=0.5)
    assert asked.seen == [
        GenerateContext(
            brief="Be brief.",
            messages=({"role": "user", "content": "Who?"},),
            max_output_tokens=9,
            effort="low",
            temperature=0.5,
            output=OutputSchema(Person),
        )
    ]


def test_sync_code_uses_it_as_ask() -> None:
    """`run_sync(parse, …)` is the sync form, as for `ask`."""
    assert run_sync(parse, "Who?", Person, model=model(says(ANN))) == Person("Ann", 3)
    assert run_sync(parse("Who?", Person, model=model(says(ANN)))) == Person("Ann", 3)


async def test_a_wrong_answer_is_asked_for_again_and_then_an_error() -> None:
    """Three repairs, then a typed error with the last text."""
    asked = model(says("a"), says("b"), says("c"), says("d"))
    with pytest.raises(OutputError) as caught:
        await parse("Who?", Person, model=asked)
    assert (caught.value.text, len(asked.seen)) == ("d", 4)
    assert await parse("Who?", Person, model=model(says("a"), says(ANN))) == Person("Ann", 3)


async def test_no_failure_passes_for_an_answer() -> None:
    """Cut, refused and broken replies each raise their own error."""
    with pytest.raises(OutputTruncatedError):
        await parse("Who?", Person, model=model(says('{"na', finish="length")))
    with pytest.raises(RefusedError) as refused:
        await parse("Who?", Person, model=model(says("No.", finish="refusal")))
    assert refused.value.partial.text == "No."
    with pytest.raises(TransientError) as lost:
        await parse("Who?", Person, model=model([Text('{"na'), TransientError("lost")]))
    assert lost.value.partial.text == '{"na'


async def test_the_strategy_is_that_of_the_weakest_tier() -> None:
    """Of a chain, a form is asked for in the way that every tier supports, so any of them may answer."""
    strong, weak = model(says("x")), model(says(ANN), supports=("tools",))
    weak.id, strong.supports = "weak", frozenset({"tools", "output-schema"})
    chain = define_chain(id="c", tiers=[strong, weak])
    with pytest.raises(OutputError):
        await parse("Who?", Person, model=chain)
    assert ([tool.name for tool in strong.seen[0].tools], strong.seen[0].output) == (["Person"], None)


async def test_a_native_form_is_refused_where_a_tier_lacks_it() -> None:
    """An undeclared need is refused before any call."""
    asked = model(says(ANN), supports=("tools",))
    with pytest.raises(InvalidRequestError, match="output-schema"):
        await parse("Who?", OutputSchema(Person, strategy="native"), model=asked)
    assert not asked.seen


async def test_ask_takes_a_form_too_and_gives_its_text() -> None:
    """`ask(output=…)` validates as `parse` does and returns the text."""
    assert await ask("Who?", model=model(says("a"), says(ANN)), output=Person) == ANN
    with pytest.raises(OutputError):
        await ask("Who?", model=model(says("a")), output=Person)


async def test_a_wrong_type_is_refused_before_any_call() -> None:
    """What is no type is told so, and the model is not asked."""
    asked = model(says(ANN))
    with pytest.raises(OutputDefinitionError, match="this is no type"):
        await parse("Who?", 5, model=asked)
    assert not asked.seen


async def test_what_it_opened_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was made for one question is closed after it, also where the answer is an error."""
    made = model(says("a"))
    monkeypatch.setattr("isthmus.build.connect", lambda _: made)
    with pytest.raises(OutputError):
        await parse("Who?", Person, model="any:model")
    assert made.closed == 1


async def test_it_stands_in_the_door() -> None:
    """`isthmus.parse` and `isthmus.OutputSchema` are names of the door."""

    class Plain:
        supports = frozenset({"output-schema"})

        async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
            yield Text(ANN)
            yield Finish("stop")

    assert await isthmus.parse("Who?", isthmus.OutputSchema(Person), model=Plain()) == Person("Ann", 3)
