"""The parts of a message's content, whoever spelled them: one reading, and a way back that loses nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from isthmus.models.media import Media


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What all parts have.

    Args:
        extra: members beside the ones that were read, kept for whoever knows them.

    Raises:
        TypeError: its media is no `Media`, or its text no text.
    """

    type: ClassVar[str] = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    _origin: Any = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        name = type(self).__name__
        if hasattr(self, "media") and not isinstance(self.media, Media):
            raise TypeError(f"{name}.media: must be a Media, not {type(self.media).__name__}: write Media(url=…)")
        text: Any = getattr(self, "text", "")
        if not isinstance(text, str):
            raise TypeError(f"{name}.text: must be text, not {type(text).__name__}")

    def to_dict(self) -> dict[str, Any]:
        """The part as a dict: the very one it was read from, else in the neutral spelling."""
        if self._origin is not None:
            return dict(self._origin)
        return {**self._spelled(), **self.extra}

    def hung_on(self, origin: Mapping[str, Any], used: frozenset[str]) -> None:
        """Remember the dict that this part was read from; for the reader alone, on a part it just made."""
        extra = {key: value for key, value in origin.items() if key not in used and key != "type"}
        object.__setattr__(self, "extra", extra)
        object.__setattr__(self, "_origin", origin)

    @property
    def spelled(self) -> str:
        """The type under which it came; its neutral one where it was made here."""
        return str((self._origin or self._spelled()).get("type", ""))

    @property
    def beside(self) -> tuple[str, ...]:
        """The members that it came with and that its fields do not hold: what another spelling cannot say."""
        origin = self._origin or {}
        found = [str(name) for name in self.extra]
        for name, known in _HELD.items():
            held = origin.get(name)
            if isinstance(held, Mapping):
                found += [f"{name}.{key}" for key in held if key not in known]
        for name, places in _PLACES.items():
            held = origin.get(name)
            given = [place for place in places if held.get(place)] if isinstance(held, Mapping) else []
            found += [f"{name}.{place}" for place in given[1:]]
        return tuple(found)

    def neutral(self) -> dict[str, Any]:
        """The part in the neutral spelling, without members that only another spelling has."""
        return self._spelled()

    def _spelled(self) -> dict[str, Any]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class TextContent(_Part):
    """Text."""

    type: ClassVar[str] = "text"
    text: str

    def _spelled(self) -> dict[str, Any]:
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, slots=True)
class ImageContent(_Part):
    """An image.

    Args:
        media: its content.
        detail: how closely to look: "low", "high", "auto"; None leaves it to the provider.
    """

    type: ClassVar[str] = "image"
    media: Media
    detail: str | None = None

    def _spelled(self) -> dict[str, Any]:
        detail = {} if self.detail is None else {"detail": self.detail}
        if self.media.file_id is not None:
            return {"type": "input_image", "file_id": self.media.file_id, **detail}
        return {"type": "image_url", "image_url": {"url": self.media.as_url(), **detail}}


@dataclass(frozen=True, slots=True)
class FileContent(_Part):
    """A document or any other file."""

    type: ClassVar[str] = "file"
    media: Media

    def _spelled(self) -> dict[str, Any]:
        media = self.media
        file: dict[str, Any] = {} if media.name is None else {"filename": media.name}
        if media.file_id is not None:
            file["file_id"] = media.file_id
        else:
            file["file_data" if media.url is None else "file_url"] = media.as_url()
        return {"type": "file", "file": file}


@dataclass(frozen=True, slots=True)
class AudioContent(_Part):
    """A sound."""

    type: ClassVar[str] = "audio"
    media: Media

    def _spelled(self) -> dict[str, Any]:
        media = self.media
        if media.data is None:
            return FileContent(media)._spelled()
        kind = (media.media_type or "").removeprefix("audio/")
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": _FORMATS.get(kind, kind)}}


@dataclass(frozen=True, slots=True)
class CallContent(_Part):
    """A tool call.

    Args:
        call_id: the id that its result must carry.
        name: the tool's name.
        arguments: the arguments as JSON text, exactly as the model wrote them.
    """

    type: ClassVar[str] = "call"
    call_id: str
    name: str
    arguments: str = "{}"

    def _spelled(self) -> dict[str, Any]:
        return {
            "id": self.call_id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }


@dataclass(frozen=True, slots=True)
class ResultContent(_Part):
    """A tool's result.

    Args:
        call_id: the id of the call that it answers.
        content: text, or parts: images and files too.
        is_error: whether the tool failed.
    """

    type: ClassVar[str] = "result"
    call_id: str
    content: str | tuple[Content, ...] = ""
    is_error: bool = False

    def _spelled(self) -> dict[str, Any]:
        content = self.content if isinstance(self.content, str) else [part.to_dict() for part in self.content]
        failed = {"is_error": True} if self.is_error else {}
        return {"type": "tool_result", "tool_use_id": self.call_id, "content": content, **failed}


@dataclass(frozen=True, slots=True)
class ThinkingContent(_Part):
    """A model's reasoning.

    Args:
        text: what may be read of it.
        signature: what proves it to the provider that made it.
        encrypted: what only that provider can read.
    """

    type: ClassVar[str] = "reasoning"
    text: str = ""
    signature: str | None = None
    encrypted: str | None = None

    def _spelled(self) -> dict[str, Any]:
        if self.encrypted is not None and not self.text:
            return {"type": "redacted_thinking", "data": self.encrypted}
        signed = {} if self.signature is None else {"signature": self.signature}
        if self.encrypted is not None:
            return {"type": "reasoning", "text": self.text, "encrypted_content": self.encrypted, **signed}
        return {"type": "thinking", "thinking": self.text, **signed}


@dataclass(frozen=True, slots=True)
class OtherContent(_Part):
    """A part of a kind that is not known here, or that does not hold what its kind must; kept as it is.

    Args:
        value: the part itself.
        problem: why a part of a known kind could not be read.
    """

    type: ClassVar[str] = "other"
    value: Mapping[str, Any]
    problem: str | None = None

    def _spelled(self) -> dict[str, Any]:
        return dict(self.value)


Content: TypeAlias = (
    TextContent
    | ImageContent
    | FileContent
    | AudioContent
    | CallContent
    | ResultContent
    | ThinkingContent
    | OtherContent
)
# What is read of the members that are dicts.
_HELD: Mapping[str, frozenset[str]] = {
    "image_url": frozenset({"url", "detail"}),
    "file": frozenset({"filename", "file_id", "file_data", "file_url"}),
    "input_audio": frozenset({"data", "format"}),
    "source": frozenset({"type", "media_type", "mimeType", "mime_type", "data", "url", "file_id"}),
    "function": frozenset({"name", "arguments"}),
}
# Where the content may stand, in the order in which it is looked for: the first one is the part's.
_PLACES: Mapping[str, tuple[str, ...]] = {
    "file": ("file_id", "file_data", "file_url"),
    "source": ("file_id", "url", "data"),
}
_FORMATS = {"mpeg": "mp3", "x-m4a": "m4a"}
