"""JSON the way this library needs it: fast, exact for integers of any size, and tolerant where the standard is."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isinf
from typing import Any, TypeVar

import msgspec

Raw = msgspec.Raw
_T = TypeVar("_T", bound=msgspec.Struct)
_ALL_INTEGERS = 2**53
_SHOWN = 40


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
_decode_items = msgspec.json.Decoder(list[msgspec.Raw]).decode


def loads(data: bytes | str | msgspec.Raw) -> Any:
    """Decode JSON.

    Falls back to the standard library for what msgspec refuses and servers send: `1e400`, `NaN`, lone surrogates.

    Raises:
        ValueError: it is not JSON either way.
    """
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data if isinstance(data, str) else bytes(data))


def reader(kind: type[_T]) -> Callable[[bytes | msgspec.Raw], _T]:
    """What reads a few fields of a JSON object, as `loads` reads them where msgspec refuses it.

    Args:
        kind: a struct with a default for each field, of which each takes any value.
    """
    decode = msgspec.json.Decoder(kind).decode
    names = msgspec.structs.fields(kind)

    def read(data: bytes | msgspec.Raw) -> _T:
        try:
            return decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            value = loads(data)
            if not isinstance(value, dict):
                raise ValueError(f"a JSON object was wanted, not {type(value).__name__}") from None
            return kind(**{each.name: value[each.name] for each in names if each.name in value})

    return read


def strictly(text: str) -> Any:
    """Decode JSON that a model wrote: as `loads` does, but `NaN`, the infinities, and what would become one are none.

    Raises:
        ValueError: it is not JSON, or holds a number larger than any float, or of more digits than Python reads.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, parse_int=_whole)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _finite(number: str) -> float:
    nearest = float(number)
    if isinf(nearest):
        raise ValueError(f"{number[:_SHOWN]} is too large a number")
    return nearest


def _whole(number: str) -> int:
    try:
        return int(number)
    except ValueError:
        raise ValueError(f"{number[:_SHOWN]}… is a number of too many digits: {len(number)}") from None


def exactly(text: str | bytes) -> tuple[Any, bool]:
    """Decode JSON without losing digits, and whether there were any to lose.

    A number that a float does not hold is an int where it is whole and beyond 2^53, else a `WrittenFloat`.

    Raises:
        ValueError: it is not JSON.
    """
    lost: list[str] = []

    def read(number: str) -> Any:
        nearest = float(number)
        if isinf(nearest):
            return nearest
        exact, large = Decimal(number), abs(nearest) >= _ALL_INTEGERS
        if exact == Decimal(nearest if large else repr(nearest)):
            return nearest
        lost.append(number)
        return int(exact) if large and exact == exact.to_integral_value() else WrittenFloat(number)

    found = json.loads(text, parse_float=read)
    return found, bool(lost)


def fields(data: bytes | str | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The members of a JSON object, each still undecoded, so that it can be sent on exactly as it came.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        return _decode_fields(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a JSON object: {error}") from None


def members(data: bytes | str | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The same of what a server sent: as `loads` does, it lets through what msgspec refuses.

    Raises:
        ValueError: not a JSON object.
    """
    try:
        return fields(data)
    except ValueError:
        value = loads(data)
        if not isinstance(value, dict):
            raise
        return {key: Raw(json.dumps(item).encode()) for key, item in value.items()}


def items(data: bytes | str | msgspec.Raw) -> list[msgspec.Raw]:
    """The elements of a JSON array that a server sent, each still undecoded; read as `members` reads.

    Raises:
        ValueError: not a JSON array.
    """
    try:
        return _decode_items(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = loads(data)
        if not isinstance(value, list):
            raise ValueError(f"not a JSON array but {type(value).__name__}") from None
        return [Raw(json.dumps(item).encode()) for item in value]


def utf8(data: bytes) -> bytes:
    """The bytes of a JSON text that nobody has decoded yet; lone surrogates may stand in it.

    Raises:
        ValueError: they are no UTF-8, so no JSON, and could be neither read nor kept.
    """
    if not data.isascii():
        data.decode("utf-8", "surrogatepass")
    return bytes(data)


def dumps(value: Any) -> bytes:
    """Encode to compact UTF-8 JSON; `Raw` values stand in it verbatim."""
    try:
        return _encode(value)
    except (TypeError, UnicodeEncodeError, msgspec.EncodeError, OverflowError):
        return _piecewise(value)


def as_it_came(value: Any) -> str:
    """A decoded value as text: JSON, with what servers send and JSON has no words for as they spell it."""
    return dumps(value).decode() if unsayable(value) is None else json.dumps(value)


def unsayable(value: Any) -> str | None:
    """The path to a number in a value that JSON has no form for (NaN, an infinity), or None."""
    # Exact types first: this runs over whole requests.
    kind = type(value)
    if kind is dict or (kind is not list and isinstance(value, Mapping)):
        if _SAYABLE.issuperset(map(type, value.values())):
            return None
        for key, item in value.items():
            if type(item) not in _SAYABLE and (path := unsayable(item)) is not None:
                return f".{key}{path}"
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if type(item) not in _SAYABLE and (path := unsayable(item)) is not None:
                return f"[{number}]{path}"
    elif isinstance(value, float) and value - value != 0 and not isinstance(value, WrittenFloat):
        return ""
    return None


_SAYABLE = frozenset({str, int, bool, type(None)})


def _piecewise(value: Any) -> bytes:
    """A value that msgspec refuses for an integer beyond 64 bits or a lone surrogate; all else in it as ever."""
    if isinstance(value, Mapping):
        members = (_piecewise(str(key)) + b":" + _piecewise(item) for key, item in value.items())
        return b"{" + b",".join(members) + b"}"
    if isinstance(value, list | tuple | set | frozenset):
        return b"[" + b",".join(map(_piecewise, value)) + b"]"
    try:
        return _encode(value)
    except (UnicodeEncodeError, msgspec.EncodeError, OverflowError):
        if isinstance(value, str | int):
            return json.dumps(value).encode("ascii")
        return _piecewise(msgspec.to_builtins(value, builtin_types=(Raw,), enc_hook=_builtin))
