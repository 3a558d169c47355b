"""The Messages dialect at one of its hosts: path, headers, model and stream around the body."""

from __future__ import annotations

from collections.abc import Sequence

from isthmus.adapters.anthropic.decode import MessagesDecoder
from isthmus.adapters.anthropic.encode import Target, build_body
from isthmus.adapters.anthropic.names import SCHEMAS
from isthmus.adapters.anthropic.reply import DIALECT
from isthmus.adapters.anthropic.server import ANTHROPIC, MessagesServer
from isthmus.adapters.classify import classify_reply
from isthmus.adapters.codec import Request
from isthmus.errors import TierError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import GenerateContext
from isthmus.models.declare import SentNames
from isthmus.models.messages import sendable
from isthmus.wire.call import WireCall, WireReply


class MessagesCodec:
    """Says a context as a request of the Messages API and reads its replies.

    Args:
        model: the model's id.
        target: what is known of the model, and how its prompts are marked.
        betas: beta features to ask for, e.g. "files-api-2025-04-14".
        server: the host, which says where the model and the version of the API stand.
        base_url: where it is, as far as that decides the path; not kept.
    """

    dialect = DIALECT

    def __init__(
        self,
        model: str,
        target: Target | None = None,
        *,
        betas: Sequence[str] = (),
        server: MessagesServer = ANTHROPIC,
        base_url: str = "",
    ) -> None:
        self.model = model
        self._target = target or Target()
        self._body_version = server.body_version
        self._paths = {stream: server.route(model, base_url, stream=stream) for stream in (False, True)}
        self._headers = {} if server.body_version else {"anthropic-version": server.version}
        if betas:
            self._headers["anthropic-beta"] = ",".join(betas)
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
        body, notes = build_body(ctx, self._target.knowing(capabilities))
        version = self._body_version
        lead = {"anthropic_version": version} if version else {"model": self.model}
        whole = {**lead, **body, "stream": True} if stream else {**lead, **body}
        return Request(
            WireCall(path=self._paths[stream], body=sendable(whole), stream=stream, headers=self._headers), notes
        )

    def decoder(self, *, whole: bool) -> MessagesDecoder:
        """A fresh decoder: for a whole reply (one frame), or for a stream of frames."""
        return MessagesDecoder(whole=whole, names=self._names)

    def classify(self, reply: WireReply) -> TierError:
        """The error that a reply with a status other than 2xx stands for."""
        return classify_reply(reply)
