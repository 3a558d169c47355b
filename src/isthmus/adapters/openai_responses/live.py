"""One run over one connection: what is sent, what the provider has by then, and what is steered into its responses.

A connection that failed, or whose reply nobody read to its end, is not made anew, and nothing is sent a second time:
what the provider did with it is not known.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from isthmus.adapters.bodies import too_large
from isthmus.adapters.openai_responses.errors import failure_of
from isthmus.adapters.openai_responses.history import render
from isthmus.adapters.openai_responses.reading import Reading
from isthmus.adapters.openai_responses.receipts import Receipts
from isthmus.adapters.openai_responses.sdk import Socket
from isthmus.errors import InvalidRequestError, ProtocolError, TierError, TransientError
from isthmus.models.events import StepResult
from isthmus.models.jsontext import loads
from isthmus.models.messages import sendable
from isthmus.models.responses import ModelStreamEvent
from isthmus.models.steering import SteeringInput, SteeringReceipt
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

_CREATED, _STEER, _ERROR = "response.created", "response.steer.", "error"
_OVER = "the run over this connection is over"
# A failed one may end without having begun.
_FAILED = "response.failed"
_ENDS = frozenset(("response.completed", "response.incomplete", "response.cancelled", _FAILED))

Joined: TypeAlias = tuple[list[SteeringReceipt], list[dict[str, Any]]]


class _Kind(msgspec.Struct):
    type: str = ""


class _Named(msgspec.Struct):
    id: str | None = None


class _End(msgspec.Struct):
    response: _Named


_kind = msgspec.json.Decoder(_Kind).decode
_end = msgspec.json.Decoder(_End).decode


class LiveRun:
    """What one run has on its connection.

    Args:
        socket: the connection.
        limit: the most bytes that one reply may have.
        count: told each reply as soon as it has ended, once.
    """

    def __init__(self, socket: Socket, *, limit: int, count: Callable[[StepResult], None]) -> None:
        self._socket, self._limit, self._count = socket, limit, count
        self._sending = asyncio.Lock()
        self._receipts = Receipts()
        # What the provider has of the history, and what is on its way there.
        self._items: list[Any] = []
        self._new: list[Any] = []
        # The response that ended last, the one that the request continues, and the one under way.
        self._last: str | None = None
        self._continued: str | None = None
        self._active: str | None = None
        # The first message of a response that the provider began by itself, until somebody reads that response.
        self._successor: Frame | None = None
        self._asynchronous: frozenset[str] = frozenset()
        self._busy = False
        self._gone = ""
        self._unknown: list[SteeringReceipt] = []

    async def turn(self, arguments: Mapping[str, Any], reading: Reading) -> AsyncGenerator[ModelStreamEvent, None]:
        """One response: asked for, or the one that the provider began by itself; its last event is "completed".

        Args:
            arguments: the whole request, by the SDK's names.
            reading: takes the response's frames.

        Raises:
            RuntimeError: the run is over, or another reply of it is being read.
            InvalidRequestError: the history was replaced while steering forbids it; nothing was sent.
            ResponseError: the response failed, or was not the one that should have come.
            TransientError: the connection was lost before.
        """
        if self._gone or self._busy:
            raise self._unusable()
        request = self._request(arguments)
        if request is not None:
            self._asynchronous = reading.asynchronous
        reading.asynchronous = self._asynchronous
        self._busy, whole = True, False
        try:
            if request is not None:
                async with self._sending:
                    await self._socket.create(request)
            async for event in self._events(reading):
                whole = event.kind == "completed"
                yield event
        finally:
            self._busy = False
            if self._refused(reading):
                self._items, self._last = [], None
            elif not whole:
                await self.lose("it was lost, or a reply on it was not read to its end")

    def _unusable(self) -> Exception:
        if not self._gone:
            return RuntimeError("another reply of this run is being read: one at a time")
        if self._gone == _OVER:
            return RuntimeError(f"{_OVER}: open another one")
        return TransientError(f"the connection is closed: {self._gone}; it is not made anew within a run")

    def _refused(self, reading: Reading) -> bool:
        """Whether the provider refused a request before anything came of it."""
        begun = self._active is not None or reading.done or self._receipts.open
        return not begun and not self._gone and reading.decoder.event_type == _ERROR

    def _request(self, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
        """What to send of a request: all of it, what is new in it, or nothing where the provider went on by itself.

        Raises:
            InvalidRequestError: the history was replaced while steering forbids it.
        """
        items, known = list(arguments["input"]), len(self._items)
        continues = self._last is not None and items[:known] == self._items
        if self._successor is not None:
            if not continues or len(items) != known:
                raise InvalidRequestError(
                    "the provider goes on by itself with steered input: call it with the history as it stands, the "
                    "messages of the last event in it, neither changed nor longer"
                )
            return None
        if not continues:
            if self._receipts.open:
                raise InvalidRequestError("the history was replaced while steered input waits: leave it as it was")
            self._items, self._new, self._continued = [], items, None
            return dict(arguments)
        new = items[known:]
        given = {item.get("call_id") for item in new if isinstance(item, dict)}
        missing = [call_id for call_id in self._receipts.required if call_id not in given]
        if missing:
            raise InvalidRequestError(f"steered input waits for the output of {', '.join(missing)}: give it now")
        self._new, self._continued = new, self._last
        return {**arguments, "input": new, "previous_response_id": self._last}

    async def steer(self, steering: SteeringInput) -> SteeringReceipt:
        """Send input into the response under way, once.

        Raises:
            RuntimeError: there is none.
            Exception: sending failed: the connection is closed, and the receipt says "unknown".
        """
        async with self._sending:
            if self._active is None:
                raise RuntimeError("There is no active native response to steer.")
            receipt, sent = self._receipts.submit(steering, self._active), False
            try:
                await self._socket.steer(steering, self._active)
                sent = True
            finally:
                if not sent:
                    await self.lose("steered input may or may not have been delivered")
        return receipt

    async def _events(self, reading: Reading) -> AsyncGenerator[ModelStreamEvent, None]:
        try:
            async for event in self._streamed(reading):
                yield event
            step = self._ended(reading)
            joined: Joined | None = None
            while joined is None and self._receipts.open and not self._receipts.waiting:
                frame = await self._next()
                if frame.event == _CREATED:
                    joined, self._successor = self._succeeded(frame), frame
                else:
                    yield self._aside(frame)
        except TierError as error:
            raise reading.failure(error) from error.__cause__
        waiting = self._receipts.waiting
        event = reading.completed(step, succeeded=joined is not None or waiting)
        if joined is not None:
            event.continuation, (event.steering, event.input_messages) = "automatic", joined
        elif waiting:
            event.continuation, event.required_tool_call_ids = "explicit", self._receipts.required
        yield event

    async def _streamed(self, reading: Reading) -> AsyncGenerator[ModelStreamEvent, None]:
        """The events of a response up to its own end."""
        size = 0
        while not reading.done:
            frame = await self._next()
            size += len(frame.data)
            if size > self._limit:
                raise too_large(self._limit)
            if frame.event.startswith(_STEER) or self._of_another(frame):
                yield self._aside(frame)
                continue
            joined = self._begun(frame, self._continued) if frame.event == _CREATED else None
            for event in reading.feed(frame):
                if joined is not None and joined[0]:
                    event.steering, event.input_messages = joined
                yield event

    def _of_another(self, frame: Frame) -> bool:
        """Whether a message is about no response that is under way: what is told again of an earlier one.

        Raises:
            ProtocolError: it is about a response that is not the one asked for.
        """
        if frame.event not in _ENDS:
            return self._active is None and frame.event.startswith("response.") and frame.event != _CREATED
        try:
            response_id = _end(frame.data).response.id
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        if response_id is None or response_id == self._active or (self._active is None and frame.event == _FAILED):
            return False
        if response_id != self._last:
            way = "none" if self._active is None else repr(self._active)
            raise ProtocolError(f"{frame.event}: response {response_id!r} came where {way} is under way")
        return True

    def _ended(self, reading: Reading) -> StepResult:
        """The reply of the response that has ended; what it said is part of the history."""
        step = reading.close(Ended.FRAMED)
        self._last, self._active = self._active, None
        self._items = self._items + ([] if step.message is None else loads(step.message.json))
        self._count(step)
        return step

    def _succeeded(self, frame: Frame) -> Joined:
        joined = self._begun(frame, self._last)
        if joined is None or not joined[0]:
            raise ProtocolError("a successor came though nothing that was steered had been accepted")
        return joined

    def _begun(self, frame: Frame, after: str | None) -> Joined | None:
        """A response has begun: what it has beside what was asked for; None of the one that is under way.

        Args:
            frame: its first message.
            after: the response that it goes on from.

        Raises:
            ProtocolError: it is not the one that should have come.
        """
        response = loads(frame.data).get("response")
        said = response if isinstance(response, dict) else {}
        response_id, before = said.get("id"), said.get("previous_response_id")
        if response_id == self._active and response_id is not None:
            return None
        wrong = response_id == self._last or (before != after and (before is not None or self._receipts.open))
        if self._active is not None or not isinstance(response_id, str) or wrong:
            raise ProtocolError(f"response {response_id!r} after {before!r} came where one after {after!r} should")
        receipts, messages = self._receipts.apply(response_id)
        self._items = [*self._items, *loads(sendable(render(messages, stateless=False)[0])), *self._new]
        self._active, self._continued, self._new = response_id, None, []
        return receipts, messages

    async def _next(self) -> Frame:
        """The next message, with its type as its name.

        Raises:
            TransientError: the connection was lost.
        """
        frame, self._successor = self._successor, None
        if frame is not None:
            return frame
        data = b"" if self._gone else await self._socket.receive()
        if self._gone:
            # What still came after that is nobody's.
            raise TransientError(f"the connection was closed: {self._gone}")
        try:
            return Frame(data, _kind(data).type)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return Frame(data)

    def _aside(self, frame: Frame) -> ModelStreamEvent:
        """A message that is no part of a response's content.

        Raises:
            TierError: it is an error, or about an input that nobody sent.
        """
        if not frame.event:
            raise ProtocolError(f"a message that is no event: {frame.data[:200].decode('utf-8', 'replace')!r}")
        event = loads(frame.data)
        if frame.event == _ERROR:
            raise failure_of({name: value for name, value in event.items() if name != "type"})
        shown = ModelStreamEvent(kind="provider", raw=frame, provider_event_type=frame.event or None)
        if frame.event.startswith(_STEER):
            shown.steering = self._receipts.take(frame.event, event)
        return shown

    async def lose(self, why: str) -> None:
        """Close the connection for good; the outcome of what is still under way is unknown from now on."""
        self._gone = self._gone or why
        self._active = self._successor = None
        self._unknown += self._receipts.lose()
        await self._socket.aclose()

    def unknown(self) -> list[SteeringReceipt]:
        """Copies of the receipts whose outcome nobody will say; each once."""
        told, self._unknown = self._unknown, []
        return told

    async def aclose(self) -> None:
        """End the run."""
        await self.lose(_OVER)
