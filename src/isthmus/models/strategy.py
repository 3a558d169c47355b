"""How a form is asked for: natively, by a tool that is made for it, or in words. Pure changes of request and reply."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from isthmus.errors import OutputDefinitionError
from isthmus.models.capabilities import EFFORTS
from isthmus.models.contract import GenerateContext, OutputForm, ToolSpec
from isthmus.models.events import (
    Call,
    CallDelta,
    Event,
    FinishReason,
    Marker,
    Note,
    NoteCode,
    StepResult,
    Text,
)
from isthmus.models.jsontext import dumps

PREVIEW = "output-preview"
"""The name of the markers that show a structured reply while it is being written."""

_ANSWER = "Gives the final answer. Call it exactly once, when the answer is complete; its arguments are the answer."
_IN_WORDS = (
    "Answer with one JSON object and nothing else: no introduction, no comment, no code fence. "
    "It must be valid against this JSON Schema:\n"
)
_ORDER = (("native", "output-schema"), ("tool", "tools"))


def choose(form: OutputForm, supports: Collection[str]) -> str:
    """The strategy for a form: its own, else the first that is supported.

    Args:
        form: the form; its `strategy`, where it has one that is not "auto", wins.
        supports: what every tier supports.

    Raises:
        OutputDefinitionError: there is no such strategy.
    """
    own = getattr(form, "strategy", "auto")
    if own not in ("auto", *_ASK):
        raise OutputDefinitionError(f"strategy={own!r}: use one of 'auto', {', '.join(map(repr, _ASK))}")
    if own != "auto":
        return str(own)
    return next((strategy for strategy, need in _ORDER if need in supports), "prompted")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as it is sent, and how its reply is read.

    Args:
        ctx: the request.
        tool: the name of the tool that takes the answer; None where there is none.
        notes: what was changed.
        form: what tells a right answer among several.
    """

    ctx: GenerateContext
    tool: str | None = None
    notes: tuple[Note, ...] = ()
    form: OutputForm | None = None

    def read(self, step: StepResult) -> StepResult:
        """The reply with the answer as its text.

        Calls of other tools come first: an answer that was given beside them is left out, because it was given without
        their results. Of several answers, the text last among them, the first that fits counts; where none does, the
        first whose arguments are an object. The others are left out.
        """
        answers = [call for call in step.calls if call.tool == self.tool]
        if self.tool is None or not answers:
            return msgspec.structs.replace(step, notes=(*self.notes, *step.notes)) if self.notes else step
        others = tuple(event for event in step.events if not (isinstance(event, Call) and event.tool == self.tool))
        native = tuple(item for item in step.native if item is not step.message)
        if any(isinstance(event, Call) for event in others):
            detail = f"{self.tool}: an answer beside calls of other tools was left out: their results come first"
            return self._changed(step, others, native, [detail])
        said = [_arguments(call) for call in sorted(answers, key=lambda call: call.input is None)]
        beside = [step.text] if step.text.strip() else []
        chosen = next(filter(self._fits, said + beside), said[0])
        by_text = chosen not in said
        details = [
            f"{self.tool}: {'the text beside the call' if by_text else 'the arguments of the call'} are the answer"
        ]
        if len(answers) > 1:
            details.append(f"{self.tool}: {len(answers)} answers, the first that fits counts")
        if beside and not by_text:
            details.append(f"{self.tool}: the text beside the answer was left out")
        finish = FinishReason.STOP if step.finish == FinishReason.TOOL_CALLS else step.finish
        step = msgspec.structs.replace(step, finish=finish)
        return self._changed(step, (Text(chosen),), native, details)

    def _fits(self, text: str) -> bool:
        read = getattr(self.form, "read", None)
        try:
            return read is not None and (read(text), True)[1]
        except ValueError:
            return False

    def _changed(
        self, step: StepResult, events: tuple[Any, ...], native: tuple[Any, ...], details: list[str]
    ) -> StepResult:
        notes = [Note(NoteCode.OUTPUT_STRATEGY, detail) for detail in details]
        if len(native) < len(step.native):
            notes.append(Note(NoteCode.NATIVE_DROPPED, "the native form of a reply whose call was the answer"))
        return msgspec.structs.replace(step, events=events, native=native, notes=(*self.notes, *step.notes, *notes))


def ask_for(ctx: GenerateContext, strategy: str) -> Asked:
    """A request with its `output` asked for by a strategy.

    Args:
        ctx: the request; never changed.
        strategy: "native", "tool" or "prompted".
    """
    form = ctx.output
    if form is None or form.response_format() is None:
        return Asked(ctx if form is None else replace(ctx, output=None))
    return _ASK[strategy](ctx, form)


def _natively(ctx: GenerateContext, form: OutputForm) -> Asked:
    return Asked(ctx)


def _by_tool(ctx: GenerateContext, form: OutputForm) -> Asked:
    taken = {tool.name for tool in ctx.tools}
    name, number = form.name(), 2
    while name in taken:
        name, number = f"{form.name()[:60]}_{number}", number + 1
    described = (form.response_format() or {}).get("json_schema", {})
    schema = form.json_schema()
    tool = ToolSpec(
        name=name,
        description=" ".join(filter(None, (_ANSWER, str(schema.get("description") or "")))),
        parameters_schema=schema,
        strict=True if described.get("strict") else None,
    )
    # Some tool must be called now: those that may not be are not shown.
    others = () if ctx.tool_choice == "none" else ctx.tools
    choice, forced = _choice(ctx)
    detail = f"asked for by the tool {name!r}" + ("" if forced else ", which is not forced")
    changed = replace(
        ctx,
        output=None,
        tools=(*others, tool),
        tool_choice=choice,
        parallel_tool_calls=ctx.parallel_tool_calls and bool(others),
    )
    return Asked(changed, name, (Note(NoteCode.OUTPUT_STRATEGY, detail),), form)


def _choice(ctx: GenerateContext) -> tuple[str, bool]:
    """The tool choice, and whether it makes the model call something: thinking models may not be made to."""
    if _thinks(ctx):
        return "auto", False
    if not ctx.tools or ctx.tool_choice in (None, "auto", "none"):
        return "required", True
    return str(ctx.tool_choice), True


def _thinks(ctx: GenerateContext) -> bool:
    thinking = ctx.options.get("thinking")
    asked = isinstance(thinking, Mapping) and thinking.get("type") != "disabled"
    return asked or (ctx.effort or "").strip().lower() in EFFORTS


def _in_words(ctx: GenerateContext, form: OutputForm) -> Asked:
    told = _IN_WORDS + dumps(form.json_schema()).decode()
    brief = f"{ctx.brief}\n\n{told}" if ctx.brief else told
    note = Note(NoteCode.OUTPUT_STRATEGY, "asked for in the instructions")
    return Asked(replace(ctx, output=None, brief=brief), None, (note,))


_ASK = {"native": _natively, "tool": _by_tool, "prompted": _in_words}


def _arguments(call: Call) -> str:
    return call.arguments if call.arguments is not None else dumps(call.input or {}).decode()


class Draft:
    """What the reader of a stream sees of a structured reply while it is being written.

    Its text is shown as previews, markers named `PREVIEW`: nobody knows yet whether it will stand. Where calls of other
    tools follow, it was no answer, and is shown as the text that it is.

    Args:
        tool: the name of the tool that takes the answer; None where the text is the answer.
    """

    __slots__ = ("_held", "_tool", "open")

    def __init__(self, tool: str | None) -> None:
        self._tool = tool
        self._held: list[str] = []
        self.open = True
        """Whether text is still held back."""

    def take(self, event: Event) -> Iterator[Event]:
        """What is shown of an event."""
        if isinstance(event, Text) and self.open:
            self._held.append(event.text)
            if self._tool is None and event.text:
                yield Marker(PREVIEW, None, event.text)
        elif isinstance(event, CallDelta) and self._tool is not None and event.tool == self._tool:
            if event.arguments_delta:
                yield Marker(PREVIEW, None, event.arguments_delta)
        elif isinstance(event, Call):
            if event.tool != self._tool:
                yield from self.release()
                yield event
        else:
            yield event

    def release(self) -> Iterator[Event]:
        """The text that was held back."""
        self.open = False
        held, self._held = "".join(self._held), []
        if held:
            yield Text(held)
