"""Holds one adapter to every law, in bounded time, and reports."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from isthmus.adapters.render import read_tools
from isthmus.conformance.law import Found, Law, NotJudged
from isthmus.conformance.laws import LAWS
from isthmus.conformance.laws_maker import Listener
from isthmus.conformance.playing import choose
from isthmus.conformance.reading import shown
from isthmus.conformance.reels import opened_cinema
from isthmus.conformance.report import ERROR, FAIL, PASS, SKIP, Finding, Report, Standing
from isthmus.conformance.seen import Ask, Seen
from isthmus.conformance.subject import CannotMake, Subject
from isthmus.conformance.watch import Hangs, Heart, elsewhere, staying, within
from isthmus.errors import TierError
from isthmus.models.contract import ToolSpec

CANARY = "sk-isthmus-conformance-canary-7f3a9"
"""The key that every parameter for a key gets."""
MESSAGES: tuple[Mapping[str, Any], ...] = (
    {"role": "user", "content": "Good morning."},
    {"role": "assistant", "content": "Good morning. What shall I look up?"},
    {"role": "user", "content": "Look up the weather in Zürich, please. 🦔"},
)
"""What is asked where the caller gives no messages."""
TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        name="look_up",
        description="Look something up.",
        parameters_schema={
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
        },
    ),
    ToolSpec(
        name="add_note",
        description="Keep a note.",
        parameters_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ),
)
"""What is offered where the caller gives no tools."""
_BUDGET = 12
_CHOOSING = 4
"""The part of that which choosing among the recordings may take: a quarter."""
_TOO_LONG = "each call takes too long"
_ORDER = {law.id: place for place, law in enumerate(LAWS)}


async def conform(
    adapter: Any,
    *,
    tools: Sequence[Any] | None = None,
    messages: Sequence[Mapping[str, Any]] | None = None,
    scenarios: Mapping[str, Callable[..., Any]] | None = None,
    recordings: Any = None,
    api_key_canary: str = CANARY,
    patience: float = 5.0,
) -> Report:
    """Hold an adapter to every law of `LAWS`.

    It runs in a thread with a loop of its own, so an adapter that hangs or blocks is reported and left.

    Args:
        adapter: an adapter class, a factory whose parameters are filled by name, or one adapter. A class or a factory
            is judged better: each call gets a fresh adapter.
        tools: the tools that it knows: {name, description, input_schema} or `ToolSpec`; two made-up ones where None.
        messages: the transcript to answer, as role dicts.
        scenarios: how to bring a misfortune about, by name: a callable that takes nothing and returns an adapter, or
            takes a fresh one and changes it. Its name says what is judged: "truncated", "error", "broken arguments".
        recordings: a folder of recordings of its provider, or several, for the laws at wire level.
        api_key_canary: the secret that must show up nowhere.
        patience: seconds that one call may take.
    """
    report = Report(Subject(adapter, api_key_canary).name)
    ask = Ask(messages or MESSAGES, tuple(read_tools(TOOLS if tools is None else tools)))
    subject = Subject(adapter, api_key_canary, patience=patience)

    async def judge(heart: Heart) -> None:
        seen = Seen(subject, ask, told=tools is not None, patience=patience, heart=heart)
        seen.scenarios = scenarios or {}
        with _listening(subject, seen):
            if recordings is None:
                await _judged(seen, report)
                return
            async with opened_cinema(subject, recordings) as cinema:
                seen.kept["cinema"] = cinema
                with suppress(Hangs):
                    # What hangs here hangs under the laws too, and they have most of the time.
                    await within(choose(seen), _budget(seen) / _CHOOSING)
                await _judged(seen, report)

    started = time.monotonic()
    with staying():
        ended = await elsewhere(judge, patience=patience + 1)
    report.seconds = time.monotonic() - started
    return report if ended else _abandoned(report, patience)


async def _judged(seen: Seen, report: Report) -> None:
    budget = _budget(seen)
    until = time.monotonic() + budget
    for law in LAWS:
        left = until - time.monotonic()
        reason, findings = _unjudged(law, seen, report, left), list[Finding]()
        standing = Standing(law.id, SKIP, reason or _TOO_LONG)
        if not reason:
            with suppress(Hangs):
                standing, findings = await within(_stands(law, seen), left + budget)
        if any(finding.severity == ERROR for finding in findings):
            standing = Standing(law.id, FAIL)
        report.findings += findings
        report.laws.append(standing)
        _tell_hung(seen, report)


def _unjudged(law: Law, seen: Seen, report: Report, left: float) -> str:
    """Why a law is not to be judged; "" where it is."""
    broken = next((name for name in law.after if report.standing(name) == FAIL), None)
    unsure = next((name for name in law.after if report.standing(name) == SKIP), None)
    if broken or unsure:
        return f"{broken or unsure} comes first"
    return _TOO_LONG if left <= 0 or (seen.kept.get("blocks") and law.after) else ""


async def _stands(law: Law, seen: Seen) -> tuple[Standing, list[Finding]]:
    try:
        found = list({found.message: _finding(law, found) async for found in law.judge(seen)}.values())
        return Standing(law.id, PASS), found
    except NotJudged as error:
        return Standing(law.id, error.status, error.reason), []
    except CannotMake as error:
        return Standing(law.id, SKIP, f"no fresh adapter: {error}"), []
    except Hangs as error:
        return Standing(law.id, SKIP, f"a call hung: {error}"), []
    except BaseException as error:
        if isinstance(error, TierError) and not seen.subject.fresh:
            # One that cannot be made anew may be used up, as a script is.
            return Standing(law.id, SKIP, f"the adapter failed: {error.message:.200}"), []
        # What an adapter hands over may fail in any way when it is looked at, or even try to end the program; the
        # other laws still hold.
        said = f"it raised {type(error).__name__} where nothing should be raised"
        return Standing(law.id, PASS), [_finding(law, Found(said, shown(error), law.claim))]


def _tell_hung(seen: Seen, report: Report) -> None:
    """Report a call that hung under another law: it breaks the law that each face answers, whichever call it was."""
    if seen.hung and report.standing("answers") in (PASS, SKIP):
        _fail(report, "answers", Found(seen.hung[0], "nothing", "a reply or an error, each time"))


def _fail(report: Report, name: str, found: Found) -> None:
    """Fail a law by what was seen later, or under another one."""
    law = LAWS[_ORDER[name]]
    report.laws = [each for each in report.laws if each.id != name] + [Standing(name, FAIL)]
    report.laws.sort(key=lambda each: _ORDER[each.id])
    report.findings.append(_finding(law, found))
    report.findings.sort(key=lambda each: _ORDER[each.law])


def _budget(seen: Seen) -> float:
    """Seconds for which laws are begun, and for which the last one may go on: each recording adds to it."""
    cinema = seen.kept.get("cinema")
    return _BUDGET * seen.patience + (len(cinema.reels) if cinema is not None else 0)


def _finding(law: Law, found: Any) -> Finding:
    return Finding(law.id, found.severity, found.message, found.seen, found.expected, law.fix)


def _abandoned(report: Report, patience: float) -> Report:
    """The report of a run whose loop stood still: what was judged until then, and why it ended."""
    # The thread that was left may move again, and write into its own.
    report = Report(report.adapter, [*report.findings], [*report.laws], report.seconds)
    judged = {each.id for each in report.laws}
    report.laws += [Standing(law.id, SKIP, "the loop stood still") for law in LAWS if law.id not in judged]
    if report.standing("loop-free") != FAIL:
        message = f"a call blocked the event loop for more than {patience:g} s, and was left"
        _fail(report, "loop-free", Found(message, "a loop that stands still", "awaits"))
    return report


@contextmanager
def _listening(subject: Subject, seen: Seen) -> Iterator[None]:
    """Hear what the adapter's own package logs, at every level, and what others log at theirs."""
    listener = Listener()
    seen.kept["log"] = listener.lines
    kind = subject.given if isinstance(subject.given, type) else type(subject.given)
    own = logging.getLogger(str(getattr(subject.given, "__module__", kind.__module__)).partition(".")[0])
    root = logging.getLogger()
    level, propagates = own.level, own.propagate
    root.addHandler(listener)
    if own is not root:
        own.addHandler(listener)
        own.setLevel(logging.DEBUG)
        own.propagate = False
    try:
        yield
    finally:
        root.removeHandler(listener)
        if own is not root:
            own.removeHandler(listener)
            own.setLevel(level)
            own.propagate = propagates
