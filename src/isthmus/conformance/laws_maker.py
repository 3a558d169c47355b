"""Laws on the adapter as a thing: how it is made, what it says of itself, what it sends and what it keeps secret."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import fields, replace

from isthmus.adapters.base import ModelCapabilities
from isthmus.conformance.graph import holds, requests, walk
from isthmus.conformance.law import Found, Group, NotJudged
from isthmus.conformance.reading import shown
from isthmus.conformance.report import WARNING
from isthmus.conformance.seen import Ask, Seen
from isthmus.conformance.subject import CEILING, CannotMake, Subject, inner, secrets_of
from isthmus.models.messages import RESERVED

GROUP = Group()
law = GROUP.law

_MARK = "conformance-marker"


@law(
    "constructor",
    "The constructor names each setting that it takes, a ceiling max_tokens among them.",
    why="Settings reach an adapter by the names of its parameters: **kwargs shows none.",
    fix="declare each setting by name: def __init__(self, *, base_url=None, api_key=None, max_tokens=8192)",
    covers=("F21",),
)
async def _constructor(seen: Seen) -> AsyncIterator[Found]:
    if not seen.subject.fresh:
        raise NotJudged("an adapter was given, not what makes it")
    if seen.subject.swallows:
        yield Found("**kwargs alone: no setting reaches it", "**kwargs", "named parameters", WARNING)
    elif seen.subject.declares("model") and not seen.subject.declares("max_tokens"):
        yield Found("no parameter max_tokens: the configured ceiling cannot reach it", severity=WARNING)


@law(
    "ceiling",
    "A configured max_tokens is kept, and sent with every request.",
    why="A reply without a ceiling costs what it likes; one cut at somebody else's ceiling is cut too early.",
    fix="self.max_tokens = int(max_tokens) or 8192, and put self.max_tokens into each request",
    covers=("F21",),
    after=("made", "answers"),
)
async def _ceiling(seen: Seen) -> AsyncIterator[Found]:
    if not seen.subject.declares("max_tokens"):
        raise NotJudged("its maker declares no max_tokens")
    adapter = await seen.subject.make(max_tokens=CEILING)
    if not holds(inner(adapter), CEILING):
        yield Found(f"max_tokens={CEILING} is nowhere in the adapter", "absent", f"{CEILING}")
        return
    for face in seen.faces:
        probe = await seen.subject.make(max_tokens=CEILING)
        await seen.hear(face, seen.ask, adapter=probe)
        if not any(requests(inner(probe))):
            # Nothing would be seen of a reply at the adapter's own ceiling, which may take minutes.
            continue
        before = [request for _, request in requests(inner(adapter))]
        await seen.hear(face, replace(seen.ask, ceiling=None), adapter=adapter)
        for place, request in requests(inner(adapter)):
            if request not in before and not holds(request, CEILING):
                yield Found(f"{face}: the request at {place} has no ceiling", shown(request), f"{CEILING} in it")
                return
    zero = seen.subject.parameters["max_tokens"].default
    if isinstance(zero, int) and zero > 0:
        try:
            other = inner(await seen.subject.make(max_tokens=0))
        except CannotMake as error:
            yield Found("max_tokens=0 is refused: it means the default", shown(error), str(zero), WARNING)
            return
        kept = getattr(other, "max_tokens", zero)
        if not kept:
            yield Found("max_tokens=0 is kept as it is: it means the default", shown(kept), str(zero), WARNING)


@law(
    "bookkeeping",
    f"No {RESERVED!r} key, nor anything else of this library's own, is in a request.",
    why="Providers refuse keys that they do not know, and what is internal is nobody else's business.",
    fix="send the fields that your provider knows, not the message as it came",
    covers=("F14", "F29"),
    after=("made", "answers"),
)
async def _bookkeeping(seen: Seen) -> AsyncIterator[Found]:
    internal = {RESERVED: {"native": {"dialect": _MARK, "of": "", "json": "{}"}}}
    adapter = await seen.subject.make()
    judged = False
    for face in [face for face in seen.faces if face in ("stream", "generate")]:
        before = [id(request) for _, request in requests(inner(adapter))]
        said = [{**message, **internal} for message in seen.ask.messages]
        await seen.hear(face, Ask(said, seen.ask.tools), adapter=adapter)
        new = [(place, request) for place, request in requests(inner(adapter)) if id(request) not in before]
        judged = judged or bool(new)
        for place, request in new:
            if any(isinstance(item, Mapping) and RESERVED in item for _, item in walk(request)):
                yield Found(f"{face}: the request at {place} holds {RESERVED!r}", shown(request, 200), "no such key")
                return
    if not judged:
        raise NotJudged("it keeps no request that could be looked at")


_QUICK = 0.1
"""Seconds that capabilities() may take: it is called before each request."""
_LOOKS = 2
_NUMBERS = ("context_window", "max_output_tokens")


@law(
    "capabilities",
    "capabilities() gives a ModelCapabilities, with limits in tokens above 0 or None, and flags.",
    why="The ceiling is clamped by it, and thinking switched by it.",
    fix="return ModelCapabilities(context_window=200_000, max_output_tokens=8192), or inherit the method",
    covers=("F18", "F21"),
)
async def _capabilities(seen: Seen) -> AsyncIterator[Found]:
    try:
        waits = []
        for _ in range(_LOOKS):
            started = time.monotonic()
            found = seen.adapter.capabilities()
            waits.append(time.monotonic() - started)
            if asyncio.iscoroutine(found):
                break
    except Exception as error:
        yield Found(f"capabilities() raised {type(error).__name__}", shown(error), "ModelCapabilities")
        return
    if asyncio.iscoroutine(found):
        found.close()
        yield Found("capabilities() is a coroutine: it is called without await", "coroutine", "a plain method")
        return
    if min(waits) > _QUICK:
        yield Found("capabilities() takes long: it is called often, in the loop", f"{min(waits):.2f} s", "at once")
    missing = [item.name for item in fields(ModelCapabilities) if not hasattr(found, item.name)]
    if missing:
        yield Found(f"capabilities() has no {missing[0]!r}", shown(found), "ModelCapabilities")
        return
    for item in fields(ModelCapabilities):
        value = getattr(found, item.name)
        number = item.name in _NUMBERS
        right = (value is None or (type(value) is int and value > 0)) if number else isinstance(value, bool)
        if not right:
            wanted = "tokens above 0, or None" if number else "a bool"
            yield Found(f"capabilities().{item.name} is {shown(value)}", shown(value), wanted)


@law(
    "identity",
    "An adapter has a name, and says what it takes in known words.",
    why="A chain tells its tiers apart by name, and leaves out those that do not take what is needed.",
    fix="leave id, window_tokens and supports to the base class, or set them to a str, tokens and known words",
    covers=("F23",),
    after=("made", "capabilities"),
)
async def _identity(seen: Seen) -> AsyncIterator[Found]:
    adapter, raised = seen.adapter, False
    for name in ("id", "supports", "window_tokens", "max_output_tokens"):
        try:
            getattr(adapter, name, None)
        except Exception as error:
            raised = True
            yield Found(f"{name} raises {type(error).__name__}", shown(error), "a value")
    if raised:
        return
    words = {"tools", "parallel-tools", "images", "documents", "audio", "output-schema"}
    if not isinstance(adapter.id, str) or not adapter.id:
        yield Found("id must be a non-empty str", shown(adapter.id), "provider:model")
    for name in ("window_tokens", "max_output_tokens"):
        value = getattr(adapter, name, None)
        if value is not None and not (isinstance(value, int) and value > 0):
            yield Found(f"{name} must be tokens above 0, or None", shown(value), "int or None")
    supports = adapter.supports
    if isinstance(supports, str) or not all(isinstance(word, str) for word in supports):
        yield Found("supports must be a set of words", shown(supports), str(sorted(words)))
    elif set(supports) - words:
        yield Found("supports holds an unknown word", shown(sorted(set(supports) - words)), str(sorted(words)), WARNING)


class Listener(logging.Handler):
    """Keeps what is logged while an adapter runs, as text."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's words and arguments."""
        self.lines.append(f"{record.name}: {record.getMessage()} {record.exc_text or ''} {record.args!r}")


@law(
    "secrets",
    "No key is in a repr, an error, a reply, a turn or a log.",
    why="Reprs and errors end in logs, and logs in other people's hands.",
    fix="keep the key in isthmus.secret.Secret or a field without repr, and never format it into a message",
    covers=("F29",),
    after=("made",),
)
async def _secrets(seen: Seen) -> AsyncIterator[Found]:
    subject: Subject = seen.subject
    given = subject.by_config or subject.canary in [v for v in subject.values().values() if isinstance(v, str)]
    own = set(secrets_of(seen.adapter))
    if not given and not own and not holds(inner(seen.adapter), subject.canary):
        raise NotJudged("it takes no key by name")
    canaries = {subject.canary, *own}
    for name in seen.scenarios:
        await seen.scene(name)
    for place, text in _spoken(seen):
        if any(canary in text for canary in canaries):
            yield Found(f"the key is in {place}", seen="the key", expected="nothing of it")


def _spoken(seen: Seen) -> Iterator[tuple[str, str]]:
    """Every text that an adapter showed, by its place."""
    own = inner(seen.adapter)
    yield "repr(adapter)", shown(own, 100_000)
    yield "str(adapter)", f"{own}"
    yield "the adapter's id", str(seen.adapter.id)
    for heard in seen.heards:
        if heard.error is not None:
            chain: BaseException | None = heard.error
            while chain is not None:
                yield f"{heard.face}'s error", f"{shown(chain, 100_000)} {chain} {getattr(chain, 'body', '')}"
                chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    for reply in seen.replies:
        yield "a reply", shown(reply, 100_000)
    for turned in seen.kept.get("turns", ()):
        yield "a tool turn", shown(turned.turns, 100_000)
    for line in seen.kept.get("log", ()):
        yield "the log", line
