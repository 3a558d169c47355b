"""Asks again, a bounded number of times, for a reply of the form that was asked for; then a typed error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from isthmus.errors import OutputDefinitionError, OutputError, OutputTruncatedError, RefusedError
from isthmus.models.contract import GenerateContext, OutputForm
from isthmus.models.events import FinishReason, Note, NoteCode, StepResult, Text
from isthmus.models.explosion import has_escape_sequence_explosion
from isthmus.models.messages import MessageRole
from isthmus.models.output import OutputSchema
from isthmus.models.spent import Spent
from isthmus.models.strategy import Asked, ask_for, choose

RETRIES = 3
"""How often a reply is asked for again, unless somebody says otherwise."""

ESCAPE_SEQUENCE_RETRY_MESSAGE = (
    "Your last reply ran into one escape sequence or accent after another and is of no use. Write the answer anew, "
    "with ordinary characters in place of \\u escapes, and stop where it is complete."
)

_FEEDBACK = (
    "Your last reply is not what was asked for.\n{fault}\nIt began:\n{text}\n"
    "Reply again, in full, in the form asked for."
)
_QUOTED = 2000


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is thought of a reply.

    Args:
        value: the value that it holds.
        error: why it will not do, finally.
        again: how to ask again, where that may help.
        fault: what does not fit.
    """

    value: Any = None
    error: Exception | None = None
    again: Repair | None = None
    fault: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the reply came whole and is not of the form, after all repairs."""
        return isinstance(self.error, OutputError) and not isinstance(self.error, OutputTruncatedError)


@dataclass(frozen=True, slots=True)
class Repair:
    """How one structured reply is asked for, and judged.

    Args:
        form: what is asked for.
        schema: what a reply is checked against.
        strategy: "native", "tool" or "prompted".
        retries: how often it is asked for again.
        used: how often it was so far.
        feedback: what the model is told about its last reply.
    """

    form: OutputForm
    schema: OutputSchema[Any]
    strategy: str
    retries: int = RETRIES
    used: int = 0
    feedback: str = ""

    def request(self, ctx: GenerateContext) -> Asked:
        """The request, with what the model is told about its last reply as a last user turn; `ctx` stays as it is."""
        turn = ({"role": MessageRole.USER.value, "content": self.feedback},) if self.feedback else ()
        return ask_for(replace(ctx, output=self.form, messages=(*ctx.messages, *turn)), self.strategy)

    def judge(self, step: StepResult) -> Verdict:
        """What to do with a reply: take it, ask again, or give up. Calls and failures are not judged."""
        if step.calls or step.finish == FinishReason.ERROR_POST:
            return Verdict()
        if step.finish in (FinishReason.REFUSAL, FinishReason.CONTENT_FILTER):
            return Verdict(error=refused(step))
        if step.finish == FinishReason.LENGTH:
            said = "the reply was cut at the output limit before it was whole: raise the limit, or ask for less"
            return Verdict(error=self._error(OutputTruncatedError, said, step))
        if has_escape_sequence_explosion(step.text):
            return self._again(step, "it repeats one escape sequence without end", ESCAPE_SEQUENCE_RETRY_MESSAGE)
        try:
            return Verdict(self.schema.read(step.text))
        except ValueError as error:
            feedback = _FEEDBACK.format(fault=error, text=step.text[:_QUOTED] or "(it is empty)")
            return self._again(step, str(error), feedback)

    def _again(self, step: StepResult, fault: str, feedback: str) -> Verdict:
        if self.used < self.retries:
            return Verdict(again=replace(self, used=self.used + 1, feedback=feedback), fault=fault)
        return Verdict(error=self._error(OutputError, f"{fault} (after {self.used + 1} requests)", step))

    def _error(self, kind: type[OutputError], message: str, step: StepResult) -> OutputError:
        return kind(message, text=step.text, finish=str(step.finish), attempts=self.used + 1, partial=step)


def repairing(form: OutputForm | None, supports: Collection[str], *, retries: int = RETRIES) -> Repair | None:
    """How a form is asked for from a model; None where it is plain text.

    Args:
        form: the form, or None.
        supports: what every tier of the model supports.
        retries: how often a reply that does not fit is asked for again.

    Raises:
        OutputDefinitionError: the form's strategy or schema cannot be, or the number of repairs.
    """
    if type(retries) is not int or retries < 0:
        raise OutputDefinitionError(f"retries={retries!r}: must be a whole number from 0")
    if form is None or form.response_format() is None:
        return None
    schema = form if isinstance(form, OutputSchema) else OutputSchema(form.json_schema())
    return Repair(form, schema, choose(form, supports), retries)


def refused(step: StepResult) -> RefusedError:
    """The error of a reply that the model, or its provider's filter, would not give."""
    error = RefusedError(f"no answer: {step.finish} ({step.raw_reason or 'no reason given'})")
    error.partial = step
    return error


async def answered(
    ask: Callable[[GenerateContext], Awaitable[StepResult]], ctx: GenerateContext, *, repair: Repair | None
) -> tuple[StepResult, Any]:
    """A reply and the value that it holds, asked for again where it does not fit.

    Args:
        ask: makes one call.
        ctx: the request; never changed.
        repair: how a structured reply is asked for; None asks once, for text, which is the value.

    Returns:
        The last reply, with the tokens of all; the value is None where it calls tools that were offered.

    Raises:
        OutputError: no reply was of the form.
        OutputTruncatedError: it was cut at the output limit.
        RefusedError: the model, or the provider's filter, would not answer.
    """
    if repair is None:
        step = await ask(replace(ctx, output=None) if ctx.output is not None else ctx)
        return step, step.text
    spent = Spent()
    while True:
        asked = repair.request(ctx)
        step = asked.read(await ask(asked.ctx))
        spent = spent.add(step.usage)
        verdict = repair.judge(step if ctx.tools else _without_calls(step))
        if verdict.error is not None:
            raise verdict.error
        if verdict.again is None:
            return _told(step, spent, repair), verdict.value
        repair = verdict.again


def _without_calls(step: StepResult) -> StepResult:
    """The reply to a request that offered no tools: calls that were made up are no answer."""
    if not step.calls:
        return step
    return msgspec.structs.replace(step, events=[event for event in step.events if isinstance(event, Text)])


def _told(step: StepResult, spent: Spent, repair: Repair) -> StepResult:
    if not repair.used:
        return step
    note = Note(NoteCode.OUTPUT_REPAIRED, f"the reply was asked for {repair.used + 1} times until it fitted")
    return msgspec.structs.replace(step, usage=spent.usage, notes=(*step.notes, note))
