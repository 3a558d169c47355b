"""Forms and cancellation on the model face, as whoever calls it sees them."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.errors import (
    CallCancelledError,
    IsthmusError,
    OutputDefinitionError,
    OutputError,
    OutputTruncatedError,
    RefusedError,
)
from isthmus.harness import DefaultAgent
from isthmus.models import CancellationToken, OutputSchema
from isthmus.models.contract import GenerateContext
from isthmus.models.events import CallDelta, Finish, Text
from isthmus.models.normalise import make_call
from support.turns import tasks


class Person(BaseModel):
    """Somebody."""

    name: str
    age: int


ANN = '{"name": "Ann", "age": 3}'
HELLO = [{"role": "user", "content": "Who?"}]


class Steps(ModelAdapter):
    """Plays turns of events, the last one again and again."""

    id = "steps"
    supports = frozenset({"output-schema"})

    def __init__(self, *turns: Any) -> None:
        self.turns = turns
        self.seen: list[GenerateContext] = []
        self.open = 0

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Any]:
        """The next turn."""
        turn = self.turns[min(len(self.seen), len(self.turns) - 1)]
        self.seen.append(ctx)
        self.open += 1
        try:
            for event in [Text(turn), Finish("stop")] if isinstance(turn, str) else turn:
                if isinstance(event, float):
                    await asyncio.sleep(event)
                else:
                    yield event
        finally:
            self.open -= 1


async def hear(events: AsyncIterator[Any], kinds: list[str]) -> None:
    """Read a stream, and keep the kinds of its events."""
    async for event in events:
        kinds.append(event.kind)


async def test_a_schema_is_sent_and_validated() -> None:
    """A supplied schema counts by default: it is sent, the reply is checked, and a wrong one asked for again."""
    adapter = Steps("prose", '{"name": "Ann"}', ANN)
    response = await adapter.get_response(HELLO, schema=Person)
    assert OutputSchema(Person).parse_response(response) == Person(name="Ann", age=3)
    assert [ctx.output for ctx in adapter.seen] == [OutputSchema(Person)] * 3
    assert [len(ctx.messages) for ctx in adapter.seen] == [1, 2, 2]
    assert HELLO == [{"role": "user", "content": "Who?"}]


async def test_four_requests_then_a_typed_error() -> None:
    """Exhausted repair is never handed back as if it were an answer: the error has the last text."""
    adapter = Steps("a", "b", "c", "d")
    with pytest.raises(OutputError) as caught:
        await adapter.get_response(HELLO, schema=OutputSchema(Person))
    assert (caught.value.text, len(adapter.seen)) == ("d", 4)


async def test_the_number_of_repairs_is_the_adapter_s() -> None:
    """`schema_validation_retries` of the adapter counts."""
    adapter = Steps("a")
    adapter.schema_validation_retries = 1
    with pytest.raises(OutputError):
        await adapter.get_response(HELLO, schema=Person)
    assert len(adapter.seen) == 2


@pytest.mark.parametrize(
    ("finish", "kind"), [("length", OutputTruncatedError), ("refusal", RefusedError), ("content-filter", RefusedError)]
)
async def test_cut_and_refused_replies_are_typed(finish: str, kind: type[IsthmusError]) -> None:
    """F20: with a schema, truncation, refusal and filter each have their own error, whole and streamed."""
    turn = [Text('{"na'), Finish(finish)]
    with pytest.raises(kind):
        await Steps(turn).get_response(HELLO, schema=Person)
    with pytest.raises(kind):
        [event async for event in Steps(turn).stream_response(HELLO, schema=Person)]


async def test_a_plain_schema_changes_nothing() -> None:
    """`OutputSchema(str)` and no schema at all ask once, for text; a refusal then is an ordinary reply."""
    for schema in (None, OutputSchema(str)):
        adapter = Steps([Text("No."), Finish("refusal")])
        response = await adapter.get_response(HELLO, schema=schema)
        assert (response.choices[0].finish_reason, len(adapter.seen)) == ("stop", 1)


async def test_a_tool_takes_the_answer_where_forms_are_unknown() -> None:
    """By tool, whole and streamed, the answer arrives as text and no call is seen."""
    deltas = [CallDelta(0, "c", "Person", piece) for piece in ('{"name": "Ann",', ' "age": 3}')]
    turn = [*deltas, make_call("Person", ANN, call_id="c"), Finish("tool-calls")]
    adapter = Steps(turn)
    adapter.supports = frozenset({"tools"})
    response = await adapter.get_response(HELLO, schema=Person)
    assert (response.choices[0].message.content, response.choices[0].message.tool_calls) == (ANN, None)
    events = [event async for event in adapter.stream_response(HELLO, schema=Person)]
    assert [(event.kind, event.text) for event in events[:-1]] == [
        ("text_delta", '{"name": "Ann",'),
        ("text_delta", ' "age": 3}'),
    ]
    assert events[-1].response is not None
    assert events[-1].response.choices[0].finish_reason == "stop"


async def test_a_stream_validates_and_never_repairs() -> None:
    """What was shown of a stream cannot be unsaid: a wrong reply is an "error" event and a typed error, asked once."""
    adapter = Steps("prose")
    kinds: list[str] = []
    with pytest.raises(OutputError, match="no JSON object"):
        await hear(adapter.stream_response(HELLO, schema=Person), kinds)
    assert (kinds, len(adapter.seen)) == (["text_delta", "error"], 1)
    right = [event async for event in Steps(ANN).stream_response(HELLO, schema=Person)]
    assert [event.kind for event in right] == ["text_delta", "completed"]


async def test_a_wrong_schema_is_told_as_it_is() -> None:
    """What is no schema is the caller's mistake, not a provider's failure."""
    with pytest.raises(OutputDefinitionError, match="this is no type"):
        await Steps(ANN).get_response(HELLO, schema="Person")


async def test_a_parent_reached_by_super_leaves_the_repair_to_whoever_asked() -> None:
    """A class that calls its parent's method within a run repairs once, not once more inside."""

    class Mine(Steps):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            return await super().get_response(messages, *args, **kwargs)

    adapter = Mine("prose")
    with pytest.raises(OutputError):
        await DefaultAgent(model=adapter, output=Person).run("Who?")
    assert len(adapter.seen) == 4


# Cancellation


@pytest.mark.parametrize("schema", [None, Person])
async def test_a_cancelled_token_ends_the_call(schema: Any) -> None:
    """A model that ignores the token is left within 50 ms, its stream closed, with an error of ours."""
    adapter, token = Steps([Text("x"), 30.0, Finish("stop")]), CancellationToken()
    call = asyncio.ensure_future(adapter.get_response(HELLO, schema=schema, cancellation_token=token))
    while not adapter.open:
        await asyncio.sleep(0.005)
    pressed = time.monotonic()
    threading.Thread(target=token.cancel).start()
    with pytest.raises(CallCancelledError, match="its cancellation token was cancelled") as caught:
        await call
    assert time.monotonic() - pressed < 0.5
    assert isinstance(caught.value, InterruptedError)
    await asyncio.sleep(0.01)
    assert (adapter.open, tasks()) == (0, set())


async def test_a_token_that_is_cancelled_already_asks_nobody() -> None:
    """Nothing is sent for a call that nobody waits for."""
    adapter, token = Steps(ANN), CancellationToken()
    token.cancel()
    with pytest.raises(CallCancelledError):
        await adapter.get_response(HELLO, cancellation_token=token)
    with pytest.raises(CallCancelledError):
        [event async for event in adapter.stream_response(HELLO, cancellation_token=token)]
    assert not adapter.seen


async def test_a_cancelled_token_ends_a_stream() -> None:
    """A stream that waits for its next event ends with an "error" event and the same error."""
    adapter, token = Steps([Text("x"), 30.0, Finish("stop")]), CancellationToken()
    kinds: list[str] = []
    threading.Timer(0.05, token.cancel).start()
    begun = time.monotonic()
    with pytest.raises(CallCancelledError):
        await hear(adapter.stream_response(HELLO, cancellation_token=token), kinds)
    assert time.monotonic() - begun < 10
    assert kinds == ["text_delta", "error"]
    await asyncio.sleep(0.01)
    assert (adapter.open, tasks()) == (0, set())


async def test_a_token_that_nobody_cancels_changes_nothing() -> None:
    """A call with a token answers like any other, and leaves no task."""
    token = CancellationToken()
    assert (await Steps(ANN).get_response(HELLO, cancellation_token=token)).choices[0].message.content == ANN
    events = [event async for event in Steps(ANN).stream_response(HELLO, cancellation_token=token)]
    assert [event.kind for event in events] == ["text_delta", "completed"]
    await asyncio.sleep(0)
    assert not tasks()


async def test_a_model_that_will_not_stop_is_left_behind() -> None:
    """A call that swallows its cancellation doesn't hold its caller."""
    done = asyncio.Event()

    class Stubborn(ModelAdapter):
        async def chat(self, messages: Any, tools: Any) -> ChatResponse:
            while not done.is_set():
                try:
                    await asyncio.wait_for(done.wait(), 5)
                except asyncio.CancelledError:
                    continue
            return ChatResponse("late", [], "end_turn")

    token = CancellationToken()
    threading.Timer(0.02, token.cancel).start()
    begun = time.monotonic()
    with pytest.raises(CallCancelledError):
        await Stubborn().get_response(HELLO, cancellation_token=token)
    assert time.monotonic() - begun < 10
    done.set()
    await asyncio.sleep(0.01)
    assert not tasks()
