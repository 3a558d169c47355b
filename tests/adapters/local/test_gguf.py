from __future__ import annotations

import struct
from pathlib import Path

import pytest

from isthmus.adapters.local.gguf import context_length
from isthmus.errors import ConfigError


def text(value: str) -> bytes:
    """A string as GGUF writes it."""
    return struct.pack("<Q", len(value)) + value.encode()


def head(*entries: bytes) -> bytes:
    """The head of a GGUF file with these entries."""
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")
LANGUAGES = text("general.languages") + struct.pack("<IIQ", 9, 8, 2) + text("en") + text("de")
CONTEXT = text("llama.context_length") + struct.pack("<II", 4, 2048)


def test_the_trained_context_is_read_past_other_entries(tmp_path: Path):
    """The context length is found behind strings and arrays, under the architecture's own name."""
    (tmp_path / "m.gguf").write_bytes(head(ARCHITECTURE, LANGUAGES, CONTEXT))
    assert context_length(tmp_path / "m.gguf") == 2048


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04 something else",
        head(ARCHITECTURE),
        head(ARCHITECTURE, LANGUAGES, CONTEXT)[:-3],
        head(text("a.b") + struct.pack("<I", 99)),
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 60),
    ],
    ids=["empty", "other", "silent", "cut", "unknown-type", "absurd-length"],
)
def test_what_is_no_model_is_refused_by_name(tmp_path: Path, content: bytes):
    """A file that is no GGUF file, is cut short, or doesn't say its context, is an error that names it."""
    (tmp_path / "m.gguf").write_bytes(content)
    with pytest.raises(ConfigError, match=r"m\.gguf"):
        context_length(tmp_path / "m.gguf")


def test_a_missing_file_is_named(tmp_path: Path):
    """A path where there is no file is an error that names it."""
    with pytest.raises(ConfigError, match=r"nothing\.gguf: No such file"):
        context_length(tmp_path / "nothing.gguf")
