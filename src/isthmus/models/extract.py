"""What applications most often want of a reply, or None where it is not there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from isthmus.models.accessors import member
from isthmus.models.lenient import parse_json_dict
from isthmus.models.responses import ModelResponse


class ResponseReasoningItem(msgspec.Struct, kw_only=True):
    """A reasoning item of the Responses API.

    Args:
        id: its id there.
        summary: dicts with the `text` of each part of the summary.
        content: dicts with the `text` of each part of the reasoning, where it may be read.
        encrypted_content: its opaque form, to be sent back as it came.
        status: "in_progress", "completed" or "incomplete".
    """

    id: str
    summary: list[dict[str, Any]] = []
    content: list[dict[str, Any]] | None = None
    encrypted_content: str | None = None
    status: str | None = None
    type: str = "reasoning"


class ReasoningContent:
    """Reasoning in either form: text, or an item that has a summary and content. False where it holds no text.

    Args:
        content: the text; or a `ResponseReasoningItem`, or an object or dict of that shape.
    """

    __slots__ = ("_item", "_text")

    def __init__(self, content: Any) -> None:
        self._item = None if isinstance(content, str) else content
        self._text = content if isinstance(content, str) else _markdown(content)

    @property
    def text(self) -> str:
        """The text; of an item, its summary and its content as Markdown."""
        return self._text

    @property
    def item(self) -> Any:
        """The item, or None where there is only text."""
        return self._item

    def __str__(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReasoningContent):
            return NotImplemented
        return (self._text, self._item) == (other._text, other._item)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ReasoningContent({self._text!r:.60}, item={self._item is not None})"


def _markdown(item: Any) -> str:
    sections = (("Summary", member(item, "summary")), ("Reasoning", member(item, "content")))
    texts = ((title, "\n\n".join(_texts(parts))) for title, parts in sections)
    return "\n\n".join(f"## {title}\n\n{text}" for title, text in texts if text)


def _texts(parts: Any) -> Iterator[str]:
    for part in parts if isinstance(parts, list | tuple) else ():
        text = member(part, "text")
        if isinstance(text, str) and text:
            yield text


def get_content_or_none(response: ModelResponse | None) -> str | None:
    """The text of a reply's first choice, or None where there is none."""
    return _message(response, "content")  # type: ignore[no-any-return]


def get_json_dict_or_none(response: ModelResponse | None) -> dict[str, Any] | None:
    """The text of a reply read as a JSON object, as tolerantly as `parse_json_dict`; None where it is none."""
    content = get_content_or_none(response)
    return parse_json_dict(content) if isinstance(content, str) else None


def get_reasoning_content_or_none(response: ModelResponse | None) -> ReasoningContent | None:
    """A reply's readable reasoning, whether it hangs on the response or on its message; None where there is none."""
    found = member(response, "reasoning_content")
    found = _message(response, "reasoning_content") if found is None else found
    return found if found is None or isinstance(found, ReasoningContent) else ReasoningContent(found)


def get_search_results_or_none(response: ModelResponse | None) -> list[dict[str, Any]] | None:
    """The `search_results` of a provider that searches the web before it answers, or None where there are none."""
    found = member(response, "search_results")
    return found if isinstance(found, list) else None


def parse_content_filter_block(response: Any) -> str | None:
    """What a content filter blocked, e.g. "prompt blocked by content filter: hate=high"; None if nothing.

    Reads the `content_filters` of a reply of the Responses API on Azure (its reference, 2026-11): of the first entry
    that is `blocked`, its `source_type` and the categories that are `filtered`, each with its severity.

    Args:
        response: the reply as a dict or an object, or one entry of its `content_filters`.
    """
    entries = member(response, "content_filters")
    for entry in entries if isinstance(entries, list | tuple) else (response,):
        if member(entry, "blocked") is True:
            source = member(entry, "source_type") or "response"
            return f"{source} blocked by content filter: {_categories(member(entry, 'content_filter_results'))}"
    return None


def _categories(results: Any) -> str:
    found = results.items() if isinstance(results, Mapping) else ()
    hits = [f"{name}={member(each, 'severity') or 'filtered'}" for name, each in found if member(each, "filtered")]
    return ", ".join(hits) or "unspecified"


def _message(response: Any, name: str) -> Any:
    choices = member(response, "choices")
    return member(member(choices[0], "message"), name) if isinstance(choices, list | tuple) and choices else None
