"""Laws on the tool turn: what goes back to the model names its calls, and says what the tools returned."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from isthmus.adapters.base import ChatResponse, ToolCall
from isthmus.conformance.graph import walk
from isthmus.conformance.law import Found, Group, Judge, NotJudged
from isthmus.conformance.reading import Reading, not_json, shown
from isthmus.conformance.report import ERROR, WARNING
from isthmus.conformance.seen import Ask, Seen, refuses_tools
from isthmus.models.checks import Finding
from isthmus.models.jsontext import dumps
from isthmus.models.turn_checks import advise_tool_turn, check_tool_turn

GROUP = Group()
law = GROUP.law

_ODD = "Line one\nline 'two' \"quoted\" {braces} %s \\ 🦔 <tag> \tÉ e\u0301 \ufb01 "
ODD = _ODD + "long " * 2000 + "END"
"""A result that survives only a rendering that leaves it alone."""


@dataclass(slots=True)
class Turned:
    """One call of `make_tool_turn`, and what came of it."""

    name: str
    response: Any
    results: list[tuple[Any, str]]
    turns: Any = None
    error: Exception | None = None
    changed: bool = False
    twice: bool = True
    grew: bool = False
    findings: list[Finding] = field(default_factory=list)


def _made_up() -> list[tuple[str, ChatResponse, list[str]]]:
    """Replies without a native object, as a history gives them back."""
    two = [
        ToolCall("call_conform_1", "look_up", {"query": 'it\'s "odd"', "deep": {"list": [1, None, True]}}),
        ToolCall("call_conform_2", "add_note", {"text": "ünï 🦔", "done": False}),
    ]
    one = [ToolCall("call_conform_3", "look_up", {})]
    return [
        ("two calls", ChatResponse("Let me look.", two, "tool_use"), ["first result", ODD]),
        ("a call without text", ChatResponse(None, one, "tool_use"), [""]),
    ]


async def _turned(seen: Seen) -> list[Turned]:
    """The tool turns of its own reply and of made-up ones; made once."""
    kept = seen.kept.get("turns")
    if kept is not None:
        return kept  # type: ignore[no-any-return]
    adapter = await seen.subject.make()
    todo = [(name, reply, outputs) for name, reply, outputs in _made_up()]
    for heard in await seen.usual():
        reading = heard.reading
        if heard.face in ("chat", "stream_with_tools") and heard.fit and reading is not None and _sayable(reading):
            outputs = [f"result {number} {ODD}" for number, _ in enumerate(reading.calls)]
            todo.append((f"its own reply ({heard.face})", reading.reply, outputs))
    made = [_turn(adapter, name, reply, outputs) for name, reply, outputs in todo]
    seen.kept["turns"] = made
    return made


def _sayable(reading: Reading) -> bool:
    """Whether it holds calls, each with arguments that can be said in JSON."""
    return bool(reading.calls) and not any(not_json(call.input) for call in reading.calls)


def _turn(adapter: Any, name: str, response: Any, outputs: list[str]) -> Turned:
    results = list(zip(response.tool_calls, outputs, strict=True))
    turned = Turned(name, response, results)
    before = _said(response), [(call.id, call.name, deepcopy(call.input), output) for call, output in results]
    try:
        turned.turns = adapter.make_tool_turn(response, results)
        first = _spelled(turned.turns)
        turned.findings = check_tool_turn(turned.turns, results)
        count = len(turned.turns) if isinstance(turned.turns, list) else 0
        again = adapter.make_tool_turn(response, list(results))
        turned.twice = _spelled(again) == first
        turned.grew = isinstance(again, list) and len(again) != count
    except Exception as error:
        turned.error = error
        return turned
    after = _said(response), [(call.id, call.name, call.input, output) for call, output in results]
    turned.changed = before != after
    return turned


def _spelled(turns: Any) -> str:
    """The turns as text, without the addresses of objects."""
    return re.sub(r"0x[0-9a-fA-F]+", "", shown(turns, 20_000))


def _said(response: Any) -> Any:
    calls = [(call.id, call.name, deepcopy(call.input)) for call in response.tool_calls]
    return response.text, calls, response.stop_reason


def _of_turn(*rules: str, advice: str = "") -> Judge:
    """A judge that reports the findings of these rules, the first of each reply, and warns by another one."""

    async def judge(seen: Seen) -> AsyncIterator[Found]:
        for turned in await _turned(seen):
            found = next((each for each in turned.findings if each.rule in rules), None)
            if found is not None:
                yield Found(f"make_tool_turn, {turned.name}: {found.message}", shown(turned.turns, 300))
            elif not turned.findings and turned.error is None:
                for advised in [each for each in advise_tool_turn(turned.turns, turned.results) if each.rule == advice][
                    :1
                ]:
                    said = f"make_tool_turn, {turned.name}: {advised.message}"
                    yield Found(said, shown(turned.turns, 300), severity=WARNING)

    return judge


@law(
    "turn-made",
    "make_tool_turn renders any reply of the contract, one without a native object too.",
    why="A history that was saved and loaded, or made by another provider, has no native object.",
    fix="build the turn from response.text and response.tool_calls where response._raw is None",
    covers=("F03", "F07"),
)
async def _turn_made(seen: Seen) -> AsyncIterator[Found]:
    for turned in await _turned(seen):
        if turned.error is not None:
            yield Found(
                f"make_tool_turn, {turned.name}: raised {type(turned.error).__name__}",
                shown(turned.error),
                "a list of turns",
            )
        elif turned.response.text is None and any(item in ("None", "null") for _, item in walk(turned.turns)):
            said = f"make_tool_turn, {turned.name}: its text is None, and stands in the turns as a word"
            yield Found(said, shown(turned.turns, 300), "no text, or an empty one")


law(
    "turn-shape",
    "make_tool_turn returns a non-empty list of dicts.",
    why="The loop appends what it returns to the transcript.",
    fix='return [{"role": "assistant", …}, {"role": …, …}]',
    covers=("F14",),
    after=("made", "turn-made"),
)(_of_turn("turns-type", "turn-type"))

law(
    "turn-roles",
    "The turns have roles that providers know.",
    why="A provider refuses a transcript with a role of nobody's.",
    fix='use "assistant" for the calls, and "tool" or "user" for the results',
    covers=("F14",),
    after=("made", "turn-made", "turn-shape"),
)(_of_turn("turn-role"))

law(
    "turn-assistant",
    "The turns hold the assistant's own, before the results.",
    why="Results without the calls that they answer are refused.",
    fix="put the assistant's turn, with its calls, first",
    covers=("F07",),
    after=("made", "turn-made", "turn-shape", "turn-roles"),
)(_of_turn("turn-assistant"))

law(
    "turn-ids",
    "The id of each call stands in the assistant's turn, and with its own result.",
    why="A result under another id, or none, answers the wrong call.",
    fix="write each call.id with the call, and beside the output that belongs to it",
    covers=("F07", "F02"),
    after=("made", "turn-made", "turn-shape", "turn-roles", "turn-assistant"),
)(_of_turn("result-id", "result-pair", advice="call-id"))

law(
    "turn-results",
    "What a tool returned stands in the turns exactly as it is.",
    why="The model answers from what it is told: text that is lost, cut or quoted misleads it.",
    fix="put the output in as the string that it is; neither repr nor format nor cut it",
    covers=("F07", "F19"),
    after=("made", "turn-made", "turn-shape", "turn-roles", "turn-ids"),
)(_of_turn("result-text"))

law(
    "turn-arguments",
    "The arguments of each call stand in the assistant's turn as JSON.",
    why="A Python repr, or nothing, is refused, or teaches the model to write it.",
    fix="json.dumps(call.input) where the provider wants text, call.input where it wants an object",
    covers=("F15", "F07"),
    after=("made", "turn-made", "turn-shape", "turn-roles", "turn-assistant", "turn-ids"),
)(_of_turn("call-arguments", advice="call-lost"))


@law(
    "turn-pure",
    "make_tool_turn changes nothing, and says the same each time.",
    why="It renders a history again and again, at each request.",
    fix="copy what you change, and keep no state in it",
    covers=("F22",),
    after=("made", "turn-made", "turn-shape"),
)
async def _turn_pure(seen: Seen) -> AsyncIterator[Found]:
    for turned in await _turned(seen):
        if turned.changed:
            yield Found(f"make_tool_turn, {turned.name}: it changed the reply or the results", expected="unchanged")
        elif not turned.twice:
            said = f"make_tool_turn, {turned.name}: the second time it says something else"
            longer = turned.grew
            yield Found(said, expected="the same", severity=ERROR if longer else WARNING)


@law(
    "turn-read-back",
    "The adapter takes the transcript with its own tool turn in it.",
    why="The next request of every tool loop is made of it.",
    fix="let your request builder pass the turns that make_tool_turn makes",
    covers=("F07", "F14"),
    after=(
        *("made", "answers", "reply-shape", "event-shape", "finish-present", "turn-made", "turn-shape", "turn-roles"),
        *("turn-ids", "turn-results"),
    ),
)
async def _turn_read_back(seen: Seen) -> AsyncIterator[Found]:
    # Without its length: a slow model reads that for minutes.
    name, reply, _ = _made_up()[0]
    turned = _turn(await seen.subject.make(), name, reply, ["first result", _ODD])
    for face in [face for face in seen.faces if face in ("chat", "stream_with_tools", "stream", "get_response")]:
        own = face in ("chat", "stream_with_tools")
        history = [*seen.ask.messages, *(turned.turns if own else _neutral(turned))]
        heard = await seen.hear(face, Ask(history, seen.ask.tools))
        if heard.error is not None and seen.subject.fresh and not refuses_tools(seen, heard):
            yield Found(
                f"{face}: raised {type(heard.error).__name__} on a transcript with a tool turn",
                shown(heard.error),
                "a reply",
            )
        return
    raise NotJudged("no face takes a transcript")


def _neutral(turned: Turned) -> list[dict[str, Any]]:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": dumps(call.input).decode()}}
        for call, _ in turned.results
    ]
    answers = [{"role": "tool", "tool_call_id": call.id, "content": output} for call, output in turned.results]
    return [{"role": "assistant", "content": turned.response.text, "tool_calls": calls}, *answers]
