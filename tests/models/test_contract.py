"""What a call is given, and the protocols at the seams."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, fields, replace
from pprint import pformat
from typing import Any

import pytest
from pydantic import BaseModel

from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext, Generates, Streams, Timeouts, ToolSpec


def test_a_context_is_frozen_and_says_nothing_by_default() -> None:
    """Every setting is left to the adapter, and none can be changed."""
    ctx = GenerateContext()
    assert (ctx.brief, ctx.messages, ctx.tools, ctx.max_output_tokens, ctx.effort) == ("", (), (), None, None)
    assert ctx.on_unsupported == "note"
    with pytest.raises(AttributeError):
        ctx.brief = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        ctx.options["a"] = 1  # type: ignore[index]


def test_a_context_is_a_dataclass_to_those_who_ask() -> None:
    """It can be looked through and copied with changes as one, and what is changed is checked."""
    ctx: Any = GenerateContext(brief="b", seed=7, options={"k": 1})
    assert {each.name: getattr(ctx, each.name) for each in fields(ctx)}.items() >= {"brief": "b", "seed": 7}.items()
    assert replace(ctx, stop="x", messages=[]) == GenerateContext(brief="b", seed=7, options={"k": 1}, stop=("x",))
    with pytest.raises(TypeError, match="stray"):
        replace(ctx, stray=1)
    with pytest.raises(ValueError, match="'note' or 'error'"):
        replace(ctx, on_unsupported="perhaps")
    assert GenerateContext.__name__ in pformat(ctx, width=20)
    told = {each.name: each for each in fields(GenerateContext)}
    assert (told["brief"].default, told["seed"].type, told["seed"].kw_only) == ("", int | None, True)


def test_a_context_of_ones_own_keeps_what_it_adds() -> None:
    """A copy with changes has the fields of a subclass too."""

    class Mine(GenerateContext, frozen=True, kw_only=True):
        tenant: str
        tags: tuple[str, ...] = ()

    mine = replace(Mine(tenant="a", tags=("k",)), brief="b")
    assert mine == Mine(brief="b", tenant="a", tags=("k",))
    assert {each.name for each in fields(mine)} == {"tenant", "tags", *(each.name for each in fields(GenerateContext))}
    assert copy.copy(mine) == mine == copy.deepcopy(mine)


@pytest.mark.parametrize("stop", [[None], ("a", 1), {"a": 1}])
def test_what_stops_a_reply_is_text(stop: Any) -> None:
    """What no provider could be told is refused where it is given."""
    with pytest.raises(TypeError, match="stop: must be"):
        GenerateContext(stop=stop)


@pytest.mark.parametrize("word", ["Error", "raise", "", None])
def test_a_word_that_says_nothing_of_what_is_unsupported_is_refused(word: Any) -> None:
    """A misspelled wish for an error is not taken for one for a note."""
    with pytest.raises(ValueError, match="'note' or 'error'"):
        GenerateContext(on_unsupported=word)


def test_a_tool_has_a_schema_whatever_it_was_given() -> None:
    """An explicit schema is sent unchanged, a model gives its own, nothing gives an empty object."""

    class Args(BaseModel):
        q: str

    explicit = {"type": "object", "odd": True}
    assert ToolSpec(name="t", parameters_schema=explicit, args_model=Args).parameters is explicit
    assert ToolSpec(name="t", args_model=Args).parameters["required"] == ["q"]
    assert ToolSpec(name="t").parameters == {"type": "object", "properties": {}}
    assert ToolSpec(name="t", strict=True) != ToolSpec(name="t") == ToolSpec(name="t")
    assert repr(ToolSpec(name="t")) == "ToolSpec(name='t')"


def test_plain_objects_meet_the_protocols() -> None:
    """`stream(ctx)` or `generate(ctx)` is enough."""

    class Streamed:
        def stream(self, ctx: Any) -> Any: ...

    class Whole:
        def generate(self, ctx: Any) -> Any: ...

    assert isinstance(Streamed(), Streams)
    assert isinstance(Whole(), Generates)
    assert not isinstance(Streamed(), Generates)


def test_the_time_outs_are_those_of_the_design() -> None:
    """Connect 10 s, first content 120 s, idle 60 s, no total."""
    times = Timeouts()
    assert (times.connect, times.first_content, times.idle, times.total) == (10.0, 120.0, 60.0, None)


def test_time_outs_are_made_again_of_their_parts() -> None:
    """A copy through a dict, as a file or another process takes it, is the same; what is worked out is no part."""
    times = replace(Timeouts(idle=7), total=5)
    assert Timeouts(**asdict(times)) == pickle.loads(pickle.dumps(times)) == copy.deepcopy(times) == times
    assert [times.soonest, Timeouts(first_content=None, idle=None).soonest, Timeouts().soonest] == [5, None, 60.0]


@pytest.mark.parametrize("wait", [0, -1, float("nan"), "3", True])
@pytest.mark.parametrize("name", ["connect", "first_content", "idle", "total"])
def test_a_wait_that_cannot_be_is_refused(name: str, wait: Any) -> None:
    """A time-out is a number of seconds above 0 or None; anything else is refused when given, by name."""
    with pytest.raises(ConfigError, match=name):
        Timeouts(**{name: wait})


def test_endless_waits_are_none_or_infinite() -> None:
    """None and infinity both wait for ever."""
    assert Timeouts(idle=None, total=float("inf")).total == float("inf")


def test_a_context_keeps_tuples_of_its_own() -> None:
    """F22: lists given to a context are kept as tuples, so that the caller's changes later change no request."""
    messages = [{"role": "user", "content": "hi"}]
    ctx = GenerateContext(messages=messages, tools=[ToolSpec(name="t")], stop=["a"])  # type: ignore[arg-type]
    messages.clear()
    assert (ctx.messages, len(ctx.tools), ctx.stop) == (({"role": "user", "content": "hi"},), 1, ("a",))
    assert GenerateContext(stop="END").stop == ("END",)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["hi", {"role": "user"}])
def test_messages_must_be_a_sequence(wrong: Any) -> None:
    """A text or a single message in place of the messages is refused."""
    with pytest.raises(TypeError, match="messages"):
        GenerateContext(messages=wrong)


def test_a_context_can_be_copied_and_pickled() -> None:
    """A request goes through copies and other processes whole."""
    ctx = GenerateContext(brief="b", messages=({"role": "user", "content": "x"},), options={"a": [1]})
    for one in (ctx, GenerateContext()):
        assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


@pytest.mark.parametrize("tool", [{"name": "look"}, len, None])
def test_a_tool_that_is_none_is_refused_with_its_place(tool: Any) -> None:
    """A request takes tools as `Tool` or `ToolSpec`; anything else is named with its place in the list."""
    with pytest.raises(TypeError, match=r"tools\[1\]: must be a Tool or a ToolSpec, not "):
        GenerateContext(tools=(ToolSpec(name="t"), tool))
