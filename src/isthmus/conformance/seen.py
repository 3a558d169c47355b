"""Drives the faces of an adapter and keeps what was seen: each call is bounded in time, and watched."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

from isthmus.adapters.base import as_adapter
from isthmus.adapters.model_face import model_arguments, model_messages
from isthmus.adapters.render import tool_dicts
from isthmus.conformance.readers import STREAM_READERS, WHOLE_READERS, read_events
from isthmus.conformance.reading import Reading
from isthmus.conformance.subject import CannotMake, Subject, faces_of, inner, raw_method
from isthmus.conformance.watch import AFTER_CANCEL, CancelsItself, Hangs, Heart, within
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext, ToolSpec
from isthmus.models.fold import iterate
from isthmus.models.stream import EventStream

ENOUGH = 64
"""Output tokens in which a model can call a tool; a slow one fills its own ceiling for minutes."""
_MOST = 10_000
_BREATH = 64
_CROWDED = 3.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """One request.

    Args:
        messages: the transcript as role dicts.
        tools: what is offered.
        ceiling: of the reply, in tokens, on the faces that take one; None leaves it to the adapter's own.
    """

    messages: Sequence[Mapping[str, Any]]
    tools: tuple[ToolSpec, ...] = ()
    ceiling: int | None = ENOUGH

    def context(self) -> GenerateContext:
        """The request as the step face takes it; nothing in it is shared."""
        return GenerateContext(
            messages=tuple(deepcopy(dict(message)) for message in self.messages),
            tools=tuple(deepcopy(self.tools)),
            options={},
            max_output_tokens=self.ceiling,
        )


@dataclass(slots=True)
class Heard:
    """One call of one face, and what was seen of it."""

    face: str
    ask: Ask
    items: list[Any] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    value: Any = None
    error: BaseException | None = None
    late: bool = False
    blocked: float = 0.0
    where: str = ""
    unclosed: bool = False
    changed: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    reading: Reading | None = None

    @property
    def fit(self) -> bool:
        """Whether it answered, and broke no rule of shape."""
        return self.reading is not None and not self.reading.problems

    @property
    def streams(self) -> bool:
        """Whether this face is a stream."""
        return self.face in STREAM_READERS


class Given:
    """The arguments of one call, and whether the adapter changed them."""

    def __init__(self, face: str, ask: Ask) -> None:
        ctx = ask.context()
        self.positional: tuple[Any, ...] = (ctx,)
        self.named: dict[str, Any] = {}
        self._watched: dict[str, Any] = {
            "messages": ctx.messages,
            "options": ctx.options,
            "tools": [_plain(tool) for tool in ctx.tools],
        }
        self._specs = ctx.tools
        if face in ("chat", "stream_chat", "stream_with_tools"):
            messages, tools = [dict(message) for message in ctx.messages], tool_dicts(ctx.tools)
            self.positional = (messages, tools)
            self._watched, self._specs = {"messages": messages, "tools": tools}, ()
        elif face in ("get_response", "stream_response"):
            messages = [dict(message) for message in model_messages(ctx, [])]
            self.positional, self.named = (messages,), model_arguments(ctx)
            self._watched["messages"] = messages
        self._before = deepcopy(self._watched)

    def changed(self) -> list[str]:
        """The names of what the adapter changed."""
        now = dict(self._watched)
        if self._specs:
            now["tools"] = [_plain(tool) for tool in self._specs]
        return [name for name, value in now.items() if value != self._before[name]]


def _plain(tool: ToolSpec) -> Any:
    return [tool.name, tool.description, deepcopy(dict(tool.parameters))]


class Seen:
    """Everything that was seen of one adapter so far.

    Args:
        subject: the adapter under judgement.
        ask: the usual request.
        told: whether the caller said which tools the adapter knows.
        patience: seconds that one call may take.
        heart: of the loop that it runs in.
    """

    def __init__(self, subject: Subject, ask: Ask, *, told: bool, patience: float, heart: Heart) -> None:
        self.subject = subject
        self.ask = ask
        self.told = told
        self.patience = patience
        self.heart = heart
        self.heards: list[Heard] = []
        self.replies: list[Any] = []
        self.hung: list[str] = []
        self.adapter: Any = None
        self.faces: tuple[str, ...] = ()
        self.scenarios: Mapping[str, Callable[..., Any]] = {}
        self.kept: dict[str, Any] = {}
        self._usual: dict[tuple[str, str], Heard] = {}

    async def open(self) -> None:
        """Make the first adapter, and see which faces its author wrote.

        Raises:
            CannotMake: none can be made.
        """
        self.adapter = await self.subject.make()
        self.faces = faces_of(self.adapter)

    async def usual(self) -> list[Heard]:
        """The usual request on each face that its author wrote; asked once."""
        return [await self._once(face, "usual", self.ask) for face in self.faces]

    async def without_tools(self) -> list[Heard]:
        """The same without tools; asked once."""
        return [await self._once(face, "bare", Ask(self.ask.messages)) for face in self.faces if face != "stream_chat"]

    async def again(self, face: str) -> Reading | None:
        """What the usual request is answered the second time, by a fresh adapter; asked once."""
        return (await self._once(face, "again", self.ask)).reading

    async def scene(self, name: str) -> list[Heard]:
        """The usual request on each face, with an adapter that a scenario prepared; asked once."""
        found: list[Heard] = []
        for face in self.faces:
            known = self._usual.get((face, f"scenario {name}"))
            if known is None:
                known = Heard(face, self.ask)
                try:
                    adapter = await prepared(self.scenarios[name], self.subject)
                    known = await self.hear(face, self.ask, adapter=adapter, staged=True)
                except CannotMake as error:
                    known.error = error
                self._usual[face, f"scenario {name}"] = known
            found.append(known)
        return found

    async def _once(self, face: str, kind: str, ask: Ask) -> Heard:
        found = self._usual.get((face, kind))
        if found is None:
            found = self._usual[face, kind] = await self.hear(face, ask)
        return found

    def turn_to(self, face: str) -> None:
        """Let the recordings, if there are any, answer a call of this face."""
        cinema = self.kept.get("cinema")
        if cinema is not None:
            cinema.put_on_usual(whole=face in WHOLE_READERS)

    async def hear(
        self, face: str, ask: Ask, *, adapter: Any = None, weave: bool = False, staged: bool = False
    ) -> Heard:
        """Call one face, on a fresh adapter where none is given.

        Args:
            face: the method's name.
            ask: the request.
            adapter: the one to call.
            weave: let others run after each item; several calls at once may each take longer than one alone.
            staged: a misfortune was brought about, so that it need not answer.
        """
        heard = Heard(face, ask)
        self.heards.append(heard)
        own = adapter is None
        try:
            target = await self.subject.make() if own else adapter
        except CannotMake as error:
            heard.error = error
            return heard
        given, before = Given(face, ask), asyncio.all_tasks()
        self.turn_to(face)
        self.heart.reset()
        started = time.monotonic()
        await self._bounded(_speak(target, heard, given, weave), heard, told=not (weave or staged))
        heard.seconds = time.monotonic() - started
        heard.blocked, heard.where = self.heart.longest, self.heart.where
        await asyncio.sleep(0)
        heard.changed = given.changed()
        heard.tasks = await left_over(before)
        if heard.error is None and not heard.late:
            self._read(heard)
        if own and self.subject.fresh:
            closing = Heard(f"aclose() after {face}", ask)
            await self._bounded(_closed(target), closing, told=not staged)
            heard.unclosed = closing.late
        return heard

    async def within(self, work: Awaitable[T], what: str, *, told: bool = True) -> T:
        """What a call gives, within the patience.

        Args:
            work: the call.
            what: its name in the report.
            told: whether it is a violation in itself that the call hangs.

        Raises:
            Hangs: it does not end within the patience.
            BaseException: what it raised.
        """
        given = self.patience
        try:
            return await within(work, given)
        except Hangs:
            # One call that hangs is a finding; the next ones need not take as long, but as long as those that answered.
            answered = max((each.seconds for each in self.heards if not each.late), default=0.0)
            self.patience = min(self.patience, max(AFTER_CANCEL, _CROWDED * answered))
            if told:
                self.hung.append(f"{what}: no end within {given:.1f} s")
            raise

    async def _bounded(self, work: Awaitable[Any], heard: Heard, *, told: bool) -> None:
        try:
            await self.within(work, heard.face, told=told)
        except Hangs:
            heard.late = True
        except CancelsItself as error:
            heard.error = asyncio.CancelledError(str(error))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            heard.error = error

    def _read(self, heard: Heard) -> None:
        tools = heard.ask.tools
        if heard.streams:
            heard.reading = STREAM_READERS[heard.face](heard.items, tools)
        elif heard.items:
            heard.reading = read_events(heard.items)
            heard.reading.face = heard.face
        else:
            heard.reading = WHOLE_READERS[heard.face](heard.value, tools)
        if heard.reading.reply is not None:
            self.replies.append(heard.reading.reply)


def refuses_tools(seen: Seen, heard: Heard) -> bool:
    """Whether a call was refused for tools that the adapter does not say to take, as it should be."""
    history = any(message.get("tool_calls") for message in heard.ask.messages)
    undeclared = bool(heard.ask.tools or history) and "tools" not in seen.adapter.supports
    return undeclared and isinstance(heard.error, InvalidRequestError)


async def prepared(prepare: Callable[..., Any], subject: Subject) -> Any:
    """The adapter of a scenario: what it returns, or the fresh adapter that it was given and changed.

    Args:
        prepare: takes nothing, or a fresh adapter; may be async.
        subject: makes the fresh adapter.

    Raises:
        CannotMake: it raised, or no adapter came of it.
    """
    if isinstance(prepare, type) or not takes_one(prepare):
        return await Subject(prepare, subject.canary, patience=subject.patience).make()
    fresh = await subject.make()
    try:
        made = prepare(inner(fresh))
        made = await within(made, subject.patience) if hasattr(made, "__await__") else made
        return fresh if made is None else as_adapter(made)
    except Exception as error:
        raise CannotMake(f"scenario: {type(error).__name__}: {error}") from error


def takes_one(prepare: Callable[..., Any]) -> bool:
    """Whether a callable needs one positional argument."""
    try:
        parameters = inspect.signature(prepare).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        item.default is item.empty and item.kind in (item.POSITIONAL_ONLY, item.POSITIONAL_OR_KEYWORD)
        for item in parameters
    )


async def left_over(before: set[Any]) -> list[str]:
    """The tasks that a call left running, after a moment to end."""
    for _ in range(5):
        left = [task for task in asyncio.all_tasks() - before if not task.done()]
        if not left:
            return []
        await asyncio.sleep(0.005)
    return [str(getattr(task.get_coro(), "__qualname__", task.get_name())) for task in left]


def opened(adapter: Any, face: str, *, given: Given) -> Any:
    """What the author's own method returns: a value, an awaitable, an iterator."""
    if face == "stream":
        return EventStream.bare(adapter.stream(*given.positional))
    return raw_method(adapter, face)(*given.positional, **given.named)


async def _closed(adapter: Any) -> None:
    await adapter.aclose()


async def _speak(adapter: Any, heard: Heard, given: Given, weave: bool) -> None:
    value = opened(adapter, heard.face, given=given)
    if not heard.streams:
        value = await value if hasattr(value, "__await__") else value
        if not (hasattr(value, "__aiter__") or hasattr(value, "__next__")):
            heard.value = value
            return
    started = time.monotonic()
    async for item in iterate(value):
        heard.items.append(item)
        heard.times.append(time.monotonic() - started)
        if weave or len(heard.items) % _BREATH == 0:
            await asyncio.sleep(0)
        if len(heard.items) >= _MOST:
            return
