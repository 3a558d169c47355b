"""A transcript from anywhere is sent with one result for each call: F07, in every shape and to every provider."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from isthmus.adapters.anthropic.codec import MessagesCodec
from isthmus.adapters.bedrock.codec import ConverseCodec, InvokeCodec
from isthmus.adapters.langserve import LangServeAdapter
from isthmus.adapters.langserve.codec import LangServeCodec
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_responses.codec import ResponsesCodec
from isthmus.errors import InvalidRequestError
from isthmus.harness import DefaultAgent
from isthmus.harness.history import UNKNOWN
from isthmus.harness.pairing import all_call_ids, paired
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.events import NoteCode
from isthmus.models.messages import tool_message
from support.turns import Turns, says


def asking(*ids: str) -> dict[str, Any]:
    """An assistant message with calls."""
    calls = [{"id": each, "type": "function", "function": {"name": "f", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def nameless(*numbers: int, **more: Any) -> dict[str, Any]:
    """An assistant message with calls that have no ids, or all of them this one."""
    calls = [{**more, "type": "function", "function": {"name": "f", "arguments": f'{{"n":{n}}}'}} for n in numbers]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def unnamed(text: str, **more: Any) -> dict[str, Any]:
    """A result without an id, or with this one."""
    return {"role": "tool", "content": text, **more}


LEGACY = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
USER = {"role": "user", "content": "hi"}


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    """F07: the answer that is put in says that the outcome is unknown, stands in its place, and is noted."""
    given = (USER, asking("a", "b"), tool_message("b", "2"), USER, asking("c"))
    kept, notes = paired(given)
    assert kept == (
        USER,
        given[1],
        given[2],
        tool_message("a", UNKNOWN),
        USER,
        given[4],
        tool_message("c", UNKNOWN),
    )
    assert [note.code for note in notes] == [NoteCode.HISTORY_CHANGED] * 2
    assert len(given) == 5


def test_results_that_nobody_asked_for_are_left_out() -> None:
    """F07: a result without a call and a second result of a call are dropped with a note, a real one never."""
    given = (tool_message("x", "0"), USER, asking("a"), tool_message("a", "1"), tool_message("a", "again"))
    kept, notes = paired(given)
    assert kept == (USER, asking("a"), tool_message("a", "1"))
    assert len(notes) == 2


def test_a_valid_transcript_is_left_alone() -> None:
    """The very messages come back, native items without a role among them."""
    given = (USER, asking("a"), {"type": "item_reference", "id": "i"}, tool_message("a", "1"), USER)
    kept, notes = paired(given)
    assert notes == ()
    assert all(ours is theirs for ours, theirs in zip(kept, given, strict=True))


def blocks(*calls: str) -> dict[str, Any]:
    """The same in Anthropic's words."""
    made = [{"type": "tool_use", "id": each, "name": "f", "input": {}} for each in calls]
    return {"role": "assistant", "content": made}


def answers(*results: str, text: str = "") -> dict[str, Any]:
    """Results in Anthropic's words, and a text behind them."""
    made: list[Any] = [{"type": "tool_result", "tool_use_id": each, "content": f"r{each}"} for each in results]
    return {"role": "user", "content": [*made, *([{"type": "text", "text": text}] if text else [])]}


def converse(*calls: str) -> dict[str, Any]:
    """Calls in Converse's words."""
    made = [{"toolUse": {"toolUseId": each, "name": "f", "input": {}}} for each in calls]
    return {"role": "assistant", "content": made}


def given(*results: str) -> dict[str, Any]:
    """Results in Converse's words."""
    said = [{"toolResult": {"toolUseId": each, "content": [{"text": f"r{each}"}]}} for each in results]
    return {"role": "user", "content": said}


def item(call_id: str) -> dict[str, Any]:
    """A call as an item of Responses."""
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def output(call_id: str) -> dict[str, Any]:
    """A result as an item of Responses."""
    return {"type": "function_call_output", "call_id": call_id, "output": f"r{call_id}"}


def tool(call_id: str) -> dict[str, Any]:
    """A neutral result."""
    return tool_message(call_id, f"r{call_id}")


NEUTRAL: Mapping[str, tuple[Sequence[Any], int]] = {
    "missing": ([USER, asking("a", "b"), tool("b"), USER], 1),
    "missing at the end": ([USER, asking("a")], 1),
    "missing before a system text": ([USER, asking("a"), {"role": "system", "content": "x"}, USER], 1),
    "nobody asked": ([USER, tool("x"), USER], 1),
    "before its call": ([USER, tool("a"), asking("a"), USER], 1),
    "behind a question": ([USER, asking("a"), USER, tool("a")], 1),
    "twice": ([USER, asking("a"), tool("a"), tool("a"), USER], 1),
    "another id": ([USER, asking("a"), tool("z"), USER], 2),
    "no id": ([USER, asking("a"), {"role": "tool", "content": "ra"}, USER], 1),
    "an id twice": ([USER, asking("a"), USER, asking("a"), tool("a")], 1),
    "call without id": ([USER, nameless(1), USER], 1),
    "calls without ids": ([USER, nameless(1, 2), unnamed("r1"), USER], 1),
    "calls with empty ids": ([USER, nameless(1, 2, id=""), unnamed("r1", tool_call_id=""), USER], 1),
    "an id twice in one reply": ([USER, nameless(1, 2, id="a"), tool("a"), USER], 1),
    "an old call": ([USER, LEGACY, USER], 1),
    "an old result": ([USER, {"role": "function", "name": "f", "content": "r"}, USER], 1),
}
BLOCKS: Mapping[str, tuple[Sequence[Any], int]] = {
    "missing": ([USER, blocks("a", "b"), answers("b", text="go"), USER], 1),
    "missing at the end": ([USER, blocks("a")], 1),
    "nobody asked": ([USER, answers("x"), USER], 1),
    "before its call": ([USER, answers("a"), blocks("a"), USER], 1),
    "behind a question": ([USER, blocks("a"), USER, answers("a", text="go")], 1),
    "twice": ([USER, blocks("a"), answers("a"), answers("a", text="go")], 1),
    "another id": ([USER, blocks("a"), answers("z", text="go")], 2),
    "neutral results": ([USER, blocks("a", "b"), tool("a"), USER], 1),
}
CONVERSE: Mapping[str, tuple[Sequence[Any], int]] = {
    "missing": ([USER, converse("a", "b"), given("b"), USER], 1),
    "nobody asked": ([USER, given("x"), USER], 1),
    "twice": ([USER, converse("a"), given("a"), given("a"), USER], 1),
    "behind a question": ([USER, converse("a"), USER, given("a")], 1),
}
ITEMS: Mapping[str, tuple[Sequence[Any], int]] = {
    "missing": ([USER, item("a"), item("b"), output("b"), USER], 1),
    "missing at the end": ([USER, item("a")], 1),
    "before its call": ([USER, output("a"), item("a"), USER], 1),
    "twice": ([USER, item("a"), output("a"), output("a"), USER], 1),
    "behind a question": ([USER, item("a"), USER, output("a")], 1),
    "among native input": (
        [USER, {"role": "assistant", "openai_responses_input": [item("a"), item("b")]}, tool("b")],
        1,
    ),
}

CODECS: Mapping[str, Any] = {
    "chat": ChatCodec("m"),
    "messages": MessagesCodec("m"),
    "responses": ResponsesCodec("m"),
    "converse": ConverseCodec("amazon.m"),
    "invoke": InvokeCodec("anthropic.m"),
    "langserve": LangServeCodec(LangServeAdapter(base_url="http://127.0.0.1:1", model="m")),
}


def exchanged(body: Any) -> list[tuple[str, str]]:
    """The calls and results of a request, in order, whatever the dialect; a text of the user between them too."""
    found: list[tuple[str, str]] = []
    said = body.get("messages") or body.get("input")
    for message in said["messages"] if isinstance(said, dict) else said:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        for part in (message, *parts, *(message.get("tool_calls") or ())):
            block = part.get("toolUse") or part.get("toolResult") or part
            ids = [block.get(key) for key in ("tool_use_id", "tool_call_id", "call_id", "toolUseId", "id")]
            call_id = next((each for each in ids if each), None)
            if call_id is not None:
                kind = str(part.get("type"))
                answers = "tool_use_id" in part or "tool_call_id" in part or "toolResult" in part or "output" in kind
                found.append(("result" if answers else "call", call_id))
            elif part.get("type") == "text" or part.keys() == {"text"} or isinstance(part.get("content"), str):
                found.append(("text", ""))
    return found


def sent(dialect: str, messages: Sequence[Any]) -> list[tuple[str, str]]:
    """What a request for these messages exchanges."""
    ctx = GenerateContext(messages=tuple(messages), tools=(ToolSpec(name="f", parameters_schema={"type": "object"}),))
    return exchanged(json.loads(CODECS[dialect].encode(ctx, stream=False).call.body))


def check(found: Sequence[tuple[str, str]], *, close: bool) -> None:
    """Each call has one result behind it, and each result a call.

    Args:
        found: what was exchanged.
        close: whether nothing may stand between a batch of calls and its results.
    """
    waiting: list[str] = []
    for kind, call_id in found:
        if kind == "call":
            waiting.append(call_id)
        elif kind == "result":
            assert call_id in waiting, found
            waiting.remove(call_id)
        elif close:
            assert not waiting, found
    assert not waiting, found


CASES = [
    *((f"neutral: {name}", dialect, *case) for name, case in NEUTRAL.items() for dialect in CODECS),
    *((f"blocks: {name}", dialect, *case) for name, case in BLOCKS.items() for dialect in CODECS),
    *((f"converse: {name}", "converse", *case) for name, case in CONVERSE.items()),
    *((f"items: {name}", "responses", *case) for name, case in ITEMS.items()),
]


@pytest.mark.parametrize(("name", "dialect", "messages", "changes"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_every_request_has_one_result_for_each_call(name: str, dialect: str, messages: Any, changes: int) -> None:
    """A history from anywhere, in its own shape, becomes a request that its provider takes; each change is noted."""
    kept, notes = paired(messages)
    assert [note.code for note in notes].count(NoteCode.HISTORY_CHANGED) == changes
    assert {note.code for note in notes} <= {NoteCode.HISTORY_CHANGED, NoteCode.CALL_ID_MADE}
    check(sent(dialect, kept), close=dialect != "responses")


@pytest.mark.parametrize("shape", [NEUTRAL, BLOCKS, CONVERSE, ITEMS])
def test_the_cases_are_broken(shape: Mapping[str, Any]) -> None:
    """Unrepaired, each of these histories fails the check, so that the check can fail."""
    dialect = {id(NEUTRAL): "chat", id(BLOCKS): "langserve", id(CONVERSE): "converse", id(ITEMS): "responses"}[
        id(shape)
    ]
    for name, (messages, _) in shape.items():
        if name != "no id":
            # Chat Completions still takes the old form, which is not what the check looks at.
            with pytest.raises((AssertionError, InvalidRequestError)):
                check(sent("messages" if name.startswith("an old") else dialect, messages), close=True)


@pytest.mark.parametrize(
    "messages",
    [
        [USER, nameless(1, 2), unnamed("r1"), unnamed("r2"), USER],
        [USER, nameless(1, 2, id=None), unnamed("r1"), unnamed("r2"), USER],
        [USER, nameless(1, 2, id=""), unnamed("r1", tool_call_id=""), unnamed("r2", tool_call_id=""), USER],
        [USER, nameless(1, 2, id="a"), unnamed("r1", tool_call_id="a"), unnamed("r2", tool_call_id="a"), USER],
        [USER, nameless(1), unnamed("r1"), USER, nameless(2), unnamed("r2")],
        [USER, LEGACY, {"role": "function", "name": "f", "content": "r1"}, nameless(2), unnamed("r2")],
    ],
)
@pytest.mark.parametrize("dialect", CODECS)
def test_calls_without_ids_of_their_own_get_them_and_keep_their_results(dialect: str, messages: Any) -> None:
    """F07: an odd id costs no real result: each stands behind its own call, in order, under an id that is noted."""
    kept, notes = paired(messages)
    assert {note.code for note in notes} == {NoteCode.CALL_ID_MADE}
    check(sent(dialect, kept), close=dialect != "responses")
    results = [each for each in kept if each["role"] == "tool"]
    assert [each["content"] for each in results] == ["r1", "r2"]
    ids = [each["id"] for message in kept for each in message.get("tool_calls", ())]
    assert ids == [each["tool_call_id"] for each in results]
    assert len(set(ids)) == 2


@pytest.mark.parametrize("shape", [NEUTRAL, BLOCKS, CONVERSE, ITEMS])
def test_a_real_result_is_never_lost(shape: Mapping[str, Any]) -> None:
    """Where a result of a call is in the history, it is in the repaired one, once, and no made-up one beside it."""
    for messages, _ in shape.values():
        text = json.dumps(paired(messages)[0])
        for call_id in all_call_ids(messages):
            real = f'"r{call_id}"'
            assert text.count(real) == min(json.dumps(messages).count(real), 1)


def test_repairing_twice_changes_nothing() -> None:
    """What was repaired is valid."""
    for shape in (NEUTRAL, BLOCKS, CONVERSE, ITEMS):
        for messages, _ in shape.values():
            kept, _notes = paired(messages)
            assert paired(kept) == (kept, ())


@pytest.mark.parametrize(
    "messages",
    [
        [USER, blocks("a", "b"), answers("b", "a", text="go")],
        [USER, converse("a"), given("a")],
        [USER, item("a"), {"type": "reasoning", "id": "r"}, item("b"), output("b"), output("a"), USER],
        [USER, output("kept by the provider"), USER],
        [{"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]}],
        [{"type": "web_search_call", "id": "w", "status": "completed"}],
    ],
)
def test_native_histories_that_are_valid_are_left_alone(messages: Any) -> None:
    """Calls that the provider runs, results of calls that it keeps, and results in another order are no faults."""
    kept, notes = paired(messages)
    assert notes == ()
    assert all(ours is theirs for ours, theirs in zip(kept, messages, strict=True))


async def test_a_run_repairs_and_says_so() -> None:
    """The request of a run on an imported history is valid, the outcome lists what was done, and the text says why."""
    model = Turns(says("ok"))
    result = await DefaultAgent(model=model).run("go on", [USER, blocks("a"), USER])
    assert [note.detail for note in result.outcome.notes] == ["call 'a' had no result: one that says so was added"]
    check(sent("messages", model.seen[0].messages), close=True)
    assert "unknown" in UNKNOWN
    assert tool_message("a", UNKNOWN) in model.seen[0].messages
