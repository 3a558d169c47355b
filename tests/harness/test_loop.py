"""The step machine alone: states and events in, states and effects out, no model anywhere."""

from typing import Any

import pytest

from isthmus.errors import ChainExhausted, CutReason, RefusedError, TransientError
from isthmus.harness.effects import CallModel, Done, Emit, RunTools
from isthmus.harness.history import NOT_EXECUTED, UNKNOWN, Said
from isthmus.harness.limits import Limits
from isthmus.harness.loop import CUT_OFF, RESUME, advance, start
from isthmus.harness.outcome import Outcome
from isthmus.harness.reports import Aborted, Failed, Replied, ToolsRan
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Native, NoteCode, StepResult, Text, Usage
from isthmus.models.executor import ToolResult
from isthmus.models.messages import RESERVED
from isthmus.models.tools import Tool, Tools
from support.turns import call

USER = {"role": "user", "content": "hi"}
TOOL = Tool(name="f", handler=lambda args: 1)


def begin(*, tools: Any = (), limits: Limits | None = None, messages: Any = (USER,), **request: Any) -> Any:
    """A run that has just begun: its state, and the first call."""
    policy = tools if isinstance(tools, Tools) else Tools(tools)
    state, (effect,) = start(messages, GenerateContext(brief="b", **request), tools=policy, limits=limits)
    assert isinstance(effect, CallModel)
    return state, effect


def reply(*events: Any, finish: str = "stop", shown: str | None = None, **fields: Any) -> Replied:
    """A reply of texts and calls."""
    parts = tuple(Text(event) if isinstance(event, str) else event for event in events)
    step = StepResult(events=parts, finish=finish, **fields)
    return Replied(step, Said(step.text, step.text) if shown is None else Said(shown, shown), "tier")


def ran(*calls: Any, content: str = "1", outcome: str = "ok") -> ToolsRan:
    """The results of calls."""
    return ToolsRan(tuple(ToolResult(each.call_id, each.tool, content, outcome) for each in calls))


def ending(effects: Any) -> Outcome:
    """The outcome, of effects that end a run."""
    assert isinstance(effects[-1], Done)
    return effects[-1].outcome


def test_the_first_call_is_the_request_with_the_transcript() -> None:
    """The context holds the brief, the transcript and the tools; without tools no choice is sent."""
    _, effect = begin(tools=[TOOL], max_output_tokens=9)
    ctx = effect.ctx
    assert (ctx.brief, ctx.messages, ctx.tools, ctx.max_output_tokens) == ("b", (USER,), (TOOL,), 9)
    assert (ctx.tool_choice, ctx.parallel_tool_calls) == ("auto", False)
    _, effect = begin()
    assert (effect.ctx.tools, effect.ctx.tool_choice, effect.ctx.parallel_tool_calls) == ((), None, True)


@pytest.mark.parametrize("finish", ["stop", "other", "refusal"])
def test_a_reply_that_ends_completes_the_run(finish: str) -> None:
    """F12, F20: stop, other and refusal complete; the finish stays visible, the tier and the tokens are kept."""
    state, _ = begin()
    usage = Usage(input_tokens=3, output_tokens=4)
    _, effects = advance(state, reply("yes", finish=finish, usage=usage))
    done = ending(effects)
    assert (done.outcome, done.reason, done.text, done.finish, done.tier) == ("completed", None, "yes", finish, "tier")
    assert (done.messages, done.steps) == ((USER, {"role": "assistant", "content": "yes"}), 1)
    assert (done.usage, done.usage_missing) == (usage, False)


def test_filtered_text_is_kept_and_cut() -> None:
    """F20: a content filter cuts the run as refused and keeps the text."""
    state, _ = begin()
    _, effects = advance(state, reply("par", finish="content-filter", raw_reason="blocked"))
    done = ending(effects)
    assert (done.outcome, done.reason, done.text) == ("cut", CutReason.REFUSED, "par")
    assert "blocked" in done.detail
    assert done.messages[-1]["content"] == "par"


def test_calls_run_and_their_results_are_asked_about() -> None:
    """Whole calls go to the tools, their results into the transcript in the order of the calls."""
    state, _ = begin(tools=[TOOL])
    one, two = call("f", "a"), call("f", "b")
    state, (run,) = advance(state, reply("hm", one, two, finish="tool-calls"))
    assert isinstance(run, RunTools)
    assert (run.calls, dict(run.used)) == ((one, two), {})
    state, (ask,) = advance(state, ToolsRan(ran(two, one).results))
    assert isinstance(ask, CallModel)
    assert [message["role"] for message in ask.ctx.messages] == ["user", "assistant", "tool", "tool"]
    assert [message["tool_call_id"] for message in ask.ctx.messages[2:]] == ["a", "b"]
    assert ask.taken == {"a", "b"}
    _, effects = advance(state, reply("done"))
    assert (ending(effects).text, ending(effects).steps) == ("done", 2)


def rounds(state: Any, effects: Any, most: int = 50) -> tuple[list[CallModel], Any]:
    """Answer each request with a call, as long as the machine asks."""
    asked = []
    for number in range(most):
        if not isinstance(effects[0], CallModel):
            break
        asked.append(effects[0])
        each = call("f", f"c{number}")
        state, effects = advance(state, reply(each, finish="tool-calls"))
        known = isinstance(effects[0], RunTools) and effects[0].tools.tools
        state, effects = advance(state, ran(each, outcome="ok" if known else "unknown-tool"))
    return asked, effects


@pytest.mark.parametrize("most", [0, 1, 2, 10])
def test_tools_are_withdrawn_after_the_last_round(most: int) -> None:
    """After exactly `max_tool_round_trips` rounds the request has no tools, and the choice "none" is said aloud."""
    state, effect = begin(tools=Tools([TOOL], max_tool_round_trips=most, tool_choice="required"))
    asked, _ = rounds(state, (effect,), most + 1)
    assert [bool(each.ctx.tools) for each in asked] == [True] * most + [False]
    assert [each.ctx.tool_choice for each in asked] == ["required"] * most + ["none"]


def test_calls_after_the_withdrawal_are_not_run() -> None:
    """A model that calls although nothing is offered gets answers from an empty set of tools."""
    state, _ = begin(tools=Tools([TOOL], max_tool_round_trips=0))
    _, (run,) = advance(state, reply(call("f"), finish="tool-calls"))
    assert isinstance(run, RunTools)
    assert run.tools.tools == ()


@pytest.mark.parametrize(
    ("limits", "steps", "detail"),
    [
        (Limits(), 20, "max_steps=20"),
        (Limits(max_steps=1), 1, "max_steps=1"),
        (Limits(max_steps=3), 3, "max_steps=3"),
        (Limits(max_steps=500), 128, "max_turns=128"),
        (Limits(max_steps=500, max_turns=4), 4, "max_turns=4"),
    ],
)
def test_steps_are_cut_at_exactly_their_number(limits: Limits, steps: int, detail: str) -> None:
    """N model calls are made, the one after is cut; every call in the transcript has a result."""
    state, effect = begin(tools=Tools([TOOL], max_tool_round_trips=1000), limits=limits)
    asked, effects = rounds(state, (effect,), 1000)
    done = ending(effects)
    assert (len(asked), done.steps) == (steps, steps)
    assert (done.outcome, done.reason) == ("cut", CutReason.BUDGET_STEPS)
    assert detail in done.detail
    assert [message["role"] for message in done.messages] == ["user", *["assistant", "tool"] * steps]


def test_a_used_up_tool_is_withdrawn() -> None:
    """A tool at its limit is no longer offered; a choice that names it becomes "auto"; with none left it is "none"."""
    other = Tool(name="g", handler=lambda args: 1)
    tools = Tools([TOOL, other], tool_call_limits={"f": 1, "g": 0}, tool_choice="f")
    state, effect = begin(tools=tools)
    assert (effect.ctx.tools, effect.ctx.tool_choice) == ((TOOL,), "f")
    asked, _ = rounds(state, (effect,), 2)
    assert (asked[1].ctx.tools, asked[1].ctx.tool_choice) == ((), "none")
    state, effect = begin(tools=Tools([TOOL, other], tool_call_limits={"f": 1}, tool_choice="f"))
    asked, _ = rounds(state, (effect,), 2)
    assert (asked[1].ctx.tools, asked[1].ctx.tool_choice) == ((other,), "auto")


def test_calls_that_did_not_run_do_not_count() -> None:
    """A faulty call leaves the tool's limit as it was."""
    state, _ = begin(tools=Tools([TOOL], tool_call_limits={"f": 1}))
    each = call("f")
    state, _ = advance(state, reply(each, finish="tool-calls"))
    _, (ask,) = advance(state, ran(each, outcome="invalid-arguments"))
    assert isinstance(ask, CallModel)
    assert ask.ctx.tools == (TOOL,)


def test_a_text_cut_by_length_is_continued() -> None:
    """The text and a short request to resume go along for this one call; history keeps one whole answer."""
    state, _ = begin()
    state, (ask,) = advance(state, reply("one two", finish="length"))
    assert isinstance(ask, CallModel)
    assert ask.said == "one two"
    assert ask.ctx.messages == (
        USER,
        {"role": "assistant", "content": "one two"},
        {"role": "user", "content": RESUME},
    )
    state, (ask,) = advance(state, reply("two three", finish="length", shown=" three"))
    assert isinstance(ask, CallModel)
    assert [message["content"] for message in ask.ctx.messages] == ["hi", "one two three", RESUME]
    _, effects = advance(state, reply(" four"))
    done = ending(effects)
    assert (done.outcome, done.text, done.steps) == ("completed", "one two three four", 3)
    assert done.messages == (USER, {"role": "assistant", "content": "one two three four"})
    assert [note.code for note in done.notes] == [NoteCode.CONTINUED] * 2


@pytest.mark.parametrize("most", [0, 1, 3])
def test_continuations_end_with_the_mark(most: int) -> None:
    """After exactly `max_continuations` the run is cut; the mark is shown and in the text, not in the transcript."""
    state, effect = begin(limits=Limits(max_continuations=most))
    effects: Any = (effect,)
    calls = 0
    while isinstance(effects[0], CallModel):
        calls += 1
        state, effects = advance(state, reply("a", finish="length"))
    mark = f"\n\n{CUT_OFF}"
    done = ending(effects)
    assert calls == most + 1
    assert effects[0] == Emit(Text(mark))
    assert (done.outcome, done.reason, done.text) == ("cut", CutReason.LENGTH, "a" * calls + mark)
    assert done.messages == (USER, {"role": "assistant", "content": "a" * calls})


def test_a_reply_without_text_is_not_continued() -> None:
    """A reply that was cut while reasoning gives the mark alone, at once."""
    state, _ = begin()
    _, effects = advance(state, reply(finish="length", reasoning="long thoughts"))
    assert effects[0] == Emit(Text(CUT_OFF))
    assert (ending(effects).reason, ending(effects).text) == (CutReason.LENGTH, CUT_OFF)


class Form:
    """An output form, as an adapter reads it."""

    def __init__(self, response_format: Any) -> None:
        self._format = response_format

    def name(self) -> str:
        """Its name."""
        return "form"

    def json_schema(self) -> dict[str, Any]:
        """Its schema."""
        return {}

    def response_format(self) -> Any:
        """What is sent."""
        return self._format


def test_a_structured_reply_is_not_continued() -> None:
    """JSON that was cut is cut, without a mark in it; a form that asks for text is text."""
    state, _ = begin(output=Form({"type": "json_schema"}))
    _, effects = advance(state, reply('{"a', finish="length"))
    assert effects[:-1] == (Emit(Text('{"a')),)
    assert (ending(effects).reason, ending(effects).text) == (CutReason.LENGTH, '{"a')
    state, _ = begin(output=Form(None))
    _, (ask,) = advance(state, reply("a", finish="length"))
    assert isinstance(ask, CallModel)


def test_a_continuation_may_call_tools() -> None:
    """What was said before the cut and the calls after it are one message."""
    state, _ = begin(tools=[TOOL])
    state, _ = advance(state, reply("one", finish="length"))
    each = call("f")
    state, (run,) = advance(state, reply(" two", each, finish="tool-calls"))
    assert isinstance(run, RunTools)
    _, (ask,) = advance(state, ran(each))
    assert isinstance(ask, CallModel)
    assert (ask.ctx.messages[1]["content"], len(ask.ctx.messages), ask.said) == ("one two", 3, "")


def test_a_continuation_that_fails_is_a_cut_with_what_was_said() -> None:
    """A failure before its own content cuts the answer that had begun; the transcript keeps it."""
    state, _ = begin()
    state, _ = advance(state, reply("one", finish="length"))
    error = TransientError("gone")
    _, effects = advance(state, Failed(error))
    done = ending(effects)
    assert (done.outcome, done.reason, done.text, done.error) == ("cut", CutReason.STREAM_ERROR, "one", error)
    assert done.messages[-1] == {"role": "assistant", "content": "one"}


def test_a_pause_sends_the_turn_back_unchanged() -> None:
    """The paused message goes back with its native form, without a user turn, and counts as a step."""
    state, _ = begin()
    native = Native("d", "message", [{"type": "server_tool_use"}])
    state, (ask,) = advance(state, reply("let me see", finish="pause", native=(native,)))
    assert isinstance(ask, CallModel)
    assert [message["role"] for message in ask.ctx.messages] == ["user", "assistant"]
    assert ask.ctx.messages[1][RESERVED]["native"]["json"] == '[{"type":"server_tool_use"}]'
    assert ask.said == ""
    _, effects = advance(state, reply(": yes"))
    done = ending(effects)
    assert (done.text, done.steps) == ("let me see: yes", 2)
    assert [message["content"] for message in done.messages[1:]] == ["let me see", ": yes"]


def test_endless_pauses_run_into_the_budget() -> None:
    """A model that always pauses is cut by the steps."""
    state, effect = begin(limits=Limits(max_steps=3))
    effects: Any = (effect,)
    for _ in range(3):
        state, effects = advance(state, reply("a", finish="pause"))
    assert (ending(effects).reason, ending(effects).text) == (CutReason.BUDGET_STEPS, "aaa")


def test_nothing_runs_after_a_broken_reply() -> None:
    """F05, F07: a reply that broke after content is cut, its calls are answered as not executed, its partial stays."""
    state, _ = begin(tools=[TOOL])
    error = TransientError("reset")
    each = call("f", "a")
    _, effects = advance(state, reply("par", each, finish="error-post", error=error))
    done = ending(effects)
    assert (done.outcome, done.reason, done.text, done.error) == ("cut", CutReason.STREAM_ERROR, "par", error)
    assert done.messages[-1] == {"role": "tool", "tool_call_id": "a", "content": NOT_EXECUTED, "name": "f"}


def test_a_failure_before_content_fails_the_run() -> None:
    """A failed run carries its error and class; an exhausted chain says so; the transcript is valid."""
    for error, reason in (
        (RefusedError("no"), "refused"),
        (ChainExhausted("c"), "exhausted"),
        (KeyError("k"), "unclassified"),
    ):
        state, _ = begin()
        _, effects = advance(state, Failed(error))
        done = ending(effects)
        assert (done.outcome, done.reason, done.error, done.text) == ("failed", reason, error, "")
        assert done.messages == (USER,)


def test_an_error_with_a_cut_reason_is_a_cut() -> None:
    """A chain's own budget or deadline ends the run as the cut that it names."""
    error = TransientError("over")
    error.reason = CutReason.DEADLINE  # type: ignore[attr-defined]
    state, _ = begin()
    _, effects = advance(state, Failed(error))
    assert (ending(effects).outcome, ending(effects).reason) == ("cut", "deadline")


def test_ids_that_earlier_calls_have_are_renamed() -> None:
    """F04: a call with a taken id gets a new one in transcript and tools, noted, without its native form."""
    state, _ = begin(tools=[TOOL])
    first, again = call("f", "call_0"), call("f", "call_0")
    state, _ = advance(state, reply(first, finish="tool-calls"))
    state, _ = advance(state, ran(first))
    state, (run,) = advance(state, reply(again, finish="tool-calls", native=(Native("d", "message", 1),)))
    assert isinstance(run, RunTools)
    assert [each.call_id for each in run.calls] == ["call_0_2"]
    state, (ask,) = advance(state, ran(*run.calls))
    assert isinstance(ask, CallModel)
    assert [m.get("tool_call_id") for m in ask.ctx.messages if m["role"] == "tool"] == ["call_0", "call_0_2"]
    assert ask.ctx.messages[3]["tool_calls"][0]["id"] == "call_0_2"
    assert RESERVED not in ask.ctx.messages[3]
    assert [note.code for note in state.notes] == [NoteCode.CALL_ID_CHANGED, NoteCode.NATIVE_DROPPED]


def test_an_abort_while_reading_keeps_what_arrived() -> None:
    """F07: the partial text stays, its calls are answered as not executed."""
    state, _ = begin(tools=[TOOL])
    partial = StepResult(events=(Text("par"), call("f", "a")), finish="error-post", usage=Usage(output_tokens=2))
    _, effects = advance(state, Aborted(partial, Said("par", "par")))
    done = ending(effects)
    assert (done.outcome, done.reason, done.text) == ("cut", CutReason.ABORTED, "par")
    assert [message["role"] for message in done.messages] == ["user", "assistant", "tool"]
    assert done.messages[-1]["content"] == NOT_EXECUTED
    assert (done.usage, done.usage_missing) == (Usage(output_tokens=2), True)


def test_an_abort_among_tools_says_what_is_known() -> None:
    """F07: finished calls keep their results, a call that had begun is unknown, the rest was not executed."""
    state, _ = begin(tools=[TOOL])
    calls = [call("f", each) for each in "abc"]
    state, _ = advance(state, reply(*calls, finish="tool-calls"))
    _, effects = advance(state, Aborted(results=ran(calls[0]).results, started=frozenset("ab")))
    done = ending(effects)
    assert [message["content"] for message in done.messages[2:]] == ["1", UNKNOWN, NOT_EXECUTED]


def test_usage_adds_up_and_says_what_is_missing() -> None:
    """F11: buckets are summed over the steps, what no step reported stays None, a step without usage is told."""
    state, _ = begin(tools=[TOOL])
    each = call("f")
    usage = Usage(input_tokens=10, output_tokens=1, cache_read_tokens=5)
    state, _ = advance(state, reply(each, finish="tool-calls", usage=usage))
    state, _ = advance(state, ran(each))
    whole = advance(state, reply("x", usage=Usage(input_tokens=20, output_tokens=2, estimated=True)))[1]
    assert ending(whole).usage == Usage(input_tokens=30, output_tokens=3, cache_read_tokens=5, estimated=True)
    assert not ending(whole).usage_missing
    partly = advance(state, reply("x"))[1]
    assert (ending(partly).usage, ending(partly).usage_missing) == (usage, True)
    never = advance(begin()[0], reply("x"))[1]
    assert (ending(never).usage, ending(never).usage_missing) == (None, True)


def test_a_broken_transcript_is_mended_before_it_is_sent() -> None:
    """F07: a call that an earlier run left open is answered before the model sees it, on a copy, and noted."""
    calls = [{"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    history = [USER, {"role": "assistant", "content": None, "tool_calls": calls}, USER]
    state, effect = begin(messages=history)
    assert [message["role"] for message in effect.ctx.messages] == ["user", "assistant", "tool", "user"]
    assert len(history) == 3
    assert [note.code for note in state.notes] == [NoteCode.HISTORY_CHANGED]
    assert effect.taken == {"x"}


def test_states_are_never_changed() -> None:
    """Advancing twice from one state gives the same twice."""
    state, _ = begin(tools=[TOOL])
    report = reply("a", call("f"), finish="tool-calls")
    assert advance(state, report) == advance(state, report)
    assert state.messages == (USER,)


@pytest.mark.parametrize("wrong", [{"max_steps": 0}, {"max_turns": True}, {"max_continuations": -1}])
def test_limits_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    """A limit names itself and its value."""
    (name,) = wrong
    with pytest.raises(ValueError, match=name):
        Limits(**wrong)
