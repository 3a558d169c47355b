"""What an image, a file or a sound is made of: its media type, and where its content stands."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

PDF = "application/pdf"

MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
_DATA_URL = re.compile(rf"data:({MEDIA_TYPE.pattern})?((?:;[\w.+-]+=[^;,]*)*)(;base64)?,", re.I)
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", PDF),
    (b"fLaC", "audio/flac"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_ALIASES = {"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav"}
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})
_UNSAID = ("", "application/octet-stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """The content of an image, a file or a sound, and its media type.

    Args:
        media_type: what it is, e.g. "image/png"; None where nobody said and the content does not tell.
        data: its bytes as base64; or
        text: its text; or
        url: its address; or
        file_id: its id at a provider.
        name: its file name.
        declared: the media type that came with it, where its first bytes say that it is another one.

    Raises:
        ValueError: it has not exactly one of data, text, url and file_id.
    """

    media_type: str | None = None
    data: str | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    declared: str | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("data", "text", "url", "file_id") if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "none"
            raise ValueError(f"Media takes exactly one of data, text, url and file_id, not {said}")

    @classmethod
    def of(cls, content: bytes, media_type: str | None = None, *, name: str | None = None) -> Media:
        """The media of these bytes.

        Args:
            content: the bytes themselves, not base64.
            media_type: what they are; None reads it off the first bytes, else off the name's ending.
            name: the file name.

        Raises:
            TypeError: the content is no bytes.
            ValueError: nothing says what they are.
        """
        if not isinstance(content, bytes | bytearray | memoryview):
            raise TypeError(f"Media.of takes bytes, not {type(content).__name__}; base64 goes to Media(data=…)")
        said = media_type or named(name)
        made = from_base64(b64encode(content).decode("ascii"), said, name=name)
        if made.media_type is None:
            raise ValueError("Media.of cannot tell what these bytes are: give a media_type, e.g. 'image/png'")
        return made

    @property
    def is_text(self) -> bool:
        """Whether a model can read the content as text."""
        kind = self.media_type or ""
        return self.text is not None or kind.startswith("text/") or kind in _TEXTS

    def as_text(self) -> str:
        """The content as text.

        Raises:
            ValueError: it is not here, or no UTF-8.
        """
        if self.text is not None:
            return self.text
        if self.data is None:
            raise ValueError(f"the content is not here but at {self.url or self.file_id}: send it itself")
        try:
            return b64decode(self.data, validate=True).decode()
        except ValueError as error:
            raise ValueError(f"its data is not base64 of UTF-8: {error}") from None

    def as_base64(self) -> str | None:
        """The content as base64, or None where it is not here."""
        return self.data if self.text is None else b64encode(self.text.encode()).decode("ascii")

    def as_url(self) -> str | None:
        """The address of the content, a data URL where it is here; None for a file id."""
        data = self.as_base64()
        if data is None:
            return self.url
        return f"data:{self.media_type or ('text/plain' if self.text is not None else '')};base64,{data}"


def declared_type(said: object) -> str | None:
    """A media type that somebody declared, without parameters; None where it is no text, or empty.

    Raises:
        ValueError: it is no media type.
    """
    if not isinstance(said, str) or not said:
        return None
    bare = said.partition(";")[0].strip()
    if not MEDIA_TYPE.fullmatch(bare):
        raise ValueError(f"media_type must be like 'image/png', not {said!r}")
    return bare


def named(name: str | None) -> str | None:
    """The media type that a file's name ends in, or None."""
    from mimetypes import guess_type  # reads the system's tables

    return guess_type(name)[0] if name else None


def sniff(data: str) -> str | None:
    """The media type that the first bytes of base64 text show, or None."""
    head = data[:64]
    try:
        first = b64decode(head[: len(head) // 4 * 4])
    except ValueError:
        return None
    if first[:4] == b"RIFF":
        return _RIFF.get(first[8:12])
    return next((kind for magic, kind in _MAGIC if first.startswith(magic)), None)


def from_base64(data: str, declared: str | None = None, *, name: str | None = None) -> Media:
    """Media of base64 text; its first bytes decide where nothing was declared, or an image or PDF says otherwise.

    Raises:
        ValueError: what was declared is no media type, and the first bytes tell none.
    """
    seen = sniff(data)
    try:
        said = (declared_type(declared) or "").lower()
    except ValueError:
        if seen is None:
            raise
        said = ""
    said = _ALIASES.get(said, said)
    strong = seen is not None and (seen.startswith("image/") or seen == PDF)
    kind = seen if seen is not None and (strong or said in _UNSAID) else said
    changed = declared if declared and kind != declared.lower() else None
    return Media(media_type=kind or None, data=data, name=name, declared=changed)


def from_url(url: str, declared: str | None = None, *, name: str | None = None) -> Media:
    """Media of an address; a data URL is taken apart.

    Raises:
        ValueError: a data URL that is not well formed.
    """
    if url[:5].lower() != "data:":
        return Media(url=url, media_type=declared, name=name)
    match = _DATA_URL.match(url)
    if match is None:
        raise ValueError(f"not a data URL: {url[:40]!r}; write data:<media type>;base64,<data>")
    kind, rest = (match[1] or declared or "text/plain").lower(), url[match.end() :]
    if match[3] is not None:
        return from_base64(rest, kind if match[1] or declared else None, name=name)
    content = unquote_to_bytes(rest)
    made = from_base64(b64encode(content).decode("ascii"), kind, name=name)
    if not made.is_text:
        return made
    try:
        return Media(text=content.decode(), media_type=kind, name=name)
    except UnicodeDecodeError:
        return made
