"""One model call as those who listen see it: begun, current inside the author's code, ended exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, TypeVar

import msgspec

from isthmus.adapters.adjust import is_one
from isthmus.adapters.views import from_response
from isthmus.errors import TierError, UnclassifiedError
from isthmus.models.aside import Aside
from isthmus.models.batches import Batches
from isthmus.models.contract import GenerateContext
from isthmus.models.events import EVENT_TYPES, Finish, Native, StepResult, Text, Usage
from isthmus.models.fold import Fold, close, iterate
from isthmus.models.normalise import righted, to_event, to_finish
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.watchdog import CLOSED, Interruption
from isthmus.observability import hooks
from isthmus.observability.scope import Operation, contents_wanted, current, under
from isthmus.secret import clean_url

_EMPTY = GenerateContext()
_T = TypeVar("_T")


def names_of(adapter: Any, name: str) -> tuple[str, str]:
    """The provider and the model of an adapter, as far as it, or its id, says."""
    provider, mark, model = name.partition(":")
    own = getattr(adapter, "model", None)
    if isinstance(own, str) and own:
        said = getattr(adapter, "provider", None)
        return str(said) if said else provider if mark else "", own
    return (provider, model) if mark else ("", name)


def observed(source: Any, adapter: Any, *, ctx: GenerateContext) -> Any:
    """The same events, as a model call that listeners are told of.

    Args:
        source: the author's own iterator; each step of it is taken inside the call.
        adapter: whose it is.
        ctx: the request.
    """
    op = _new(adapter)
    if op is None:
        return source
    heard = _Heard(op, adapter, ctx)
    if type(source) is Batches:
        return Batches(_steps(source.batches, heard, look=heard.seen_all))
    return _steps(source, heard)


def observed_face(source: AsyncGenerator[Any, None], adapter: Any, *, ctx: GenerateContext) -> Any:
    """The same `ModelStreamEvent`s, as a model call that listeners are told of, where a built-in model writes them."""
    op = _new(adapter) if hooks.listening() else None
    if op is None:
        return source
    heard = _Heard(op, adapter, ctx)
    return _steps(source, heard, look=heard.seen_face)


async def asked(answer: Awaitable[StepResult], adapter: Any, *, ctx: GenerateContext) -> StepResult:
    """The same reply, as a model call that listeners are told of.

    Args:
        answer: the author's own, not yet begun.
        adapter: whose it is.
        ctx: the request.
    """
    op = _new(adapter) if hooks.listening() else None
    if op is None:
        return await answer
    heard = _Heard(op, adapter, ctx)
    heard.begin(streamed=False)
    entered = op.enter()
    try:
        reply = heard.reply = await answer
        heard.finish = Finish(reply.finish, reply.usage, reply.raw_reason, reply.error, reply.message)
        return reply
    except BaseException as error:
        heard.error = error
        raise
    finally:
        Operation.leave(entered)
        heard.end()


def _new(adapter: Any) -> Operation | None:
    """A new call; None within one of the same adapter, which reached for its parent's method or its own other one."""
    around = current()
    if around is not None and not around.over and is_one(around.subject, adapter):
        return None
    return Operation(adapter)


def _facts(adapter: Any, ctx: GenerateContext) -> dict[str, Any]:
    """What a stranger's adapter says of itself; a property of it that fails is not the call's failure."""
    try:
        if getattr(type(adapter), "_isthmus_stands", False):
            adapter = adapter.plain
        provider, model = names_of(adapter, str(getattr(adapter, "id", None) or type(adapter).__name__))
        address, own = getattr(adapter, "base_url", None), getattr(adapter, "max_tokens", None)
        heat, effort = getattr(adapter, "temperature", None), getattr(adapter, "effort", None)
    except Exception:
        return {"provider": "", "model": ""}
    ceiling = ctx.max_output_tokens or (own if isinstance(own, int) else None)
    shown = clean_url(address) if isinstance(address, str) else ""
    return {
        "provider": provider,
        "model": model,
        "address": shown,
        "max_tokens": ceiling or None,
        "temperature": heat if isinstance(heat, int | float) else None,
        "effort": effort if isinstance(effort, str) else None,
    }


class _Heard:
    """One call as it proceeds."""

    __slots__ = ("_adapter", "_begun", "_ctx", "_fold", "_seconds", "error", "finish", "first", "op", "reply")

    def __init__(self, op: Operation, adapter: Any, ctx: GenerateContext) -> None:
        self.op = op
        self._adapter, self._ctx = adapter, ctx
        self._begun = 0.0
        self._fold: Fold | None = None
        self._seconds: float | None = None
        self.first: float | None = None
        self.finish: Finish | None = None
        self.reply: StepResult | None = None
        self.error: BaseException | None = None

    def begin(self, *, streamed: bool) -> None:
        """Tell that it begins."""
        above = self.op.parent
        while above is not None:
            above.wraps = True
            above = above.parent
        if streamed and contents_wanted():
            self._fold = Fold()
        self._begun = monotonic()
        self.op.said = self._ctx
        hooks.emit(hooks.ModelStarted(op=self.op, streamed=streamed, **_facts(self._adapter, self._ctx)))
        # What is kept of a call that is read slowly is small.
        self._adapter = None
        self.op.said, self._ctx = None, _EMPTY

    def seen_all(self, events: Sequence[Any]) -> None:
        """Take events that came together: as soon as they came, whenever they are read."""
        if self.first is None or self._fold is not None:
            for event in events:
                self.seen(event)
        elif type(events[-1]) is Finish:
            self.seen(events[-1])

    def seen(self, event: Any) -> None:
        """Take what is no plain text that follows another."""
        known = type(event)
        if known is Text:
            kind, content = "text", event.text
        elif known is Finish:
            kind, content = "finish", None
        else:
            kind, content = _kind(event)
            if known is Aside:
                self._steered(event.event)
        if self.first is None and content:
            self.first = monotonic() - self._begun
        if kind == "finish":
            # What the author still does is not the reply's, but is still done inside it.
            self._seconds = monotonic() - self._begun
            try:
                made = to_event(event)
                self.finish = to_finish(made) if isinstance(made, Finish) else None
            except (TierError, ValueError, TypeError) as error:
                # Whoever reads it will say so, and leave.
                self.error = error
        if self._fold is not None:
            with suppress(TierError, ValueError, TypeError):
                self._fold.add(event if known in EVENT_TYPES else to_event(event))

    def _steered(self, event: Any) -> None:
        """Tell what an event of the model face says of steered input."""
        for receipt in getattr(event, "steering", None) or ():
            hooks.emit(hooks.ModelSteered(op=self.op, status=receipt.status))

    def seen_face(self, event: ModelStreamEvent) -> None:
        """Take an event of the model face."""
        self._steered(event)
        if self.first is None and (event.text or event.arguments_delta is not None):
            self.first = monotonic() - self._begun
        response = event.response
        if response is not None and event.continuation is None:
            self._seconds = monotonic() - self._begun
            self._fold, reply = None, from_response(response)
            self.reply = reply
            self.finish = Finish(reply.finish, reply.usage, reply.raw_reason, reply.error, reply.message)
            self.op.reply = (response.id, None)

    @property
    def collects(self) -> bool:
        """Whether every event is asked for."""
        return self._fold is not None

    def end(self) -> None:
        """Tell that it is over; once."""
        if self.op.over:
            return
        self.op.over = True
        outcome, error, end = self._outcome()
        if isinstance(error, TierError):
            righted(error)
        usage = _told(error, "usage", Usage) if end is None else end.usage
        self.op.error, self.op.answer = error, self._answer()
        reply_id, reply_model = self.op.reply
        if reply_id is None and end is not None and end.native is not None and end.native.event_type == "message":
            reply_id, reply_model = _identity(end.native)
        hooks.emit(
            hooks.ModelEnded(
                op=self.op,
                outcome=outcome,
                seconds=monotonic() - self._begun if self._seconds is None else self._seconds,
                first=self.first,
                finish=None if end is None else str(end.finish),
                raw_reason=None if end is None else end.raw_reason,
                usage=usage if isinstance(usage, Usage) else None,
                error_class=None if error is None else hooks.error_type(error),
                status=_told(error, "status", int),
                reply_id=reply_id,
                reply_model=reply_model,
            )
        )
        # An error holds the frames that hold this.
        self.op.forget()
        self.error = self.reply = None

    def _answer(self) -> StepResult | None:
        """The reply as far as it came, if anybody wants it."""
        if not contents_wanted() or self._fold is None:
            return self.reply if contents_wanted() else None
        try:
            return self._fold.failed(UnclassifiedError("")) if self._fold.finish is None else self._fold.result()
        except (TierError, ValueError, TypeError):
            return None

    def _outcome(self) -> tuple[str, BaseException | None, Finish | None]:
        end, error = self.finish, self.error
        if end is not None:
            return ("ok", None, end) if end.error is None else ("error", end.error, end)
        if isinstance(error, asyncio.CancelledError):
            why = error.args[0] if error.args else None
            if isinstance(why, Interruption) and why != CLOSED:
                return "error", TimeoutError(str(why)), None
            return "closed" if isinstance(why, Interruption) else "cancelled", None, None
        if error is None or isinstance(error, GeneratorExit):
            return "closed", None, None
        return "error", error, None


def _told(error: BaseException | None, name: str, kind: type[_T]) -> _T | None:
    """What a failure says of itself; that of a stranger may say anything, or fail at it."""
    try:
        value = getattr(error, name, None)
    except Exception:
        return None
    return value if isinstance(value, kind) else None


def _kind(event: Any) -> tuple[Any, Any]:
    """What an event in any form is, and whether it holds content."""
    said = event.get if isinstance(event, Mapping) else partial(getattr, event)
    kind = said("type", None)
    return kind, kind == "call" or (kind == "text" and said("text", None))


def _identity(native: Native) -> tuple[str | None, str | None]:
    """The id and the model that a reply's own form names."""
    try:
        payload = native.payload
    except (ValueError, RecursionError):
        return None, None
    return _texts(payload) if isinstance(payload, dict) else (None, None)


def _texts(held: Mapping[str, Any]) -> tuple[str | None, str | None]:
    found = held.get("id"), held.get("model")
    return found[0] if isinstance(found[0], str) else None, found[1] if isinstance(found[1], str) else None


async def _steps(source: Any, heard: _Heard, *, look: Callable[[Any], None] | None = None) -> AsyncGenerator[Any, None]:
    """The same events, or batches of them, each taken inside the call and looked at."""
    op = heard.op
    enter, leave = op.enter, Operation.leave
    heard.begin(streamed=True)
    look = look or heard.seen
    plain = False
    try:
        inner: Any = source
        if not hasattr(source, "__anext__"):
            with under(op):
                inner = iterate(source)
        take = inner.__anext__
        try:
            while True:
                entered = enter()
                try:
                    event = await take()
                except StopAsyncIteration:
                    break
                finally:
                    leave(entered)
                if not plain or type(event) is not Text:
                    look(event)
                    plain = heard.first is not None and not heard.collects
                yield event
        finally:
            # A generator that has come to its end has nothing left to do.
            if getattr(inner, "ag_frame", inner) is not None:
                with under(op):
                    await close(inner)
    except BaseException as error:
        heard.error = heard.error or error
        raise
    finally:
        heard.end()


class _Names(msgspec.Struct):
    """What the first frame of a reply says of it, in any of the forms in use."""

    id: Any = None
    model: Any = None
    message: Any = None
    response: Any = None


def told(data: bytes) -> bool:
    """Take the id and the model of a reply out of one of its frames, for the call that is under way; whether it can."""
    op = current()
    if op is None:
        return True
    try:
        names = msgspec.json.decode(data, type=_Names)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return False
    inner = names.message if isinstance(names.message, dict) else names.response
    op.reply = _texts(inner if isinstance(inner, dict) else {"id": names.id, "model": names.model})
    return op.reply != (None, None)
