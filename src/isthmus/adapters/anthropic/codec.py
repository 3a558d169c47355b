"""The Messages dialect at its own endpoint: path, headers, model and stream around the body."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.adapters.anthropic.decode import MessagesDecoder
from isthmus.adapters.anthropic.encode import Defaults, build_body
from isthmus.adapters.anthropic.names import wire_name
from isthmus.adapters.anthropic.reply import DIALECT
from isthmus.adapters.classify import classify_reply
from isthmus.adapters.codec import Request
from isthmus.errors import TierError
from isthmus.models.contract import GenerateContext
from isthmus.models.messages import sendable
from isthmus.wire.call import WireCall, WireReply

VERSION = "2023-06-01"


class MessagesCodec:
    """Says a context as a request to `/v1/messages` and reads its replies.

    Args:
        model: the model's id.
        defaults: what stands where a context says nothing.
        betas: beta features to ask for, e.g. "files-api-2025-04-14".
    """

    dialect = DIALECT

    def __init__(self, model: str, defaults: Defaults | None = None, *, betas: Sequence[str] = ()) -> None:
        self.model = model
        self._defaults = defaults or Defaults()
        self._headers = {"anthropic-version": VERSION}
        if betas:
            self._headers["anthropic-beta"] = ",".join(betas)
        # The inverse of `wire_name` for the names met so far: the same for every call, so calls may share it.
        self._names: dict[str, str] = {}

    def encode(self, ctx: GenerateContext, *, stream: bool) -> Request:
        """The request for a context; equal contexts give equal bytes.

        Raises:
            InvalidRequestError: something in it cannot be said to this API; names it.
        """
        for spec in ctx.tools:
            sent = wire_name(spec.name)
            if sent != spec.name:
                self._names[sent] = spec.name
        body, notes = build_body(ctx, self._defaults)
        whole = {"model": self.model, **body, "stream": stream} if stream else {"model": self.model, **body}
        call = WireCall(path="/v1/messages", body=sendable(whole), stream=stream, headers=self._headers)
        return Request(call, notes)

    def decoder(self, *, whole: bool) -> MessagesDecoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return MessagesDecoder(whole=whole, names=self._names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify_reply(reply)
