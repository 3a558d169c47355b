"""The protocol's official library, imported where it is first needed: sessions, and what their errors mean."""

from __future__ import annotations

import os
from asyncio import Event, sleep
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING, getLogger
from threading import Thread
from types import TracebackType
from typing import Any

from isthmus.errors import MissingDependencyError
from isthmus.harness.mcpfacts import facts_of, numbered, tell
from isthmus.harness.mcpresults import MISSING
from isthmus.harness.mcpservers import HttpServer, McpServer, StdioServer
from isthmus.models.handlers import in_thread
from isthmus.models.jsontext import dumps
from isthmus.secret import redact
from isthmus.version import __version__

log = getLogger("isthmus.harness.mcp")
UNSAID: Mapping[str, Any] = {"without_contents": None}
"""Of a record that repeats what a server says: it is not written where contents are not."""
_LEVELS = {"debug": DEBUG, "info": INFO, "notice": INFO, "warning": WARNING, "error": ERROR}
# A server's pages of tools end; one whose pages do not is broken.
_MOST_PAGES = 200
_MOST_SAID = 2_000
_LONGEST_LINE = 65_536
_PARTING = 2.0
# Hundredths of a second that what a process said last is waited for: its own children may hold the stream open.
_TRIES = 30
# One event of a stream: the library's own limit is below the size of an image.
_MOST_EVENT = 64 * 1024 * 1024


class CallLost(Exception):
    """No answer will come: what has become of a call is unknown."""


class SessionLost(CallLost):
    """The server went away, for all calls."""


class CallRefused(Exception):
    """The server answered with an error of the protocol: it ran nothing, or says that it failed."""


class SessionOver(CallRefused):
    """The server does not know the session any more, and ran nothing."""


class CallUnusable(Exception):
    """The server answered, but not as the protocol, or its own schema, has it: it did what it was asked."""


class CallLate(Exception):
    """The server did not answer in time, and was told to stop."""


def _library() -> Any:
    """The library's module.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import mcp.client.stdio
        import mcp.client.streamable_http
        import mcp.client.subscriptions
    except ImportError as error:
        raise MissingDependencyError("McpShim", "mcp", extra="mcp") from error
    return mcp


@dataclass
class Heard:
    """What a server lets be known beside its answers.

    Args:
        on_end: called once it cannot be heard any more.
        on_change: called when its tools have changed.
        said: the end of what its process wrote to its error stream.
        status: the HTTP status of the last message sent, unless that was one of success.
    """

    on_end: Callable[[], None]
    on_change: Callable[[], None]
    said: Callable[[], str] = field(default=str)
    status: str = ""


@dataclass(frozen=True)
class Listed:
    """A tool as a server declares it."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Session:
    """An open session with a server.

    Args:
        client: the library's client.
        server: whose session it is.
    """

    def __init__(self, client: Any, server: McpServer) -> None:
        self._client, self._server = client, server

    async def tools(self) -> list[Listed]:
        """All tools that the server has.

        Raises:
            CallLost: it went away, or its answer was lost.
            CallRefused: it answered with an error.
            CallUnusable: it answered with what is no list of tools, or with pages without end.
        """
        found: list[Listed] = []
        cursor = None
        for _ in range(_MOST_PAGES):
            with _meaning():
                page = await self._client.list_tools(cursor=cursor)
            found += [Listed(t.name, t.description or t.title or "", t.input_schema) for t in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return found
        raise CallUnusable(f"its list of tools has more than {_MOST_PAGES} pages")

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool, and give what `rendered` takes; cancelling this has the server told.

        Raises:
            CallLost: the server went away, or its answer was lost.
            CallLate: it took longer than `call_timeout`.
            CallRefused: it answered with an error.
            CallUnusable: it answered with what is no result, or none of those that it declares.
        """

        async def progress(*told: Any) -> None:
            shown = self._shown(" ".join(str(each) for each in told))
            log.debug("%s: %s: %s", self._server.name, tool, shown, extra=UNSAID)

        tell(facts_of(self._server, version=self._client.protocol_version))
        with _meaning():
            result = await self._client.call_tool(
                tool,
                dict(arguments),
                read_timeout_seconds=self._server.call_timeout,
                progress_callback=progress if log.isEnabledFor(DEBUG) else None,
            )
        if result.is_error:
            tell({"error.type": "tool_error"})
        given = "structured_content" in result.model_fields_set
        return {
            "content": [block.model_dump(by_alias=True, mode="json", exclude_none=True) for block in result.content],
            "structured": result.structured_content if given else MISSING,
            "failed": result.is_error,
        }

    def _shown(self, text: str) -> str:
        return redact(text, self._server.secrets)[:_MOST_SAID]

    async def watch(self, heard: Heard, ready: Event) -> None:
        """Listen for changes of the tools, for as long as this is not cancelled; older servers tell without.

        Args:
            heard: is told.
            ready: set once changes are heard, or cannot be.
        """
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = self._client.server_capabilities.tools
        if tools is None or not tools.list_changed:
            ready.set()
            return
        again = False
        try:
            while True:
                with suppress(SubscriptionLost):
                    async with self._client.listen(tools_list_changed=True) as changes:
                        ready.set()
                        # Nothing is replayed: what happened in between is not known.
                        if again:
                            heard.on_change()
                        async for _ in changes:
                            heard.on_change()
                again = True
                await sleep(1)
        except ListenNotSupportedError:
            return
        except Exception as error:
            why = self._shown(str(error))
            log.debug("%s: changes of its tools are not heard: %s", self._server.name, why, extra=UNSAID)
        finally:
            ready.set()


def first(error: BaseException | None) -> BaseException | None:
    """The first error of a group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _meaning:  # noqa: N801 - reads as what it is, a block
    """A block in which the library's errors become ours."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        error = first(error)
        if isinstance(error, ValueError | RuntimeError):
            # The library has checked the answer, and tells at length.
            why = str(error).partition("\n\n")[0].partition("For further information")[0]
            raise CallUnusable(f"{' '.join(why.split()):.500}") from error
        if not isinstance(error, MCPError):
            return
        if error.code == CONNECTION_CLOSED:
            # Over HTTP a single answer may be lost; this is how the library words the loss of all.
            raise (SessionLost if error.message == "Connection closed" else CallLost)(error.message) from error
        if error.code == REQUEST_TIMEOUT:
            raise CallLate(error.message) from error
        # How the library words a 404, by which a server says so.
        raise (SessionOver if error.message == "Session terminated" else CallRefused)(error.message) from error


@asynccontextmanager
async def opened(server: McpServer, heard: Heard) -> AsyncGenerator[Session, None]:
    """A session as a block; entered and left by one task, as the library demands.

    Raises:
        MissingDependencyError: the library is not installed.
        CallLost: the server ended before it answered.
        Exception: whatever else keeps the session from being opened.
    """
    # It takes a second to load, in which the loop goes on.
    library = await in_thread(_library, "mcp library")

    async def logged(params: Any) -> None:
        text = params.data if isinstance(params.data, str) else dumps(params.data).decode()
        shown = redact(text, server.secrets)[:_MOST_SAID]
        log.log(_LEVELS.get(params.level, CRITICAL), "%s: %s", server.name, shown, extra=UNSAID)

    async def told(message: Any) -> None:
        if isinstance(message, library.types.ToolListChangedNotification):
            heard.on_change()

    level = next((name for name, number in _LEVELS.items() if log.isEnabledFor(number)), None)
    async with AsyncExitStack() as stack:
        transport = await _transport(server, heard, stack)
        client = library.Client(
            transport,
            cache=None,
            client_info=library.types.Implementation(name="isthmus", version=__version__),
            logging_callback=logged,
            log_level=level,
            message_handler=told,
        )
        with _meaning():
            await stack.enter_async_context(client)
        yield Session(client, server)


async def _transport(server: McpServer, heard: Heard, stack: AsyncExitStack) -> Any:
    """What the library's client is to talk over; what it needs is closed with the stack."""
    from mcp.client.stdio import StdioServerParameters, stdio_client
    from mcp.client.streamable_http import streamable_http_client

    if isinstance(server, StdioServer):
        tail = await stack.enter_async_context(_Tail(server))
        heard.said = tail.text
        env = None if server.env is None else {name: str(value) for name, value in server.env.items()}
        started = StdioServerParameters(command=server.command, args=list(server.args), env=env, cwd=server.folder)
        return _noticed(numbered(stdio_client(started, errlog=tail.file)), heard, tail)
    if not isinstance(server, HttpServer):
        raise TypeError(f"{type(server).__name__}: use StdioServer or HttpServer")
    import httpx2

    async def sending(request: Any) -> None:
        if request.method == "DELETE":
            # A farewell, for which nobody waits long.
            request.extensions["timeout"]["read"] = _PARTING

    async def seen(response: Any) -> None:
        if response.request.method == "POST":
            failed = response.status_code >= 400
            heard.status = f"HTTP {response.status_code} {response.reason_phrase}".strip() if failed else ""

    client = httpx2.AsyncClient(
        headers={name: str(value) for name, value in (server.headers or {}).items()},
        # How long an answer may take is the call's affair: a time-out here would end the session of everyone.
        timeout=httpx2.Timeout(None, connect=server.connect_timeout),
        event_hooks={"request": [sending], "response": [seen]},
    )
    await stack.enter_async_context(client)
    return numbered(streamable_http_client(str(server.url), http_client=client, max_sse_event_size=_MOST_EVENT))


@asynccontextmanager
async def _noticed(transport: Any, heard: Heard, tail: _Tail) -> AsyncGenerator[tuple[Any, Any], None]:
    """A transport whose end is noticed."""
    async with transport as (reads, writes):
        # The process holds its own end now; with ours closed, that it closes its end can be seen.
        tail.file.close()
        yield _Noticed(reads, heard.on_end), writes


class _Noticed:
    """A stream of messages that calls back at its end."""

    def __init__(self, stream: Any, on_end: Callable[[], None]) -> None:
        self._stream, self._on_end = stream, on_end

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _Noticed:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: Any) -> Any:
        return await self._stream.__aexit__(*raised)

    def __aiter__(self) -> _Noticed:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._on_end()
            raise


class _Tail:
    """The end of what a process writes to its error stream, kept for errors and logged line by line.

    Args:
        server: whose process it is.
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._kept = ""
        reads, writes = os.pipe()
        self.file = os.fdopen(writes, "w")
        # A thread, since not every loop can read a pipe.
        self._thread = Thread(target=self._read, args=(reads,), daemon=True, name=f"isthmus mcp {server.name}")
        self._thread.start()

    async def __aenter__(self) -> _Tail:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        self.file.close()
        # What a process says last is often why it ended.
        for _ in range(_TRIES):
            if not self._thread.is_alive():
                return
            await sleep(0.01)

    def _read(self, reads: int) -> None:
        with os.fdopen(reads, "rb") as pipe:
            while line := pipe.readline(_LONGEST_LINE):
                said = redact(line.decode("utf-8", "replace"), self._server.secrets)
                self._kept = (self._kept + said)[-_MOST_SAID:]
                log.debug("%s: %s", self._server.name, said.rstrip(), extra=UNSAID)

    def text(self) -> str:
        """What is kept, without secrets."""
        return self._kept.strip()
