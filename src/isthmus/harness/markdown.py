"""Files of Markdown that describe something: a head of `key: value` between two lines, then the text.

---
name: reviewer
description: Reviews what others wrote.
---
You review drafts. Be kind and exact.

The head is the part of YAML that such files use: texts, bare, quoted or in blocks (`|`, `>`), which may go on over
indented lines. Lists and mappings are passed over as text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from isthmus.errors import IsthmusError
from isthmus.harness.descriptor import AgentDescriptor
from isthmus.harness.errors import AgentFileError

_FENCE = "---"
_KEYS = ("name", "description")
_BLOCK = re.compile(r"[|>][0-9+-]*(?:\s+#.*)?")
_REMARK = re.compile(r"(?:^|\s)#.*")


class Entry(NamedTuple):
    """A value of a head, and its line in the file, from 1."""

    text: str
    line: int


class Document(NamedTuple):
    """A file: its head by key, its text, and the line that this begins in, from 1."""

    head: Mapping[str, Entry]
    body: str
    line: int


def read_document(path: str | os.PathLike[str], what: str, *, error: type[IsthmusError]) -> Document:
    """A file with a head.

    Args:
        path: the file, in UTF-8.
        what: what it describes, for errors, e.g. "an agent".
        error: what to raise where it has no readable head.

    Raises:
        IsthmusError: the `error`; names place and line.
        OSError: it cannot be read.
    """
    place = os.fspath(path)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as failure:
        raise error(f"{place}: is not text in UTF-8: {failure.reason} at byte {failure.start}") from None
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise error(f"{place}, line 1: {what} begins with a line `{_FENCE}` and its name")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == _FENCE), None)
    if end is None:
        raise error(f"{place}, line 1: the head has no end: put a line `{_FENCE}` after it")
    head: dict[str, Entry] = {}
    for number, key, held in _entries(lines[1:end]):
        if key is None or key in head:
            why = "is not known here: a line of the head is `key: value`" if key is None else "is there twice"
            raise error(f"{place}, line {number}: {key or held[0].strip()!r} {why}")
        head[key] = Entry(_value(held), number)
    return Document(head, "\n".join(lines[end + 1 :]).strip(), end + 2)


def _entries(lines: list[str]) -> Iterator[tuple[int, str | None, list[str]]]:
    """The entries of a head: the line, the key, None where there is none, and the lines of the value."""
    found: list[tuple[int, str | None, list[str]]] = []
    for number, line in enumerate(lines, 2):
        held = found[-1][2] if found else None
        goes_on = line[:1].isspace() or not line.strip() or (line.startswith("- ") and held is not None and not held[0])
        if goes_on and held is not None:
            held.append(line)
        elif line.strip() and not line.lstrip().startswith("#"):
            key, colon, value = line.partition(":")
            named = bool(colon) and not line[0].isspace()
            found.append((number, key.strip(), [value.strip()]) if named else (number, None, [line]))
    yield from found


def _value(lines: list[str]) -> str:
    first, more = lines[0], lines[1:]
    if _BLOCK.fullmatch(first):
        margin = min((len(line) - len(line.lstrip()) for line in more if line.strip()), default=0)
        block = [line[margin:].rstrip() for line in more]
        return "\n".join(block).strip() if first[0] == "|" else _folded(block)
    quote = first[:1]
    if quote in ("'", '"'):
        whole = _folded([first, *more])
        closed = len(whole) > 1 and whole[-1] == quote
        return _unquoted(whole) if closed else whole
    return _folded([_REMARK.sub("", line) for line in (first, *more)])


def _folded(lines: list[str]) -> str:
    """Lines as YAML folds them: a line break is a space, an empty line a line break."""
    paragraphs = re.split(r"\n{2,}", "\n".join(line.strip() for line in lines).strip())
    return "\n".join(each.replace("\n", " ") for each in paragraphs)


def _unquoted(text: str) -> str:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]


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
    document = read_document(path, "an agent", error=AgentFileError)
    for key, entry in document.head.items():
        if key not in _KEYS:
            known = " and ".join(_KEYS)
            raise AgentFileError(
                f"{place}, line {entry.line}: {key!r} is not known here: the head holds {known}; give the rest where "
                "the agent is made"
            )
    head: dict[str, Any] = {key: entry.text for key, entry in document.head.items()}
    if not head.get("name"):
        raise AgentFileError(f"{place}, line 2: the agent has no name: add `name: …`")
    return AgentDescriptor(**head, instructions=document.body, **settings)
