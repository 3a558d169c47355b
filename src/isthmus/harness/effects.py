"""What the step machine wants done; `isthmus.harness.reports` has what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from isthmus.harness.handoffs import Handoff
from isthmus.harness.outcome import Outcome
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Call, Event
from isthmus.models.strategy import Asked
from isthmus.models.tools import Tools


class PrepareTurn(Struct, frozen=True):
    """Let those who attend the run change what the next call is made of."""


class CallModel(Struct, frozen=True):
    """Call the model; its text continues `said`, as that was written, its calls must not have an id that is `taken`.

    A reply of a given form is read as `asked` says. One that `continues` the last one goes on from that as it was sent:
    "automatic" comes by itself, "explicit" is asked for.
    """

    ctx: GenerateContext
    said: str = ""
    taken: frozenset[str] = frozenset()
    asked: Asked | None = None
    continues: str | None = None


class RunTools(Struct, frozen=True):
    """Run the calls under this policy; `used` says how often each tool has run before."""

    calls: tuple[Call, ...]
    tools: Tools
    used: Mapping[str, int]


class HandOver(Struct, frozen=True):
    """Let another agent go on: what comes next is decided for that one, by `taken_over` in the loop."""

    call: Call
    to: Handoff


class Collect(Struct, frozen=True):
    """Take the results of running calls that are ready.

    Args:
        needed: the calls to wait for.
        first: whether to wait until at least one is there.
    """

    needed: tuple[str, ...] = ()
    first: bool = False


class Emit(Struct, frozen=True):
    """Show the consumer an event."""

    event: Event


class Done(Struct, frozen=True):
    """The run is over."""

    outcome: Outcome


Effect: TypeAlias = PrepareTurn | CallModel | RunTools | HandOver | Collect | Emit | Done
