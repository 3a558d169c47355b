"""What an adapter adds to the span of its call; nothing happens where telemetry is off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Protocol

from isthmus.observability import contents
from isthmus.observability.contents import View
from isthmus.observability.scope import Captured, again, capture, carrier


class Backend(Protocol):
    """A sink that takes attributes for the current span."""

    def enrich(self, attributes: Mapping[str, Any]) -> None:
        """Set attributes of the current span."""
        ...


_backends: tuple[Backend, ...] = ()
_view = View()


def use(backends: Iterable[Backend], view: View) -> None:
    """Take attributes to these from now on."""
    global _backends, _view
    _backends, _view = tuple(backends), view


def set_attributes(**attributes: Any) -> None:
    """Set attributes of the current span: inside an adapter that of its model call.

    Args:
        attributes: by name; a text, a number, a truth value or a list of these, anything else as its text, of which
            4000 characters are kept. What is named like a key is hidden; what would hold contents is left out unless
            these are captured.
    """
    if _backends:
        _set(attributes)


def _set(attributes: Mapping[str, Any]) -> None:
    sent: dict[str, Any] = {}
    for name, value in attributes.items():
        # One that cannot say what it is is left out.
        with suppress(Exception):
            sent.update(_view.sent({name: value}))
    for backend in _backends:
        with suppress(Exception):
            backend.enrich(sent)


def add_completion(text: str) -> None:
    """Set the text of the reply on the current span, if contents are captured."""
    if _backends and _view.capture:
        with suppress(Exception):
            _set({"gen_ai.output.messages": contents.spoken(str(text), _view)})


def add_prompt(messages: Any, system: str = "") -> None:
    """Set the messages of the request on the current span, if contents are captured.

    Args:
        messages: a text, or messages with `role` and `content`.
        system: the instructions.
    """
    if not (_backends and _view.capture):
        return
    # What an adapter hands over may be anything, and its call goes on.
    with suppress(Exception):
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        named = [each for each in given if isinstance(each, Mapping)]
        _set({"gen_ai.input.messages": contents.messages(named, _view)})
    with suppress(Exception):
        if system:
            _set({"gen_ai.system_instructions": contents.instructions(str(system), _view)})


def capture_content() -> bool:
    """Whether prompts, replies, arguments and results may leave."""
    return bool(_backends) and _view.capture


class _Nothing:
    """Stands for a span where there is none: each method takes anything and does nothing."""

    def is_recording(self) -> bool:
        """Never."""
        return False

    def __getattr__(self, name: str) -> Any:
        return _nothing

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *why: Any) -> None:
        return None


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None


NOTHING = _Nothing()


def current_span() -> Any:
    """The current OpenTelemetry span; where there is none, an object whose methods do nothing."""
    span = getattr(carrier(), "span", None)
    return NOTHING if span is None else span()


def record_exception(span: Any, error: BaseException) -> None:
    """Mark a span as failed, by the class of the failure; by its words too if contents are captured."""
    failed = getattr(carrier(), "failed", None)
    if failed is not None and span is not NOTHING:
        with suppress(Exception):
            failed(span, error)


def capture_context() -> Any:
    """What is current here, to be made current elsewhere with `reattach`; None where telemetry is off."""
    return capture() if _backends else None


def reattach(context: Any) -> AbstractContextManager[None]:
    """A block, e.g. in a thread of one's own, in which what was captured is current.

    Args:
        context: from `capture_context`.
    """
    return again(context) if isinstance(context, Captured) else nullcontext()
