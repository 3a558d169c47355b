"""What an MCP server is reached by, and what of its tools is wanted; nothing of it shows a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import inf
from os import PathLike, fspath
from typing import Any

from isthmus.errors import ConfigError
from isthmus.secret import Address, Secret, clean_url, names_secret, shown_command

# A value this short that is not named like a secret is a switch or a number, and hiding it would blot out a log.
_LEAST = 8


@dataclass(frozen=True)
class McpServer:
    """What is the same for every server: `StdioServer` and `HttpServer` say how one is reached.

    Args:
        name: what errors and logs call it; one of a shim has it.
        prefix: put in front of the name of each of its tools, so that two servers may have tools of one name.
        allow: the tools that are offered, by the server's own names; None for all.
        deny: the tools that are not, even if allowed.
        start_timeout: seconds that it may take to start, connect and list its tools.
        call_timeout: seconds that one call may take, beside what the agent's `Tools` say; None for no limit.

    Raises:
        ConfigError: a value that cannot be; names it.
    """

    name: str
    _: KW_ONLY
    prefix: str = ""
    allow: Sequence[str] | None = None
    deny: Sequence[str] = ()
    start_timeout: float = 30.0
    call_timeout: float | None = None

    def __post_init__(self) -> None:
        self._check("name", _is_text(self.name), "give it a name, as text")
        self._check("prefix", isinstance(self.prefix, str), "must be text, such as 'files_'")
        for key in ("allow", "deny"):
            self._texts(key)
        self._check("start_timeout", _is_wait(self.start_timeout), "must be more than 0 seconds")
        self._check(
            "call_timeout",
            self.call_timeout is None or _is_wait(self.call_timeout),
            "must be more than 0 seconds, or None for no limit",
        )

    def _check(self, key: str, holds: bool, remedy: str) -> None:
        if not holds:
            raise ConfigError(f"{getattr(self, key)!r:.60}: {remedy}", where=type(self).__name__, key=key)

    def _texts(self, key: str) -> None:
        """Keep a list of texts as a tuple."""
        given = getattr(self, key)
        if given is None:
            return
        fits = not isinstance(given, str) and isinstance(given, Sequence | set | frozenset)
        self._check(key, fits and all(isinstance(each, str) for each in given), "must be a list of texts")
        object.__setattr__(self, key, tuple(given))

    def _secrets(self, key: str) -> None:
        """Keep a dict of texts as one whose values do not show themselves."""
        given = getattr(self, key)
        if given is None:
            return
        fits = isinstance(given, Mapping) and all(isinstance(text, str) for pair in given.items() for text in pair)
        if not fits:
            # The value itself may be one.
            raise ConfigError("must be a dict of texts", where=type(self).__name__, key=key)
        object.__setattr__(self, key, {name: Secret(value) for name, value in given.items()})

    @property
    def place(self) -> str:
        """Where it is, for a person: its command or its URL, without what may be secret."""
        raise NotImplementedError

    @property
    def remedy(self) -> str:
        """What to do if it cannot be reached."""
        raise NotImplementedError

    @property
    def secrets(self) -> tuple[str, ...]:
        """What may stand in no text that comes from it."""
        raise NotImplementedError

    def wants(self, tool: str) -> bool:
        """Whether this tool of the server is to be offered."""
        return tool not in self.deny and (self.allow is None or tool in self.allow)


@dataclass(frozen=True)
class StdioServer(McpServer):
    """A server that is started as a process of its own and spoken to over its standard input and output.

    It gets PATH, HOME and the like of this process's environment, and nothing else but `env`. What it writes to its
    error stream goes to the logger `isthmus.harness.mcp` at level DEBUG.

    Args:
        command: the program.
        args: its arguments; secrets belong in `env`, which other users of the machine cannot read.
        env: more environment variables; their values are hidden wherever this library shows something.
        cwd: the folder that it runs in; None for this process's.
    """

    command: str
    _: KW_ONLY
    args: Sequence[str] = field(default=(), repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | PathLike[str] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("command", _is_text(self.command), "give the program, as text")
        self._texts("args")
        self._secrets("env")

    @property
    def folder(self) -> str | None:
        """The folder that it runs in."""
        return None if self.cwd is None else fspath(self.cwd)

    @property
    def place(self) -> str:
        """The program; of its arguments, that there are some."""
        # A path may have spaces in it.
        shown = shown_command(self.command.replace(" ", "\u00a0")).replace("\u00a0", " ")
        return f"{shown} …" if self.args else shown

    @property
    def remedy(self) -> str:
        """What to do if it cannot be reached."""
        return "run its command by hand to see why"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of `env`, but for short ones that are not named like secrets."""
        given = (self.env or {}).items()
        return tuple(value for name, value in given if names_secret(name) or len(value) >= _LEAST)


@dataclass(frozen=True)
class HttpServer(McpServer):
    """A server that is reached over HTTP, in the protocol's streamable form.

    Args:
        url: its address.
        headers: sent with each request, such as an Authorization; their values never show.
        connect_timeout: seconds until a connection must stand.
    """

    url: str
    _: KW_ONLY
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    connect_timeout: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _is_text(self.url) or not self.url.lower().startswith(("http://", "https://")):
            raise ConfigError("must begin with http:// or https://", where=type(self).__name__, key="url")
        object.__setattr__(self, "url", Address(self.url))
        self._secrets("headers")
        self._check("connect_timeout", _is_wait(self.connect_timeout), "must be more than 0 seconds")

    @property
    def place(self) -> str:
        """The URL without user, password and what its query says."""
        return clean_url(self.url)

    @property
    def remedy(self) -> str:
        """What to do if it cannot be reached."""
        return "check its URL and headers, and that it is up"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values of the headers, and what of the URL is secret."""
        return (*(self.headers or {}).values(), *Address(self.url).secrets())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_wait(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf
