"""Plays a recorded reply through an adapter, without its provider."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from isthmus.adapters.registry import load_adapter, provider_of
from isthmus.conformance.damage import Split
from isthmus.conformance.named import maker_of
from isthmus.conformance.plays import Play
from isthmus.conformance.recorder import EVENTS, events_in
from isthmus.conformance.server import serve
from isthmus.conformance.subject import Subject
from isthmus.errors import ConfigError, IsthmusError, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Event, StepResult
from isthmus.models.fold import Fold, classify, iterate
from isthmus.models.jsontext import loads
from isthmus.models.normalise import to_event, to_step_result
from isthmus.sync import run_sync
from isthmus.transport.recording import RecordingTransport

# Some providers have no address of their own; nothing is sent anywhere.
_NOWHERE = "http://replayed.invalid"

_ASKED = GenerateContext(messages=({"role": "user", "content": "replayed"},))


def replay(path: str | os.PathLike[str], *, adapter: str | None = None, split: int | None = None) -> StepResult:
    """Decode a recorded reply; a failure becomes an "error-post" result with what had arrived.

    Args:
        path: the recording's folder: `request.json`, `response.meta.json` and `response.body`, or `events.jsonl`.
        adapter: the provider whose adapter decodes it; by the request's path where None.
        split: hand the body over in pieces of so many bytes; as it was recorded where None.

    Raises:
        ConfigError: no such recording, or no built-in adapter for its path; the adapter takes neither a transport nor
            a base URL.
    """
    folder = Path(path)
    if (folder / EVENTS).is_file():
        return _refolded(events_in(folder))
    request, meta = _read(folder / "request.json"), _read(folder / "response.meta.json")
    body = request.get("body")
    asked: Mapping[str, Any] = body if isinstance(body, Mapping) else {}
    name = adapter or _provider(str(request.get("path", "")), asked, folder)
    settings = {"model": str(asked.get("model") or "replayed"), "api_key": "replayed"}
    streamed = meta.get("stream") is True or asked.get("stream") is True
    maker = Subject(maker_of(name), "replayed")
    if maker.is_movable and not maker.declares("transport"):
        return run_sync(_served, name, settings, Play.recording(folder), split=split, streamed=streamed)
    made = load_adapter(name, **settings, base_url=_NOWHERE, transport=RecordingTransport(folder, split=split))
    return run_sync(_played, made, streamed)


async def _served(
    name: str, settings: Mapping[str, str], play: Play, *, split: int | None, streamed: bool
) -> StepResult:
    """What an adapter with a client of its own makes of a recording, played at its base URL."""
    shown = play if split is None else play.damaged(Split(split))
    async with serve(lambda request: shown) as server:
        return await _played(load_adapter(name, **settings, base_url=server.url), streamed)


def _read(file: Path) -> dict[str, Any]:
    try:
        value = loads(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"no recording: {error.strerror}", where=str(file)) from error
    except ValueError as error:
        raise ConfigError(f"is not JSON: {error}", where=str(file)) from None
    if not isinstance(value, dict):
        raise ConfigError("holds no JSON object", where=str(file))
    return value


def _provider(path: str, body: Mapping[str, Any], folder: Path) -> str:
    found = provider_of(path, body)
    if found is None:
        raise ConfigError(f"no built-in adapter sends requests to {path!r}: name one as adapter", where=str(folder))
    return found


async def _played(adapter: Any, streamed: bool) -> StepResult:
    fold = Fold()
    try:
        if not streamed:
            return to_step_result(await adapter.generate(_ASKED))
        async for item in iterate(adapter.stream(_ASKED)):
            fold.add(to_event(item))
        return fold.result()
    except Exception as error:
        if isinstance(error, IsthmusError) and not isinstance(error, TierError):
            raise
        return _failed(fold, classify(error))


def _refolded(items: Iterable[Event | BaseException]) -> StepResult:
    """Recorded events as a reply."""
    fold = Fold()
    for item in items:
        if isinstance(item, BaseException):
            return _failed(fold, classify(item))
        fold.add(item)
    return fold.result()


def _failed(fold: Fold, error: TierError) -> StepResult:
    partial = error.partial
    if isinstance(partial, StepResult) and not fold.has_content:
        return StepResult(
            events=partial.events,
            finish="error-post",
            usage=error.usage or partial.usage,
            reasoning=partial.reasoning,
            native=partial.native,
            notes=partial.notes,
            error=error,
        )
    return fold.failed(error)
