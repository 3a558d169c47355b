"""Tools of MCP servers, through the protocol's official library: one session a server, shared by all runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary, finalize

from isthmus.errors import ConfigError, IsthmusError
from isthmus.harness.errors import McpServerError, ToolNameCollisionError
from isthmus.harness.mcplink import Link
from isthmus.harness.mcpopen import SessionLost, log
from isthmus.harness.mcpresults import MOST_TEXT
from isthmus.harness.mcpservers import HttpServer, McpServer, StdioServer
from isthmus.harness.runnerhooks import RunIdentity
from isthmus.harness.shims import BoundShim, PreparedTurn, Shim, TurnState


class McpShim(Shim):
    """Gives an agent the tools of MCP servers.

    A server is started when the first run needs it, and serves all runs of this shim in that event loop until `aclose`,
    which also ends its process; so do the end of the loop under `asyncio.run`, and of the interpreter. Its tools are
    sent as the server declares them, without strictness, and no call that timed out is made again. A run that is
    cancelled has its calls cancelled at the server. What a server announces to have changed is offered from the next
    turn on. A server that goes away answers the calls that are in flight with "the outcome is unknown", and is started
    again before the next turn, once a run: which of two failures is the server's own and which one that a call brings
    about is not known, and a second one ends the run rather than to go on without tools that it was given.

    Args:
        servers: `StdioServer` or `HttpServer`, each of another name.
        most_text: characters of text that the result of a call keeps; what is cut is said to the model.

    Raises:
        ConfigError: no server, something that is none, two of one name, a limit that cannot be.
    """

    name = "mcp"

    def __init__(self, *servers: StdioServer | HttpServer, most_text: int = MOST_TEXT) -> None:
        taken: tuple[Any, ...] = servers
        wrong = [each for each in taken if not isinstance(each, StdioServer | HttpServer)]
        if wrong or not servers:
            given = type(wrong[0]).__name__ if wrong else "none"
            raise ConfigError(f"servers: give a StdioServer or an HttpServer, not {given}", where="McpShim")
        twice = [name for name, count in Counter(server.name for server in servers).items() if count > 1]
        if twice:
            raise ConfigError(f"two servers are called {twice[0]!r}: rename one", where="McpShim")
        if type(most_text) is not int or most_text < 1:
            raise ConfigError(f"{most_text!r}: must be a whole number from 1", where="McpShim", key="most_text")
        self._pool = _Pool(servers, most_text)
        finalize(self, self._pool.leave).atexit = False

    async def bind(self, run: RunIdentity) -> BoundShim:
        """What attends this run."""
        return _BoundMcp(self, self._pool)

    async def aclose(self) -> None:
        """End all sessions and the processes of their servers; a later run starts them again."""
        await self._pool.aclose()


class _Pool:
    """The servers of a shim and their links, by event loop."""

    def __init__(self, servers: Sequence[McpServer], most_text: int) -> None:
        self.servers = servers
        self._most_text = most_text
        self._links: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Link]] = WeakKeyDictionary()

    def take(self, server: McpServer) -> Link:
        """The link to a server in the running loop, for a run to use until it gives it back; begun if there is none."""
        links = self._links.setdefault(asyncio.get_running_loop(), {})
        link = links.get(server.name)
        if link is None or link.over:
            link = links[server.name] = Link(server, self._most_text)
        link.users += 1
        return link

    def give_back(self, link: Link) -> None:
        """End the use of a link, which is closed if nobody ever began with it, as by a run that was stopped first."""
        link.users -= 1
        if not link.users and not link.proven:
            link.leave()

    def leave(self) -> None:
        """Have everything closed; from any thread."""
        for links in tuple(self._links.values()):
            for link in tuple(links.values()):
                link.leave_from_outside()

    async def aclose(self) -> None:
        """Close what is open in this loop, and have closed what is open in others."""
        here = self._links.pop(asyncio.get_running_loop(), {})
        self.leave()
        for link in here.values():
            link.leave()
        for link in here.values():
            await link.aclose()


class _BoundMcp(BoundShim):
    """The servers as one run uses them."""

    def __init__(self, shim: McpShim, pool: _Pool) -> None:
        # A shim that nobody else holds lives as long as its runs.
        self._shim = shim
        self._pool = pool
        self._held: dict[str, Link] = {}
        self._again: set[str] = set()

    async def on_run_start(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """Have every server running.

        Raises:
            McpServerError: one cannot be started; those that were started for this run are closed again.
            MissingDependencyError: the protocol's library is not installed.
        """
        self._held = {server.name: self._pool.take(server) for server in self._pool.servers}
        links = self._held.values()
        try:
            await asyncio.gather(*(link.started() for link in links))
        except IsthmusError:
            await asyncio.gather(*(link.aclose() for link in links if link.users == 1 and not link.proven))
            raise
        for link in links:
            link.proven = True

    async def prepare_turn(self, turn: PreparedTurn) -> None:
        """Offer the tools as they are now.

        Raises:
            McpServerError: a server went away for the second time in this run, or cannot be started again.
            ToolNameCollisionError: two tools have one name.
        """
        for server in self._pool.servers:
            self._offer(turn, await self._current(server))

    async def on_run_end(self, state: TurnState, transient_state: dict[str, Any]) -> None:
        """Let the next run have the servers."""
        for link in self._held.values():
            self._pool.give_back(link)
        self._held.clear()

    async def _current(self, server: McpServer) -> Link:
        """The link to a server that is there, with the tools that it has now."""
        link = self._held[server.name]
        for _ in range(2):
            if link.over:
                link = await self._replaced(link)
            try:
                await link.refresh()
            except SessionLost:
                continue
            return link
        raise link.failure()

    async def _replaced(self, lost: Link) -> Link:
        name = lost.server.name
        await lost.aclose()
        if name in self._again:
            raise McpServerError(f"{lost.failure()} (for the second time in this run)")
        self._again.add(name)
        silent = f"MCP server {name!r} went away; it is started again"
        log.warning("%s; it is started again", lost.failure(), extra={"without_contents": silent})
        link = self._held[name] = self._pool.take(lost.server)
        self._pool.give_back(lost)
        await link.started()
        link.proven = True
        return link

    def _offer(self, turn: PreparedTurn, link: Link) -> None:
        there = {tool.name: tool for tool in turn.tools.normalized_tools}
        for tool in link.tools:
            if there.get(tool.name, tool) is not tool:
                raise ToolNameCollisionError(
                    f"MCP server {link.server.name!r}: there is another tool {tool.name!r}: give the server a "
                    "prefix=…, or name the tool in its deny=[…]"
                )
        turn.add_tools(link.tools)
