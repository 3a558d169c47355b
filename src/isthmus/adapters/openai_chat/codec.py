"""The Chat Completions codec; servers that differ are told apart by its arguments."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import Any

from isthmus.adapters.classify import classify_reply
from isthmus.adapters.codec import Request
from isthmus.adapters.openai_chat.decode import ChatDecoder
from isthmus.adapters.openai_chat.encode import request_body
from isthmus.adapters.openai_chat.history import SCHEMAS
from isthmus.adapters.openai_chat.reply import DIALECT
from isthmus.adapters.openai_chat.server import OPENAI, ChatServer
from isthmus.errors import TierError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext
from isthmus.models.declare import SentNames
from isthmus.models.messages import sendable
from isthmus.wire.call import WireCall, WireReply


class ChatCodec:
    """Says contexts in Chat Completions, and reads its replies.

    Source: the API reference of Chat Completions and 541 recorded replies of its servers, 2024-2026.

    Args:
        model: the model's id, sent as it is.
        server: whose habits to follow.
        base_url: where it is, as far as that decides the path; not kept.
    """

    dialect = DIALECT

    def __init__(self, model: str, *, server: ChatServer = OPENAI, base_url: str = "") -> None:
        self.model = model
        self._server = server
        self._path = server.route(model, base_url, stream=False)
        self._names = SentNames(SCHEMAS)

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; the context is never changed.

        Args:
            ctx: what to ask; without a ceiling 8192 tokens are sent.
            stream: whether to ask for a stream.
            capabilities: what the model can do; None leaves it to what is known of its family.

        Raises:
            InvalidRequestError: a message or the tool choice has no form here; names it.
        """
        if ctx.tools:
            self._names.learn(ctx.tools)
        body, notes = request_body(
            ctx,
            self._server,
            model=self.model,
            stream=stream,
            capabilities=capabilities or self._server.capabilities(self.model),
        )
        return Request(WireCall(path=self._path, body=sendable(body, nulls=_silent), stream=stream), tuple(notes))

    def decoder(self, *, whole: bool) -> ChatDecoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return ChatDecoder(whole=whole, names=self._names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify_reply(reply)


_content = methodcaller("get", "content", "")


def _silent(body: Mapping[str, Any]) -> int:
    """How many messages say nothing, as those do that only call tools."""
    try:
        return [*map(_content, body["messages"])].count(None)
    except (AttributeError, TypeError):
        # A native form is no dict, and an option may have put anything there.
        return 0
