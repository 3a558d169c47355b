"""A transcript as plain text, for a model that is told of it and takes no part in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from isthmus.chain.estimate import estimated_tokens
from isthmus.chain.turns import Message, parts_of
from isthmus.models.jsontext import dumps
from isthmus.models.neutral import NATIVE_INPUT
from isthmus.models.parts import CallContent, Content, OtherContent, ResultContent, TextContent
from isthmus.models.reading import read_part

_CLIPPED = "\n[… left out …]\n"


def pieces(messages: Iterable[Message], room: int) -> Iterator[str]:
    """The transcript as text, in pieces that fit, each of whole messages; one that is too long loses its middle.

    Args:
        messages: the transcript.
        room: about how many tokens a piece may have.
    """
    piece: list[str] = []
    tokens = 0
    for message in messages:
        text = clipped(told(message), room)
        size = estimated_tokens(text) + 1
        if piece and tokens + size > room:
            yield "\n".join(piece)
            piece, tokens = [], 0
        piece.append(text)
        tokens += size
    if piece:
        yield "\n".join(piece)


def clipped(text: str, most: int) -> str:
    """A text of at most so many tokens, without its middle where it has more."""
    data = text.encode("utf-8", "replace")
    room = most * 4 - len(_CLIPPED.encode())
    if len(data) <= most * 4 or room <= 0:
        return text
    end = room // 4
    return data[: room - end].decode("utf-8", "ignore") + _CLIPPED + data[-end:].decode("utf-8", "ignore")


def told(message: Message) -> str:
    """A message as a line of a transcript; reasoning is left out."""
    role, name = message.get("role", "item"), message.get("name")
    content = message.get("content")
    said = [content] if isinstance(content, str) else []
    if content or message.get("tool_calls"):
        # Its native items say the same once more.
        message = {key: value for key, value in message.items() if key != NATIVE_INPUT}
    said += map(_part, parts_of(message))
    return f"{role} {name}: {' '.join(said)}" if name else f"{role}: {' '.join(said)}"


def _part(part: Mapping[str, Any]) -> str:
    read = read_part(part)
    if isinstance(read, CallContent):
        return f"[calls {read.name} with {read.arguments}]"
    if isinstance(read, ResultContent):
        return f"[result: {_result(read.content)}]"
    if isinstance(read, OtherContent):
        return f"[{part.get('type')}: {dumps(dict(part)).decode('utf-8', 'replace')}]"
    return _words(read)


def _result(content: str | Iterable[Content]) -> str:
    return content if isinstance(content, str) else " ".join(map(_words, content))


def _words(part: Content) -> str:
    return part.text if isinstance(part, TextContent) else f"[{part.type}]"
