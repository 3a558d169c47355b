"""Adapters whose calls, replies or tool turns are wrong in one thing each are caught by the law that they break."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.conformance import conform
from isthmus.models.events import Call, Finish, StepResult
from isthmus.models.responses import ModelResponse
from support.twins import TOOLS, Chat, Modelled, Step


def with_(twin: type, **methods: Any) -> type:
    """The twin with one of its parts replaced."""
    return type(twin.__name__, (twin,), methods)


def value(what: Any) -> Any:
    """A part that always gives this."""
    return lambda self, *_: what


def added(**more: Any) -> Any:
    """Arguments with more in them."""
    return lambda self, call: {**json.loads(call[2]), **more}


def event(change: Any) -> Any:
    """A call event that is changed."""
    return lambda self, said: change(Step.call(self, said))


def changed(**fields: Any) -> Any:
    """A chat reply with other fields."""
    return lambda self, said: replace(Chat.response(self, said), **fields)


CALLS = {
    "chat: one id for all": (with_(Chat, call_id=value("c1")), "call-ids"),
    "chat: no id": (with_(Chat, call_id=value(None)), "call-ids"),
    "chat: an empty id": (with_(Chat, call_id=value("")), "call-ids"),
    "chat: a number for an id": (with_(Chat, call_id=value(7)), "call-ids"),
    "chat: no name": (with_(Chat, call_name=value("")), "call-shape"),
    "chat: a tool of nobody's": (with_(Chat, call_name=value("delete_all")), "call-offered"),
    "chat: a name that providers refuse": (with_(Chat, call_name=value("look up!")), "call-offered"),
    "chat: a prefixed name": (with_(Chat, call_name=value("functions.look_up")), "call-offered"),
    "chat: arguments as text": (with_(Chat, call_input=lambda self, call: call[2]), "call-shape"),
    "chat: arguments as pairs": (with_(Chat, call_input=value([["query", "x"]])), "call-shape"),
    "chat: no arguments": (with_(Chat, call_input=value(None)), "call-shape"),
    "chat: a set in the arguments": (with_(Chat, call_input=added(deep={1, 2})), "call-json"),
    "chat: bytes in the arguments": (with_(Chat, call_input=added(query=b"x")), "call-json"),
    "chat: not a number in the arguments": (with_(Chat, call_input=added(limit=float("nan"))), "call-json"),
    "chat: numbers for keys": (with_(Chat, call_input=lambda self, call: {"query": "x", 1: 2}), "call-json"),
    "chat: wrapped and encoded twice": (
        with_(Chat, call_input=lambda self, call: {"arguments": call[2]}),
        "call-encoded-once",
    ),
    "chat: an object encoded twice": (with_(Chat, call_input=added(deep='{"a": 1}')), "call-encoded-once"),
    "chat: a number as text": (with_(Chat, call_input=added(limit="3")), "call-encoded-once"),
    "chat: arguments swallowed": (with_(Chat, call_input=value({})), "call-arguments"),
    "chat: one argument swallowed": (with_(Chat, call_input=value({"limit": 3})), "call-arguments"),
    "chat: calls and end_turn": (with_(Chat, stop=value("end_turn")), "calls-stop"),
    "chat: calls and an unknown reason": (with_(Chat, stop=value("eos_token_9")), "calls-stop"),
    "chat: tool_use without calls": (with_(Chat, calls=value([])), "calls-stop"),
    "chat: no stop reason": (with_(Chat, stop=value(None)), "reply-shape"),
    "chat: an object for a stop reason": (with_(Chat, stop=value(7)), "reply-shape"),
    "chat: text is a list": (with_(Chat, response=changed(text=["x"])), "reply-shape"),
    "chat: calls are a dict": (with_(Chat, response=changed(tool_calls={})), "reply-shape"),
    "chat: a dict for a reply": (with_(Chat, response=value({"text": "x"})), "reply-shape"),
    "step: one id for all": (with_(Step, call_id=value("c1")), "call-ids"),
    "step: a tool of nobody's": (with_(Step, call_name=value("delete_all")), "call-offered"),
    "step: no name": (with_(Step, call=event(lambda c: Call("", c.input, c.call_id, c.arguments))), "call-shape"),
    "step: arguments as text": (
        with_(Step, call=event(lambda c: Call(c.tool, c.arguments, c.call_id, c.arguments))),
        "call-shape",
    ),
    "step: input is not what arguments say": (
        with_(Step, call=event(lambda c: Call(c.tool, {"query": "other"}, c.call_id, c.arguments))),
        "call-json",
    ),
    "model: one id for all": (with_(Modelled, call_id=value("c1")), "call-ids"),
    "model: no name": (with_(Modelled, call_name=value("")), "call-shape"),
    "model: no choice": (
        with_(Modelled, response=lambda self, said: ModelResponse(id="r", choices=[])),
        "reply-shape",
    ),
    "model: a string for a reply": (with_(Modelled, response=value("Zürich")), "reply-shape"),
}


def answering(change: Any) -> type:
    """A twin whose turn of one result is changed."""
    return with_(Chat, answer=lambda self, call, output: change(Chat.answer(self, call, output), call, output))


def turning(change: Any) -> type:
    """A twin whose tool turn is changed as a whole."""

    def make_tool_turn(self: Any, response: Any, results: Any) -> Any:
        return change(Chat.make_tool_turn(self, response, results), response, results)

    return with_(Chat, make_tool_turn=make_tool_turn)


def _swapped(turns: Any, response: Any, results: Any) -> Any:
    contents = [turn["content"] for turn in turns[1:]][::-1]
    return [turns[0], *({**turn, "content": text} for turn, text in zip(turns[1:], contents, strict=True))]


def _marks(turns: Any, response: Any, results: Any) -> Any:
    for call, _ in results:
        call.input["seen"] = True
    return turns


class Counts(Chat):
    """Counts its turns."""

    turned = 0

    def make_tool_turn(self, response: Any, results: Any) -> Any:
        self.turned += 1
        return [*super().make_tool_turn(response, results), {"role": "user", "content": f"turn {self.turned}"}]


class Picky(Chat):
    """Does not take its own turns back."""

    def request(self, messages: Any, tools: Any) -> Any:
        return {**super().request(messages, tools), "roles": [{"user": 1, "assistant": 2}[m["role"]] for m in messages]}


TURNS = {
    "ids lost": (answering(lambda t, c, o: {"role": "tool", "content": o}), "turn-ids"),
    "ids of another field": (answering(lambda t, c, o: {**t, "tool_call_id": c.name}), "turn-ids"),
    "ids swapped": (turning(_swapped), "turn-ids"),
    "one result lost": (turning(lambda t, r, s: t[:2] if len(s) > 1 else t), "turn-ids"),
    "empty results lost": (
        turning(lambda t, r, s: [m for m in t if m.get("content") or "tool_calls" in m]),
        "turn-ids",
    ),
    "no assistant": (turning(lambda t, r, s: t[1:]), "turn-assistant"),
    "text dropped": (answering(lambda t, c, o: {**t, "content": "ok"}), "turn-results"),
    "text cut": (answering(lambda t, c, o: {**t, "content": o[:100]}), "turn-results"),
    "text as repr": (answering(lambda t, c, o: {**t, "content": repr(o)}), "turn-results"),
    "text without its odd characters": (
        answering(lambda t, c, o: {**t, "content": o.encode("ascii", "ignore").decode()}),
        "turn-results",
    ),
    "text escaped": (answering(lambda t, c, o: {**t, "content": o.replace("<", "&lt;")}), "turn-results"),
    "text on one line": (answering(lambda t, c, o: {**t, "content": " ".join(o.split())}), "turn-results"),
    "text formatted": (answering(lambda t, c, o: {**t, "content": o.format()}), "turn-made"),
    "text interpolated": (answering(lambda t, c, o: {**t, "content": o % ()}), "turn-made"),
    "a role of nobody's": (answering(lambda t, c, o: {**t, "role": "tool_runner"}), "turn-roles"),
    "no role": (answering(lambda t, c, o: {k: v for k, v in t.items() if k != "role"}), "turn-roles"),
    "arguments as repr": (with_(Chat, told=lambda self, arguments: repr(arguments)), "turn-arguments"),
    "arguments as str": (with_(Chat, told=lambda self, arguments: f"{arguments}"), "turn-arguments"),
    "a raw object that is not there": (
        with_(
            Chat,
            asked=lambda self, r, s: {"role": "assistant", "content": r._raw["usage"], "ids": [c.id for c, _ in s]},
        ),
        "turn-made",
    ),
    "text that is not there": (
        with_(Chat, asked=lambda self, r, s: {**Chat.asked(self, r, s), "content": r.text.strip()}),
        "turn-made",
    ),
    "a tuple": (turning(lambda t, r, s: tuple(t)), "turn-shape"),
    "a dict": (turning(lambda t, r, s: t[0]), "turn-shape"),
    "nothing": (turning(lambda t, r, s: []), "turn-shape"),
    "strings": (turning(lambda t, r, s: [str(m) for m in t]), "turn-shape"),
    "objects": (turning(lambda t, r, s: [SimpleNamespace(**m) for m in t]), "turn-shape"),
    "the calls changed": (turning(_marks), "turn-pure"),
    "its own turn refused": (Picky, "turn-read-back"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_broken_call_or_reply_is_caught_by_its_law_alone(name: str) -> None:
    """F02, F15: one change in a right reply gives errors of the law that it breaks, and of no other."""
    kind, law = CALLS[name]
    report = asyncio.run(conform(kind, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {law}, report.table()


@pytest.mark.parametrize("name", TURNS)
def test_a_broken_tool_turn_is_caught_by_its_law_alone(name: str) -> None:
    """F07: one change in a right tool turn gives errors of the law that it breaks, and of no other."""
    kind, law = TURNS[name]
    report = asyncio.run(conform(kind, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {law}, report.table()


def test_a_tool_turn_that_keeps_count_is_warned_of() -> None:
    """A turn that differs each time is a warning: an id of its own may be random."""
    report = asyncio.run(conform(Counts, tools=TOOLS))
    assert report.ok, report.table()
    assert "turn-pure" in {finding.law for finding in report.findings}


def test_a_cut_call_is_caught() -> None:
    """A call without the arguments that its tool requires, in a reply that was cut, is caught as cut."""

    class Cuts(Chat):
        def calls(self, said: Any) -> Any:
            return Chat.calls(self, said)[:1]

        def call_input(self, call: Any) -> Any:
            return {}

        def stop(self, said: Any) -> Any:
            return "max_tokens" if said["calls"] else "end_turn"

    report = asyncio.run(conform(Cuts, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {"cut-call"}, report.table()


def test_arguments_encoded_twice_on_the_step_face_are_caught() -> None:
    """A call whose arguments are JSON text of JSON text is encoded twice."""

    class Twice(Step):
        async def generate(self, ctx: Any) -> Any:
            text = json.dumps(json.dumps({"query": "x"}))
            return StepResult(events=(Call("look_up", None, "c1", text, "a string"),), finish="tool-calls")

        stream = None  # type: ignore[assignment]

    report = asyncio.run(conform(Twice, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {"call-encoded-once"}, report.table()


def test_a_finish_of_nobodys_is_caught_on_both_ways() -> None:
    """A finish that the contract does not know is wrong in a stream and in a whole reply."""

    class Odd(Step):
        def terminal(self, said: Any) -> Any:
            return Finish("done")

    report = asyncio.run(conform(Odd, tools=TOOLS))
    assert {finding.law for finding in report.errors} == {"event-shape", "reply-shape"}, report.table()
