"""Records what an adapter exchanges, and plays it back: its bytes where it has a transport of ours, else its events.

A recording of events is a folder with `request.json` ({"context": the rendered context}) and `events.jsonl`: one JSON
object a line, {"at": seconds, "event": {"type", …}}, the last one the finish or {"at": seconds, "error": {"class",
"message", "status", "code", "retry_after"}}.
"""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from time import monotonic
from typing import Any

from isthmus.adapters.base import ModelAdapter, as_adapter
from isthmus.conformance.around import Around
from isthmus.errors import ConfigError, tier_error
from isthmus.models.aside import Aside
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, Finish, StepResult, event_to_dict
from isthmus.models.fold import classify, close, iterate
from isthmus.models.jsontext import dumps, loads
from isthmus.models.normalise import to_event
from isthmus.models.script import items_of
from isthmus.secret import Secret, names_secret
from isthmus.transport.recorder import RecordingCarrier, as_text, keep
from isthmus.transport.recording import Library, ReplayTransport, places_with
from isthmus.transport.scrub import scrubbed_text, scrubbed_value

EVENTS = "events.jsonl"


def record(adapter: Any, folder: str | os.PathLike[str]) -> Any:
    """The same adapter, which keeps each exchange that comes to its end as a recording; the given one is unchanged.

    Keys, cookies and accounts are scrubbed. One that its caller gives up leaves nothing behind.

    Args:
        adapter: one with a transport of ours, of which the bytes are kept; or any other, of which the events are.
        folder: where the recordings go, as `001-…`.
    """
    if has_transport(adapter):
        return over(adapter, transport=RecordingCarrier(adapter.transport, folder))
    return _Recorded(as_adapter(adapter), Path(folder))


def replayed(adapter: Any, folder: str | os.PathLike[str], *, split: int | None = None) -> Any:
    """The same adapter, answered from recordings: the one of the same request, and an error where there is none.

    Neither a key nor a network is needed.

    Args:
        adapter: as it was given to `record`.
        folder: holds recordings, at any depth.
        split: bytes in a chunk, instead of the recorded sizes.

    Raises:
        ConfigError: there is no recording in it.
    """
    if has_transport(adapter):
        return over(adapter, transport=ReplayTransport(folder, split=split), keys=NoKeys())
    return _Replayed(as_adapter(adapter), Path(folder))


def events_in(folder: Path) -> list[Event | BaseException]:
    """What a recording of events holds, in order.

    Raises:
        ConfigError: it cannot be read.
    """
    place = folder / EVENTS
    try:
        return [_read(loads(line)) for line in place.read_bytes().splitlines() if line.strip()]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"holds no recorded events ({error})", where=str(place)) from None


def has_transport(adapter: Any) -> bool:
    """Whether an adapter itself holds a transport of ours."""
    # One that is only reached through the adapter belongs to something inside it.
    held = vars(adapter) if hasattr(adapter, "__dict__") else {}
    return callable(getattr(held.get("transport"), "open", None))


def over(adapter: Any, **parts: Any) -> Any:
    """The same adapter with other parts, the given one unchanged."""
    made = copy.copy(adapter)
    for name in [name for name in vars(made) if name.startswith("_isthmus")]:
        # Copies of the adapter that it keeps for other settings have its own transport.
        del vars(made)[name]
    for name, part in parts.items():
        setattr(made, name, part)
    return made


class NoKeys:
    """What authorises a request that goes nowhere."""

    refreshable = False

    async def headers(self, *, refresh: bool = False) -> Mapping[str, str]:
        """None."""
        return {}

    def secrets(self) -> Iterable[str]:
        """None."""
        return ()


class _Recorded(Around):
    """Keeps the events of each reply."""

    def __init__(self, inner: ModelAdapter, folder: Path) -> None:
        super().__init__(inner)
        self._folder = folder

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        kept = _Kept(self._folder, ctx, secrets=_secrets(self.inner))
        source = iterate(self.inner.stream(ctx))
        try:
            async for event in source:
                kept.add(event)
                yield event
        except Exception as error:
            kept.add(error)
            raise
        finally:
            await close(source)

    async def generate(self, ctx: GenerateContext) -> StepResult:
        kept = _Kept(self._folder, ctx, secrets=_secrets(self.inner))
        try:
            result: StepResult = await self.inner.generate(ctx)
        except Exception as error:
            kept.add(error)
            raise
        for item in items_of(result):
            kept.add(item)
        return result


class _Kept:
    """The events of one reply; written at its end, or not at all."""

    def __init__(self, folder: Path, ctx: GenerateContext, *, secrets: frozenset[str]) -> None:
        self._folder, self._secrets = folder, secrets
        self._asked = _form(ctx, secrets)
        self._began = monotonic()
        self._lines: list[bytes] = []

    def add(self, item: Event | BaseException) -> None:
        """Take an event, or the error in the place of the others; the last one ends the recording."""
        if isinstance(item, Aside):
            # Nothing of the reply, and its provider's own object has no form that could be read again.
            return
        at = round(monotonic() - self._began, 4)
        if isinstance(item, BaseException):
            line = {"at": at, "error": classify(item).to_dict()}
        else:
            line = {"at": at, "event": _written(item)}
        self._lines.append(scrubbed_text(dumps(line).decode(), self._secrets).encode())
        if isinstance(item, BaseException | Finish):
            files = {"request.json": as_text(self._asked), EVENTS: b"\n".join(self._lines) + b"\n"}
            keep(self._folder, "events", files=files)


class _Replayed(Around):
    """Plays recorded events."""

    def __init__(self, inner: ModelAdapter, folder: Path) -> None:
        super().__init__(inner)
        self._library = Library(folder, [(place, _asked(place)) for place in places_with(folder, EVENTS)])

    async def stream(self, ctx: GenerateContext) -> AsyncIterator[Event]:
        for item in events_in(self._library.find(_form(ctx, _secrets(self.inner)))):
            if isinstance(item, BaseException):
                raise item
            yield item


def _form(ctx: GenerateContext, secrets: frozenset[str]) -> dict[str, Any]:
    """A context as plain JSON values, scrubbed: what is kept of it, and what it is looked up by."""
    values = {each.name: getattr(ctx, each.name) for each in fields(ctx)}
    values["tools"] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in ctx.tools
    ]
    values["output"] = None if ctx.output is None else {"name": ctx.output.name(), "schema": ctx.output.json_schema()}
    return {"context": scrubbed_value(loads(dumps(values)), secrets)}


def _asked(place: Path) -> dict[str, Any]:
    try:
        value = loads((place / "request.json").read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(f"holds no recorded request ({error})", where=str(place)) from None
    return {"context": value.get("context")} if isinstance(value, dict) else {}


def _written(event: Event) -> Mapping[str, Any]:
    shown = event_to_dict(event)
    native = getattr(event, "native", None)
    return shown if native is None else {**shown, "native": {**event_to_dict(native)}}


def _read(line: Mapping[str, Any]) -> Event | BaseException:
    if "error" not in line:
        return to_event(line["event"])
    said = line["error"]
    named = {name: said.get(name) for name in ("retry_after", "status", "code")}
    return tier_error(said["class"], said["message"], **named)


def _secrets(adapter: Any) -> frozenset[str]:
    """What an adapter holds as a secret, as far as names and types tell."""
    inner = getattr(adapter, "plain", adapter)
    held = vars(inner) if hasattr(inner, "__dict__") else {}
    found = [value for name, value in held.items() if isinstance(value, str) and names_secret(name)]
    found += [value for value in held.values() if isinstance(value, Secret)]
    return frozenset(value for value in found if len(value) >= 4)
