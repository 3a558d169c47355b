"""The codec of the Responses API."""

from __future__ import annotations

from isthmus.adapters.classify import classify_reply
from isthmus.adapters.codec import Request
from isthmus.adapters.openai_responses.decode import ResponsesDecoder
from isthmus.adapters.openai_responses.encode import request_body
from isthmus.adapters.openai_responses.tools import SCHEMAS
from isthmus.errors import TierError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import DEFAULT_CEILING, GenerateContext
from isthmus.models.declare import SentNames
from isthmus.models.messages import sendable
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.wire.call import WireCall, WireReply


class ResponsesCodec:
    """Says contexts in the Responses API, and reads its replies.

    Source: the API reference of Responses and 260 recorded replies of its servers, 2025-2026.

    Args:
        model: the model's id, sent as it is.
    """

    dialect = NATIVE_DIALECT

    def __init__(self, model: str) -> None:
        self.model = model
        self.names = SentNames(SCHEMAS)

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; the context is never changed.

        Args:
            ctx: what to ask; without a ceiling 8192 tokens are sent.
            stream: whether events are asked for.
            capabilities: what the model can do; None where nothing is known.

        Raises:
            InvalidRequestError: a message, a tool or the tool choice has no form here; names it.
        """
        body, notes = request_body(ctx, model=self.model, ceiling=DEFAULT_CEILING, capabilities=capabilities)
        self.names.learn(ctx.tools)
        asked = {**body, "stream": True} if stream else body
        return Request(WireCall(path="/responses", body=sendable(asked), stream=stream), tuple(notes))

    def decoder(self, *, whole: bool) -> ResponsesDecoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return ResponsesDecoder(whole=whole, names=self.names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify_reply(reply)
