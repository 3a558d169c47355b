"""The adapter of the embedded model: the Chat Completions codec over a server in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from isthmus.adapters.codec import Reply, Request
from isthmus.adapters.drive import WireAdapter
from isthmus.adapters.local import weights
from isthmus.adapters.local.engine import Lease, Settings
from isthmus.adapters.local.gguf import context_length
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.adapters.openai_chat.server import ChatServer
from isthmus.errors import ConfigError, MissingDependencyError
from isthmus.models.capabilities import ModelCapabilities
from isthmus.models.contract import Timeouts
from isthmus.transport.credentials import KeyScheme, KeySource
from isthmus.transport.http import HttpTransport

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
_DEFAULT_WINDOW = 8192
# The first call may have to fetch the weights, and reads its prompt at a hundred tokens a second.
_TIMEOUTS = Timeouts(first_content=900.0, idle=300.0)

_SERVER = ChatServer(provider="local")

# llama.cpp closes an idle connection after 5 s, whatever is on its way; on loopback a new one costs nothing.
_SCHEME = KeyScheme(extra={"connection": "close"})


class LocalAdapter(WireAdapter):
    """A model that runs inside this process, on its processor, without network or key.

    Adapters with the same settings share one llama.cpp server. It starts at the first call (or `start()`), listens on
    the loopback interface alone, wants a random key, and stops when the last adapter is closed or the process ends.

    Args:
        model: "SmolLM2-135M-Instruct", fetched once and kept in the user's cache; or the path of a GGUF file.
        system: the brief where a request has none.
        max_tokens: output ceiling in tokens where a request has none; 0 means, and no more than, half the window.
        n_ctx: the window in tokens, for each reply under way; by default the model's own, at most 8192.
        threads: threads that compute; by default one for each processor that the process may use.
        parallel: replies worked on at once; further calls wait.

    Raises:
        MissingDependencyError: the extra `local` is not installed.
        ConfigError: `model` is neither the default nor a GGUF file, or `n_ctx` is more than it was trained for.
    """

    codec: ChatCodec
    provider = "local"
    for_development = True
    supports = frozenset({"tools", "output-schema"})
    timeouts = _TIMEOUTS

    def __init__(
        self,
        model: str = DEFAULT_MODEL,
        *,
        system: str = "",
        max_tokens: int | None = None,
        n_ctx: int | None = None,
        threads: int | None = None,
        parallel: int = 2,
    ) -> None:
        if find_spec("xllamacpp") is None:
            raise MissingDependencyError("the local model", "xllamacpp", extra="local")
        own = model == DEFAULT_MODEL
        trained = weights.SMOLLM2.window if own else context_length(Path(model).expanduser())
        window = n_ctx or min(trained, _DEFAULT_WINDOW)
        if not 0 < window <= trained:
            raise ConfigError(f"{window} is out of range: {model} was trained for 1 to {trained} tokens", key="n_ctx")
        self.model = model if own else Path(model).stem
        self.system = system
        self.window_tokens = window
        self.max_output_tokens = window // 2
        self.max_tokens = min(max_tokens or self.max_output_tokens, self.max_output_tokens)
        self._settings = Settings(
            model=self.model,
            weights=weights.SMOLLM2 if own else weights.OwnFile(Path(model).expanduser()),
            window=window,
            slots=parallel,
            threads=threads or _processors(),
            template=_template() if own else "",
        )
        self._lease: Lease | None = None
        codec = ChatCodec(self.model, server=_SERVER)
        self._wire(codec, HttpTransport(trust_env=False), KeySource(), "")

    def capabilities(self) -> ModelCapabilities:
        """The model's window, and half of it as the ceiling of a reply."""
        return ModelCapabilities(
            context_window=self._settings.window,
            max_output_tokens=self._settings.window // 2,
            adaptive_thinking=False,
            thinking_disable=False,
            cache_markers=False,
        )

    def diagnose(self) -> Iterator[str]:
        """One line on where the weights are, without fetching them."""
        found = self._settings.weights.found()
        yield f"weights of {self.model}: {found or 'not here yet: the first call fetches them'}"

    async def start(self) -> str:
        """Start the server if it doesn't run yet, and return its base URL.

        Raises:
            UnavailableError: the weights could not be had, or the server did not start; says what to do.
        """
        if self._lease is None:
            self._lease = Lease(self._settings)
            self.keys = KeySource(api_key=self._lease.engine.key, scheme=_SCHEME)
        starting = self._lease.engine.start()
        self.base_url = await asyncio.shield(asyncio.wrap_future(starting)) + "/v1"
        return self.base_url

    async def _exchange(self, request: Request, *, refresh: bool) -> AbstractAsyncContextManager[Reply]:
        await self.start()
        return await super()._exchange(request, refresh=refresh)

    async def aclose(self) -> None:
        """Close the connections, and stop the server if nobody else uses it; a later call starts it again."""
        await super().aclose()
        lease, self._lease = self._lease, None
        if lease is not None:
            await asyncio.to_thread(lease.release)


def _template() -> str:
    return files("isthmus.adapters.local").joinpath("smollm2-tools.jinja").read_text("utf-8")


def _processors() -> int:
    """Processors that this process may use; not every system can say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
