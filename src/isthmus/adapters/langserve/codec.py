"""The LangServe codec: an adapter's two hooks, and what stands around them."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from isthmus.adapters.adjust import adjusted, note_left_out
from isthmus.adapters.classify import classify_reply
from isthmus.adapters.codec import Request
from isthmus.adapters.langserve.decode import LangServeDecoder, Parse
from isthmus.adapters.langserve.payload import DIALECT, Asked
from isthmus.adapters.render import Turns, chat_messages, tool_dicts
from isthmus.errors import AdapterError, TierError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext
from isthmus.models.events import Note
from isthmus.models.messages import sendable
from isthmus.models.options import put_options
from isthmus.wire.call import WireCall, WireReply


class Hooks(Protocol):
    """What the codec asks of an adapter."""

    streams: bool
    """Whether `/stream_events` is to be asked at all."""

    def own_reading(self) -> Parse | None:
        """`_parse_output` where a subclass wrote one."""
        ...

    def make_tool_turn(self, response: Any, results: Sequence[tuple[Any, str]]) -> list[dict[str, Any]]:
        """The turns of a tool round."""
        ...


class LangServeCodec:
    """Says contexts as a runnable's input, and reads its output.

    Args:
        hooks: the adapter whose `_build_payload` and `_parse_output` shape request and reply.
    """

    dialect = DIALECT

    def __init__(self, hooks: Any) -> None:
        self._hooks = hooks

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; the context is never changed.

        Args:
            ctx: what to ask.
            stream: whether to ask for a stream.
            capabilities: not used: the hooks ask the adapter.

        Raises:
            InvalidRequestError: a message has no form here, or a setting that must not be left out has no place.
            AdapterError: a hook does not return what it must.
        """
        notes: list[Note] = []
        note_left_out(replace(ctx, options={}), notes)
        make = self._hooks.make_tool_turn
        turns = Turns(None if hasattr(make, "_isthmus_default") else make, DIALECT)
        messages = _now(chat_messages(ctx, turns, notes=notes))
        # The hooks read brief, ceiling and effort from the adapter: those of this request, on a copy.
        target = adjusted(self._hooks, ctx, notes=[], alone=False)
        tools = tool_dicts(() if ctx.tool_choice == "none" else ctx.tools)
        payload = target._build_payload(Asked(messages, ctx, notes=notes), tools)
        if not isinstance(payload, Mapping):
            raise AdapterError(f"{type(target).__name__}._build_payload must return a dict, not {payload!r:.80}")
        streamed = stream and self._hooks.streams
        body = dict(payload)
        put_options(ctx, body, notes=notes, merged=body)
        path = "/stream_events" if streamed else "/invoke"
        return Request(WireCall(path=path, body=sendable(body), stream=streamed), tuple(dict.fromkeys(notes)))

    def decoder(self, *, whole: bool) -> LangServeDecoder:
        """A fresh decoder: for the body of `/invoke` (one frame), or for the events of `/stream_events`."""
        return LangServeDecoder(whole=whole, parse=self._hooks.own_reading())

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify_reply(reply)


def _now(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing: a codec does no I/O, and neither may an author's turns."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    work.close()
    raise AdapterError("make_tool_turn of this adapter must not wait for anything: write it as a plain method")
