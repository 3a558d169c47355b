"""Limits what of a long conversation is sent, in few and large steps, so that the prompt cache of a provider holds.

The conversation itself stays whole. What is sent begins at a turn, and begins there again in every later call, run
after run, until it has grown past the limit once more: in between each request only adds to the end of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isthmus.chain.estimate import message_tokens
from isthmus.chain.turns import Message, divided
from isthmus.errors import ConfigError
from isthmus.harness.compaction import parted, whole_origins
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import BoundShim, PreparedTurn, Shim, TurnState
from isthmus.models.events import Note, NoteCode
from isthmus.models.internal import is_ephemeral_message
from isthmus.models.messages import fingerprint

_FROM = "history-limit:from"


class HistoryLimitShim(Shim):
    """Leaves old turns out of what is sent, whole ones, once more than so much would be.

    What stays at the beginning: instructions in the history, what belongs to the present run alone, and what other
    shims keep whole. The present turn always stays, however long it is.

    Args:
        max_messages: the most messages that are sent; None for any number.
        max_tokens: about the most tokens of messages that are sent, as they are estimated; None for any number.
        keep: how much is left of a limit once it was passed, above 0 and below 1: the less, the longer the beginning
            stays the same afterwards.

    Raises:
        ConfigError: there is no limit, or a number makes no sense.
    """

    name = "history-limit"

    def __init__(self, *, max_messages: int | None = None, max_tokens: int | None = None, keep: float = 0.5) -> None:
        for key, value in (("max_messages", max_messages), ("max_tokens", max_tokens)):
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"must be a whole number from 1, not {value!r}", where="HistoryLimitShim", key=key)
        if max_messages is None and max_tokens is None:
            raise ConfigError("give max_messages, max_tokens or both", where="HistoryLimitShim")
        if type(keep) not in (int, float) or not 0 < keep < 1:
            raise ConfigError(f"must be above 0 and below 1, not {keep!r}", where="HistoryLimitShim", key="keep")
        self.max_messages = max_messages
        self.max_tokens = max_tokens
        self.keep = keep

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What attends this run."""
        return _Bound(self)

    def holds(self, messages: Sequence[Message], share: float = 1) -> bool:
        """Whether messages are within this share of the limits."""
        if self.max_messages is not None and len(messages) > self.max_messages * share:
            return False
        return self.max_tokens is None or sum(map(message_tokens, messages)) <= self.max_tokens * share


class _Bound(BoundShim):
    """Attends one run.

    Args:
        shim: whose limits count.
    """

    def __init__(self, shim: HistoryLimitShim) -> None:
        self._shim = shim
        self._kept: dict[str, Any] = {}
        self._transient: dict[str, Any] = {}

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """Know where the conversation's state is."""
        self._kept, self._transient = state.shim_state, transient_state

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        """Move the beginning, if it is time."""
        history = turn.run_state.history
        begin = self._begin(history)
        if self._shim.holds(history[begin:]):
            return
        starts = [each.start for each in divided(history).turns if each.start > begin]
        moved = next((at for at in starts if self._shim.holds(history[at:], self._shim.keep)), None)
        moved = starts[-1] if moved is None and starts else moved
        if moved is None:
            return
        lasting = _lasting(history)
        number = next((number for number, at in enumerate(lasting) if at >= moved), None)
        if number is None:
            return
        self._kept[_FROM] = [number, fingerprint(history[lasting[number]])]
        gone = len(parted(history[:moved], whole_origins(self._transient))[1])
        turn.notes.append(Note(NoteCode.HISTORY_CHANGED, f"session: {gone} old messages are no longer sent"))

    async def transform_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send what stays of the old messages, and all from the beginning on."""
        begin = self._begin(messages)
        kept, gone = parted(messages[:begin], whole_origins(self._transient))
        return [*kept, *messages[begin:]] if gone else messages  # type: ignore[list-item]

    def _begin(self, messages: Sequence[Message]) -> int:
        """Where what is sent begins; 0 where the history is no longer the one that this was said of."""
        match self._kept.get(_FROM):
            case [int(number), str(mark)]:
                lasting = _lasting(messages)
                if number < len(lasting) and fingerprint(messages[lasting[number]]) == mark:
                    return lasting[number]
        return 0


def _lasting(messages: Sequence[Message]) -> list[int]:
    """The places of what will stand in the history of the next run, too."""
    return [at for at, message in enumerate(messages) if not is_ephemeral_message(message)]
