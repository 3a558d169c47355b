"""Reads content parts in any spelling that is in use, so that no adapter needs to know them all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from isthmus.models.media import Media, declared_type, from_base64, from_url, named
from isthmus.models.messages import sendable
from isthmus.models.parts import (
    AudioContent,
    CallContent,
    Content,
    FileContent,
    ImageContent,
    OtherContent,
    ResultContent,
    TextContent,
    ThinkingContent,
)

_Reader: TypeAlias = Callable[[Mapping[str, Any]], Content]


def read_part(part: Mapping[str, Any]) -> Content:
    """The one reading of a part, by what it holds rather than by what it is called.

    A document in an image part is a document, an image in a file part an image. A part of an unknown kind, and one
    that does not hold what its kind must, is an `OtherContent`; `to_dict` of the result gives the part back.
    """
    kind = part.get("type")
    known = _READERS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return OtherContent(part)
    read, used = known
    try:
        made = read(part)
    except ValueError as error:
        return OtherContent(part, problem=str(error))
    made.hung_on(part, used)
    return made


def remarks(part: Content) -> tuple[str, ...]:
    """What was wrong about the part as it was spelled, and how it was read: a sentence each, for notes."""
    media = getattr(part, "media", None)
    if media is None:
        return ()
    found = []
    if media.declared:
        found.append(f"declared as {media.declared}, its content is {media.media_type}")
    meant = _MEANT.get(part.spelled)
    if meant is not None and not isinstance(part, meant):
        found.append(f"{media.media_type} in a part of type {part.spelled} was read as {_WORDS[type(part)]}")
    return tuple(found)


def media_needs(messages: Iterable[Any]) -> set[str]:
    """What messages ask of a model beside reading text, in the words of `supports`: "images", "documents", "audio".

    Tool results count too. A text file that is here is text, which every adapter can say.
    """
    return {word for message in messages if isinstance(message, Mapping) for word in _of_content(message)}


def _of_content(message: Mapping[str, Any]) -> Iterator[str]:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return
    for part in [content] if isinstance(content, Mapping) else content if isinstance(content, list | tuple) else ():
        kind = part.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and (kind in _MEANT or kind in _RESULTS):
            yield from _needs(read_part(part))


def _needs(part: Content) -> Iterator[str]:
    if isinstance(part, ResultContent):
        for item in part.content if isinstance(part.content, tuple) else ():
            yield from _needs(item)
    elif isinstance(part, ImageContent | AudioContent | FileContent):
        media = part.media
        here = media.text is not None or media.data is not None
        if not (isinstance(part, FileContent) and media.is_text and here):
            yield _SUPPORTED_AS[type(part)]


def _text(part: Mapping[str, Any]) -> Content:
    said = part.get("refusal") if part.get("type") == "refusal" else part.get("text")
    if not isinstance(said, str):
        raise ValueError(f"a text part's text must be a string, not {type(said).__name__}")
    return TextContent(said)


def _by_media(media: Media, kind: type, *, detail: str | None = None) -> Content:
    """The part for what the media is; the kind that it was spelled as where the media does not say."""
    if media.data == "" and not media.is_text:
        raise ValueError(f"the data is empty ({media.media_type or 'of no media type'}): leave the part out")
    family = (media.media_type or "").partition("/")[0]
    kind = _FAMILIES.get(family, FileContent if media.media_type else kind)
    if kind is ImageContent:
        return ImageContent(media, detail)
    return AudioContent(media) if kind is AudioContent else FileContent(media)


def _image(part: Mapping[str, Any]) -> Content:
    given = part.get("image_url")
    url = given.get("url") if isinstance(given, Mapping) else given
    detail = given.get("detail") if isinstance(given, Mapping) else part.get("detail")
    if not url and isinstance(part.get("file_id"), str):
        return ImageContent(Media(file_id=part["file_id"]), detail)
    if not isinstance(url, str) or not url:
        raise ValueError(f"an {part['type']} part needs a url, as a string, or a data URL")
    return _by_media(from_url(url), ImageContent, detail=detail)


def _file(part: Mapping[str, Any]) -> Content:
    held = part.get("file")
    file: Mapping[str, Any] = held if isinstance(held, Mapping) else part
    name = file.get("filename")
    name = name if isinstance(name, str) else None
    if isinstance(file.get("file_id"), str) and file["file_id"]:
        return FileContent(Media(file_id=file["file_id"], name=name))
    data = file.get("file_data") or file.get("file_url") or (held if isinstance(held, str) else None)
    if not isinstance(data, str) or not data:
        raise ValueError(f"a part of type {part['type']} needs file_data (a data URL), file_url or file_id")
    if data.startswith(("http://", "https://", "data:")):
        return _by_media(from_url(data, name=name), FileContent)
    return _by_media(from_base64(data, named(name), name=name), FileContent)


def _sound(part: Mapping[str, Any]) -> Content:
    given = part.get("input_audio")
    if not isinstance(given, Mapping) or not isinstance(given.get("data"), str) or not given["data"]:
        raise ValueError("an input_audio part needs input_audio with data (base64) and format")
    kind = given.get("format")
    declared = f"audio/{_AUDIO.get(kind, kind)}" if isinstance(kind, str) and kind else None
    return _by_media(from_base64(given["data"], declared), AudioContent)


def _sourced(part: Mapping[str, Any]) -> Content:
    """An image, document or sound with a source, or with the data beside its type."""
    kind = _MEANT[part["type"]]
    source = part.get("source")
    held: Mapping[str, Any] = source if isinstance(source, Mapping) else part
    declared = held.get("media_type") or held.get("mimeType") or held.get("mime_type")
    declared = declared if isinstance(declared, str) else None
    name = part.get("title") or part.get("filename")
    name = name if isinstance(name, str) else None
    if isinstance(held.get("file_id"), str):
        return _by_media(Media(file_id=held["file_id"], media_type=declared_type(declared), name=name), kind)
    if isinstance(held.get("url"), str):
        return _by_media(from_url(held["url"], declared_type(declared), name=name), kind)
    data = held.get("data")
    if not isinstance(data, str) or not data:
        raise ValueError(f"a part of type {part['type']} needs its data or a url: send its bytes as base64")
    if held.get("type") == "text":
        return FileContent(Media(text=data, media_type=declared_type(declared) or "text/plain", name=name))
    return _by_media(from_base64(data, declared, name=name), kind)


def _call(part: Mapping[str, Any]) -> Content:
    function = part.get("function")
    held = function if isinstance(function, Mapping) else part
    given = held.get("arguments") if "arguments" in held else held.get("input")
    arguments = given if isinstance(given, str) else sendable({} if given is None else given, "arguments").decode()
    name, call_id = held.get("name"), part.get("call_id") or part.get("id")
    if not isinstance(name, str) or not isinstance(call_id, str):
        raise ValueError(f"a part of type {part['type']} needs an id and a name, as strings")
    return CallContent(call_id, name, arguments)


def _result(part: Mapping[str, Any]) -> Content:
    call_id = part.get("tool_use_id") or part.get("call_id")
    if not isinstance(call_id, str):
        raise ValueError(f"a part of type {part['type']} needs the id of the call that it answers, as a string")
    given = part.get("content") if "content" in part else part.get("output")
    return ResultContent(call_id, read_result(given), bool(part.get("is_error")))


def read_result(given: Any) -> str | tuple[Content, ...]:
    """What a tool gave, as text or parts.

    A text, image, file or sound, and a list with one or with strings alone, are read; what is none among them, and any
    other value, is its JSON text: a tool may well return an object that has a `type` of its own.
    """
    if given is None or isinstance(given, str):
        return given or ""
    items = [given] if isinstance(given, Mapping) else given
    if not isinstance(items, list | tuple):
        return _json_text(given)
    parts = [_shown(item) for item in items]
    if not any(parts) and not all(isinstance(item, str) for item in items):
        return _json_text(given)
    return tuple(part or TextContent(_json_text(item)) for part, item in zip(parts, items, strict=True))


def _shown(item: Any) -> Content | None:
    """The part that a tool gave to be looked at, or None where it is something else."""
    part = read_part(item) if isinstance(item, Mapping) else None
    return part if isinstance(part, TextContent | ImageContent | FileContent | AudioContent) else None


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else sendable(value, "a tool result").decode()


def _thinking(part: Mapping[str, Any]) -> Content:
    text = part.get("thinking", part.get("text"))
    summary = part.get("summary")
    if text is None and isinstance(summary, list | tuple):
        text = "\n\n".join(str(item.get("text", "")) for item in summary if isinstance(item, Mapping))
    if text is not None and not isinstance(text, str):
        raise ValueError(f"a part of type {part['type']} needs its text as a string, not {type(text).__name__}")
    hidden = part.get("data") if part["type"] == "redacted_thinking" else part.get("encrypted_content")
    return ThinkingContent(text or "", part.get("signature"), hidden)


_AUDIO = {"mp3": "mpeg"}
_FAMILIES: Mapping[str, type] = {"image": ImageContent, "audio": AudioContent}
_WORDS = {ImageContent: "an image", FileContent: "a document", AudioContent: "a sound"}
_SUPPORTED_AS: Mapping[type, str] = {ImageContent: "images", FileContent: "documents", AudioContent: "audio"}
_RESULTS = ("tool_result", "function_call_output")
_MEANT: Mapping[str, type] = {
    **dict.fromkeys(("image_url", "input_image", "image"), ImageContent),
    **dict.fromkeys(("file", "input_file", "document"), FileContent),
    **dict.fromkeys(("input_audio", "audio"), AudioContent),
}


def _knows(read: _Reader, *used: str) -> tuple[_Reader, frozenset[str]]:
    return read, frozenset(used)


_SOURCED = _knows(
    _sourced, "source", "title", "filename", "media_type", "mimeType", "mime_type", "data", "url", "file_id"
)
_FILE = _knows(_file, "file", "filename", "file_id", "file_data", "file_url")
_READERS: Mapping[str, tuple[_Reader, frozenset[str]]] = {
    **dict.fromkeys(("text", "input_text", "output_text"), _knows(_text, "text")),
    "refusal": _knows(_text, "refusal"),
    **dict.fromkeys(("image_url", "input_image"), _knows(_image, "image_url", "detail", "file_id")),
    **dict.fromkeys(("file", "input_file"), _FILE),
    "input_audio": _knows(_sound, "input_audio"),
    **dict.fromkeys(("image", "document", "audio"), _SOURCED),
    "tool_use": _knows(_call, "id", "name", "input"),
    "function": _knows(_call, "id", "function"),
    "function_call": _knows(_call, "call_id", "name", "arguments"),
    "tool_result": _knows(_result, "tool_use_id", "content", "is_error"),
    "function_call_output": _knows(_result, "call_id", "output", "is_error"),
    "thinking": _knows(_thinking, "thinking", "signature"),
    "redacted_thinking": _knows(_thinking, "data"),
    "reasoning": _knows(_thinking, "text", "summary", "encrypted_content", "signature"),
}
