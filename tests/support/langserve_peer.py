"""A real LangServe server in an environment of its own: made once, kept, shared by all test processes."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.ownenv import ROOT, python

RECORDINGS = ROOT / "tests" / "recordings" / "langserve"
"""What was recorded from it."""
PINS = (
    "langserve[all]==0.3.3",
    "langchain-core==1.8.3",
    "fastapi==0.165.0",
    "starlette==1.10.0",
    "pydantic==2.14.4",
    "sse-starlette==1.8.2",
    "uvicorn>=0.30,<1",
)


def app_folder() -> Path | None:
    """The folder of the peer's app beside the checkout, or None where it is not there."""
    places = (parent / "shared" / "peers" for parent in ROOT.parents)
    return next((place for place in places if (place / "langserve_app.py").is_file()), None)


@contextmanager
def peer(log: Path) -> Iterator[str]:
    """The address of a running peer.

    Args:
        log: the file for what it prints.
    """
    folder = app_folder()
    if folder is None:
        pytest.skip("the app of the LangServe peer is not beside the checkout (shared/peers/langserve_app.py)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = os.pathsep.join((str(folder), str(Path(__file__).parent)))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1", "LANGSMITH_TRACING": "false"}
    command = [
        python("langserve", *PINS),
        "-m",
        "uvicorn",
        "langserve_more:app",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with log.open("w") as out:
        server = subprocess.Popen(command, env=env, stdout=out, stderr=out)
    try:
        _wait(server, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


def _wait(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(600):
        assert server.poll() is None, log.read_text()[-2000:]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise AssertionError(f"the peer did not start: {log.read_text()[-2000:]}")
