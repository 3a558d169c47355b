"""What records say in the conventions' words."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import pytest
from opentelemetry.semconv._incubating.attributes.gen_ai_attributes import GenAiProviderNameValues

from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.openai_responses import ResponsesClient
from isthmus.adapters.scripted import ScriptedAdapter
from isthmus.conformance import Play, serve
from isthmus.errors import IsthmusError
from isthmus.models import Config
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Finish, Text
from isthmus.observability.facts import provider_name
from support.telemetry import traced

ASK = GenerateContext(messages=({"role": "user", "content": "hello"},))


@pytest.mark.parametrize(
    ("preset", "name"),
    [
        ("azure", "azure.ai.openai"),
        ("azure-v1", "azure.ai.openai"),
        ("foundry", "azure.ai.inference"),
        ("anthropic-foundry", "azure.ai.inference"),
        ("vertex", "gcp.vertex_ai"),
        ("anthropic-vertex", "gcp.vertex_ai"),
        ("gemini", "gcp.gemini"),
        ("bedrock", "aws.bedrock"),
        ("xai", "x_ai"),
        ("mistral", "mistral_ai"),
        ("openai-responses", "openai"),
    ],
)
def test_a_provider_that_the_conventions_know_has_their_name(preset: str, name: str) -> None:
    """Every preset of such a provider, whatever it is called here."""
    assert provider_name(preset) == name
    assert name in {each.value for each in GenAiProviderNameValues}


def test_the_client_of_the_responses_api_says_whose_it_is() -> None:
    """At Azure it is another provider than at the SDK's own API."""
    config = Config(api_key="k", model="azure/m", base_url="https://r.openai.azure.com")
    assert provider_name(ResponsesClient(config).provider) == "azure.ai.openai"
    client = ResponsesClient(Config(api_key="k", model="m"))
    assert (provider_name(client.provider), client.base_url) == ("openai", "https://api.openai.com/v1")


class Nameless(ModelAdapter):
    """Says nothing of itself."""

    id = "mine"

    async def stream(self, ctx: Any) -> Any:
        yield Text("hi")
        yield Finish("stop")


async def test_what_the_conventions_require_is_always_there() -> None:
    """Operation and provider stand on the span and in each metric also where an adapter names no provider."""
    Nameless.provider = ""
    with traced() as seen:
        await Nameless().generate(ASK)
        said = seen.one("chat")
        assert (said["gen_ai.operation.name"], said["gen_ai.provider.name"]) == ("chat", "custom")
        (point,) = seen.points("gen_ai.client.operation.duration")
        assert point.attributes["gen_ai.provider.name"] == "custom"


async def test_the_span_says_how_the_adapter_asks_where_the_request_does_not() -> None:
    """The adapter's own temperature and effort, and options by a provider's names, count where the request has none."""
    options = {"top_k": 5, "frequency_penalty": 0.5, "presence_penalty": -1, "n": 2, "temperature": 9.0, "top_p": "odd"}
    with traced() as seen:
        async with serve(Play.whole(b"", status=503), repeat=True) as server:
            own = {"base_url": server.url, "api_key": "k", "temperature": 0.25, "effort": "low"}
            for ctx in (ASK, GenerateContext(messages=ASK.messages, temperature=0.5, effort="high")):
                async with aclosing(OpenAIChatAdapter(model="m", **own)) as adapter:  # type: ignore[arg-type]
                    with pytest.raises(IsthmusError):
                        await adapter.generate(ctx)
        await ScriptedAdapter(["x"]).generate(GenerateContext(messages=ASK.messages, options=options))
        own_said, asked, optional = (dict(span.attributes or {}) for span in seen.named("chat"))
    sampled = "gen_ai.request.temperature", "isthmus.effort"
    assert [own_said[name] for name in sampled] == [0.25, "low"]
    assert [asked[name] for name in sampled] == [0.5, "high"]
    names = "temperature", "top_k", "frequency_penalty", "presence_penalty", "choice.count"
    assert [optional[f"gen_ai.request.{name}"] for name in names] == [9.0, 5.0, 0.5, -1.0, 2]
    assert [type(optional[f"gen_ai.request.{name}"]) for name in names] == [float, float, float, float, int]
    assert "gen_ai.request.top_p" not in optional
