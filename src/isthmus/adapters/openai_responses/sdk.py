"""The official SDK, imported where it is first needed: clients without retries, and what their errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import is_dataclass
from email.utils import formatdate
from typing import Any
from weakref import WeakKeyDictionary

from isthmus.adapters.bodies import first_bytes, is_document, media_type
from isthmus.adapters.classify import classify_reply
from isthmus.errors import (
    ConfigError,
    ErrorClass,
    MissingDependencyError,
    TierError,
    TransientError,
    UnavailableError,
)
from isthmus.models.config import Config
from isthmus.models.neutral import NATIVE_DIALECT
from isthmus.models.retry import RetryPolicy
from isthmus.secret import redact
from isthmus.wire.call import Ended, WireReply

# Azure's name for the form of this API that has every item type; its reference, 2025-03.
_AZURE_VERSION = "2025-03-01-preview"
_BASE_URL = "https://api.openai.com/v1"
_AZURE = "azure"
_PREFIXES = ("openai", _AZURE)
_PASSING = frozenset((408, 409, 425, 429))
# Seconds that a peer has to say goodbye; whoever cancels waits no longer.
_FAREWELL = 0.3


def load_sdk() -> Any:
    """The SDK's module.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import openai
    except ImportError as error:
        raise MissingDependencyError("ResponsesClient", "openai", extra="openai") from error
    return openai


class Connection:
    """The SDK's clients of one configuration, one an event loop.

    Args:
        config: the connection; a model "azure/NAME" goes to Azure, "openai/NAME" and plain names to the SDK's own API.

    Raises:
        ConfigError: a model at Azure without a base URL.
    """

    def __init__(self, config: Config) -> None:
        prefix, slash, name = config.model.partition("/")
        prefixed = bool(slash) and prefix in _PREFIXES
        self.model = name if prefixed else config.model
        self._azure = prefixed and prefix == _AZURE
        if self._azure and not config.base_url:
            raise ConfigError("a model at Azure needs the resource's URL", where="Config", key="base_url")
        self.provider = _AZURE if self._azure else NATIVE_DIALECT
        self._config = config
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    @property
    def url(self) -> str:
        """Where requests go."""
        return str(self._config.base_url or _BASE_URL)

    async def client(self) -> Any:
        """The client of the running loop; the SDK's import and its certificates take long, and the loop goes on."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            return self._clients.setdefault(loop, await asyncio.to_thread(self._ready))
        return self._clients[loop]

    def _ready(self) -> Any:
        made = self._made()
        # The SDK imports each of its APIs when it is first asked for.
        _ = made.responses
        return made

    def _made(self) -> Any:
        config, openai = self._config, load_sdk()
        headers = None if config.default_headers is None else {k: str(v) for k, v in config.default_headers.items()}
        settings: dict[str, Any] = {
            "api_key": str(config.api_key),
            "organization": config.organization,
            "timeout": config.timeout,
            "default_headers": headers,
            # There is one retry engine, and it is not this one.
            "max_retries": 0,
        }
        if not self._azure:
            return openai.AsyncOpenAI(base_url=self.url, **settings)
        url = self.url
        place = {"base_url": url} if "/openai" in url else {"azure_endpoint": url}
        return openai.AsyncAzureOpenAI(**place, api_version=_AZURE_VERSION, **settings)

    async def aclose(self) -> None:
        """Close the running loop's connections."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


class SdkReply:
    """An open reply of the SDK, as bytes."""

    def __init__(self, reply: Any, secret: str) -> None:
        self._reply, self._secret = reply, secret
        self._rest = self._read()
        self._first = b""
        self.is_stream = True
        self.ended = Ended.FRAMED

    async def begin(self, *, streamed: bool, limit: int) -> None:
        """Read as much as tells what it is.

        Raises:
            ProtocolError: it is neither events nor JSON, or larger than `limit` bytes.
            Exception: the SDK's own, with what it means here as its `classified`.
        """
        kind = media_type(str(self._reply.headers.get("content-type", "")))
        self._first = await first_bytes(kind, self._rest, limit=limit)
        self.is_stream = not is_document(kind, self._first, streamed=streamed, secrets=[self._secret])

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            Exception: the SDK's own, with what it means here as its `classified`.
        """
        yield self._first
        async for chunk in self._rest:
            yield chunk

    async def _read(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._reply.iter_bytes():
                yield chunk
        except Exception as error:
            explain(error, self._secret)
            if type(error).__name__ == "RemoteProtocolError":
                self.ended = Ended.BROKEN
                return
            raise

    async def aclose(self) -> None:
        """Close the connection; who is reading from it gets an error."""
        await self._reply.close()


class Socket:
    """A connection of the SDK over a WebSocket: requests out, messages in. It is never made anew.

    Args:
        connection: the SDK's.
        secret: the key, which no error shows.
        patience: seconds that one message may take, to go or to come.
    """

    def __init__(self, connection: Any, *, secret: str, patience: float) -> None:
        self._connection, self._secret, self._patience = connection, secret, patience

    async def create(self, arguments: Mapping[str, Any]) -> None:
        """Ask for a response.

        Args:
            arguments: by the SDK's names; `extra_body` holds what it has no name for.

        Raises:
            TransientError: it could not be sent in time.
            Exception: the SDK's own, with what it means here as its `classified`.
        """
        own = {name: value for name, value in arguments.items() if name != "extra_body"}
        further = arguments.get("extra_body")
        async with self._sending():
            if further:
                await self._connection.send({"type": "response.create", **own, **further})
            else:
                await self._connection.response.create(**own)

    async def steer(self, steering: Any, response_id: str) -> None:
        """Send input into a response.

        Raises:
            TransientError: it could not be sent in time.
            Exception: the SDK's own, with what it means here as its `classified`.
        """
        async with self._sending():
            await self._connection.response.steer(input=steering, previous_response_id=response_id)

    async def receive(self) -> bytes:
        """The next message, undecoded.

        Raises:
            TransientError: the connection was lost, or nothing came in time; its cause is the SDK's own error.
        """
        try:
            async with asyncio.timeout(self._patience):
                return await self._connection.recv_bytes()  # type: ignore[no-any-return]
        except TimeoutError as error:
            raise TransientError(f"time-out: no message for {self._patience:g} s") from error
        except Exception as error:
            explain(error, self._secret)
            raise TransientError(redact(f"the connection was lost: {error}", [self._secret])) from error

    async def aclose(self) -> None:
        """Close it; harmless twice, and a failure to close is none."""
        with suppress(Exception):
            async with asyncio.timeout(_FAREWELL):
                await self._connection.close()
        # To a peer that reads nothing no goodbye can be said; asked again, the SDK cuts what it could not close.
        with suppress(Exception):
            await self._connection.close()

    @asynccontextmanager
    async def _sending(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._patience):
                yield
        except TimeoutError as error:
            raise TransientError(f"time-out: a message could not be sent for {self._patience:g} s") from error
        except Exception as error:
            explain(error, self._secret)
            raise


@asynccontextmanager
async def dialled(client: Any, config: Config, *, limit: int, **sent: Any) -> AsyncIterator[Socket]:
    """A connection of the SDK over a WebSocket, as a block that closes it.

    Args:
        client: the SDK's client.
        config: whose key no error shows, and how long to wait.
        limit: the most bytes that one message may have.
        sent: `extra_headers` and `extra_query` of the request that opens it.

    Raises:
        MissingDependencyError: what the SDK needs for it is not installed.
        Exception: the SDK's own, with what it means here as its `classified`.
    """
    how = {"max_size": limit, "compression": None, "open_timeout": config.timeout, "close_timeout": _FAREWELL}
    try:
        connection = await client.responses.connect(websocket_connection_options=how, max_retries=0, **sent).enter()
    except Exception as error:
        if isinstance(error.__cause__, ImportError):
            raise MissingDependencyError("ResponsesClient(websocket=True)", "websockets", extra="openai") from error
        explain(error, config.api_key)
        raise
    socket = Socket(connection, secret=config.api_key, patience=config.timeout)
    try:
        yield socket
    finally:
        await socket.aclose()


@asynccontextmanager
async def opened(manager: Any, secret: str) -> AsyncIterator[SdkReply]:
    """An exchange of the SDK as a block; its errors say what they mean here, without the key.

    Raises:
        Exception: the SDK's own, with what it means here as its `classified`.
    """
    try:
        reply = await manager.__aenter__()
    except Exception as error:
        explain(error, secret)
        raise
    try:
        yield SdkReply(reply, secret)
    finally:
        await manager.__aexit__(None, None, None)


def explain(error: Exception, secret: str) -> None:
    """Let an error of the SDK say its class, as its `classified`: the error itself stays who it is, without the key."""
    meaning = _meaning(error, secret)
    error.args = hidden(error.args, secret)
    for name in ("message", "body", "code", "param", "type"):
        # Not `getattr`: some have properties of these names that warn.
        held = vars(error).get(name)
        if held is not None and hidden(held, secret) != held:
            setattr(error, name, hidden(held, secret))
    for name in ("response", "rcvd", "sent"):
        _hide_in(vars(error).get(name), secret)
    if meaning is not None:
        meaning.__cause__ = error
        error.classified = meaning  # type: ignore[attr-defined]


def _meaning(error: Exception, secret: str) -> TierError | None:
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None) or getattr(response, "status_code", None)
    if isinstance(status, int) and response is not None:
        told = {str(name).lower(): str(value) for name, value in response.headers.items()}
        headers = {"date": formatdate(usegmt=True), **told}
        return classify_reply(
            WireReply(status, headers, redact(_body(response).decode("utf-8", "replace"), [secret]).encode())
        )
    if isinstance(error, load_sdk().APIConnectionError):
        return TransientError(redact(f"{error}", [secret]))
    # What the HTTP and the WebSocket client under the SDK raise.
    below = type(error).__module__.startswith(("http", "websockets"))
    if below and not isinstance(error, ValueError | TypeError):
        return TransientError(redact(f"the connection was lost: {type(error).__name__}: {error}", [secret]))
    # What a socket itself raises; the HTTP client hides these.
    if isinstance(error, OSError):
        kind = UnavailableError if isinstance(error, ConnectionRefusedError) else TransientError
        return kind(redact(f"{type(error).__name__}: {error}", [secret]))
    return None


def _hide_in(said: Any, secret: str) -> None:
    """Take the key out of what a peer said, as the WebSocket client holds it: a reply, or a goodbye."""
    for name in ("body", "reason") if is_dataclass(said) else ():
        if hasattr(said, name):
            setattr(said, name, hidden(getattr(said, name), secret))


def hidden(value: Any, secret: str) -> Any:
    """The plain value with the key taken out of every text in it; whatever else there is in it stays."""
    if isinstance(value, str):
        return redact(value, [secret])
    if isinstance(value, bytes | bytearray):
        return redact(value.decode("latin-1"), [secret]).encode("latin-1")
    if isinstance(value, dict):
        return {name: hidden(item, secret) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([hidden(item, secret) for item in value])
    return value


def _body(response: Any) -> bytes:
    try:
        content = response.content if hasattr(response, "content") else response.body
    except Exception:
        return b""
    return content if isinstance(content, bytes) else b""


def wait_after(error: BaseException, attempt: int, *, policy: RetryPolicy) -> float | None:
    """Seconds until a call that failed before anything came of it is made again, or None: never with quota or policy.

    Args:
        error: as `explain` left it.
        attempt: the number of the try that failed, from 1.
        policy: how often, and after how long.
    """
    meaning = getattr(error, "classified", None)
    if not isinstance(meaning, TierError) or meaning.error_class not in (ErrorClass.TRANSIENT, ErrorClass.UNAVAILABLE):
        return None
    passing = meaning.status is None or meaning.status in _PASSING or meaning.status >= 500
    return policy.delay(attempt, meaning.retry_after) if passing else None
