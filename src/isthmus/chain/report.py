"""Tells the listeners, and the log, what happens in one call of a chain."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import count
from time import time
from typing import Any

from isthmus.observability import hooks
from isthmus.observability.scope import Operation, trace_ids
from isthmus.secret import redact

_log = logging.getLogger("isthmus.chain")
_numbers = count(1)
_KNOWN = frozenset(hooks.ChainEvent.__dataclass_fields__)


class Teller:
    """Numbers the records of one call; one to which nobody listens may be that of any number of calls.

    Args:
        chain: the chain's id.
        run: the run's number.
        step: which call of its run it is.
        heard: whether anybody listened when the call began.
    """

    __slots__ = ("_call", "_chain", "_op", "_run", "_seq", "_step", "attempt", "heard")

    def __init__(self, chain: str, run: int = 0, *, step: int = 0, heard: bool = False) -> None:
        self._chain = chain
        self._run = run
        self._step = step
        self._call = next(_numbers)
        self._seq = 0
        self.heard = heard
        self._op = Operation() if heard else None
        self.attempt: Operation | None = None
        """The try that began last; None where nobody listens."""

    def tell(self, kind: str, fields: Mapping[str, Any], *, loud: bool = False) -> None:
        """Make one record of a type; fields that no record has go to its `detail`."""
        if loud:
            said = (fields["tier"], fields["error_class"], fields["next"], redact(fields["message"]))
            silent = f"chain {self._chain}: tier {said[0]} failed ({said[1]}), next: {said[2]}"
            extra = {"without_contents": silent, **trace_ids(self._op)}
            _log.warning("chain %s: tier %s failed (%s), next: %s: %s", self._chain, *said, extra=extra)
        if not self.heard:
            return
        self._seq += 1
        if kind == hooks.ChainEventType.ATTEMPT_STARTED:
            self.attempt = Operation(parent=self._op)
        known = {name: value for name, value in fields.items() if name in _KNOWN}
        if "message" in known:
            known["message"] = redact(known["message"])
        hooks.emit(
            hooks.ChainEvent(
                type=hooks.ChainEventType(kind),
                chain=self._chain,
                time=time(),
                run=self._run,
                call=self._call,
                step=self._step,
                seq=self._seq,
                op=self.attempt if kind.startswith("attempt.") else self._op,
                **known,
                detail={name: value for name, value in fields.items() if name not in _KNOWN},
            )
        )
