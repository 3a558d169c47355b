"""The narrow waist between applications and language models.

Names are loaded when they are first asked for: importing this package loads no adapter, no SDK and no HTTP client.
"""

from __future__ import annotations

import os
from importlib import import_module

from isthmus.version import __version__

TYPE_CHECKING = False  # known to type checkers; `typing` itself would be most of the cost of this import
if TYPE_CHECKING:
    from typing import Any

    from isthmus import observability
    from isthmus.build import ask, connect, load, parse, run_sync, stream_sync
    from isthmus.chain import Tier, define_chain
    from isthmus.harness import DefaultAgent as Agent
    from isthmus.models import OutputSchema, PromptTemplate, Tool, Tools, as_tool

# name -> the module that holds it, and its name there
_HOMES = {
    "Agent": ("isthmus.harness", "DefaultAgent"),
    "OutputSchema": ("isthmus.models", "OutputSchema"),
    "PromptTemplate": ("isthmus.models", "PromptTemplate"),
    "Tier": ("isthmus.chain", "Tier"),
    "Tool": ("isthmus.models", "Tool"),
    "Tools": ("isthmus.models", "Tools"),
    "as_tool": ("isthmus.models", "as_tool"),
    "ask": ("isthmus.build", "ask"),
    "connect": ("isthmus.build", "connect"),
    "define_chain": ("isthmus.chain", "define_chain"),
    "load": ("isthmus.build", "load"),
    "parse": ("isthmus.build", "parse"),
    "run_sync": ("isthmus.sync", "run_sync"),
    "stream_sync": ("isthmus.build", "stream_sync"),
}

__all__ = [
    "Agent",
    "OutputSchema",
    "PromptTemplate",
    "Tier",
    "Tool",
    "Tools",
    "__version__",
    "as_tool",
    "ask",
    "connect",
    "define_chain",
    "load",
    "observability",
    "parse",
    "run_sync",
    "stream_sync",
]


def __getattr__(name: str) -> Any:
    if name == "observability":
        return import_module("isthmus.observability")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, called = _HOMES[name]
    found = getattr(import_module(module), called)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if os.environ.get("ISTHMUS_LOG"):
    import_module("isthmus.observability.log").start_from_environment()
