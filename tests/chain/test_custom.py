"""A model that no table lists, on a class that speaks its provider's API."""

from __future__ import annotations

import json
from typing import Any

import pytest

from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.chain import custom_model, define_chain
from isthmus.conformance import Play, serve
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext
from support.chain_doubles import CTX


class Plain(ModelAdapter):
    """Says its model's name."""

    def __init__(self, model: str) -> None:
        self.model = model

    def generate(self, ctx: GenerateContext) -> dict[str, Any]:
        """One text."""
        return {"events": [{"type": "text", "text": self.model}], "finish": "stop"}


@pytest.mark.parametrize("shipped", [AnthropicAdapter, OpenAIChatAdapter])
def test_it_is_an_adapter_of_the_class_with_the_limits_given(shipped: Any) -> None:
    """What is said of the model counts, for the chain and for the request; the rest is the class's own."""
    made = custom_model(shipped, "new-9", window_tokens=50_000, max_output_tokens=2_000, api_key="k")
    assert isinstance(made, shipped)
    assert (made.model, made.window_tokens, made.max_output_tokens) == ("new-9", 50_000, 2_000)
    assert made.id == f"{made.provider}:new-9"
    assert "tools" in made.supports
    (tier,) = define_chain(id="c", tiers=[made]).members
    assert (tier.window_tokens, tier.max_output_tokens) == (50_000, 2_000)


@pytest.mark.parametrize(
    ("shipped", "text"), [(AnthropicAdapter, "max_tokens"), (OpenAIChatAdapter, "max_completion_tokens")]
)
async def test_its_model_and_its_ceiling_are_sent(shipped: Any, text: str) -> None:
    """The request names the model; its ceiling is the one asked for, or else the model's own."""
    async with serve(Play.steps("hello", "hello"), repeat=False) as server:
        base = server.url + ("" if shipped is AnthropicAdapter else "/v1")
        made = custom_model(shipped, "new-9", window_tokens=50_000, max_output_tokens=2_000, api_key="k", base_url=base)
        async with define_chain(id="c", tiers=[made]) as chain:
            assert (await chain.generate(CTX)).text == "hello"
            await chain.generate(GenerateContext(messages=CTX.messages, max_output_tokens=9_000))
        sent = [json.loads(request.body) for request in server.requests]
    assert [(body["model"], body.get(text, body.get("max_tokens"))) for body in sent] == [("new-9", 2_000)] * 2


def test_two_of_one_model_have_names_of_their_own() -> None:
    """`id` names it in a chain, `supports` says what it can do."""
    size: dict[str, Any] = {"window_tokens": 900, "max_output_tokens": 90, "api_key": "k"}
    one = custom_model(OpenAIChatAdapter, "m", id="one", **size)
    two = custom_model(OpenAIChatAdapter, "m", id="two", supports={"tools"}, **size)
    chain = define_chain(id="c", tiers=[one, two])
    assert [member.id for member in chain.members] == ["one", "two"]
    assert chain.supports == {"tools"}


async def test_a_class_without_a_ceiling_of_its_own_serves_too() -> None:
    """A class that takes no `max_tokens` is not given any."""
    made = custom_model(Plain, "m", window_tokens=900, max_output_tokens=90)
    assert (await define_chain(id="c", tiers=[made]).generate(CTX)).text == "m"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"window_tokens": 0}, "window_tokens"),
        ({"max_output_tokens": 900}, "max_output_tokens"),
        ({"supports": "tools"}, "supports"),
        ({"id": " "}, "id"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], named: str) -> None:
    """Wrong numbers, one string for several words, and an empty name are refused before any call."""
    with pytest.raises(ConfigError, match=named):
        custom_model(Plain, "m", **{"window_tokens": 900, "max_output_tokens": 90, **wrong})


def test_an_instance_is_no_class() -> None:
    """Given an adapter in the place of a class, it says so."""
    with pytest.raises(ConfigError, match="must be an adapter class"):
        custom_model(object(), "m", window_tokens=9, max_output_tokens=3)  # type: ignore[arg-type]
