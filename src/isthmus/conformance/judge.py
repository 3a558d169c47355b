"""Holds one adapter to every law, in bounded time, and reports."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from isthmus.conformance.watch import Heart, elsewhere, staying
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
    subject = Subject(adapter, api_key_canary)
    subject.patience = patience

    async def judge(heart: Heart) -> None:
        seen = Seen(subject, ask, told=tools is not None, patience=patience, heart=heart)
        seen.scenarios = scenarios or {}
        with _listening(subject, seen):
            if recordings is None:
                await _judged(seen, report)
                return
            async with opened_cinema(subject, recordings) as cinema:
                seen.kept["cinema"] = cinema
                await choose(seen)
                await _judged(seen, report)

    started = time.monotonic()
    with staying():
        ended = await elsewhere(judge, patience=patience + 1)
    report.seconds = time.monotonic() - started
    return report if ended else _abandoned(report, patience)


async def _judged(seen: Seen, report: Report) -> None:
    started = time.monotonic()
    for law in LAWS:
        standing, findings = Standing(law.id, PASS), []
        broken = next((name for name in law.after if report.standing(name) == FAIL), None)
        unsure = next((name for name in law.after if report.standing(name) == SKIP), None)
        if broken or (unsure and unsure != law.id):
            standing = Standing(law.id, SKIP, f"{broken or unsure} comes first")
        elif time.monotonic() - started > _budget(seen) or (seen.kept.get("blocks") and law.after):
            standing = Standing(law.id, SKIP, "each call takes too long")
        else:
            try:
                findings = list({found.message: _finding(law, found) async for found in law.judge(seen)}.values())
            except NotJudged as error:
                standing = Standing(law.id, error.status, error.reason)
            except CannotMake as error:
                standing = Standing(law.id, SKIP, f"no fresh adapter: {error}")
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if isinstance(error, TierError) and not seen.subject.fresh:
                    # One that cannot be made anew may be used up, as a script is.
                    standing = Standing(law.id, SKIP, f"the adapter failed: {error.message:.200}")
                else:
                    # What an adapter hands over may fail in any way when it is looked at, or even try to end the
                    # program; the other laws still hold.
                    said = f"it raised {type(error).__name__} where nothing should be raised"
                    findings = [_finding(law, Found(said, shown(error), law.claim))]
        if any(finding.severity == ERROR for finding in findings):
            standing = Standing(law.id, FAIL)
        report.findings += findings
        report.laws.append(standing)


def _budget(seen: Seen) -> float:
    """Seconds that a run may take: each recording adds to it."""
    cinema = seen.kept.get("cinema")
    return _BUDGET * seen.patience + (len(cinema.reels) if cinema is not None else 0)


def _finding(law: Law, found: Any) -> Finding:
    return Finding(law.id, found.severity, found.message, found.seen, found.expected, law.fix)


def _abandoned(report: Report, patience: float) -> Report:
    """The report of a run whose loop stood still: what was judged until then, and why it ended."""
    judged = {each.id for each in report.laws}
    blocked = next(law for law in LAWS if law.id == "loop-free")
    for law in LAWS:
        if law.id not in judged:
            report.laws.append(
                Standing(law.id, FAIL if law is blocked else SKIP, "" if law is blocked else "the loop stood still")
            )
    if not any(finding.law == blocked.id for finding in report.findings):
        message = f"a call blocked the event loop for more than {patience:g} s, and was left"
        report.findings.append(Finding(blocked.id, ERROR, message, "a loop that stands still", "awaits", blocked.fix))
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
