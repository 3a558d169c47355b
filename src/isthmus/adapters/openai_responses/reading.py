"""One reply as the model face shows it while it is decoded, whichever way its frames come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from isthmus.adapters.observed import told
from isthmus.adapters.openai_responses.decode import ResponsesDecoder
from isthmus.adapters.openai_responses.sdk import hidden
from isthmus.adapters.views import to_model_event, to_response
from isthmus.errors import ProtocolError, ResponseError, TierError
from isthmus.models.events import Call, CallDelta, Event, FinishReason, Note, Reasoning, StepResult, Text
from isthmus.models.fold import Fold
from isthmus.models.jsontext import dumps, loads
from isthmus.models.responses import ModelResponse, ModelStreamEvent, ToolCall, ToolCallFunction
from isthmus.secret import redact
from isthmus.wire.call import Ended
from isthmus.wire.frame import Frame

NATIVE = "openai_response"
"""The extra of a `ModelResponse` that holds the provider's own response."""

_STEERED = "steered"
# Frames that are asked for the id and the model of the reply: the first one of the response tells both.
_MOST_ASKED = 4
_SHOWN = (Text, CallDelta, Reasoning)
_TAKEN_OVER = ("status", "code", "retry_after", "usage", "partial", "body")


class Reading:
    """One reply while it is read.

    Args:
        decoder: a fresh one.
        model: the model's id.
        secret: the key, which no error shows.
        notes: what making the request changed.
        asynchronous: the names, as the model knows them, of the functions that may run while the reply goes on.
    """

    def __init__(
        self,
        decoder: ResponsesDecoder,
        *,
        model: str,
        secret: str,
        notes: tuple[Note, ...] = (),
        asynchronous: frozenset[str] = frozenset(),
    ) -> None:
        self.decoder = decoder
        self.fold = Fold()
        self.asynchronous = asynchronous
        self._model, self._secret, self._notes = model, secret, notes
        self._told = 0
        self._asked = 0

    @property
    def done(self) -> bool:
        """Whether the response has ended."""
        return self.decoder.done

    def feed(self, frame: Frame) -> list[ModelStreamEvent]:
        """What a frame of a stream shows: its text, arguments or reasoning, else that it came; once it is `done`, less.

        Raises:
            TierError: the reply failed; see `failure`.
        """
        decoder = self.decoder
        if self._asked < _MOST_ASKED:
            self._asked = _MOST_ASKED if told(frame.data) else self._asked + 1
        events = list(decoder.feed(frame))
        self.fold.extend(events)
        shown = _shown(events, frame, decoder)
        if len(decoder.running) > self._told:
            self._add_running(shown, frame)
        return shown

    def _add_running(self, shown: list[ModelStreamEvent], frame: Frame) -> None:
        """Show the calls that are whole and may run at once."""
        for call, item in self.decoder.running[self._told :]:
            self._check(item)
            event = shown[-1] if shown and shown[-1].kind == "provider" else None
            if event is None or event.async_tool_call is not None:
                event = ModelStreamEvent(
                    kind="provider", raw=frame, provider_event_type=self.decoder.event_type, item_type="function_call"
                )
                shown.append(event)
            event.async_tool_call = _tool_call(call)
        self._told = len(self.decoder.running)

    def _check(self, item: Mapping[str, Any]) -> None:
        name, caller = item.get("name"), item.get("caller")
        direct = not isinstance(caller, Mapping) or caller.get("type") == "direct"
        if direct and not item.get("namespace") and name in self.asynchronous:
            return
        self.decoder.response = dumps(item)
        why = (
            "was not declared so: name it in async_tools" if direct else "comes from a program, which nobody here runs"
        )
        why = f"is in the namespace {item['namespace']!r}, which nobody here runs" if item.get("namespace") else why
        raise ProtocolError(f"the asynchronous call of {name!r} {why}")

    def close(self, ended: Ended) -> StepResult:
        """The whole reply.

        Raises:
            TierError: the bytes ended before the reply did.
        """
        self.fold.extend(self.decoder.close(ended))
        step = self.fold.result()
        return msgspec.structs.replace(step, notes=(*self._notes, *step.notes)) if self._notes else step

    def completed(self, step: StepResult, *, succeeded: bool = False) -> ModelStreamEvent:
        """The last event, with the whole reply.

        Args:
            step: the reply.
            succeeded: whether the provider itself goes on where it stopped.

        Raises:
            ResponseError: it is no answer: cut for a reason of the provider's own, or waiting for its caller.
        """
        native, waiting = self.native(), self.decoder.waiting
        cut_for_steering = step.raw_reason == _STEERED and not succeeded
        if waiting or cut_for_steering or (step.finish == FinishReason.OTHER and step.raw_reason != _STEERED):
            kinds = ", ".join(dict.fromkeys(waiting))
            what = f"waits for its caller: nothing here answers {kinds}" if kinds else f"ended as {step.raw_reason!r}"
            failure = response_error(f"the response {what}", native)
            failure.partial, failure.usage = step, step.usage
            raise failure
        end = self.fold.finish
        return ModelStreamEvent(
            kind="completed",
            response=shaped(step, native, model=self._model),
            raw=None if end is None else end.raw,
            provider_event_type=self.decoder.event_type or None,
        )

    def failure(self, error: TierError) -> ResponseError:
        """The error of a reply that failed, with what had arrived and the provider's own word; it shows no key."""
        error.usage = error.usage or self.decoder.usage
        error.partial = self.fold.failed(error)
        error.body = redact(error.body, [self._secret]) if error.body else None
        said = redact(error.message, [self._secret])
        return response_error(said, hidden(self.native(), self._secret), of=error)

    def native(self) -> Any:
        """The provider's own response, or the event that says why there is none; None where nothing came."""
        said = self.decoder.response
        try:
            return loads(said) if said else None
        except (ValueError, RecursionError):
            return said.decode("utf-8", "replace")


def shaped(step: StepResult, native: Any, *, model: str) -> ModelResponse:
    """The reply in its canonical shape, the native response beside it."""
    response = to_response(step, model)
    if isinstance(native, dict):
        if step.message is not None and not native.get("output"):
            # Some servers end a stream with a response that leaves its output out.
            native["output"] = loads(step.message.json)
        response.model_extra[NATIVE] = native
        response.id = native["id"] if isinstance(native.get("id"), str) else response.id
        response.model = native["model"] if isinstance(native.get("model"), str) else response.model
    return response


def _shown(events: Iterable[Event], frame: Frame, decoder: ResponsesDecoder) -> list[ModelStreamEvent]:
    at, kind = decoder.item
    found = [shown for event in events if isinstance(event, _SHOWN) and (shown := to_model_event(event)) is not None]
    if not found and decoder.done:
        return []
    found = found or [ModelStreamEvent(kind="provider", raw=frame)]
    for shown in found:
        shown.provider_event_type = decoder.event_type or None
        shown.item_index, shown.item_type = at, kind
    return found


def _tool_call(call: Call) -> ToolCall:
    text = call.arguments or dumps(call.input or {}).decode()
    return ToolCall(id=call.call_id or "", function=ToolCallFunction(call.tool, text))


def response_error(message: str, response: Any, *, of: TierError | None = None) -> ResponseError:
    """The error of a reply that is no answer.

    Args:
        message: what went wrong.
        response: the native response, or the event that said so, as plain JSON values; None where nothing came.
        of: the classified failure: its class, status, code and the rest are taken over.
    """
    held = {} if of is None else {name: getattr(of, name) for name in _TAKEN_OVER}
    made = ResponseError(message, **held)
    if of is not None:
        made.error_class = of.error_class
    made.response = response
    if isinstance(response, dict):
        made.error = response.get("error") or (response if response.get("type") == "error" else None)
    return made
