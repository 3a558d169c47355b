"""Where a key comes from: an argument, a command, the configuration, or the environment, in this order."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from isthmus.errors import CredentialsError
from isthmus.secret import Address, Secret, names_secret, redact, shown_command

COMMAND_SECONDS = 30.0
_SHOWN = 500
_WORD = re.compile(r"[^\s;|&<>()'\"]{6,}")


@dataclass(frozen=True, kw_only=True)
class KeyScheme:
    """How a key is sent.

    Args:
        header: the header's name, e.g. "authorization" or "x-api-key".
        prefix: what stands before the key, e.g. "Bearer ".
        takes_tokens: whether a signed token (JWT) may stand in for the key, which is then sent as a bearer token.
        extra: further headers of every request; they hold no secret.
    """

    header: str = "authorization"
    prefix: str = "Bearer "
    takes_tokens: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)

    def headers(self, key: str) -> Mapping[str, str]:
        """The headers that carry a key, beside the further ones."""
        if self.takes_tokens and key.startswith("eyJ") and key.count(".") == 2:
            return {**self.extra, "authorization": Secret(f"Bearer {key}")}
        return {**self.extra, self.header: Secret(self.prefix + key)}


@dataclass(kw_only=True, eq=False, repr=False)
class KeySource:
    """Supplies the headers that authorise an adapter's requests.

    Args:
        api_key: given in code; wins over all else.
        api_key_command: a shell command that prints the key.
        api_key_ttl_ms: milliseconds for which the printed key is used again; 0 runs the command at each request.
        configured: the key from the configuration.
        variable: the environment variable that holds the key, "" for none.
        env_hosts: the hosts that the variable's key is for; a leading dot takes in all hosts below it. Empty: any host.
        base_url: where requests go.
        base_url_trusted: whether `base_url` comes from a place that may send the variable's key to any host.
        scheme: how the key is sent.
        required: whether a request without any key is an error.
    """

    api_key: str | None = None
    api_key_command: str | None = None
    api_key_ttl_ms: int = 0
    configured: str | None = None
    variable: str = ""
    env_hosts: tuple[str, ...] = ()
    base_url: str = ""
    base_url_trusted: bool = False
    scheme: KeyScheme = field(default_factory=KeyScheme)
    required: bool = True

    def __post_init__(self) -> None:
        self.api_key, self.configured = _given(self.api_key), _given(self.configured)
        self.api_key_command = _given(self.api_key_command)
        self.base_url = Address(self.base_url)
        self._made: tuple[str, Mapping[str, str]] = ("", {})
        self._settled: Mapping[str, str] | None = None
        self._seen: dict[str, None] = dict.fromkeys(self.base_url.secrets())
        for name, value in self.scheme.extra.items():
            if isinstance(value, Secret) and names_secret(name):
                self._seen[value] = None
        for key in (self.api_key, self.configured):
            if key:
                self._seen[key] = None

    def __repr__(self) -> str:
        return f"KeySource(variable={self.variable!r}, header={self.scheme.header!r})"

    def __getstate__(self) -> Any:
        if self.api_key or self.configured or self.api_key_command:
            raise TypeError("a key is never pickled: make the adapter anew where it is used")
        return {**self.__dict__, "_seen": {}, "_made": ("", {})}

    def __deepcopy__(self, memo: dict[int, Any]) -> KeySource:
        # The copy asks the same command for the same key.
        return self

    @property
    def refreshable(self) -> bool:
        """Whether asking again can give another key: only a command can."""
        return bool(self.api_key_command) and not self.api_key

    def secrets(self) -> Iterable[str]:
        """The keys seen so far."""
        return tuple(self._seen)

    async def headers(self, *, refresh: bool = False) -> Mapping[str, str]:
        """The headers that authorise a request.

        Args:
            refresh: run the command again although its key has not expired.

        Raises:
            CredentialsError: the command failed, or no key was found though one is required.
        """
        if self._settled is not None:
            return self._settled
        key, origin = await self._find(refresh)
        if key is None:
            if self.required:
                raise CredentialsError(f"no API key: {origin}")
            return self.scheme.extra
        made_for, headers = self._made
        if key == made_for:
            return headers
        if not key.isascii() or not key.isprintable() or " " in key:
            raise CredentialsError(f"the API key from {origin} holds characters that no header can carry")
        self._seen[key] = None
        self._made = (key, MappingProxyType(self.scheme.headers(key)))
        if self.api_key:
            # Nothing else will ever be asked.
            self._settled = self._made[1]
        return self._made[1]

    async def _find(self, refresh: bool) -> tuple[Secret | None, str]:
        """The key and where it comes from, or None and what would supply one."""
        if self.api_key:
            return Secret(self.api_key), "the argument api_key"
        if self.api_key_command:
            refused = self._seen if refresh else ()
            return await _vended(self.api_key_command, self.api_key_ttl_ms / 1000, refused), "api_key_command"
        if self.configured:
            return Secret(self.configured), "the configuration"
        value = Secret(os.environ.get(self.variable, "").strip()) if self.variable else None
        remedy = "pass api_key, or set api_key or api_key_command in the configuration"
        if not value:
            return None, f"set {self.variable}, {remedy}" if self.variable else remedy
        if not self.base_url_trusted and self.env_hosts and not covers(self.env_hosts, self.base_url):
            host = urlsplit(self.base_url).hostname or ""
            # It is still a secret: were it to turn up in a text, it would have to be taken out.
            self._seen[value] = None
            return None, f"{self.variable} is set but is not sent to {host!r}, which is not its provider's: {remedy}"
        return value, self.variable


def _given(text: str | None) -> Secret | None:
    """What was given, without the white space around it; blank is nothing."""
    return Secret(text.strip()) if text and text.strip() else None


def covers(hosts: Iterable[str], url: str) -> bool:
    """Whether a URL leads to one of some hosts; a leading dot takes in all hosts below it."""
    host = urlsplit(url).hostname or ""
    return any(host == own or (own.startswith(".") and host.endswith(own)) for own in hosts)


@dataclass(eq=False)
class _Run:
    """A command that runs now, for one loop, and how many wait for it."""

    task: asyncio.Task[Secret]
    waiting: int = 0


_vended_keys: dict[str, tuple[float, Secret]] = {}
_runs: dict[tuple[asyncio.AbstractEventLoop, str], _Run] = {}


async def _vended(command: str, ttl: float, refused: Container[str]) -> Secret:
    """The key that a command prints, from memory if it is younger than `ttl` seconds and not among the refused.

    All who ask while the command runs wait for the same run; it is stopped when none of them is left.
    """
    held = _vended_keys.get(command)
    if held is not None and monotonic() - held[0] < ttl and held[1] not in refused:
        return held[1]
    place = (asyncio.get_running_loop(), command)
    run = _runs.get(place)
    if run is None:
        run = _runs[place] = _Run(asyncio.create_task(_remembered(command)))
        run.task.add_done_callback(lambda _: _over(place, run))
    run.waiting += 1
    try:
        return await asyncio.shield(run.task)
    finally:
        run.waiting -= 1
        if not run.waiting and not run.task.done():
            # It takes a while to stop: whoever asks from now on is not cancelled with it.
            _over(place, run)
            run.task.cancel()


def _over(place: tuple[asyncio.AbstractEventLoop, str], run: _Run) -> None:
    """Nobody may wait for this run any more; another may have taken its place."""
    if _runs.get(place) is run:
        del _runs[place]


async def _remembered(command: str) -> Secret:
    key, problem = await _run(command)
    if key is None:
        raise CredentialsError(f"api_key_command {shown_command(command)!r} {problem}")
    _vended_keys[command] = (monotonic(), key)
    return key


async def _run(command: str) -> tuple[Secret | None, str]:
    """The key that a command prints, or None and what went wrong; nothing is raised where its output is at hand."""
    process = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=sys.platform != "win32",
    )
    try:
        async with asyncio.timeout(COMMAND_SECONDS):
            out, err = map(_text, await process.communicate())
    except TimeoutError:
        return None, f"gave no key within {COMMAND_SECONDS:g} s"
    finally:
        if process.returncode is None:
            await _stop(process)
    # A shell quotes the words of a command that it cannot run, and one of them may be the key.
    said = redact(err, [out, *_WORD.findall(command.strip().partition(" ")[2])])[:_SHOWN]
    said = f"; it said: {said}" if said else ""
    if process.returncode:
        return None, f"failed with exit status {process.returncode}{said}"
    if not out:
        return None, f"printed nothing{said}"
    if len(out.splitlines()) > 1:
        return None, f"printed {len(out.splitlines())} lines: it must print the key and nothing else"
    return out, ""


def _text(data: bytes) -> Secret:
    return Secret(data.decode("utf-8", "replace").strip())


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Kill a command with all that it started."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    await process.communicate()
