"""Structured replies while they grow."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import OutputDefinitionError
from isthmus.models import OutputSchema, partial_outputs
from isthmus.models.events import Call, CallDelta, Finish, Marker, Reset, Text
from isthmus.models.executor import ToolResult
from isthmus.models.strategy import PREVIEW


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


class Source:
    """Events, and whether they were closed."""

    def __init__(self, *events: Any) -> None:
        self._events = events
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[Any]:
        for event in self._events:
            yield event

    async def aclose(self) -> None:
        """Note it."""
        self.closed = True


async def parts(*events: Any, schema: Any = Person) -> list[Any]:
    """All partial values."""
    return [part async for part in partial_outputs(Source(*events), schema)]


GROWN = [{}, {"name": "A"}, {"name": "Ann"}, {"name": "Ann", "age": 3}]
PIECES = ("{", '"name": "A', 'nn"', ', "age": 3', "}")


async def test_an_object_grows_with_its_text() -> None:
    """Strings grow, members appear once they are complete, and nothing is shown twice."""
    assert await parts(*map(Text, PIECES), Finish("stop")) == GROWN


async def test_an_object_grows_with_the_arguments_of_its_call() -> None:
    """By tool, the previews of the answer's call are read, and of no other."""
    other = CallDelta(0, "x", "look", '{"q": 1}')
    deltas = [CallDelta(1, "a", "Person", piece) for piece in PIECES]
    assert await parts(other, *deltas, Call("Person", {}, "a")) == GROWN


async def test_an_object_grows_with_the_previews_of_a_run() -> None:
    """A run shows previews, then the text that stands: the same object, shown once."""
    assert await parts(*[Marker(PREVIEW, None, piece) for piece in PIECES], Text("".join(PIECES))) == GROWN


async def test_the_object_begins_anew_where_a_run_asks_again() -> None:
    """After `Reset` the object is that of the next reply."""
    events = (Marker(PREVIEW, None, '{"nome": "x"}'), Reset(2), Marker(PREVIEW, None, '{"name": "y"'))
    assert await parts(*events) == [{"nome": "x"}, {"name": "y"}]


async def test_rounds_of_tools_are_passed_over() -> None:
    """What was said before a tool was called is no part of the answer."""
    events = (
        Marker(PREVIEW, None, "Let me {see"),
        Text("Let me {see"),
        ToolResult("1", "look", "{}"),
        *map(Text, PIECES),
    )
    assert (await parts(*events))[-4:] == GROWN


async def test_prose_and_fences_before_the_object_are_passed_over() -> None:
    """The object begins at its brace."""
    assert await parts(Text("Here:\n``"), Text('`json\n{"name": "Ann"}\n```')) == [{"name": "Ann"}]


async def test_a_value_is_taken_out_of_its_wrapper() -> None:
    """What travels in an object is shown without it."""
    assert await parts(Text('{"response": '), Text("[1, 2"), Text(", 3]}"), schema=list[int]) == [[1], [1, 2, 3]]


async def test_the_stream_is_closed_at_the_end() -> None:
    """Whoever stops early closes the stream behind it."""
    source = Source(*map(Text, PIECES))
    values = partial_outputs(source, OutputSchema(Person))
    assert await anext(values) == {}
    await values.aclose()  # type: ignore[attr-defined]
    assert source.closed


async def test_plain_text_has_no_parts() -> None:
    """Asked for parts of text, it says what to read instead."""
    with pytest.raises(OutputDefinitionError, match="plain text has no parts: read the text events"):
        await parts(Text("x"), schema=str)
