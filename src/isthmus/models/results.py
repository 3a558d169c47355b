"""What a tool gave back: whether it failed, and what the model reads of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, is_dataclass
from typing import Any, get_args

from isthmus.models.enums import ToolErrorKind
from isthmus.models.fold import said
from isthmus.models.jsontext import dumps
from isthmus.models.messages import text_of, without_reserved
from isthmus.models.parts import Content, TextContent
from isthmus.models.promptparts import FilePart, ImagePart, part_content


@dataclass(frozen=True, slots=True)
class ToolError:
    """Why a call failed.

    Args:
        message: what went wrong, for a person.
        kind: a `ToolErrorKind`, or a word of the tool's own, for a program to tell kinds apart.
    """

    message: str
    kind: str | None = None


class ToolFailure(str):
    """The result of a call that failed: to a model, and to whoever compares it, the text alone.

    Args:
        text: what the model reads.
        error: why it failed.
    """

    __slots__ = ("_error",)
    _error: ToolError

    def __new__(cls, *, text: str, error: ToolError) -> ToolFailure:
        """A string equal to `text`."""
        made = super().__new__(cls, text)
        made._error = error
        return made

    @property
    def text(self) -> str:
        """What the model reads, as a plain string."""
        return str.__str__(self)

    @property
    def error(self) -> ToolError:
        """Why it failed."""
        return self._error

    def __reduce__(self) -> tuple[Any, ...]:
        return _failure, (self.text, self._error)


def _failure(text: str, error: ToolError) -> ToolFailure:
    return ToolFailure(text=text, error=error)


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """Whether a call went well, and if not, why."""

    ok: bool
    error: ToolError | None = None


def tool_outcome(result: Any) -> ToolOutcome:
    """Whether a tool's result says that the call failed.

    A `ToolFailure`, an exception, and a mapping with something under "error" do; anything else is a success.
    """
    if type(result) in _SCALARS:
        return _WELL
    if isinstance(result, ToolFailure):
        return ToolOutcome(False, result.error)
    if isinstance(result, BaseException):
        return ToolOutcome(False, ToolError(said(result), ToolErrorKind.ERROR.value))
    if isinstance(result, Mapping) and result.get("error"):
        return ToolOutcome(False, ToolError(result_text(result["error"]), ToolErrorKind.ERROR.value))
    return _WELL


_SCALARS = frozenset({str, int, float, bool, type(None)})
_JSON = _SCALARS | {dict, list, tuple}
_WELL = ToolOutcome(True)


def result_content(value: Any) -> str | list[dict[str, Any]]:
    """What a tool message holds of a value: its text, or, where it has images or files in it, a list of parts.

    A part of `isthmus.models.parts`, an `ImagePart` and a `FilePart` stand as they are, alone or in a list; what else
    the list holds becomes text. This library's own key is left out wherever it stands: what a tool returns is no
    bookkeeping.
    """
    if type(value) in _SCALARS:
        return result_text(value)
    value = without_reserved(value)
    items = value if isinstance(value, list | tuple) else (value,)
    if not any(isinstance(item, _PARTS) for item in items):
        return result_text(value)
    return [without_reserved(_part(item)) for item in items]


_PARTS = (*get_args(Content), ImagePart, FilePart)


def _part(item: Any) -> dict[str, Any]:
    if isinstance(item, ImagePart | FilePart):
        return part_content(item)
    made: Content = item if isinstance(item, Content) else TextContent(result_text(item))
    return made.to_dict()


def shown(content: str | list[dict[str, Any]]) -> str:
    """A content for a person: its text, and the kind of each part that is none."""
    if isinstance(content, str):
        return content
    return " ".join(text_of([part]) or f"({part.get('type')})" for part in content)


def result_text(value: Any) -> str:
    """A value as text: a string as it is, models, dataclasses and JSON values as JSON, `str()` of anything else.

    Raises:
        TypeError: it is a generator, of which nothing could be read.
    """
    if isinstance(value, str):
        return str.__str__(value)
    plain = type(value) in _JSON
    if not plain:
        dump = getattr(value, "model_dump_json", None)
        if callable(dump) and not isinstance(value, type):
            return str(dump())
        if isinstance(value, Generator | AsyncGenerator):
            raise TypeError("a generator is no result that can be read: return the whole of it")
        plain = isinstance(value, Mapping | list | tuple | int | float)
        if not plain and (not is_dataclass(value) or isinstance(value, type)):
            return str(value)
    try:
        return (dumps(value) if plain else structured(value)).decode()
    except (TypeError, ValueError, RecursionError):
        return _otherwise(value)


def _otherwise(value: Any) -> str:
    with suppress(ValueError):
        return structured(value).decode()
    return str(value)


def structured(value: Any) -> bytes:
    """JSON of dataclasses and models, inside of other values too.

    Raises:
        ValueError: something in it has no JSON form.
    """
    from pydantic import TypeAdapter

    return TypeAdapter(Any).dump_json(value)
