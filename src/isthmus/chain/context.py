"""Makes a request fit the window of the tier that gets it: old results first, then old turns, never the present one.

The request itself is never changed: what is made is another one, with a report of what it lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from inspect import isawaitable
from math import ceil, inf
from typing import Any, TypeAlias

import msgspec

from isthmus.chain.estimate import Estimate, Sections, estimate_sections, estimated_tokens, message_tokens
from isthmus.chain.seams import Rendered
from isthmus.chain.tier import Member
from isthmus.chain.turns import Message, Transcript, divided, lasts, with_results
from isthmus.errors import ConfigError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Note, NoteCode
from isthmus.models.internal import internal_message
from isthmus.models.messages import RESERVED

Summary: TypeAlias = Callable[[tuple[Message, ...], int], str | Awaitable[str]]
"""Given the messages that were dropped and the tokens that there is room for, what to say in their place."""

CLEARED = "[result left out]"
"""What stands in the place of an old result."""

_log = logging.getLogger("isthmus.chain")
# After an overflow the estimate is known to be wrong, and there is one more try.
_SMALLER = 0.5
_SUMMARY_SHARE, _SUMMARY_MOST = 8, 1024


class RenderReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request on its way to a tier; all counts of tokens are estimates.

    Args:
        room: the tokens that there is room for, or, after an overflow, that it must have to be worth another try; None
            where the window is not known.
        before: the tokens of the request as it was made.
        brief: the tokens of the instructions.
        tools: those of the tools.
        output: those of the schema of the reply.
        messages: those of the transcript as it is sent.
        cleared: the messages whose results were replaced by a placeholder, by their place in the request.
        dropped: the messages that were left out, by their place.
        dropped_turns: how many turns these were.
        native_dropped: how many native forms went with them.
        summarised: whether a summary stands in their place.
    """

    room: int | None
    before: int
    brief: int
    tools: int
    output: int
    messages: int
    cleared: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    dropped_turns: int = 0
    native_dropped: int = 0
    summarised: bool = False

    @property
    def tokens(self) -> int:
        """The tokens of the request as it is sent."""
        return self.brief + self.tools + self.output + self.messages

    @property
    def fits(self) -> bool:
        """Whether there is room for it."""
        return self.room is None or self.tokens <= self.room

    def to_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        return {**{name: getattr(self, name) for name in self.__struct_fields__}, "tokens": self.tokens}

    def notes(self) -> tuple[Note, ...]:
        """A note on each thing that was taken out."""
        if not (self.cleared or self.dropped or self.native_dropped):
            return ()
        said = []
        if self.cleared:
            said.append((NoteCode.HISTORY_CHANGED, f"context: {len(self.cleared)} old tool results were left out"))
        if self.dropped:
            turns = f"the {self.dropped_turns} oldest turns ({len(self.dropped)} messages)"
            instead = "a summary took the place of" if self.summarised else "left out were"
            said.append((NoteCode.HISTORY_CHANGED, f"context: {instead} {turns}"))
        if self.native_dropped:
            said.append((NoteCode.NATIVE_DROPPED, f"context: {self.native_dropped} native forms went with them"))
        return tuple([Note(code, detail) for code, detail in said])


def room_for(window: int, ceiling: int) -> int:
    """The tokens that a prompt may have: the window less the reply's ceiling and a margin for what nobody counts.

    The margin is 2 % of the window, at least 64 tokens, but of a very small window no more than an eighth.
    """
    return window - ceiling - min(max(64, -(-window // 50)), window // 8)


def render(
    ctx: GenerateContext,
    *,
    window: int | None,
    ceiling: int | None,
    smaller: bool = False,
    keep_results: int = 3,
    reserve: int = 0,
    estimate: Estimate = estimated_tokens,
) -> tuple[GenerateContext, RenderReport]:
    """The request as a tier with this window can take it.

    Where it does not fit, old tool results become a placeholder, all but the last few; then the oldest turns are left
    out, whole, as many as it takes. Instructions, tools, the user's latest words and all that follows them stay, and so
    do system messages and what belongs to the present run alone. Where that is still too much, the report says so.

    Args:
        ctx: the request; never changed.
        window: the tier's context window, in tokens; None, where it is not known, changes nothing.
        ceiling: the most tokens of the reply.
        smaller: whether what the tier got before was too large for it, whatever the estimate says: half is aimed at.
        keep_results: how many of the latest results are kept as they are.
        reserve: tokens to keep free for a summary once turns are left out.
        estimate: counts the tokens of a text.

    Returns:
        The request, the very same one where it fits as it is, and what was done.
    """
    sections = estimate_sections(ctx, estimate)
    room = None if window is None else room_for(window, ceiling or 0)
    if not smaller and (room is None or sections.total <= room):
        return ctx, _report(sections, room, messages=sum(sections.messages))
    work = _Reduction(ctx, sections, keep_results=keep_results, reserve=reserve, estimate=estimate)
    work.reduce(room)
    if smaller:
        # What it got before is known not to have fitted.
        before = work.tokens
        work.reduce(int(before * _SMALLER))
        room = before - 1 if room is None else min(room, before - 1)
    return work.request(), work.report(room)


class _Reduction:
    """The transcript as it gets smaller."""

    def __init__(
        self, ctx: GenerateContext, sections: Sections, *, keep_results: int, reserve: int, estimate: Estimate
    ) -> None:
        self._ctx = ctx
        self._sections = sections
        self._keep = keep_results
        self._reserve = reserve
        self._estimate = estimate
        self._messages: list[Message] = list(ctx.messages)
        self._sizes = list(sections.messages)
        self._fixed = sections.total - sum(sections.messages)
        self._left_out: set[int] = set()
        self._cleared: set[int] = set()
        self._turns = 0
        self._native = 0
        self._form: Transcript | None = None
        self.tokens = sections.total
        """What is left."""

    def reduce(self, room: int | None) -> None:
        """Take out as much as it takes, in order, as far as anything may be taken out."""
        if room is None or self.tokens <= room:
            return
        form = self._form = self._form or divided(self._messages)
        self._clear(form)
        for turn in form.turns[self._turns : -1]:
            if self.tokens <= room - (self._reserve if self._left_out else 0):
                return
            self._turns += 1
            gone = [at for at in turn if not lasts(self._messages[at])]
            self._left_out.update(gone)
            self.tokens -= sum([self._sizes[at] for at in gone])
            self._native += sum(_has_native(self._messages[at]) for at in gone)

    def _clear(self, form: Transcript) -> None:
        current = form.turns[-1]
        older = form.results[: len(form.results) - self._keep] if self._keep else form.results
        for at in older:
            if at in current or at in self._cleared:
                continue
            before = self._messages[at]
            message = with_results(before, lambda _: CLEARED)
            size = message_tokens(message, self._estimate)
            if size < self._sizes[at]:
                self.tokens -= self._sizes[at] - size
                self._messages[at], self._sizes[at] = message, size
                self._cleared.add(at)
                self._native += _has_native(before)

    def request(self) -> GenerateContext:
        """The request with what is left."""
        if not self._left_out and not self._cleared:
            return self._ctx
        kept = (message for at, message in enumerate(self._messages) if at not in self._left_out)
        return replace(self._ctx, messages=tuple(kept))

    def report(self, room: int | None) -> RenderReport:
        """What was done."""
        return _report(
            self._sections,
            room,
            messages=self.tokens - self._fixed,
            cleared=tuple(sorted(self._cleared - self._left_out)),
            dropped=tuple(sorted(self._left_out)),
            dropped_turns=self._turns,
            native_dropped=self._native,
        )


def _report(sections: Sections, room: int | None, *, messages: int, **done: Any) -> RenderReport:
    return RenderReport(
        room=room,
        before=sections.total,
        brief=sections.brief,
        tools=sections.tools,
        output=sections.output,
        messages=messages,
        **done,
    )


def _has_native(message: Message) -> bool:
    held = message.get(RESERVED)
    return isinstance(held, Mapping) and "native" in held


class _Counting:
    """A caller's estimate, whose failure is no failure of the call: what it cannot count, and all after it, the default
    counts.
    """

    def __init__(self, estimate: Estimate) -> None:
        self._estimate = estimate
        self._problem = ""

    def __call__(self, text: str) -> int:
        if not self._problem:
            try:
                tokens: float = self._estimate(text)
            except Exception as error:
                self._problem = f"raised {type(error).__name__}"
            else:
                if type(tokens) in (int, float) and 0 <= tokens < inf:
                    return ceil(tokens)
                self._problem = "gave no number of tokens"
            _log.warning("chain: the estimate of tokens %s; four bytes were counted as one", self._problem)
        return estimated_tokens(text)

    def notes(self) -> tuple[Note, ...]:
        """A note on its failure."""
        detail = f"context.estimate {self._problem}: four bytes were counted as one token"
        return (Note(NoteCode.PARAMETER_CHANGED, detail),) if self._problem else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextPolicy:
    """How a chain makes requests fit its tiers.

    Args:
        keep_results: how many of the latest tool results are kept as they are.
        estimate: counts the tokens of a text; absent, or where it fails: one for four bytes.
        summary: given the messages that were left out and the tokens there is room for, what to say in their place;
            may be async. One that fails, says nothing or says too much is left out.

    Raises:
        ConfigError: `keep_results` is no whole number from 0, or a hook cannot be called.
    """

    keep_results: int = 3
    estimate: Estimate = estimated_tokens
    summary: Summary | None = None

    def __post_init__(self) -> None:
        if type(self.keep_results) is not int or self.keep_results < 0:
            raise ConfigError(
                f"must be a whole number from 0, not {self.keep_results!r}", where="context", key="keep_results"
            )
        if not callable(self.estimate):
            said = f"must be a function from a text to its tokens, not {self.estimate!r}"
            raise ConfigError(said, where="context", key="estimate")
        if self.summary is not None and not callable(self.summary):
            said = f"must be a function of messages and room, or None, not {self.summary!r}"
            raise ConfigError(said, where="context", key="summary")

    def __call__(
        self, ctx: GenerateContext, tier: Member, *, smaller: bool
    ) -> Rendered | Awaitable[Rendered | None] | None:
        """The request for this tier; None where it cannot fit."""
        if tier.chained:
            # It makes requests fit its own tiers.
            return None if smaller else Rendered(ctx=ctx)
        ceiling = _ceiling(ctx, tier)
        reserve = 0
        if self.summary is not None and tier.window_tokens is not None:
            reserve = max(0, min(_SUMMARY_MOST, room_for(tier.window_tokens, ceiling or 0) // _SUMMARY_SHARE))
        estimate = self.estimate if self.estimate is estimated_tokens else _Counting(self.estimate)
        made, report = render(
            ctx,
            window=tier.window_tokens,
            ceiling=ceiling,
            smaller=smaller,
            keep_results=self.keep_results,
            reserve=reserve,
            estimate=estimate,
        )
        if not report.fits:
            return None
        if self.summary is not None and report.dropped:
            gone = tuple([ctx.messages[at] for at in report.dropped])
            return _summarised(_summary(self.summary, gone, reserve, estimate), made, report, estimate=estimate)
        return _rendered(made, report, estimate)

    def shortfall(self, ctx: GenerateContext, tier: Member) -> tuple[int, int] | None:
        """The tokens of a request's instructions and tools, and the room for them, where that is less.

        Args:
            ctx: the request; its messages do not count, as they can be left out.
            tier: the tier's window and ceiling.
        """
        if tier.window_tokens is None:
            return None
        room = room_for(tier.window_tokens, _ceiling(ctx, tier) or 0)
        fixed = estimate_sections(replace(ctx, messages=(), output=None), _Counting(self.estimate)).total
        return (fixed, room) if fixed > room else None


async def _summarised(
    summary: Awaitable[str | None], made: GenerateContext, report: RenderReport, *, estimate: Estimate
) -> Rendered:
    """The request with what is said in the place of what was left out."""
    text = await summary
    if text is not None:
        said = internal_message({"role": "user", "content": text}, origin="summary")
        leading = next((at for at, message in enumerate(made.messages) if not lasts(message)), len(made.messages))
        made = replace(made, messages=(*made.messages[:leading], said, *made.messages[leading:]))
        size = message_tokens(said, estimate)
        report = msgspec.structs.replace(report, messages=report.messages + size, summarised=True)
    return _rendered(made, report, estimate)


async def _summary(write: Summary, messages: tuple[Message, ...], room: int, estimate: Estimate) -> str | None:
    """What the hook says, if that is of use; its failure is no content."""
    try:
        said: Any = write(messages, room)
        text = await said if isawaitable(said) else said
    except Exception as error:
        _log.warning("chain: the summary of the context failed: %s", type(error).__name__)
        return None
    if not isinstance(text, str) or not text.strip():
        return None
    if estimate(text) > room:
        _log.warning("chain: the summary of the context is longer than the %d tokens that it may have", room)
        return None
    return text


def _ceiling(ctx: GenerateContext, tier: Member) -> int | None:
    asked, own = ctx.max_output_tokens, tier.max_output_tokens
    if asked is None or own is None:
        return own if asked is None else asked
    return min(asked, own)


def _rendered(ctx: GenerateContext, report: RenderReport, estimate: Estimate) -> Rendered:
    notes = report.notes()
    if isinstance(estimate, _Counting):
        notes += estimate.notes()
    return Rendered(ctx=ctx, input_tokens=report.tokens, report=report, notes=notes)
