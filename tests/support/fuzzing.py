"""What must hold of any bytes at all: the readers of `wire/` and the decoders, and how bytes are made worse."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import Any

from isthmus.adapters.drive import WireAdapter
from isthmus.adapters.registry import resolve
from isthmus.errors import IsthmusError, TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.events import StepResult
from isthmus.models.jsontext import dumps
from isthmus.models.messages import assistant_message
from isthmus.wire.call import Ended, WireCall, WireReply
from isthmus.wire.eventstream import EventStreamParser
from isthmus.wire.frame import Frame
from isthmus.wire.ndjson import NDJSONParser
from isthmus.wire.partial_json import PartialJson
from isthmus.wire.retryafter import retry_after
from isthmus.wire.sse import SSEParser
from support.shapes import seeds

PROVIDERS = ("openai", "anthropic", "openai-responses")
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    **{name: {} for name in PROVIDERS},
    "bedrock": {"aws_region": "us-east-1"},
    "langserve": {"base_url": "http://langserve.invalid"},
}
"""Every decoder that takes any bytes, and what its adapter needs."""
KINDS = ("text/event-stream", "application/json", "")
_ASKED = GenerateContext(messages=({"role": "user", "content": "hi"},))


class Tape:
    """A transport that plays chunks, whatever is asked."""

    def __init__(self, chunks: Iterable[bytes], kind: str, ended: Ended) -> None:
        self._chunks = chunks
        self.status, self.headers, self.ended = 200, {"content-type": kind}, ended

    def open(self, url: str, call: WireCall, *, headers: Mapping[str, str]) -> Tape:
        """The one reply."""
        return self

    async def __aenter__(self) -> Tape:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body."""
        for chunk in self._chunks:
            yield chunk

    async def read(self, limit: int | None = None) -> bytes:
        """The body, or its first bytes."""
        return b"".join(self._chunks)[:limit]

    async def settle(self) -> None:
        """Nothing is left open."""

    async def aclose(self) -> None:
        """Nothing is open."""


def adapter_of(provider: str, chunks: Iterable[bytes], *, kind: str = KINDS[0], ended: Ended = Ended.FRAMED) -> Any:
    """A provider's adapter that gets this reply."""
    make: Any = resolve(provider).factory
    adapter = make(model="m-1", api_key="sk-fuzz", transport=Tape(chunks, kind, ended), **SETTINGS[provider])
    assert isinstance(adapter, WireAdapter)
    return adapter


async def heard(adapter: Any, *, whole: bool = False) -> StepResult | TierError:
    """What the adapter makes of its reply; an exception outside the tree of errors escapes."""
    try:
        step: StepResult = await adapter.generate(_ASKED) if whole else await adapter.stream(_ASKED).result()
    except TierError as error:
        return error
    return step.error or step


def split(data: bytes, size: int) -> list[bytes]:
    """The bytes in pieces of one size; in one piece where it is 0."""
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def check_readers(data: bytes, size: int) -> None:
    """The readers give the same for any split, within their limit, and raise nothing else than they say."""
    for make in (SSEParser, NDJSONParser, EventStreamParser):
        at_once, pieces = _frames(make(), [data]), _frames(make(), split(data, size))
        assert at_once == pieces, f"{make.__name__}: split {size} gives other frames"
        for limit in (1, 64):
            frames = _frames(make(limit), split(data, size))
            assert _BROKEN in frames or frames == at_once, f"{make.__name__}: limit {limit} gives other frames"
    text, partial = data.decode("utf-8", "replace"), PartialJson()
    try:
        for at in range(0, len(text), max(1, size)):
            partial.feed(text[at : at + max(1, size)])
        partial.close()
        dumps(partial.value)
    except ValueError:
        pass
    wait = retry_after({"retry-after": text[:100], "date": text[100:200]})
    assert wait is None or wait >= 0


_BROKEN = Frame(b"", "broken")


def _frames(parser: Any, pieces: Iterable[bytes]) -> list[Frame]:
    frames: list[Frame] = []
    try:
        for piece in pieces:
            frames += parser.feed(piece)
        return frames + parser.close()
    except TierError:
        return [*frames, _BROKEN]


async def check_decoder(provider: str, data: bytes, *, size: int, kind: str, ended: Ended) -> None:
    """A decoder ends with a reply or an error of the tree, the same for any split; the reply can be used."""
    first = await heard(adapter_of(provider, [data], kind=kind, ended=ended))
    again = await heard(adapter_of(provider, split(data, size), kind=kind, ended=ended))
    assert _gist(first) == _gist(again), f"{provider}: split {size}: {_gist(first)!r:.500} != {_gist(again)!r:.500}"
    whole = await heard(adapter_of(provider, [data], kind=kind, ended=ended), whole=True)
    for outcome in (first, whole):
        dumps(outcome.to_dict())
        if isinstance(outcome, StepResult):
            _use(provider, outcome)
    error = adapter_of(provider, []).codec.classify(WireReply(429 if size % 2 else 500, {}, data))
    assert isinstance(error, TierError)
    dumps(error.to_dict())


def _use(provider: str, step: StepResult) -> None:
    """The next turn can be encoded, or is refused by an error of the tree."""
    message = assistant_message(step)
    results = [{"role": "tool", "tool_call_id": call.call_id, "content": "done"} for call in step.calls]
    ctx = GenerateContext(messages=(*_ASKED.messages, message, *results, *_ASKED.messages))
    try:
        adapter_of(provider, []).codec.encode(ctx, stream=True)
    except IsthmusError:
        return


def _gist(outcome: StepResult | TierError) -> Any:
    if isinstance(outcome, TierError):
        return outcome.error_class
    return outcome.text, outcome.calls, outcome.reasoning, outcome.finish, outcome.usage, len(outcome.native)


def run(work: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """Run async work in a loop that is kept: a new one each time would cost more than the work."""
    return _LOOP.run_until_complete(work(*arguments, **named))


_LOOP = asyncio.new_event_loop()

_ODD = (
    *(b"null", b"[]", b"{}", b'""', b"-1", b"1e400", b"NaN", b"true", b'"\\ud800"', b"18446744073709551616"),
    *(b"0.1e-999999", b'{"type":7}', b"data:", b"event: error\n", b"event: end\n\n", b"\r", b"\n\n", b"\xef\xbb\xbf"),
    *(b": x\n", b"error: {", b"\x00", b"\xff\xfe", b"[DONE]", b"data: [DONE]\n\n", b"1" * 5000),
)
_DEEP = ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"type":', b"}]"))


def worse(data: bytes, chance: random.Random, *, most: int = 200_000) -> bytes:
    """The bytes changed in a few places: values, lines, members and events moved, doubled, cut, or made deep."""
    for _ in range(chance.randint(1, 4)):
        data = chance.choice(_CHANGES)(data, chance)[:most]
    return data


def _flipped(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _left_out(data: bytes, chance: random.Random) -> bytes:
    at, size = chance.randrange(len(data) + 1), chance.choice((1, 3, 20, 200))
    return data[:at] + data[at + size :]


def _odd(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    return data[:at] + chance.choice(_ODD) + data[at:]


def _other_value(data: bytes, chance: random.Random) -> bytes:
    """A JSON value gives place to one of another type."""
    colons = [at for at, byte in enumerate(data[:20_000]) if byte == ord(":")]
    if not colons:
        return _odd(data, chance)
    start = chance.choice(colons) + 1
    end = next((at for at in range(start, min(len(data), start + 300)) if data[at] in b",}\n"), len(data))
    return data[:start] + chance.choice(_ODD) + data[end:]


def _deep(data: bytes, chance: random.Random) -> bytes:
    start, end = chance.choice(_DEEP)
    depth = chance.choice((3, 60, 400, 990, 1100, 30_000))
    colons = [at for at, byte in enumerate(data[:20_000]) if byte == ord(":")] or [len(data)]
    at = chance.choice(colons) + 1
    return data[:at] + start * depth + b"1" + end * depth + b"," + data[at:]


def _events_moved(data: bytes, chance: random.Random) -> bytes:
    events = data.split(b"\n\n")
    one, other = chance.randrange(len(events)), chance.randrange(len(events))
    how = chance.randrange(4)
    if how == 0:
        events.insert(other, events[one])
    elif how == 1:
        del events[one]
    elif how == 2:
        events[one], events[other] = events[other], events[one]
    else:
        events[one:one] = [events[one]] * chance.choice((2, 10, 300))
    return b"\n\n".join(events)


def _spliced(data: bytes, chance: random.Random) -> bytes:
    other = chance.choice(seeds(chance.choice([*SETTINGS])))
    return data[: chance.randrange(len(data) + 1)] + other[chance.randrange(len(other)) :]


def _repeated(data: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(data) + 1)
    piece = data[start : start + chance.choice((1, 2, 10, 80))]
    return data[:start] + piece * chance.choice((2, 20, 1000)) + data[start:]


def _line_ends(data: bytes, chance: random.Random) -> bytes:
    return data.replace(b"\n", chance.choice((b"\r\n", b"\r", b"\n\r")))


_CHANGES = (
    *(_flipped, _cut, _left_out, _odd, _other_value, _other_value, _deep, _events_moved, _events_moved),
    *(_spliced, _repeated, _line_ends),
)
