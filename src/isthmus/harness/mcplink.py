"""One MCP server in one event loop: a task that opens the session, owns it and closes it, whoever uses it meanwhile.

The library's sessions hold scopes that must be left by the task that entered them, so that no run may open one.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Mapping
from contextlib import suppress
from contextvars import Context
from functools import partial
from threading import Event as ThreadEvent
from typing import Any

from isthmus.errors import IsthmusError, MissingDependencyError, ToolDefinitionError
from isthmus.harness.errors import McpServerError
from isthmus.harness.mcpfacts import refusal_of, tell
from isthmus.harness.mcpopen import (
    UNSAID,
    CallLate,
    CallLost,
    CallRefused,
    CallUnusable,
    Heard,
    Listed,
    Session,
    SessionLost,
    SessionOver,
    first,
    log,
    opened,
)
from isthmus.harness.mcpresults import rendered
from isthmus.harness.mcpservers import McpServer
from isthmus.models.enums import ToolErrorKind
from isthmus.models.fold import said
from isthmus.models.jsontext import dumps, loads
from isthmus.models.results import ToolError, ToolFailure
from isthmus.models.tools import Tool
from isthmus.secret import redact

LOST = "lost"
"""The kind of a `ToolError` whose call was in flight when its server went away."""

_ALIVE: set[Link] = set()
# Seconds that the end of the interpreter waits for a server to end.
_PATIENCE = 6.0
# Seconds that a server has to confirm that it will tell of changes.
_ATTENTION = 2.0


class _Owner(asyncio.Task[None]):
    """A task that, once it closes what it has opened, closes it to the end, though its loop ends meanwhile.

    A loop that ends cancels every task, and the library cannot go on from that: the process that it waits for would be
    left to the garbage collector. All that it waits for then is bounded, by scopes that cancel the task in their name.
    """

    closing = False

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel it, unless it closes already."""
        if self.closing and "cancel scope" not in str(msg):
            return False
        return super().cancel(msg)


class Link:
    """A server, started with this object in the running loop; what several runs share.

    Args:
        server: which one.
        most_text: characters of text that the result of a call keeps.
    """

    def __init__(self, server: McpServer, most_text: int) -> None:
        self.server = server
        self.users = 0
        self.proven = False
        """Whether a run has begun with it: one that failed to begin closes what nobody else uses."""
        self.tools: tuple[Tool, ...] = ()
        """Those that are wanted of the server's, as they were listed last."""
        self._changes = 0
        self._most_text = most_text
        self._loop = asyncio.get_running_loop()
        self._listing = asyncio.Lock()
        self._settled, self._leave = asyncio.Event(), asyncio.Event()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._gone = ThreadEvent()
        self._calls: set[asyncio.Task[Any]] = set()
        self._session: Session | None = None
        self._late = self._left = False
        self._error: BaseException | None = None
        self._heard = Heard(on_end=self._leave.set, on_change=self._changed)
        _ALIVE.add(self)
        # In no run's context: it outlives them all.
        self._owner = _Owner(self._own(), loop=self._loop, name=f"isthmus mcp {server.name}", context=Context())

    def __repr__(self) -> str:
        return f"Link({self.server.name!r}, over={self.over})"

    @property
    def over(self) -> bool:
        """Whether the session has ended, or is about to."""
        return self._leave.is_set() or self._owner.done()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that it lives in."""
        return self._loop

    def _changed(self) -> None:
        self._changes += 1

    async def _own(self) -> None:
        timer = self._loop.call_later(self.server.start_timeout, self._expire)
        try:
            async with opened(self.server, self._heard) as session:
                ready = asyncio.Event()
                watch = asyncio.create_task(session.watch(self._heard, ready))
                try:
                    # What changes after the list was made is heard; a server that does not say so is not waited for.
                    with suppress(TimeoutError):
                        await asyncio.wait_for(ready.wait(), _ATTENTION)
                    self._list(await session.tools())
                    self._session = session
                    timer.cancel()
                    self._settled.set()
                    await self._leave.wait()
                finally:
                    self._owner.closing = True
                    watch.cancel()
                    await asyncio.wait((watch,))
        except asyncio.CancelledError:
            if not self._late and not self._leave.is_set():
                raise
        except Exception as error:
            self._error = first(error)
            log.debug("%s: its session failed: %s", self.server.name, self._redacted(error), extra=UNSAID)
        finally:
            timer.cancel()
            self._leave.set()
            self._settled.set()
            for call in self._calls:
                call.cancel()
            _ALIVE.discard(self)
            if not self._over.done():
                self._over.set_result(None)
            self._gone.set()

    def _expire(self) -> None:
        self._late = True
        self._stop()

    def leave(self) -> None:
        """Have the session closed; returns at once."""
        if self._leave.is_set():
            return
        self._left = True
        self._leave.set()
        if not self._settled.is_set():
            self._stop()

    def _stop(self) -> None:
        self._owner.cancel()
        self._owner.closing = True

    async def aclose(self) -> None:
        """Close the session, and return once the server's process has ended."""
        self.leave()
        await asyncio.wait((self._over,))

    def leave_from_outside(self) -> None:
        """`leave`, from any thread and from any loop."""
        if self._loop.is_closed():
            _ALIVE.discard(self)
            return
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.leave)

    def end_with_interpreter(self) -> None:
        """Return once the session is closed, as it was told to be, or has taken too long."""
        if self._loop.is_running():
            self._gone.wait(_PATIENCE)
        else:
            self._loop.run_until_complete(asyncio.wait((self._over,), timeout=_PATIENCE))

    async def started(self) -> None:
        """Return once the session is open and its tools are listed.

        Raises:
            McpServerError: it could not be opened, or has ended.
            MissingDependencyError: the library is not installed.
        """
        await self._settled.wait()
        if self.over:
            # What its process said last, and that it is gone, is known at the end alone.
            await asyncio.wait((self._over,))
            raise self.failure() from self._shareable()

    def _shareable(self) -> BaseException | None:
        """What ended the session, unless it, or what is behind it, says a secret."""
        error = None if isinstance(self._error, MissingDependencyError) else self._error
        behind = error
        while behind is not None:
            if redact(str(behind), self.server.secrets) != str(behind):
                return None
            behind = behind.__cause__ or behind.__context__
        return error

    def failure(self) -> IsthmusError:
        """Why there is no session, for a person."""
        error, server = self._error, self.server
        if isinstance(error, MissingDependencyError):
            return error
        if self._late:
            why = f"did not answer within {server.start_timeout:g}s"
        elif isinstance(error, FileNotFoundError):
            why = "cannot be started: there is no such program, or no such folder to run it in"
        elif error is None or isinstance(error, CallLost):
            why = "was closed" if self._left else "went away" if self._session else "ended before it answered"
        else:
            why = f"failed: {self._redacted(error)}"
        told = self._heard.said()
        tail = f"it said: {told}" if told else server.remedy
        return McpServerError(f"MCP server {server.name!r} ({server.place}) {why}{self._status()}; {tail}")

    def _status(self) -> str:
        return f" ({self._heard.status})" if self._heard.status else ""

    def _redacted(self, error: BaseException) -> str:
        ours = isinstance(error, CallLost | CallRefused | CallUnusable)
        return redact(str(error) if ours else said(error), self.server.secrets)

    def _list(self, listed: list[Listed]) -> None:
        """Make what is wanted of these tools; one that cannot be offered is no reason to go without the rest."""
        server = self.server
        made: dict[str, Tool] = {}
        for each in listed:
            if not server.wants(each.name):
                continue
            try:
                tool = Tool(
                    name=f"{server.prefix}{each.name}" if each.name else "",
                    description=each.description,
                    parameters_schema=each.schema,
                    strict=False,
                    retry_on_timeout=False,
                    handler=partial(self.call, each.name),
                )
            except ToolDefinitionError as error:
                log.warning("%s: a tool is left out: %s", server.name, error)
                continue
            if made.setdefault(tool.name, tool) is not tool:
                log.warning("%s: it has two tools %r; the first is offered", server.name, each.name)
        unknown = sorted({*(server.allow or ()), *server.deny} - {each.name for each in listed})
        if unknown:
            log.warning("%s: it has no tool %s, which allow or deny names", server.name, ", ".join(map(repr, unknown)))
        self.tools = tuple(made.values())

    async def refresh(self) -> None:
        """List the tools again if they have changed; where that fails, those that are known stay.

        Raises:
            SessionLost: the server went away.
        """
        async with self._listing:
            seen = self._changes
            if not seen or self._session is None:
                return
            limit = self.server.start_timeout
            try:
                self._list(await asyncio.wait_for(self._bound(self._session.tools()), limit))
                self._changes -= seen
            except TimeoutError:
                # It is asked again when it tells of another change, and not in every turn.
                self._changes -= seen
                log.warning("%s: its tools changed, but it did not list them within %gs", self.server.name, limit)
            except (SessionOver, SessionLost) as error:
                self._leave.set()
                raise SessionLost(str(error)) from error
            except (CallRefused, CallUnusable, CallLost) as error:
                silent = f"{self.server.name}: its tools changed, but cannot be listed"
                log.warning("%s: %s", silent, self._redacted(error), extra={"without_contents": silent})

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """What a model reads of a call; never raises for what the server does.

        Args:
            tool: the server's own name for it.
            arguments: a dict of JSON values.
        """
        name, session = self.server.name, self._session
        if self.over or session is None:
            return self._never(tool)
        try:
            # Numbers that remember how they were written are nothing that the library knows.
            answer = await self._bound(session.call(tool, loads(dumps(dict(arguments)))))
        except CallLost as error:
            if isinstance(error, SessionLost):
                self._leave.set()
            text = f"MCP server {name!r} went away during the call of {tool!r}; the outcome is unknown"
            return _failed(text, LOST)
        except CallLate:
            text = f"{tool!r} timed out after {self.server.call_timeout}s and was told to stop; the outcome is unknown"
            return _failed(text, ToolErrorKind.TIMEOUT.value)
        except SessionOver:
            self._leave.set()
            return self._never(tool)
        except CallRefused as error:
            tell(refusal_of(error))
            return _failed(f"{tool!r} failed: {self._redacted(error)}{self._status()}", ToolErrorKind.ERROR.value)
        except CallUnusable as error:
            return _failed(f"{tool!r} ran, but its answer cannot be used: {self._redacted(error)}", "error")
        return rendered(**answer, most_text=self._most_text)

    def _never(self, tool: str) -> ToolFailure:
        text = (
            f"{tool!r} was not run: MCP server {self.server.name!r} is gone; it is started again before your next turn"
        )
        return _failed(text, LOST)

    async def _bound(self, work: Any) -> Any:
        """What the work gives, done in a task that ends with the session; who waits for it may be cancelled at once.

        Raises:
            SessionLost: the session ended first.
            Exception: whatever the work raises.
        """
        task = asyncio.ensure_future(work)
        self._calls.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait((task, self._over), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # The library tells the server; that may take longer than anybody waits.
            task.cancel()
            raise
        if not task.done() or task.cancelled():
            raise SessionLost("the session has ended")
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        if not task.cancelled():
            task.exception()


def _failed(text: str, kind: str) -> ToolFailure:
    return ToolFailure(text=f"Error: {text}.", error=ToolError(text, kind))


def _end_all() -> None:
    """At the end of the interpreter, close what nobody has closed."""
    alive = [link for link in _ALIVE if not link.loop.is_closed()]
    for link in alive:
        link.leave_from_outside()
    for link in alive:
        with suppress(RuntimeError):
            link.end_with_interpreter()


atexit.register(_end_all)
