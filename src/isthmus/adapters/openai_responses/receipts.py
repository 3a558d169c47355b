"""What became of the inputs that were steered into the responses of one run: pure, without any connection.

Source: the descriptions of `response.steer` and of its three events in the official SDK, 3.57.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from isthmus.errors import ProtocolError
from isthmus.models.neutral import NATIVE_INPUT
from isthmus.models.steering import SteeringInput, SteeringReceipt

_OUTPUT = "function_call_output"
_WAITING = "waiting_for_required_input"
_FAILED = "response.steer.failed"


class Receipts:
    """The receipts of one run, in the order in which their inputs were sent.

    The provider gives an input its id with the answer, so an answer without a known id belongs to the first input that
    has none, of those into the same response and, where the answer repeats the input, with the same input.
    """

    def __init__(self) -> None:
        self._open: list[SteeringReceipt] = []
        self._waiting: set[int] = set()
        # By the ids of those whose outcome is known.
        self._outcomes: dict[str, str] = {}
        self.required: tuple[str, ...] = ()
        """The calls whose outputs the provider waits for before it applies what it accepted."""

    @property
    def open(self) -> bool:
        """Whether the outcome of any input is still to come."""
        return bool(self._open)

    @property
    def waiting(self) -> bool:
        """Whether all that is still open waits for the outputs of calls."""
        return bool(self._open) and all(id(each) in self._waiting for each in self._open)

    def submit(self, steering: SteeringInput, response_id: str) -> SteeringReceipt:
        """The receipt of an input that is being sent into a response."""
        receipt = SteeringReceipt(steering, response_id)
        self._open.append(receipt)
        return receipt

    def take(self, kind: str, event: Mapping[str, Any]) -> list[SteeringReceipt]:
        """Copies of the receipts that an event about steering is about, as they stand now; none of one told again.

        Raises:
            ProtocolError: it is about no input that was sent, or asks for what nobody here can give.
        """
        about = event.get("steer")
        if not isinstance(about, Mapping):
            raise ProtocolError(f"{kind}: it says not which input it is about")
        handle, known = self._EVENTS.get(kind), self._outcomes.get(str(about.get("id")))
        if known is not None and (known == "failed") is (kind == _FAILED):
            return []
        return [] if handle is None else _copies(handle(self, about, event))

    def _accepted(self, about: Mapping[str, Any], event: Mapping[str, Any]) -> list[SteeringReceipt]:
        receipt = self._found(about)
        if receipt.status == "accepted":
            return []
        receipt.status, receipt.id = "accepted", about.get("id")
        return [receipt]

    def _failed(self, about: Mapping[str, Any], event: Mapping[str, Any]) -> list[SteeringReceipt]:
        receipt = self._found(about)
        receipt.status, receipt.id, receipt.error = "failed", about.get("id") or receipt.id, event.get("error")
        self._close([receipt])
        return [receipt]

    def _pending(self, about: Mapping[str, Any], event: Mapping[str, Any]) -> list[SteeringReceipt]:
        receipt = self._found(about)
        if event.get("reason") != _WAITING:
            return []
        stubs = [stub if isinstance(stub, Mapping) else {} for stub in event.get("required_input") or ()]
        others = {str(stub.get("type")) for stub in stubs if stub.get("type") != _OUTPUT}
        if others:
            raise ProtocolError(f"steering waits for {', '.join(sorted(others))}, which nothing here gives")
        self._waiting.add(id(receipt))
        named = [str(stub.get("call_id")) for stub in stubs]
        self.required = tuple(dict.fromkeys((*self.required, *named)))
        return [receipt]

    _EVENTS: Mapping[str, Callable[[Receipts, Mapping[str, Any], Mapping[str, Any]], list[SteeringReceipt]]] = {
        "response.steer.accepted": _accepted,
        _FAILED: _failed,
        "response.steer.pending": _pending,
    }

    def _found(self, about: Mapping[str, Any]) -> SteeringReceipt:
        given, target = about.get("id"), about.get("previous_response_id")
        known = next((each for each in self._open if given is not None and each.id == given), None)
        left = [each for each in self._open if each.status == "submitted" and each.previous_response_id == target]
        same = [each for each in left if "input" in about and each.input == about["input"]]
        found = known or next(iter((*same, *left)), None)
        if found is None:
            raise ProtocolError(f"an event about steering {given!r} into {target!r}, which nobody sent")
        return found

    def apply(self, response_id: str) -> tuple[list[SteeringReceipt], list[dict[str, Any]]]:
        """A successor has what was accepted: copies of these receipts, and their inputs as messages of a history.

        Args:
            response_id: the successor's.
        """
        applied = [each for each in self._open if each.status == "accepted"]
        for receipt in applied:
            receipt.status, receipt.response_id = "applied", response_id
        self._close(applied)
        self._waiting, self.required = set(), ()
        return _copies(applied), [message_of(receipt.input) for receipt in applied]

    def lose(self) -> list[SteeringReceipt]:
        """Nobody will say any more what became of the rest: copies of these receipts."""
        lost, self._open = self._open, []
        for receipt in lost:
            receipt.status = "unknown"
        return _copies(lost)

    def _close(self, closed: Sequence[SteeringReceipt]) -> None:
        over = {id(each) for each in closed}
        self._outcomes.update({each.id: each.status for each in closed if each.id is not None})
        self._open = [each for each in self._open if id(each) not in over]


def message_of(steering: SteeringInput) -> dict[str, Any]:
    """An input that was applied, as a message of a history."""
    if isinstance(steering, str):
        return {"role": "user", "content": steering}
    return {"role": "user", NATIVE_INPUT: copy.deepcopy(steering)}


def _copies(receipts: Iterable[SteeringReceipt]) -> list[SteeringReceipt]:
    return [copy.deepcopy(each) for each in receipts]
