"""The body of a request, option by option, as the page on LangServe asks for it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from isthmus.adapters.base import apply_thinking
from isthmus.adapters.langserve import LangServeAdapter
from isthmus.adapters.langserve.payload import Asked
from isthmus.errors import ConfigError, InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import Call, Note, NoteCode, StepResult, Text
from isthmus.models.messages import assistant_message
from support.langserve_frames import body, message

ASK = {"role": "user", "content": "Hi"}
TOOLS = [
    {"name": "zoo", "description": "Z", "input_schema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    {"name": "ant", "description": "A", "input_schema": {"type": "object", "properties": {}}},
]
MARK = {"type": "ephemeral"}


def adapter(**settings: Any) -> LangServeAdapter:
    """An adapter that is never called."""
    return LangServeAdapter(**{"base_url": "http://localhost/chain", **settings})


def payload(messages: Any = (ASK,), tools: Any = (), **settings: Any) -> dict[str, Any]:
    """The body of a request."""
    return adapter(**settings)._build_payload(list(messages), list(tools))


def sent(made: LangServeAdapter, ctx: GenerateContext, *, stream: bool = False) -> dict[str, Any]:
    """The body as it is sent."""
    return json.loads(made.codec.encode(ctx, stream=stream).call.body)  # type: ignore[no-any-return]


def test_the_body_of_a_plain_request() -> None:
    """Messages are dicts with a `type`; config and kwargs are empty; the model is not sent."""
    assert payload(system="Be brief.", model="m") == {
        "input": {"messages": [{"type": "system", "content": "Be brief."}, {"type": "human", "content": "Hi"}]},
        "config": {},
        "kwargs": {},
    }


def test_a_tool_turn_in_langchains_words() -> None:
    """Calls go with parsed arguments, results with their call's id, a failed one with its status."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    broken = {"id": "d", "type": "function", "function": {"name": "f", "arguments": "{oops"}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call, broken]}
    answers = [
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "tool", "tool_call_id": "d", "content": "bad", "is_error": True},
    ]
    said = payload([ASK, turn, *answers])["input"]["messages"][1:]
    assert said[0]["tool_calls"] == [{"name": "f", "args": {"x": 1}, "id": "c", "type": "tool_call"}]
    assert [(item["args"], item["id"], item["type"]) for item in said[0]["invalid_tool_calls"]] == [
        ("{oops", "d", "invalid_tool_call")
    ]
    assert said[1:] == [
        {"type": "tool", "content": "1", "tool_call_id": "c"},
        {"type": "tool", "content": "bad", "tool_call_id": "d", "status": "error"},
    ]


def test_block_turns_are_translated() -> None:
    """`tool_use` and `tool_result` blocks of an author's own turns become calls and results."""
    use = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Hm"}, {"type": "tool_use", "id": "c", "name": "f", "input": {"x": 1}}],
    }
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "ok"}]}
    said = payload([ASK, use, result])["input"]["messages"][1:]
    assert (said[0]["content"], said[0]["tool_calls"][0]["args"]) == ("Hm", {"x": 1})
    assert said[1] == {"type": "tool", "content": "ok", "tool_call_id": "c"}


def test_message_and_tool_keys() -> None:
    """`input_messages_key` and `input_tools_key` name the members; tools are function tools."""
    made = payload(tools=TOOLS[:1], input_messages_key="history", input_tools_key="functions")
    assert set(made["input"]) == {"history", "functions"}
    said = {"name": "zoo", "description": "Z", "parameters": TOOLS[0]["input_schema"]}
    assert made["input"]["functions"] == [{"type": "function", "function": said}]


def test_tools_in_the_config() -> None:
    """`tools_in_config` moves them into `config.configurable`."""
    made = payload(tools=TOOLS, tools_in_config=True)
    assert "tools" not in made["input"]
    assert [tool["function"]["name"] for tool in made["config"]["configurable"]["tools"]] == ["zoo", "ant"]


def test_an_input_that_is_the_messages() -> None:
    """With an empty `input_messages_key` the input is the list itself, and nothing can stand beside it."""
    assert payload(input_messages_key="")["input"] == [{"type": "human", "content": "Hi"}]
    assert payload(tools=TOOLS, input_messages_key="")["kwargs"]["tools"]
    with pytest.raises(ConfigError, match="input_messages_key"):
        adapter(input_messages_key="", max_tokens_in="input")


def test_max_tokens_is_sent_only_where_it_is_set() -> None:
    """The default 0 sends nothing, so that a chain's own ceiling stands."""
    for settings in ({}, {"max_tokens": 0}, {"max_tokens": None}):
        assert payload(**settings) == {
            "input": {"messages": [{"type": "human", "content": "Hi"}]},
            "config": {},
            "kwargs": {},
        }
    assert payload(max_tokens=100)["kwargs"] == {"max_tokens": 100}


@pytest.mark.parametrize(("name", "value"), [("max_tokens", 100), ("effort", "high")])
def test_where_ceiling_and_effort_land(name: str, value: Any) -> None:
    """kwargs by default, `config.configurable` or the input where asked for, under the name that is asked for."""
    default = {"max_tokens": "max_tokens", "effort": "reasoning_effort"}[name]
    assert payload(**{name: value})["kwargs"] == {default: value}
    key = {f"{name}_key": "own"}
    assert payload(**{name: value}, **key)["kwargs"] == {"own": value}
    assert payload(**{name: value}, **key, **{f"{name}_in": "config"})["config"] == {"configurable": {"own": value}}
    assert payload(**{name: value}, **key, **{f"{name}_in": "input"})["input"]["own"] == value


@pytest.mark.parametrize("name", ["max_tokens_in", "effort_in"])
def test_a_slot_that_there_is_not_is_refused(name: str) -> None:
    """The error names the key and the slots."""
    with pytest.raises(ConfigError, match=f"{name}.*kwargs, config, input"):
        adapter(**{name: "body"})


@pytest.mark.parametrize("effort", ["", "off", "none", None])
def test_effort_off_sends_nothing(effort: str | None) -> None:
    """Off and empty send nothing."""
    assert payload(effort=effort)["kwargs"] == {}


def test_effort_is_sent_as_it_is() -> None:
    """Any other level goes as the plain string, and no thinking shape beside it."""
    assert payload(effort="turbo")["kwargs"] == {"reasoning_effort": "turbo"}


def test_effort_is_skipped_where_the_gateway_takes_none() -> None:
    """`adaptive_thinking = false` in the table of limits sends no effort."""
    assert payload(effort="high", model="m", model_limits={"m": {"adaptive_thinking": False}})["kwargs"] == {}


def test_the_request_decides_over_the_adapter() -> None:
    """Brief, ceiling and effort of a request stand in place of the adapter's own."""
    made = adapter(system="old", max_tokens=1, effort="low")
    ctx = GenerateContext(brief="new", messages=(ASK,), max_output_tokens=9, effort="high")
    found = sent(made, ctx)
    assert found["input"]["messages"][0]["content"] == "new"
    assert found["kwargs"] == {"max_tokens": 9, "reasoning_effort": "high"}
    assert sent(made, GenerateContext(messages=(ASK,)))["kwargs"] == {"max_tokens": 1, "reasoning_effort": "low"}
    assert sent(made, GenerateContext(messages=(ASK,), effort="off"))["kwargs"] == {"max_tokens": 1}


def test_the_brief_and_leading_system_messages_are_one() -> None:
    """Neither is lost, and there is one system message."""
    ctx = GenerateContext(brief="A", messages=({"role": "system", "content": "B"}, ASK))
    assert sent(adapter(), ctx)["input"]["messages"][0] == {"type": "system", "content": "A\n\nB"}


def test_markers_are_off_by_default() -> None:
    """Nothing is marked unless it is asked for, or where the table of limits says that markers are not honoured."""
    assert "cache_control" not in json.dumps(payload(tools=TOOLS, system="S"))
    limits = {"": {"cache_markers": False}}
    assert "cache_control" not in json.dumps(payload(tools=TOOLS, system="S", cache_markers=True, model_limits=limits))


def test_markers_on_system_last_tool_and_last_message() -> None:
    """F20: the system is a marked block, the tools sorted and the last marked, like the last message's block."""
    made = payload([ASK, {"role": "assistant", "content": "Yes?"}, ASK], TOOLS, system="S", cache_markers=True)
    system, first, reply, last = made["input"]["messages"]
    assert system == {"type": "system", "content": [{"type": "text", "text": "S", "cache_control": MARK}]}
    assert last == {"type": "human", "content": [{"type": "text", "text": "Hi", "cache_control": MARK}]}
    assert (first["content"], reply["content"]) == ("Hi", "Yes?")
    tools = made["input"]["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["ant", "zoo"]
    assert [tool.get("cache_control") for tool in tools] == [None, MARK]


def test_the_marked_prefix_is_stable() -> None:
    """Tools in another order, and a further turn, leave the bytes before them as they were."""
    one = payload([ASK], TOOLS, system="S", cache_markers=True)
    two = payload([ASK, {"role": "assistant", "content": "Yes?"}, ASK], TOOLS[::-1], system="S", cache_markers=True)
    assert json.dumps(one["input"]["tools"]) == json.dumps(two["input"]["tools"])
    assert one["input"]["messages"][0] == two["input"]["messages"][0]


def test_a_marker_with_a_lifetime() -> None:
    """`cache_ttl` is part of the marker."""
    made = payload(system="S", cache_markers=True, cache_ttl="1h")
    assert made["input"]["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize("content", ["", "  ", [{"type": "text", "text": ""}]])
def test_an_empty_block_is_never_marked(content: Any) -> None:
    """Providers refuse a marker on an empty text."""
    made = payload([ASK, {"role": "tool", "tool_call_id": "c", "content": content}], cache_markers=True)
    assert "cache_control" not in json.dumps(made)


def test_the_callers_lists_are_copied() -> None:
    """Messages, tools and options are the same after a marked request as before it."""
    messages, tools = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], copy.deepcopy(TOOLS)
    options = {"config": {"tags": ["a"]}}
    before = copy.deepcopy((messages, tools, options))
    made = adapter(cache_markers=True)
    made._build_payload(messages, tools)
    specs = tuple(ToolSpec(name=tool["name"], parameters_schema=tool["input_schema"]) for tool in tools)
    sent(made, GenerateContext(messages=tuple(messages), tools=specs, options=options))
    assert (messages, tools, options) == before


def test_options_are_members_of_the_body() -> None:
    """Tables are merged with what was made; anything else stands in its place."""
    ctx = GenerateContext(messages=(ASK,), options={"config": {"tags": ["a"]}, "kwargs": {"top_k": 4}, "input": "x"})
    request = adapter(max_tokens=5).codec.encode(ctx, stream=False)
    assert json.loads(request.call.body) == {
        "input": "x",
        "config": {"tags": ["a"]},
        "kwargs": {"max_tokens": 5, "top_k": 4},
    }
    assert [str(note.code) for note in request.notes] == ["parameter-changed"]


def test_an_option_that_changes_a_member_of_a_table_is_noted() -> None:
    """Whatever gives way is listed, deep in a table too; the way of calling is no member of the body."""
    ctx = GenerateContext(messages=(ASK,), options={"kwargs": {"max_tokens": 4}, "stream": True})
    request = adapter(max_tokens=5).codec.encode(ctx, stream=False)
    body = json.loads(request.call.body)
    assert (body["kwargs"], "stream" in body) == ({"max_tokens": 4}, False)
    assert [str(note.code) for note in request.notes] == ["parameter-changed", "parameter-dropped"]


def test_settings_without_a_place_are_noted_or_refused() -> None:
    """A temperature has no place that every runnable knows: it is noted, or an error where the request says so."""
    ctx = GenerateContext(messages=(ASK,), temperature=0.5)
    request = adapter().codec.encode(ctx, stream=False)
    assert [note.code for note in request.notes] == [NoteCode.PARAMETER_DROPPED]
    with pytest.raises(InvalidRequestError, match="temperature"):
        adapter().codec.encode(GenerateContext(messages=(ASK,), temperature=0.5, on_unsupported="error"), stream=False)


def test_no_choice_of_tools_sends_none() -> None:
    """`tool_choice` "none" leaves the tools out."""
    ctx = GenerateContext(messages=(ASK,), tools=(ToolSpec(name="f"),), tool_choice="none")
    assert "tools" not in sent(adapter(), ctx)["input"]


def test_a_reply_goes_back_as_it_came() -> None:
    """F03, promise 2: thinking with its signature stands in the next request; a changed message is said anew."""
    blocks = [{"type": "thinking", "thinking": "Hm", "signature": "c2ln"}, {"type": "text", "text": "Hi"}]
    turn = assistant_message(body(message(blocks)))
    found = sent(adapter(), GenerateContext(messages=(ASK, turn, ASK)))["input"]["messages"][1]
    assert (found["type"], found["content"]) == ("ai", blocks)
    changed = {**turn, "content": "Ho"}
    request = adapter().codec.encode(GenerateContext(messages=(ASK, changed, ASK)), stream=False)
    assert json.loads(request.call.body)["input"]["messages"][1] == {"type": "ai", "content": "Ho"}
    assert NoteCode.NATIVE_STALE in [note.code for note in request.notes]


def test_history_rules() -> None:
    """F14: an empty assistant turn is left out with a note; another provider's items are refused by their place."""
    ctx = GenerateContext(messages=(ASK, {"role": "assistant", "content": ""}, ASK))
    request = adapter().codec.encode(ctx, stream=False)
    assert len(json.loads(request.call.body)["input"]["messages"]) == 2
    assert [note.code for note in request.notes] == [NoteCode.HISTORY_CHANGED]
    with pytest.raises(InvalidRequestError, match=r"messages\[1\]"):
        adapter().codec.encode(GenerateContext(messages=(ASK, {"type": "reasoning", "id": "rs"})), stream=False)
    with pytest.raises(InvalidRequestError, match="role"):
        payload([{"role": "robot", "content": "Hi"}])


def test_no_bookkeeping_is_sent() -> None:
    """No `_isthmus` key stands in any request."""
    step = StepResult(events=(Text("Hi"), Call("f", {"x": 1}, "c", '{"x":1}')), finish="tool-calls")
    turn = {**assistant_message(step), "_isthmus": {"visibility": "internal", "origin": "o"}}
    ctx = GenerateContext(messages=(ASK, turn, {"role": "tool", "tool_call_id": "c", "content": "1"}))
    assert "_isthmus" not in json.dumps(sent(adapter(), ctx))


def test_the_pages_thinking_override() -> None:
    """The page's subclass that puts the native thinking shape into kwargs, and its rule that off is a no-op."""

    class MyGatewayAdapter(LangServeAdapter):
        def _build_payload(self, messages: Any, tools: Any) -> dict[str, Any]:
            made = super()._build_payload(messages, tools)
            apply_thinking(made["kwargs"], self.effort)
            return made

    def made(**settings: Any) -> dict[str, Any]:
        own = MyGatewayAdapter(base_url="http://localhost", effort_key="x", **settings)
        return sent(own, GenerateContext(messages=(ASK,)), stream=True)["kwargs"]  # type: ignore[no-any-return]

    assert made(effort="off") == {}
    assert made(effort="high")["output_config"] == {"effort": "high"}


@pytest.mark.parametrize(("wanted", "sent"), [(64000, {"max_tokens": 5000}), (100, {"max_tokens": 100}), (None, {})])
def test_no_request_asks_for_more_than_the_model_gives(wanted: int | None, sent: dict[str, int]) -> None:
    """The table lowers a request's own ceiling too, and noted; it raises none, and sets none."""
    one = LangServeAdapter(base_url="http://localhost", model="m", model_limits={"": {"max_output_tokens": 5000}})
    ctx = GenerateContext(messages=({"role": "user", "content": "Hi"},), max_output_tokens=wanted)
    request = one.codec.encode(ctx, stream=False)
    assert json.loads(request.call.body)["kwargs"] == sent
    assert [str(note.code) for note in request.notes] == (["parameter-changed"] if wanted == 64000 else [])


def test_a_callers_own_cache_markers_count_and_stay() -> None:
    """F25: four markers at most, tools and system first; a block that the caller marked keeps his own."""
    own = {"type": "ephemeral", "ttl": "1h"}

    def said(count: int, last: str = "Hi") -> list[dict[str, Any]]:
        marked = [{"type": "text", "text": f"{n}", "cache_control": own} for n in range(count)]
        return [
            {"role": "user", "content": marked},
            {"role": "assistant", "content": "Yes?"},
            {"role": "user", "content": last},
        ]

    for count in range(6):
        messages, notes = said(count), list[Note]()
        before = copy.deepcopy(messages)
        asked = Asked(messages, GenerateContext(), notes=notes)
        made = json.dumps(adapter(cache_markers=True, system="S")._build_payload(asked, TOOLS))
        assert made.count("cache_control") == max(count, min(4, count + 3))
        assert made.count('"1h"') == count
        left = ["the last tool", "the system text", "the last message"][max(0, 4 - count) :]
        assert [note.detail.split(":")[0] for note in notes] == [f"cache marker on {place}" for place in left]
        assert messages == before
    made = payload(
        [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": own}]}], cache_markers=True
    )
    assert made["input"]["messages"][-1]["content"][-1]["cache_control"] == own
