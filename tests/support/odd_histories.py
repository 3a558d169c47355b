"""Histories of every form, for the laws that hold for any request: strategies, and what a request may not do."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from isthmus.adapters.codec import Codec
from isthmus.errors import InvalidRequestError
from isthmus.models.contract import GenerateContext
from isthmus.models.messages import RESERVED

MARK = {"visibility": "internal", "origin": "test"}
TEXTS = st.sampled_from(["", " ", "hi", "a\ud83d", "\u2028", "null", '{"a":1}'])
NUMBERS = st.sampled_from([0, -1, 2**70, 0.1, 1e300, True])
IDS = st.sampled_from(["a", "b", "", "x y", "a" * 70])
SCALARS = st.one_of(st.none(), TEXTS, NUMBERS, st.just(b"QQ=="))


def _marked(values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.tuples(values, st.booleans()).map(lambda pair: {**pair[0], RESERVED: MARK} if pair[1] else pair[0])


ARGUMENTS = st.one_of(SCALARS, _marked(st.dictionaries(TEXTS, SCALARS, max_size=2)), st.lists(NUMBERS, max_size=2))
CALLS = _marked(
    st.fixed_dictionaries(
        {},
        optional={
            "id": IDS,
            "type": st.just("function"),
            "function": st.one_of(
                SCALARS, _marked(st.fixed_dictionaries({}, optional={"name": IDS, "arguments": ARGUMENTS}))
            ),
        },
    )
)
KINDS = st.sampled_from(
    [
        *("text", "image", "image_url", "document", "file", "input_audio", "refusal", "tool_use", "tool_result"),
        *("thinking", "redacted_thinking", "server_tool_use", "web_search_tool_result", "compaction", "new", None),
    ]
)
SOURCES = st.one_of(
    SCALARS,
    st.fixed_dictionaries({}, optional={"type": TEXTS, "data": TEXTS, "url": TEXTS, "media_type": TEXTS}),
)
PARTS = st.one_of(
    SCALARS,
    _marked(
        st.fixed_dictionaries(
            {"type": KINDS},
            optional={
                "text": SCALARS,
                "source": SOURCES,
                "image_url": st.one_of(SCALARS, st.fixed_dictionaries({"url": SCALARS})),
                "file": SOURCES,
                "input": ARGUMENTS,
                "id": IDS,
                "tool_use_id": IDS,
                "name": IDS,
                "content": st.one_of(SCALARS, st.lists(_marked(st.fixed_dictionaries({"type": st.just("text")})))),
            },
        )
    ),
)
MESSAGES = st.one_of(
    _marked(
        st.fixed_dictionaries(
            {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", None, ""])},
            optional={
                "content": st.one_of(SCALARS, st.lists(PARTS, max_size=3), PARTS),
                "tool_calls": st.one_of(SCALARS, st.lists(st.one_of(CALLS, CALLS, SCALARS), max_size=2)),
                "function_call": ARGUMENTS,
                "tool_call_id": st.one_of(IDS, st.none()),
                "name": TEXTS,
                "refusal": SCALARS,
            },
        )
    ),
    SCALARS,
)
HISTORIES = st.lists(MESSAGES, min_size=1, max_size=4)


def reserved_keys(value: Any) -> Iterator[str]:
    """Every key of this library's own in a decoded request."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if str(key).startswith(RESERVED):
            yield str(key)
        yield from reserved_keys(item)


def assert_request_laws(codec: Codec, messages: list[Any], **fields: Any) -> dict[str, Any] | None:
    """A history is refused by name, or sent: as JSON, the same bytes each time, no bookkeeping, nothing changed."""
    before = copy.deepcopy(messages)
    ctx = GenerateContext(messages=tuple(messages), **fields)
    try:
        body = codec.encode(ctx, stream=False).call.body
    except InvalidRequestError as error:
        refusal: InvalidRequestError | None = error
    else:
        refusal = None
    assert messages == before
    if refusal is not None:
        assert "messages" in str(refusal)
        return None
    assert codec.encode(ctx, stream=False).call.body == body
    sent: dict[str, Any] = json.loads(body, parse_constant=float)
    assert not list(reserved_keys(sent))
    return sent
