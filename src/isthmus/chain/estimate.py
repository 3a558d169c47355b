"""About how many tokens a request has, without asking anybody."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from isthmus.models.contract import GenerateContext
from isthmus.models.jsontext import dumps
from isthmus.models.messages import RESERVED
from isthmus.models.parts import AudioContent, CallContent, FileContent, ImageContent
from isthmus.models.reading import read_part

Estimate: TypeAlias = Callable[[str], int]
"""Counts the tokens of a text."""

MEDIA_TOKENS = 1600
"""What an image, a document or a sound counts, whatever its size: nobody says before the call."""

_A_MESSAGE = 4
_MEDIA = (ImageContent, FileContent, AudioContent)


class Sections(msgspec.Struct, frozen=True):
    """The tokens of each part of a request."""

    brief: int
    tools: int
    output: int
    messages: tuple[int, ...]

    @property
    def total(self) -> int:
        """All of them."""
        return self.brief + self.tools + self.output + sum(self.messages)


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has: one for four bytes of UTF-8, rounded up."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return -(-size // 4)


def estimate_sections(ctx: GenerateContext, estimate: Estimate = estimated_tokens) -> Sections:
    """The tokens of a request, part by part.

    Args:
        ctx: the request.
        estimate: counts the tokens of a text.
    """
    return Sections(
        estimate(ctx.brief) if ctx.brief else 0,
        estimate(_json([tool.schema for tool in ctx.tools])) if ctx.tools else 0,
        estimate(_json(ctx.output.json_schema())) if ctx.output is not None else 0,
        tuple([message_tokens(message, estimate) for message in ctx.messages]),
    )


def message_tokens(message: Mapping[str, Any], estimate: Estimate = estimated_tokens) -> int:
    """The tokens of one message: of its native form where it has one, else of what it says.

    Args:
        message: a role dict, or a provider's own item; marks that nobody is sent do not count.
        estimate: counts the tokens of a text.
    """
    content = message.get("content")
    if len(message) == 2 and type(content) is str and "role" in message:
        return _A_MESSAGE + estimate(content)
    held = message.get(RESERVED)
    native = held.get("native") if isinstance(held, Mapping) else None
    said = native.get("json") if isinstance(native, Mapping) else None
    if isinstance(said, str):
        return _A_MESSAGE + estimate(said)
    if isinstance(content, str) and not message.keys() - {"role", "content", RESERVED}:
        return _A_MESSAGE + estimate(content)
    texts: list[str] = []
    media = 0
    for key, value in message.items():
        if key not in ("role", RESERVED):
            media += _read(value, texts)
    return _A_MESSAGE + MEDIA_TOKENS * media + estimate("".join(texts))


def _read(value: Any, texts: list[str]) -> int:
    """Put the texts of a value into the list; returns how many images and the like it holds."""
    if isinstance(value, str):
        texts.append(value)
        return 0
    if isinstance(value, list | tuple):
        return sum([_read(item, texts) for item in value])
    if not isinstance(value, Mapping):
        texts.append(str(value))
        return 0
    part = read_part(value) if "type" in value else None
    if isinstance(part, CallContent):
        texts += (part.name, part.arguments)
        return 0
    if isinstance(part, _MEDIA):
        texts.append(part.media.text or "")
        return part.media.text is None
    texts += value
    return sum([_read(item, texts) for item in value.values()])


def _json(value: Any) -> str:
    return dumps(value).decode("utf-8", "surrogatepass")
