"""F25: prompt-cache markers, where they may stand and how many."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isthmus
from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.anthropic.encode import Target
from isthmus.adapters.anthropic.markers import LIMIT, mark_prompt
from isthmus.errors import ConfigError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.jsontext import Raw
from support.caught import MESSAGES, Caught

MARK = {"type": "ephemeral"}
TOOLS = tuple([ToolSpec(name=name) for name in ("search", "add", "read")])
ASK = GenerateContext(brief="Be brief.", messages=({"role": "user", "content": "Hi"},), tools=TOOLS)


def sent(ctx: GenerateContext, **defaults: Any) -> tuple[dict[str, Any], list[str]]:
    """The body that is sent with markers on, and the details of its notes."""
    made = MessagesCodec("m", Target(cache_markers=True, **defaults)).encode(ctx, stream=False)
    return json.loads(made.call.body), [note.detail for note in made.notes]


def places(value: Any, path: str = "") -> list[str]:
    """Where markers stand in a body."""
    found: list[str] = []
    if isinstance(value, dict):
        found += [path] if "cache_control" in value else []
        for key, item in value.items():
            found += places(item, f"{path}.{key}") if key != "cache_control" else []
    if isinstance(value, list):
        for at, item in enumerate(value):
            found += places(item, f"{path}[{at}]")
    return found


def test_the_last_tool_the_system_text_and_the_last_block_are_marked() -> None:
    """Seed 000: three breakpoints: the last tool, the system text as a block, the last block of the last message."""
    body, notes = sent(ASK)
    assert places(body) == [".system[0]", ".messages[0].content[0]", ".tools[2]"]
    assert body["system"] == [{"type": "text", "text": "Be brief.", "cache_control": MARK}]
    assert notes == []


def test_tools_are_sent_by_name() -> None:
    """Seed 000: with markers the tools are sorted by name, so that the prefix is the same however they were found."""
    body, _ = sent(ASK)
    again, _ = sent(GenerateContext(brief="Be brief.", messages=ASK.messages, tools=TOOLS[::-1]))
    assert [tool["name"] for tool in body["tools"]] == ["add", "read", "search"]
    assert body == again
    plain = MessagesCodec("m").encode(ASK, stream=False)
    assert [tool["name"] for tool in json.loads(plain.call.body)["tools"]] == ["search", "add", "read"]


def test_the_life_of_a_marker_is_configured() -> None:
    """`cache_ttl` stands in each marker; only the provider's own lives are taken."""
    body, _ = sent(ASK, cache_ttl="1h")
    assert body["tools"][2]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    with pytest.raises(ConfigError, match=r"cache_ttl.*'5m', '1h'"):
        isthmus.connect("anthropic:m", api_key="k", cache_ttl="2h")


@pytest.mark.parametrize("caps", [None, ModelCapabilities(), ModelCapabilities(cache_markers=False)])
def test_a_model_that_does_not_honour_them_gets_none(caps: ModelCapabilities | None) -> None:
    """Seed 000: never a marker where the capability says no."""
    body, _ = sent(ASK, capabilities=caps)
    assert bool(places(body)) == (caps is None or caps.cache_markers)


async def test_they_are_on_by_default_and_can_be_switched_off() -> None:
    """The adapter marks unless told not to, by its own setting or by the table of limits."""
    off: dict[str, Any] = {"cache_markers": False}
    table = {"model_limits": {"": {"cache_markers": False}}}
    seen = []
    for settings_ in ({}, off, table):
        caught = Caught(MESSAGES)
        await isthmus.connect("anthropic:m", api_key="k", transport=caught, **settings_).generate(ASK)
        seen.append(len(places(caught.sent[0].body)))
    assert seen == [3, 0, 0]


def test_never_on_an_empty_block_or_on_thinking() -> None:
    """F25: an empty text, a result without content and thinking carry no marker; the block before them does."""
    blocks = [
        {"type": "text", "text": "look"},
        {"type": "tool_result", "tool_use_id": "t"},
        {"type": "thinking", "thinking": "Hm", "signature": "S"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "  "},
    ]
    body = {"messages": [{"role": "user", "content": blocks}]}
    mark_prompt(body)
    assert places(body) == [".messages[0].content[0]"]
    empty = {"system": "", "messages": [{"role": "user", "content": ""}], "tools": []}
    mark_prompt(empty)
    assert places(empty) == []


def test_a_tool_result_is_marked_as_a_whole() -> None:
    """After a round of tools the last result carries the marker, beside its content and not inside it."""
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    history = (
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
    )
    body, _ = sent(GenerateContext(messages=history, tools=TOOLS))
    assert body["messages"][-1]["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "4", "cache_control": MARK}
    ]


def test_a_deferred_tool_is_never_marked() -> None:
    """A tool whose loading is deferred takes no marker; the last one that is not does."""
    body = {"tools": [{"name": "a"}, {"name": "b", "defer_loading": True}]}
    mark_prompt(body)
    assert places(body) == [".tools[0]"]


def marked(text: str, ttl: str = "") -> dict[str, Any]:
    """A text block that the caller marked himself."""
    return {"type": "text", "text": text, "cache_control": {**MARK, **({"ttl": ttl} if ttl else {})}}


@pytest.mark.parametrize(("own", "ours"), [(0, 3), (1, 3), (2, 2), (3, 1), (4, 0)])
def test_markers_of_the_callers_own_count(own: int, ours: int) -> None:
    """F25: with the caller's own a request has four at most; what was left out is noted, tools and system go first."""
    content = [*(marked(f"part {number}") for number in range(own)), {"type": "text", "text": "last"}]
    body, notes = sent(GenerateContext(brief="b", messages=({"role": "user", "content": content},), tools=TOOLS))
    assert len(places(body)) == own + ours <= LIMIT
    assert len([detail for detail in notes if "cache marker" in detail]) == 3 - ours
    if ours == 1:
        assert ".tools[2]" in places(body)


def test_a_marker_for_the_whole_request_counts() -> None:
    """The automatic marker, an option of the request, counts as one; a block marked already is not marked again."""
    content = [marked("a"), marked("b"), marked("c")]
    ctx = GenerateContext(
        messages=({"role": "user", "content": content},), tools=TOOLS, options={"cache_control": MARK}
    )
    body, _ = sent(ctx)
    assert places(body) == ["", *(f".messages[0].content[{at}]" for at in range(3))]


@pytest.mark.parametrize(
    ("ttl", "callers", "system"),
    [("1h", "5m", "1h"), ("1h", "1h", "1h"), ("5m", "1h", "1h"), ("", "1h", "1h"), ("", "", None), ("5m", "5m", "5m")],
)
def test_longer_lives_stand_before_shorter_ones(ttl: str, callers: str, system: str | None) -> None:
    """F25: an hour never stands after five minutes: ours takes the life that the caller's own markers leave it."""
    content = [marked("a", callers), {"type": "text", "text": "last"}]
    body, _ = sent(GenerateContext(brief="b", messages=({"role": "user", "content": content},)), cache_ttl=ttl)
    lives = [body["system"][0], *body["messages"][0]["content"]]
    seen = [block["cache_control"].get("ttl") for block in lives]
    assert seen[0] == system
    hours = [life == "1h" for life in seen]
    assert hours == sorted(hours, reverse=True)


def test_blocks_that_go_back_as_they_came_are_left_alone() -> None:
    """Promise 2: a native reply at the end of a history keeps its bytes: it gets no marker."""
    block = Raw(b'{"text":  "a", "type":"text"}')
    body = {"messages": [{"role": "assistant", "content": [block]}], "system": "s"}
    mark_prompt(body)
    assert "cache_control" in body["system"][0]
    assert body["messages"][0]["content"] == [block]


BLOCKS = st.lists(
    st.one_of(
        st.builds(lambda text: {"type": "text", "text": text}, st.sampled_from(["", " ", "a", "b"])),
        st.just({"type": "thinking", "thinking": "x", "signature": "s"}),
        st.builds(lambda ttl: marked("m", ttl), st.sampled_from(["", "5m", "1h"])),
        st.just({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]}),
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(BLOCKS, BLOCKS, st.sampled_from(["", "5m", "1h"]))
def test_marking_adds_markers_alone_and_changes_nothing_of_the_callers(
    system: list[Any], content: list[Any], ttl: str
) -> None:
    """F22, F25: the given lists and texts stay as they are, and the limit holds unless the caller broke it."""
    tools = [{"name": "a"}, {"name": "b"}]
    given_ = {"system": system, "tools": tools, "messages": [{"role": "user", "content": content}]}
    before = copy.deepcopy(given_)
    body = dict(given_)
    mark_prompt(body, ttl=ttl)
    assert given_ == before
    assert len(places(body)) <= max(LIMIT, len(places(before)))
    assert _bare(body) == _bare(before)


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items() if key != "cache_control"}
    return [_bare(item) for item in value] if isinstance(value, list) else value


async def test_reads_and_writes_are_counted() -> None:
    """F11: tokens read from the cache and written to it are buckets of their own, the hour's part of the written."""
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "cache_creation": {"ephemeral_1h_input_tokens": 15, "ephemeral_5m_input_tokens": 5},
        "output_tokens": 7,
    }
    adapter = isthmus.connect("anthropic:m", api_key="k", transport=Caught({**MESSAGES, "usage": usage}))
    counted = (await adapter.generate(ASK)).usage
    assert (counted.input_tokens, counted.cache_read_tokens, counted.cache_write_tokens) == (3, 100, 20)
    assert (counted.cache_write_1h_tokens, counted.output_tokens) == (15, 7)
