"""The last request of a run as it was sent, and the one that goes on from it: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from msgspec import Struct, field
from msgspec.structs import replace as changed

from isthmus.errors import InvalidRequestError
from isthmus.harness.effects import CallModel
from isthmus.harness.history import Message, renamed, reply_message
from isthmus.harness.loopstate import LoopState
from isthmus.harness.reports import Prepared
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from isthmus.models.messages import MessageRole
from isthmus.models.responses import ModelStreamEvent

_STEERED = {
    "automatic": "the provider goes on by itself with steered input",
    "explicit": "steered input waits for the results of calls",
}


class Sent(Struct, frozen=True):
    """A request as it was sent.

    The transcript may say the same in another way: it lacks what was added for one call, joins a reply to the one that
    it continues, and tells calls apart whose ids are the same. What goes on from the request must say it as it was.

    Args:
        ctx: the request; once it was replied to, with the reply as it came.
        length: how much of the transcript it has.
        ids: the provider's ids of calls, by those that the transcript has instead.
    """

    ctx: GenerateContext
    length: int
    ids: Mapping[str, str] = field(default_factory=dict)

    def replied(self, step: StepResult, continued: ModelStreamEvent, *, taken: Iterable[str], length: int) -> Sent:
        """With a reply, and the input that the provider goes on with.

        Args:
            step: the reply as it came.
            continued: says how it goes on.
            taken: the ids that its calls could not have.
            length: how long the transcript is with it.
        """
        message, _ = reply_message(step, step.text, calls=step.calls)
        said = () if message is None else (message,)
        messages = (*self.ctx.messages, *said, *(continued.input_messages or ()))
        ours = {new: old for old, new in renamed(step.calls, taken).items()}
        return Sent(replace(self.ctx, messages=messages), length, {**self.ids, **ours})

    def joined(self, messages: Iterable[Message], *, state: LoopState) -> Sent:
        """With input that the provider applied before what the request brought; `state` has not got it yet."""
        given, said = tuple(messages), self.ctx.messages
        at = len(said) - (self.length - state.replied)
        return changed(
            self, ctx=replace(self.ctx, messages=(*said[:at], *given, *said[at:])), length=self.length + len(given)
        )

    def going_on(self, effect: CallModel, *, state: LoopState) -> Sent:
        """The request that goes on from this one: as this one, or by its own terms where it must be asked for.

        Of results it takes what shims made of them for this call.
        """
        made = {each.get("tool_call_id"): each for each in effect.ctx.messages if each.get("role") == MessageRole.TOOL}
        new = [made.get(each.get("tool_call_id"), each) for each in state.messages[self.length :]]
        base = self.ctx if effect.continues == "automatic" else effect.ctx
        messages = (*self.ctx.messages, *map(self._theirs, new))
        return changed(self, ctx=replace(base, messages=messages), length=len(state.messages))

    def _theirs(self, message: Message) -> Message:
        call_id = self.ids.get(message.get("tool_call_id", ""))
        return message if call_id is None else {**message, "tool_call_id": call_id}


def check_kept(state: LoopState, report: Prepared) -> None:
    """Whether a turn that goes on from the last reply has its history as it was.

    Raises:
        InvalidRequestError: the history was changed.
    """
    if state.continues is not None and report.messages is not state.messages and report.messages != state.messages:
        why = _STEERED[state.continues]
        raise InvalidRequestError(
            f"the history was changed while {why}: a shim must leave it as it is until the next turn"
        )
