"""A server of tests that stands by itself, for clients in any language."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

from isthmus.conformance.damage import (
    Cut,
    Damage,
    DoubleEnd,
    Drip,
    ErrorInside,
    Garbage,
    NoEnd,
    Reset,
    Split,
    Stall,
    Status,
    WrongType,
)
from isthmus.conformance.plays import Play, Received
from isthmus.conformance.server import serve
from isthmus.errors import ConfigError
from isthmus.models.jsontext import loads

_DAMAGES: Mapping[str, tuple[str, Callable[[str], Damage]]] = {
    "split": ("BYTES", lambda said: Split(int(said or 1))),
    "drip": ("SECONDS", lambda said: Drip(float(said))),
    "cut": ("AT", lambda said: Cut(int(said))),
    "cut-framed": ("AT", lambda said: Cut(int(said), framed=True)),
    "reset": ("AT", lambda said: Reset(int(said) if said else None)),
    "stall": ("AT", lambda said: Stall(int(said))),
    "type": ("CONTENT-TYPE", lambda said: WrongType(said or "text/html")),
    "status": ("STATUS", lambda said: Status(int(said))),
    "error": ("FRAMES", lambda said: ErrorInside(int(said or 1))),
    "no-end": ("", lambda _: NoEnd()),
    "double-end": ("", lambda _: DoubleEnd()),
    "garbage": ("AT", lambda said: Garbage(int(said or 0))),
}

DAMAGE_FORMS = ", ".join(f"{name}:{value}" if value else name for name, (value, _) in _DAMAGES.items())
"""How damage is written, for help and errors."""


def damage_of(spec: str) -> Damage:
    """The damage that a text names, e.g. "cut:100" or "no-end".

    Raises:
        ConfigError: it names none; lists the forms.
    """
    name, _, said = spec.partition(":")
    try:
        return _DAMAGES[name][1](said)
    except (KeyError, ValueError):
        raise ConfigError(f"{spec!r} names no damage: write one of {DAMAGE_FORMS}", where="fault") from None


def answers_of(source: str | os.PathLike[str], damages: Iterable[Damage] = ()) -> Callable[[Received], Play]:
    """What a server plays for ever from a place.

    Args:
        source: the folder of one recording, which answers everything; a folder of recordings, found by the request; or
            a JSON file with the steps of a script, as a list, played in turn and then again from the first.
        damages: what goes wrong with each reply.

    Raises:
        ConfigError: there is nothing to play.
    """
    place, done = Path(source), tuple(damages)
    if (place / "response.meta.json").is_file():
        one = Play.recording(place).damaged(*done)
        return lambda _: one
    if place.is_dir():
        find = Play.recordings(place)
        return lambda request: find(request).damaged(*done)
    plays = cycle([play.damaged(*done) for play in Play.steps(*_steps(place))])
    return lambda _: next(plays)


def _steps(place: Path) -> list[Any]:
    try:
        value = loads(place.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"is neither a folder of recordings nor a script in JSON: {error}", where=str(place)
        ) from None
    steps = value if isinstance(value, list) else [value]
    if not steps or not all(isinstance(step, str | dict) for step in steps):
        raise ConfigError("must be a list of steps: texts, or objects of text, calls, finish …", where=str(place))
    return steps


async def serve_forever(
    source: str | os.PathLike[str],
    *,
    port: int = 0,
    faults: Iterable[str] = (),
    ready: Callable[[str], Any] | None = None,
    heard: Callable[[Received], Any] | None = None,
) -> None:
    """Serve recordings or a script on loopback until cancelled.

    Args:
        source: see `answers_of`.
        port: where it listens; 0 for any port that is free.
        faults: what goes wrong with each reply, as `damage_of` reads it.
        ready: called with the server's URL once it listens.
        heard: called with each request.

    Raises:
        ConfigError: there is nothing to play, or a fault is none.
    """
    answer = answers_of(source, [damage_of(spec) for spec in faults])

    def asked(request: Received) -> Play:
        if heard is not None:
            heard(request)
        return answer(request)

    async with serve(asked, port=port) as server:
        if ready is not None:
            ready(server.url)
        await asyncio.get_running_loop().create_future()
