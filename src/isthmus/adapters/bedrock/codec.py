"""The two ways of calling a model behind Bedrock, each a codec: paths, headers and version around the body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from isthmus.adapters.anthropic.encode import Target
from isthmus.adapters.anthropic.encode import build_body as messages_body
from isthmus.adapters.anthropic.names import SCHEMAS as MESSAGES_SCHEMAS
from isthmus.adapters.anthropic.reply import DIALECT as MESSAGES
from isthmus.adapters.bedrock.encode import build_body as converse_body
from isthmus.adapters.bedrock.failures import classify
from isthmus.adapters.bedrock.names import SCHEMAS, path_of, vendor_of
from isthmus.adapters.bedrock.reply import DIALECT
from isthmus.adapters.bedrock.sniff import BedrockDecoder
from isthmus.adapters.codec import Decoder, Request
from isthmus.errors import TierError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext
from isthmus.models.declare import SentNames
from isthmus.models.messages import sendable
from isthmus.wire.call import WireCall, WireReply

VERSION = "bedrock-2023-05-31"
"""`anthropic_version` of every recorded request of that vendor's models, 2024-2026."""

FRAMING = "eventstream"
"""How streams of Bedrock are framed."""
_STREAM_TYPE = "application/vnd.amazon.eventstream"


def _call(model: str, action: str, body: Mapping[str, Any], *, stream: bool) -> WireCall:
    headers = {"accept": _STREAM_TYPE if stream else "application/json"}
    return WireCall(path=path_of(model, action), body=sendable(body), stream=stream, framing=FRAMING, headers=headers)


class InvokeCodec:
    """Says a context in the Messages dialect by InvokeModel; reads whatever the model answers in.

    Args:
        model: the model's id or ARN.
        target: what is known of the model, and how its prompts are marked.
        betas: beta features to ask for.
    """

    dialect = MESSAGES

    def __init__(self, model: str, target: Target | None = None, *, betas: Sequence[str] = ()) -> None:
        self.model = model
        self._target = target or Target()
        self._frame: dict[str, Any] = {"anthropic_version": VERSION}
        if betas:
            self._frame["anthropic_beta"] = list(betas)
        self._names = SentNames(MESSAGES_SCHEMAS)

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; equal contexts give equal bytes.

        Args:
            ctx: what to ask.
            stream: whether to ask for a stream.
            capabilities: what the model can do; None leaves it to the target.

        Raises:
            InvalidRequestError: something in it cannot be said to this API; names it.
        """
        self._names.learn(ctx.tools)
        body, notes = messages_body(ctx, self._target.knowing(capabilities))
        action = "invoke-with-response-stream" if stream else "invoke"
        return Request(_call(self.model, action, {**self._frame, **body}, stream=stream), notes)

    def decoder(self, *, whole: bool) -> Decoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return BedrockDecoder(whole=whole, names=self._names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify(reply)


class ConverseCodec:
    """Says a context in Converse, the dialect of all models behind Bedrock, and reads its replies.

    Args:
        model: the model's id or ARN.
        target: what is known of the model, and how its prompts are marked.
    """

    dialect = DIALECT

    def __init__(self, model: str, target: Target | None = None) -> None:
        self.model = model
        self._target = target or Target()
        self._vendor = vendor_of(model)
        self._names = SentNames(SCHEMAS)

    def encode(self, ctx: GenerateContext, *, stream: bool, capabilities: ModelCapabilities | None = None) -> Request:
        """The request for a context; equal contexts give equal bytes.

        Args:
            ctx: what to ask.
            stream: whether to ask for a stream.
            capabilities: what the model can do; None leaves it to the target.

        Raises:
            InvalidRequestError: something in it cannot be said to this API; names it.
        """
        self._names.learn(ctx.tools)
        body, notes = converse_body(ctx, self._target.knowing(capabilities), vendor=self._vendor, model=self.model)
        action = "converse-stream" if stream else "converse"
        return Request(_call(self.model, action, body, stream=stream), notes)

    def decoder(self, *, whole: bool) -> Decoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return BedrockDecoder(whole=whole, names=self._names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify(reply)
