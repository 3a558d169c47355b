"""JSON the way this library needs it: fast, exact for integers of any size, and tolerant where the standard is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

Raw = msgspec.Raw


class WrittenFloat(float):
    """A number with more digits than a float holds: the nearest float; `str`, JSON and `Decimal` have them all."""

    __slots__ = ("_text",)
    _text: str

    def __new__(cls, text: str) -> WrittenFloat:
        """The float nearest to a number in JSON."""
        made = super().__new__(cls, text)
        made._text = text
        return made

    def __str__(self) -> str:
        return self._text

    def __reduce__(self) -> tuple[Any, ...]:
        return WrittenFloat, (self._text,)


def _builtin(value: Any) -> Any:
    """A read-only mapping as a dict, a number as it was written; nothing else that the encoder does not know."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, WrittenFloat):
        return Raw(str(value).encode())
    raise TypeError(f"{type(value).__name__} has no JSON form")


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(enc_hook=_builtin).encode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def loads(data: bytes | str) -> Any:
    """Decode JSON.

    Falls back to the standard library for what msgspec refuses and servers send: `1e400`, `NaN`, lone surrogates.

    Raises:
        ValueError: it is not JSON either way.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data if isinstance(data, str) else bytes(data))


def fields(data: bytes | str | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, each still undecoded, so that it can be sent on exactly as it came.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        return _decode_fields(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a JSON object: {error}") from None


def dumps(value: Any) -> bytes:
    """Encode to compact UTF-8 JSON; `Raw` values stand in it verbatim."""
    try:
        return _encode(value)
    except (TypeError, UnicodeEncodeError, msgspec.EncodeError, OverflowError):
        return json.dumps(_plain(value), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def unsayable(value: Any) -> str | None:
    """The path to a number in a value that JSON has no form for (NaN, an infinity), or None."""
    if isinstance(value, float):
        return None if value - value == 0 or isinstance(value, WrittenFloat) else ""
    # Exact types first: this runs over whole requests.
    if type(value) is dict or isinstance(value, Mapping):
        for key, item in value.items():
            if type(item) is not str and item is not None and (path := unsayable(item)) is not None:
                return f".{key}{path}"
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            if type(item) is not str and (path := unsayable(item)) is not None:
                return f"[{number}]{path}"
    return None


def _plain(value: Any) -> Any:
    """A value that the standard library can encode: `Raw` decoded, structs and enums as plain values."""
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return msgspec.to_builtins(value)
