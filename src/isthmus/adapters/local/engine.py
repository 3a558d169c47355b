"""llama.cpp servers in this process: started at the first call, shared by equal settings, stopped with the last."""

from __future__ import annotations

import secrets
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from isthmus.errors import UnavailableError
from isthmus.secret import Secret


class Source(Protocol):
    """Where the weights come from; equal sources give the same file."""

    def ensure(self) -> Path:
        """The GGUF file, fetched if need be; blocks."""
        ...

    def found(self) -> Path | None:
        """The GGUF file, if it is here already."""
        ...

    def __hash__(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What tells one server from another.

    Args:
        model: the name that it answers to.
        weights: where the GGUF file comes from.
        window: context of each slot, in tokens.
        slots: replies that it works on at once.
        threads: threads that compute.
        template: the chat template; "" for the file's own.
    """

    model: str
    weights: Source
    window: int
    slots: int
    threads: int
    template: str = ""


class Engine:
    """One server, running or not yet.

    Attributes:
        key: what authorises a request to it: random, and known to this process alone.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.key = Secret(secrets.token_hex(16))
        self.users = 0
        self._lock = threading.Lock()
        self._server: Any = None
        self._started: Future[str] | None = None

    def start(self) -> Future[str]:
        """The server's address, once it runs; all who ask wait for one and the same start.

        A start that failed is tried again by the next who asks.
        """
        with self._lock:
            failed = self._started is not None and self._started.done() and self._started.exception() is not None
            if self._started is None or failed:
                # A thread of its own: fetching weights may take minutes, and the loop's executor is for others too.
                starter = ThreadPoolExecutor(1, "isthmus-local-start")
                self._started = starter.submit(self._start)
                starter.shutdown(wait=False)
            return self._started

    def _start(self) -> str:
        server = _serve(self.settings, self.key)
        address: str = server.listening_address
        with self._lock:
            if self._started is None:
                raise UnavailableError(f"{self.settings.model} was closed while it was starting")
            self._server = server
        return address

    def stop(self) -> None:
        """Stop the server; the next `start` begins a new one."""
        with self._lock:
            # The server stops when its last reference goes.
            self._server = self._started = None


def _serve(settings: Settings, key: str) -> Any:
    path = settings.weights.ensure()
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {settings.model}
    params.n_ctx = settings.window * settings.slots
    params.n_parallel = settings.slots
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.port = 0
    params.api_keys = [str(key)]
    params.offline = True
    params.ui = False
    params.verbosity = 0
    params.use_jinja = True
    params.chat_template = settings.template
    # A model this small is at its best without chance; a request may ask for another temperature.
    params.sampling.temp = 0.0
    try:
        server = xllamacpp.Server(params)
    except (RuntimeError, ValueError) as error:
        raise UnavailableError(f"{settings.model} cannot be loaded from {path}: {error}") from error
    # A server that is stopped before its work loop has begun never ends (xllamacpp 2026.10): see one task through.
    server.handle_completions({"prompt": " ", "n_predict": 1})
    return server


_engines: dict[Settings, Engine] = {}
_guard = threading.Lock()


class Lease:
    """The use of an engine by one adapter and its copies; given back by `release`, or when forgotten, or at exit."""

    def __init__(self, settings: Settings) -> None:
        with _guard:
            self.engine = _engines.setdefault(settings, Engine(settings))
            self.engine.users += 1
        self.release = weakref.finalize(self, _give_back, self.engine)


def _give_back(engine: Engine) -> None:
    with _guard:
        engine.users -= 1
        if engine.users:
            return
        del _engines[engine.settings]
    engine.stop()
