"""What may stand among messages, and what it is then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import InvalidRequestError
from isthmus.harness import AgentDescriptor, DefaultAgent, RunState
from isthmus.models.events import Native
from isthmus.models.responses import Choice, Message, ModelResponse
from support.turns import Turns, asks, call, says


class Order(BaseModel):
    """An object with a form."""

    item: str


@dataclass
class Place:
    """Another."""

    city: str


PARTS = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]
RESPONSE = ModelResponse(choices=[Choice(message=Message(content="Hello."), finish_reason="stop")])


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("hi", {"role": "user", "content": "hi"}),
        (PARTS, {"role": "user", "content": PARTS}),
        (Order(item="tea"), {"role": "user", "content": '{"item":"tea"}'}),
        (Place("Oslo"), {"role": "user", "content": '{"city":"Oslo"}'}),
        (RESPONSE, {"role": "assistant", "content": "Hello."}),
    ],
    ids=["text", "parts", "model", "dataclass", "response"],
)
@pytest.mark.parametrize("where", ["input", "history", "state"])
async def test_an_item_is_the_message_that_says_it(item: Any, message: dict[str, Any], where: str) -> None:
    """In an input, in a history and in a state alike."""
    model = Turns(says("A"))
    agent = DefaultAgent(model=model)
    if where == "input":
        await agent.run([item, {"role": "user", "content": "go"}])
    elif where == "history":
        await agent.run("go", [item])
    else:
        await agent.run(RunState(history=[item, {"role": "user", "content": "go"}]))
    assert model.seen[0].messages == (message, {"role": "user", "content": "go"})


async def test_replies_of_a_run_are_the_history_of_another() -> None:
    """A run's own `responses` go back as they were said, calls and native forms included."""
    native = Native("turns", "message", b'{"own": "form"}')
    turn = [*asks(call("look", "a"))]
    turn[-1] = type(turn[-1])("tool-calls", None, None, None, native, ())
    model = Turns(turn, says("done"))

    async def look() -> str:
        """Look."""
        return "seen"

    result = await DefaultAgent(model=model, tools=[look]).run("go")
    again = Turns(says("B"))
    told = result.messages[2]
    await DefaultAgent(descriptor=AgentDescriptor(model=again)).run(
        ["go", result.responses[0], told, result.responses[1], "and?"]
    )
    assert again.seen[0].messages[:4] == result.messages
    assert again.seen[0].messages[1]["_isthmus"] == result.messages[1]["_isthmus"]


@pytest.mark.parametrize(
    "item",
    [3, None, b"x", object(), Order, {"content": "x"}, {"role": None, "content": "x"}, {"role": 5}, {"type": 5}],
    ids=["number", "none", "bytes", "object", "class", "no role", "role none", "role number", "type number"],
)
def test_what_says_nothing_is_refused_by_place(item: Any) -> None:
    """Before any call, in whatever it stands."""
    agent = DefaultAgent(model=Turns())
    with pytest.raises(InvalidRequestError, match=r"input\[1\]"):
        agent.run_stream(["a", item])
    with pytest.raises(InvalidRequestError, match=r"history\[1\]"):
        agent.run_stream("go", ["a", item])
    with pytest.raises(InvalidRequestError, match=r"RunState.history\[1\]"):
        RunState(history=["a", item])
