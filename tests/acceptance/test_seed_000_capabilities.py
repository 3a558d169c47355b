"""The page on custom adapters: capabilities, the ceiling and what is forwarded, sentence by sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import isthmus
from isthmus.adapters import registry
from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import (
    ModelAdapter,
    ModelCapabilities,
    apply_thinking,
    capabilities_from_limits,
    load_adapter,
    register_adapter,
)
from isthmus.errors import ConfigError, InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.fold import consume_stream
from support.caught import MESSAGES, Caught

ASK = GenerateContext(messages=({"role": "user", "content": "Hi"},))
DONE = {"events": [{"type": "text", "text": "ok"}], "finish": "stop"}


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names registered in one test are gone in the next."""
    monkeypatch.setattr(registry, "_registered", {})


class Counting(ModelAdapter):
    """An adapter that knows by itself what its model can do, and keeps its ceiling under a name of its own."""

    made: list[int]
    asked: list[str]

    def __init__(self, *, model: str = "", max_tokens: int = 8192) -> None:
        self.model = model
        self.room = max_tokens
        type(self).made.append(max_tokens)

    def capabilities(self) -> ModelCapabilities:
        type(self).asked.append(self.model)
        return ModelCapabilities(context_window=9000, max_output_tokens=1000)

    async def generate(self, ctx: GenerateContext) -> Any:
        return DONE


@pytest.fixture
def counting() -> type[Counting]:
    """The class with fresh counts."""
    Counting.made, Counting.asked = [], []
    register_adapter("counting", Counting)
    return Counting


@pytest.mark.parametrize(("wanted", "seen"), [(64000, 1000), (1000, 1000), (10, 10), (None, 1000)])
def test_its_own_source_clamps_before_it_sees_the_ceiling(
    wanted: int | None, seen: int, counting: type[Counting]
) -> None:
    """An adapter that stores `max_tokens` under any name sees the lower number, whoever says what the model can do."""
    adapter = load_adapter("counting", model="m", **({"max_tokens": wanted} if wanted else {}))
    assert adapter.room == seen


def test_it_is_asked_once_at_construction(counting: type[Counting]) -> None:
    """`capabilities()` is called once when an adapter is made within its ceiling."""
    load_adapter("counting", model="m", max_tokens=500)
    assert (counting.asked, counting.made) == (["m"], [500])


async def test_a_built_in_is_asked_once_at_construction_and_once_a_turn() -> None:
    """`capabilities()` is called once when a built-in adapter is made, and once for each call of the model."""
    asked = []

    class Told(AnthropicAdapter):
        def capabilities(self) -> ModelCapabilities:
            asked.append(1)
            return super().capabilities()

    register_adapter("told", Told)
    adapter = load_adapter("told", model="m", api_key="k", transport=Caught(MESSAGES))
    assert len(asked) == 1
    for turn in range(2, 5):
        await (adapter.generate(ASK) if turn % 2 else consume_stream(adapter.stream(ASK)))
        assert len(asked) == turn


async def test_what_it_says_at_a_turn_counts_for_that_turn() -> None:
    """An override that learns more later is heard at the next turn: ceiling, thinking and markers follow it."""

    class Learns(AnthropicAdapter):
        caps = ModelCapabilities()

        def capabilities(self) -> ModelCapabilities:
            return self.caps

    caught = Caught(MESSAGES)
    adapter = Learns(model="m", api_key="k", transport=caught, effort="high")
    await adapter.generate(ASK)
    adapter.caps = ModelCapabilities(max_output_tokens=100, adaptive_thinking=False, cache_markers=False)
    reply = await adapter.generate(ASK)
    first, second = (sent.body for sent in caught.sent)
    assert (first["max_tokens"], second["max_tokens"]) == (8192, 100)
    assert ("thinking" in first, "thinking" in second) == (True, False)
    assert ("cache_control" in json.dumps(first), "cache_control" in json.dumps(second)) == (True, False)
    assert {note.code for note in reply.notes} == {"parameter-changed", "parameter-dropped"}


def test_the_window_comes_from_capabilities_and_not_from_the_models_name() -> None:
    """`context_window` is the authoritative figure; nothing is guessed from the id where it is unset."""
    table = {"claude": {"context_window": 200000}, "claude-sonnet-4-6": {"max_output_tokens": 64000}}
    adapter = isthmus.connect("anthropic:claude-sonnet-4-6-via-gateway", api_key="k", model_limits=table)
    assert (adapter.window_tokens, adapter.capabilities().max_output_tokens) == (200000, 64000)
    assert isthmus.connect("openai:gpt-4o", api_key="k").window_tokens is None


def test_an_override_may_fall_back_to_the_table() -> None:
    """A plugin with a source of its own reads the table by `capabilities_from_limits` where that knows nothing."""

    class Plugin(ModelAdapter):
        def __init__(self, *, model: str = "", model_limits: Any = None) -> None:
            self.model, self._model_limits = model, model_limits

        def capabilities(self) -> ModelCapabilities:
            return capabilities_from_limits(self.model, self._model_limits)

        async def generate(self, ctx: GenerateContext) -> Any:
            return DONE

    register_adapter("plugin", Plugin)
    adapter = load_adapter("plugin", model="m-1", model_limits={"m": {"context_window": "32000"}})
    assert adapter.window_tokens == 32000


def test_the_table_reaches_whoever_declares_it(counting: type[Counting]) -> None:
    """`model_limits` is forwarded to any adapter that declares the parameter."""
    seen: list[Any] = []

    def factory(*, model: str = "", model_limits: Any = None) -> Any:
        seen.append(model_limits)
        return counting()

    register_adapter("declares", factory)
    table = {"": {"context_window": 1}}
    load_adapter("declares", model_limits=table)
    assert seen == [table]


def test_the_override_of_a_payload_is_always_safe() -> None:
    """`apply_thinking(body, effort)` leaves the body alone when effort is off and nothing is known."""
    for effort in (None, "", "off", "OFF", "none", "typo"):
        body = {"temperature": 1}
        assert apply_thinking(body, effort) is body
        assert body == {"temperature": 1}


def test_thinking_is_never_asked_for_by_a_budget() -> None:
    """`budget_tokens` is sent for no effort and no model."""
    thought = False
    for model in ("claude-opus-4-8", "claude-sonnet-5", "claude-opus-5-5", "claude-fable-5", "claude-haiku-4-5", "m"):
        for effort in (None, "off", "low", "medium", "high", "xhigh", "max", "ultra"):
            adapter = isthmus.connect(f"anthropic:{model}", api_key="k", effort=effort)
            body = adapter._encode(ASK, stream=True).call.body
            assert b"budget_tokens" not in body
            thought = thought or b"adaptive" in body
    assert thought


async def test_a_level_that_the_model_refuses_is_its_own_error() -> None:
    """An unsupported level is sent as it is, and the provider's error surfaces: nothing is downgraded in silence."""
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "effort: xhigh is not supported"}}
    caught = Caught(error, status=400)
    adapter = isthmus.connect("anthropic:claude-sonnet-4-6", api_key="k", transport=caught, effort="xhigh")
    with pytest.raises(InvalidRequestError, match="xhigh is not supported"):
        await adapter.generate(ASK)
    assert caught.sent[0].body["output_config"] == {"effort": "xhigh"}
    assert caught.sent[0].body["max_tokens"] == 8192


@pytest.mark.parametrize(
    ("model", "effort", "choice"),
    [
        ("claude-sonnet-5", "off", {"type": "any"}),
        ("claude-sonnet-5", None, {"type": "auto"}),
        ("claude-sonnet-5", "low", {"type": "auto"}),
        ("claude-fable-5", "off", {"type": "auto"}),
        ("claude-opus-4-8", None, {"type": "any"}),
        ("claude-opus-4-8", "high", {"type": "auto"}),
    ],
)
def test_f17_thinking_never_meets_a_forced_choice(model: str, effort: str | None, choice: dict[str, str]) -> None:
    """F17: a choice is forced only where the model will not think: by the request, by default, or because it must."""
    adapter = isthmus.connect(f"anthropic:{model}", api_key="k", effort=effort)
    ctx = GenerateContext(messages=ASK.messages, tools=(ToolSpec(name="f"),), tool_choice="required")
    body = json.loads(adapter._encode(ctx, stream=False).call.body)
    thinks = body.get("thinking", {}).get("type") == "adaptive" or (model == "claude-sonnet-5" and effort is None)
    assert body["tool_choice"] == choice
    assert not (thinks and body["tool_choice"]["type"] != "auto")


@pytest.mark.parametrize(
    ("table", "thinking"),
    [
        ({}, {"type": "disabled"}),
        ({"claude": {"thinking_default_on": False}}, None),
        ({"claude": {"thinking_disable": False}}, {"type": "adaptive"}),
        ({"claude": {"adaptive_thinking": "false"}}, None),
    ],
)
def test_an_operator_overrides_the_family(table: dict[str, Any], thinking: Any) -> None:
    """`thinking_default_on` and `thinking_disable` in the table go before what is known of the family."""
    adapter = isthmus.connect("anthropic:claude-sonnet-5", api_key="k", model_limits=table)
    assert json.loads(adapter._encode(ASK, stream=False).call.body).get("thinking") == thinking


def test_a_key_that_only_a_command_vends_reaches_a_plugin() -> None:
    """`api_key_command` and `api_key_ttl_ms` are forwarded as they are to an adapter that declares them."""
    seen: dict[str, Any] = {}

    class Plugin(ModelAdapter):
        def __init__(self, *, api_key_command: str = "", api_key_ttl_ms: int = 0) -> None:
            seen.update(command=str(api_key_command), ttl=api_key_ttl_ms)

        async def generate(self, ctx: GenerateContext) -> Any:
            return DONE

    register_adapter("plugin", Plugin)
    load_adapter("plugin", api_key_command="vend --now", api_key_ttl_ms="60000")
    assert seen == {"command": "vend --now", "ttl": 60000}


def test_a_failing_plugin_module_is_shown_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of `[plugins] modules` that fails to import names itself and its cause where its provider is missed."""
    (tmp_path / "acmeplug.py").write_text("import acme_missing_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "_failed_plugins", {})
    registry.import_plugins(["acmeplug"])
    with pytest.raises(ConfigError, match=r"'acmeplug' could not be imported: ModuleNotFoundError.*acme_missing"):
        isthmus.connect("acme:m")
