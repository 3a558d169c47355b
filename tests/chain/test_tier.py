"""Tiers, and what makes a chain of them refused."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from isthmus.adapters.base import ChatResponse, ModelAdapter
from isthmus.chain import Tier, define_chain, define_marker, of, tier_error
from isthmus.chain.tier import member
from isthmus.errors import AdapterError, ConfigError, InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.model import Model
from isthmus.models.responses import Choice, Message, ModelResponse
from support.chain_doubles import CTX, OK, PlayTier, whole


def _answer(ctx: Any) -> Any:
    return whole("one")


def _fail(ctx: Any) -> Any:
    raise tier_error("unavailable", "dead")


def _other(ctx: Any) -> Any:
    return whole("two")


async def _flow(ctx: Any) -> Any:
    for event in OK:
        yield event


async def _other_flow(ctx: Any) -> Any:
    for event in OK:
        yield event


def _tier(**changes: Any) -> Tier:
    return Tier(**{"id": "t", "window_tokens": 8_000, "max_output_tokens": 10, "generate": _answer, **changes})


def test_replacing_generate_drops_the_stream() -> None:
    """A stream left over from another `generate` is gone, however often the tier is replaced afterwards."""
    changed = dataclasses.replace(_tier(stream=_flow), generate=_other)
    assert changed.stream is None
    assert dataclasses.replace(changed, id="u").stream is None


def test_spreading_the_fields_drops_the_stream_too() -> None:
    """The same holds for a tier built from another one's fields."""
    changed = Tier(**{**vars(_tier(stream=_flow)), "generate": _other})
    assert changed.stream is None


def test_replacing_both_or_anything_else_keeps_the_stream() -> None:
    """A stream that was given together with the `generate`, or was not touched with it, stays."""
    both = dataclasses.replace(_tier(stream=_flow), generate=_other, stream=_other_flow)
    assert (both.generate, both.stream) == (_other, _other_flow)
    assert dataclasses.replace(_tier(stream=_flow), id="u", window_tokens=50).stream is _flow
    assert dataclasses.replace(_tier(stream=_flow), stream=_other_flow).stream is _other_flow
    assert Tier(id="n", window_tokens=9, max_output_tokens=3, generate=_other, stream=_tier(stream=_flow).stream).stream


def test_a_tier_is_frozen_comparable_and_copyable() -> None:
    """A tier can't be changed, equals one with the same fields, and survives copy and pickle."""
    one = _tier(stream=_flow, supports={"tools"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.id = "x"  # type: ignore[misc]
    assert one == _tier(stream=_flow, supports={"tools"})
    assert one == copy.copy(one) == pickle.loads(pickle.dumps(one))
    assert one.supports == frozenset({"tools"})
    assert "_pair" not in repr(one)


@pytest.mark.parametrize("wrong", ["tools", 5, len, {"tools": True}])
def test_what_an_adapter_supports_is_read_as_a_tier_is(wrong: Any) -> None:
    """An adapter that is no `Tier` is held to the same form, when the chain is defined."""
    tier = PlayTier("p", OK)
    tier.supports = wrong
    with pytest.raises(ConfigError, match=r"tier 'p': supports: must be a set of words"):
        of(tier)


def test_one_word_as_supports_is_refused() -> None:
    """`supports="tools"` would read as five letters, so it is refused with what to write."""
    with pytest.raises(ConfigError, match=r"tier 't': supports: .*\{'tools'\}"):
        _tier(supports="tools")


@pytest.mark.parametrize("wrong", [None, 5, [5], {"tools": True}])
def test_support_is_said_in_words(wrong: Any) -> None:
    """What is no set of words is refused with the tier, the field and an example."""
    with pytest.raises(ConfigError, match=r"tier 't': supports: must be a set of words, not .*tools"):
        _tier(supports=wrong)


@pytest.mark.parametrize("face", ["generate", "stream"])
def test_what_a_tier_is_made_of_can_be_called(face: str) -> None:
    """A `generate` or `stream` that cannot be called is refused, and not passed over for the other one."""
    with pytest.raises(ConfigError, match=rf"tier 't': {face}: must be a function of a context, or None, not 5"):
        _tier(**{face: 5})


@pytest.mark.parametrize(
    ("key", "wrong", "remedy"),
    [
        ("retry", None, "RetryPolicy(max_retries=0)"),
        ("retry", {"max_retries": 1}, "RetryPolicy"),
        ("timeouts", 5, "Timeouts(idle=30)"),
        ("cooldown", 30, "Cooldown(failures=3)"),
        ("budget", {"steps": 3}, "Budget(steps=5)"),
        ("limits", [1], "from a tier's id"),
        ("context", "none", "None to send everything"),
        ("markers", None, "write [marker]"),
        ("markers", define_marker("m", "[", "]"), "write [marker]"),
        ("fallback_on_refused", "no", "True or False"),
        ("clock", None, "a Clock"),
        ("tiers", {"t": _tier()}, "write [tier]"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named_at_definition(key: str, wrong: Any, remedy: str) -> None:
    """A chain's setting of the wrong kind fails when the chain is defined, with chain, setting and what to write."""
    with pytest.raises(ConfigError) as caught:
        define_chain(**{"id": "c", "tiers": [_tier()], key: wrong})
    assert str(caught.value).startswith(f"chain 'c': {key}: must be ")
    assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("tiers", "needle"),
    [
        ([], "at least one tier"),
        ([_tier(), _tier()], "tier 't'.*same id"),
        ([_tier(id="")], r"tiers\[0\].*name"),
        ([_tier(id="  ")], r"tiers\[0\].*name"),
        ([_tier(window_tokens=0)], "tier 't': window_tokens.*above 0, not 0"),
        ([_tier(max_output_tokens=-1)], "tier 't': max_output_tokens.*above 0, not -1"),
        ([_tier(window_tokens=True)], "tier 't': window_tokens"),
        ([_tier(max_output_tokens=8_000)], "tier 't': max_output_tokens.*smaller than window_tokens"),
        (_tier(), r"write \[tier\]"),
    ],
)
def test_a_wrong_definition_names_tier_and_remedy(tiers: Any, needle: str) -> None:
    """Each mistake is found when the chain is defined, and the error names the tier and the remedy."""
    with pytest.raises(ConfigError, match=needle):
        define_chain(id="c", tiers=tiers)


@pytest.mark.parametrize("chain_id", ["", " "])
def test_a_chain_needs_a_name(chain_id: str) -> None:
    """An empty chain id is refused."""
    with pytest.raises(ConfigError, match="name"):
        define_chain(id=chain_id, tiers=[_tier()])


@pytest.mark.parametrize("thing", [_tier(generate=None), object(), "model", PlayTier, None])
def test_what_is_no_adapter_is_refused(thing: Any) -> None:
    """Neither a tier without functions, nor a class, nor any other object is taken for an adapter."""
    with pytest.raises(AdapterError, match=r"chain 'c': tiers\[0\].*(no adapter|give an instance)"):
        define_chain(id="c", tiers=[thing])
    with pytest.raises(AdapterError, match=r"no adapter|give an instance"):
        of(thing)


def test_a_stream_alone_is_enough() -> None:
    """A tier may have `stream` alone."""
    assert define_chain(id="c", tiers=[_tier(generate=None, stream=_flow)]).id == "c"


def test_a_chain_shows_the_least_of_its_tiers() -> None:
    """Window and ceiling are the smallest of the tiers', support is what all of them have."""
    chain = define_chain(
        id="c",
        tiers=[
            _tier(id="a", supports={"tools", "images"}),
            _tier(id="b", window_tokens=50, max_output_tokens=20, supports={"tools"}),
        ],
    )
    assert (chain.window_tokens, chain.max_output_tokens, chain.supports) == (50, 10, frozenset({"tools"}))
    assert [each.id for each in chain.tiers] == ["a", "b"]


async def test_an_undeclared_need_is_refused_before_any_io() -> None:
    """A request with tools is refused, naming the tier and what it lacks, before any tier is called."""
    able, plain = PlayTier("able", OK, supports=frozenset({"tools"})), PlayTier("plain", OK)
    ctx = GenerateContext(tools=(ToolSpec(name="add"),))
    with pytest.raises(InvalidRequestError, match=r"tier 'plain' does not support tools"):
        await define_chain(id="c", tiers=[able, plain]).generate(ctx)
    assert (able.calls, plain.calls) == ([], [])
    assert (await define_chain(id="c", tiers=[able]).generate(ctx)).text == "fine"


def test_check_refuses_at_definition_time() -> None:
    """`check` says without any call what each tier lacks, and nothing where nothing is lacking."""
    chain = define_chain(id="c", tiers=[_tier(supports={"tools"}), _tier(id="u")])
    chain.check(())
    with pytest.raises(InvalidRequestError) as caught:
        chain.check({"tools", "images"})
    assert "tier 't' does not support images" in str(caught.value)
    assert "tier 'u' does not support images, tools" in str(caught.value)


PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=="
PDF = "data:application/pdf;base64,JVBERi0xLjcKJQ=="


def shown(url: str, kind: str = "image_url") -> dict[str, Any]:
    """A part with this address."""
    return {"type": kind, kind: {"url": url}} if kind == "image_url" else {"type": kind, "file": {"file_data": url}}


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        ({"role": "user", "content": [shown(PNG)]}, "images"),
        ({"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}, "images"),
        ({"role": "user", "content": [shown(PDF)]}, "documents"),
        ({"role": "user", "content": [shown(PDF, "file"), shown(PNG, "file")]}, "documents, images"),
        ({"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}, "documents"),
        (
            {"role": "user", "content": {"type": "document", "source": {"type": "url", "url": "https://e.org"}}},
            "documents",
        ),
        (
            {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}}]},
            "audio",
        ),
        ({"role": "tool", "tool_call_id": "c", "content": [shown(PNG)]}, "images"),
        (
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [shown(PNG)]}]},
            "images",
        ),
    ],
)
async def test_a_message_asks_for_what_it_shows(message: dict[str, Any], needed: str) -> None:
    """Images, documents and sounds, in whatever spelling and in tool results too, are refused where nobody declared
    them, before any tier is called; a tier that declares them gets the message."""

    def never(ctx: GenerateContext) -> dict[str, Any]:
        raise AssertionError("it was called")

    chain = define_chain(id="chat", tiers=[_tier(id="plain", generate=never, supports={"tools"})])
    with pytest.raises(InvalidRequestError, match=rf"tier 'plain' does not support {needed}"):
        await chain.generate(GenerateContext(messages=(message,)))
    able = _tier(id="able", supports={"images", "documents", "audio"})
    assert (await define_chain(id="chat", tiers=[able]).generate(GenerateContext(messages=(message,)))).text


@pytest.mark.parametrize(
    "content",
    [
        None,
        "text",
        ["text", {"type": "text", "text": "x"}],
        [shown("data:text/plain;base64,aGVsbG8=", "file")],
        [{"type": "document", "source": {"type": "text", "data": "x", "media_type": "text/plain"}}],
        [{"type": "mystery"}, {"type": ["image"]}, 5, None],
        [{"type": "image_url"}],
    ],
)
async def test_text_asks_for_nothing(content: Any) -> None:
    """Text, text files that are here and parts that nobody can read need no support: whether they can be said is the
    adapter's to tell."""
    chain = define_chain(id="chat", tiers=[_tier(id="plain")])
    assert (await chain.generate(GenerateContext(messages=({"role": "user", "content": content},)))).text


async def test_any_kind_of_adapter_is_a_tier() -> None:
    """A class adapter of any face and a `Model` stand in a chain beside plain tiers, and serve."""

    class Chatty(ModelAdapter):
        model = "m"

        async def chat(self, messages: Any, tools: Any) -> ChatResponse:
            return ChatResponse(text="chatted", tool_calls=[], stop_reason="end_turn")

    class Client(Model):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            return ModelResponse(id="r", model="m", choices=[Choice(message=Message(content="modelled"))])

    for thing, text in ((Chatty(), "chatted"), (Client(), "modelled")):
        dead = dataclasses.replace(_tier(id="dead"), generate=_fail)
        assert (await define_chain(id="c", tiers=[dead, thing]).generate(CTX)).text == text
        assert (await of(thing).generate(CTX)).text == text
    assert of(Chatty()).supports == frozenset({"tools"})


async def test_a_bare_adapter_is_a_chain_of_one() -> None:
    """`of` wraps anything that is an adapter, and gives a chain back as it is."""

    class Bare:
        def generate(self, ctx: GenerateContext) -> dict[str, Any]:
            return {"events": [{"type": "text", "text": ctx.brief}], "finish": "stop"}

    chain = of(Bare())
    assert (chain.id, chain.window_tokens, chain.supports) == ("Bare", None, frozenset())
    assert (await chain.generate(CTX)).text == "be brief"
    assert of(chain) is chain
    assert of(_tier()).id == "t"


def test_an_adapter_without_a_provider_has_that_of_its_id() -> None:
    """A price is asked for under the same provider and model that the span of the call names."""

    class Named:
        def __init__(self, **said: Any) -> None:
            self.__dict__.update(said)

        def generate(self, ctx: Any) -> Any:
            return whole("x")

    rows = [
        ({"id": "acme:big", "model": "big-2"}, ("acme", "big-2")),
        ({"id": "acme:big", "model": "big-2", "provider": "other"}, ("other", "big-2")),
        ({"id": "acme:big"}, ("acme", "big")),
        ({"id": "mine", "model": "big-2"}, ("", "big-2")),
        ({"id": "mine"}, ("", "mine")),
    ]
    for said, expected in rows:
        found = member(Named(**said), "tier")
        assert (found.provider, found.model) == expected
