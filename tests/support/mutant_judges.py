"""What finds a mutant: the kit's laws over committed recordings, or the frames that a reader of bytes must give."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isthmus.adapters.registry import resolve
from isthmus.conformance.judge import CANARY, MESSAGES, TOOLS
from isthmus.conformance.law import NotJudged
from isthmus.conformance.laws import LAWS
from isthmus.conformance.playing import choose
from isthmus.conformance.reading import plain
from isthmus.conformance.reels import Projector, Reel, Showing, opened_cinema
from isthmus.conformance.report import ERROR
from isthmus.conformance.seen import Ask, Seen
from isthmus.conformance.subject import CannotMake, Subject
from isthmus.conformance.watch import Heart
from isthmus.errors import ProtocolError
from isthmus.models.contract import GenerateContext
from isthmus.models.fold import classify
from isthmus.wire import eventstream, ndjson, sse
from isthmus.wire.call import Ended
from support.own_reading import READINGS

READERS = {"SSEParser": sse, "NDJSONParser": ndjson, "EventStreamParser": eventstream}
# Those that find most come first, the slow one last.
_ORDER = ("wire-golden", "wire-whole", "wire-events", "wire-status", "wire-native", "wire-results")
_LAST = ("wire-split", "wire-cut")
# Who streams in another form than it answers whole.
_TWO_WIRES = ("langserve",)
FEW = 24
"""The slow laws get every so-manieth recording of a mutant."""


def judge_of(name: str, settings: Mapping[str, Any], *, few: int = FEW) -> Any:
    """The judge of a decoder, whose slow laws get every `few`-th recording."""
    return ReaderJudge(name) if name in READERS else AdapterJudge(name, settings, few=few)


class AdapterJudge:
    """Holds a provider's adapter to the laws at wire level, up to the first that is broken."""

    def __init__(self, provider: str, settings: Mapping[str, Any], *, few: int = FEW) -> None:
        self._factory: Any = resolve(provider).factory
        self._own: Any = READINGS.get(provider)
        self._two_wires = provider in _TWO_WIRES
        self._settings = settings
        self._few = few
        self._projector = Projector()

    async def broken(self, folders: Sequence[Path], own: Path | None = None) -> str:
        """The first broken law, or "".

        Args:
            folders: the recordings.
            own: those for an adapter with an author's own reading.
        """
        found = await self._broken(self._factory, folders)
        return found or ("" if own is None else await self._broken(self._own, [own]))

    async def _broken(self, factory: Any, folders: Sequence[Path]) -> str:
        subject = Subject(factory, CANARY)
        subject.patience = 3.0
        subject.settings.update(self._settings)
        seen = Seen(subject, Ask(MESSAGES, TOOLS), told=False, patience=3.0, heart=Heart())
        async with opened_cinema(subject, folders) as cinema:
            seen.kept["cinema"] = cinema
            await choose(seen)
            laws = {law.id: law for law in LAWS if law.id.startswith("wire-")}
            for name in (*_ORDER, *sorted(set(laws) - {*_ORDER, *_LAST}), *_LAST):
                if name in _LAST:
                    cinema.reels = cinema.reels[:: self._few]
                try:
                    async for found in laws[name].judge(seen):
                        if found.severity == ERROR:
                            return name
                except NotJudged:
                    continue
                except CannotMake:
                    return "made"
        return ""

    async def said(self, variant: Any, *, own: bool = False) -> Any:
        """What a changed recording amounts to."""
        headers = {str(name).lower(): str(value) for name, value in variant.meta.get("headers") or ()}
        headers.pop("content-length", None)
        ended = Ended(variant.meta.get("ended") or "framed")
        status, streamed = int(variant.meta["status"]), bool(variant.meta.get("stream"))
        reel = Reel(Path(), status, headers, variant.body, (), streamed, variant.asked, ended)
        self._projector.showing = Showing(reel)
        make = self._own if own else self._factory
        adapter = make(model="m", api_key=CANARY, transport=self._projector, **self._settings)
        try:
            ctx = GenerateContext(messages=({"role": "user", "content": "x"},))
            whole = self._two_wires and not streamed
            step = await (adapter.generate(ctx) if whole else adapter.stream(ctx).result())
        except Exception as error:
            step = classify(error)
        return plain(step if getattr(step, "error", None) is None or not hasattr(step, "finish") else step.error)


class ReaderJudge:
    """Holds a reader of bytes to the frames that are kept beside them, however the bytes are split."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def broken(self, folders: Sequence[Path], own: None = None) -> str:
        """The first row that is read as something else, or ""."""
        make = getattr(READERS[self._name], self._name)
        for row in json.loads((folders[0] / f"{self._name}.json").read_text(encoding="utf-8")):
            found = wrong_frames(make, row)
            if found:
                return found
        return ""


def wrong_frames(make: Any, row: Mapping[str, Any]) -> str:
    """How bytes are not read as the frames that are kept beside them; "" where they are, split in any way.

    Args:
        make: the reader's class.
        row: `name`, `body` (a character a byte), `frames` as [data, event], `limit` if any; of one that is refused
            `fails`, and `refused_at`: after how many bytes, given one by one; `first` where the frames before the
            refusal are given, however the bytes are split.
    """
    body = row["body"].encode("latin-1")
    limits = [row["limit"]] if "limit" in row else []
    splits = [[body], *([body[at : at + size] for at in range(0, len(body), size)] for size in (1, 3))]
    splits += [[body[:at], b"", body[at:]] for at in range(0, len(body), max(1, len(body) // 150))]
    for pieces in splits:
        frames, fails = read(make(*limits), pieces)
        if fails != row.get("fails", False) or ((not fails or "first" in row) and frames != row["frames"]):
            return f"{row['name']}: {frames!r:.200}"
    taken, frames = refused_at(make(*limits), body)
    if (taken, frames) != (row.get("refused_at"), row["frames"]):
        return f"{row['name']}: byte by byte it is refused after {taken}, {frames!r:.200}"
    return ""


def refused_at(parser: Any, body: bytes) -> tuple[int | None, list[list[str]]]:
    """After how many single bytes the reader refuses (None: never), and its frames until then."""
    frames: list[Any] = []
    for at in range(len(body) + 1):
        try:
            frames += parser.feed(body[at : at + 1]) if at < len(body) else parser.close()
        except ProtocolError:
            return at, [[data.decode("latin-1"), event] for data, event in frames]
    return None, [[data.decode("latin-1"), event] for data, event in frames]


def read(parser: Any, pieces: Sequence[bytes]) -> tuple[list[list[str]], bool]:
    """The frames, a character a byte, and whether the reader refused."""
    frames: list[Any] = []
    fails = False
    try:
        for piece in pieces:
            frames += parser.feed(piece)
        # Closed again, a reader has nothing more to say.
        frames += [*parser.close(), *parser.close()]
    except ProtocolError:
        fails = True
    return [[data.decode("latin-1"), event] for data, event in frames], fails
