"""The Chat Completions codec; servers that differ are told apart by its arguments."""

from __future__ import annotations

from dataclasses import replace

from isthmus.adapters.classify import classify_reply
from isthmus.adapters.codec import Request
from isthmus.adapters.openai_chat.decode import ChatDecoder
from isthmus.adapters.openai_chat.encode import DEFAULT_CEILING, SCHEMAS, request_body
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
        max_tokens: the output ceiling where the context has none; 0 or None means 8192.
        system: the brief where the context has none.
        effort: reasoning effort where the context has none; "off" sends what turns it off, where a model needs that.
        temperature: sampling temperature where the context has none.
        server: whose habits to follow.
        base_url: where it is, as far as that decides the path; not kept.
    """

    dialect = DIALECT

    def __init__(
        self,
        model: str,
        *,
        max_tokens: int | None = None,
        system: str = "",
        effort: str | None = None,
        temperature: float | None = None,
        server: ChatServer = OPENAI,
        base_url: str = "",
    ) -> None:
        self.model = model
        self._ceiling = max_tokens or DEFAULT_CEILING
        self._server = server
        self._path = server.route(model, base_url, stream=False)
        self._system, self._effort, self._temperature = system, effort, temperature
        self._names = SentNames(SCHEMAS)

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; the context is never changed.

        Args:
            ctx: what to ask.
            stream: whether to ask for a stream.
            capabilities: what the model can do; None leaves it to what is known of its family.

        Raises:
            InvalidRequestError: a message or the tool choice has no form here; names it.
        """
        self._names.learn(ctx.tools)
        body, notes = request_body(
            self._with_defaults(ctx),
            self._server,
            model=self.model,
            ceiling=self._ceiling,
            stream=stream,
            capabilities=capabilities or self._server.capabilities(self.model),
        )
        return Request(WireCall(path=self._path, body=sendable(body), stream=stream), tuple(notes))

    def _with_defaults(self, ctx: GenerateContext) -> GenerateContext:
        temperature = self._temperature if ctx.temperature is None else ctx.temperature
        effort = self._effort if ctx.effort is None else ctx.effort
        brief = ctx.brief or self._system
        if (brief, effort, temperature) == (ctx.brief, ctx.effort, ctx.temperature):
            return ctx
        return replace(ctx, brief=brief, effort=effort, temperature=temperature)

    def decoder(self, *, whole: bool) -> ChatDecoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return ChatDecoder(whole=whole, names=self._names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify_reply(reply)
