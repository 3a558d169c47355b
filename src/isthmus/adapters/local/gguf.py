"""The head of a GGUF file: just enough of it to know how long a context the model was trained for."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO

from isthmus.errors import ConfigError

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
# Value types by number; source: the GGUF specification, version 3.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LONGEST = 1 << 24


def context_length(path: Path) -> int:
    """The context in tokens that the model of a GGUF file was trained for.

    Raises:
        ConfigError: there is no such file, it is no GGUF file, or it does not say.
    """
    try:
        with path.open("rb") as file:
            return _find(file)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}; model must name a GGUF file", key="model") from None
    except (ValueError, KeyError, struct.error):
        raise ConfigError(f"{path} is no GGUF file, or does not say its context length", key="model") from None


def _find(file: BinaryIO) -> int:
    if file.read(4) != _MAGIC:
        raise ValueError("magic")
    _, _, count = _read(file, "IQQ")
    for _ in range(count):
        key = _text(file)
        value = _value(file, _read(file, "I")[0])
        if key.endswith(b".context_length") and isinstance(value, int):
            return value
    raise KeyError("context_length")


def _read(file: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))


def _text(file: BinaryIO) -> bytes:
    (length,) = _read(file, "Q")
    if length > _LONGEST:
        raise ValueError("length")
    return file.read(length)


def _value(file: BinaryIO, kind: int) -> object:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, count = _read(file, "IQ")
        return [_value(file, inner) for _ in range(count)]
    return _read(file, _SCALARS[kind])[0]
