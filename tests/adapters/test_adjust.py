"""Brief, ceiling and effort reach a chat-face author through his own attributes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from isthmus.adapters.anthropic import AnthropicAdapter
from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.adapters.bedrock import BedrockAdapter
from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.adapters.openai_responses import OpenAIResponsesAdapter
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import NoteCode

USER = ({"role": "user", "content": "hi"},)


class Corp(ModelAdapter):
    """Keeps its settings as seed 000 says."""

    def __init__(self, system: str = "be brief", max_tokens: int = 8192, effort: str = "") -> None:
        self.system, self.max_tokens, self.effort = system, max_tokens, effort
        self.client = object()

    async def chat(self, messages: Any, tools: Any) -> Any:
        seen.append((self, self.system, self.max_tokens, self.effort, list(messages)))
        return ChatResponse("ok", [], "stop")


class Bare(ModelAdapter):
    """Has no settings at all."""

    async def chat(self, messages: Any, tools: Any) -> Any:
        seen.append((self, None, None, None, list(messages)))
        return ChatResponse("ok", [], "stop")


seen: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    seen.clear()


def codes(step: Any) -> list[str]:
    """The codes of a reply's notes."""
    return [str(note.code) for note in step.notes]


@pytest.mark.parametrize(
    "ctx",
    [
        GenerateContext(messages=USER),
        GenerateContext(messages=USER, brief="be brief", max_output_tokens=8192, effort="off"),
    ],
)
async def test_settings_that_are_the_adapters_own_make_no_copy(ctx: GenerateContext) -> None:
    """Nothing asked, or just what the adapter has: it is called itself, without a note."""
    adapter = Corp()
    step = await adapter.generate(ctx)
    assert seen[0][0] is adapter
    assert codes(step) == []
    assert seen[0][4] == [{"role": "user", "content": "hi"}]


async def test_settings_that_differ_are_set_on_a_shallow_copy_that_is_kept() -> None:
    """One copy a distinct setting, sharing what the adapter holds; the adapter is unchanged; a note says so."""
    adapter = Corp()
    ctx = GenerateContext(messages=USER, brief="other", max_output_tokens=100, effort="high")
    step = await adapter.generate(ctx)
    await adapter.stream(ctx).result()
    first, second = seen
    assert first[1:4] == ("other", 100, "high")
    assert first[0] is second[0] is not adapter
    assert first[0].client is adapter.client
    assert (adapter.system, adapter.max_tokens, adapter.effort) == ("be brief", 8192, "")
    assert codes(step) == [NoteCode.SETTINGS_COPIED]


async def test_the_copies_kept_are_bounded_and_concurrent_calls_do_not_mix() -> None:
    """Forty briefs at once each reach their own call; no more than sixteen copies are kept."""
    adapter = Corp()
    await asyncio.gather(*(adapter.generate(GenerateContext(messages=USER, brief=f"b{n}")) for n in range(40)))
    assert sorted(row[1] for row in seen) == sorted(f"b{n}" for n in range(40))
    assert len(vars(adapter)["_isthmus_copies"]) == 16


async def test_without_an_attribute_the_brief_goes_in_front() -> None:
    """A brief becomes a leading system message where there is no `system`; a ceiling is noted as left out."""
    step = await Bare().generate(GenerateContext(messages=USER, brief="be brief", max_output_tokens=9))
    assert seen[0][4][0] == {"role": "system", "content": "be brief"}
    assert codes(step) == [NoteCode.PARAMETER_DROPPED]
    assert "max_tokens=9" in step.notes[0].detail


async def test_a_read_only_system_counts_as_none() -> None:
    """A property without a setter is no place for a brief: it goes in front."""

    class Fixed(Bare):
        @property
        def system(self) -> str:
            return "fixed"

    await Fixed().generate(GenerateContext(messages=USER, brief="be brief"))
    assert seen[0][4][0] == {"role": "system", "content": "be brief"}


UNSAYABLE = {
    "temperature": 0.5,
    "top_p": 0.9,
    "stop": ("x",),
    "seed": 7,
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "options": {"a": 1},
}


@pytest.mark.parametrize("name", UNSAYABLE)
async def test_what_the_chat_face_cannot_say_is_noted_or_refused(name: str) -> None:
    """F21: each such setting is a note that names it, or an error before any call if the request wants one."""
    value = UNSAYABLE[name]
    step = await Bare().generate(GenerateContext(messages=USER, **{name: value}))
    assert codes(step) == [NoteCode.PARAMETER_DROPPED]
    assert name in step.notes[0].detail
    seen.clear()
    with pytest.raises(InvalidRequestError, match=name):
        await Bare().generate(GenerateContext(messages=USER, on_unsupported="error", **{name: value}))
    assert seen == []


ADAPTERS = [
    (OpenAIChatAdapter, "gpt-5", "max_completion_tokens"),
    (OpenAIResponsesAdapter, "gpt-5", "max_output_tokens"),
    (AnthropicAdapter, "claude-opus-4-6", "max_tokens"),
    (BedrockAdapter, "us.anthropic.claude-opus-4-6", "max_tokens"),
]
ASKED = GenerateContext(messages=USER, brief="Be kind.", effort="high", max_output_tokens=77)


def sent_by(adapter: Any, ctx: GenerateContext) -> tuple[dict[str, Any], str]:
    """The body that an adapter would send, and its text."""
    text = adapter._encode(ctx, stream=False).call.body.decode()
    return json.loads(text), text


@pytest.mark.parametrize(("kind", "model", "ceiling"), ADAPTERS)
async def test_settings_set_on_a_copy_are_those_that_are_sent(
    kind: Any, model: str, ceiling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An author who hands a list of his own to `super().chat` loses neither brief, effort nor ceiling."""
    heard: list[bytes] = []
    monkeypatch.setenv("AWS_REGION", "us-east-1")

    class Mine(kind):  # type: ignore[misc]
        async def chat(self, messages: Any, tools: Any) -> Any:
            return await super().chat([dict(message) for message in messages], tools)

        def _encode(self, ctx: GenerateContext, *, stream: bool) -> Any:
            heard.append(super()._encode(ctx, stream=stream).call.body)
            raise InvalidRequestError("nothing is sent")

    with pytest.raises(InvalidRequestError, match="nothing is sent"):
        await Mine(model=model, api_key="k").generate(ASKED)
    (body,) = heard
    assert (json.loads(body)[ceiling], b'"high"' in body, b"Be kind." in body) == (77, True, True)


@pytest.mark.parametrize(("kind", "model", "ceiling"), ADAPTERS)
def test_an_adapters_own_settings_stand_where_a_request_says_nothing(
    kind: Any, model: str, ceiling: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brief, ceiling and effort are read at each call, changed ones too; the request's own go before them."""
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    own = {"system": "Be kind.", "max_tokens": 77, "effort": "high"}
    adapter = kind(model=model, api_key="k", **own)
    body, text = sent_by(adapter, GenerateContext(messages=USER))
    assert (body[ceiling], '"high"' in text, "Be kind." in text) == (77, True, True)
    body, text = sent_by(adapter, GenerateContext(messages=USER, brief="Be rude.", effort="low", max_output_tokens=5))
    assert (body[ceiling], '"high"' in text, "Be kind." in text) == (5, False, False)
    adapter.max_tokens = 6
    assert sent_by(adapter, GenerateContext(messages=USER))[0][ceiling] == 6


def test_a_ceiling_among_the_options_goes_before_the_adapters() -> None:
    """The Responses API reads `max_tokens` of the options as its own ceiling; an adapter's default leaves it that."""
    adapter = OpenAIResponsesAdapter("m", api_key="k", max_tokens=9)
    body, _ = sent_by(adapter, GenerateContext(messages=USER, options={"max_tokens": 5}))
    assert body["max_output_tokens"] == 5
