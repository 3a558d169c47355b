"""The descriptions of MCP servers."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from isthmus.errors import ConfigError
from isthmus.harness import HttpServer, McpShim, StdioServer

CANARY = "canary-4711-secret"

SECRETIVE: list[Any] = [
    StdioServer("a", "npx", args=["--token", CANARY], env={"API_TOKEN": CANARY}),
    HttpServer("a", f"https://me:{CANARY}@example.com/mcp?key={CANARY}", headers={"Authorization": CANARY}),
]


@pytest.mark.parametrize("server", SECRETIVE, ids=lambda server: type(server).__name__)
def test_no_secret_shows(server: Any):
    """Neither repr nor place nor what is pickled nor a copy's repr shows a header, a variable, an argument or a key."""
    shown = [repr(server), str(server), server.place, repr(deepcopy(server)), repr(vars(server).get("headers"))]
    if isinstance(server, HttpServer):
        shown.append(pickle.dumps(server).decode("latin-1"))
    assert CANARY not in "".join(shown)
    assert CANARY in server.secrets


def test_what_is_sent_is_the_secret_itself():
    """Hidden values are still the values."""
    stdio, http = SECRETIVE
    assert dict(stdio.env) == {"API_TOKEN": CANARY}
    assert dict(http.headers) == {"Authorization": CANARY}


def test_a_place_says_which_server_it_is():
    """A place is the program, or the URL with the names of its query alone."""
    assert StdioServer("a", "/opt/my tools/run").place == "/opt/my tools/run"
    assert StdioServer("a", "npx", args=["-y", "x"]).place == "npx …"
    assert HttpServer("a", "http://u:p@localhost:1/mcp?k=1").place == "http://***@localhost:1/mcp?k=***"


def test_short_values_of_the_environment_are_no_secrets():
    """A switch in the environment is not blotted out wherever it occurs; what is named like a secret is."""
    server = StdioServer("a", "x", env={"DEBUG": "true", "API_KEY": "1234", "ACCOUNT": "long enough"})
    assert set(server.secrets) == {"1234", "long enough"}


def test_allow_and_deny():
    """A tool is wanted if it is allowed, or all are, and is not denied."""
    server = StdioServer("a", "x", allow=["read", "write"], deny=["write"])
    assert [server.wants(tool) for tool in ("read", "write", "other")] == [True, False, False]
    assert StdioServer("a", "x").wants("other")


def test_a_folder_may_be_a_path():
    """`cwd` takes what `open` takes."""
    assert StdioServer("a", "x", cwd=Path("/tmp")).folder == "/tmp"
    assert StdioServer("a", "x").folder is None


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: StdioServer("", "x"), "StdioServer: name"),
    (lambda: StdioServer("a", ""), "StdioServer: command"),
    (lambda: StdioServer("a", "x", args="-v"), "StdioServer: args"),
    (lambda: StdioServer("a", "x", env={"A": 1}), "StdioServer: env"),  # type: ignore[dict-item]
    (lambda: StdioServer("a", "x", allow="read"), "StdioServer: allow"),
    (lambda: StdioServer("a", "x", deny=[1]), "StdioServer: deny"),  # type: ignore[list-item]
    (lambda: StdioServer("a", "x", prefix=None), "StdioServer: prefix"),  # type: ignore[arg-type]
    (lambda: StdioServer("a", "x", start_timeout=0), "StdioServer: start_timeout"),
    (lambda: StdioServer("a", "x", call_timeout=float("inf")), "StdioServer: call_timeout"),
    (lambda: HttpServer("a", "example.com/mcp"), "HttpServer: url"),
    (lambda: HttpServer("a", "https://x", headers=["A: b"]), "HttpServer: headers"),  # type: ignore[arg-type]
    (lambda: HttpServer("a", "https://x", connect_timeout=-1), "HttpServer: connect_timeout"),
    (lambda: McpShim(), "McpShim: servers"),
    (lambda: McpShim("npx"), "McpShim: servers"),
    (lambda: McpShim([StdioServer("a", "x")]), "McpShim: servers"),
    (lambda: McpShim(StdioServer("a", "x"), HttpServer("a", "https://x")), "two servers are called 'a'"),
    (lambda: McpShim(StdioServer("a", "x"), most_text=0), "McpShim: most_text"),
]


@pytest.mark.parametrize(("make", "told"), WRONG, ids=[told for _, told in WRONG])
def test_a_wrong_setting_is_named(make: Callable[[], Any], told: str):
    """A setting that cannot be is an error that names it, before anything is started."""
    with pytest.raises(ConfigError, match=told):
        make()


def test_a_wrong_secret_is_not_told():
    """An error about headers does not quote them."""
    with pytest.raises(ConfigError) as caught:
        HttpServer("a", "https://x", headers=[CANARY])  # type: ignore[arg-type]
    assert CANARY not in str(caught.value)
