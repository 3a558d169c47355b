"""Agents that stand in files of Markdown: a head of two lines, then the instructions.

---
name: reviewer
description: Reviews what others wrote.
---
You review drafts. Be kind and exact.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from isthmus.harness.descriptor import AgentDescriptor
from isthmus.harness.errors import AgentFileError

_FENCE = "---"
_KEYS = ("name", "description")


def read_descriptor(path: str | os.PathLike[str], **settings: Any) -> AgentDescriptor:
    """The descriptor in a file.

    Args:
        path: the file, in UTF-8.
        settings: the other fields of the descriptor.

    Raises:
        AgentFileError: the file is no such description; names place and line.
        OSError: it cannot be read.
    """
    place = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise AgentFileError(f"{place}: is not text in UTF-8: {error.reason} at byte {error.start}") from None
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise AgentFileError(f"{place}, line 1: an agent begins with a line `{_FENCE}` and its name")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == _FENCE), None)
    if end is None:
        raise AgentFileError(f"{place}, line 1: the head has no end: put a line `{_FENCE}` after it")
    head: dict[str, Any] = _head(lines[1:end], place)
    if not head.get("name"):
        raise AgentFileError(f"{place}, line 2: the agent has no name: add `name: …`")
    return AgentDescriptor(**head, instructions="\n".join(lines[end + 1 :]).strip(), **settings)


def _head(lines: list[str], place: str) -> dict[str, Any]:
    head: dict[str, str] = {}
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, colon, value = line.partition(":")
        key = key.strip()
        if not colon or key not in _KEYS or key in head:
            why = "is there twice" if key in head else f"is not known here: the head holds {' and '.join(_KEYS)}"
            raise AgentFileError(f"{place}, line {number}: {key!r} {why}; give the rest where the agent is made")
        head[key] = _unquoted(value.strip())
    return head


def _unquoted(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
