"""First bytes of real formats, and a strategy for messages of any form."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from hypothesis import strategies as st

SAMPLES: dict[str, bytes] = {
    "image/png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
    "image/jpeg": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00",
    "image/gif": b"GIF89a\x01\x00\x01\x00",
    "image/webp": b"RIFF\x24\x00\x00\x00WEBPVP8 ",
    "application/pdf": b"%PDF-1.7\n%\xe2\xe3",
    "audio/wav": b"RIFF\x24\x00\x00\x00WAVEfmt ",
    "audio/mpeg": b"ID3\x04\x00\x00\x00\x00",
    "audio/flac": b"fLaC\x00\x00\x00\x22",
    "audio/ogg": b"OggS\x00\x02\x00\x00",
}
IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


def b64(media_type: str) -> str:
    """A sample as base64."""
    return b64encode(SAMPLES[media_type]).decode()


def data_url(media_type: str, declared: str | None = None) -> str:
    """A sample as a data URL, declared as what it is unless told otherwise."""
    return f"data:{media_type if declared is None else declared};base64,{b64(media_type)}"


TEXTS = st.text(max_size=8)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
KINDS = (
    "text",
    "input_text",
    "output_text",
    "refusal",
    "image_url",
    "input_image",
    "image",
    "file",
    "input_file",
    "document",
    "input_audio",
    "audio",
    "tool_use",
    "function",
    "function_call",
    "tool_result",
    "function_call_output",
    "thinking",
    "redacted_thinking",
    "reasoning",
    "search_result",
)
_URLS = st.sampled_from(
    [data_url("image/png"), data_url("application/pdf", "image/png"), "https://e.org/x", "data:,a", ""]
)
_WORDS: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "refusal": TEXTS,
    "image_url": _URLS | st.fixed_dictionaries({"url": _URLS}, optional={"detail": TEXTS, "x": VALUES}),
    "file": st.fixed_dictionaries({}, optional={"file_data": _URLS, "file_id": TEXTS, "filename": TEXTS}),
    "file_data": _URLS,
    "input_audio": st.fixed_dictionaries({"data": TEXTS}, optional={"format": TEXTS}),
    "source": st.fixed_dictionaries({"data": TEXTS}, optional={"type": TEXTS, "media_type": TEXTS}),
    "id": TEXTS,
    "call_id": TEXTS,
    "name": TEXTS,
    "function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS | VALUES}),
    "input": VALUES,
    "tool_use_id": TEXTS,
    "content": VALUES,
    "output": VALUES,
    "thinking": TEXTS,
    "signature": TEXTS,
    "data": TEXTS,
    "cache_control": VALUES,
}
PARTS = st.builds(
    lambda kind, known, rest: {**rest, "type": kind, **known},
    st.sampled_from(KINDS),
    st.fixed_dictionaries({}, optional={name: values | VALUES for name, values in _WORDS.items()}),
    st.dictionaries(TEXTS, VALUES, max_size=2),
)
CONTENTS = VALUES | st.lists(PARTS | VALUES, max_size=4) | PARTS
CALLS = st.lists(
    st.fixed_dictionaries(
        {
            "id": TEXTS,
            "type": st.just("function"),
            "function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS}),
        }
    ),
    max_size=2,
)
MESSAGES: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda known, rest: {**rest, **known},
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "odd"]),
            "content": CONTENTS,
            "tool_calls": CALLS | VALUES,
            "tool_call_id": TEXTS | VALUES,
            "name": TEXTS | VALUES,
            "_isthmus": VALUES,
        },
    ),
    st.dictionaries(TEXTS, VALUES, max_size=2),
)
"""Any message: right ones, wrong ones, and such as nobody would write."""
TURNS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool"]),
        "content": st.lists(PARTS, max_size=3) | PARTS,
        "tool_call_id": st.sampled_from(["a", "b"]),
    }
)
"""Messages of parts, as a codec meets them."""
